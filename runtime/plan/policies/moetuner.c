/* MoETuner (arXiv 2502.06643; reference policies.md 2): one placement without replicas, from a profile, for the rest of
 * the run.
 *
 *   1  per layer, experts into as many groups as ranks, loads as equal as can be            (partition.c)
 *   2  groups to ranks, such that between layers the slowest pair of ranks carries least    (chain.c)
 *
 * The paper solves both as integer programmes (Gurobi, gap 2.5 %). So does this where it is handed a solver
 * (problem.solver; partition_exact.c and chain_exact.c have the programmes). Small ones are solved to the end (up to 16
 * experts on 4 ranks and 8 layers always), others within a limit of nodes. The heuristics that the references name
 * come first. They stay where the solver's answer is no better. So where a heuristic found a best placement, it does
 * not matter which of several best ones a solver finds. How good each problem's answer is, the row says: its value
 * beside a bound below which no placement is. Equally many experts on every rank in each layer are ours (partition.c);
 * they satisfy the second problem's constraint on totals.
 *
 * 2 needs to know how many tokens of expert a in layer l use expert b in layer l + 1: problem.transitions, where there
 * are any. Without them it is skipped, group i goes to rank i, and the row says so. What it minimises is the time of
 * tokens that go from expert to expert. So it means something in a forward phase alone, and only where a token stays
 * where it was computed. Here a token goes back to its source after every layer, so nothing it saves shows in the
 * times.
 *
 * The counts are of a whole recording, however long. The seconds in the row's note are of one micro-batch of this run.
 * For that, counts are scaled so that every pair of layers has tokens top_k^2 of them, as a recording of that
 * micro-batch would.
 *
 * The profile is the first 10 records (the paper: 100 steps); until then contiguous. --period places afresh. Published
 * for inference; in training what moves takes its optimizer state along, once. The paper plans offline. So planning is
 * charged for the heuristics' steps, O(E^2 passes) per layer and O(ep^3) per layer and sweep. It is not charged for
 * the solver's search. */
#include "runtime/plan/planners/chain.h"
#include "runtime/plan/planners/partition.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/rates.h"

#include <inttypes.h>
#include <string.h>

typedef struct {
  int64_t last;
  const hec_solver *solver; /* NULL: heuristics alone */
  uint64_t *load;           /* [n_experts] */
  hec_partition partition;
  hec_partition_exact partition_exact;
  int32_t *group;  /* [n_layers * n_experts] */
  int32_t *rank;   /* [n_layers * ep] rank of the group */
  hec_chain chain; /* with transitions; shares `rank` */
  hec_chain_exact chain_exact;
} moetuner;

static void start_chain(moetuner *state, const hec_problem *problem, hec_arena *arena) {
  hec_rates rates = hec_rates_of(problem);
  int32_t n = problem->ep;
  state->chain = hec_chain_new(arena, problem->n_layers, n);
  state->chain_exact = hec_chain_exact_new(arena, problem->n_layers, n, state->solver);
  state->rank = state->chain.rank;
  for (int32_t a = 0; a < n; a++)
    for (int32_t b = 0; b < n; b++) {
      bool near = hec_problem_node(problem, a) == hec_problem_node(problem, b);
      state->chain.seconds[a * n + b] =
          a == b ? 0 : problem->bytes.token / (near ? rates.token_port : rates.token_rank);
    }
}

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  const hec_solver *solver = hec_solver_ready(problem->solver);
  moetuner *state = HEC_NEW(run->arena, moetuner, 1);
  *state = (moetuner){
      .last = -1,
      .solver = solver,
      .load = HEC_NEW(run->arena, uint64_t, problem->n_experts),
      .partition = hec_partition_new(run->arena, problem->n_experts, problem->ep),
      .partition_exact = hec_partition_exact_new(run->arena, problem->n_experts, problem->ep, solver),
      .group = HEC_NEW(run->arena, int32_t, (size_t)problem->n_layers * (size_t)problem->n_experts),
  };
  run->state = state;
  hec_policy_keep(run, &state->last, sizeof state->last);
  if (problem->transitions)
    start_chain(state, problem, run->arena);
  else
    state->rank = HEC_NEW(run->arena, int32_t, (size_t)problem->n_layers * (size_t)problem->ep);
  hec_plan_set_contiguous(&run->plan, problem);
  hec_policy_note(run, "experts stood as in ep: the profile of %" PRId32 " records was not complete",
                  run->policy->window);
}

/* Tokens between groups, from those between experts. */
static void add_flows(moetuner *state, const hec_problem *problem) {
  size_t experts = (size_t)problem->n_experts, n = (size_t)problem->ep;
  memset(state->chain.flow, 0, (size_t)(problem->n_layers - 1) * n * n * sizeof *state->chain.flow);
  for (size_t l = 0; l + 1 < (size_t)problem->n_layers; l++) {
    const int32_t *group = state->group + l * experts, *next = group + experts;
    const uint64_t *count = problem->transitions + l * experts * experts;
    uint64_t *flow = state->chain.flow + l * n * n;
    for (size_t a = 0; a < experts; a++)
      for (size_t b = 0; b < experts; b++)
        flow[(size_t)group[a] * n + (size_t)next[b]] += count[a * experts + b];
  }
}

static void write_layer(const moetuner *state, hec_plan *plan, int32_t layer) {
  for (int32_t e = 0; e < plan->n_experts; e++) {
    int32_t group = state->group[layer * plan->n_experts + e];
    hec_plan_set_home(plan, layer, e, state->rank[layer * plan->n_ranks + group]);
  }
}

/* What was found, over all layers. */
typedef struct {
  uint64_t load, deviation, bound;
  int32_t n_proven, n_improved;
} grouping;

/* Experts to groups, layer by layer; group i on rank i. */
static grouping group_experts(hec_policy_run *run) {
  moetuner *state = run->state;
  const hec_problem *problem = run->problem;
  grouping all = {0};
  for (int32_t layer = 0; layer < problem->n_layers; layer++) {
    hec_history_sum(&run->history, layer, run->policy->window, state->load);
    hec_partition_make(&state->partition, state->load);
    hec_partition_verdict verdict =
        hec_partition_improve(&state->partition_exact, &state->partition, state->load, state->solver);
    memcpy(state->group + (ptrdiff_t)layer * problem->n_experts, state->partition.part,
           (size_t)problem->n_experts * sizeof *state->group);
    for (int32_t r = 0; r < problem->ep; r++) {
      state->rank[layer * problem->ep + r] = r;
      all.load += state->partition.sum[r];
    }
    run->units += state->partition.units;
    all.deviation += hec_partition_deviation(&state->partition);
    all.bound += verdict.bound;
    all.n_proven += verdict.proven;
    all.n_improved += verdict.improved;
  }
  return all;
}

/* What of the counts a micro-batch has. */
static double share_of_micro_batch(const hec_problem *problem) {
  size_t pairs = (size_t)problem->n_layers - 1, experts = (size_t)problem->n_experts;
  double counted = 0, own = (double)pairs * (double)problem->ep * problem->tokens * problem->top_k * problem->top_k;
  for (size_t i = 0; i < pairs * experts * experts; i++)
    counted += (double)problem->transitions[i];
  return counted > 0 ? own / counted : 0;
}

/* Groups to ranks. */
static void place_groups(hec_policy_run *run) {
  moetuner *state = run->state;
  const hec_problem *problem = run->problem;
  if (!problem->transitions) {
    hec_policy_note(run, "; the trace has no transitions between layers: the second problem is skipped, group i on "
                         "rank i");
    return;
  }
  double all, seconds;
  add_flows(state, problem);
  hec_chain_make(&state->chain);
  run->units += state->chain.units;
  hec_chain_verdict verdict = hec_chain_improve(&state->chain_exact, &state->chain, state->solver);
  seconds = hec_chain_seconds(&state->chain, &all);
  double per_ms = 1e3 * share_of_micro_batch(problem);
  hec_policy_note(run,
                  "; ranks: %s%s, slowest pairs %.4g ms a micro-batch, bound %.4g ms (forward, if tokens stayed where "
                  "they are: here they go back)",
                  verdict.proven ? "proven best" : "not proven", verdict.improved ? ", bettered too" : "",
                  per_ms * seconds, per_ms * verdict.bound_s);
}

static void decide(hec_policy_run *run) {
  moetuner *state = run->state;
  const hec_problem *problem = run->problem;
  bool profiled = hec_history_length(&run->history) == run->policy->window || problem->period != HEC_AUTO;
  if (!profiled || !hec_policy_due(run, &state->last))
    return;
  uint64_t before = hec_plan_digest(&run->plan);
  grouping groups = group_experts(run);
  double scaled = (double)problem->ep * (double)(groups.load > 0 ? groups.load : 1);
  run->note[0] = 0;
  hec_policy_note(run, "groups: proven best in %" PRId32 " of %" PRId32 " layers", groups.n_proven, problem->n_layers);
  if (state->solver)
    hec_policy_note(run, ", bettered by %s in %" PRId32, state->solver->name, groups.n_improved);
  else
    hec_policy_note(run, " (heuristics alone: no solver here)");
  hec_policy_note(run, ", deviation %.3f %% of the load, bound %.3f %%", 100 * (double)groups.deviation / scaled,
                  100 * (double)groups.bound / scaled);
  place_groups(run);
  for (int32_t layer = 0; layer < problem->n_layers; layer++)
    write_layer(state, &run->plan, layer);
  run->plan.version += hec_plan_digest(&run->plan) != before;
  run->planned = true;
}

static const hec_option options[] = {
    HEC_POLICY_PERIOD(.initial = "once"), HEC_POLICY_WINDOW(.source = "this project; the paper: 100 steps"), {0}};

const hec_policy hec_policy_moetuner = {
    .name = "moetuner",
    .fills = {.shares = 1},
    .summary = "One placement for the whole run: loads as equal as possible, then little traffic between layers. It "
               "plans from a profile.",
    .source = "MoETuner, arXiv 2502.06643",
    .known = HEC_KNOWN_PERIODIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_group,
    .window = 10,
    .period = INT32_MAX, /* once */
    .whole = true,
    .rearranges = true,
    .by_transitions = true,
    .options = options,
    .init = init,
    .decide = decide,
};
