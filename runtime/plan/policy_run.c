/* A policy at work, what is the same for all: start, stop, counting of units, the clock of periods. */
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/quota.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Expert-parallel groups ---- */

/* Each group has a run of its own, on a problem of its own ranks, and its plan becomes part of the plan of all ranks
 * (hec_plan_join).
 *
 *   history   of the group's sources
 *   units     the largest of the groups': they plan at the same time, each for itself
 *   version   the sum of the groups'
 *   t, m      the first group's
 *
 * O(groups) runs, O(copies) to join a layer. */
struct hec_policy_groups {
  int32_t n, width;
  hec_policy_run *run;   /* [n] */
  const hec_plan **plan; /* [n] theirs */
};

/* Room for the quotas of all groups. */
static void reserve_quotas(hec_policy_run *run, const hec_policy_groups *groups) {
  if (!groups->plan[0]->quota_at)
    return;
  int32_t capacity = 0;
  for (int32_t g = 0; g < groups->n; g++)
    capacity += groups->plan[g]->quota_capacity;
  hec_quota_reserve(&run->plan, run->arena, capacity);
}

/* What the groups say of themselves, over all of them. */
static void gather(hec_policy_run *run) {
  const hec_policy_groups *groups = run->groups;
  hec_plan *plan = &run->plan;
  plan->version = run->n_offered = run->n_dropped = 0;
  for (int32_t g = 0; g < groups->n; g++) {
    const hec_policy_run *own = &groups->run[g];
    run->planned = run->planned || own->planned;
    run->units = own->units > run->units ? own->units : run->units;
    run->n_offered += own->n_offered;
    run->n_dropped += own->n_dropped;
    plan->version += own->plan.version;
    plan->slots = own->plan.slots > plan->slots ? own->plan.slots : plan->slots;
    plan->rematerialise = plan->rematerialise || own->plan.rematerialise;
  }
  memcpy(run->t, groups->run[0].t, (size_t)plan->n_layers * sizeof *run->t);
  memcpy(run->m, groups->run[0].m, (size_t)plan->n_layers * sizeof *run->m);
  memcpy(run->note, groups->run[0].note, sizeof run->note);
}

static void groups_start(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  HEC_ASSERT(!run->policy->sliced); /* slices are on all ranks */
  hec_policy_groups *groups = HEC_NEW(run->arena, hec_policy_groups, 1);
  *groups = (hec_policy_groups){.n = problem->dp,
                                .width = problem->ep,
                                .run = HEC_NEW(run->arena, hec_policy_run, problem->dp),
                                .plan = HEC_NEW(run->arena, const hec_plan *, problem->dp)};
  for (int32_t g = 0; g < groups->n; g++) {
    hec_problem *own = HEC_NEW(run->arena, hec_problem, 1);
    *own = hec_problem_of_group(problem, g, run->arena);
    groups->run[g] = hec_policy_start_under(run->policy, own, run->hides, run->arena);
    groups->plan[g] = &groups->run[g].plan;
  }
  run->groups = groups;
  run->plan.width = groups->width;
  reserve_quotas(run, groups);
  for (int32_t layer = 0; layer < problem->n_layers; layer++)
    hec_plan_join(&run->plan, layer, groups->plan);
  gather(run);
}

static void groups_stop(hec_policy_run *run) {
  for (int32_t g = 0; g < run->groups->n; g++)
    hec_policy_stop(&run->groups->run[g]);
}

static void groups_decide(hec_policy_run *run) {
  const hec_policy_groups *groups = run->groups;
  for (int32_t g = 0; g < groups->n; g++)
    hec_policy_decide(&groups->run[g], run->iter, run->micro_batch);
  for (int32_t layer = 0; run->policy->decide && layer < run->plan.n_layers; layer++)
    hec_plan_join(&run->plan, layer, groups->plan);
  gather(run);
}

/* The load as a group sees it, good for one layer: the rows of its sources stand together. */
static hec_load load_of(const hec_policy_groups *groups, int32_t group, const hec_load *load, int32_t layer) {
  hec_load own = *load;
  size_t before = (size_t)layer * (size_t)(load->n_sources - groups->width) + (size_t)group * (size_t)groups->width;
  own.n_sources = groups->width;
  own.counts += before * (size_t)load->n_experts;
  return own;
}

static void groups_refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  const hec_policy_groups *groups = run->groups;
  for (int32_t g = 0; g < groups->n; g++) {
    hec_load own = load_of(groups, g, load, layer);
    hec_policy_refine(&groups->run[g], layer, &own);
  }
  if (run->policy->refine)
    hec_plan_join(&run->plan, layer, groups->plan);
  gather(run);
}

static void groups_rewrite(hec_policy_run *run, hec_load *load) {
  const hec_policy_groups *groups = run->groups;
  for (int32_t layer = 0; layer < load->n_layers; layer++)
    for (int32_t g = 0; g < groups->n; g++) {
      hec_load own = *load;
      own.n_layers = 1;
      own.n_sources = groups->width;
      own.counts = hec_load_row(load, layer, g * groups->width);
      run->policy->rewrite(&groups->run[g], &own);
    }
  gather(run);
}

static void groups_observe(hec_policy_run *run, const hec_load *load) {
  const hec_policy_groups *groups = run->groups;
  for (int32_t g = 0; g < groups->n; g++)
    hec_history_push_sources(&groups->run[g].history, load, g * groups->width, groups->width);
}

static void groups_reshard(hec_policy_run *run) {
  for (int32_t g = 0; g < run->groups->n; g++)
    run->policy->reshard(&run->groups->run[g]);
}

/* ---- Runs ---- */

/* The problem as a policy sees it whose options say more than the problem does. */
static const hec_problem *problem_of(const hec_policy *policy, const hec_problem *problem, hec_arena *arena) {
  if (!policy->given)
    return problem;
  hec_problem *own = HEC_NEW(arena, hec_problem, 1);
  *own = *problem;
  own->t = HEC_POLICY_SAYS(policy, t) ? policy->t : own->t;
  own->m = HEC_POLICY_SAYS(policy, m) ? policy->m : own->m;
  own->slots = HEC_POLICY_SAYS(policy, slots) ? policy->slots : own->slots;
  own->period = HEC_POLICY_SAYS(policy, period) ? policy->period : own->period;
  return own;
}

hec_policy_run hec_policy_start(const hec_policy *policy, const hec_problem *problem, hec_arena *arena) {
  return hec_policy_start_under(policy, problem, (hec_hiding){0}, arena);
}

hec_policy_run hec_policy_start_under(const hec_policy *policy, const hec_problem *problem, hec_hiding hides,
                                      hec_arena *arena) {
  int32_t window = policy->window > 1 ? policy->window : 1;
  problem = problem_of(policy, problem, arena);
  hec_policy_run run = {
      .policy = policy,
      .problem = problem,
      .arena = arena,
      .history = hec_history_new(arena, window, problem->n_layers, problem->n_experts),
      .plan = hec_plan_new(arena, problem, policy->sliced ? problem->n_ranks : 1),
      .link = hec_link_cost_new(problem->cluster, arena),
      .hides = hides,
      .t = HEC_NEW(arena, int32_t, problem->n_layers),
      .m = HEC_NEW(arena, int32_t, problem->n_layers),
  };
  if (policy->by_source && (problem->dp == 1 || policy->all_ranks))
    hec_history_keep_sources(arena, &run.history, problem->n_ranks);
  for (int32_t layer = 0; layer < problem->n_layers; layer++)
    run.t[layer] = run.m[layer] = -1;
  if (problem->dp > 1 && !policy->all_ranks)
    groups_start(&run);
  else
    policy->init(&run);
  return run;
}

void hec_policy_stop(hec_policy_run *run) {
  if (run->groups)
    groups_stop(run);
  hec_link_cost_free(&run->link);
}

void hec_policy_decide(hec_policy_run *run, int64_t iter, int32_t micro_batch) {
  run->iter = iter;
  run->micro_batch = micro_batch;
  run->units = 0;
  run->planned = false;
  if (run->groups)
    groups_decide(run);
  else if (run->policy->decide)
    run->policy->decide(run);
}

void hec_policy_refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  run->units = 0;
  run->planned = false;
  if (run->groups)
    groups_refine(run, layer, load);
  else if (run->policy->refine)
    run->policy->refine(run, layer, load);
}

void hec_policy_observe(hec_policy_run *run, const hec_load *load) {
  hec_history_push(&run->history, load);
  if (run->groups)
    groups_observe(run, load);
}

void hec_policy_rewrite(hec_policy_run *run, hec_load *load) {
  if (run->policy->rewrite && run->groups)
    groups_rewrite(run, load);
  else if (run->policy->rewrite)
    run->policy->rewrite(run, load);
}

void hec_policy_reshard(hec_policy_run *run) {
  if (run->policy->reshard && run->groups)
    groups_reshard(run);
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
