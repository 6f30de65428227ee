/* Rows that are training steps under a layout, as hecate-sim predicts them with --layout or --setup. */
#include "tools/front/sweep/sweep_kind.h"
#include "tools/front/training/training_summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What the job came to, balanced routing beside it, and the row's own values. */
#define HEC_STEP_VALUE_LIST(X)                                                                                         \
  X(GPUS, "gpus_used", NULL, "gpus_used", t->layout.gpus)                                                              \
  X(GLOBAL_BATCH, "global_batch_used", NULL, "global_batch_used", t->global_batch)                                     \
  X(SEQ, "seq_used", NULL, "seq_used", t->seq)                                                                         \
  X(MICRO_BATCH, "micro_batch_used", NULL, "micro_batch_used", t->micro_batch)                                         \
  X(MICRO_BATCHES, "micro_batches", NULL, "micro_batches", hec_training_micro_batches(t))                              \
  X(SYNTHETIC, "synthetic", NULL, "synthetic", summary->set_up->job.header.synthetic != NULL)                          \
  X(RECORDS, "records", NULL, "records", summary->n_records)                                                           \
  X(BALANCED_STEP, "balanced_step_s", "balanced", "step_s", summary->balanced.step_s)                                  \
  X(BALANCED_MFU, "balanced_mfu", "balanced", "mfu", summary->balanced.mfu)                                            \
  X(BALANCED_FITS, "balanced_fits", "balanced", "fits", summary->balanced.memory.fits)                                 \
  X(ERROR_FACTOR, "error_factor", NULL, "error_factor", hec_training_band(summary)->nine)
#define ID(id, ...) STEP_##id,
enum { HEC_STEP_VALUE_LIST(ID) STEP_OWN };
enum { STEP_VALUES = STEP_OWN + HEC_N_TRAINING_VALUES };
#define COLUMN(id, column, group, key, value) {column, group, key},
static const hec_summary_value_name columns[] = {HEC_STEP_VALUE_LIST(COLUMN) HEC_TRAINING_VALUE_LIST(COLUMN)};
_Static_assert(sizeof columns / sizeof *columns == STEP_VALUES, "a column for each value");
_Static_assert((int)STEP_VALUES <= (int)HEC_SWEEP_COLUMNS_MAX, "room for its values");

static const char *refuses(int64_t axis) {
  return axis == HEC_AXIS_trace || hec_sweep_of_training(axis) ? NULL : hec_set_up_refuses(hec_sweep_axis_name(axis));
}

/* Balanced routing stands beside every row. */
static bool takes(const hec_policy *policy) {
  return !policy->placed && !policy->reference;
}

static hec_status make(const hec_sweep *sweep, int64_t index, hec_sweep_held *held) {
  hec_job_options options = HEC_JOB_OPTIONS;
  hec_training_args training = HEC_TRAINING_ARGS;
  hec_sweep_options(sweep, index, &options, &training);
  options.solver = held->solver;
  HEC_TRY(hec_set_up_make(&training, &options, held->reader, &held->arena, &held->set_up));
  held->problem = &held->set_up.job.problem;
  return HEC_OK;
}

static void take_values(const hec_training_summary *summary, int32_t at, hec_sweep_row *out) {
  const hec_training *t = &summary->set_up->training;
  double *value = out->value;
  out->why = NULL;
  (void)snprintf(out->model, sizeof out->model, "%s", t->moe->name);
  (void)snprintf(out->cluster, sizeof out->cluster, "%s", t->laws->gpu.name);
  (void)snprintf(out->schedule, sizeof out->schedule, "%s", hec_training_pipeline_name(summary->set_up));
#define VALUE(id, column, group, key, what) value[STEP_##id] = what;
  HEC_STEP_VALUE_LIST(VALUE)
  hec_training_values(summary, at, value + STEP_OWN);
  value[STEP_OWN + HEC_TRAINING_VS_EP] = NAN; /* made when all rows are there */
}

static hec_status compare(const hec_sweep *s, int64_t index, const hec_policy *const *policies, int32_t n,
                          hec_sweep_held *held, hec_sweep_row *const *rows) {
  const hec_sweep_value *warmup = hec_sweep_at(s, index, HEC_AXIS_warmup);
  const hec_training_choice choice = {.policies = policies,
                                      .n_policies = n,
                                      .n_threads = 1,
                                      .warmup =
                                          strcmp(warmup->text, HEC_SWEEP_AUTO) == 0 ? -1 : (int32_t)warmup->number,
                                      .silent = true};
  hec_training_summary summary;
  HEC_TRY(hec_training_compare(&held->set_up, &choice, held->reader, &held->arena, &summary));
  for (int32_t i = 0; i < n; i++)
    take_values(&summary, i, rows[i]);
  return HEC_OK;
}

const hec_sweep_kind hec_sweep_steps = {.schedule_used = "pipeline_used",
                                        .model_used = "model_used",
                                        .cluster_used = "gpu_used",
                                        .time = "the time of a training step",
                                        .columns = columns,
                                        .n = STEP_VALUES,
                                        .seconds = STEP_OWN + HEC_TRAINING_STEP,
                                        .vs_ep = STEP_OWN + HEC_TRAINING_VS_EP,
                                        .fits = STEP_OWN + HEC_TRAINING_FITS,
                                        .synthetic = STEP_SYNTHETIC,
                                        .vs_rearrangement = -1,
                                        .error_factor = STEP_ERROR_FACTOR,
                                        .best = STEP_OWN + HEC_TRAINING_TOKENS_PER_S,
                                        .dropped = STEP_OWN + HEC_TRAINING_DROPPED,
                                        .best_of = "tokens/s per GPU",
                                        .not_modelled = hec_training_not_modelled,
                                        .refuses = refuses,
                                        .takes = takes,
                                        .make = make,
                                        .compare = compare};
