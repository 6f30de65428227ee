/* The library that multiplies. test_blas.sh runs these tests with stand-ins for it, and reads the name that the first prints. */
#include "runtime/exec/math/math.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <string.h>

/* Runs first in a process of its own (Check forks), so each test opens the library that it wants. */
static void open_library(int which) {
  if (which == 1)
    ck_assert_int_eq(setenv("HECATE_BLAS", "gsl", 1), 0);
  hec_math_open();
  if (which == 1)
    ck_assert_ptr_nonnull(strstr(hec_math_library(), "GSL CBLAS"));
}

HEC_TEST_LOOP(library_says_what_it_is, 2) {
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

HEC_TEST(the_users_core_type_stays) {
  ck_assert_int_eq(setenv("OPENBLAS_CORETYPE", "Nehalem", 1), 0);
  hec_math_open();
  ck_assert_str_eq(getenv("OPENBLAS_CORETYPE"), "Nehalem");
  if (strncmp(hec_math_library(), "OpenBLAS", 8) == 0)
    ck_assert_ptr_nonnull(strstr(hec_math_library(), "core Nehalem (set by OPENBLAS_CORETYPE)"));
}

/* Ranks may be threads: the library must give each of them what it gives one alone. */
enum { SIDE = 96, THREADS = 4, ROUNDS = 50 };
static const float *thread_a, *thread_b;
static float alone[SIDE * SIDE];

/* [SIDE][SIDE] in [-1, 1) */
static float *random_matrix(uint64_t *random) {
  float *x = hec_malloc((size_t)SIDE * SIDE, sizeof *x);
  for (int i = 0; i < SIDE * SIDE; i++)
    x[i] = (float)(2 * hec_test_uniform(random) - 1);
  return x;
}

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

HEC_TEST_LOOP(gemm_from_several_threads, 2) {
  uint64_t random = 5;
  pthread_t threads[THREADS];
  void *result;
  open_library(_i);
  float *a = random_matrix(&random), *b = random_matrix(&random);
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
