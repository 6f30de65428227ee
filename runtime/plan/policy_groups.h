/* One run of a policy per expert-parallel group, for policy_run.c: each of these does in all groups what its namesake there
 * does in one, and joins the groups' plans. */
#ifndef HEC_PLAN_POLICY_GROUPS_H
#define HEC_PLAN_POLICY_GROUPS_H
#include "runtime/plan/policy.h"

void hec_policy_groups_start(hec_policy_run *run);
void hec_policy_groups_stop(hec_policy_run *run);
void hec_policy_groups_decide(hec_policy_run *run);
void hec_policy_groups_refine(hec_policy_run *run, int32_t layer, const hec_load *load);
void hec_policy_groups_rewrite(hec_policy_run *run, hec_load *load);
void hec_policy_groups_observe(hec_policy_run *run, const hec_load *load);
void hec_policy_groups_reshard(hec_policy_run *run);

#endif
