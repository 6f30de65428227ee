/* The door of CBC, COIN-OR's branch-and-cut solver: built where CMake finds it. */
#ifndef HEC_PLAN_CBC_CBC_H
#define HEC_PLAN_CBC_CBC_H
#include "runtime/plan/milp.h"

/* NULL where hecate was built without it. */
const hec_solver *hec_solver_cbc(void);

#endif
