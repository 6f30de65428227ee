/* Static expert parallelism (GShard; DeepSpeed-MoE, arXiv 2201.05596; reference policies.md 3.1), dropless: expert e on
 * rank floor(e * ep / E) of every expert-parallel group, gradients of the groups' copies all-reduced. Nothing ever
 * moves. */
#include "runtime/plan/policy.h"

static void init(hec_policy_run *run) {
  hec_plan_set_contiguous(&run->plan, run->problem);
}

const hec_policy hec_policy_ep = {
    .name = "ep",
    .summary = "static contiguous expert parallelism",
    .source = "DeepSpeed-MoE, arXiv 2201.05596",
    .known = HEC_KNOWN_STATIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_group,
    .whole = true,
    .shards = true,
    .window = 1,
    .init = init,
    .baseline = true,
};
