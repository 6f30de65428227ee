/* One matrix product as cuBLAS sees it, column-major: c [m, n] = alpha op(a) [m, k] op(b) [k, n] + beta c. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* How operands are rounded before they are multiplied: not, to the 19 bits of TF32, to bfloat16. */
typedef enum { FAKE_EXACT, FAKE_TF32, FAKE_BF16 } fake_rounding;

typedef struct {
  bool transpose_a, transpose_b;
  int64_t m, n, k, lda, ldb, ldc;
  const void *a, *b;
  void *c;
  bool half_in, half_out; /* bfloat16; else float */
  fake_rounding rounding;
  float alpha, beta; /* beta 0: c is not read */
} fake_product;

void fake_product_run(const fake_product *product);
/* Bytes from the first to behind the last number of each matrix. */
int64_t fake_product_bytes_a(const fake_product *product);
int64_t fake_product_bytes_b(const fake_product *product);
int64_t fake_product_bytes_c(const fake_product *product);
