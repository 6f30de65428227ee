/* Arithmetic of the CPU that the cases of all processors take for granted (processor_case.h; test_processor.c has them for the
 * CPU). */
#include "runtime/exec/math/fast_exp.h"
#include "runtime/exec/math/math.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

static float *random_floats(uint64_t *random, int64_t n) {
  float *x = malloc(((size_t)n + 1) * sizeof *x);
  ck_assert_ptr_nonnull(x);
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)(2 * hec_test_uniform(random) - 1);
  return x;
}

HEC_TEST(vectors) {
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

HEC_TEST(dot_does_not_see_alignment) {
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

HEC_TEST(exponential) {
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

HEC_TEST(numbers_far_apart) {
  float huge[] = {1e30F, -1e30F};
  hec_math_softmax(NULL, 0);
  hec_math_softmax(huge, 2);
  ck_assert(huge[0] == 1 && huge[1] < 1e-37F);
}

HEC_TEST(norm_of_nothing) {
  float x[4] = {0}, gain[4] = {1, 1, 1, 1}, y[4], scale[1];
  hec_math_norm(x, gain, y, scale, 1, 4);
  ck_assert(y[0] == 0 && isfinite(scale[0]));
  hec_math_norm(x, gain, y, scale, 0, 4);
}
