/* The table of policies, and which of them suits a problem. */
#include "runtime/plan/policy.h"

#include "runtime/base/table.h"
#include "runtime/base/text.h"
#include "runtime/plan/problem.h"

#define ROW(name) &hec_policy_##name,
const hec_policy *const hec_policies[] = {HEC_POLICY_LIST(ROW) NULL};
#undef ROW

HEC_TABLE_OF(hec_policy);
const hec_policy *hec_policy_find(const char *name) {
  return hec_table_find(hec_policies, name);
}

static hec_status refuse_shards(const hec_policy *policy, const hec_problem *problem) {
  hec_text names = {0};
  for (size_t i = 0; hec_policies[i]; i++)
    if (hec_policies[i]->shards)
      hec_text_printf(&names, "%s%s", names.length > 0 ? ", " : "", hec_policies[i]->name);
  hec_status status = hec_fail(HEC_BAD_INPUT,
                               "`policy`: expected one that runs with experts in shards beside `esp` %d (%s), found "
                               "\"%s\"",
                               problem->esp, names.data, policy->name);
  hec_text_free(&names);
  return status;
}

hec_status hec_policy_suits(const hec_policy *policy, const hec_problem *problem) {
  if (problem->esp > 1 && !policy->shards)
    return refuse_shards(policy, problem);
  if (policy->placed && !problem->placement)
    return hec_fail(HEC_BAD_INPUT, "`policy` %s: expected `placement` FILE beside it, found none", policy->name);
  return HEC_OK;
}

bool hec_policy_looks_back(const hec_policy *policy) {
  return policy->known == HEC_KNOWN_PERIODIC || policy->known == HEC_KNOWN_LAST || policy->period > 0;
}
