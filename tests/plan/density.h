/* The bound that no split of tokens over fixed replicas can beat, by brute force: for planners that claim to reach it. */
#pragma once
#include "models/load.h"
#include "runtime/plan/plan.h"

/* Of the assignments that sources first .. first + n - 1 (n at most 16) send to holders among them: max over sets U of
 * these ranks of ceil(assignments of experts that only U holds / |U|). */
static inline uint64_t hec_test_densest(const hec_plan *plan, const hec_load *load, int32_t layer, int32_t first,
                                        int32_t n) {
  uint64_t max = 0, total[64] = {0};
  uint32_t held[64] = {0};
  for (int32_t e = 0; e < plan->n_experts; e++)
    for (int32_t r = 0; r < n; r++) {
      total[e] += hec_load_row(load, layer, first + r)[e];
      held[e] |= (uint32_t)hec_plan_holds(plan, layer, e, first + r) << r;
    }
  for (uint32_t set = 1; set < 1u << n; set++) {
    uint64_t sum = 0, size = 0;
    for (int32_t r = 0; r < n; r++)
      size += set >> r & 1;
    for (int32_t e = 0; e < plan->n_experts; e++)
      sum += (held[e] & ~set) == 0 ? total[e] : 0;
    uint64_t needs = (sum + size - 1) / size;
    max = needs > max ? needs : max;
  }
  return max;
}
