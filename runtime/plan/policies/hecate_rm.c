/* Hecate (FSSDP), copies are dropped after the forward pass of their layer and gathered again in backward, so memory
 * for one layer's copies is enough and m is larger. The algorithms are in fssdp.c, fssdp_shard.c and calibrate.c, what
 * the rows share in fssdp_policy.c. */
#include "runtime/plan/planners/fssdp_policy.h"

static void init(hec_policy_run *run) {
  hec_fssdp_policy_init(run, (hec_fssdp_options){.shard = true, .materialise = true, .rematerialise = true});
}

const hec_policy hec_policy_hecate_rm = {
    .name = "hecate-rm",
    .summary = "hecate-published with copies gathered again in backward",
    .source = "Hecate, arXiv 2502.02581",
    .known = HEC_KNOWN_LAST,
    .schedule = "hecate",
    .dispatch = &hec_dispatch_local_first,
    .window = 5,
    .period = 100,
    .init = init,
    .decide = hec_fssdp_policy_decide,
    .reshard = hec_fssdp_policy_reshard,
    .refine = hec_fssdp_policy_refine,
};
