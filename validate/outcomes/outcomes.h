/* hecate-validate outcomes predicts a recorded training run of three placement methods from its recorded rank loads (32
 * A100, artifact of arXiv 2602.11686). It compares the prediction with what was measured: order of the methods, ratios
 * to LAER, step, all-to-all and expert time, time per rank.
 *
 * One set of constants for all methods, from data sheets and the artifact's own profile (the presets say which), none
 * from the rows compared. What is uncertain is changed one at a time. Two of the changes are controls that throw away
 * which layer is hot, and then which rank is. Other clusters with the same loads show what the ratios do not depend on.
 *
 * JSON: {"version", "case", "stamp", "cluster", "model", "law", "bound", "entries": [first, last],
 *   "rows": [{"method", "measured": {"step_s", "end_to_end_s", "alltoall_s", "expert_s", "other_s"},
 *     "predicted": {"step_s", "alltoall_s", "wire_s", "expert_s", "other_s"},
 *     "error": {"step", "end_to_end", "alltoall", "expert", "other"},
 *     "rank": {"expert_error_mean", "expert_correlation", "alltoall_correlation", "expert_spread_s": [predicted,
 *     measured], "alltoall_spread_s": [2]}, "parts": {role: seconds}}],
 *   "ratios": [{"method", "predicted", "measured_step", "measured_end_to_end", "error_step", "error_end_to_end"}],
 *   "busiest": [3], "worst", "order_kept", "within_bound", "step_error": [least, most], "alltoall_error": [2], "min_gap",
 *   "passed",
 *   "changes": [{"change", "why", "control", "step_s": [3], "alltoall_s": [3], "ratios": [2], "busiest": [3],
 *     "moved", "worst", "within_bound", "order_kept", "step_error": [2], "alltoall_error": [2], "min_gap"}]}; null where the file has no end-to-end rows. */
#pragma once
#include "validate/doc.h"
#include "validate/outcomes/outcomes_step.h"

#define HEC_OUTCOMES_BOUND 0.15 /* ratios: |predicted / measured - 1| */

typedef struct {
  const char *path, *cluster, *model;
  const char *law;   /* of the network; NULL: alpha_beta */
  const char *stamp; /* NULL: none */
  /* Recorded micro-batches taken, first to last; first -1: the window of the artifact's own figure of these loads (25
   * to 29). Where the file has fewer, the whole file. */
  int32_t first, last;
  bool quick;   /* no changes */
  bool details; /* of the report for people: also rank by rank, parts of the step, and how the recording was read */
} hec_outcomes_options;

/* Seconds of a step. */
typedef struct {
  double step_s, alltoall_s, wire_s, expert_s, other_s;               /* mean over ranks; other: the rest of the step */
  double *rank_alltoall_s, *rank_expert_s;                            /* [n_ranks] */
  double expert_error_mean, expert_correlation, alltoall_correlation; /* rank by rank, against the measurement */
  double expert_spread_s, alltoall_spread_s;                          /* standard deviation over ranks */
  double role_s[HEC_N_ROLES], wait_s;
} hec_outcome_prediction;

/* ratio[m]: step of method m over LAER's. */
typedef struct {
  hec_outcome_prediction of[HEC_N_METHODS];
  double ratio[HEC_N_METHODS];
  double error_step[HEC_N_METHODS], error_end_to_end[HEC_N_METHODS]; /* of the ratios; the latter NAN if unknown */
  double worst;                                                      /* |error| of a ratio */
  double
      moved; /* measured step of FSDP over that of LAER, moved from the profiled loads to these by what the busiest rank
                   computes more or less, at the measured time of the experts: nothing predicted is in it */
  double busiest[HEC_N_METHODS]; /* loads: busiest rank over mean, mean over layers and micro-batches */
  double step_error[2],
      alltoall_error[2]; /* min and max over methods, with the sign; steps against both measurements */
  double min_gap;        /* of the predicted steps: a method's over the next one's, less 1 */
  bool order_kept, within_bound;
} hec_outcome_set;

typedef struct {
  const char *change, *why;
  const char *cluster; /* of a row with another cluster; else NULL */
  bool control;        /* throws away what the prediction rests on: expected to fail */
  hec_outcome_set set;
} hec_outcome_change;

enum { HEC_OUTCOME_CHANGES_MAX = 20 };

typedef struct {
  hec_outcomes_options options;
  hec_arena arena;
  hec_outcome_case recorded;
  hec_cluster cluster;
  hec_moe moe;
  const hec_law *law;
  int32_t first, last;
  hec_outcome_set set;
  hec_outcome_change change[HEC_OUTCOME_CHANGES_MAX];
  int32_t n_changes;
  bool passed;
} hec_outcomes;

hec_status hec_outcomes_run(const hec_outcomes_options *options, hec_outcomes **outcomes) HEC_MUST_USE;
void hec_outcomes_free(hec_outcomes *outcomes);
HEC_OPENED_BY(hec_outcomes, hec_outcomes_free)
double hec_outcomes_spread(const double *x, int32_t n); /* standard deviation of n values */
hec_doc_report hec_outcomes_report;                     /* of a hec_outcomes; for people the verdict first */
