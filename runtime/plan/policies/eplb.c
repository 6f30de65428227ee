/* EPLB, hierarchical (experts stay on their node, replicas are made inside it), with one redundant slot per rank as in
 * DeepSeek-V3's serving (arXiv 2412.19437, section 3.4) and its 8 groups; the global form where nodes do not divide
 * them or the last node is partly used. A window of 10 records every 100 iterations: vLLM's
 * defaults (1000 steps, every 3000) scaled to the length of recorded traces; long against the drift it must average
 * out, short against their hundreds of records. */
#include "runtime/plan/planners/eplb_core.h"

static void init(hec_policy_run *run) {
  hec_eplb_init(run, (hec_eplb_options){.hierarchical = true, .redundant = 1});
}

const hec_policy hec_policy_eplb = {
    .name = "eplb",
    .summary = "periodic replication and placement, nodes first",
    .source = "EPLB, github.com/deepseek-ai/EPLB; DeepSeek-V3, arXiv 2412.19437",
    .known = HEC_KNOWN_PERIODIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_round_robin,
    .all_ranks = true,
    .window = 10,
    .period = 100,
    .init = init,
    .decide = hec_eplb_decide,
    .rearranges = true,
};
