/* Writing the quotas of a plan: a layer at a time, from scratch, in the order in which they stand. */
#pragma once
#include "runtime/plan/plan.h"

typedef struct {
  hec_plan *plan;
  int32_t layer, expert, filled; /* offsets up to `expert` are written */
} hec_quota_writer;

/* Room for `capacity` quotas in every layer, none yet. Once, when a policy starts. */
void hec_quota_reserve(hec_plan *plan, hec_arena *arena, int32_t capacity);
/* Drops the quotas of all layers: what a policy does before the gate has spoken. */
void hec_quota_clear(hec_plan *plan);

hec_quota_writer hec_quota_begin(hec_plan *plan, int32_t layer);
/* Rows that nothing was added to, up to `expert`, end where the last one did. */
void hec_quota_advance(hec_quota_writer *writer, int32_t expert);
/* Experts ascending, within one (source, rank) ascending; nothing for 0 tokens. Inline: planners call it for every
 * source of every expert. */
static inline void hec_quota_add(hec_quota_writer *writer, int32_t expert, hec_quota quota) {
  hec_plan *plan = writer->plan;
  if (quota.tokens == 0)
    return;
  HEC_ASSERT(expert >= writer->expert && expert < plan->n_experts && writer->filled < plan->quota_capacity);
  if (expert > writer->expert)
    hec_quota_advance(writer, expert);
  plan->quota[(size_t)writer->layer * (size_t)plan->quota_capacity + (size_t)writer->filled++] = quota;
}
void hec_quota_end(hec_quota_writer *writer);
