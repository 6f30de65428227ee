/* Pro-Prophet (arXiv 2411.10003; Prophet, CLUSTER 2023; reference policies.md 3.9): copies of hot experts on part of
 * the ranks. They are planned for the next iteration from the present one, while it runs. Homes and optimizer state
 * never move; parameters go out and gradients come back. The search and its model are in partial_shadow.c. Here are
 * its constants, from the problem's cluster. As published there is one bandwidth B for everything, a rank's share of
 * its node's network:
 *
 *   exchange_s            a row over B; compute_s: one forward on the slowest device
 *   transfer_s, gradient_s  bytes of an expert over ranks * B
 *   window_s              forward of what is not experts
 *
 * The last record stands for the previous iteration. As many experts as fit into memory (inferred; the paper names no
 * limit). Copies are guests, kept until backward. The paper's scheduler hides the transfers of a block under the experts
 * of the one before it too. Here they run under attention and its backward only, while the model counts both. */
#include "runtime/plan/planners/fssdp.h"
#include "runtime/plan/planners/partial_shadow.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/rates.h"

typedef struct {
  hec_partial_shadow shadow;
  hec_partial_cost cost;
  int32_t max;
  uint64_t *sent; /* [n_ranks * n_experts] */
} prophet;

static hec_partial_cost cost_of(const hec_problem *problem) {
  hec_rates rates = hec_rates_of(problem);
  double all = problem->n_ranks * rates.rank;
  return (hec_partial_cost){
      .exchange_s = problem->bytes.token / rates.token_rank,
      .compute_s = rates.assignment_s,
      .transfer_s = problem->bytes.expert_param / all,
      .gradient_s = problem->bytes.expert_grad / all,
      .train = problem->train,
  };
}

enum { EXCLUDED, BALANCED };

static const hec_option options[] = {
    HEC_POLICY_M(),
    HEC_POLICY_WHOLE("excluded", EXCLUDED, 0, 65536, .help = "ranks that get no copy of an expert (n)",
                     .initial = "the best of 0, 1/4, 1/2 and 3/4 of the ranks", .source = "this project"),
    HEC_POLICY_WHOLE("balanced", BALANCED, 1, 1e6,
                     .help = "ends where max - min is below a mean expert's load over this (1/alpha)",
                     .source = "this project"),
    {0}};

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  prophet *state = HEC_NEW(run->arena, prophet, 1);
  *state = (prophet){
      .shadow = hec_partial_shadow_new(run->arena, problem->n_ranks, problem->n_experts),
      .cost = cost_of(problem),
      .max = hec_fssdp_memory_capacity(problem, false),
      .sent = HEC_NEW(run->arena, uint64_t, (size_t)problem->n_ranks * (size_t)problem->n_experts),
  };
  state->shadow.excluded = (int32_t)run->policy->own[EXCLUDED];
  state->shadow.balanced = (int32_t)run->policy->own[BALANCED];
  run->state = state;
  hec_plan_set_contiguous(&run->plan, problem);
}

static void decide(hec_policy_run *run) {
  prophet *state = run->state;
  hec_partial_shadow *shadow = &state->shadow;
  hec_plan *plan = &run->plan;
  if (hec_history_length(&run->history) == 0)
    return;
  hec_plan_set_contiguous(plan, run->problem);
  for (int32_t layer = 0; layer < plan->n_layers; layer++) {
    const int32_t *home = plan->home + (size_t)layer * (size_t)plan->n_experts;
    hec_history_sum_sources(&run->history, layer, 1, state->sent);
    state->cost.window_s = hec_problem_window_s(run->problem, layer);
    hec_partial_shadow_choose(shadow, &state->cost, state->sent, home, state->max);
    for (int32_t k = 0; k < shadow->n_chosen; k++)
      for (int32_t i = 0; i < shadow->n_receivers; i++)
        hec_plan_add_copy(plan, layer, shadow->chosen[k],
                          shadow->receiver[(size_t)k * (size_t)plan->n_ranks + (size_t)i], HEC_COPY_GUEST);
    run->units += shadow->units;
  }
  run->planned = true;
}

const hec_policy hec_policy_prophet = {
    .name = "prophet",
    .fills = {.any = true},
    .tried = true,
    .summary = "Hot experts are copied to some of the ranks. The iteration before decides which.",
    .source = "Pro-Prophet, arXiv 2411.10003",
    .known = HEC_KNOWN_LAST,
    .schedule = "hecate",
    .dispatch = &hec_dispatch_home,
    .window = 1,
    .by_source = true,
    .rearranges = true,
    .options = options,
    .own = {[EXCLUDED] = -1, [BALANCED] = 10},
    .init = init,
    .decide = decide,
};
