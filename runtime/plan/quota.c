/* Quotas in their CSR block, written once through: O(quotas + experts) per layer. */
#include "runtime/plan/quota.h"

#include <string.h>

static size_t n_offsets(const hec_plan *plan) {
  return (size_t)plan->n_layers * (size_t)(plan->n_experts + 1);
}

void hec_quota_reserve(hec_plan *plan, hec_arena *arena, int32_t capacity) {
  HEC_ASSERT(!plan->quota_at && capacity >= 0);
  plan->quota_at = HEC_NEW(arena, int32_t, n_offsets(plan));
  plan->quota = HEC_NEW(arena, hec_quota, (size_t)plan->n_layers * (size_t)capacity);
  plan->quota_capacity = capacity;
}

void hec_quota_clear(hec_plan *plan) {
  memset(plan->quota_at, 0, n_offsets(plan) * sizeof *plan->quota_at);
}

void hec_quota_advance(hec_quota_writer *writer, int32_t expert) {
  int32_t *at = writer->plan->quota_at + (size_t)writer->layer * (size_t)(writer->plan->n_experts + 1);
  while (writer->expert < expert)
    at[++writer->expert] = writer->filled;
}

hec_quota_writer hec_quota_begin(hec_plan *plan, int32_t layer) {
  HEC_ASSERT(plan->quota_at && layer >= 0 && layer < plan->n_layers);
  plan->quota_at[(size_t)layer * (size_t)(plan->n_experts + 1)] = 0;
  return (hec_quota_writer){.plan = plan, .layer = layer};
}

void hec_quota_end(hec_quota_writer *writer) {
  hec_quota_advance(writer, writer->plan->n_experts);
}
