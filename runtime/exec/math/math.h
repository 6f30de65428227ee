/* The arithmetic of the CPU: float32, one thread. The only door to CBLAS. It is OpenBLAS when its shared library is
 * found at run time, otherwise GSL's CBLAS. OpenBLAS is loaded with dlopen, so that its core type can be set first.
 * Everything is row-major.
 *
 * Same input, same bytes on one machine and library; between libraries results differ by rounding. Nothing allocates;
 * nothing global is written after hec_math_open. Arrays of one call do not overlap unless it says so. */
#pragma once
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Loads the library; call once per process before any other thread or fork. Never fails: without OpenBLAS it is GSL. */
void hec_math_open(void);
/* "OpenBLAS 0.3.21, core SkylakeX (set by hecate: detected Prescott), 1 thread" or "GSL CBLAS 2.7.1 (slow: OpenBLAS was
 * not found)"; printed with every measurement. */
const char *hec_math_library(void);

/* C[m,n] = alpha * op(A) op(B) + beta * C; transposed operands are stored as [k,m] and [n,k]. lda.. = row lengths as
 * stored without padding. m, n or k == 0: C = beta * C. */
typedef struct {
  int32_t m, n, k;
  bool transpose_a, transpose_b;
  const float *a, *b;
  float *c;
  float alpha, beta;
  int32_t lda, ldb, ldc; /* 0: packed */
} hec_gemm;
void hec_math_gemm(const hec_gemm *gemm);

void hec_math_add(float *to, const float *from, int64_t n);                /* to += from */
void hec_math_axpy(float *to, float factor, const float *from, int64_t n); /* to += factor * from */
void hec_math_scale(float *x, float factor, int64_t n);
float hec_math_dot(const float *a, const float *b,
                   int64_t n); /* fixed order of summation, the same for every alignment */

/* Activation of a FFN. inner [n, n_matrices * f]: two matrices: before | after; three: gate | up | product. */
typedef enum { HEC_RELU, HEC_GELU, HEC_SILU } hec_activation;

void hec_math_softmax(float *x, int32_t n); /* in place */

/* RMS norm without epsilon surprises: y = gain * x / sqrt(mean(x^2) + 1e-6) per row of d; scale[rows] = 1/sqrt(..). */
void hec_math_norm(const float *x, const float *gain, float *y, float *scale, int32_t rows, int32_t d);
/* dx += ..., dgain += ... */
void hec_math_norm_backward(const float *x, const float *gain, const float *scale, const float *dy, float *dx,
                            float *dgain, int32_t rows, int32_t d);

/* Adam (Kingma and Ba, arXiv:1412.6980) with bias correction, step counts from 1. moments [2 * n]: first, then second. */
typedef struct {
  float rate, beta1, beta2, epsilon;
} hec_adam;
/* What a step does to every number beside the betas: param -= rate * first / (sqrt(second * correct) + epsilon). Computed
 * here for every device, so that all of them use the same bits; inline, as plug-ins take no symbol from the program. */
typedef struct {
  float rate, correct;
} hec_adam_step;
/* By repeated squaring, so that no libm decides it. */
static inline double hec_adam_power(double base, int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2)
      power *= base;
  return power;
}

/* step counts from 1. */
static inline hec_adam_step hec_adam_step_of(const hec_adam *adam, int64_t step) {
  return (hec_adam_step){.rate = (float)((double)adam->rate / (1 - hec_adam_power((double)adam->beta1, step))),
                         .correct = (float)(1 / (1 - hec_adam_power((double)adam->beta2, step)))};
}
void hec_math_adam(const hec_adam *adam, int64_t step, float *params, const float *grads, float *first, float *second,
                   int64_t n);
