/* Numbers about numbers: ratios, quantiles, errors of predictions, rankings. Sorting copies; nothing is kept.
 * Own code: of these GSL has means and quantiles alone, and wants them sorted. */
#pragma once
#include <stdint.h>

/* n >= 1. The geometric mean needs positive values; NAN when one is not. */
double hec_mean(const double *value, int32_t n);
double hec_geo_mean(const double *value, int32_t n);
double hec_min(const double *value, int32_t n);
double hec_max(const double *value, int32_t n);

/* |ln(ours / reference)|: 0 for equal, symmetric in over and under. NAN unless both are positive and finite. */
double hec_log_distance(double ours, double reference);

/* Do both lie on the same side of 1 (who wins)? A value within `tolerance` of 1 lies on neither. */
int32_t hec_side_of_one(double value, double tolerance); /* -1, 0, 1 */

/* Quantile q in [0, 1] by linear interpolation between order statistics (GSL's and numpy's default); n >= 1. No
 * value may be NAN. */
double hec_quantile(const double *x, int32_t n, double q);
static inline double hec_median(const double *x, int32_t n) {
  return hec_quantile(x, n, 0.5);
}

/* |predicted / measured - 1| over those of n pairs with measured > 0, and the bias: median of predicted / measured - 1.
 * All NAN when there is no such pair. */
typedef struct {
  int32_t n; /* pairs that count */
  double median, p90, worst, bias;
} hec_error;
hec_error hec_error_of(const double *predicted, const double *measured, int32_t n);

/* Kendall's tau-b of two rankings over all pairs (i, j). 1 when b puts nothing in order (n < 2, or all alike), 0 when
 * only a does not. O(n^2). No value may be NAN. */
double hec_kendall_tau(const double *a, const double *b, int32_t n);

/* What choosing by `a` costs: b of the one with min a (of several, the one with max b), over the min b, minus
 * 1. n >= 1, b > 0. Which the two are, too. */
double hec_regret(const double *a, const double *b, int32_t n, int32_t *chosen, int32_t *best);
