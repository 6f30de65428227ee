/* A policy at work, what is the same for all: start, stop, counting of units, the clock of periods. */
#include "runtime/plan/policy_groups.h"
#include "runtime/plan/problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

hec_policy_run hec_policy_start(const hec_policy *policy, const hec_problem *problem, hec_arena *arena) {
  int32_t window = policy->window > 1 ? policy->window : 1;
  hec_policy_run run = {
      .policy = policy,
      .problem = problem,
      .arena = arena,
      .history = hec_history_new(arena, window, problem->n_layers, problem->n_experts),
      .plan = hec_plan_new(arena, problem, policy->sliced ? problem->n_ranks : 1),
      .link = hec_link_cost_new(problem->cluster, arena),
      .t = HEC_NEW(arena, int32_t, problem->n_layers),
      .m = HEC_NEW(arena, int32_t, problem->n_layers),
  };
  if (policy->by_source && (problem->dp == 1 || policy->all_ranks))
    hec_history_keep_sources(arena, &run.history, problem->n_ranks);
  for (int32_t layer = 0; layer < problem->n_layers; layer++)
    run.t[layer] = run.m[layer] = -1;
  if (problem->dp > 1 && !policy->all_ranks)
    hec_policy_groups_start(&run);
  else
    policy->init(&run);
  return run;
}

void hec_policy_stop(hec_policy_run *run) {
  if (run->groups)
    hec_policy_groups_stop(run);
  hec_link_cost_free(&run->link);
}

void hec_policy_decide(hec_policy_run *run, int64_t iter, int32_t micro_batch) {
  run->iter = iter;
  run->micro_batch = micro_batch;
  run->units = 0;
  run->planned = false;
  if (run->groups)
    hec_policy_groups_decide(run);
  else if (run->policy->decide)
    run->policy->decide(run);
}

void hec_policy_refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  run->units = 0;
  run->planned = false;
  if (run->groups)
    hec_policy_groups_refine(run, layer, load);
  else if (run->policy->refine)
    run->policy->refine(run, layer, load);
}

void hec_policy_observe(hec_policy_run *run, const hec_load *load) {
  hec_history_push(&run->history, load);
  if (run->groups)
    hec_policy_groups_observe(run, load);
}

void hec_policy_rewrite(hec_policy_run *run, hec_load *load) {
  if (run->policy->rewrite && run->groups)
    hec_policy_groups_rewrite(run, load);
  else if (run->policy->rewrite)
    run->policy->rewrite(run, load);
}

void hec_policy_reshard(hec_policy_run *run) {
  if (run->policy->reshard && run->groups)
    hec_policy_groups_reshard(run);
  else if (run->policy->reshard)
    run->policy->reshard(run);
}

void hec_policy_note(hec_policy_run *run, const char *format, ...) {
  size_t length = strlen(run->note);
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(run->note + length, sizeof run->note - length, format, arguments);
  va_end(arguments);
  HEC_ASSERT(n >= 0 && (size_t)n < sizeof run->note - length);
}

bool hec_policy_due(const hec_policy_run *run, int64_t *last) {
  int32_t period = run->problem->period != HEC_AUTO ? run->problem->period : run->policy->period;
  if (period <= 0 || run->micro_batch != 0 || hec_history_length(&run->history) == 0)
    return false;
  if (*last >= 0 && run->iter - *last < period)
    return false;
  *last = run->iter;
  return true;
}
