/* Robust fits of what operations take. The door to GSL's multifit.
 *
 * A curve f is piecewise linear on knots 0 = x_0 < x_1 < ... < x_k with f(0) = 0 (no work, no time) and, between 0 and
 * x_1, the constant f(x_1) extended to the left when `floor` (one row of a GEMM costs what a tile costs), else the line
 * through the origin. Beyond the last knot the last segment goes on.
 *
 * An observation is one measured duration y of an operation that did several pieces of work one after the other, of
 * sizes x_1 ... x_n, plus `fixed` seconds per observation that are fitted too when asked for:
 *     y = fixed + sum_j f(x_j)
 * Residuals are relative (divided by y), so that short and long operations count alike, and robust (Tukey's bisquare,
 * gsl_multifit_robust): a stall does not move the fit. Coefficients come out non-negative (a negative knot is fixed at
 * zero and the rest is fitted again) and f does not decrease. */
#ifndef HEC_VALIDATE_FIT_H
#define HEC_VALIDATE_FIT_H
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int32_t n;           /* observations */
  const int32_t *x_at; /* [n + 1] CSR into x */
  const double *x;     /* sizes, > 0; an observation may have none (then y = fixed) */
  const double *y;     /* [n] seconds, > 0 */
} hec_observations;

typedef struct {
  int32_t n_knots;
  double *x, *y; /* [n_knots] ascending sizes > 0, seconds; on the arena */
  double fixed;  /* seconds of an observation without work; 0 unless asked for */
  int32_t n_observations;
  double residual_median, residual_p90; /* of |fit / y - 1| */
} hec_fit;

typedef struct {
  const double *knots; /* [n_knots] wanted sizes, ascending; NULL: chosen from the sizes observed, log-spaced */
  int32_t n_knots;     /* at most HEC_FIT_KNOTS_MAX; with NULL: how many at most */
  bool floor, fixed;
} hec_fit_options;
enum { HEC_FIT_KNOTS_MAX = 32 };

/* Knots that no observation determines are left out. HEC_FAILED with the reason when nothing can be fitted (no
 * observation with work). */
hec_status hec_fit_curve(const hec_observations *observed, const hec_fit_options *options, hec_arena *arena,
                         hec_fit *fit) HEC_MUST_USE;
double hec_fit_at(const hec_fit *fit, bool floor, double x); /* f(x), without `fixed` */

#endif
