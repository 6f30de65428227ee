/* The plan says it all: its quotas of this source must name holders and sum to n (a policy that writes quotas writes
 * them for exactly the load they are used with). A source without quotas of the expert was not spread: as under `group`.
 * O(log quotas of the expert + parts). */
#include "runtime/plan/dispatch/dispatch_even.h"

/* First quota of the row whose source is at least `source`. */
static int32_t first_of(const hec_quota *quota, int32_t begin, int32_t end, int32_t source) {
  while (begin < end) {
    int32_t middle = begin + (end - begin) / 2;
    if (quota[middle].source < source)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

static void split(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  const hec_plan *plan = row->plan;
  HEC_ASSERT(plan->quota_at != NULL);
  const int32_t *at = plan->quota_at + (size_t)row->layer * (size_t)(plan->n_experts + 1) + row->expert;
  const hec_quota *quota = plan->quota + (size_t)row->layer * (size_t)plan->quota_capacity;
  uint64_t total = 0;
  int32_t first = first_of(quota, at[0], at[1], source);
  if (first == at[1] || quota[first].source != source) {
    hec_dispatch_group.split(row, source, n, tokens);
    return;
  }
  for (int32_t i = first; i < at[1] && quota[i].source == source; i++) {
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
