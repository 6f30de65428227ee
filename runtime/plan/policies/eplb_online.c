/* EPLB with rate-limited migration, as TensorRT-LLM's wide expert parallelism does it online (its tech blog 4; reference
 * policies.md 4.12): a decision is carried out one layer an iteration (layer_updates_per_iter: 1 in its guide for
 * DeepSeek-R1), beside the iteration until that layer computes. Window, period, slots and placement are those of eplb.c,
 * so only the way of moving differs. Records that are more than an iteration apart still count as one.
 *
 * There weights come from host memory over the chip's own link, and it serves, it does not train; here they come from
 * the nearest rank that has them and, in training, bring their optimizer state along. */
#include "runtime/plan/planners/eplb_core.h"

static void init(hec_policy_run *run) {
  hec_eplb_init(run, (hec_eplb_options){.hierarchical = true, .redundant = 1, .layers_per_iteration = 1});
}

const hec_policy hec_policy_eplb_online = {
    .name = "eplb-online",
    .summary = "eplb carried out one layer an iteration, beside it (weights from peers, not from host memory)",
    .source = "TensorRT-LLM, tech blog 4; EPLB, github.com/deepseek-ai/EPLB",
    .known = HEC_KNOWN_PERIODIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_round_robin,
    .all_ranks = true,
    .window = 10,
    .period = 100,
    .migrates_beside = true,
    .rearranges = true,
    .init = init,
    .decide = hec_eplb_decide,
};
