/* NLopt's SLSQP (Kraft 1994) behind slsqp.h: a call opens a solver, sets the problem as it is, closes it. */
#include "validate/nlopt/slsqp.h"

#include "runtime/base/status.h"

#include <nlopt.h>
#include <stddef.h>
#include <stdio.h>

const char *hec_slsqp_version(void) {
  static char text[32];
  int major, minor, patch;
  nlopt_version(&major, &minor, &patch);
  (void)snprintf(text, sizeof text, "NLopt %d.%d.%d", major, minor, patch);
  return text;
}

const char *hec_slsqp_absent(void) {
  return NULL;
}

/* NLopt's callbacks have one argument more, and a context without const. */
typedef struct {
  hec_slsqp_function *function;
  const void *context;
} callback;

static double call(unsigned n, const double *x, double *gradient, void *data) {
  (void)n;
  const callback *c = data;
  return c->function(x, gradient, c->context);
}

bool hec_slsqp_minimise(const hec_slsqp_problem *problem, double *x) {
  HEC_ASSERT(problem->n > 0 && problem->n <= HEC_SLSQP_VARIABLES_MAX && problem->n_limits <= HEC_SLSQP_LIMITS_MAX);
  callback objective = {problem->objective, problem->context}, limits[HEC_SLSQP_LIMITS_MAX];
  nlopt_opt solver = nlopt_create(NLOPT_LD_SLSQP, (unsigned)problem->n);
  HEC_ASSERT(solver != NULL);
  int bad = nlopt_set_min_objective(solver, call, &objective) < 0;
  bad |= nlopt_set_lower_bounds(solver, problem->low) < 0;
  bad |= nlopt_set_upper_bounds(solver, problem->high) < 0;
  bad |= nlopt_set_xtol_rel(solver, problem->x_tolerance) < 0;
  bad |= nlopt_set_maxeval(solver, problem->evaluations_max) < 0;
  for (int32_t i = 0; i < problem->n_limits; i++) {
    limits[i] = (callback){problem->limits[i], problem->limit_contexts[i]};
    bad |= nlopt_add_inequality_constraint(solver, call, &limits[i], problem->limit_tolerance) < 0;
  }
  HEC_ASSERT(!bad);
  double value;
  nlopt_result result = nlopt_optimize(solver, x, &value);
  nlopt_destroy(solver);
  return result > 0 || result == NLOPT_ROUNDOFF_LIMITED;
}
