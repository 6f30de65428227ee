/* Expert parallelism, and the reference rows that stand on its placement. Expert e is on rank floor(e * ep / E) of
 * every expert-parallel group. Gradients of the groups' copies are all-reduced. Nothing ever moves.
 *
 *   ep           static expert parallelism, dropless (GShard; DeepSpeed-MoE, arXiv 2201.05596; reference policies.md 3.1)
 *   ep-balanced  a gate that is made to be fair. What everybody compares with, and easy to get wrong (reference policies.md
 *                4.13: overrides that left half of the ranks idle). The assignments of a group are dealt like cards, source
 *                after source without starting again: the i-th goes to rank i mod ep of the group; the j-th of a rank to
 *                its expert j mod (experts of the rank). So the ranks of a group differ by at most one, and so do the
 *                experts of a rank; every source keeps its own total. In closed form: O(experts) per source
 *   ideal        the lower bound: what no placement and no schedule can beat. Here only its memory and the loads that
 *                it assumes. Its schedule lowers the mean loads to one perfect GEMM a rank, cut as the devices can
 *                best share them. It has no token, parameter or migration traffic and no planning
 *   ep-capacity  a capacity (GShard, arXiv 2006.16668; DeepSpeed-MoE, deepspeed/moe/sharded_moe.py): of what a source sends
 *                to an expert c = max(ceil(tokens * k * factor / E), least) assignments are kept, the rest is dropped:
 *                computed nowhere, missing in the layer's result. The factor is an option or the model's capacity_factor,
 *                DeepSpeed's default 1 where the model says dropless; k in the formula as there (twice the factor for
 *                top-2). It buys time with quality, so it is never the fastest row and is not held to `ideal`; what it drops
 *                is reported beside it. DeepSpeed pads short experts to c rows. Not here: rows are those that are kept
 *                (a program has no rows without an assignment). So there the exchange is up to c E / (tokens k) times
 *                as large */
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

#include <string.h>

static void init(hec_policy_run *run) {
  hec_plan_set_contiguous(&run->plan, run->problem);
}

/* ---- Dealt like cards ---- */

static void start_balance(hec_policy_run *run) {
  init(run);
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

static void balance(hec_policy_run *run, hec_load *load) {
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

/* ---- Capacity ---- */

enum { FACTOR, MIN };

static const hec_option capacity_options[] = {
    HEC_POLICY_REAL("factor", FACTOR, 0.001, 1e6, .help = "capacity factor", .initial = "the model's, else 1",
                    .source = "DeepSpeed-MoE: 1"),
    HEC_POLICY_WHOLE("min", MIN, 1, 1e9, .help = "capacity at least", .source = "DeepSpeed's min_capacity"),
    {0}};

static void start_capacity(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  double model = problem->moe->capacity_factor > 0 ? problem->moe->capacity_factor : 1, own = run->policy->own[FACTOR];
  double factor = own > 0 ? own : model;
  uint32_t min = (uint32_t)run->policy->own[MIN];
  double exact = (double)problem->tokens * problem->top_k * factor / problem->n_experts;
  uint32_t *capacity = HEC_NEW(run->arena, uint32_t, 1);
  *capacity = exact < (double)UINT32_MAX ? (uint32_t)exact : UINT32_MAX;
  *capacity += (double)*capacity < exact && *capacity < UINT32_MAX;
  *capacity = *capacity < min ? min : *capacity;
  run->state = capacity;
  hec_plan_set_contiguous(&run->plan, problem);
}

static void drop(hec_policy_run *run, hec_load *load) {
  const uint32_t capacity = *(const uint32_t *)run->state;
  for (int32_t layer = 0; layer < load->n_layers; layer++) {
    run->n_offered += hec_load_layer_total(load, layer);
    run->n_dropped += hec_load_cap(load, layer, capacity);
  }
}

/* ---- Rows ---- */

#define EP .known = HEC_KNOWN_STATIC, .dispatch = &hec_dispatch_group, .window = 1

const hec_policy hec_policy_ep = {
    EP,
    .name = "ep",
    .fills = {.shares = 1},
    .tried = true,
    .summary = "Experts stand on the ranks in the order of their numbers and never move. Tokens travel to them.",
    .source = "DeepSpeed-MoE, arXiv 2201.05596",
    .schedule = "serial",
    .whole = true,
    .shards = true,
    .init = init,
    .baseline = true,
};

const hec_policy hec_policy_ep_balanced = {
    EP,
    .name = "ep-balanced",
    .fills = {.shares = 1},
    .summary = "Experts stand as in ep. Every expert gets the mean load, as in benchmarks with forced balance.",
    .source = "force-balanced reference row",
    .schedule = "serial",
    .whole = true,
    .shards = true,
    .init = start_balance,
    .rewrite = balance,
    .reference = true,
};

const hec_policy hec_policy_ep_capacity = {
    EP,
    .name = "ep-capacity",
    .fills = {.shares = 1},
    .summary = "Experts stand as in ep. A source drops what exceeds an expert's capacity.",
    .source = "GShard, arXiv 2006.16668; DeepSpeed-MoE, arXiv 2201.05596",
    .schedule = "serial",
    .init = start_capacity,
    .rewrite = drop,
    .reference = true,
    .drops = true,
    .options = capacity_options,
    .own = {[MIN] = 8},
};

const hec_policy hec_policy_ideal = {
    EP,
    .name = "ideal",
    .fills = {.shares = 1},
    .summary = "Every rank computes the mean work and nothing travels. No policy that computes all tokens is faster.",
    .source = "reference row",
    .schedule = "ideal",
    .only_schedule = "ideal",
    .init = start_balance,
    .rewrite = balance,
    .reference = true,
};
