/* Writing the quotas of a plan: a layer at a time, from scratch, in the order in which they stand. */
#ifndef HEC_PLAN_QUOTA_H
#define HEC_PLAN_QUOTA_H
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
/* Experts ascending, within one (source, rank) ascending; nothing for 0 tokens. */
void hec_quota_add(hec_quota_writer *writer, int32_t expert, hec_quota quota);
void hec_quota_end(hec_quota_writer *writer);

#endif
