/* One micro-batch of a training step with given loads per layer and rank, as a program for the simulator. */
#pragma once
#include "sim/simulate.h"
#include "validate/outcomes/outcomes_case.h"

typedef enum {
  HEC_LOADS_PER_LAYER, /* as recorded */
  HEC_LOADS_SUMMED,    /* every layer has the rank's mean over layers: the maximum is then that of the sum */
  HEC_LOADS_MEAN       /* every rank has the mean of all ranks */
} hec_loads_law;

typedef struct {
  hec_loads_law loads;
  bool all_wait; /* every exchange of tokens waits for all ranks, not only for those it has rows for */
} hec_step_options;

/* Seconds of one micro-batch. "Slots" of the file's all-to-all column: see outcomes_step.c. */
typedef struct {
  double *alltoall_s, *wire_s, *expert_s; /* [n_ranks]; alltoall is waiting and wire, what the column counts */
  double total_s;
  hec_breakdown parts;
} hec_step_times;

typedef struct hec_step hec_step;
/* The cluster must have the ranks of the case, the model its layers; `problem` and `c` outlive it. */
hec_step *hec_step_new(const hec_problem *problem, const hec_law *law, const hec_outcome_case *c, hec_arena *arena);
void hec_step_free(hec_step *step);
/* Adds the times of one recorded micro-batch to `sum`, whose arrays the caller owns. */
void hec_step_add(hec_step *step, hec_method method, int32_t entry, hec_step_options options, hec_step_times *sum);
