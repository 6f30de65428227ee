/* hecate without CBC: policies keep their heuristics and say so. */
#include "runtime/plan/cbc/cbc.h"

const hec_solver *hec_solver_cbc(void) {
  return NULL;
}
