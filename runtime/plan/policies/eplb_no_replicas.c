/* EPLB without redundant slots: placement only. Where ranks do not divide the experts the slots are rounded up to what
 * expert parallelism needs, and those left over hold replicas, so the row is not `whole`. Window and period as in eplb.c. */
#include "runtime/plan/planners/eplb_core.h"

static void init(hec_policy_run *run) {
  hec_eplb_init(run, (hec_eplb_options){.hierarchical = true});
}

const hec_policy hec_policy_eplb_no_replicas = {
    .name = "eplb-no-replicas",
    .summary = "eplb without redundant slots",
    .source = "EPLB, github.com/deepseek-ai/EPLB; DeepSeek-V3, arXiv 2412.19437",
    .known = HEC_KNOWN_PERIODIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_round_robin,
    .all_ranks = true,
    .window = 10,
    .period = 100,
    .rearranges = true,
    .init = init,
    .decide = hec_eplb_decide,
};
