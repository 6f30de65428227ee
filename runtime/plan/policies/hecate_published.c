/* Hecate (FSSDP), the whole system as published: what the paper's numbers are compared with. The algorithms are
 * in fssdp.c, fssdp_shard.c and calibrate.c, what the rows share in fssdp_policy.c. */
#include "runtime/plan/planners/fssdp_policy.h"

static void init(hec_policy_run *run) {
  hec_fssdp_policy_init(run, (hec_fssdp_options){.shard = true, .materialise = true});
}

const hec_policy hec_policy_hecate_published = {
    .name = "hecate-published",
    .summary = "FSSDP as published: copies all experts that attention hides, whether or not the layer ends sooner",
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
