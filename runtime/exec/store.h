/* What a rank keeps between iterations: dense parameters with gradients and moments, and the experts it is home of or
 * holds resident copies of. Expert state comes in slots of equal size (a part: a slice, or the whole expert), taken and
 * given back as plans migrate. Parts are found by (row, part), row = layer * n_experts + expert.
 *
 * A slot:  parameters [n] | gradients [n] | first moments [n] | second moments [n]       (forward only: parameters) */
#ifndef HEC_EXEC_STORE_H
#define HEC_EXEC_STORE_H
#include "runtime/base/status.h"
#include "runtime/exec/processor.h"
#include "runtime/plan/plan.h"

typedef struct {
  float *params, *grads, *first, *second; /* [n]; all but params NULL when not training */
  int64_t n;
} hec_store_part;

typedef struct {
  int32_t n_rows, n_parts; /* parts of an expert: the plan's slices */
  int64_t expert_size;     /* floats of a whole expert */
  int64_t slot_size;       /* floats of a slot */
  int32_t n_arrays;        /* 4, or 1 */
  float *slots;            /* in the rank's region */
  int32_t n_slots, slots_most, n_used;
  int32_t *slot_of; /* [n_rows * n_parts], -1: not here */
  int32_t *free;    /* [slots_most] stack of slots below n_slots that are free */
  int32_t n_free;
} hec_store;

/* Room for slots_most slots at `memory` (hec_store_bytes). */
size_t hec_store_bytes(int64_t expert_size, int32_t n_parts, int32_t n_arrays, int32_t slots_most);
hec_store hec_store_new(hec_arena *arena, float *memory, int32_t n_rows, int32_t n_parts, int64_t expert_size,
                        int32_t n_arrays, int32_t slots_most);

bool hec_store_has(const hec_store *store, int32_t row, int32_t part);
/* The part; it must be here. */
hec_store_part hec_store_at(const hec_store *store, int32_t row, int32_t part);
/* Takes a slot (gradients zero, by `on`; the rest not initialised). HEC_FAILED when there is none left. Already here: keeps
 * it. */
hec_status hec_store_take(hec_store *store, int32_t row, int32_t part, hec_processor *on) HEC_MUST_USE;
void hec_store_give(hec_store *store, int32_t row, int32_t part);

#endif
