/* SYMI (arXiv 2504.19925, "SwiftMoE"; reference policies.md 3.10). Optimizer state is sharded over all ranks and never
 * moves. Weights written after an update go wherever the next placement wants them. So placing experts anew every
 * iteration moves no more than not doing it. Replicas in proportion to the last record's load (popularity.c), tokens
 * evenly over an expert's slots.
 *
 * As a plan: slice j of every expert and of its optimizer state is on rank j for ever. Slots hold guests. They are
 * gathered before forward and kept until backward, and their gradients return to the slices. Experts are placed at the
 * first micro-batch of an iteration.
 *
 * Slots: 4 * ceil(E / R), since the paper has 16 experts, 16 GPUs and 4 slots on each, as far as memory goes.
 *
 * Not expressed, and in whose favour:
 *   for SYMI      optimizer and slices lie in host memory there. So each step every rank takes its slices' gradients
 *                 and weights over PCIe, E/R (gradient + parameter bytes) per layer. That traffic is not charged.
 *                 Gradients are all-reduced among an expert's ranks there before the shards are collected; here they
 *                 go to the slices' owners at once
 *   against it    slices and optimizer state count as device memory; with several micro-batches in an iteration
 *                 weights and gradients travel in each, there once
 *   neither       tokens above a slot's capacity are dropped there; here, as everywhere, nothing is. Two slots of an
 *                 expert on one rank are filled by one transfer and summed before they are sent */
#include "runtime/plan/planners/fssdp.h"
#include "runtime/plan/planners/popularity.h"
#include "runtime/plan/planners/sliced.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

enum { REPLICAS };

static const hec_option options[] = {
    HEC_POLICY_SLOTS(.initial = "replicas ceil(experts / ranks), as far as memory goes"),
    HEC_POLICY_WHOLE("replicas", REPLICAS, 1, 65536, .help = "mean slots of an expert",
                     .source = "4 slots on each of 16 GPUs for 16 experts"),
    {0}};

typedef struct {
  int32_t slots; /* per rank */
  uint64_t *load;
  int32_t *count; /* [n_experts] */
  int32_t *slot;  /* [n_ranks * slots] */
} symi;

static int32_t slots_per_rank(const hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  int32_t slots = hec_policy_slots(run, REPLICAS);
  if (slots == HEC_AUTO) {
    int32_t room = hec_fssdp_memory_capacity(problem, false);
    slots = (int32_t)run->policy->own[REPLICAS] * hec_problem_slots(problem, 0);
    slots = slots < room ? slots : room;
  }
  return hec_problem_slots(problem, slots);
}

static void place_layer(hec_policy_run *run, int32_t layer) {
  symi *state = run->state;
  hec_plan *plan = &run->plan;
  hec_history_sum(&run->history, layer, 1, state->load);
  run->units +=
      hec_popularity_place(state->load, plan->n_experts, plan->n_ranks * state->slots, state->count, state->slot);
  hec_sliced_fill(plan, layer, state->slot, state->slots);
}

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  symi *state = HEC_NEW(run->arena, symi, 1);
  *state = (symi){.slots = slots_per_rank(run)};
  state->load = HEC_NEW(run->arena, uint64_t, problem->n_experts);
  state->count = HEC_NEW(run->arena, int32_t, problem->n_experts);
  state->slot = HEC_NEW(run->arena, int32_t, (size_t)problem->n_ranks * (size_t)state->slots);
  run->state = state;
  hec_sliced_homes(&run->plan);
  for (int32_t layer = 0; layer < problem->n_layers; layer++)
    place_layer(run, layer); /* evenly: nothing is known yet */
  run->units = 0;
}

static void decide(hec_policy_run *run) {
  if (run->micro_batch != 0 || hec_history_length(&run->history) == 0 || run->problem->n_ranks == 1)
    return;
  for (int32_t layer = 0; layer < run->problem->n_layers; layer++)
    place_layer(run, layer);
  run->planned = true;
}

const hec_policy hec_policy_symi = {
    .name = "symi",
    .fills = {.shares = 4},
    .summary = "Optimizer state is sharded and stays. Every iteration, slots are filled by the last loads; host memory "
               "and its bus are free here.",
    .source = "SYMI, arXiv 2504.19925",
    .known = HEC_KNOWN_LAST,
    .schedule = "serial",
    .dispatch = &hec_dispatch_round_robin,
    .all_ranks = true,
    .window = 1,
    .sliced = true,
    .rearranges = true,
    .options = options,
    .own = {[REPLICAS] = 4},
    .init = init,
    .decide = decide,
};
