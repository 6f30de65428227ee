/* LAER-MoE (arXiv 2602.11686, fully sharded expert parallelism; reference hecate.md 10, policies.md 3.11). Rank j keeps
 * slice j of every expert and of its optimizer state, for ever; every rank has C slots, filled anew each micro-batch:
 *
 *   gather    C experts per rank from their slices, before forward and again before backward (they are dropped between)
 *   scatter   their gradients back to the slices: C P (N-1)/N bytes per rank, three times, whatever the plan
 *   plan      replica_layout.c, on the last 5 records by source
 *
 *   node_s, network_s   4 rows over a port, or over the node's whole network: the published model gives each source the
 *                       node's rate (forward only: 2)
 *   compute_s           3 forwards (4 with recomputation; forward only: 1) on the slowest device
 *
 * C is top-k, as in the published runs (2 of 8 experts, 4 of 16; reference 10.4). It is at least what holds every
 * expert and one to spare. It is no more than fit into memory beside the slices twice (the schedule has two layers'
 * slots in memory; inferred).
 *
 * Inferred, or other than published: two slots of one expert on one rank are gathered once (the published collective
 * sends the second too). Its solver works in a process of the host one micro-batch ahead; here the time of planning,
 * though beside the device, delays the first gather. Slices are summed and sent in the model's gradient type. */
#include "runtime/plan/planners/fssdp.h"
#include "runtime/plan/planners/replica_layout.h"
#include "runtime/plan/planners/sliced.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/rates.h"

typedef struct {
  hec_replica_layout layout;
  hec_replica_cost cost;
  uint64_t *sent; /* [n_ranks * n_experts] */
} laer;

static int32_t capacity_of(const hec_problem *problem) {
  int32_t min = hec_problem_slots(problem, 0), slots = problem->slots;
  if (slots == HEC_AUTO) {
    int32_t at_once = problem->n_layers < 2 ? problem->n_layers : 2, room = hec_fssdp_room(problem, at_once, at_once);
    slots = problem->top_k > min + 1 ? problem->top_k : min + 1;
    slots = slots < room ? slots : room;
  }
  return hec_problem_slots(problem, slots);
}

static hec_replica_cost cost_of(const hec_problem *problem) {
  hec_rates rates = hec_rates_of(problem);
  double rows = (problem->train ? 4 : 2) * problem->bytes.token;
  int32_t forwards = problem->train ? 3 + problem->moe->recompute : 1;
  return (hec_replica_cost){.node_s = rows / rates.token_port,
                            .network_s = rows / rates.token_node,
                            .compute_s = forwards * rates.assignment_s};
}

static void write_layer(hec_policy_run *run, const laer *state, int32_t layer) {
  hec_sliced_fill(&run->plan, layer, state->layout.slot, state->layout.capacity);
}

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  laer *state = HEC_NEW(run->arena, laer, 1);
  *state = (laer){
      .layout = hec_replica_layout_new(run->arena, problem->n_ranks, problem->cluster->devices_per_node,
                                       problem->n_experts, capacity_of(problem)),
      .cost = cost_of(problem),
      .sent = HEC_NEW(run->arena, uint64_t, (size_t)problem->n_ranks * (size_t)problem->n_experts),
  };
  run->state = state;
  hec_sliced_homes(&run->plan);
  run->plan.rematerialise = true;
  hec_replica_layout_even(&state->layout);
  for (int32_t layer = 0; layer < problem->n_layers; layer++)
    write_layer(run, state, layer);
}

static void decide(hec_policy_run *run) {
  laer *state = run->state;
  if (hec_history_length(&run->history) == 0 || run->problem->n_ranks == 1)
    return;
  for (int32_t layer = 0; layer < run->problem->n_layers; layer++) {
    hec_history_sum_sources(&run->history, layer, run->policy->window, state->sent);
    hec_replica_layout_choose(&state->layout, &state->cost, state->sent);
    write_layer(run, state, layer);
    run->units += state->layout.units;
  }
  run->planned = true;
}

static const hec_option options[] = {HEC_POLICY_SLOTS(.initial = "top-k, with one to spare, as far as memory goes",
                                                      .source = "2 of 8 and 4 of 16 experts"),
                                     HEC_POLICY_WINDOW(),
                                     {0}};

const hec_policy hec_policy_laer = {
    .name = "laer",
    .tried = true,
    .fills = {.any = true},
    .summary =
        "FSEP: each expert is cut over all ranks. Every micro-batch, ranks gather the experts that past loads ask for.",
    .source = "LAER-MoE, arXiv 2602.11686",
    .known = HEC_KNOWN_LAST,
    .schedule = "laer",
    .dispatch = &hec_dispatch_node_even,
    .all_ranks = true,
    .window = 5,
    .by_source = true,
    .sliced = true,
    .options = options,
    .init = init,
    .decide = decide,
};
