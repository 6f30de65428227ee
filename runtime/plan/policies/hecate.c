/* Hecate (FSSDP), the whole system, with a planner that looks at where the layer ends. Other than published (hecate-published):
 *
 *   before the gate   of the t hottest experts only so many are copied as end the layer soonest, perhaps none (weigh.h)
 *   after it          calibration may copy to some ranks instead of all, and only what ends the layer sooner (calibrate.h)
 *   sharding          experts that are not copied are placed by load; published: those that cannot be copied are
 *
 * The algorithms are in fssdp.c, fssdp_shard.c, weigh.c and calibrate.c, what the rows share in fssdp_policy.c. */
#include "runtime/plan/planners/fssdp_policy.h"

static void init(hec_policy_run *run) {
  hec_fssdp_policy_init(run, (hec_fssdp_options){.shard = true, .materialise = true, .weigh = true});
}

const hec_policy hec_policy_hecate = {
    .name = "hecate",
    .summary = "FSSDP: heterogeneous sharding, copies where the layer ends sooner with them (published: always)",
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
