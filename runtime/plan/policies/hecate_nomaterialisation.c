/* Hecate (FSSDP), heterogeneous sharding alone: no copies, before the gate or after it. The algorithms are
 * in fssdp.c, fssdp_shard.c and calibrate.c, what the rows share in fssdp_policy.c. */
#include "runtime/plan/planners/fssdp_policy.h"

static void init(hec_policy_run *run) {
  hec_fssdp_policy_init(run, (hec_fssdp_options){.shard = true});
}

const hec_policy hec_policy_hecate_nomaterialisation = {
    .name = "hecate-nomaterialisation",
    .summary = "heterogeneous sharding only, no copies",
    .source = "Hecate, arXiv 2502.02581",
    .known = HEC_KNOWN_PERIODIC,
    .schedule = "hecate",
    .dispatch = &hec_dispatch_local_first,
    .whole = true,
    .window = 5,
    .period = 100,
    .init = init,
    .decide = hec_fssdp_policy_decide,
    .reshard = hec_fssdp_policy_reshard,
};
