/* A matrix product in float32: both operands are rounded and packed (op(a) by columns, op(b) by columns). Then four
 * columns of c at a time are sums over tiles of k, added up one after the other. Sums are shorter than they are on a
 * device, and in another order: tests must bear rounding. O(m n k), memory O(k (m + n)). */
#include "tests/cuda/fake_product.h"
#include "tests/cuda/fake.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 4, TILE = 64 };

/* ---- Numbers ---- */

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* To the nearest with `dropped` bits less, ties to even; NaN stays NaN. */
static float rounded(float x, int dropped) {
  uint32_t bits = bits_of(x), half = (1U << (dropped - 1)) - 1, odd = bits >> dropped & 1;
  if ((bits & 0x7F800000U) == 0x7F800000U)
    return x;
  return float_of((bits + half + odd) >> dropped << dropped);
}

static float number(const void *at, int64_t i, bool half, fake_rounding rounding) {
  float x = half ? float_of((uint32_t)((const uint16_t *)at)[i] << 16) : ((const float *)at)[i];
  return rounding == FAKE_EXACT ? x : rounded(x, rounding == FAKE_BF16 ? 16 : 13);
}

static void put(const fake_product *p, int64_t i, float x) {
  if (p->half_out)
    ((uint16_t *)p->c)[i] = (uint16_t)(bits_of(rounded(x, 16)) >> 16);
  else
    ((float *)p->c)[i] = x;
}

/* ---- Sizes ---- */

static int64_t bytes_of(int64_t rows, int64_t columns, int64_t ld, bool half) {
  int64_t numbers = rows > 0 && columns > 0 ? (columns - 1) * ld + rows : 0;
  return numbers * (half ? 2 : 4);
}

int64_t fake_product_bytes_a(const fake_product *p) {
  return p->transpose_a ? bytes_of(p->k, p->m, p->lda, p->half_in) : bytes_of(p->m, p->k, p->lda, p->half_in);
}

int64_t fake_product_bytes_b(const fake_product *p) {
  return p->transpose_b ? bytes_of(p->n, p->k, p->ldb, p->half_in) : bytes_of(p->k, p->n, p->ldb, p->half_in);
}

int64_t fake_product_bytes_c(const fake_product *p) {
  return bytes_of(p->m, p->n, p->ldc, p->half_out);
}

/* ---- The product ---- */

typedef struct {
  float *a, *b, *sums; /* [k, m], [n, k], [COLUMNS, m] */
  float *tile;         /* [COLUMNS, m] */
} packed;

static void pack(const fake_product *p, packed *to) {
  for (int64_t l = 0; l < p->k; l++)
    for (int64_t i = 0; i < p->m; i++)
      to->a[l * p->m + i] = number(p->a, p->transpose_a ? i * p->lda + l : l * p->lda + i, p->half_in, p->rounding);
  for (int64_t j = 0; j < p->n; j++)
    for (int64_t l = 0; l < p->k; l++)
      to->b[j * p->k + l] = number(p->b, p->transpose_b ? l * p->ldb + j : j * p->ldb + l, p->half_in, p->rounding);
}

/* tile[c] += a[:, l] b[l, j + c] for four columns. */
static void add_outer(float *restrict tile, const float *restrict a, const float b[COLUMNS], int64_t m) {
  float *t0 = tile, *t1 = tile + m, *t2 = tile + 2 * m, *t3 = tile + 3 * m;
  for (int64_t i = 0; i < m; i++) {
    t0[i] += a[i] * b[0];
    t1[i] += a[i] * b[1];
    t2[i] += a[i] * b[2];
    t3[i] += a[i] * b[3];
  }
}

static void four_columns(const fake_product *p, const packed *from, int64_t j) {
  size_t bytes = (size_t)(COLUMNS * p->m) * sizeof(float);
  memset(from->sums, 0, bytes);
  for (int64_t begin = 0; begin < p->k; begin += TILE) {
    int64_t end = begin + TILE < p->k ? begin + TILE : p->k;
    memset(from->tile, 0, bytes);
    for (int64_t l = begin; l < end; l++) {
      float b[COLUMNS];
      for (int64_t c = 0; c < COLUMNS; c++)
        b[c] = j + c < p->n ? from->b[(j + c) * p->k + l] : 0;
      add_outer(from->tile, from->a + l * p->m, b, p->m);
    }
    for (int64_t i = 0; i < COLUMNS * p->m; i++)
      from->sums[i] += from->tile[i];
  }
}

void fake_product_run(const fake_product *p) {
  if (p->m == 0 || p->n == 0)
    return;
  size_t numbers = (size_t)(p->k * (p->m + p->n) + 2 * COLUMNS * p->m);
  float *all = malloc(numbers * sizeof *all);
  if (!all)
    hec_queue_die("no memory for a product");
  packed own = {.a = all};
  own.b = own.a + p->k * p->m;
  own.sums = own.b + p->k * p->n;
  own.tile = own.sums + COLUMNS * p->m;
  pack(p, &own);
  for (int64_t j = 0; j < p->n; j += COLUMNS) {
    four_columns(p, &own, j);
    for (int64_t c = 0; c < COLUMNS && j + c < p->n; c++)
      for (int64_t i = 0; i < p->m; i++) {
        int64_t at = (j + c) * p->ldc + i;
        float before = p->beta == 0 ? 0 : p->beta * number(p->c, at, p->half_out, FAKE_EXACT);
        put(p, at, p->alpha * own.sums[c * p->m + i] + before);
      }
  }
  free(all);
}
