/* The plan says it all: its quotas of this source must name holders and sum to n (a policy that writes quotas writes
 * them for exactly the load they are used with). */
#include "runtime/plan/dispatch_even.h"

static void split(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  const hec_plan *plan = row->plan;
  HEC_ASSERT(plan->quota_at != NULL);
  const int32_t *at = plan->quota_at + (size_t)row->layer * (size_t)(plan->n_experts + 1) + row->expert;
  const hec_quota *quota = plan->quota + (size_t)row->layer * (size_t)plan->quota_capacity;
  uint64_t total = 0;
  for (int32_t i = at[0]; i < at[1]; i++) {
    if (quota[i].source != source)
      continue;
    int32_t j = hec_dispatch_lower(row, quota[i].rank);
    HEC_ASSERT(j < row->n_holders && row->holders[j] == quota[i].rank);
    tokens[j] += quota[i].tokens;
    total += quota[i].tokens;
  }
  HEC_ASSERT(total == n);
}

const hec_dispatch hec_dispatch_quota = {
    .name = "quota",
    .summary = "the plan's explicit quotas",
    .source = "exact-load planners (LLEP, MoonEP, UltraEP)",
    .split = split,
};
