/* Fully sharded data parallelism of the experts (ZeRO-3, arXiv 1910.02054; reference hecate.md 2). Rank j keeps slice j
 * of every expert with its optimizer state. Every rank gathers every expert of a layer, computes its own tokens and
 * returns the gradients. It drops the parameters between forward and backward (reshard after forward, FSDP's default).
 * No token moves. It runs under the schedule `hecate` because FSDP prefetches. The gathers of a layer run beside the
 * computation before it, and so do the returns of gradients. Under `serial` it would pay for an overlap it has. */
#include "runtime/plan/planners/sliced.h"
#include "runtime/plan/policy.h"

static void init(hec_policy_run *run) {
  hec_plan *plan = &run->plan;
  hec_sliced_homes(plan);
  plan->rematerialise = true;
  if (plan->n_slices == 1) /* a single rank has everything already */
    return;
  for (int32_t layer = 0; layer < plan->n_layers; layer++)
    for (int32_t e = 0; e < plan->n_experts; e++)
      hec_plan_add_everywhere(plan, layer, e);
}

const hec_policy hec_policy_fsdp = {
    .name = "fsdp",
    .tried = true,
    .fills = {.any = true},
    .summary = "Every rank gathers every expert from its shards. No token leaves its rank.",
    .source = "ZeRO-3, arXiv 1910.02054; PyTorch FSDP",
    .known = HEC_KNOWN_STATIC,
    .schedule = "hecate",
    .dispatch = &hec_dispatch_local_first,
    .all_ranks = true,
    .window = 1,
    .sliced = true,
    .init = init,
};
