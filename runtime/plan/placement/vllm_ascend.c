/* The expert map of vllm-ascend and MindIE (expert_map_path, expert_map_record_path; vllm_ascend/eplb):
 *
 *   {"moe_layer_count": L, "layer_list": [{"layer_id": 0, "device_count": R,
 *       "device_list": [{"device_id": 0, "device_expert": [experts]}, ..]}, ..]}
 *
 * layer_id counts MoE layers from 0. Layers and devices stand in order. layer_id, device_id and device_count may be
 * missing (vllm-ascend reads the first layer's count alone), but must not say otherwise. Devices may have different
 * numbers of experts: the file can say so, and so it is read and written. But vllm-ascend itself makes a tensor of the
 * lists and refuses it. An expert twice on a device is one slot for vllm-ascend, which keeps the last of them. */
#include "runtime/plan/placement/placement.h"

#include "runtime/base/value.h"

#include <inttypes.h>
#include <stdio.h>

static bool recognise(const hec_placement_file *file) {
  return file->json && hec_json_get(hec_json_root(file->json), "layer_list");
}

/* Member `key` of `object` is an array of n. */
static hec_status want_array(const hec_placement_file *file, const hec_json_value *object, const char *key, int32_t n,
                             const char *of, const hec_json_value **array) {
  char expected[96];
  *array = hec_json_get(object, key);
  if (!*array) {
    (void)snprintf(expected, sizeof expected, "an object with \"%s\"", key);
    return hec_json_error(file->json, object, expected);
  }
  (void)snprintf(expected, sizeof expected, "an array of %" PRId32 " %s", n, of);
  if (!hec_json_is_array(*array) || hec_json_length(*array) != n)
    return hec_json_error(file->json, *array, expected);
  return HEC_OK;
}

/* A number that may be missing, but must be `value`. */
static hec_status want_same(const hec_placement_file *file, const hec_json_value *object, const char *key,
                            int32_t value) {
  int64_t found;
  return hec_json_int_or(file->json, object, key, value, value, value, &found);
}

static hec_status read_device(const hec_placement_file *file, const hec_json_value *device, int32_t rank,
                              hec_placement *placement) {
  HEC_TRY(want_same(file, device, "device_id", rank));
  const hec_json_value *experts = hec_json_get(device, "device_expert");
  if (!experts)
    return hec_json_error(file->json, device, "an object with \"device_expert\"");
  if (!hec_json_is_array(experts))
    return hec_json_error(file->json, experts, "an array of experts");
  return hec_placement_json_slots(file, experts, placement);
}

static hec_status read_layer(const hec_placement_file *file, const hec_json_value *row, int32_t layer,
                             hec_placement *placement) {
  int32_t n_ranks = placement->shape.n_ranks, rank = 0;
  const hec_json_value *devices;
  HEC_TRY(want_same(file, row, "layer_id", layer));
  HEC_TRY(want_same(file, row, "device_count", n_ranks));
  HEC_TRY(want_array(file, row, "device_list", n_ranks, "devices, one for each rank", &devices));
  for (const hec_json_value *v = hec_json_first(devices); v; v = hec_json_next(v), rank++) {
    HEC_TRY(read_device(file, v, rank, placement));
    hec_placement_close_rank(placement, layer, rank);
  }
  return HEC_OK;
}

static hec_status read(const hec_placement_file *file, hec_placement *placement) {
  const hec_json_value *root = hec_json_root(file->json), *rows;
  int64_t count;
  int32_t n = placement->shape.n_layers, layer = 0;
  HEC_TRY(hec_json_want_int(file->json, root, "moe_layer_count", n, n, &count));
  HEC_TRY(want_array(file, root, "layer_list", n, "layers, as the trace has MoE layers", &rows));
  for (const hec_json_value *row = hec_json_first(rows); row; row = hec_json_next(row), layer++)
    HEC_TRY(read_layer(file, row, layer, placement));
  return HEC_OK;
}

static void write_layer(const hec_placement *placement, int32_t layer, hec_json_out *json) {
  hec_json_object(json, NULL);
  HEC_JSON(json, HEC_INT("layer_id", layer), HEC_INT("device_count", placement->shape.n_ranks));
  hec_json_array(json, "device_list");
  for (int32_t rank = 0; rank < placement->shape.n_ranks; rank++) {
    const int32_t *slots;
    int32_t n = hec_placement_slots(placement, layer, rank, &slots);
    hec_json_object(json, NULL);
    hec_json_int(json, "device_id", rank);
    hec_json_ints(json, "device_expert", slots, n);
    hec_json_close(json);
  }
  hec_json_close(json);
  hec_json_close(json);
}

static void write(const hec_placement *placement, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "moe_layer_count", placement->shape.n_layers);
  hec_json_array(&json, "layer_list");
  for (int32_t layer = 0; layer < placement->shape.n_layers; layer++)
    write_layer(placement, layer, &json);
  hec_json_close(&json);
  hec_json_close(&json);
}

const hec_placement_format hec_placement_vllm_ascend = {
    .name = "vllm-ascend",
    .summary = "JSON with layer_list, device_list and device_expert",
    .source = "vllm-ascend, expert_map_path; MindIE",
    .uneven = "Ranks have different numbers of experts: the file says so, vllm-ascend itself loads only equal ones.",
    .row = "layer_list[",
    .row_end = "]",
    .recognise = recognise,
    .read = read,
    .write = write,
};
