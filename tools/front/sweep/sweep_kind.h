/* What a row of a sweep is, and how one is computed. A kind is one file; the spec chooses it. */
#pragma once
#include "tools/front/sweep/sweep.h"
#include "tools/front/training/set_up.h"

/* What a thread keeps while it stays on one job: all configurations that differ by axes of kind ROW alone. */
typedef struct {
  hec_arena arena;
  hec_trace_reader *reader;
  const hec_solver *solver;
  hec_job job;                /* of an iteration */
  hec_set_up set_up;          /* of a training step */
  const hec_problem *problem; /* that its policies have */
} hec_sweep_held;

struct hec_sweep_kind {
  const char *schedule_used, *model_used, *cluster_used; /* columns of what a row ran as */
  const char *time;                                      /* what the time of a row is of */
  const hec_summary_value_name *columns;                 /* [n] in JSON those of a group stand together */
  int32_t n;
  int32_t seconds, vs_ep, fits, synthetic; /* of columns */
  int32_t dropped;                         /* likewise: share of the assignments */
  int32_t error_factor;                    /* likewise, of published runs (models/training/band.h); -1: there is none */
  int32_t vs_rearrangement, best;          /* of columns; best: the more the better, over all jobs; -1: there is none */

  const char *best_of;                  /* what `best` counts: "tokens/s per GPU" */
  const char *not_modelled;             /* beside what laws leave out; NULL: nothing */
  const char *(*refuses)(int64_t axis); /* why its rows do not have that axis; NULL: they do */
  bool (*takes)(const hec_policy *policy);

  /* The job of a configuration, into `held`. */
  hec_status (*make)(const hec_sweep *sweep, int64_t index, hec_sweep_held *held);
  /* Rows of the policies, of configuration `index` but for the policy; written only on success. */
  hec_status (*compare)(const hec_sweep *sweep, int64_t index, const hec_policy *const *policies, int32_t n,
                        hec_sweep_held *held, hec_sweep_row *const *rows);
};
extern const hec_sweep_kind hec_sweep_iterations, hec_sweep_steps;
