/* EPLB whose slots stay where they can (reference policies.md 4.1, "EPLB+match"; issue 25 of EPLB, SwiftBalancer in vLLM
 * PR 37656): replicas and packs are those of eplb.c, so balance is the same to the last token, but whole packs change
 * ranks inside a node, and whole nodes their packs, such that the fewest experts move, and of these the most inside a
 * node. The assignment is optimal (slot_match.c). Window, period and slots as in eplb.c. */
#include "runtime/plan/planners/eplb_core.h"

static void init(hec_policy_run *run) {
  hec_eplb_init(run, (hec_eplb_options){.hierarchical = true, .redundant = 1, .match = true});
}

const hec_policy hec_policy_eplb_match = {
    .name = "eplb-match",
    .summary = "eplb with the fewest moves that give the same balance",
    .source = "EPLB, github.com/deepseek-ai/EPLB, issue 25",
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
