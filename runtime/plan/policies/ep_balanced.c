/* Force-balanced expert parallelism: the placement of `ep`, and a gate that is made to be fair. What everybody compares
 * with, and easy to get wrong (reference policies.md 4.13: overrides that left half of the ranks idle).
 *
 * The assignments of an expert-parallel group are dealt like cards, source after source without starting again:
 *   the i-th goes to rank i mod ep of the group; the j-th of a rank goes to its expert j mod (experts of the rank)
 * so the ranks of a group differ by at most one, and so do the experts of a rank; every source keeps its own total. In
 * closed form per (source, rank, expert): O(experts) per source. */
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

#include <string.h>

static void init(hec_policy_run *run) {
  hec_plan_set_contiguous(&run->plan, run->problem);
  run->state = HEC_NEW(run->arena, uint64_t, run->problem->ep);
}

/* Of n cards dealt over `count` places starting at `turn`, those of place p. */
static uint64_t dealt(uint64_t n, uint64_t count, uint64_t p, uint64_t turn) {
  return n / count + ((p + count - turn % count) % count < n % count);
}

static int32_t first_expert(const hec_problem *problem,
                            int32_t place) { /* smallest e with floor(e * ep / E) == place */
  return (int32_t)(((int64_t)place * problem->n_experts + problem->ep - 1) / problem->ep);
}

/* `given`: [ep] cards each rank of the group has so far; `turn`: cards dealt so far. Returns the source's cards. */
static uint64_t deal_source(const hec_problem *problem, uint32_t *count, uint64_t *given, uint64_t turn) {
  uint64_t n = 0;
  for (int32_t e = 0; e < problem->n_experts; e++)
    n += count[e];
  for (int32_t place = 0; place < problem->ep; place++) {
    int32_t first = first_expert(problem, place), n_own = first_expert(problem, place + 1) - first;
    uint64_t share = dealt(n, (uint64_t)problem->ep, (uint64_t)place, turn);
    for (int32_t j = 0; j < n_own; j++)
      count[first + j] = (uint32_t)dealt(share, (uint64_t)n_own, (uint64_t)j, given[place]);
    given[place] += share;
  }
  return n;
}

static void rewrite(hec_policy_run *run, hec_load *load) {
  const hec_problem *problem = run->problem;
  uint64_t *given = run->state, turn = 0;
  for (int32_t layer = 0; layer < load->n_layers; layer++)
    for (int32_t source = 0; source < load->n_sources; source++) {
      if (source % problem->ep == 0) { /* a new group */
        memset(given, 0, (size_t)problem->ep * sizeof *given);
        turn = 0;
      }
      turn += deal_source(problem, hec_load_row(load, layer, source), given, turn);
    }
}

const hec_policy hec_policy_ep_balanced = {
    .name = "ep-balanced",
    .summary = "ep with every expert forced to the mean load",
    .source = "force-balanced reference row",
    .known = HEC_KNOWN_STATIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_group,
    .whole = true,
    .shards = true,
    .window = 1,
    .init = init,
    .rewrite = rewrite,
    .reference = true,
};
