/* Plans of fully sharded experts (FSDP, FSEP, SYMI): rank j keeps slice j of everything, slots hold guests. */
#pragma once
#include "runtime/plan/plan.h"

/* Slice j of every expert and of its optimizer state on rank j. */
void hec_sliced_homes(hec_plan *plan);

/* Replaces the copies of the layer by guests: expert slot[r * per_rank + c] on rank r (-1: none). A rank may have an
 * expert twice. A single rank has everything and gets none. O(slots + experts). */
void hec_sliced_fill(hec_plan *plan, int32_t layer, const int32_t *slot, int32_t per_rank);
