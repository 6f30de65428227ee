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

hec_span hec_system_range(const double *value, int32_t n) {
  return (hec_span){hec_least(value, n), hec_most(value, n)};
}
