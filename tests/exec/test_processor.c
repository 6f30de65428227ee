/* Every call of a device against plain double loops, on fresh random inputs: odd, large and zero sizes; what is written
 * whole is poisoned before. Errors are relative: |found - expected| / |expected|, norms over the whole array. */
#include "runtime/exec/model.h"
#include "runtime/exec/processor.h"
#include "runtime/exec/reference.h"
#include "tests/support/check_main.h"

#include <math.h>
#include <string.h>

#define TOLERANCE 2e-6 /* of float32 sums of some hundred terms */

static hec_arena arena;
static uint64_t seed;
static hec_processor *on = &hec_processor_cpu;

static void setup(void) {
  hec_math_open();
  seed = 77;
}
static void teardown(void) {
  hec_arena_free(&arena);
}

static float *random_floats(int64_t n) {
  float *x = HEC_NEW(&arena, float, n + 1);
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)(2 * hec_test_uniform(&seed) - 1);
  return x;
}

static float *poisoned(int64_t n) {
  float *x = HEC_NEW(&arena, float, n + 1);
  for (int64_t i = 0; i <= n; i++)
    x[i] = NAN;
  return x;
}

static float *copy_of(const float *x, int64_t n) {
  float *y = HEC_NEW(&arena, float, n + 1);
  if (n > 0)
    memcpy(y, x, (size_t)n * sizeof *y);
  return y;
}

static double *doubles(int64_t n) {
  return HEC_NEW(&arena, double, n + 1);
}

static void expect(const float *found, const double *expected, int64_t n) {
  double error = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    error += ((double)found[i] - expected[i]) * ((double)found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  ck_assert_msg(sqrt(error) <= TOLERANCE * sqrt(size) + 1e-30, "relative error %g of %lld numbers",
                sqrt(error / (size > 0 ? size : 1)), (long long)n);
}

static const int32_t sizes[] = {0, 1, 7, 16, 33, 128, 1000};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* ---- Vectors ---- */

START_TEST(vectors) {
  const hec_arithmetic *math = on->math;
  int32_t n = sizes[_i];
  float *x = random_floats(n), *y = poisoned(n), *z = random_floats(n);
  double *sum = doubles(n);
  for (int32_t i = 0; i < n; i++)
    sum[i] = (double)z[i] + 2 * (double)x[i] + 3 * (double)x[i];
  math->copy(on, &(hec_piece){y, x, n}, 1);
  ck_assert(n == 0 || memcmp(x, y, (size_t)n * sizeof *x) == 0);
  math->scale(on, x, 2, n);
  math->scale(on, y, 3, n);
  math->add(on, (const hec_piece[]){{z, x, n}, {z, y, n}}, 2); /* the same place twice */
  expect(z, sum, n);
  math->zero(on, y, n);
  for (int32_t i = 0; i < n; i++)
    ck_assert(y[i] == 0);
  ck_assert(isnan(poisoned(n)[n]));
}
END_TEST

static void adam_oracle(const hec_adam *a, int64_t step, double *p, double g, double *m, double *v) {
  double beta1 = (double)a->beta1, beta2 = (double)a->beta2;
  *m = beta1 * *m + (1 - beta1) * g;
  *v = beta2 * *v + (1 - beta2) * g * g;
  double mean = *m / (1 - pow(beta1, (double)step)), square = *v / (1 - pow(beta2, (double)step));
  *p -= (double)a->rate * mean / (sqrt(square) + (double)a->epsilon);
}

START_TEST(adam) {
  const hec_adam with = {.rate = 1e-2F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-3F};
  int32_t n = sizes[_i];
  hec_moments of = {random_floats(n), random_floats(n), random_floats(n), random_floats(n), n, false};
  double *p = doubles(n), *m = doubles(n), *v = doubles(n), *grads = doubles(n);
  for (int32_t i = 0; i < n; i++) {
    of.second[i] = fabsf(of.second[i]);
    p[i] = (double)of.params[i];
    m[i] = (double)of.first[i];
    grads[i] = (double)of.grads[i];
    v[i] = (double)of.second[i];
  }
  for (int64_t step = 1; step <= 3; step++) {
    for (int32_t i = 0; i < n; i++)
      adam_oracle(&with, step, &p[i], (double)of.grads[i], &m[i], &v[i]);
    on->math->adam(on, &with, step, &of, 1);
  }
  of.clear = true;
  on->math->adam(on, &with, 4, &of, 1);
  for (int32_t i = 0; i < n; i++) {
    ck_assert(of.grads[i] == 0);
    adam_oracle(&with, 4, &p[i], grads[i], &m[i], &v[i]);
  }
  expect(of.params, p, n);
  expect(of.first, m, n);
  expect(of.second, v, n);
}
END_TEST

/* ---- Products ---- */

static double *gemm_oracle(const hec_gemm *g) {
  int64_t lda = g->lda ? g->lda : g->transpose_a ? g->m : g->k;
  int64_t ldb = g->ldb ? g->ldb : g->transpose_b ? g->k : g->n;
  int64_t ldc = g->ldc ? g->ldc : g->n;
  double *c = doubles((int64_t)g->m * g->n);
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++) {
      double sum = 0;
      for (int64_t k = 0; k < g->k; k++)
        sum += (double)g->a[g->transpose_a ? k * lda + i : i * lda + k] *
               (double)g->b[g->transpose_b ? j * ldb + k : k * ldb + j];
      double before = g->beta == 0 ? 0 : (double)g->beta * (double)g->c[i * ldc + j];
      c[i * g->n + j] = (double)g->alpha * sum + before;
    }
  return c;
}

/* Lists of products of every size and form, as experts of a skewed load make them: some without rows. */
START_TEST(products) {
  enum { LIST = 9 };
  for (int form = 0; form < 8; form++) {
    hec_gemm list[LIST];
    double *expected[LIST];
    for (int32_t i = 0; i < LIST; i++) {
      int32_t m = i % 3 == 0 ? 0 : 1 + (int32_t)hec_test_below(&seed, 70), n = 1 + (int32_t)hec_test_below(&seed, 40);
      int32_t k = i == 4 ? 0 : 1 + (int32_t)hec_test_below(&seed, 90), pad = (int32_t)hec_test_below(&seed, 4);
      hec_gemm g = {.m = m, .n = n, .k = k, .transpose_a = form & 1, .transpose_b = form & 2, .alpha = 0.5F};
      g.lda = (g.transpose_a ? m : k) + pad + 1;
      g.ldb = (g.transpose_b ? k : n) + pad + 1;
      g.ldc = n + pad;
      g.beta = form & 4 ? 1.0F : 0.0F;
      g.a = random_floats((int64_t)g.lda * (g.transpose_a ? k : m));
      g.b = random_floats((int64_t)g.ldb * (g.transpose_b ? n : k));
      g.c = g.beta == 0 ? poisoned((int64_t)g.ldc * m) : random_floats((int64_t)g.ldc * m);
      expected[i] = gemm_oracle(&g);
      list[i] = g;
    }
    on->math->gemm(on, list, LIST);
    for (int32_t i = 0; i < LIST; i++)
      for (int32_t row = 0; row < list[i].m; row++)
        expect(list[i].c + (int64_t)row * list[i].ldc, expected[i] + (int64_t)row * list[i].n, list[i].n);
  }
  on->math->gemm(on, NULL, 0);
}
END_TEST

/* ---- Rows ---- */

START_TEST(norms) {
  int32_t d = sizes[_i] + 1;
  for (int32_t rows = 0; rows < 6; rows++) {
    int64_t n = (int64_t)rows * d;
    hec_norm norm = {random_floats(n), random_floats(d), poisoned(rows), rows, d};
    float *y = poisoned(n), *dy = random_floats(n), *dx = random_floats(n), *dgain = random_floats(d);
    double *ey = doubles(n), *edx = doubles(n), *egain = doubles(d), *scale = doubles(rows);
    for (int32_t i = 0; i < d; i++)
      egain[i] = (double)dgain[i];
    for (int32_t r = 0; r < rows; r++) {
      const float *x = norm.x + (int64_t)r * d, *g = dy + (int64_t)r * d;
      double square = 0, along = 0;
      for (int32_t i = 0; i < d; i++)
        square += (double)x[i] * (double)x[i];
      double s = scale[r] = 1 / sqrt(square / d + 1e-6);
      for (int32_t i = 0; i < d; i++) {
        ey[(int64_t)r * d + i] = (double)norm.gain[i] * (double)x[i] * s;
        along += (double)norm.gain[i] * (double)g[i] * (double)x[i];
        egain[i] += (double)g[i] * (double)x[i] * s;
      }
      for (int32_t i = 0; i < d; i++)
        edx[(int64_t)r * d + i] = (double)dx[(int64_t)r * d + i] + s * (double)norm.gain[i] * (double)g[i] -
                                  (double)x[i] * s * s * s * along / d;
    }
    on->math->norm(on, &norm, y);
    on->math->norm_backward(on, &norm, dy, dx, dgain);
    expect(y, ey, n);
    expect(norm.scale, scale, rows);
    expect(dx, edx, n);
    expect(dgain, egain, d);
  }
}
END_TEST

/* Full, causal and linear scores, several blocks of queries in one call. */
START_TEST(scores) {
  for (int form = 0; form < 4; form++) {
    bool causal = form & 1, linear = form & 2;
    int32_t queries = 5, blocks = 3, n = sizes[_i] + queries;
    hec_scores s = {.rows = (int64_t)queries * blocks,
                    .n = n,
                    .visible = causal ? n - queries + 1 : n,
                    .stride = causal,
                    .period = queries,
                    .linear = linear};
    float *in = random_floats(s.rows * n), *d = random_floats(s.rows * n);
    s.x = copy_of(in, s.rows * n);
    double *p = doubles(s.rows * n), *gradient = doubles(s.rows * n);
    for (int64_t i = 0; i < s.rows; i++) {
      int32_t visible = s.visible + (int32_t)(i % queries) * s.stride;
      double sum = 0, mean = 0;
      for (int32_t j = 0; j < visible; j++)
        sum += exp((double)in[i * n + j]);
      for (int32_t j = 0; j < visible; j++) {
        p[i * n + j] = linear ? (double)in[i * n + j] : exp((double)in[i * n + j]) / sum;
        mean += p[i * n + j] * (double)d[i * n + j];
      }
      for (int32_t j = 0; j < visible; j++)
        gradient[i * n + j] = linear ? (double)d[i * n + j] : p[i * n + j] * ((double)d[i * n + j] - mean);
    }
    on->math->softmax(on, &s);
    expect(s.x, p, s.rows * n);
    on->math->softmax_backward(on, &s, d);
    expect(d, gradient, s.rows * n);
  }
}
END_TEST

static double act(hec_activation kind, double x) {
  double sigmoid = 1 / (1 + exp(-(kind == HEC_GELU ? 1.5957691216057308 * (x + 0.044715 * x * x * x) : x)));
  return kind == HEC_RELU ? (x > 0 ? x : 0) : x * sigmoid;
}
static double slope(hec_activation kind, double x) {
  double h = 1e-5;
  return kind == HEC_RELU ? x > 0 : (act(kind, x + h) - act(kind, x - h)) / (2 * h);
}

START_TEST(activations) {
  static const hec_activation kinds[] = {HEC_RELU, HEC_GELU, HEC_SILU};
  for (int k = 0; k < 6; k++) {
    int32_t f = sizes[_i] + 1, n_matrices = 2 + k % 2, rows = 4, width = n_matrices * f;
    hec_inner_rows inner = {random_floats((int64_t)rows * width), rows, f, n_matrices, kinds[k / 2]};
    float *in = copy_of(inner.x, (int64_t)rows * width), *d = random_floats((int64_t)rows * f);
    double *out = doubles((int64_t)rows * f), *dz = doubles((int64_t)rows * f), *du = doubles((int64_t)rows * f);
    on->math->activate(on, &inner, 1);
    for (int32_t r = 0; r < rows; r++)
      for (int32_t i = 0; i < f; i++) {
        double z = (double)in[(int64_t)r * width + i], u = n_matrices == 3 ? (double)in[(int64_t)r * width + f + i] : 1;
        int64_t at = (int64_t)r * f + i;
        out[at] = act(inner.kind, z) * u;
        dz[at] = (double)d[at] * u * slope(inner.kind, z);
        du[at] = (double)d[at] * act(inner.kind, z);
      }
    for (int32_t r = 0; r < rows; r++) {
      float *last = inner.x + (int64_t)r * width + (int64_t)(n_matrices - 1) * f;
      expect(last, out + (int64_t)r * f, f);
      memcpy(last, d + (int64_t)r * f, (size_t)f * sizeof *last);
    }
    on->math->activate_backward(on, &inner, 1);
    for (int32_t r = 0; r < rows; r++) {
      expect(inner.x + (int64_t)r * width, dz + (int64_t)r * f, f);
      if (n_matrices == 3)
        expect(inner.x + (int64_t)r * width + f, du + (int64_t)r * f, f);
    }
  }
}
END_TEST

/* ---- Assignments ---- */

enum { TOKENS = 13, EXPERTS = 5, D = 19 };

/* A skewed choice: expert 0 has most, expert 3 none. */
static hec_assignments skewed(const hec_model *model) {
  const uint32_t counts[EXPERTS] = {17, 4, 8, 0, 1};
  hec_assignments a = hec_assignments_new(&arena, model, 30, NULL);
  hec_assign_forced(model, counts, TOKENS, &a);
  return a;
}

START_TEST(weights_of_choices) {
  hec_model model = {.n_experts = EXPERTS};
  hec_assignments a = skewed(&model);
  float *p = random_floats(TOKENS * EXPERTS), *dp = poisoned(TOKENS * EXPERTS);
  a.balance = _i ? random_floats(EXPERTS) : NULL;
  for (int32_t j = 0; j < a.n; j++)
    a.weight[j] = a.weight_grad[j] = NAN;
  on->math->weigh(on, &a, p, EXPERTS, false);
  double *expected = doubles(TOKENS * EXPERTS);
  for (int32_t i = 0; i < TOKENS * EXPERTS; i++)
    expected[i] = a.balance ? (double)a.balance[i % EXPERTS] : 0;
  for (int32_t e = 0; e < EXPERTS; e++)
    for (int32_t j = a.expert_at[e]; j < a.expert_at[e + 1]; j++) {
      ck_assert(a.weight[j] == p[a.token[j] * EXPERTS + e] && a.weight_grad[j] == 0);
      a.weight_grad[j] = (float)(j + 1);
      expected[a.token[j] * EXPERTS + e] += j + 1;
    }
  on->math->choice_gradient(on, &a, EXPERTS, dp);
  expect(dp, expected, TOKENS * EXPERTS);
}
END_TEST

START_TEST(rows_of_choices) {
  const hec_arithmetic *math = on->math;
  hec_model model = {.n_experts = EXPERTS};
  hec_assignments a = skewed(&model);
  float *h2 = random_floats(TOKENS * D), *x = random_floats(TOKENS * D), *dh2 = copy_of(x, TOKENS * D);
  float *dx = random_floats(TOKENS * D), *rows = poisoned((int64_t)a.n * D), *outputs;
  float **row = HEC_NEW(&arena, float *, a.n), **output = HEC_NEW(&arena, float *, a.n);
  double *sum = doubles(TOKENS * D), *weighted = doubles(TOKENS * D), *dots = doubles(a.n);
  for (int32_t j = 0; j < a.n; j++) {
    row[j] = rows + (int64_t)((j * 7) % a.n) * D; /* in any order; 7 and 30 have no common divisor */
    a.weight[j] = (float)(1 + j % 5);
  }
  math->permute(on, &a, h2, D, row);
  for (int32_t j = 0; j < a.n; j++)
    ck_assert(memcmp(row[j], h2 + (int64_t)a.token[j] * D, D * sizeof *h2) == 0);
  for (int32_t i = 0; i < TOKENS * D; i++)
    sum[i] = weighted[i] = (double)x[i];
  for (int32_t j = 0; j < a.n; j++)
    for (int32_t i = 0; i < D; i++) {
      int32_t at = a.token[j] * D + i;
      sum[at] += (double)h2[at];
      weighted[at] += (double)a.weight[j] * (double)h2[at];
      dots[j] += (double)dx[at] * (double)row[j][i];
    }
  math->combine(on, &a, row, D, x);
  math->unpermute(on, &a, row, D, dh2);
  expect(x, weighted, TOKENS * D);
  expect(dh2, sum, TOKENS * D);
  outputs = copy_of(rows, (int64_t)a.n * D);
  for (int32_t j = 0; j < a.n; j++)
    output[j] = outputs + (row[j] - rows);
  math->uncombine(on, &a, dx, output, D, _i ? output : row); /* in place, or elsewhere */
  for (int32_t j = 0; j < a.n; j++)
    for (int32_t i = 0; i < D; i++)
      ck_assert((_i ? output : row)[j][i] == a.weight[j] * dx[a.token[j] * D + i]);
  expect(a.weight_grad, dots, a.n);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("exec.processor");
  TCase *c = tcase_create("processor");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_loop_test(c, vectors, 0, N_SIZES);
  tcase_add_loop_test(c, adam, 0, N_SIZES);
  tcase_add_test(c, products);
  tcase_add_loop_test(c, norms, 0, N_SIZES);
  tcase_add_loop_test(c, scores, 0, N_SIZES);
  tcase_add_loop_test(c, activations, 0, N_SIZES);
  tcase_add_loop_test(c, weights_of_choices, 0, 2);
  tcase_add_loop_test(c, rows_of_choices, 0, 2);
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
