/* EPLB (github.com/deepseek-ai/EPLB; the placement itself is eplb_core.c): replicated experts on slots, placed afresh every
 * `period` iterations. Its rows:
 *
 *   eplb              hierarchical: experts stay on their node, replicas are made inside it; one redundant slot per rank, as
 *                     in DeepSeek-V3's serving (arXiv 2412.19437, section 3.4)
 *   eplb-global       one pool of slots, nodes ignored
 *   eplb-no-replicas  no redundant slots. Where ranks do not divide the experts the slots are rounded up to what
 *                     expert parallelism needs. Those left over hold replicas, so the row is not `whole`
 *   eplb-match        slots stay where they can (reference policies.md 4.1, "EPLB+match"; issue 25 of EPLB,
 *                     SwiftBalancer in vLLM PR 37656). The balance is eplb's to the last token. But whole packs change
 *                     ranks inside a node, and whole nodes their packs, such that the fewest experts move
 *                     (slot_match.c)
 *   eplb-online       migration is rate-limited, as TensorRT-LLM's wide expert parallelism does it online (its tech blog 4;
 *                     reference policies.md 4.12): a decision is carried out one layer an iteration, beside the iteration
 *                     until that layer computes. Records that are more than an iteration apart still count as one. There
 *                     weights come from host memory, and it serves; here they come from the nearest rank that has them and,
 *                     in training, bring their optimizer state along
 *
 * Slots per rank: what expert parallelism needs, ceil(E / ep), and the redundant ones, or `slots`; at least ceil(E / R), at
 * most E. Window and period are vLLM's defaults (1000 steps, every 3000) scaled to the length of recorded traces. They
 * are long against the drift that must average out, short against the hundreds of records.
 *
 *   home(e)   the present home if it still has a slot of e, else the rank of e's first slot
 *   copies    every other slot, resident (weights, gradients and optimizer state: reference policies.md 4.1)
 *
 * The load is the window's sum, which orders like its mean. A decision sets the target of every layer. Layers get there
 * all at once, or some in each iteration, in turn. So a decision that comes before the last is through does not start
 * with the same ones again. */
#include "runtime/plan/planners/eplb_core.h"
#include "runtime/plan/planners/slot_match.h"
#include "runtime/plan/planners/slots.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

#include <string.h>

enum { REDUNDANT, GROUPS, LAYERS };

/* How the rows differ. */
typedef struct {
  bool global; /* one pool of slots */
  bool match;  /* packs go to the ranks that hold most of them */
} eplb_form;

typedef struct {
  int64_t last;
  hec_eplb core;
  hec_slot_match match;
  uint8_t *held;     /* [n_ranks * n_experts] of the layer at work */
  int32_t *target;   /* [n_layers * n_slots] */
  int32_t n_waiting; /* layers that have not got to their target */
  int32_t next;      /* the first of them */
  uint64_t *load;    /* [n_experts] */
  hec_slots slots;
} eplb_state;

/* Groups of experts that stay together on a node. 0: the global form, as where nodes are not equally filled or do not
 * divide the groups. Where the groups do not divide the experts, it is the next multiple of the nodes that does: step
 * 1 needs something to pack. With one group per node it would freeze every expert on its node. As many as nodes
 * if there is none. */
static int32_t n_groups(const hec_problem *problem, int32_t wanted) {
  int32_t nodes = problem->n_nodes;
  if (nodes == 1)
    return 1; /* one node: both forms are the same */
  if (problem->n_ranks != nodes * problem->cluster->devices_per_node || problem->n_experts % nodes != 0)
    return 0;
  if (problem->n_experts % wanted == 0)
    return wanted % nodes == 0 ? wanted : 0;
  int32_t groups = nodes;
  while (groups < wanted || problem->n_experts % groups != 0) {
    if (groups >= problem->n_experts)
      return nodes;
    groups += nodes;
  }
  return groups;
}

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  const eplb_form *form = run->policy->form;
  run->plan.slots = hec_slots_per_rank(run, REDUNDANT);
  int32_t n_slots = run->plan.slots * problem->n_ranks;
  int32_t groups = form->global ? 0 : n_groups(problem, (int32_t)run->policy->own[GROUPS]);
  int32_t nodes = groups > 0 ? problem->n_nodes : 1;
  eplb_state *state = HEC_NEW(run->arena, eplb_state, 1);
  *state = (eplb_state){
      .last = -1,
      .core = hec_eplb_new(run->arena, problem->n_experts, n_slots, groups > 0 ? groups : 1, nodes, problem->n_ranks),
      .load = HEC_NEW(run->arena, uint64_t, problem->n_experts),
      .slots = hec_slots_new(run->arena, problem->n_experts, problem->n_ranks, run->plan.slots),
      .target = HEC_NEW(run->arena, int32_t, (size_t)problem->n_layers * (size_t)n_slots),
  };
  if (form->match) {
    state->match = hec_slot_match_new(run->arena, problem->n_ranks, nodes, problem->cluster->devices_per_node,
                                      problem->n_experts, run->plan.slots);
    state->held = HEC_NEW(run->arena, uint8_t, (size_t)problem->n_ranks * (size_t)problem->n_experts);
  }
  run->state = state;
  hec_policy_keep(run, &state->last, sizeof state->last);
  hec_policy_keep(run, &state->n_waiting, sizeof state->n_waiting);
  hec_policy_keep(run, &state->next, sizeof state->next);
  hec_policy_keep(run, state->target, (size_t)problem->n_layers * (size_t)n_slots * sizeof *state->target);
  hec_plan_set_contiguous(&run->plan, problem);
}

static void read_held(const eplb_state *state, const hec_plan *plan, int32_t layer) {
  memset(state->held, 0, (size_t)plan->n_ranks * (size_t)plan->n_experts);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    hec_copies copies = hec_plan_copies(plan, layer, e);
    state->held[(size_t)hec_plan_home(plan, layer, e) * (size_t)plan->n_experts + (size_t)e] = 1;
    for (int32_t i = 0; i < copies.n; i++)
      state->held[(size_t)copies.rank[i] * (size_t)plan->n_experts + (size_t)e] = 1;
  }
}

static int32_t *target_of(const eplb_state *state, int32_t layer) {
  return state->target + (size_t)layer * (size_t)state->core.n_slots;
}

static void set_targets(hec_policy_run *run, eplb_state *state) {
  const eplb_form *form = run->policy->form;
  for (int32_t layer = 0; layer < run->problem->n_layers; layer++) {
    int32_t *slot = target_of(state, layer);
    hec_history_sum(&run->history, layer, run->policy->window, state->load);
    hec_eplb_place(&state->core, state->load);
    memcpy(slot, state->core.slot, (size_t)state->core.n_slots * sizeof *slot);
    run->units += state->core.units;
    if (!form->match)
      continue;
    read_held(state, &run->plan, layer);
    run->units += hec_slot_match_place(&state->match, state->held, slot);
  }
  state->n_waiting = run->problem->n_layers;
  run->planned = true;
}

static void decide(hec_policy_run *run) {
  eplb_state *state = run->state;
  if (hec_policy_due(run, &state->last))
    set_targets(run, state);
  if (state->n_waiting == 0 || run->micro_batch != 0)
    return;
  uint64_t before = hec_plan_digest(&run->plan);
  int32_t n = (int32_t)run->policy->own[LAYERS];
  for (n = n > 0 && n < state->n_waiting ? n : state->n_waiting; n > 0; n--, state->n_waiting--) {
    hec_slots_write(&state->slots, &run->plan, state->next, target_of(state, state->next), run->plan.slots);
    state->next = (state->next + 1) % run->problem->n_layers;
  }
  run->plan.version += hec_plan_digest(&run->plan) != before;
}

/* ---- Rows ---- */

#define OPTIONS                                                                                                        \
  HEC_POLICY_PERIOD(.source = "vLLM's 3000, scaled to recorded traces"),                                               \
      HEC_POLICY_WINDOW(.source = "vLLM's 1000, scaled to recorded traces"),                                           \
      HEC_POLICY_SLOTS(.initial = "ceil(experts / ep) + redundant"),                                                   \
      HEC_POLICY_WHOLE("redundant", REDUNDANT, 0, 65536, .help = "slots of a rank for replicas",                       \
                       .source = "DeepSeek-V3's serving: 1")
#define OPTIONS_OF_NODES                                                                                               \
  OPTIONS, HEC_POLICY_WHOLE("groups", GROUPS, 1, 65536, .help = "of experts that stay together on a node",             \
                            .source = "DeepSeek-V3's router")

static const hec_option options[] = {OPTIONS_OF_NODES, {0}}, options_global[] = {OPTIONS, {0}};
static const hec_option options_online[] = {
    OPTIONS_OF_NODES,
    HEC_POLICY_WHOLE("layers", LAYERS, 1, 65536, .help = "rearranged per iteration",
                     .source = "layer_updates_per_iter of its guide for DeepSeek-R1"),
    {0}};
static const eplb_form by_node = {0}, global = {.global = true}, matched = {.match = true};

#define EPLB                                                                                                           \
  .known = HEC_KNOWN_PERIODIC, .schedule = "serial", .dispatch = &hec_dispatch_round_robin, .all_ranks = true,         \
  .window = 10, .period = 100, .rearranges = true, .init = init, .decide = decide

const hec_policy hec_policy_eplb = {
    EPLB,
    .name = "eplb",
    .fills = {.shares = 1, .more = 1},
    .tried = true,
    .summary = "From time to time, hot experts get copies in spare slots and all are placed anew. Groups of experts "
               "stay inside a node.",
    .source = "EPLB, github.com/deepseek-ai/EPLB; DeepSeek-V3, arXiv 2412.19437",
    .options = options,
    .own = {[REDUNDANT] = 1, [GROUPS] = 8},
    .form = &by_node,
};

const hec_policy hec_policy_eplb_global = {
    EPLB,
    .name = "eplb-global",
    .fills = {.shares = 1, .more = 1},
    .tried = true,
    .summary = "As eplb, but experts are placed over all ranks. Nodes play no part.",
    .source = "EPLB, github.com/deepseek-ai/EPLB; DeepSeek-V3, arXiv 2412.19437",
    .options = options_global,
    .own = {[REDUNDANT] = 1},
    .form = &global,
};

const hec_policy hec_policy_eplb_no_replicas = {
    EPLB,
    .name = "eplb-no-replicas",
    .fills = {.shares = 1},
    .tried = true,
    .summary = "As eplb, without spare slots. Experts only change ranks.",
    .source = "EPLB, github.com/deepseek-ai/EPLB; DeepSeek-V3, arXiv 2412.19437",
    .options = options,
    .own = {[GROUPS] = 8},
    .form = &by_node,
};

const hec_policy hec_policy_eplb_match = {
    EPLB,
    .name = "eplb-match",
    .fills = {.shares = 1, .more = 1},
    .tried = true,
    .summary = "As eplb, with the same balance. Of such placements it takes the one that moves fewest experts.",
    .source = "EPLB, github.com/deepseek-ai/EPLB, issue 25",
    .options = options,
    .own = {[REDUNDANT] = 1, [GROUPS] = 8},
    .form = &matched,
};

const hec_policy hec_policy_eplb_online = {
    EPLB,
    .name = "eplb-online",
    .fills = {.shares = 1, .more = 1},
    .summary = "As eplb, but one layer moves in an iteration, beside computing. Weights come from other ranks, not "
               "from host memory.",
    .source = "TensorRT-LLM, tech blog 4; EPLB, github.com/deepseek-ai/EPLB",
    .migrates_beside = true,
    .options = options_online,
    .own = {[REDUNDANT] = 1, [GROUPS] = 8, [LAYERS] = 1},
    .form = &by_node,
};
