/* Arithmetic of the CPU against plain double loops, with OpenBLAS (where it is) and with GSL's CBLAS. */
#include "runtime/exec/math/fast_exp.h"
#include "runtime/exec/math/math.h"
#include "tests/support/check_main.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static float *random_floats(uint64_t *random, int64_t n) {
  float *x = malloc(((size_t)n + 1) * sizeof *x);
  ck_assert_ptr_nonnull(x);
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)(2 * hec_test_uniform(random) - 1);
  return x;
}

/* ---- The library ---- */

/* Runs first in a process of its own (Check forks), so each test opens the library that it wants. */
static void open_library(int which) {
  if (which == 1)
    ck_assert_int_eq(setenv("HECATE_BLAS", "gsl", 1), 0);
  hec_math_open();
  if (which == 1)
    ck_assert_ptr_nonnull(strstr(hec_math_library(), "GSL CBLAS"));
}

START_TEST(library_says_what_it_is) {
  int had_core = getenv("OPENBLAS_CORETYPE") != NULL, had_threads = getenv("OPENBLAS_NUM_THREADS") != NULL;
  open_library(_i);
  const char *name = hec_math_library();
  hec_math_open(); /* again: nothing */
  ck_assert_str_eq(name, hec_math_library());
  printf("%s\n", name);
  ck_assert_int_eq(had_core, getenv("OPENBLAS_CORETYPE") != NULL);
  ck_assert_int_eq(had_threads, getenv("OPENBLAS_NUM_THREADS") != NULL);
  if (strstr(name, "OpenBLAS ") != name)
    ck_assert_ptr_nonnull(strstr(name, "GSL CBLAS "));
  else {
    ck_assert_ptr_nonnull(strstr(name, ", core "));
    ck_assert_ptr_nonnull(strstr(name, ", 1 thread"));
  }
}
END_TEST

START_TEST(the_users_core_type_stays) {
  ck_assert_int_eq(setenv("OPENBLAS_CORETYPE", "Nehalem", 1), 0);
  hec_math_open();
  ck_assert_str_eq(getenv("OPENBLAS_CORETYPE"), "Nehalem");
  if (strncmp(hec_math_library(), "OpenBLAS", 8) == 0)
    ck_assert_ptr_nonnull(strstr(hec_math_library(), "core Nehalem (set by OPENBLAS_CORETYPE)"));
}
END_TEST

/* ---- GEMM ---- */

static double op(const float *a, bool transpose, int64_t i, int64_t j, int64_t ld) {
  return (double)(transpose ? a[j * ld + i] : a[i * ld + j]);
}

static void check_gemm(uint64_t *random, hec_gemm g, int32_t pad) {
  int32_t lda = (g.transpose_a ? g.m : g.k) + pad, ldb = (g.transpose_b ? g.k : g.n) + pad, ldc = g.n + pad;
  int64_t size = (int64_t)g.m * ldc;
  float *a = random_floats(random, (int64_t)(g.transpose_a ? g.k : g.m) * lda);
  float *b = random_floats(random, (int64_t)(g.transpose_b ? g.n : g.k) * ldb);
  float *c = random_floats(random, size), *before = malloc(((size_t)size + 1) * sizeof *before);
  ck_assert_ptr_nonnull(before);
  if (g.beta == 0)
    for (int64_t i = 0; i < size; i++)
      c[i] = i % ldc < g.n ? NAN : 3;
  memcpy(before, c, (size_t)size * sizeof *c);
  g.a = a, g.b = b, g.c = c;
  g.lda = pad ? lda : 0, g.ldb = pad ? ldb : 0, g.ldc = pad ? ldc : 0;
  hec_math_gemm(&g);
  for (int64_t i = 0; i < g.m; i++)
    for (int64_t j = 0; j < ldc; j++) {
      if (j >= g.n) { /* what lies between the rows is not touched */
        ck_assert(c[i * ldc + j] == before[i * ldc + j]);
        continue;
      }
      double sum = 0;
      for (int64_t p = 0; p < g.k; p++)
        sum += op(a, g.transpose_a, i, p, lda) * op(b, g.transpose_b, p, j, ldb);
      sum *= (double)g.alpha;
      sum += g.beta == 0 ? 0 : (double)g.beta * (double)before[i * ldc + j];
      ck_assert_double_eq_tol((double)c[i * ldc + j], sum, 1e-6 * (g.k + 1));
    }
  free(a), free(b), free(c), free(before);
}

START_TEST(gemm_is_the_double_loop) {
  static const int32_t sizes[] = {0, 1, 2, 3, 7, 16, 33, 65, 130};
  static const float factors[] = {0, 1, -0.75F};
  uint64_t random = 11;
  open_library(_i);
  for (int which = 0; which < 4; which++)
    for (int i = 0; i < 120; i++) {
      hec_gemm g = {.m = sizes[hec_test_below(&random, 9)],
                    .n = sizes[hec_test_below(&random, 9)],
                    .k = sizes[hec_test_below(&random, 9)],
                    .transpose_a = which & 1,
                    .transpose_b = which & 2,
                    .alpha = factors[1 + hec_test_below(&random, 2)],
                    .beta = factors[hec_test_below(&random, 3)]};
      check_gemm(&random, g, (int32_t)hec_test_below(&random, 3));
    }
}
END_TEST

/* Ranks may be threads: the library must give each of them what it gives one alone. */
enum { SIDE = 96, THREADS = 4, ROUNDS = 50 };
static const float *thread_a, *thread_b;
static float alone[SIDE * SIDE];

static void *multiply(void *unused) {
  static const char bad[] = "differs";
  float c[SIDE * SIDE];
  (void)unused;
  for (int i = 0; i < ROUNDS; i++) {
    hec_math_gemm(&(hec_gemm){.m = SIDE, .n = SIDE, .k = SIDE, .a = thread_a, .b = thread_b, .c = c, .alpha = 1});
    if (memcmp(c, alone, sizeof c) != 0)
      return (void *)(uintptr_t)bad;
  }
  return NULL;
}

START_TEST(gemm_from_several_threads) {
  uint64_t random = 5;
  pthread_t threads[THREADS];
  void *result;
  open_library(_i);
  float *a = random_floats(&random, SIDE * SIDE), *b = random_floats(&random, SIDE * SIDE);
  thread_a = a, thread_b = b;
  hec_math_gemm(&(hec_gemm){.m = SIDE, .n = SIDE, .k = SIDE, .a = a, .b = b, .c = alone, .alpha = 1});
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, multiply, NULL), 0);
  for (int i = 0; i < THREADS; i++) {
    ck_assert_int_eq(pthread_join(threads[i], &result), 0);
    ck_assert_ptr_null(result);
  }
  free(a), free(b);
}
END_TEST

/* ---- Vectors ---- */

START_TEST(vectors) {
  uint64_t random = 3;
  for (int32_t n = 0; n < 70; n++) {
    float *x = random_floats(&random, n), *y = random_floats(&random, n), *z = random_floats(&random, n);
    double dot = 0;
    for (int32_t i = 0; i < n; i++) {
      dot += (double)x[i] * (double)y[i];
      z[i] = x[i];
    }
    ck_assert_double_eq_tol((double)hec_math_dot(x, y, n), dot, 1e-5);
    hec_math_add(z, y, n);
    for (int32_t i = 0; i < n; i++)
      ck_assert(z[i] == x[i] + y[i]);
    hec_math_axpy(z, -1.5F, x, n);
    for (int32_t i = 0; i < n; i++)
      ck_assert(z[i] == x[i] + y[i] + -1.5F * x[i]);
    hec_math_scale(z, 2, n);
    for (int32_t i = 0; i < n; i++)
      ck_assert(z[i] == 2 * (x[i] + y[i] + -1.5F * x[i]));
    free(x), free(y), free(z);
  }
}
END_TEST

START_TEST(dot_does_not_see_alignment) {
  uint64_t random = 4;
  float *x = random_floats(&random, 300), *y = random_floats(&random, 300), a[320], b[320];
  for (int32_t n = 1; n < 290; n += 7)
    for (int shift = 0; shift < 17; shift++) {
      memcpy(a + shift, x, (size_t)n * sizeof *a);
      memcpy(b + (16 - shift), y, (size_t)n * sizeof *b);
      ck_assert(hec_math_dot(a + shift, b + (16 - shift), n) == hec_math_dot(x, y, n));
    }
  free(x), free(y);
}
END_TEST

START_TEST(exponential) {
  for (double x = -86.9; x < 87.9; x += 0.0137) {
    float at = (float)x;
    double truth = exp((double)at);
    ck_assert_double_eq_tol((double)hec_fast_exp(at) / truth, 1, 2.5e-7);
  }
  ck_assert(hec_fast_exp(0) == 1);
  ck_assert(hec_fast_exp(-1e30F) > 0 && hec_fast_exp(-1e30F) < 1e-37F);
  ck_assert(isfinite(hec_fast_exp(1e30F)));
  ck_assert(isnan(hec_fast_exp(NAN)));
}
END_TEST

START_TEST(softmax) {
  uint64_t random = 8;
  for (int32_t n = 1; n < 60; n++) {
    float *x = random_floats(&random, n), *p = malloc((size_t)n * sizeof *p);
    ck_assert_ptr_nonnull(p);
    hec_math_scale(x, 20, n);
    memcpy(p, x, (size_t)n * sizeof *p);
    hec_math_softmax(p, n);
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
      sum += exp((double)x[i]);
    for (int32_t i = 0; i < n; i++)
      ck_assert_double_eq_tol((double)p[i], exp((double)x[i]) / sum, 1e-6);
    free(x), free(p);
  }
  hec_math_softmax(NULL, 0);
  float huge[] = {1e30F, -1e30F};
  hec_math_softmax(huge, 2);
  ck_assert(huge[0] == 1 && huge[1] < 1e-37F);
}
END_TEST

/* ---- Norm ---- */

static double norm_loss(const double *x, const double *gain, const float *dy, int32_t d) {
  double square = 0, loss = 0;
  for (int32_t i = 0; i < d; i++)
    square += x[i] * x[i];
  for (int32_t i = 0; i < d; i++)
    loss += (double)dy[i] * gain[i] * x[i] / sqrt(square / d + 1e-6);
  return loss;
}

START_TEST(norm_and_gradient) {
  enum { ROWS = 3, D = 19 };
  uint64_t random = 6;
  float *x = random_floats(&random, ROWS * D), *gain = random_floats(&random, D),
        *dy = random_floats(&random, ROWS * D);
  float y[ROWS * D], scale[ROWS], dx[ROWS * D], dgain[D];
  for (int i = 0; i < D; i++) {
    dgain[i] = 2; /* gradients are added */
    x[D + i] *= 1e-4F;
  }
  for (int i = 0; i < ROWS * D; i++)
    dx[i] = 1;
  hec_math_norm(x, gain, y, scale, ROWS, D);
  hec_math_norm_backward(x, gain, scale, dy, dx, dgain, ROWS, D);
  double gradient[D] = {0};
  for (int r = 0; r < ROWS; r++) {
    double row[D], own[D], loss = 0, step = r == 1 ? 1e-9 : 1e-5;
    for (int i = 0; i < D; i++) {
      row[i] = (double)x[r * D + i];
      own[i] = (double)gain[i];
      loss += (double)dy[r * D + i] * (double)y[r * D + i];
    }
    ck_assert_double_eq_tol(loss, norm_loss(row, own, dy + r * D, D), 1e-5);
    for (int i = 0; i < D; i++) {
      double at = row[i], gain_at = own[i];
      row[i] = at + step;
      double up = norm_loss(row, own, dy + r * D, D);
      row[i] = at - step;
      double slope = (up - norm_loss(row, own, dy + r * D, D)) / (2 * step);
      row[i] = at;
      ck_assert_double_eq_tol((double)dx[r * D + i], 1 + slope, 1e-5 * (1 + fabs(slope)));
      own[i] = gain_at + 1;
      up = norm_loss(row, own, dy + r * D, D);
      own[i] = gain_at;
      gradient[i] += up - norm_loss(row, own, dy + r * D, D);
    }
  }
  for (int i = 0; i < D; i++)
    ck_assert_double_eq_tol((double)dgain[i], 2 + gradient[i], 1e-5);
  free(x), free(gain), free(dy);
}
END_TEST

START_TEST(norm_of_nothing) {
  float x[4] = {0}, gain[4] = {1, 1, 1, 1}, y[4], scale[1];
  hec_math_norm(x, gain, y, scale, 1, 4);
  ck_assert(y[0] == 0 && isfinite(scale[0]));
  hec_math_norm(x, gain, y, scale, 0, 4);
}
END_TEST

/* ---- Adam ---- */

START_TEST(adam_is_the_formula) {
  enum { N = 37 };
  hec_adam adam = {.rate = 0.01F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-5F};
  uint64_t random = 9;
  float *params = random_floats(&random, N), first[N] = {0}, second[N] = {0};
  double p[N], m[N] = {0}, v[N] = {0};
  for (int i = 0; i < N; i++)
    p[i] = (double)params[i];
  for (int64_t step = 1; step <= 20; step++) {
    float *grads = random_floats(&random, N);
    grads[0] = 0; /* never a gradient: never an update */
    hec_math_adam(&adam, step, params, grads, first, second, N);
    for (int i = 0; i < N; i++) {
      double g = (double)grads[i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      p[i] -= 0.01 * (m[i] / (1 - pow(0.9, (double)step))) / (sqrt(v[i] / (1 - pow(0.999, (double)step))) + 1e-5);
      ck_assert_double_eq_tol((double)params[i], p[i], 4e-6);
      ck_assert_double_eq_tol((double)first[i], m[i], 1e-6);
      ck_assert_double_eq_tol((double)second[i], v[i], 1e-6);
    }
    ck_assert(params[0] == (float)p[0]);
    free(grads);
  }
  free(params);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("math");
  TCase *tests = tcase_create("math"), *library = tcase_create("library"); /* test_blas.sh runs the second alone */
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(library, library_says_what_it_is, 0, 2);
  tcase_add_test(library, the_users_core_type_stays);
  tcase_add_loop_test(tests, gemm_is_the_double_loop, 0, 2);
  tcase_add_loop_test(tests, gemm_from_several_threads, 0, 2);
  tcase_add_test(tests, vectors);
  tcase_add_test(tests, dot_does_not_see_alignment);
  tcase_add_test(tests, exponential);
  tcase_add_test(tests, softmax);
  tcase_add_test(tests, norm_and_gradient);
  tcase_add_test(tests, norm_of_nothing);
  tcase_add_test(tests, adam_is_the_formula);
  suite_add_tcase(suite, library);
  suite_add_tcase(suite, tests);
  return suite;
}

HEC_TEST_MAIN(make_suite)
