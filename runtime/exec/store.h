/* What a rank keeps between iterations: dense parameters with gradients and moments, and the experts it is home of or
 * holds resident copies of. Expert state comes in slots of equal size (a part: a slice, or the whole expert), taken and
 * given back as plans migrate. Parts are found by (row, part), row = layer * n_experts + expert.
 *
 * A slot:  parameters [n] | gradients [n] | first moments [n] | second moments [n]       (forward only: parameters)
 * each on a cache line. Slots grow downwards from the end of the rank's region, towards its planned buffers. */
#pragma once
#include "runtime/base/status.h"
#include "runtime/exec/math/processor.h"
#include "runtime/plan/plan.h"

typedef struct {
  float *params, *grads, *first, *second; /* [n]; all but params NULL when not training */
  int64_t n;
} hec_store_part;

typedef struct {
  int32_t n_rows, n_parts;            /* parts of an expert: the plan's slices */
  int64_t expert_size;                /* floats of a whole expert */
  int64_t array_size;                 /* floats from one array of a slot to the next */
  int32_t n_arrays;                   /* 4, or 1 */
  float *end;                         /* of the rank's region; slot 0 is the last one before it */
  int32_t n_slots, slots_max, n_used; /* n_slots: ever taken */
  int32_t *slot_of;                   /* [n_rows * n_parts], -1: not here */
  int32_t *free;                      /* [slots_max] stack of slots below n_slots that are free */
  int32_t n_free;
} hec_store;

/* Bytes of n slots. */
size_t hec_store_bytes(int64_t expert_size, int32_t n_parts, int32_t n_arrays, int32_t n);
/* At most slots_max slots before `end` (64-byte aligned). */
hec_store hec_store_new(hec_arena *arena, float *end, int32_t n_rows, int32_t n_parts, int64_t expert_size,
                        int32_t n_arrays, int32_t slots_max);

bool hec_store_has(const hec_store *store, int32_t row, int32_t part);
/* Bytes before `end` that slots take once this part has one. */
size_t hec_store_needs(const hec_store *store, int32_t row, int32_t part);
/* The part; it must be here. */
hec_store_part hec_store_at(const hec_store *store, int32_t row, int32_t part);
/* Takes a slot (gradients zero, by `on`; the rest not initialised). HEC_FAILED when there is none left. Already here: keeps
 * it. */
hec_status hec_store_take(hec_store *store, int32_t row, int32_t part, hec_processor *on) HEC_MUST_USE;
void hec_store_give(hec_store *store, int32_t row, int32_t part);
