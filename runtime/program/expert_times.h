/* What experts' work took before: layers, micro-batches, policies and schedules repeat it, and a GPU's laws cost more than a
 * look. Exact: a slot is compared with all that the time depends on. */
#ifndef HEC_PROGRAM_EXPERT_TIMES_H
#define HEC_PROGRAM_EXPERT_TIMES_H
#include "runtime/plan/problem.h"
#include "runtime/program/program.h"

typedef struct hec_expert_times hec_expert_times;

/* Of programs of one problem, in one thread. uniform: all devices are alike. */
hec_expert_times *hec_expert_times_new(bool uniform, hec_arena *arena);
/* Picoseconds of a compute operation with work rows, on `rank`: those of hec_duration_s. */
int64_t hec_expert_times_ps(hec_expert_times *times, const hec_problem *problem, const hec_program *program,
                            const hec_op *op, int32_t rank);

#endif
