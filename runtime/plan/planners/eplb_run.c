/* EPLB as a policy: when it decides, on what load, and how slots become homes and resident copies.
 *
 *   home(e)   the present home if it still has a slot of e, else the rank of e's first slot
 *   copies    every other slot, resident (weights, gradients and optimizer state: reference policies.md 4.1)
 *
 * The load is the window's sum, which orders like its mean. A decision sets the target of every layer; layers get
 * there all at once, or some in each iteration, in turn, so that a decision that comes before the last is through
 * does not start with the same ones again. */
#include "runtime/plan/planners/eplb_core.h"
#include "runtime/plan/planners/slot_match.h"
#include "runtime/plan/problem.h"

#include <string.h>

typedef struct {
  hec_eplb_options options;
  int64_t last;
  hec_eplb core;
  hec_slot_match match;
  uint8_t *held;        /* [n_ranks * n_experts] of the layer at work */
  int32_t *target;      /* [n_layers * n_slots] */
  int32_t n_waiting;    /* layers that have not got to their target */
  int32_t next;         /* the first of them */
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

/* Groups of experts that stay together on a node, 0: the global form. DeepSeek-V3's router has 8, and EPLB is global where
 * nodes do not divide the groups. Experts that are not in eights get the least multiple of the nodes from 8 on, so that
 * step 1 has something to pack (with one group per node it would freeze every expert on its node). */
static int32_t n_groups(const hec_problem *problem) {
  int32_t nodes = problem->n_nodes;
  if (nodes == 1)
    return 1; /* one node: both forms are the same */
  if (problem->n_ranks != nodes * problem->cluster->devices_per_node || problem->n_experts % nodes != 0)
    return 0;
  if (problem->n_experts % 8 == 0)
    return 8 % nodes == 0 ? 8 : 0;
  int32_t groups = nodes;
  while (groups < 8 || problem->n_experts % groups != 0) {
    if (groups >= problem->n_experts)
      return nodes;
    groups += nodes;
  }
  return groups;
}

void hec_eplb_init(hec_policy_run *run, hec_eplb_options options) {
  const hec_problem *problem = run->problem;
  run->plan.slots = slots_per_rank(problem, options.redundant);
  int32_t n_slots = run->plan.slots * problem->n_ranks;
  int32_t groups = options.hierarchical ? n_groups(problem) : 0, nodes = groups > 0 ? problem->n_nodes : 1;
  eplb_state *state = HEC_NEW(run->arena, eplb_state, 1);
  *state = (eplb_state){
      .options = options,
      .last = -1,
      .core = hec_eplb_new(run->arena, problem->n_experts, n_slots, groups > 0 ? groups : 1, nodes, problem->n_ranks),
      .load = HEC_NEW(run->arena, uint64_t, problem->n_experts),
      .at = HEC_NEW(run->arena, int32_t, problem->n_experts + 1),
      .filled = HEC_NEW(run->arena, int32_t, problem->n_experts),
      .rank = HEC_NEW(run->arena, int32_t, n_slots),
      .target = HEC_NEW(run->arena, int32_t, (size_t)problem->n_layers * (size_t)n_slots),
  };
  if (options.match) {
    state->match = hec_slot_match_new(run->arena, problem->n_ranks, nodes, problem->cluster->devices_per_node,
                                      problem->n_experts, run->plan.slots);
    state->held = HEC_NEW(run->arena, uint8_t, (size_t)problem->n_ranks * (size_t)problem->n_experts);
  }
  run->state = state;
  hec_plan_set_contiguous(&run->plan, problem);
}

static void read_held(const eplb_state *state, const hec_plan *plan, int32_t layer) {
  memset(state->held, 0, (size_t)plan->n_ranks * (size_t)plan->n_experts);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    const int32_t *ranks;
    const uint8_t *kinds;
    int32_t n = hec_plan_copies(plan, layer, e, &ranks, &kinds);
    state->held[(size_t)hec_plan_home(plan, layer, e) * (size_t)plan->n_experts + (size_t)e] = 1;
    for (int32_t i = 0; i < n; i++)
      state->held[(size_t)ranks[i] * (size_t)plan->n_experts + (size_t)e] = 1;
  }
}

/* Ranks of each expert's slots, ascending, as CSR. */
static void list_ranks(eplb_state *state, const int32_t *slot) {
  const hec_eplb *core = &state->core;
  int32_t per_rank = core->n_slots / core->n_ranks;
  memset(state->at, 0, (size_t)(core->n_experts + 1) * sizeof *state->at);
  for (int32_t i = 0; i < core->n_slots; i++)
    state->at[slot[i] + 1]++;
  for (int32_t e = 0; e < core->n_experts; e++) {
    state->filled[e] = state->at[e];
    state->at[e + 1] += state->at[e];
  }
  for (int32_t i = 0; i < core->n_slots; i++)
    state->rank[state->filled[slot[i]]++] = i / per_rank;
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

static int32_t *target_of(const eplb_state *state, int32_t layer) {
  return state->target + (size_t)layer * (size_t)state->core.n_slots;
}

static void set_targets(hec_policy_run *run, eplb_state *state) {
  for (int32_t layer = 0; layer < run->problem->n_layers; layer++) {
    int32_t *slot = target_of(state, layer);
    hec_history_sum(&run->history, layer, run->policy->window, state->load);
    hec_eplb_place(&state->core, state->load);
    memcpy(slot, state->core.slot, (size_t)state->core.n_slots * sizeof *slot);
    run->units += state->core.units;
    if (!state->options.match)
      continue;
    read_held(state, &run->plan, layer);
    run->units += hec_slot_match_place(&state->match, state->held, slot);
  }
  state->n_waiting = run->problem->n_layers;
  run->planned = true;
}

void hec_eplb_decide(hec_policy_run *run) {
  eplb_state *state = run->state;
  if (hec_policy_due(run, &state->last))
    set_targets(run, state);
  if (state->n_waiting == 0 || run->micro_batch != 0)
    return;
  uint64_t before = hec_plan_digest(&run->plan);
  int32_t n = state->options.layers_per_iteration;
  for (n = n > 0 && n < state->n_waiting ? n : state->n_waiting; n > 0; n--, state->n_waiting--) {
    list_ranks(state, target_of(state, state->next));
    write_layer(state, &run->plan, state->next);
    state->next = (state->next + 1) % run->problem->n_layers;
  }
  run->plan.version += hec_plan_digest(&run->plan) != before;
}
