/* LPLB (github.com/deepseek-ai/LPLB; reference policies.md 4.3): fixed replicas on a small graph. After every gate a
 * linear programme splits the tokens of each replicated expert between its two ranks, so that the busiest rank has
 * least. No weight moves for a micro-batch.
 *
 *   placement   every `period` iterations, on the window's load: experts packed onto ranks as EPLB does without replicas;
 *               of each rank's experts by descending load the first d, the i-th replicated in column i mod columns of
 *               the graph (replica_graph.c). Before the first decision: contiguous, the first d by number.
 *   programme   minimise t,  fixed[r] + sum of kept * n + sum of received * n <= t      (min_max.c, exact)
 *   tokens      a source's tokens of e go to the replica in the programme's proportion, whatever their rank (LPLB hashes
 *               the token's index): with c tokens of e on lower sources, y of the n to the replica,
 *               floor((c + own) y / n) - floor(c y / n)
 *
 * LPLB's solver is an interior point method of five steps that falls back to halves. The exact optimum here is what it
 * aims at, so this row is at best as bad. Several experts on one edge share one proportion there, one each here: the
 * same optimum. d = one per column, more where --slots gives more (LPLB's own multiples).
 *
 * Replicas are resident: gradients of a pair are all-reduced and both keep optimizer state. That costs the same
 * traffic as one owner that sends the weights back. Window and period are EPLB's here (eplb.c); experts that ranks do
 * not divide keep their contiguous ranks. All ranks solve after the all-gather of counts: on the critical path.
 * O(R E) for the sums, then min_max.c with 2 E places. */
#include "runtime/plan/planners/eplb_core.h"
#include "runtime/plan/planners/min_max.h"
#include "runtime/plan/planners/order.h"
#include "runtime/plan/planners/replica_graph.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/quota.h"

__extension__ typedef unsigned __int128 uint128;

typedef struct {
  int64_t last;
  bool packs;        /* experts can be packed: ep divides them */
  hec_eplb core;     /* if so */
  int32_t n_columns; /* of the graph; 0: no replicas */
  int32_t per_rank;  /* replicas per rank */
  int32_t *from;     /* [columns * ep] the graph */
  int32_t *replica;  /* [n_layers * n_experts] rank, -1: none */
  uint64_t *load;    /* [n_experts] */
  double *key;       /* [n_experts] */
  int32_t *order;    /* [n_experts] */
  int32_t *n_taken;  /* [ep] experts of the rank that have a replica */
  hec_min_max split;
  uint64_t *moved; /* [n_experts] tokens that the replica computes */
  uint64_t *total; /* [n_experts] */
} lplb;

/* Replicas per rank: one per column, or as many whole columns as --slots leaves; a rank's experts have one each. */
static void size_replicas(lplb *state, const hec_problem *problem) {
  int32_t base = hec_problem_share(problem), extra = state->n_columns;
  if (problem->slots != HEC_AUTO)
    extra = problem->slots > base ? problem->slots - base : 0;
  extra = extra < base ? extra : base;
  state->n_columns = extra < state->n_columns ? extra : state->n_columns;
  state->per_rank = state->n_columns > 0 ? extra / state->n_columns * state->n_columns : 0;
}

/* The rank that replicates the i-th expert of rank `home`. */
static int32_t replica_of(const lplb *state, int32_t ep, int32_t home, int32_t i) {
  const int32_t *from = state->from + (size_t)(i % state->n_columns) * (size_t)ep;
  int32_t r = 0;
  while (from[r] != home)
    r++;
  return r;
}

/* Replicas for the experts in state->order, and the layer's copies. */
static void write_layer(lplb *state, const hec_problem *problem, hec_plan *plan, int32_t layer) {
  int32_t *replica = state->replica + (size_t)layer * (size_t)problem->n_experts, ep = problem->ep;
  for (int32_t r = 0; r < ep; r++)
    state->n_taken[r] = 0;
  for (int32_t i = 0; i < problem->n_experts; i++) {
    int32_t e = state->order[i], home = hec_plan_home(plan, layer, e), taken = state->n_taken[home]++;
    replica[e] = taken < state->per_rank ? replica_of(state, ep, home, taken) : -1;
  }
  hec_plan_clear_copies(plan, layer);
  for (int32_t e = 0; e < problem->n_experts; e++)
    if (replica[e] >= 0)
      hec_plan_add_copy(plan, layer, e, replica[e], HEC_COPY_RESIDENT);
}

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  size_t experts = (size_t)problem->n_experts;
  int32_t ep = problem->ep, per_node = problem->cluster->devices_per_node;
  lplb *state = HEC_NEW(run->arena, lplb, 1);
  *state = (lplb){
      .last = -1,
      .packs = problem->n_experts % ep == 0,
      .from = HEC_NEW(run->arena, int32_t, HEC_REPLICA_COLUMNS_MAX * (size_t)ep),
      .replica = HEC_NEW(run->arena, int32_t, (size_t)problem->n_layers * experts),
      .load = HEC_NEW(run->arena, uint64_t, experts),
      .key = HEC_NEW(run->arena, double, experts),
      .order = HEC_NEW(run->arena, int32_t, experts),
      .n_taken = HEC_NEW(run->arena, int32_t, ep),
      .split = hec_min_max_new(run->arena, ep, problem->n_experts, 2 * problem->n_experts),
      .moved = HEC_NEW(run->arena, uint64_t, experts),
      .total = HEC_NEW(run->arena, uint64_t, experts),
  };
  run->state = state;
  hec_policy_keep(run, &state->last, sizeof state->last);
  hec_policy_keep(run, state->replica, (size_t)problem->n_layers * experts * sizeof *state->replica);
  if (state->packs)
    state->core = hec_eplb_new(run->arena, problem->n_experts, problem->n_experts, 1, 1, ep);
  (void)hec_replica_graph_of(ep, ep < per_node ? ep : per_node, state->from, &state->n_columns);
  size_replicas(state, problem);
  run->plan.slots = hec_problem_share(problem) + state->per_rank;
  hec_quota_reserve(&run->plan, run->arena, 2 * problem->n_experts * problem->n_ranks);
  hec_plan_set_contiguous(&run->plan, problem);
  for (int32_t e = 0; e < problem->n_experts; e++)
    state->order[e] = e;
  for (int32_t layer = 0; layer < problem->n_layers; layer++)
    write_layer(state, problem, &run->plan, layer);
}

/* A layer placed afresh; returns whether homes or replicas changed. */
static void place(hec_policy_run *run, int32_t layer) {
  lplb *state = run->state;
  const hec_problem *problem = run->problem;
  hec_history_sum(&run->history, layer, run->policy->window, state->load);
  hec_order_loads(state->load, problem->n_experts, state->key, state->order);
  if (state->packs) {
    hec_eplb_place(&state->core, state->load);
    int32_t per_rank = problem->n_experts / problem->ep;
    for (int32_t i = 0; i < problem->n_experts; i++)
      hec_plan_set_home(&run->plan, layer, state->core.slot[i], i / per_rank);
    run->units += state->core.units;
  }
  write_layer(state, problem, &run->plan, layer);
  run->units += (uint64_t)problem->n_experts;
}

static void decide(hec_policy_run *run) {
  lplb *state = run->state;
  hec_quota_clear(&run->plan);
  if (!hec_policy_due(run, &state->last))
    return;
  uint64_t before = hec_plan_digest(&run->plan);
  for (int32_t layer = 0; layer < run->problem->n_layers; layer++)
    place(run, layer);
  run->plan.version += hec_plan_digest(&run->plan) != before;
  run->planned = true;
}

/* The programme: totals by expert, and what the replicas get. */
static void solve(lplb *state, const hec_problem *problem, const hec_plan *plan, int32_t layer) {
  hec_min_max *m = &state->split;
  const int32_t *replica = state->replica + (size_t)layer * (size_t)problem->n_experts;
  for (int32_t r = 0; r < problem->ep; r++)
    m->load[r] = 0;
  int32_t filled = 0;
  for (int32_t e = 0; e < problem->n_experts; e++) {
    int32_t home = hec_plan_home(plan, layer, e);
    m->at[e] = filled;
    if (replica[e] < 0) {
      m->load[home] += state->total[e];
      continue;
    }
    m->rank[filled] = home;
    m->tokens[filled++] = state->total[e];
    m->rank[filled] = replica[e];
    m->tokens[filled++] = 0;
  }
  m->at[problem->n_experts] = filled;
  hec_min_max_solve(m);
  for (int32_t e = 0; e < problem->n_experts; e++)
    state->moved[e] = replica[e] < 0 ? 0 : m->tokens[m->at[e] + 1];
}

/* Of the first `tokens` of n tokens, of which `moved` go to the replica, those that do. */
static uint64_t share(uint64_t tokens, uint64_t moved, uint64_t n) {
  if (moved == 0 || moved == n)
    return moved == 0 ? 0 : tokens;
  if (n <= UINT32_MAX) /* the same, and a division that is not a call */
    return tokens * moved / n;
  return (uint64_t)((uint128)tokens * moved / n);
}

/* Quotas of an expert with a replica, source after source. */
static void write_expert(const lplb *state, const hec_problem *problem, const hec_load *load, hec_quota_writer *writer,
                         int32_t e) {
  int32_t home = hec_plan_home(writer->plan, writer->layer, e);
  int32_t replica = state->replica[(size_t)writer->layer * (size_t)problem->n_experts + (size_t)e];
  int32_t lower = home < replica ? home : replica, upper = home < replica ? replica : home;
  uint64_t before = 0, moved_before = 0;
  for (int32_t s = 0; s < problem->n_ranks; s++) {
    uint32_t n = hec_load_row(load, writer->layer, s)[e];
    if (n == 0)
      continue;
    uint64_t now = share(before + n, state->moved[e], state->total[e]);
    uint32_t there = (uint32_t)(now - moved_before), here = n - there;
    hec_quota_add(writer, e, (hec_quota){s, lower, lower == home ? here : there});
    hec_quota_add(writer, e, (hec_quota){s, upper, lower == home ? there : here});
    before += n;
    moved_before = now;
  }
}

static void refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  lplb *state = run->state;
  const hec_problem *problem = run->problem;
  hec_load_totals(load, layer, 0, problem->n_ranks, state->total);
  solve(state, problem, &run->plan, layer);
  run->units = (uint64_t)problem->n_ranks * (uint64_t)problem->n_experts + state->split.units;
  hec_quota_writer writer = hec_quota_begin(&run->plan, layer);
  for (int32_t e = 0; e < problem->n_experts; e++)
    if (state->replica[(size_t)layer * (size_t)problem->n_experts + (size_t)e] >= 0) {
      write_expert(state, problem, load, &writer, e);
      run->units += (uint64_t)problem->n_ranks;
    }
  hec_quota_end(&writer);
  run->planned = true;
}

static const hec_option options[] = {HEC_POLICY_PERIOD(.source = "EPLB's here"),
                                     HEC_POLICY_WINDOW(.source = "EPLB's here"),
                                     HEC_POLICY_SLOTS(.initial = "ceil(experts / ep) and one per column of the graph"),
                                     {0}};

const hec_policy hec_policy_lplb = {
    .name = "lplb",
    .fills = {.shares = 1, .more = 2},
    .tried = true,
    .summary = "Hot experts have a copy on a fixed neighbour rank. After the gate, a linear programme splits tokens "
               "over both.",
    .source = "LPLB, github.com/deepseek-ai/LPLB",
    .known = HEC_KNOWN_EXACT,
    .schedule = "serial",
    .dispatch = &hec_dispatch_quota,
    .window = 10,
    .period = 100,
    .rearranges = true,
    .options = options,
    .init = init,
    .decide = decide,
    .refine = refine,
};
