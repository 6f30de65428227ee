/* Slots on a stack: the one given back last is taken first, so memory in use stays dense. O(1) per call. */
#include "runtime/exec/store.h"

#include "runtime/base/arena.h"

static int64_t part_max(int64_t expert_size, int32_t n_parts) {
  return (expert_size + n_parts - 1) / n_parts;
}

/* Rounded up to a cache line. */
static int64_t array_floats(int64_t expert_size, int32_t n_parts) {
  return (part_max(expert_size, n_parts) + 15) / 16 * 16;
}

size_t hec_store_bytes(int64_t expert_size, int32_t n_parts, int32_t n_arrays, int32_t n) {
  return (size_t)array_floats(expert_size, n_parts) * (size_t)n_arrays * (size_t)n * sizeof(float);
}

hec_store hec_store_new(hec_arena *arena, float *end, int32_t n_rows, int32_t n_parts, int64_t expert_size,
                        int32_t n_arrays, int32_t slots_max) {
  size_t n = (size_t)n_rows * (size_t)n_parts;
  hec_store store = {.n_rows = n_rows,
                     .n_parts = n_parts,
                     .expert_size = expert_size,
                     .array_size = array_floats(expert_size, n_parts),
                     .n_arrays = n_arrays,
                     .end = end,
                     .slots_max = slots_max,
                     .slot_of = HEC_NEW(arena, int32_t, n),
                     .free = HEC_NEW(arena, int32_t, slots_max)};
  for (size_t i = 0; i < n; i++)
    store.slot_of[i] = -1;
  return store;
}

static int32_t *slot_at(const hec_store *store, int32_t row, int32_t part) {
  HEC_ASSERT(row >= 0 && row < store->n_rows && part >= 0 && part < store->n_parts);
  return &store->slot_of[(size_t)row * (size_t)store->n_parts + (size_t)part];
}

bool hec_store_has(const hec_store *store, int32_t row, int32_t part) {
  return *slot_at(store, row, part) >= 0;
}

hec_store_part hec_store_at(const hec_store *store, int32_t row, int32_t part) {
  int32_t slot = *slot_at(store, row, part);
  HEC_ASSERT(slot >= 0);
  int64_t array = store->array_size;
  float *at = store->end - (int64_t)(slot + 1) * store->n_arrays * array;
  int64_t n = hec_part_begin(store->expert_size, part + 1, store->n_parts) -
              hec_part_begin(store->expert_size, part, store->n_parts);
  if (store->n_arrays == 1)
    return (hec_store_part){.params = at, .n = n};
  return (hec_store_part){at, at + array, at + 2 * array, at + 3 * array, n};
}

size_t hec_store_needs(const hec_store *store, int32_t row, int32_t part) {
  bool grows = !hec_store_has(store, row, part) && store->n_free == 0;
  return hec_store_bytes(store->expert_size, store->n_parts, store->n_arrays, store->n_slots + grows);
}

hec_status hec_store_take(hec_store *store, int32_t row, int32_t part, hec_processor *on) {
  int32_t *slot = slot_at(store, row, part);
  if (*slot >= 0)
    return HEC_OK;
  if (store->n_free > 0)
    *slot = store->free[--store->n_free];
  else if (store->n_slots < store->slots_max)
    *slot = store->n_slots++;
  else
    return hec_fail(HEC_FAILED, "no memory for another expert: %d are kept here already", store->n_used);
  store->n_used++;
  hec_store_part at = hec_store_at(store, row, part);
  if (at.grads)
    on->math->zero(on, at.grads, at.n);
  return HEC_OK;
}

void hec_store_give(hec_store *store, int32_t row, int32_t part) {
  int32_t *slot = slot_at(store, row, part);
  HEC_ASSERT(*slot >= 0);
  store->free[store->n_free++] = *slot;
  store->n_used--;
  *slot = -1;
}
