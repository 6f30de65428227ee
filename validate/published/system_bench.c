/* One policy on one set-up, on memory of its own. */
#include "validate/published/system_bench.h"

#include "validate/stats.h"

#include <string.h>

hec_status hec_system_moe(const char *preset, int32_t n_layers, hec_moe *moe) {
  HEC_TRY(hec_moe_load(preset, moe));
  moe->n_layers = moe->n_moe_layers = n_layers;
  return HEC_OK;
}

static hec_status simulate(const hec_system_setup *setup, const char *policy, const char *schedule, hec_arena *arena,
                           hec_lab_cell *cell) {
  hec_cluster cluster;
  hec_problem problem;
  hec_moe moe = setup->moe;
  moe.tokens_per_rank = setup->tokens;
  HEC_TRY(hec_cluster_load(setup->cluster, arena, &cluster));
  HEC_TRY(hec_problem_make(&moe, &cluster, !setup->forward, setup->n_ranks, setup->tokens, &problem));
  if (setup->ep > 0) {
    HEC_ASSERT(setup->n_ranks % setup->ep == 0 && setup->ep <= problem.ep);
    problem.ep = setup->ep;
    problem.dp = setup->n_ranks / setup->ep;
  }
  problem.period = setup->period > 0 ? setup->period : HEC_AUTO;
  problem.slots = setup->slots > 0 ? setup->slots : HEC_AUTO;
  hec_lab_cell_run run = {.problem = &problem,
                          .policy = hec_policy_find(policy),
                          .loads = setup->loads,
                          .warmup = setup->warmup,
                          .n_micro_batches = setup->n_micro_batches};
  HEC_ASSERT(run.policy != NULL && setup->loads->n > 0);
  HEC_ASSERT(setup->loads->load[0].n_sources == setup->n_ranks && setup->loads->load[0].n_layers == problem.n_layers &&
             setup->loads->load[0].n_experts == problem.n_experts);
  HEC_TRY(hec_schedule_of(run.policy, schedule ? schedule : "auto", &run.schedule));
  hec_lab_cell_simulate(&run, arena, cell);
  return HEC_OK;
}

hec_status hec_system_simulate(hec_system_report *report, const hec_system_setup *setup, const char *policy,
                               const char *schedule, hec_lab_cell *cell) {
  (void)report;
  hec_arena scratch = {0};
  hec_status status = simulate(setup, policy, schedule, &scratch, cell);
  hec_arena_free(&scratch);
  return status;
}

double hec_system_layers_s(const hec_lab_cell *cell, bool forward) {
  double sum = 0;
  for (int32_t l = 0; l < cell->n_layers; l++)
    sum += forward ? cell->forward_s[l] : cell->layer_s[l];
  return sum;
}

hec_status hec_system_gain(hec_system_report *report, const hec_system_setup *setup, const char *slow, const char *fast,
                           double *gain) {
  hec_lab_cell a, b;
  HEC_TRY(hec_system_simulate(report, setup, slow, NULL, &a));
  HEC_TRY(hec_system_simulate(report, setup, fast, NULL, &b));
  *gain = a.iteration_s / b.iteration_s;
  return HEC_OK;
}

hec_status hec_system_gains(hec_system_report *report, const hec_system_setup *setup, int32_t n, const char *slow,
                            const char *fast, double gain[HEC_SYSTEM_SKEWS]) {
  static const double sigma[HEC_SYSTEM_SKEWS] = {1, 0.5, 1.5};
  hec_system_setup own = *setup;
  const hec_system_shape shape = {own.moe.n_moe_layers, own.moe.n_experts, own.moe.top_k, own.n_ranks, own.tokens, n};
  for (int32_t i = 0; i < HEC_SYSTEM_SKEWS; i++) {
    hec_arena_mark mark = hec_arena_save(hec_system_arena(report));
    hec_loads loads;
    HEC_TRY(hec_system_lognormal(report, &shape, sigma[i], HEC_DRIFT_TRAINING, &loads));
    own.loads = &loads;
    HEC_TRY(hec_system_gain(report, &own, slow, fast, &gain[i]));
    hec_arena_rewind(hec_system_arena(report), mark);
  }
  return HEC_OK;
}

int32_t hec_system_few(const hec_system_report *report, int32_t n, int32_t when_quick) {
  return hec_system_options_of(report)->quick && when_quick < n ? when_quick : n;
}

hec_span hec_system_range(const double *value, int32_t n) {
  return (hec_span){hec_least(value, n), hec_most(value, n)};
}
