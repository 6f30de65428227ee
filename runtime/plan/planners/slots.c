/* Counting sort of slots by expert, then home and copies. O(slots + experts) per layer. */
#include "runtime/plan/planners/slots.h"

#include "runtime/plan/problem.h"

#include <string.h>

int32_t hec_slots_per_rank(const hec_policy_run *run, int32_t redundant) {
  int32_t slots = hec_policy_slots(run, redundant);
  if (slots == HEC_AUTO)
    slots = hec_problem_share(run->problem) + (int32_t)run->policy->own[redundant];
  return hec_problem_slots(run->problem, slots);
}

hec_slots hec_slots_new(hec_arena *arena, int32_t n_experts, int32_t n_ranks, int32_t per_rank) {
  return (hec_slots){
      .n_experts = n_experts,
      .n_ranks = n_ranks,
      .at = HEC_NEW(arena, int32_t, n_experts + 1),
      .filled = HEC_NEW(arena, int32_t, n_experts),
      .rank = HEC_NEW(arena, int32_t, (size_t)n_ranks * (size_t)per_rank),
  };
}

/* Ranks of each expert's slots, ascending, as CSR. */
static void list_ranks(hec_slots *slots, const int32_t *slot, int32_t per_rank) {
  int32_t n = slots->n_ranks * per_rank;
  memset(slots->at, 0, (size_t)(slots->n_experts + 1) * sizeof *slots->at);
  for (int32_t i = 0; i < n; i++)
    if (slot[i] >= 0)
      slots->at[slot[i] + 1]++;
  for (int32_t e = 0; e < slots->n_experts; e++) {
    slots->filled[e] = slots->at[e];
    slots->at[e + 1] += slots->at[e];
  }
  for (int32_t i = 0; i < n; i++)
    if (slot[i] >= 0)
      slots->rank[slots->filled[slot[i]]++] = i / per_rank;
}

void hec_slots_write(hec_slots *slots, hec_plan *plan, int32_t layer, const int32_t *slot, int32_t per_rank) {
  list_ranks(slots, slot, per_rank);
  hec_plan_clear_copies(plan, layer);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    int32_t begin = slots->at[e], end = slots->at[e + 1], home = begin;
    for (int32_t i = end - 1; i >= begin; i--)
      if (slots->rank[i] == hec_plan_home(plan, layer, e))
        home = i;
    hec_plan_set_home(plan, layer, e, slots->rank[home]);
    for (int32_t i = begin; i < end; i++)
      if (i != home)
        hec_plan_add_copy(plan, layer, e, slots->rank[i], HEC_COPY_RESIDENT);
  }
}
