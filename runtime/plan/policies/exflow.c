/* ExFlow (arXiv 2401.08383; reference policies.md 2 names it and says no more): a static placement by inter-layer expert
 * affinity. Experts that tokens choose one after the other in neighbouring layers stand on one rank. Every rank has
 * equally many in every layer (of an uneven number as many as in ep).
 *
 * Decided here, where the reference is silent. First nodes are chosen, then the ranks of each node, because links
 * between nodes are the slow ones. Both are chosen by local search (affinity.c), where the paper has integer
 * programmes. The profile is the trace's transitions (problem.transitions), of whatever iterations the trace says they
 * were counted over. Without transitions there is nothing to place by: experts stay as in ep, and the row says so, as
 * moetuner does of its second problem. The placement stands before the first iteration and never changes: it is charged
 * no planning and no migration.
 *
 * Loads play no part. On skewed ones the ranks of hot experts stay hot, or gather more of them: experts that follow
 * each other tend to be hot together. Measured elsewhere (HarMoEny's ExFlow on Qwen1.5-MoE, reference traces.md
 * 2): the busiest rank at 1.85 to 2.06 of the mean, contiguous experts at 1.65 to 1.83.
 *
 * What it saves cannot show here. ExFlow leaves a token on the rank of its expert and so drops one of a layer's two
 * all-to-alls. In these programs a token goes back to its source after every layer. So only the balance of the
 * placement is charged, and no saving is invented. Meant for inference alone. O(E^2) per layer and pass of the search.
 */
#include "runtime/plan/planners/affinity.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

#include <string.h>

/* One stage: from `part` of every expert (homes, or their nodes) to a better one. */
static void place(hec_arena *arena, const hec_problem *problem, const int32_t *pool, int32_t n_parts, int32_t *part) {
  size_t bytes = (size_t)problem->n_layers * (size_t)problem->n_experts * sizeof *part;
  hec_affinity f = hec_affinity_new(arena, problem->n_layers, problem->n_experts, n_parts);
  f.flow = problem->transitions;
  f.pool = pool;
  memcpy(f.part, part, bytes);
  hec_affinity_make(&f);
  memcpy(part, f.part, bytes);
}

/* Experts of a node to its ranks, ascending, as many to each as `counts` says. */
static void deal(const hec_problem *problem, const int32_t *node, const int32_t *counts, int32_t *room, int32_t *rank) {
  for (int32_t l = 0; l < problem->n_layers; l++) {
    memcpy(room, counts, (size_t)problem->ep * sizeof *room);
    for (int32_t e = 0; e < problem->n_experts; e++) {
      int32_t r = 0, wanted = node[l * problem->n_experts + e];
      while (hec_problem_node(problem, r) != wanted || room[r] == 0)
        r++;
      room[r]--;
      rank[l * problem->n_experts + e] = r;
    }
  }
}

static double share_kept(const hec_problem *problem, const int32_t *rank, hec_arena *arena) {
  hec_affinity f = hec_affinity_new(arena, problem->n_layers, problem->n_experts, 1);
  uint64_t all = 0;
  f.flow = problem->transitions;
  memcpy(f.part, rank, (size_t)problem->n_layers * (size_t)problem->n_experts * sizeof *rank);
  size_t n = (size_t)(problem->n_layers - 1) * (size_t)problem->n_experts * (size_t)problem->n_experts;
  for (size_t i = 0; i < n; i++)
    all += problem->transitions[i];
  return all > 0 ? (double)hec_affinity_kept(&f) / (double)all : 0;
}

static void write_plan(hec_plan *plan, const hec_problem *problem, const int32_t *rank) {
  for (int32_t l = 0; l < problem->n_layers; l++)
    for (int32_t e = 0; e < problem->n_experts; e++)
      hec_plan_set_home(plan, l, e, rank[l * problem->n_experts + e]);
}

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  hec_arena *arena = run->arena;
  hec_plan_set_contiguous(&run->plan, problem);
  if (!problem->transitions) {
    hec_policy_note(run, "experts stand as in ep: the trace has no transitions between layers to place them by");
    return;
  }
  size_t cells = (size_t)problem->n_layers * (size_t)problem->n_experts;
  int32_t *rank = HEC_NEW(arena, int32_t, cells), *node = HEC_NEW(arena, int32_t, cells);
  int32_t *counts = HEC_NEW(arena, int32_t, problem->ep), *room = HEC_NEW(arena, int32_t, problem->ep);
  int32_t *pool = HEC_NEW(arena, int32_t, problem->ep);
  for (int32_t e = 0; e < problem->n_experts; e++)
    counts[hec_plan_home(&run->plan, 0, e)]++;
  for (int32_t r = 0; r < problem->ep; r++)
    pool[r] = hec_problem_node(problem, r);
  for (size_t i = 0; i < cells; i++) {
    rank[i] =
        hec_plan_home(&run->plan, (int32_t)(i / (size_t)problem->n_experts), (int32_t)(i % (size_t)problem->n_experts));
    node[i] = pool[rank[i]];
  }
  double contiguous = share_kept(problem, rank, arena);
  if (problem->n_nodes > 1) {
    place(arena, problem, NULL, problem->n_nodes, node);
    deal(problem, node, counts, room, rank);
  }
  place(arena, problem, pool, problem->ep, rank);
  write_plan(&run->plan, problem, rank);
  hec_policy_note(run,
                  "%.1f %% of the transitions stay on a rank (contiguous: %.1f %%); what that saves is not modelled "
                  "(here a token goes back to its source after every layer), what it does to the balance is",
                  100 * share_kept(problem, rank, arena), 100 * contiguous);
}

const hec_policy hec_policy_exflow = {
    .name = "exflow",
    .fills = {.shares = 1},
    .summary = "Experts that tokens choose one after the other stand on one rank and never move. What that saves is "
               "not modelled here.",
    .source = "ExFlow, arXiv 2401.08383",
    .known = HEC_KNOWN_STATIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_group,
    .window = 1,
    .whole = true,
    .rearranges = true,
    .by_transitions = true,
    .init = init,
};
