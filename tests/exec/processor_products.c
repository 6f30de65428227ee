/* Products against double loops, number by number: sum |a b| (k + 4) u, where u = 2^-24 is float32's rounding. Tensor cores
 * add with a few bits less (u = 2^-22). BF16: operands are rounded in the oracle as well, by arithmetic of its own, so
 * that no more is allowed. TF32 has 10 bits behind the leading one, and nobody says how the rest goes: each operand may be
 * off by 2^-10. */
#include "tests/exec/processor_case.h"

#include <math.h>
#include <string.h>

/* To 8 significant bits, ties to even. */
static double rounded(double x) {
  int exponent;
  (void)frexp(x, &exponent);
  return ldexp(nearbyint(ldexp(x, 8 - exponent)), exponent - 8);
}

static double operand(float x) {
  return hec_case.precision == HEC_BF16 ? rounded((double)x) : (double)x;
}

/* A product and its arrays. */
typedef struct {
  hec_gemm g; /* there */
  hec_numbers a, b, c;
} product;

static product make(hec_gemm g) {
  product p = {.a = hec_case_random((int64_t)g.lda * (g.transpose_a ? g.k : g.m)),
               .b = hec_case_random((int64_t)g.ldb * (g.transpose_b ? g.n : g.k))};
  int64_t n_c = (int64_t)g.ldc * g.m;
  p.c = g.beta == 0 ? hec_case_poisoned(n_c) : hec_case_random(n_c);
  g.a = p.a.at, g.b = p.b.at, g.c = p.c.at;
  p.g = g;
  return p;
}

/* What is between the rows stays. */
static void check(const product *p) {
  const hec_gemm *g = &p->g;
  const float *now = hec_case_fetch(p->c);
  double u = hec_case.precision == HEC_FP32 ? 0x1p-24 : 0x1p-22, worst = 0;
  double more = hec_case.precision == HEC_TF32 ? 2.01 * 0x1p-10 : 0;
  for (int64_t i = 0; i < g->m; i++) {
    for (int64_t j = 0; j < g->n; j++) {
      double sum = 0, size = 0, c = g->beta == 0 ? 0 : (double)g->beta * (double)p->c.x[i * g->ldc + j];
      for (int64_t k = 0; k < g->k; k++) {
        double term = operand(p->a.x[g->transpose_a ? k * g->lda + i : i * g->lda + k]) *
                      operand(p->b.x[g->transpose_b ? j * g->ldb + k : k * g->ldb + j]);
        sum += term;
        size += fabs(term);
      }
      double expected = (double)g->alpha * sum + c, found = (double)now[i * g->ldc + j];
      double bound = fabs((double)g->alpha) * size * (more + (g->k + 4) * u) + (fabs(c) + fabs(expected)) * 4 * u;
      double excess = fabs(found - expected) - bound;
      worst = excess > worst || isnan(found) ? (isnan(found) ? (double)INFINITY : excess) : worst;
    }
    int64_t gap = i * g->ldc + g->n;
    ck_assert(i == g->m - 1 || g->ldc == g->n ||
              memcmp(now + gap, p->c.x + gap, (size_t)(g->ldc - g->n) * sizeof *now) == 0);
  }
  ck_assert_msg(worst <= 0, "%d x %d x %d, forms %d %d, beta %g: %g beyond the bound", g->m, g->n, g->k, g->transpose_a,
                g->transpose_b, (double)g->beta, worst);
}

static void check_list(product *list, int32_t n) {
  hec_gemm *gemms = HEC_NEW(&hec_case_arena, hec_gemm, n + 1);
  for (int32_t i = 0; i < n; i++)
    gemms[i] = list[i].g;
  hec_case.on->math->gemm(hec_case.on, gemms, n);
  memset(gemms, 0xFF, (size_t)n * sizeof *gemms); /* it may go when the call returns */
  for (int32_t i = 0; i < n; i++)
    check(&list[i]);
}

static int32_t below(int32_t n) {
  return (int32_t)hec_test_below(&hec_case_seed, (uint64_t)n);
}

static hec_gemm shaped(int form, int32_t m, int32_t n, int32_t k, int32_t pad) {
  hec_gemm g = {.m = m, .n = n, .k = k, .transpose_a = form & 1, .transpose_b = form & 2, .alpha = 0.5F};
  g.lda = (g.transpose_a ? m : k) + pad;
  g.ldb = (g.transpose_b ? k : n) + pad;
  g.ldc = n + pad;
  g.beta = form & 4 ? 1.0F : 0.0F;
  return g;
}

/* Lists of products of every size and form, as experts of a skewed load make them: some without rows, one without terms. */
START_TEST(lists) {
  enum { LIST = 9 };
  int form = _i / HEC_CASE_SHIFTS;
  product list[LIST];
  hec_case_shift(_i % HEC_CASE_SHIFTS);
  for (int32_t i = 0; i < LIST; i++) {
    int32_t m = i % 3 == 0 ? 0 : 1 + below(70), n = 1 + below(40), k = i == 4 ? 0 : 1 + below(90), pad = below(5);
    hec_gemm g = shaped(form, m, n, k, pad + (m == 0 || k == 0)); /* a row is not empty */
    list[i] = make(g);
  }
  check_list(list, LIST);
}
END_TEST

/* Products that differ in their arrays only: heads. */
START_TEST(heads) {
  static const int32_t counts[] = {1, 2, 17, HEC_BATCH_MAX};
  product list[HEC_BATCH_MAX];
  for (int form = 0; form < 8; form++) {
    hec_case_shift(_i % HEC_CASE_SHIFTS);
    int32_t m = 1 + below(20), n = 1 + below(20), k = 1 + below(40), pad = below(3) * 4;
    for (int32_t i = 0; i < counts[_i / HEC_CASE_SHIFTS]; i++)
      list[i] = make(shaped(form, m, n, k, pad));
    check_list(list, counts[_i / HEC_CASE_SHIFTS]);
  }
}
END_TEST

/* Heads, but for one thing in one of them. */
START_TEST(nearly_heads) {
  for (int what = 0; what < 10; what++) {
    product list[3];
    for (int i = 0; i < 3; i++) {
      hec_gemm g = shaped(4, 8, 12, 16, 8);
      int32_t *different[] = {&g.m, &g.n, &g.k, &g.lda, &g.ldb, &g.ldc};
      if (i == 1 && what < 6)
        *different[what] -= 4;
      g.transpose_a = i == 1 && what == 6; /* lengths are enough for either form */
      g.transpose_b = i == 1 && what == 7;
      g.alpha += i == 1 && what == 8;
      g.beta += i == 1 && what == 9;
      list[i] = make(g);
    }
    check_list(list, 3);
  }
}
END_TEST

/* Packed rows (lengths 0), other factors, sizes of tiles and one more. */
START_TEST(single) {
  static const int32_t shapes[][3] = {{1, 1, 1}, {64, 64, 64}, {65, 33, 129}, {3, 200, 1}, {128, 16, 300}, {1, 7, 500}};
  for (int form = 0; form < 8; form++)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
      hec_gemm g = shaped(form, shapes[i][0], shapes[i][1], shapes[i][2], 0);
      hec_case_shift(_i);
      g.alpha = -1.25F;
      g.beta = form & 4 ? 0.75F : 0;
      product p = make(g);
      hec_gemm packed = p.g;
      packed.lda = packed.ldb = packed.ldc = 0;
      hec_case.on->math->gemm(hec_case.on, &packed, 1);
      check(&p);
    }
}
END_TEST

/* C = beta C, and zeros over NaN where beta is 0; nothing at all where there is no number. */
START_TEST(without_terms) {
  for (int form = 0; form < 8; form++) {
    hec_gemm g = shaped(form, 7, 13, 0, 3);
    product list[3];
    list[0] = make(g);
    g.beta = g.beta == 0 ? 0 : -0.5F;
    list[1] = make(g);
    g.m = 0;
    list[2] = make(g);
    check_list(list, 3);
    check_list(list + 2, 1);
  }
}
END_TEST

/* Operands that float32 holds and bfloat16 does not make a difference: the mode is what it says. */
START_TEST(precision_is_what_it_says) {
  product p = make(shaped(0, 64, 64, 64, 0));
  hec_case.on->math->gemm(hec_case.on, &p.g, 1);
  const float *now = hec_case_fetch(p.c);
  double error = 0, size = 0;
  for (int64_t i = 0; i < 64 * 64; i++) {
    double sum = 0;
    for (int64_t k = 0; k < 64; k++)
      sum += 0.5 * (double)p.a.x[i / 64 * 64 + k] * (double)p.b.x[k * 64 + i % 64];
    error += (sum - (double)now[i]) * (sum - (double)now[i]);
    size += sum * sum;
  }
  error = sqrt(error / size);
  if (hec_case.precision == HEC_BF16)
    ck_assert_msg(error > 5e-4 && error < 8e-3, "relative error %g", error);
  else
    ck_assert_msg(error < (hec_case.precision == HEC_TF32 ? 2e-3 : HEC_CASE_TOLERANCE), "relative error %g", error);
}
END_TEST

/* Numbers whose rounding is delicate: ties to both sides, carries into the exponent, the largest ones, infinities, NaN,
 * denormals. Times one: what comes out is what was rounded, exactly. */
START_TEST(roundings) {
  static const uint32_t bits[] = {0x3F800000, 0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x3FFF8000,
                                  0x3FFFFFFF, 0x7F7F7FFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000,
                                  0xFFFFFFFF, 0x00808000, 0x80000000, 0xBF818000, 0x7F7F0000, 0x3F817FFF};
  enum { N = sizeof bits / sizeof *bits };
  if (hec_case.precision != HEC_BF16)
    return;
  for (int i = 0; i < N; i++) { /* one at a time: NaN and infinities spoil what they are summed with */
    product p = make((hec_gemm){.m = 1, .n = 1, .k = 1, .alpha = 1, .lda = 1, .ldb = 1, .ldc = 1});
    memcpy(p.a.x, &bits[i], sizeof bits[i]);
    p.b.x[0] = 1;
    hec_case_send(p.a);
    hec_case_send(p.b);
    hec_case.on->math->gemm(hec_case.on, &p.g, 1);
    double x = (double)p.a.x[0], found = (double)*hec_case_fetch(p.c);
    ck_assert_msg(isnan(x) ? isnan(found) : found == (isinf(x) ? x : rounded(x)), "%08x became %g", bits[i], found);
  }
}
END_TEST

TCase *hec_case_products(void) {
  TCase *c = tcase_create("products");
  hec_case_fixture(c);
  tcase_add_loop_test(c, lists, 0, 8 * HEC_CASE_SHIFTS);
  tcase_add_loop_test(c, heads, 0, 4 * HEC_CASE_SHIFTS);
  tcase_add_test(c, nearly_heads);
  tcase_add_loop_test(c, single, 0, HEC_CASE_SHIFTS);
  tcase_add_test(c, without_terms);
  tcase_add_test(c, precision_is_what_it_says);
  tcase_add_test(c, roundings);
  return c;
}
