/* See training_summary.h. */
#include "tools/front/training/training_summary.h"

#include <string.h>

/* All times of a prediction by the factor of the user's own run. */
static void scale(hec_training_result *r, double factor) {
  double *times[] = {&r->step_s,     &r->busy_s,      &r->bubble_s,
                     &r->dispatch_s, &r->tensor_s,    &r->gather_s,
                     &r->data_s,     &r->optimizer_s, &r->gpu_hours_per_1e12_tokens};
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

static hec_status run_rows(const hec_set_up *set_up, const hec_training_loads *loads, hec_training_summary *summary) {
  for (int32_t i = 0; i < summary->n_rows; i++) {
    hec_training_row *row = &summary->rows[i];
    const hec_training_job job = {.training = &set_up->training,
                                  .pipeline = set_up->pipeline,
                                  .loads = loads->of[i].loads,
                                  .gather_s = loads->of[i].gather_s,
                                  .moves_s = loads->of[i].moves_s};
    HEC_TRY(hec_training_run(&job, &row->result));
    row->overload_median = hec_series_quantile(&loads->of[i].overload, 0.5);
    row->overload_p95 = hec_series_quantile(&loads->of[i].overload, 0.95);
    row->moves_s = loads->of[i].moves_s;
    row->dropped_share = loads->of[i].dropped_share;
    if (!row->policy->baseline)
      continue;
    summary->baseline = i;
    if (!row->result.memory.fits)
      hec_training_fix_find(&job, &summary->fix);
  }
  return HEC_OK;
}

static void fit(hec_training_summary *summary) {
  const hec_set_up *set_up = summary->set_up;
  summary->factor = set_up->factor > 0 ? set_up->factor : 1;
  if (set_up->measured_step_s > 0)
    summary->factor =
        set_up->measured_step_s /
        (set_up->measured_balanced ? summary->balanced.step_s : summary->rows[summary->baseline].result.step_s);
  scale(&summary->balanced, summary->factor);
  for (int32_t i = 0; i < summary->n_rows; i++) {
    scale(&summary->rows[i].result, summary->factor);
    summary->rows[i].moves_s *= summary->factor;
  }
}

hec_status hec_training_compare(const hec_set_up *set_up, const hec_training_choice *choice, hec_trace_reader *reader,
                                hec_arena *arena, hec_training_summary *summary) {
  *summary = (hec_training_summary){.set_up = set_up, .trace = hec_trace_origin(reader), .baseline = -1};
  const hec_policy **policies = choose(choice, arena, &summary->n_rows);
  const hec_training_job balanced = {.training = &set_up->training, .pipeline = set_up->pipeline};
  HEC_TRY(hec_training_run(&balanced, &summary->balanced));
  for (int32_t i = 0; i < summary->n_rows; i++)
    HEC_TRY(hec_policy_suits(policies[i], &set_up->job.problem));
  summary->rows = HEC_NEW(arena, hec_training_row, summary->n_rows);
  for (int32_t i = 0; i < summary->n_rows; i++)
    summary->rows[i].policy = policies[i];
  const hec_training_loads_of of = {.job = &set_up->job,
                                    .policies = policies,
                                    .n_policies = summary->n_rows,
                                    .n_threads = choice->n_threads,
                                    .n_layers = set_up->moe.n_moe_layers,
                                    .n_stages = set_up->training.layout.pp,
                                    .n_micro = hec_training_micro_batches(&set_up->training),
                                    .warmup = choice->warmup};
  hec_training_loads loads;
  hec_status status = hec_training_loads_make(&of, reader, arena, &loads);
  if (status == HEC_OK)
    status = run_rows(set_up, &loads, summary);
  summary->n_before = loads.n_before;
  summary->n_records = loads.n_records;
  hec_training_loads_free(&of, &loads);
  if (status == HEC_OK)
    fit(summary);
  return status;
}
