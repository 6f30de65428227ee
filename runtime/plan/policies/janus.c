/* Janus (SIGCOMM 2023, doi 10.1145/3603269.3604869; reference policies.md 3.8), data-centric: tokens stay and experts
 * are fetched, where that is less traffic. A machine of g ranks and T assignments a rank, E experts in all:
 *
 *   expert-centric   2 g T rows leave the machine (dispatch and combine), but for the share that is its own
 *   data-centric     E experts come in, fetched once for the whole machine, but for the share that is its own
 *   fetch if         2 g T token / (E expert) > 1            (both shares are the same)
 *
 * which is the paper's T / (4 n H E_rank) for n machines and an expert of 8 H^2 parameters [derived]. Where expert
 * parallelism stays inside a machine no rank shares with another and g = 1. Backward repeats it with gradients: the
 * ratio is the same. MoE layers are alike, so all fetch or none does; no load is looked at.
 *
 * Homes as in expert parallelism, optimizer there only; every other rank has guests. That a machine fetches an expert
 * once, shares it, and adds up its gradients before they leave is the collective `two_level`. It is taken where it is
 * the cheapest. Fetched before the gate, so every expert, also those that no token wants. The cache for backward is host
 * memory there; here guests stay on the device if they fit, else they are fetched again. Fetches are whole layers, not
 * the paper's pipeline of single experts with limited credit, so memory is that of a whole layer. */
#include "runtime/plan/planners/fssdp.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

static bool fetches(const hec_problem *problem) {
  int32_t per_node = problem->cluster->devices_per_node, machine = problem->ep > per_node ? per_node : 1;
  double rows = 2.0 * machine * problem->tokens * problem->top_k * problem->bytes.token;
  return rows > problem->n_experts * problem->bytes.expert_param;
}

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  hec_plan *plan = &run->plan;
  hec_plan_set_contiguous(plan, problem);
  if (!fetches(problem))
    return;
  plan->rematerialise =
      hec_fssdp_memory_capacity(problem, false) < problem->n_experts - problem->n_experts / problem->ep;
  for (int32_t layer = 0; layer < plan->n_layers; layer++)
    for (int32_t e = 0; e < plan->n_experts; e++)
      hec_plan_add_everywhere(plan, layer, e);
}

const hec_policy hec_policy_janus = {
    .name = "janus",
    .fills = {.any = true},
    .tried = true,
    .summary = "All experts are fetched to the tokens if that is less traffic. Else tokens travel as in ep.",
    .source = "Janus, SIGCOMM 2023",
    .known = HEC_KNOWN_STATIC,
    .schedule = "hecate",
    .dispatch = &hec_dispatch_group,
    .window = 1,
    .init = init,
};
