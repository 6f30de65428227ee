/* Robust fits of what operations take: a curve over sizes, and a line. The door to GSL's multifit.
 *
 * A curve f is piecewise linear on knots 0 < x_1 < ... < x_k. Up to x_1 it is the constant f(x_1) when `floor` is set,
 * as one row of a GEMM costs what a tile costs. Otherwise it is the line from the origin (no work, no time). Beyond the
 * last knot the last segment goes on; with a single knot that is the line from the origin.
 *
 * An observation is one measured duration y of an operation that did several pieces of work one after the other, of
 * sizes x_1 ... x_n, plus `fixed` seconds per observation that are fitted too when asked for:
 *     y = fixed + sum_j f(x_j)
 * Residuals are relative (divided by y), so that short and long operations count alike. They are robust (Tukey's
 * bisquare, gsl_multifit_robust): a stall does not move the fit. What is fitted are `fixed`, f(x_1) and the increments
 * f(x_j) - f(x_(j-1)). Each is held at zero or above: f is neither negative nor decreasing.
 *
 * GSL's error handler belongs to the process: it is off during a fit and restored after it. One fit at a time. */
#pragma once
#include "validate/calibrate/fit_solve.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int32_t n;           /* observations */
  const int32_t *x_at; /* [n + 1] CSR into x */
  const double *x;     /* sizes, > 0; an observation may have none: then y = fixed, and it counts only with `fixed` */
  const double *y;     /* [n] seconds, > 0 */
} hec_observations;

typedef struct {
  int32_t n_knots;
  double *x, *y; /* [n_knots] ascending sizes > 0, seconds; on the arena */
  double fixed;  /* seconds of an observation without work; 0 unless asked for, and where nothing tells it from f */
  hec_fit_how how;
  int32_t n_observations;               /* that counted */
  double residual_median, residual_p90; /* of |fit / y - 1| */
} hec_fit;

typedef struct {
  const double *knots; /* [n_knots] wanted sizes, ascending; NULL: chosen among the sizes observed, log-spaced */
  int32_t n_knots;     /* at least 1, at most HEC_FIT_KNOTS_MAX; with NULL: how many at most (and a third of n) */
  bool floor, fixed;
} hec_fit_options;

/* Knots that the observations do not determine are left out. A given knot needs half a piece of work near it; a piece
 * between two knots counts for both, by its distance. A chosen knot needs three. A knot that the ones before it explain
 * up to a hundredth is left out too. All of this also holds after stalls have lost their weight.
 * HEC_FAILED with the reason when nothing can be fitted: no observation with work, a duration or size that is not above
 * zero and finite. */
hec_status hec_fit_curve(const hec_observations *observed, const hec_fit_options *options, hec_arena *arena,
                         hec_fit *fit) HEC_MUST_USE;
double hec_fit_at(const hec_fit *fit, bool floor, double x); /* f(x), without `fixed`; 0 for x = 0 */

/* y = a + b x with a, b >= 0 by the same residuals and weights: latency + bytes / bandwidth. Sizes that are all alike
 * (within about a hundredth) do not tell a from b: then a = 0. */
typedef struct {
  double a, b;
  hec_fit_how how;
  int32_t n_observations;
  double residual_median, residual_p90;
} hec_line;
/* x [n] >= 0, y [n] > 0. HEC_FAILED when n < 1 or a value is not so. `scratch` is rewound. */
hec_status hec_fit_line(const double *x, const double *y, int32_t n, hec_arena *scratch, hec_line *line) HEC_MUST_USE;
