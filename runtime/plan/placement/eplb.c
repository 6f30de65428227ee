/* {"physical_to_logical_map": [[..]]}: what EPLB's rebalance_experts calls physical_to_logical_map, as SGLang takes it
 * by --init-expert-location (python/sglang/srt/eplb/expert_location.py). [layers][slots] of experts; slots belong to
 * ranks in order, as many to each. Other members are left alone, as SGLang does. SGLang numbers all layers of a model,
 * dense ones too, whose rows say nothing. With a first MoE layer of N there are N rows more. They are only counted when
 * read, and written as SGLang's trivial ones (slot s: expert s mod experts). */
#include "runtime/plan/placement/placement.h"

#include <inttypes.h>
#include <stdio.h>

static const char key[] = "physical_to_logical_map";

static bool recognise(const hec_placement_file *file) {
  return file->json && hec_json_get(hec_json_root(file->json), key);
}

static hec_status check_row(const hec_placement_file *file, const hec_json_value *row, const hec_json_value *first,
                            const hec_placement *placement) {
  char expected[128];
  if (!hec_json_is_array(row))
    return hec_json_error(file->json, row, "an array of experts, one for each slot");
  if (row != first && hec_json_length(row) != hec_json_length(first)) {
    (void)snprintf(expected, sizeof expected, "an array of %" PRId32 " slots, as in the first layer",
                   hec_json_length(first));
    return hec_json_error(file->json, row, expected);
  }
  if (hec_json_length(row) > 0 && hec_json_length(row) % placement->shape.n_ranks == 0)
    return HEC_OK;
  (void)snprintf(expected, sizeof expected, "as many slots for each of %" PRId32 " ranks (`ranks`)",
                 placement->shape.n_ranks);
  return hec_json_error(file->json, row, expected);
}

/* Another number of layers, and what to do about it where that shows. */
static hec_status wrong_layers(const hec_placement_file *file, const hec_json_value *rows,
                               const hec_placement_shape *shape, int32_t first) {
  char expected[240];
  int32_t length = hec_json_length(rows), n = shape->n_layers;
  int at =
      snprintf(expected, sizeof expected,
               "an array of the trace's %" PRId32 " MoE layers after %" PRId32 " dense ones (`first_layer`", n, first);
  if (length == n)
    at += snprintf(expected + at, sizeof expected - (size_t)at, ": leave it out, this file has MoE layers alone");
  else if (length > n)
    at += snprintf(expected + at, sizeof expected - (size_t)at, ": %" PRId32 ", if it numbers the dense ones, too",
                   length - n);
  (void)snprintf(expected + at, sizeof expected - (size_t)at, ")");
  return hec_json_error(file->json, rows, expected);
}

static hec_status read(const hec_placement_file *file, hec_placement *placement) {
  const hec_json_value *rows = hec_json_get(hec_json_root(file->json), key);
  int32_t first = placement->shape.first_layer > 0 ? placement->shape.first_layer : 0, n = placement->shape.n_layers;
  if (!hec_json_is_array(rows))
    return hec_json_error(file->json, rows, "an array of layers");
  if (hec_json_length(rows) != first + n)
    return wrong_layers(file, rows, &placement->shape, first);
  int32_t index = 0;
  for (const hec_json_value *row = hec_json_first(rows); row; row = hec_json_next(row), index++) {
    if (index < first)
      continue;
    HEC_TRY(check_row(file, row, hec_json_first(rows), placement));
    HEC_TRY(hec_placement_json_slots(file, row, placement));
    hec_placement_close_layer(placement, index - first);
  }
  return HEC_OK;
}

static void write(const hec_placement *placement, hec_text *out) {
  int32_t n_slots = placement->slot_at[placement->shape.n_ranks];
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_array(&json, key);
  for (int32_t l = 0; l < placement->shape.first_layer; l++) {
    hec_json_array(&json, NULL);
    for (int32_t i = 0; i < n_slots; i++)
      hec_json_int(&json, NULL, i % placement->shape.n_experts);
    hec_json_close(&json);
  }
  const int32_t *at = placement->slot_at;
  for (int32_t l = 0; l < placement->shape.n_layers; l++, at += placement->shape.n_ranks)
    hec_json_ints(&json, NULL, placement->slot + *at, n_slots);
  hec_json_close(&json);
  hec_json_close(&json);
}

const hec_placement_format hec_placement_eplb = {
    .name = "eplb",
    .summary = "JSON with physical_to_logical_map, [layers][slots]",
    .source = "EPLB, github.com/deepseek-ai/EPLB; SGLang, --init-expert-location",
    .row = "physical_to_logical_map[",
    .row_end = "]",
    .counts_dense = true,
    .even = true,
    .recognise = recognise,
    .read = read,
    .write = write,
};
