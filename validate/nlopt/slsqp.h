/* Sequential quadratic programming (SLSQP), for comparing planners with the solver their papers used. No planner depends
 * on it. The door of NLopt (LGPL/MIT), which is optional. It is found when hecate is configured, or not built. Then
 * hec_slsqp_version says NULL and nothing may be solved. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Value at x [n], and its gradient [n] unless that is NULL. */
typedef double hec_slsqp_function(const double *x, double *gradient, const void *context);

enum { HEC_SLSQP_VARIABLES_MAX = 16, HEC_SLSQP_LIMITS_MAX = 16 };

/* Minimises objective(x) with low <= x <= high and limit(x) <= 0 for every limit. */
typedef struct {
  int32_t n, n_limits;
  hec_slsqp_function *objective;
  const void *context;
  hec_slsqp_function *limits[HEC_SLSQP_LIMITS_MAX];
  const void *limit_contexts[HEC_SLSQP_LIMITS_MAX];
  double low[HEC_SLSQP_VARIABLES_MAX], high[HEC_SLSQP_VARIABLES_MAX];
  double limit_tolerance, x_tolerance; /* of x: relative */
  int32_t evaluations_max;
} hec_slsqp_problem;

const char *hec_slsqp_version(void); /* "NLopt 2.7.1"; NULL: not built */
const char *hec_slsqp_absent(void);  /* why not, for people; NULL: built */

/* From x [n] to the solution in x; false when the solver gave up (x is then where it stood). Whether the limits hold there
 * is for the caller to check. */
bool hec_slsqp_minimise(const hec_slsqp_problem *problem, double *x);
