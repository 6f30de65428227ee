/* EPLB in its global form: one pool of slots, nodes ignored. Window, period and slots as in eplb.c. */
#include "runtime/plan/planners/eplb_core.h"

static void init(hec_policy_run *run) {
  hec_eplb_init(run, (hec_eplb_options){.redundant = 1});
}

const hec_policy hec_policy_eplb_global = {
    .name = "eplb-global",
    .summary = "periodic replication and placement, nodes ignored",
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
