/* What ranks do alone, by the compute law, as a walk asks for it (walk.h). It remembers what it has computed: layers
 * repeat it, and a GPU's laws cost more than a look. */
#pragma once
#include "runtime/plan/problem.h"
#include "runtime/program/program.h"
#include "runtime/program/walk.h"

typedef struct hec_durations hec_durations;

/* For programs of one problem, in one thread. */
hec_durations *hec_durations_new(const hec_problem *problem, hec_arena *arena);
void hec_durations_begin(hec_durations *durations); /* before each program: its shapes may be other ones */
/* A hec_walk_own; `context`: hec_durations *const *. */
void hec_durations_own(const void *context, const hec_program *program, int32_t op, int64_t *ps);

/* What experts' work took before: layers, micro-batches, policies and schedules repeat it, and a GPU's laws cost more than a
 * look. Exact: a slot is compared with all that the time depends on. */
typedef struct hec_expert_times hec_expert_times;

/* Of programs of one problem, in one thread. uniform: all devices are alike. */
hec_expert_times *hec_expert_times_new(bool uniform, hec_arena *arena);
/* Picoseconds of a compute operation with work rows, on `rank`: those of hec_duration_s. */
int64_t hec_expert_times_ps(hec_expert_times *times, const hec_problem *problem, const hec_program *program,
                            const hec_op *op, int32_t rank);
