/* Rows of counts lie one behind the other, whatever the reading. One is in memory. */
#include "traces/import/npy_counts.h"

#include "runtime/base/arena.h"
#include "traces/import/routed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void hec_npy_counts_free(hec_npy_counts *counts) {
  free(counts->room);
  free(counts->counts);
}

static int64_t size_of(const hec_npy *array, const hec_reading *reading, hec_axis axis) {
  int place = hec_reading_place(reading, axis);
  return place < 0 ? 1 : array->shape[place];
}

hec_status hec_npy_counts_read(hec_import_file *file, const hec_import_bytes *bytes, const hec_npy *array,
                               const hec_reading *reading, hec_npy_counts *c) {
  const hec_import_options *o = hec_import_options_of(file->job);
  *c = (hec_npy_counts){.bytes = bytes,
                        .array = *array,
                        .n_steps = size_of(array, reading, HEC_AXIS_STEPS),
                        .n_layers = size_of(array, reading, HEC_AXIS_LAYERS),
                        .n_experts = size_of(array, reading, HEC_AXIS_EXPERTS)};
  if (o->ranks > 1)
    return hec_import_fail(file, 0, "counts", "expected no --ranks, as counts are of all ranks, found %" PRId64,
                           o->ranks);
  if (c->n_layers < 1 || c->n_layers > HEC_IMPORT_LAYERS_MAX || (o->layers > 0 && o->layers != c->n_layers))
    return hec_import_fail(file, 0, "shape", "expected %" PRId64 " layers, found %" PRId64,
                           o->layers > 0 ? o->layers : 1, c->n_layers);
  HEC_TRY(hec_import_set_experts(file, 0, "shape (experts)", c->n_experts));
  HEC_TRY(hec_npy_check_length(file, 0, bytes, array, HEC_ROUTED_BYTES_MAX));
  hec_axes_keep_sizes(file->job, reading, array->shape);
  hec_import_take_counts(file->job);
  c->room = hec_malloc((size_t)c->n_experts, 8);
  c->counts = hec_malloc((size_t)c->n_experts, sizeof *c->counts);
  return HEC_OK;
}

/* "counts[3][7]": the place in the file's own axes. */
static hec_status wrong_count(hec_import_file *file, const hec_npy_counts *c, int64_t e, uint64_t value) {
  char place[96];
  bool negative = c->array.is_signed && value >> (8 * c->array.item - 1) != 0;
  int n = snprintf(place, sizeof place, "counts");
  if (c->array.n_dimensions == 3 || c->n_steps > 1)
    n += snprintf(place + n, sizeof place - (size_t)n, "[%" PRId64 "]", c->step);
  if (c->array.n_dimensions == 3 || c->n_steps == 1)
    n += snprintf(place + n, sizeof place - (size_t)n, "[%" PRId64 "]", c->layer);
  (void)snprintf(place + n, sizeof place - (size_t)n, "[%" PRId64 "]", e);
  return hec_import_fail(file, 0, place, "expected a count from 0 to %" PRIu32 ", found %s", UINT32_MAX,
                         negative ? "a negative number" : "more");
}

hec_status hec_npy_counts_next(hec_import_file *file, hec_npy_counts *c, hec_import_row *row, bool *more) {
  size_t size = (size_t)(c->n_experts * c->array.item);
  const unsigned char *found = NULL;
  *more = c->step < c->n_steps;
  if (!*more)
    return HEC_OK;
  uint64_t at = c->array.data_at + (uint64_t)(c->step * c->n_layers + c->layer) * size;
  HEC_TRY(hec_import_bytes_at(c->bytes, at, size, c->room, &found));
  for (int64_t e = 0; e < c->n_experts; e++) {
    uint64_t value = hec_import_number(found + e * c->array.item, c->array.item);
    uint64_t half = UINT64_C(1) << (8 * c->array.item - 1);
    if (value > UINT32_MAX || (c->array.is_signed && value >= half))
      return wrong_count(file, c, e, value);
    c->counts[e] = (uint32_t)value;
  }
  *row = (hec_import_row){
      .step = file->kept, .layer = c->layer, .source = 0, .n = (int32_t)c->n_experts, .counts = c->counts};
  if (++c->layer == c->n_layers) {
    c->layer = 0;
    c->step++;
    file->kept++;
  }
  return HEC_OK;
}
