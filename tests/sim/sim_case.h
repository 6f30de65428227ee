/* Lowering and simulation in one call each, checked. */
#pragma once
#include "runtime/plan/problem.h"
#include "runtime/program/lower.h"
#include "sim/simulate.h"

/* One iteration of one micro-batch, by names of a policy and a schedule. The caller frees it. */
static inline hec_lowering *hec_test_lower(const hec_problem *problem, const char *policy, const char *schedule,
                                           const hec_load *load, hec_arena *arena) {
  hec_lowering *low = hec_lowering_new(problem, hec_policy_find(policy), hec_schedule_find(schedule), NULL, arena);
  hec_lower_iteration(low, 0, load, 1, 1);
  hec_program_check(hec_lowering_program(low));
  return low;
}

/* The caller frees it. */
static inline hec_timeline hec_test_simulate(const hec_problem *problem, const hec_program *program, const hec_law *law,
                                             hec_sim_options options) {
  HEC_SCOPED(hec_arena) own = {0};
  hec_timeline timeline = {0};
  hec_sim *sim = hec_sim_new(problem, law, &own);
  hec_sim_run(sim, program, options, &timeline);
  hec_timeline_check(&timeline, program);
  hec_sim_free(sim);
  return timeline;
}

static inline int64_t hec_test_end_ps(const hec_problem *problem, const hec_program *program, const hec_law *law,
                                      hec_sim_options options) {
  HEC_SCOPED(hec_timeline) timeline = hec_test_simulate(problem, program, law, options);
  int64_t end_ps = hec_timeline_end_ps(&timeline);
  return end_ps;
}

/* The same under alpha_beta, in seconds. */
static inline double hec_test_seconds(const hec_problem *problem, const hec_program *program) {
  return 1e-12 * (double)hec_test_end_ps(problem, program, &hec_law_alpha_beta, (hec_sim_options){0});
}

/* Every source sends `each` assignments to every expert. */
static inline hec_load hec_test_equal_load(const hec_problem *problem, uint32_t each, hec_arena *arena) {
  hec_load load = hec_load_new(arena, problem->n_layers, problem->n_ranks, problem->n_experts);
  for (size_t i = 0; i < hec_load_cells(&load); i++)
    load.counts[i] = each;
  return load;
}
