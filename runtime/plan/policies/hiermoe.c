/* HierMoE (arXiv 2508.09591; reference policies.md 3.12), its expert swaps. No replicas. Every `period` iterations
 * pairs of experts change places while a hierarchical cost model says that it pays.
 *
 *   A = busiest rank's assignments,  B = busiest node's, of W in all,  k experts a token, N nodes
 *   C = W/k (1 - (1 - B/W)^k)        tokens with an expert on that node, as if chosen independently
 *   time = A (3 computations + 4 rows over a port) + C (1 - 1/N) (4 rows over the node's network)
 *                                                             (forward only: 1 and 2; one node: without C)
 *   round: of all pairs (expert of the busiest rank, expert of another rank with less load) the one with the least time;
 *          done while that is less than now; ties to the lower experts, the busiest rank's first
 *
 * The rule is inferred. Sources are taken as alike, since histories have totals by expert. C is the mean over tokens,
 * since they have no sets. Load: the last two records, period 25, as smartmoe.c: the paper's are not known here. What
 * moves takes its optimizer state along and is not weighed against the gain: the simulator charges it. O(E^2 R) per
 * round, at most E rounds per layer.
 *
 * The other half of the system is its schedule (runtime/program/schedules/hiermoe.c), simulated and executed in
 * replays. It sends a token once to a node that has several of its experts, and chooses where to. Under another
 * schedule every assignment's row travels, and C is too small. Counts by (source, expert) do not say which tokens share
 * a node: sets are inferred as independent choices given the counts (token_sets.h). Real routers correlate, so a real
 * gain may be larger or smaller. */
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/rates.h"

#include <string.h>

typedef struct {
  int64_t last;
  double rank_s, node_s; /* seconds per assignment on the busiest rank, per row of the busiest node */
  double total;          /* assignments */
  uint64_t *load;        /* [n_experts] */
  uint64_t *rank_load;   /* [n_ranks] */
  uint64_t *node_load;   /* [n_nodes] scratch */
} hiermoe;

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  hec_rates rates = hec_rates_of(problem);
  double rows = (problem->train ? 4 : 2) * problem->bytes.token, nodes = problem->n_nodes;
  hiermoe *state = HEC_NEW(run->arena, hiermoe, 1);
  *state = (hiermoe){
      .last = -1,
      .rank_s = (problem->train ? 3 : 1) * rates.assignment_s + rows / rates.port,
      .node_s = rows * (nodes - 1) / nodes / rates.node,
      .load = HEC_NEW(run->arena, uint64_t, problem->n_experts),
      .rank_load = HEC_NEW(run->arena, uint64_t, problem->n_ranks),
      .node_load = HEC_NEW(run->arena, uint64_t, problem->n_nodes),
  };
  run->state = state;
  hec_policy_keep(run, &state->last, sizeof state->last);
  hec_plan_set_contiguous(&run->plan, problem);
}

/* Tokens of which one assignment or more is among the node's `load`; one expert a token: the load. */
static double rows_of(const hiermoe *state, const hec_problem *problem, double load) {
  double share = state->total > 0 ? load / state->total : 0, none = 1;
  for (int32_t i = 0; i < problem->top_k; i++)
    none *= 1 - share;
  return state->total / problem->top_k * (1 - none);
}

/* The model's time, in units that all placements of the layer share. */
static double estimate(hiermoe *state, const hec_problem *problem) {
  uint64_t rank = 0, node = 0;
  memset(state->node_load, 0, (size_t)problem->n_nodes * sizeof *state->node_load);
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    uint64_t *here = &state->node_load[hec_problem_node(problem, r)];
    *here += state->rank_load[r];
    rank = state->rank_load[r] > rank ? state->rank_load[r] : rank;
    node = *here > node ? *here : node;
  }
  return state->rank_s * (double)rank + state->node_s * rows_of(state, problem, (double)node);
}

static void shift(hiermoe *state, int32_t from, int32_t to, uint64_t load) {
  state->rank_load[from] -= load;
  state->rank_load[to] += load;
}

/* The best swap of a round; false: none is better than *time. */
static bool best_swap(hec_policy_run *run, int32_t layer, double *time, int32_t *best_a, int32_t *best_b) {
  hiermoe *state = run->state;
  const hec_plan *plan = &run->plan;
  bool found = false;
  int32_t hot = 0;
  for (int32_t r = 1; r < run->problem->n_ranks; r++)
    hot = state->rank_load[r] > state->rank_load[hot] ? r : hot;
  for (int32_t a = 0; a < plan->n_experts; a++)
    for (int32_t b = 0; hec_plan_home(plan, layer, a) == hot && b < plan->n_experts; b++) {
      if (hec_plan_home(plan, layer, b) == hot || state->load[b] >= state->load[a])
        continue;
      int32_t to = hec_plan_home(plan, layer, b);
      shift(state, hot, to, state->load[a] - state->load[b]);
      double swapped = estimate(state, run->problem);
      shift(state, to, hot, state->load[a] - state->load[b]);
      run->units += (uint64_t)run->problem->n_ranks;
      if (swapped >= *time)
        continue;
      *time = swapped;
      *best_a = a;
      *best_b = b;
      found = true;
    }
  return found;
}

/* Swaps in one layer; returns whether there were any. */
static bool improve(hec_policy_run *run, int32_t layer) {
  hiermoe *state = run->state;
  hec_plan *plan = &run->plan;
  hec_history_sum(&run->history, layer, run->policy->window, state->load);
  memset(state->rank_load, 0, (size_t)run->problem->n_ranks * sizeof *state->rank_load);
  state->total = 0;
  for (int32_t e = 0; e < plan->n_experts; e++) {
    state->rank_load[hec_plan_home(plan, layer, e)] += state->load[e];
    state->total += (double)state->load[e];
  }
  double time = estimate(state, run->problem);
  int32_t rounds = 0, a, b;
  while (rounds < plan->n_experts && best_swap(run, layer, &time, &a, &b)) {
    int32_t from = hec_plan_home(plan, layer, a), to = hec_plan_home(plan, layer, b);
    shift(state, from, to, state->load[a] - state->load[b]);
    hec_plan_set_home(plan, layer, a, to);
    hec_plan_set_home(plan, layer, b, from);
    rounds++;
  }
  return rounds > 0;
}

static void decide(hec_policy_run *run) {
  hiermoe *state = run->state;
  if (!hec_policy_due(run, &state->last))
    return;
  bool moved = false;
  for (int32_t layer = 0; layer < run->problem->n_layers; layer++) {
    run->units += (uint64_t)run->problem->n_experts;
    moved = improve(run, layer) || moved;
  }
  run->plan.version += moved;
  run->planned = true;
}

static const hec_option options[] = {
    HEC_POLICY_PERIOD(.source = "SmartMoE's here"), HEC_POLICY_WINDOW(.source = "SmartMoE's here"), {0}};

const hec_policy hec_policy_hiermoe = {
    .name = "hiermoe",
    .fills = {.shares = 1},
    .summary =
        "Pairs of experts change places by a cost model of nodes and ranks. Its schedule sends a token once to a node.",
    .source = "HierMoE, arXiv 2508.09591",
    .known = HEC_KNOWN_PERIODIC,
    .schedule = "hiermoe",
    .dispatch = &hec_dispatch_group,
    .whole = true,
    .window = 2,
    .period = 25,
    .rearranges = true,
    .options = options,
    .init = init,
    .decide = decide,
};
