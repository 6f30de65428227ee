/* EPLB as a policy: when it decides, on what load, and how slots become homes and resident copies.
 *
 *   home(e)   the present home if it still has a slot of e, else the rank of e's first slot
 *   copies    every other slot, resident (weights, gradients and optimizer state: reference policies.md 4.1)
 *
 * The load is the window's sum, which orders like its mean. */
#include "runtime/plan/eplb_core.h"

typedef struct {
  int64_t last;
  hec_eplb core;
  uint64_t *load;       /* [n_experts] */
  int32_t *at, *filled; /* [n_experts + 1], [n_experts] CSR of the slots' ranks by expert */
  int32_t *rank;        /* [n_slots] */
} eplb_state;

static int32_t slots_per_rank(const hec_problem *problem, int32_t redundant) {
  int32_t least = (problem->n_experts + problem->n_ranks - 1) / problem->n_ranks;
  int32_t slots = problem->slots;
  if (slots == HEC_AUTO)
    slots = (problem->n_experts + problem->ep - 1) / problem->ep + redundant;
  slots = slots < least ? least : slots;
  return slots < problem->n_experts ? slots : problem->n_experts;
}

/* Groups of experts that stay together on a node: about as many as DeepSeek-V3's router has, 8, so that step 1 has
 * something to pack (with one group per node it would freeze every expert on its node); 0 if nodes do not allow any. */
static int32_t n_groups(const hec_problem *problem) {
  int32_t nodes = problem->n_nodes;
  if (nodes == 1)
    return 1; /* one node: both forms are the same */
  if (problem->n_ranks != nodes * problem->cluster->devices_per_node || problem->n_experts % nodes != 0)
    return 0;
  int32_t groups = nodes;
  while (groups < 8 || problem->n_experts % groups != 0) {
    if (groups >= problem->n_experts)
      return nodes;
    groups += nodes;
  }
  return groups;
}

void hec_eplb_init(hec_policy_run *run, bool hierarchical, int32_t redundant) {
  const hec_problem *problem = run->problem;
  run->plan.slots = slots_per_rank(problem, redundant);
  int32_t n_slots = run->plan.slots * problem->n_ranks;
  int32_t groups = hierarchical ? n_groups(problem) : 0, nodes = groups > 0 ? problem->n_nodes : 1;
  eplb_state *state = HEC_NEW(run->arena, eplb_state, 1);
  *state = (eplb_state){
      .last = -1,
      .core = hec_eplb_new(run->arena, problem->n_experts, n_slots, groups > 0 ? groups : 1, nodes, problem->n_ranks),
      .load = HEC_NEW(run->arena, uint64_t, problem->n_experts),
      .at = HEC_NEW(run->arena, int32_t, problem->n_experts + 1),
      .filled = HEC_NEW(run->arena, int32_t, problem->n_experts),
      .rank = HEC_NEW(run->arena, int32_t, n_slots),
  };
  run->state = state;
  hec_plan_set_contiguous(&run->plan, problem);
}

/* Ranks of each expert's slots, ascending, as CSR. */
static void list_ranks(eplb_state *state) {
  const hec_eplb *core = &state->core;
  int32_t per_rank = core->n_slots / core->n_ranks;
  state->at[0] = 0;
  for (int32_t e = 0; e < core->n_experts; e++) {
    state->at[e + 1] = state->at[e] + core->count[e];
    state->filled[e] = state->at[e];
  }
  for (int32_t i = 0; i < core->n_slots; i++)
    state->rank[state->filled[core->slot[i]]++] = i / per_rank;
}

static void write_layer(const eplb_state *state, hec_plan *plan, int32_t layer) {
  hec_plan_clear_copies(plan, layer);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    int32_t begin = state->at[e], end = state->at[e + 1], home = begin;
    for (int32_t i = end - 1; i >= begin; i--)
      if (state->rank[i] == hec_plan_home(plan, layer, e))
        home = i;
    hec_plan_set_home(plan, layer, e, state->rank[home]);
    for (int32_t i = begin; i < end; i++)
      if (i != home)
        hec_plan_add_copy(plan, layer, e, state->rank[i], HEC_COPY_RESIDENT);
  }
}

void hec_eplb_decide(hec_policy_run *run) {
  eplb_state *state = run->state;
  if (!hec_policy_due(run, &state->last))
    return;
  uint64_t before = hec_plan_digest(&run->plan);
  for (int32_t layer = 0; layer < run->problem->n_layers; layer++) {
    hec_history_sum(&run->history, layer, run->policy->window, state->load);
    hec_eplb_place(&state->core, state->load);
    list_ranks(state);
    write_layer(state, &run->plan, layer);
    run->units += state->core.units;
  }
  run->plan.version += hec_plan_digest(&run->plan) != before;
  run->planned = true;
}
