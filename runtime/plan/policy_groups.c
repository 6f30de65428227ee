/* A policy in every expert-parallel group: each group has a run of its own, on a problem of its own ranks, and its plan
 * becomes part of the plan of all ranks (hec_plan_join).
 *
 *   history   of the group's sources
 *   units     the largest of the groups': they plan at the same time, each for itself
 *   version   the sum of the groups'
 *   t, m      the first group's
 *
 * O(groups) runs, O(copies) to join a layer. */
#include "runtime/plan/policy_groups.h"

#include "runtime/plan/problem.h"

#include <string.h>

struct hec_policy_groups {
  int32_t n, width;
  hec_policy_run *run;   /* [n] */
  const hec_plan **plan; /* [n] theirs */
};

/* Room for the quotas of all groups. */
static void reserve_quotas(hec_policy_run *run, const hec_policy_groups *groups) {
  hec_plan *plan = &run->plan;
  if (!groups->plan[0]->quota_at)
    return;
  for (int32_t g = 0; g < groups->n; g++)
    plan->quota_capacity += groups->plan[g]->quota_capacity;
  plan->quota_at = HEC_NEW(run->arena, int32_t, (size_t)plan->n_layers * (size_t)(plan->n_experts + 1));
  plan->quota = HEC_NEW(run->arena, hec_quota, (size_t)plan->n_layers * (size_t)plan->quota_capacity);
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

void hec_policy_groups_start(hec_policy_run *run) {
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
    groups->run[g] = hec_policy_start(run->policy, own, run->arena);
    groups->plan[g] = &groups->run[g].plan;
  }
  run->groups = groups;
  run->plan.width = groups->width;
  reserve_quotas(run, groups);
  for (int32_t layer = 0; layer < problem->n_layers; layer++)
    hec_plan_join(&run->plan, layer, groups->plan);
  gather(run);
}

void hec_policy_groups_stop(hec_policy_run *run) {
  for (int32_t g = 0; g < run->groups->n; g++)
    hec_policy_stop(&run->groups->run[g]);
}

void hec_policy_groups_decide(hec_policy_run *run) {
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

void hec_policy_groups_refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  const hec_policy_groups *groups = run->groups;
  for (int32_t g = 0; g < groups->n; g++) {
    hec_load own = load_of(groups, g, load, layer);
    hec_policy_refine(&groups->run[g], layer, &own);
  }
  if (run->policy->refine)
    hec_plan_join(&run->plan, layer, groups->plan);
  gather(run);
}

void hec_policy_groups_rewrite(hec_policy_run *run, hec_load *load) {
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

void hec_policy_groups_observe(hec_policy_run *run, const hec_load *load) {
  const hec_policy_groups *groups = run->groups;
  for (int32_t g = 0; g < groups->n; g++)
    hec_history_push_sources(&groups->run[g].history, load, g * groups->width, groups->width);
}

void hec_policy_groups_reshard(hec_policy_run *run) {
  for (int32_t g = 0; g < run->groups->n; g++)
    run->policy->reshard(&run->groups->run[g]);
}
