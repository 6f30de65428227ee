/* The lower bound: what no placement and no schedule can beat. Here only its memory layout (that of `ep`); its schedule
 * lowers the mean loads to one perfect GEMM a rank, cut as the devices can best share them, with no token, parameter or
 * migration traffic and no planning. */
#include "runtime/plan/policy.h"

static void init(hec_policy_run *run) {
  hec_policy_ep_balanced.init(run);
}

/* So that reports show the loads that the bound assumes. */
static void rewrite(hec_policy_run *run, hec_load *load) {
  hec_policy_ep_balanced.rewrite(run, load);
}

const hec_policy hec_policy_ideal = {
    .name = "ideal",
    .summary = "lower bound: mean work on every rank, nothing moves",
    .source = "reference row",
    .known = HEC_KNOWN_STATIC,
    .schedule = "ideal",
    .only_schedule = "ideal",
    .dispatch = &hec_dispatch_group,
    .window = 1,
    .init = init,
    .rewrite = rewrite,
    .reference = true,
};
