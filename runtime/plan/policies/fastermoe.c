/* FasterMoE (PPoPP 2022). After the gate has spoken, hot experts are shadowed on every rank for this micro-batch, on
 * the critical path. Their gradients return to the owner, whose optimizer is the only one. The choice is in shadow.c;
 * here are its constants, from the problem's cluster:
 *
 *   compute_s   3 forwards of one assignment at the rate of the slowest device
 *   exchange_s  4 rows over a rank's share of its node's network (one node: over its port)
 *   shadow_s    2 transfers of one expert's parameters at the node's whole rate, since a broadcast enters a node once
 *
 * Forward only: 1, 2 and 1 instead of 3, 4 and 2. The smart schedule and the topology gate of the paper are not part of
 * the placement. */
#include "runtime/plan/planners/shadow.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/rates.h"

typedef struct {
  hec_shadow shadow;
  hec_shadow_cost cost;
} fastermoe;

static hec_shadow_cost cost_of(const hec_problem *problem) {
  hec_rates rates = hec_rates_of(problem);
  return (hec_shadow_cost){
      .compute_s = (problem->train ? 3 : 1) * rates.assignment_s,
      .exchange_s = (problem->train ? 4 : 2) * problem->bytes.token / rates.token_rank,
      .shadow_s = (problem->train ? 2 : 1) * problem->bytes.expert_param / rates.node,
  };
}

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  fastermoe *state = HEC_NEW(run->arena, fastermoe, 1);
  state->shadow = hec_shadow_new(run->arena, problem->n_ranks, problem->n_experts);
  state->cost = cost_of(problem);
  run->state = state;
  hec_plan_set_contiguous(&run->plan, problem);
}

/* Back to no shadows: nothing is known before the gate. */
static void decide(hec_policy_run *run) {
  hec_plan_set_contiguous(&run->plan, run->problem);
}

static void refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  fastermoe *state = run->state;
  hec_shadow *shadow = &state->shadow;
  hec_plan *plan = &run->plan;
  const int32_t *home = plan->home + (size_t)layer * (size_t)plan->n_experts;
  hec_shadow_choose(shadow, &state->cost, hec_load_row(load, layer, 0), home);
  for (int32_t i = 0; i < shadow->n_chosen; i++)
    hec_plan_add_everywhere(plan, layer, shadow->chosen[i]);
  run->units = (uint64_t)plan->n_ranks * (uint64_t)(plan->n_experts + shadow->n_predicted);
  run->planned = true;
}

const hec_policy hec_policy_fastermoe = {
    .name = "fastermoe",
    .fills = {.any = true},
    .tried = true,
    .summary = "After the gate, hot experts are copied to all ranks for one micro-batch. A cost model chooses them.",
    .source = "FasterMoE, PPoPP 2022",
    .known = HEC_KNOWN_EXACT,
    .schedule = "serial",
    .dispatch = &hec_dispatch_group,
    .window = 1,
    .init = init,
    .decide = decide,
    .refine = refine,
    .rearranges = true,
};
