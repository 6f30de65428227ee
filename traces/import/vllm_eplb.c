/* vLLM's EPLB load statistics (JSON Lines, pull request 41141 and forks). First
 *   {"record_type":"eplb_load_meta","version":1,"model","num_ranks",..,"num_layers","num_redundant_experts"}
 * then a step a line: counts per PHYSICAL expert (slot), and whose copy each slot is,
 *   {"record_type":"eplb_load_stats","version":1,"step","expert_load":[[count x slots] x layers],
 *    "p2l_map":[[logical expert x slots] x layers]}
 * An earlier form has num_ranks in each step and no meta record. A logical expert's load is the sum over its slots. As
 * the reader there does, this one refuses: no meta (unless of the earlier form), one behind steps or a second one, other
 * record types. Several files are of one server: ranks, experts, redundant ones and model must agree. Counts are summed
 * over ranks; what a step sums over is up to the server. */
#include "runtime/base/arena.h"
#include "traces/import/importer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { NOTHING, META, STATS } record_type;

typedef struct {
  hec_scan scan;
  hec_text text, model;
  record_type type;
  int64_t version, step, ranks, layers, redundant; /* of the record; -1: absent */
  hec_scan_matrix slots, map;
  bool has_slots, has_map;
  bool has_meta, has_stats; /* of the file */
  int64_t meta_layers, meta_redundant;
  int64_t layer;    /* given of the record */
  uint32_t *counts; /* [experts] */
  size_t counts_capacity;
} stats_file;

static hec_status read_type(void *state) {
  stats_file *s = state;
  HEC_TRY(hec_scan_text(&s->scan, &s->text));
  s->type = strcmp(s->text.data, "eplb_load_meta") == 0    ? META
            : strcmp(s->text.data, "eplb_load_stats") == 0 ? STATS
                                                           : NOTHING;
  return s->type != NOTHING ? HEC_OK
                            : hec_scan_fail(&s->scan, "another text", "\"eplb_load_meta\" or \"eplb_load_stats\"");
}

static hec_status read_model(void *state) {
  stats_file *s = state;
  bool is_null = false;
  HEC_TRY(hec_scan_null(&s->scan, &is_null));
  return is_null ? HEC_OK : hec_scan_text(&s->scan, &s->model);
}

static hec_status read_slots(void *state) {
  stats_file *s = state;
  s->has_slots = true;
  s->slots.n_columns = -1;
  return hec_scan_rows(&s->scan, &s->slots, "counts");
}

static hec_status read_map(void *state) {
  stats_file *s = state;
  s->has_map = true;
  s->map.n_columns = -1;
  return hec_scan_rows(&s->scan, &s->map, "logical experts");
}

static const hec_import_field fields[] = {
    {"record_type", true, .read = read_type},
    {"version", true, .at = offsetof(stats_file, version), .min = 1, .max = 1},
    {"model", false, .read = read_model},
    {"num_ranks", false, .at = offsetof(stats_file, ranks), .min = 1, .max = HEC_TRACE_DIMENSION_MAX},
    {"num_layers", false, .at = offsetof(stats_file, layers), .min = 1, .max = HEC_TRACE_DIMENSION_MAX},
    {"num_redundant_experts", false, .at = offsetof(stats_file, redundant), .max = HEC_TRACE_DIMENSION_MAX},
    {"step", false, .at = offsetof(stats_file, step), .max = HEC_IMPORT_STEP_MAX},
    {"expert_load", false, .read = read_slots},
    {"p2l_map", false, .read = read_map},
    {.key = NULL}};

static hec_status open_file(hec_import_file *file) {
  stats_file *s = file->state;
  s->meta_layers = s->meta_redundant = -1;
  return hec_import_scan(file, &s->scan);
}

static void close_file(void *state) {
  stats_file *s = state;
  hec_scan_end(&s->scan);
  hec_text_free(&s->text);
  hec_text_free(&s->model);
  free(s->slots.values);
  free(s->map.values);
  free(s->counts);
}

static hec_status lacks(const hec_import_file *file, const stats_file *s, const char *key) {
  return hec_import_fail(file, s->scan.line, key, "expected this key, found no such key");
}

static hec_status take_meta(hec_import_file *file, stats_file *s) {
  if (s->has_meta || s->has_stats)
    return hec_import_fail(file, s->scan.line, "record_type", "expected one eplb_load_meta, before all steps, found %s",
                           s->has_meta ? "a second one" : "it behind a step");
  if (s->layers < 0 || s->redundant < 0 || s->ranks < 0)
    return lacks(file, s, s->layers < 0 ? "num_layers" : s->redundant < 0 ? "num_redundant_experts" : "num_ranks");
  s->has_meta = true;
  s->meta_layers = s->layers;
  s->meta_redundant = s->redundant;
  HEC_TRY(hec_import_set_ranks(file, s->scan.line, "num_ranks", s->ranks));
  if (file->kept > 0 && s->redundant != file->kept - 1)
    return hec_import_fail(file, s->scan.line, "num_redundant_experts",
                           "expected %" PRId64 " (as before), found %" PRId64, file->kept - 1, s->redundant);
  file->kept = s->redundant + 1; /* of the file before, from 1 */
  if (s->model.length > 0)
    return hec_import_set_model(file, s->scan.line, "model", s->model.data);
  return HEC_OK;
}

/* How many logical experts there are: slots less redundant ones, else the highest that the map names. */
static hec_status set_experts(hec_import_file *file, stats_file *s) {
  int64_t n = s->slots.n_columns - s->meta_redundant, max = -1;
  if (s->has_meta && n < 1)
    return hec_import_fail(file, s->scan.line, "expert_load",
                           "expected more slots than the %" PRId64 " of num_redundant_experts, found %" PRId64,
                           s->meta_redundant, s->slots.n_columns);
  if (s->has_meta)
    return hec_import_set_experts(file, s->scan.line, "expert_load (slots less num_redundant_experts)", n);
  if (hec_import_experts(file->job) > 0)
    return HEC_OK;
  for (int64_t i = 0; i < s->map.n_rows * s->map.n_columns; i++)
    max = s->map.values[i] > max ? s->map.values[i] : max;
  hec_import_assume(file->job, "experts: %" PRId64 ", the highest of the first p2l_map (--experts)", max + 1);
  return hec_import_set_experts(file, s->scan.line, "p2l_map (highest expert)", max + 1);
}

static hec_status take_stats(hec_import_file *file, stats_file *s) {
  if (!s->has_meta && s->ranks < 0)
    return hec_import_fail(file, s->scan.line, "record_type", "expected eplb_load_meta first, found a step");
  if (s->step < 0 || !s->has_slots || !s->has_map)
    return lacks(file, s, s->step < 0 ? "step" : s->has_slots ? "p2l_map" : "expert_load");
  if (!s->has_meta)
    HEC_TRY(hec_import_set_ranks(file, s->scan.line, "num_ranks", s->ranks));
  s->has_stats = true;
  if (s->slots.n_rows == 0 || (s->has_meta && s->slots.n_rows != s->meta_layers))
    return hec_import_fail(file, s->scan.line, "expert_load", "expected %" PRId64 " layers, found %" PRId64,
                           s->has_meta ? s->meta_layers : 1, s->slots.n_rows);
  if (s->map.n_rows != s->slots.n_rows || s->map.n_columns != s->slots.n_columns)
    return hec_import_fail(file, s->scan.line, "p2l_map",
                           "expected %" PRId64 " x %" PRId64 " as of expert_load, found %" PRId64 " x %" PRId64,
                           s->slots.n_rows, s->slots.n_columns, s->map.n_rows, s->map.n_columns);
  return set_experts(file, s);
}

/* Slots of a layer to logical experts, each of which must have one. */
static hec_status gather(hec_import_file *file, stats_file *s) {
  uint32_t n = (uint32_t)hec_import_experts(file->job);
  const uint32_t *slots = s->slots.values + s->layer * s->slots.n_columns;
  const uint32_t *map = s->map.values + s->layer * s->map.n_columns;
  char field[64];
  HEC_RESERVE(s->counts, s->counts_capacity, 2 * (size_t)n);
  memset(s->counts, 0, 2 * (size_t)n * sizeof *s->counts);
  for (int64_t i = 0; i < s->slots.n_columns; i++) {
    bool known = map[i] < n;
    if (!known || slots[i] > UINT32_MAX - s->counts[map[i]]) {
      (void)snprintf(field, sizeof field, "%s[%" PRId64 "][%" PRId64 "]", known ? "expert_load" : "p2l_map", s->layer,
                     i);
      return known
                 ? hec_import_fail(file, s->scan.line, field, "expected sums up to %" PRIu32 ", found more", UINT32_MAX)
                 : hec_import_fail(file, s->scan.line, field,
                                   "expected a logical expert from 0 to %" PRIu32 ", found %" PRIu32, n - 1, map[i]);
    }
    s->counts[map[i]] += slots[i];
    s->counts[n + map[i]] = 1;
  }
  for (uint32_t e = 0; e < n; e++)
    if (s->counts[n + e] == 0) {
      (void)snprintf(field, sizeof field, "p2l_map[%" PRId64 "]", s->layer);
      return hec_import_fail(file, s->scan.line, field,
                             "expected a slot of every expert, found none of expert %" PRIu32, e);
    }
  return HEC_OK;
}

static hec_status read_record(hec_import_file *file, stats_file *s, bool *more) {
  do {
    s->type = NOTHING;
    s->step = s->ranks = s->layers = s->redundant = -1;
    s->has_slots = s->has_map = false;
    s->slots.n_rows = s->layer = 0;
    HEC_TRY(hec_import_line(file, &s->scan, fields, s, more));
    if (!*more)
      return HEC_OK;
    HEC_TRY(s->type == META ? take_meta(file, s) : take_stats(file, s));
  } while (s->type == META);
  return HEC_OK;
}

static hec_status next(hec_import_file *file, hec_import_row *row, bool *more) {
  stats_file *s = file->state;
  *more = true;
  if (s->layer == s->slots.n_rows)
    HEC_TRY(read_record(file, s, more));
  if (!*more)
    return HEC_OK;
  HEC_TRY(gather(file, s));
  *row = (hec_import_row){.step = s->step,
                          .layer = s->layer,
                          .source = -1,
                          .n = hec_import_experts(file->job),
                          .counts = s->counts,
                          .line = s->scan.line};
  s->layer++;
  return HEC_OK;
}

static bool recognise(const char *head, size_t n) {
  return head[0] == '{' && hec_import_has(head, n, "\"record_type\"") && hec_import_has(head, n, "\"eplb_load_");
}

const hec_importer hec_importer_vllm_eplb = {
    .name = "vllm-eplb",
    .summary = "vLLM, eplb_load_meta and eplb_load_stats records: counts per physical expert and its map",
    .source = "vLLM, pull request 41141",
    .pattern = "*.jsonl *.jsonl.gz *.json *.json.gz",
    .files = HEC_FILES_SEQUENCE,
    .phase = "prefill+decode",
    .recognise = recognise,
    .state_bytes = sizeof(stats_file),
    .open = open_file,
    .next = next,
    .close = close_file,
};
