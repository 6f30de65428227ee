/* See training_summary.h. */
#include "tools/front/training/training_summary.h"

#include "sim/layout_search.h"

#include <string.h>

/* All times of a prediction by the factor of the user's own run. */
static void scale(hec_training_result *r, double factor) {
  double *times[] = {&r->step_s,
                     &r->busy_s,
                     &r->bubble_s,
                     &r->dispatch_s,
                     &r->tensor_s,
                     &r->gather_s,
                     &r->data_s,
                     &r->optimizer_s,
                     &r->host_s,
                     &r->sharded_s,
                     &r->gpu_hours_per_1e12_tokens};
  double *rates[] = {&r->tokens_per_s_per_gpu, &r->model_tflops_per_gpu, &r->mfu};
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
    *times[i] *= factor;
  for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
    *rates[i] /= factor;
}

static const hec_policy **choose(const hec_training_choice *choice, hec_arena *arena, int32_t *n) {
  const hec_policy **policies = HEC_NEW(arena, const hec_policy *, choice->n_policies + 1);
  bool baseline = false;
  *n = 0;
  for (int32_t i = 0; i < choice->n_policies; i++) {
    if (!choice->policies[i]->reference)
      policies[(*n)++] = choice->policies[i];
    baseline = baseline || choice->policies[i]->baseline;
  }
  if (!baseline)
    policies[(*n)++] = hec_policy_find("ep");
  return policies;
}

static hec_training_job job_of(const hec_set_up *set_up, const hec_training_loads *loads, int32_t row, int32_t group) {
  const hec_training_routing *of = &loads->of[row];
  int64_t at = (int64_t)group * set_up->moe.n_moe_layers * hec_training_micro_batches(&set_up->training);
  return (hec_training_job){.training = &set_up->training,
                            .pipeline = set_up->pipeline,
                            .loads = of->loads + at,
                            .gather_s = of->gather_s ? of->gather_s + 2 * at : NULL,
                            .sharded = of->sharded,
                            .moves_s = of->moves_s,
                            .replicas_s = of->replicas_s,
                            .dropped_share = of->dropped_share};
}

/* The group that ends last; of memory, what the group says that needs most. If that is both, it is the one drawn. */
static hec_status run_groups(const hec_set_up *set_up, const hec_training_loads *loads, int32_t row, int32_t *slowest,
                             hec_training_result *result) {
  hec_training_memory memory = {0};
  for (int32_t g = 0; g < loads->n_groups; g++) {
    const hec_training_job job = job_of(set_up, loads, row, g);
    hec_training_result one;
    HEC_TRY(hec_training_run(&job, &one));
    if (g == 0 || one.memory.margin < memory.margin)
      memory = one.memory;
    if (g > 0 && one.step_s <= result->step_s)
      continue;
    *result = one;
    *slowest = g;
  }
  if (memory.margin < result->memory.margin)
    result->memory = memory;
  return HEC_OK;
}

static hec_status run_rows(const hec_set_up *set_up, const hec_training_loads *loads, hec_training_summary *summary) {
  const hec_training_job job = {.training = &set_up->training, .pipeline = set_up->pipeline};
  summary->n_fit = 0;
  HEC_TRY(hec_training_run(&job, &summary->balanced));
  for (int32_t i = 0; i < summary->n_rows; i++) {
    hec_training_row *row = &summary->rows[i];
    int32_t slowest = 0;
    HEC_TRY(run_groups(set_up, loads, i, &slowest, &row->result));
    row->job = job_of(set_up, loads, i, slowest);
    row->overload_median = hec_series_quantile(&loads->of[i].overload, 0.5);
    row->overload_p95 = hec_series_quantile(&loads->of[i].overload, 0.95);
    row->moves_s = loads->of[i].moves_s;
    row->dropped_share = loads->of[i].dropped_share;
    summary->n_fit += row->result.memory.fits;
    summary->baseline = row->policy->baseline ? i : summary->baseline;
  }
  summary->fix = (hec_training_fix){0};
  if (!summary->rows[summary->baseline].result.memory.fits)
    hec_training_fix_find(&summary->rows[summary->baseline].job, &summary->fix);
  return HEC_OK;
}

#define NAME(id, column, group, key, value) {column, group, key},
const hec_summary_value_name hec_training_value_names[HEC_N_TRAINING_VALUES] = {HEC_TRAINING_VALUE_LIST(NAME)};

void hec_training_values(const hec_training_summary *s, int32_t at, double value[HEC_N_TRAINING_VALUES]) {
  const hec_training_row *row = at < 0 ? NULL : &s->rows[at];
  const hec_training_result *r = row ? &row->result : &s->balanced;
  double ep_s = s->rows[s->baseline].result.step_s;
#define VALUE(id, column, group, key, what) value[HEC_TRAINING_##id] = what;
  HEC_TRAINING_VALUE_LIST(VALUE)
}

static void fit(hec_training_summary *summary) {
  const hec_set_up *set_up = summary->set_up;
  summary->factor = set_up->factor > 0 ? set_up->factor : 1;
  if (set_up->measured_step_s > 0)
    summary->factor =
        set_up->measured_step_s /
        (set_up->measured_balanced ? summary->balanced.step_s : summary->rows[summary->baseline].result.step_s);
  scale(&summary->balanced, summary->factor);
  summary->fix.step_s *= summary->factor;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    scale(&summary->rows[i].result, summary->factor);
    summary->rows[i].moves_s *= summary->factor;
  }
}

hec_status hec_training_compare(hec_set_up *set_up, const hec_training_choice *choice, hec_trace_reader *reader,
                                hec_arena *arena, hec_training_summary *summary) {
  *summary = (hec_training_summary){.set_up = set_up, .trace = hec_trace_origin(reader), .baseline = -1};
  const hec_policy **policies = choose(choice, arena, &summary->n_rows);
  for (int32_t i = 0; i < summary->n_rows; i++)
    HEC_TRY(hec_policy_suits(policies[i], &set_up->job.problem));
  summary->rows = HEC_NEW(arena, hec_training_row, summary->n_rows);
  for (int32_t i = 0; i < summary->n_rows; i++)
    summary->rows[i].policy = policies[i];
  const hec_training_loads_of of = {.job = &set_up->job,
                                    .training = &set_up->training,
                                    .policies = policies,
                                    .n_policies = summary->n_rows,
                                    .n_threads = choice->n_threads,
                                    .silent = choice->silent,
                                    .capacity = set_up->training.capacity,
                                    .n_layers = set_up->moe.n_moe_layers,
                                    .n_groups = set_up->training.layout.edp,
                                    .n_stages = set_up->training.layout.pp,
                                    .n_micro = hec_training_micro_batches(&set_up->training),
                                    .records = choice->records,
                                    .warmup = choice->warmup};
  hec_training_loads loads;
  hec_status status = hec_training_loads_make(&of, reader, arena, &loads);
  while (status == HEC_OK) {
    status = run_rows(set_up, &loads, summary);
    if (summary->n_fit > 0 || !choice->recompute_more || !hec_recompute_more(&set_up->training.recipe))
      break;
  }
  summary->n_before = loads.n_before;
  summary->n_records = loads.n_records;
  summary->seen = loads.seen;
  summary->n_empty = loads.n_empty;
  summary->n_groups = loads.n_groups;
  hec_training_loads_free(&of, &loads);
  if (status == HEC_OK)
    fit(summary);
  return status;
}
