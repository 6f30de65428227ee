/* The library that multiplies, and arithmetic of the CPU that the cases of all processors take for granted
 * (processor_case.h; test_processor.c has them for the CPU). */
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

START_TEST(numbers_far_apart) {
  float huge[] = {1e30F, -1e30F};
  hec_math_softmax(NULL, 0);
  hec_math_softmax(huge, 2);
  ck_assert(huge[0] == 1 && huge[1] < 1e-37F);
}
END_TEST

START_TEST(norm_of_nothing) {
  float x[4] = {0}, gain[4] = {1, 1, 1, 1}, y[4], scale[1];
  hec_math_norm(x, gain, y, scale, 1, 4);
  ck_assert(y[0] == 0 && isfinite(scale[0]));
  hec_math_norm(x, gain, y, scale, 0, 4);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("math");
  TCase *tests = tcase_create("math"), *library = tcase_create("library"); /* test_blas.sh runs the second alone */
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(library, library_says_what_it_is, 0, 2);
  tcase_add_test(library, the_users_core_type_stays);
  tcase_add_loop_test(tests, gemm_from_several_threads, 0, 2);
  tcase_add_test(tests, vectors);
  tcase_add_test(tests, dot_does_not_see_alignment);
  tcase_add_test(tests, exponential);
  tcase_add_test(tests, numbers_far_apart);
  tcase_add_test(tests, norm_of_nothing);
  suite_add_tcase(suite, library);
  suite_add_tcase(suite, tests);
  return suite;
}

HEC_TEST_MAIN(make_suite)
