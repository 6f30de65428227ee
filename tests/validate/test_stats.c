/* Quantiles, errors and rankings: values worked out by hand, and Kendall's tau against its definition by tie groups. */
#include "tests/support/random_problem.h"
#include "tests/support/test.h"
#include "validate/stats.h"

#include <math.h>
#include <string.h>

HEC_TEST(quantiles_lie_between_order_statistics) {
  const double x[] = {3.7, 1.2, 9.4, 5.5}; /* numpy.quantile(x, q), method 'linear' */
  ck_assert_double_eq(hec_quantile(x, 4, 0), 1.2);
  ck_assert_double_eq_tol(hec_quantile(x, 4, 0.25), 3.075, 1e-14);
  ck_assert_double_eq_tol(hec_median(x, 4), 4.6, 1e-14);
  ck_assert_double_eq_tol(hec_quantile(x, 4, 0.9), 8.23, 1e-14);
  ck_assert_double_eq(hec_quantile(x, 4, 1), 9.4);
  ck_assert_double_eq(x[0], 3.7); /* sorting copies */
  const double odd[] = {-2.5, 8.25, 1.125};
  ck_assert_double_eq(hec_median(odd, 3), 1.125);
  ck_assert_double_eq(hec_quantile(odd, 1, 0.37), -2.5);
  const double far[] = {INFINITY, 2, INFINITY, 1};
  ck_assert_double_eq(hec_quantile(far, 4, 1.0 / 3), 2);
  ck_assert(isinf(hec_quantile(far, 4, 0.9)));
}

/* A quantile between two ranks: as many values at or below it as the rank says, and it moves with the values. */
HEC_TEST(quantiles_of_random_values) {
  uint64_t seed = 11;
  for (int k = 0; k < hec_test_cases(2000); k++) {
    int32_t n = 1 + (int32_t)hec_test_below(&seed, 40);
    double x[40], q = hec_test_uniform(&seed), before = -INFINITY;
    for (int32_t i = 0; i < n; i++)
      x[i] = (double)hec_test_below(&seed, 12) * 1.37;
    double value = hec_quantile(x, n, q);
    int32_t at_or_below = 0, below = 0;
    for (int32_t i = 0; i < n; i++) {
      at_or_below += x[i] <= value * (1 + 1e-12);
      below += x[i] < value * (1 - 1e-12);
    }
    ck_assert_int_ge(at_or_below, (int32_t)(q * (n - 1)) + 1);
    ck_assert_int_le(below, (int32_t)(q * (n - 1)) + 1);
    for (int32_t i = 0; i <= 10; i++) {
      ck_assert_double_ge(hec_quantile(x, n, i / 10.0), before);
      before = hec_quantile(x, n, i / 10.0);
    }
  }
}

HEC_TEST(errors_of_predictions) {
  const double predicted[] = {1.1, 1.8, 3.3, 7, 4.8}, measured[] = {1, 2, 3, 0, 4};
  hec_error e = hec_error_of(predicted, measured, 5); /* 0.1, -0.1, 0.1, out, 0.2 */
  ck_assert_int_eq(e.n, 4);
  ck_assert_double_eq_tol(e.median, 0.1, 1e-14);
  ck_assert_double_eq_tol(e.p90, 0.17, 1e-14);
  ck_assert_double_eq_tol(e.worst, 0.2, 1e-14);
  ck_assert_double_eq_tol(e.bias, 0.1, 1e-14);
  e = hec_error_of(predicted + 1, measured + 1, 1);
  ck_assert_double_eq_tol(e.bias, -0.1, 1e-14);
  ck_assert_double_eq_tol(e.median, 0.1, 1e-14);
  e = hec_error_of(predicted + 3, measured + 3, 1);
  ck_assert(e.n == 0 && isnan(e.median) && isnan(e.p90) && isnan(e.worst) && isnan(e.bias));
  ck_assert_int_eq(hec_error_of(NULL, NULL, 0).n, 0);
}

HEC_TEST(tau_by_hand) {
  /* 3 1 4 2 5: of the ten pairs, (3,1) (3,2) (4,2) are turned round */
  const double up[] = {1, 2, 3, 4, 5}, mixed[] = {3, 1, 4, 2, 5}, down[] = {5, 4, 3, 2, 1};
  ck_assert_double_eq_tol(hec_kendall_tau(up, mixed, 5), 0.4, 1e-15);
  ck_assert_double_eq(hec_kendall_tau(up, up, 5), 1);
  ck_assert_double_eq(hec_kendall_tau(up, down, 5), -1);
  /* Ties: 2 of 10 pairs alike in a (12 12, 2 2), 1 in b (1 1). In the same order: (12,1)x(2,0) twice; opposite:
   * (12,1)x(2,4) and (12,1)x(1,7), twice each, (2,4)x(1,7) and (1,7)x(2,0). tau = (2 - 6) / sqrt(8 * 9). */
  const double a[] = {12, 2, 1, 12, 2}, b[] = {1, 4, 7, 1, 0};
  ck_assert_double_eq_tol(hec_kendall_tau(a, b, 5), -4 / sqrt(72), 1e-15);
  const double same[] = {7, 7, 7};
  ck_assert_double_eq(hec_kendall_tau(up, same, 3), 1);
  ck_assert_double_eq(hec_kendall_tau(same, up, 3), 0);
  ck_assert_double_eq(hec_kendall_tau(up, mixed, 1), 1);
  ck_assert_double_eq(hec_kendall_tau(NULL, NULL, 0), 1);
}

/* Pairs alike, by the sizes of the groups of equal values. */
static double pairs_alike(const double *x, int32_t n) {
  double pairs = 0;
  for (int32_t i = 0; i < n; i++) {
    int32_t group = 0, first = 1;
    for (int32_t j = 0; j < n; j++) {
      group += x[j] == x[i];
      first &= !(j < i && x[j] == x[i]);
    }
    pairs += first ? group * (group - 1) / 2.0 : 0;
  }
  return pairs;
}

HEC_TEST(tau_by_its_definition) {
  uint64_t seed = 5;
  for (int k = 0; k < hec_test_cases(2000); k++) {
    int32_t n = 2 + (int32_t)hec_test_below(&seed, 15), alike = 2 + (int32_t)hec_test_below(&seed, 20);
    double a[16], b[16], same = 0, opposite = 0, all = n * (n - 1) / 2.0;
    for (int32_t i = 0; i < n; i++) {
      a[i] = (double)hec_test_below(&seed, (uint64_t)alike);
      b[i] = (double)hec_test_below(&seed, (uint64_t)alike);
    }
    for (int32_t i = 0; i < n; i++)
      for (int32_t j = i + 1; j < n; j++) {
        same += (a[i] - a[j]) * (b[i] - b[j]) > 0;
        opposite += (a[i] - a[j]) * (b[i] - b[j]) < 0;
      }
    double below = (all - pairs_alike(a, n)) * (all - pairs_alike(b, n));
    double expected = pairs_alike(b, n) == all ? 1 : pairs_alike(a, n) == all ? 0 : (same - opposite) / sqrt(below);
    ck_assert_double_eq_tol(hec_kendall_tau(a, b, n), expected, 1e-14);
    ck_assert_double_ge(hec_kendall_tau(a, b, n), -1 - 1e-14);
  }
}

HEC_TEST(regret_of_a_choice) {
  const double measured[] = {3, 2, 4, 2.5};
  int32_t chosen, best;
  ck_assert_double_eq_tol(hec_regret((const double[]){5, 6, 7, 4}, measured, 4, &chosen, &best), 0.25, 1e-15);
  ck_assert(chosen == 3 && best == 1);
  ck_assert_double_eq(hec_regret(measured, measured, 4, &chosen, &best), 0);
  ck_assert(chosen == 1 && best == 1);
  ck_assert_double_eq(hec_regret((const double[]){1, 1, 1, 1}, measured, 4, &chosen, &best), 1); /* the dearest */
  ck_assert(chosen == 2 && best == 1);
}
