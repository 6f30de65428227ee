/* The door of CBC, COIN-OR's branch-and-cut solver. Its library is opened by the first planner that asks
 * (hec_solver_ready), so that whoever solves nothing does not have it in his process. */
#pragma once
#include "runtime/plan/milp.h"

/* Never NULL. Programs that multiply matrices too call hec_math_open before it is ready: cbc.c says why. */
const hec_solver *hec_solver_cbc(void);
