/* Rows that are iterations of one expert-parallel group, as hecate-sim compares them. */
#include "sim/compare.h"
#include "tools/front/job_make.h"
#include "tools/front/sweep/sweep_kind.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COLUMN(id, column, group, key, value) {column, group, key},
#define BYTES(id, text) {text "_bytes", "bytes", text},
static const hec_summary_value_name columns[] = {
    {"ranks_used", NULL, "ranks_used"}, {"tokens_used", NULL, "tokens_used"},
    {"phase_used", NULL, "phase_used"}, {"synthetic", NULL, "synthetic"},
    {"iterations", NULL, "iterations"}, HEC_SUMMARY_VALUE_LIST(COLUMN) HEC_TRAFFIC_LIST(BYTES)};
_Static_assert(sizeof columns / sizeof *columns == HEC_SWEEP_VALUES, "a column for each value");
_Static_assert((int)HEC_SWEEP_VALUES <= (int)HEC_SWEEP_COLUMNS_MAX, "room for its values");

static const char *refuses(int64_t axis) {
  return hec_sweep_of_training(axis)
             ? "expected layout or setup beside it, which make the rows training steps; found neither"
             : NULL;
}

static bool takes(const hec_policy *policy) {
  return !policy->placed; /* a sweep has no placement */
}

static hec_status make(const hec_sweep *sweep, int64_t index, hec_sweep_held *held) {
  hec_job_options wanted = HEC_JOB_OPTIONS;
  hec_training_args none = HEC_TRAINING_ARGS;
  hec_sweep_options(sweep, index, &wanted, &none);
  wanted.solver = held->solver;
  held->problem = &held->job.problem;
  return hec_job_make(&wanted, held->reader, &held->arena, &held->job);
}

/* As hecate-sim has them, but for ratios to other rows of the group, which may be in other items. */
static void take_values(const hec_job *job, hec_summary *summary, int32_t row, hec_sweep_row *out) {
  double *v = out->value;
  out->why = NULL;
  (void)snprintf(out->model, sizeof out->model, "%s", job->moe.name);
  (void)snprintf(out->cluster, sizeof out->cluster, "%s", job->cluster.name);
  (void)snprintf(out->schedule, sizeof out->schedule, "%s", summary->rows[row].schedule);
  v[HEC_SWEEP_RANKS_USED] = job->problem.n_ranks;
  v[HEC_SWEEP_TOKENS_USED] = job->problem.tokens;
  v[HEC_SWEEP_TRAINED] = job->problem.train;
  v[HEC_SWEEP_SYNTHETIC] = job->header.synthetic != NULL;
  v[HEC_SWEEP_ITERATIONS] = (double)summary->n_iterations;
  for (int32_t k = 0; k < HEC_N_SUMMARY_VALUES; k++)
    v[HEC_SWEEP_MEDIAN + k] = hec_summary_value_of(summary, row, (hec_summary_value)k);
  v[HEC_SWEEP_VS_EP] = v[HEC_SWEEP_VS_REARRANGEMENT] = NAN;
  for (int32_t k = 0; k < HEC_N_TRAFFIC; k++)
    v[HEC_SWEEP_BYTES + k] = hec_summary_per_iteration(&summary->rows[row], summary->rows[row].traffic[k]);
}

static hec_status compare(const hec_sweep *s, int64_t index, const hec_policy *const *policies, int32_t n,
                          hec_sweep_held *held, hec_sweep_row *const *rows) {
  const char *collective = hec_sweep_at(s, index, HEC_AXIS_collective)->text,
             *schedule = hec_sweep_at(s, index, HEC_AXIS_schedule)->text;
  hec_compare_options options = {.policies = policies,
                                 .n_policies = n,
                                 .silent = true,
                                 .schedule = strcmp(schedule, HEC_SWEEP_AUTO) == 0 ? "best" : schedule,
                                 .law = hec_law_find(hec_sweep_at(s, index, HEC_AXIS_law)->text)};
  if (strcmp(collective, HEC_SWEEP_AUTO) != 0)
    options.collective = hec_collective_find(collective);
  HEC_SCOPED(hec_summary) summary = {0};
  hec_status status = hec_compare(&held->job, held->reader, &options, &held->arena, &summary);
  for (int32_t i = 0; status == HEC_OK && i < n; i++)
    take_values(&held->job, &summary, i, rows[i]);
  return status;
}

const hec_sweep_kind hec_sweep_iterations = {.schedule_used = "schedule_used",
                                             .model_used = "model_used",
                                             .cluster_used = "cluster_used",
                                             .time = "the median time of an iteration",
                                             .columns = columns,
                                             .n = HEC_SWEEP_VALUES,
                                             .seconds = HEC_SWEEP_MEDIAN,
                                             .vs_ep = HEC_SWEEP_VS_EP,
                                             .fits = HEC_SWEEP_FITS,
                                             .synthetic = HEC_SWEEP_SYNTHETIC,
                                             .error_factor = -1,
                                             .vs_rearrangement = HEC_SWEEP_VS_REARRANGEMENT,
                                             .best = -1,
                                             .dropped = HEC_SWEEP_DROPPED,
                                             .refuses = refuses,
                                             .takes = takes,
                                             .make = make,
                                             .compare = compare};
