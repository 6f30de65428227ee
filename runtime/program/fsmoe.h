/* What the two schedules of FSMoE share. The number of chunks (chunked.h) and the division of the dense gradients are
 * planned before training (runtime/plan/planners/fsmoe_problem.h). The lowering follows that plan. */
#pragma once
#include "runtime/program/chunked.h"

typedef struct hec_fsmoe_run hec_fsmoe_run;
/* `folded`: planned as No-IIO. */
hec_fsmoe_run *hec_fsmoe_run_new(const hec_problem *problem, bool folded, hec_arena *arena);

void hec_fsmoe_from_gate(hec_lowering *low, int32_t layer);
void hec_fsmoe_backward_layer(hec_lowering *low, int32_t layer);
void hec_fsmoe_end(hec_lowering *low);
