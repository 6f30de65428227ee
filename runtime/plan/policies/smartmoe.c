/* One placement per layer without replicas, greedily:
 *
 *   load[e] = sum over the window's records
 *   experts by descending load, each on the least loaded rank with a free slot
 *
 * Its rows:
 *
 *   smartmoe          SmartMoE (ATC 2023; reference policies.md 3.3): every `period` iterations; of equally loaded ranks an
 *                     expert's present one, then the lower; taken only if the busiest rank gets less than it has. Default
 *                     period 25: the artifact uses 10, but Hecate's authors measured about 25 as the best (reference
 *                     hecate.md 1)
 *   dataforest-remap  the greedy map of a profile, frozen: the remap of DataFore (ISCA 2026, Algorithm 2) as
 *                     github.com/sjqsjq/EPLB reproduces it (OEPLB/datafore_repro); ties to the lower rank, taken in any
 *                     case. There the profile is a run of its own over 1024 prompts; here it is the first full window, whose
 *                     length is ours, as eplb's. A period, of the row or of all rows, makes another map each time
 *
 * A rank has ceil(E / ep) slots. Moved experts take their optimizer state along (the plan's difference).
 * O(E log E + E * ep) per layer. */
#include "runtime/plan/planners/order.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

/* How the rows differ. */
typedef struct {
  bool frozen; /* one map, of a full window, whatever stands */
} smartmoe_form;

typedef struct {
  int64_t last;        /* iteration of the last decision */
  uint64_t *load;      /* [n_experts] */
  double *key;         /* [n_experts] */
  int32_t *order;      /* [n_experts] */
  int32_t *place;      /* [n_experts] rank */
  uint64_t *rank_load; /* [ep] */
  int32_t *n_used;     /* [ep] */
} smartmoe;

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  smartmoe *state = HEC_NEW(run->arena, smartmoe, 1);
  *state = (smartmoe){
      .last = -1,
      .load = HEC_NEW(run->arena, uint64_t, problem->n_experts),
      .key = HEC_NEW(run->arena, double, problem->n_experts),
      .order = HEC_NEW(run->arena, int32_t, problem->n_experts),
      .place = HEC_NEW(run->arena, int32_t, problem->n_experts),
      .rank_load = HEC_NEW(run->arena, uint64_t, problem->ep),
      .n_used = HEC_NEW(run->arena, int32_t, problem->ep),
  };
  run->state = state;
  hec_policy_keep(run, &state->last, sizeof state->last);
  hec_plan_set_contiguous(&run->plan, problem);
}

static void clear(smartmoe *state, int32_t ep) {
  for (int32_t r = 0; r < ep; r++) {
    state->rank_load[r] = 0;
    state->n_used[r] = 0;
  }
}

static uint64_t present_busiest(smartmoe *state, const hec_plan *plan, int32_t layer, int32_t ep) {
  clear(state, ep);
  for (int32_t e = 0; e < plan->n_experts; e++)
    state->rank_load[hec_plan_home(plan, layer, e)] += state->load[e];
  return hec_largest(state->rank_load, ep);
}

/* Ties: `preferred` (-1: none), then the lower. */
static int32_t least_loaded(const smartmoe *state, int32_t ep, int32_t slots, int32_t preferred) {
  int32_t best = preferred >= 0 && state->n_used[preferred] < slots ? preferred : -1;
  for (int32_t r = 0; r < ep; r++)
    if (state->n_used[r] < slots && (best < 0 || state->rank_load[r] < state->rank_load[best]))
      best = r;
  return best;
}

/* Fills state->place; returns the load of its busiest rank. */
static uint64_t place_greedily(smartmoe *state, const hec_plan *plan, int32_t layer, int32_t ep, bool stay) {
  int32_t n_experts = plan->n_experts, slots = (n_experts + ep - 1) / ep;
  hec_order_loads(state->load, n_experts, state->key, state->order);
  clear(state, ep);
  for (int32_t i = 0; i < n_experts; i++) {
    int32_t e = state->order[i];
    int32_t rank = least_loaded(state, ep, slots, stay ? hec_plan_home(plan, layer, e) : -1);
    state->place[e] = rank;
    state->rank_load[rank] += state->load[e];
    state->n_used[rank]++;
  }
  return hec_largest(state->rank_load, ep);
}

static void write_layer(const smartmoe *state, hec_plan *plan, int32_t layer) {
  for (int32_t e = 0; e < plan->n_experts; e++)
    hec_plan_set_home(plan, layer, e, state->place[e]);
}

static void decide(hec_policy_run *run) {
  smartmoe *state = run->state;
  const hec_problem *problem = run->problem;
  bool frozen = ((const smartmoe_form *)run->policy->form)->frozen;
  if (frozen && hec_history_length(&run->history) < run->policy->window)
    return;
  if (!hec_policy_due(run, &state->last))
    return;
  uint64_t digest = hec_plan_digest(&run->plan);
  for (int32_t layer = 0; layer < problem->n_layers; layer++) {
    hec_history_sum(&run->history, layer, run->policy->window, state->load);
    uint64_t before = present_busiest(state, &run->plan, layer, problem->ep);
    run->units += (uint64_t)problem->n_experts * (uint64_t)problem->ep;
    if (place_greedily(state, &run->plan, layer, problem->ep, !frozen) < before || frozen)
      write_layer(state, &run->plan, layer);
  }
  run->plan.version += hec_plan_digest(&run->plan) != digest;
  run->planned = true;
}

static const hec_option options[] = {
    HEC_POLICY_PERIOD(.source = "measured by Hecate's authors as the best; the artifact: 10"),
    HEC_POLICY_WINDOW(.source = "the artifact"),
    {0}};
static const hec_option options_frozen[] = {
    HEC_POLICY_PERIOD(.initial = "never again"),
    HEC_POLICY_INT("window", window, 1, 1000, .help = "records of the profile", .source = "this project: as eplb's"),
    {0}};
static const smartmoe_form periodic = {0}, frozen = {.frozen = true};

#define SMARTMOE                                                                                                       \
  .known = HEC_KNOWN_PERIODIC, .schedule = "serial", .dispatch = &hec_dispatch_group, .whole = true, .init = init,     \
  .decide = decide, .rearranges = true

const hec_policy hec_policy_smartmoe = {
    SMARTMOE,
    .name = "smartmoe",
    .fills = {.shares = 1},
    .tried = true,
    .summary = "Whole experts move between ranks from time to time, to level the loads. No expert has a copy.",
    .source = "SmartMoE, USENIX ATC 2023",
    .window = 2,
    .period = 25,
    .options = options,
    .form = &periodic,
};

const hec_policy hec_policy_dataforest_remap = {
    SMARTMOE,
    .name = "dataforest-remap",
    .fills = {.shares = 1},
    .summary = "The first records decide where whole experts stand. After that nothing moves.",
    .source = "DataFore, ISCA 2026; DataForest-Remap, github.com/sjqsjq/EPLB",
    .window = 10,
    .period = 1000000000, /* never again */
    .options = options_frozen,
    .form = &frozen,
};
