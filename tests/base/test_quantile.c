/* Quantiles of sorted values: between two of them, on one, at infinite ones. */
#include "runtime/base/quantile.h"
#include "tests/support/test.h"

#include <math.h>

HEC_TEST(between_two_values) {
  double x[] = {3.7, 1.2, 9.4, 5.5}; /* numpy.quantile(x, q), method 'linear' */
  hec_values_sort(x, 4);
  ck_assert_double_eq(x[0], 1.2);
  ck_assert_double_eq(x[3], 9.4);
  ck_assert_double_eq(hec_values_quantile(x, 4, 0), 1.2);
  ck_assert_double_eq_tol(hec_values_quantile(x, 4, 0.25), 3.075, 1e-14);
  ck_assert_double_eq_tol(hec_values_quantile(x, 4, 0.5), 4.6, 1e-14);
  ck_assert_double_eq_tol(hec_values_quantile(x, 4, 0.9), 8.23, 1e-14);
  ck_assert_double_eq(hec_values_quantile(x, 4, 1), 9.4);
  ck_assert_double_eq(hec_values_quantile(x, 1, 0.37), 1.2);
}

HEC_TEST(infinite_values) {
  double x[] = {INFINITY, 2, INFINITY, 1};
  hec_values_sort(x, 4);
  ck_assert_double_eq(hec_values_quantile(x, 4, 1.0 / 3), 2);
  ck_assert(isinf(hec_values_quantile(x, 4, 0.9)) && isinf(hec_values_quantile(x, 4, 1)));
}
