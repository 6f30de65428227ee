/* In the place of slsqp.c where NLopt was not found. */
#include "validate/nlopt/slsqp.h"

#include "runtime/base/status.h"

#include <stddef.h>

const char *hec_slsqp_version(void) {
  return NULL;
}

const char *hec_slsqp_absent(void) {
  return "hecate was built without NLopt (libnlopt-dev)";
}

bool hec_slsqp_minimise(const hec_slsqp_problem *problem, double *x) {
  (void)problem;
  (void)x;
  HEC_ASSERT(hec_slsqp_version() != NULL); /* there is no solver: who calls asks for it first */
  return false;
}
