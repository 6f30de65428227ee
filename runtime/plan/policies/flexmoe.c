/* FlexMoE (SIGMOD 2023, arXiv 2304.03946; reference policies.md 3.4, the re-implementation's text): a fixed number of
 * slots per rank, edited a little at a time. Per layer, at most `rounds`; a round
 *
 *   hot   = argmax load / replicas, cold = argmin load / replicas among experts with a removable replica
 *   Expand  a free slot on a rank without `hot`: node with the fewest replicas of it, then least load, then lower id
 *   Shrink  only without a free slot: `cold` gives up its slot on the least loaded rank that has it and not `hot`. It
 *           keeps one replica per node that has any while another expert can give
 *   A round is kept if the estimated time falls. Else it is undone, and that ends it.
 *
 *   time = busiest rank's assignments * (3 computations + 4 exchanges of one), tokens spread evenly over the replicas
 *        + busiest rank's gradient all-reduces, 2 (n-1)/n bytes each over its port, or over its share of the node's
 *          network where replicas span nodes                            (forward only: 1, 2 and none)
 *
 * Slots: 3 * ceil(E / ep), as far as the memory goes, at least one to spare. For Hecate's authors measured 3.0 times
 * EP's memory for FlexMoE (hecate.md 9.6). Period 10: of 100, 50 and 10, SYMI measured 10 as the best for
 * FlexMoE (policies.md 3.10). Load: the last 5 records. Replicas are full copies (gradient and optimizer state), moved
 * beside the iteration. The cost of moving state is not weighed, since
 * one move serves many iterations: the simulator charges it. O(rounds * E * R) per layer. */
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/rates.h"

enum { ROUNDS };

static const hec_option options[] = {HEC_POLICY_PERIOD(.source = "of 10, 50 and 100 the best in SYMI's measurement"),
                                     HEC_POLICY_WINDOW(.source = "this project"),
                                     HEC_POLICY_SLOTS(.initial = "3 ceil(experts / ep), as far as memory goes",
                                                      .source = "the memory that Hecate's authors measured"),
                                     HEC_POLICY_WHOLE("rounds", ROUNDS, 0, 1e6,
                                                      .help = "max changes per layer and decision",
                                                      .source = "the re-implementation in LAER-MoE's artifact"),
                                     {0}};

typedef struct {
  int64_t last;
  int32_t slots;     /* per rank */
  uint64_t *load;    /* [n_experts] of the layer at work */
  uint8_t *held;     /* [n_experts * n_ranks] of that layer: the rank has a replica */
  int32_t *replicas; /* [n_experts] */
  int32_t *n_used;   /* [n_ranks] slots */
  int32_t records;   /* of the load: its mean is what an iteration computes */
  hec_rates rates;
  double *rank_load, *rank_reduce_s; /* [n_ranks] */
  int32_t *node_count;               /* [n_nodes] replicas of one expert per node */
} flexmoe;

static int32_t slots_per_rank(const hec_problem *problem) {
  int32_t base = hec_problem_share(problem), slots = problem->slots;
  if (slots == HEC_AUTO) {
    const hec_memory_cost *b = &problem->bytes;
    double state = (b->expert_param + b->expert_grad + b->expert_optimizer) * problem->n_layers;
    double room = problem->cluster->devices[0].memory_bytes - hec_problem_bytes_without_copies(problem);
    double extra = state > 0 ? room / state : 0;
    slots = base + (extra >= 2 * base ? 2 * base : extra > 1 ? (int32_t)extra : 1);
  }
  slots = slots < base ? base : slots;
  return slots < problem->n_experts ? slots : problem->n_experts;
}

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  flexmoe *state = HEC_NEW(run->arena, flexmoe, 1);
  *state = (flexmoe){
      .last = -1,
      .slots = run->plan.slots = slots_per_rank(problem),
      .load = HEC_NEW(run->arena, uint64_t, problem->n_experts),
      .held = HEC_NEW(run->arena, uint8_t, (size_t)problem->n_experts * (size_t)problem->n_ranks),
      .replicas = HEC_NEW(run->arena, int32_t, problem->n_experts),
      .n_used = HEC_NEW(run->arena, int32_t, problem->n_ranks),
      .rates = hec_rates_of(problem),
      .rank_load = HEC_NEW(run->arena, double, problem->n_ranks),
      .rank_reduce_s = HEC_NEW(run->arena, double, problem->n_ranks),
      .node_count = HEC_NEW(run->arena, int32_t, problem->n_nodes),
  };
  run->state = state;
  hec_policy_keep(run, &state->last, sizeof state->last);
  hec_plan_set_contiguous(&run->plan, problem);
}

static uint8_t *held_row(const flexmoe *state, const hec_problem *problem, int32_t expert) {
  return state->held + (size_t)expert * (size_t)problem->n_ranks;
}

/* Reads the layer's present replicas from the plan. */
static void read_layer(flexmoe *state, const hec_problem *problem, const hec_plan *plan, int32_t layer) {
  for (int32_t r = 0; r < problem->n_ranks; r++)
    state->n_used[r] = 0;
  for (int32_t e = 0; e < problem->n_experts; e++) {
    uint8_t *held = held_row(state, problem, e);
    state->replicas[e] = 0;
    for (int32_t r = 0; r < problem->n_ranks; r++) {
      held[r] = hec_plan_holds(plan, layer, e, r);
      state->replicas[e] += held[r];
      state->n_used[r] += held[r];
    }
  }
}

/* Seconds that the gradient all-reduce of one expert takes each of its ranks. */
static double allreduce_s(const flexmoe *state, const hec_problem *problem, int32_t expert) {
  const uint8_t *held = held_row(state, problem, expert);
  int32_t n = state->replicas[expert], node = -1;
  if (n < 2 || !problem->train)
    return 0;
  bool spans = false;
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    if (!held[r])
      continue;
    spans |= node >= 0 && hec_problem_node(problem, r) != node;
    node = hec_problem_node(problem, r);
  }
  return 2.0 * (n - 1) / n * problem->bytes.expert_grad / (spans ? state->rates.rank : state->rates.port);
}

static double largest(const double *values, int32_t n) {
  double max = 0;
  for (int32_t i = 0; i < n; i++)
    max = values[i] > max ? values[i] : max;
  return max;
}

/* Fills rank_load, every expert's tokens spread evenly over its replicas; returns the estimated seconds of the layer.
 */
static double estimate(flexmoe *state, const hec_problem *problem) {
  for (int32_t r = 0; r < problem->n_ranks; r++)
    state->rank_load[r] = state->rank_reduce_s[r] = 0;
  for (int32_t e = 0; e < problem->n_experts; e++) {
    const uint8_t *held = held_row(state, problem, e);
    double share = (double)state->load[e] / state->replicas[e], reduce_s = allreduce_s(state, problem, e);
    for (int32_t r = 0; r < problem->n_ranks; r++)
      if (held[r]) {
        state->rank_load[r] += share;
        state->rank_reduce_s[r] += reduce_s;
      }
  }
  double compute_s = (problem->train ? 3 : 1) * state->rates.assignment_s;
  double exchange_s = (problem->train ? 4 : 2) * problem->bytes.token / state->rates.token_rank;
  return largest(state->rank_load, problem->n_ranks) / state->records * (compute_s + exchange_s) +
         largest(state->rank_reduce_s, problem->n_ranks);
}

/* Load per replica of a against that of b, exactly. */
static bool hotter(const flexmoe *state, int32_t a, int32_t b) {
  return state->load[a] * (uint64_t)state->replicas[b] > state->load[b] * (uint64_t)state->replicas[a];
}

static int32_t hottest(const flexmoe *state, const hec_problem *problem) {
  int32_t hot = 0;
  for (int32_t e = 1; e < problem->n_experts; e++)
    if (hotter(state, e, hot))
      hot = e;
  return hot;
}

static void count_nodes(flexmoe *state, const hec_problem *problem, int32_t expert) {
  const uint8_t *held = held_row(state, problem, expert);
  for (int32_t n = 0; n < problem->n_nodes; n++)
    state->node_count[n] = 0;
  for (int32_t r = 0; r < problem->n_ranks; r++)
    state->node_count[hec_problem_node(problem, r)] += held[r];
}

/* Expand: the rank whose free slot gets `hot`; -1 if there is none. */
static int32_t free_rank(flexmoe *state, const hec_problem *problem, int32_t hot) {
  const uint8_t *held = held_row(state, problem, hot);
  int32_t best = -1;
  count_nodes(state, problem, hot);
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    if (held[r] || state->n_used[r] >= state->slots)
      continue;
    int32_t here = state->node_count[hec_problem_node(problem, r)];
    int32_t there = best < 0 ? 0 : state->node_count[hec_problem_node(problem, best)];
    if (best < 0 || here < there || (here == there && state->rank_load[r] < state->rank_load[best]))
      best = r;
  }
  return best;
}

/* Shrink: the least loaded rank that has a removable replica of `cold` and no `hot`; -1 if there is none. With `keep` a
 * node's only replica is not removable. */
static int32_t giving_rank(flexmoe *state, const hec_problem *problem, int32_t hot, int32_t cold, bool keep) {
  const uint8_t *hot_held = held_row(state, problem, hot), *held = held_row(state, problem, cold);
  int32_t best = -1;
  if (cold == hot || state->replicas[cold] < 2)
    return -1;
  count_nodes(state, problem, cold);
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    if (!held[r] || hot_held[r] || (keep && state->node_count[hec_problem_node(problem, r)] < 2))
      continue;
    if (best < 0 || state->rank_load[r] < state->rank_load[best])
      best = r;
  }
  return best;
}

/* The coldest expert that can give a slot to `hot`; its rank in *rank. -1: none. */
static int32_t coldest(flexmoe *state, const hec_problem *problem, int32_t hot, bool keep, int32_t *rank) {
  int32_t cold = -1;
  for (int32_t e = 0; e < problem->n_experts; e++) {
    if (cold >= 0 && !hotter(state, cold, e))
      continue;
    int32_t giving = giving_rank(state, problem, hot, e, keep);
    if (giving < 0)
      continue;
    cold = e;
    *rank = giving;
  }
  return cold;
}

static void set_held(flexmoe *state, const hec_problem *problem, int32_t expert, int32_t rank, bool held) {
  held_row(state, problem, expert)[rank] = held;
  state->replicas[expert] += held ? 1 : -1;
  state->n_used[rank] += held ? 1 : -1;
}

/* One round; *time is the estimate before and after. False: nothing improved, nothing changed. */
static bool improve(flexmoe *state, const hec_problem *problem, double *time) {
  int32_t hot = hottest(state, problem), cold = -1;
  int32_t rank = free_rank(state, problem, hot);
  if (rank < 0 && (cold = coldest(state, problem, hot, true, &rank)) < 0)
    cold = coldest(state, problem, hot, false, &rank);
  if (rank < 0)
    return false;
  if (cold >= 0)
    set_held(state, problem, cold, rank, false);
  set_held(state, problem, hot, rank, true);
  double now = estimate(state, problem);
  if (now < *time) {
    *time = now;
    return true;
  }
  set_held(state, problem, hot, rank, false);
  if (cold >= 0)
    set_held(state, problem, cold, rank, true);
  return false;
}

/* Homes stay where they are while they hold a replica, else go to the lowest rank that does: nothing moves for that. */
static void write_layer(const flexmoe *state, const hec_problem *problem, hec_plan *plan, int32_t layer) {
  hec_plan_clear_copies(plan, layer);
  for (int32_t e = 0; e < problem->n_experts; e++) {
    const uint8_t *held = held_row(state, problem, e);
    int32_t home = hec_plan_home(plan, layer, e);
    for (int32_t r = 0; !held[home]; r++)
      if (held[r])
        home = r;
    hec_plan_set_home(plan, layer, e, home);
    for (int32_t r = 0; r < problem->n_ranks; r++)
      if (held[r] && r != home)
        hec_plan_add_copy(plan, layer, e, r, HEC_COPY_RESIDENT);
  }
}

static void decide(hec_policy_run *run) {
  flexmoe *state = run->state;
  const hec_problem *problem = run->problem;
  if (!hec_policy_due(run, &state->last))
    return;
  bool changed = false;
  int32_t length = hec_history_length(&run->history);
  state->records = length < run->policy->window ? length : run->policy->window;
  for (int32_t layer = 0; layer < problem->n_layers; layer++) {
    hec_history_sum(&run->history, layer, run->policy->window, state->load);
    read_layer(state, problem, &run->plan, layer);
    double time = estimate(state, problem);
    int32_t rounds = 0;
    while (rounds < run->policy->own[ROUNDS] && improve(state, problem, &time))
      rounds++;
    run->units += (uint64_t)(rounds + 2) * (uint64_t)problem->n_experts * (uint64_t)problem->n_ranks;
    if (rounds > 0)
      write_layer(state, problem, &run->plan, layer);
    changed |= rounds > 0;
  }
  run->plan.version += changed;
  run->planned = true;
}

const hec_policy hec_policy_flexmoe = {
    .name = "flexmoe",
    .fills = {.shares = 3},
    .tried = true,
    .summary = "Hot experts get copies in reserved slots, and cold ones give theirs up. Each decision changes a few.",
    .source = "FlexMoE, arXiv 2304.03946",
    .known = HEC_KNOWN_PERIODIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_node_even,
    .all_ranks = true,
    .window = 5,
    .period = 10,
    .migrates_beside = true,
    .init = init,
    .decide = decide,
    .rearranges = true,
    .options = options,
    .own = {[ROUNDS] = 10},
};
