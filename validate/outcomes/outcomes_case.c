/* Reads an outcome case. One walk over the document, O(its length). */
#include "validate/outcomes/outcomes_case.h"

#include "models/json.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <string.h>

#define METHOD_KEY(key, text) #key,
const char *const hec_method_key[HEC_N_METHODS] = {HEC_METHOD_LIST(METHOD_KEY)};
#define METHOD_NAME(key, text) text,
const char *const hec_method_name[HEC_N_METHODS] = {HEC_METHOD_LIST(METHOD_NAME)};

enum { LAYERS_MAX = 1024, RANKS_MAX = 4096, LOAD_MAX = 1 << 30 };

/* An array of exactly n elements; `what` for the message. */
static hec_status want_array(const hec_json *json, const hec_json_value *value, int32_t n, const char *what) {
  if (hec_json_is_array(value) && hec_json_length(value) == n)
    return HEC_OK;
  char expected[96];
  (void)snprintf(expected, sizeof expected, "an array of %d %s", n, what);
  return hec_json_error(json, value, expected);
}

/* The member, which must be there. */
static hec_status want_member(const hec_json *json, const hec_json_value *object, const char *key,
                              const hec_json_value **out) {
  *out = hec_json_get(object, key);
  if (*out)
    return HEC_OK;
  char expected[96];
  (void)snprintf(expected, sizeof expected, "an object with a member \"%s\"", key);
  return hec_json_error(json, object, expected);
}

static hec_status read_int(const hec_json *json, const char *key, int32_t max, int32_t *out) {
  int64_t value;
  HEC_TRY(hec_json_want_int(json, hec_json_root(json), key, 1, max, &value));
  *out = (int32_t)value;
  return HEC_OK;
}

static hec_status read_sizes(const hec_json *json, hec_outcome_case *c) {
  const char *name;
  HEC_TRY(hec_json_want_text(json, hec_json_root(json), "name", &name));
  hec_name_copy(c->name, sizeof c->name, name);
  HEC_TRY(read_int(json, "layers", LAYERS_MAX, &c->n_layers));
  HEC_TRY(read_int(json, "ranks", RANKS_MAX, &c->n_ranks));
  HEC_TRY(read_int(json, "nodes", RANKS_MAX, &c->n_nodes));
  HEC_TRY(read_int(json, "gpus_per_node", RANKS_MAX, &c->devices_per_node));
  HEC_TRY(read_int(json, "top_k", 1024, &c->top_k));
  HEC_TRY(read_int(json, "expert_slots_per_rank", 1024, &c->slots));
  if ((int64_t)c->n_nodes * c->devices_per_node != c->n_ranks)
    return hec_json_error(json, hec_json_get(hec_json_root(json), "ranks"), "nodes * gpus_per_node");
  return HEC_OK;
}

/* Loads of one layer; their sum must be that of every other layer. */
static hec_status read_layer(const hec_json *json, const hec_json_value *layer, const hec_outcome_case *c, int32_t *to,
                             int64_t *total) {
  HEC_TRY(want_array(json, layer, c->n_ranks, "loads, one per rank"));
  int64_t sum = 0;
  for (const hec_json_value *v = hec_json_first(layer); v; v = hec_json_next(v)) {
    double load = hec_json_is_number(v) ? hec_json_number(v) : -1;
    if (!(load >= 0 && load <= LOAD_MAX) || (double)(int32_t)load != load)
      return hec_json_error(json, v, "a whole number from 0 to 1073741824");
    *to++ = (int32_t)load;
    sum += (int64_t)load;
  }
  if (*total < 0)
    *total = sum;
  if (sum != *total || sum == 0) {
    char expected[96];
    (void)snprintf(expected, sizeof expected, "loads that add up to %lld as in the first layer, and not to 0",
                   (long long)*total);
    return hec_json_error(json, layer, expected);
  }
  return HEC_OK;
}

/* Memory is asked for entry by entry, after its first layer: sizes that a file only claims cost little. */
static hec_status read_entry(const hec_json *json, const hec_json_value *entry, hec_arena *arena, hec_outcome_case *c,
                             int32_t index, int64_t *total) {
  for (int32_t m = 0; m < HEC_N_METHODS; m++) {
    const hec_json_value *layers;
    HEC_TRY(want_member(json, entry, hec_method_key[m], &layers));
    HEC_TRY(want_array(json, layers, c->n_layers, "layers"));
    HEC_TRY(want_array(json, hec_json_first(layers), c->n_ranks, "loads, one per rank"));
    int32_t *to = c->load[m][index] = HEC_NEW(arena, int32_t, (size_t)c->n_layers * (size_t)c->n_ranks);
    for (const hec_json_value *l = hec_json_first(layers); l; l = hec_json_next(l), to += c->n_ranks)
      HEC_TRY(read_layer(json, l, c, to, total));
  }
  return HEC_OK;
}

static hec_status read_entries(const hec_json *json, hec_arena *arena, hec_outcome_case *c) {
  const hec_json_value *entries;
  HEC_TRY(want_member(json, hec_json_root(json), "iterations", &entries));
  if (!hec_json_is_array(entries) || hec_json_length(entries) < 1)
    return hec_json_error(json, entries, "an array of at least one iteration");
  c->n_entries = hec_json_length(entries);
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    c->load[m] = HEC_NEW(arena, int32_t *, c->n_entries);
  int32_t index = 0;
  int64_t total = -1;
  for (const hec_json_value *e = hec_json_first(entries); e; e = hec_json_next(e))
    HEC_TRY(read_entry(json, e, arena, c, index++, &total));
  return HEC_OK;
}

static hec_status read_seconds(const hec_json *json, const hec_json_value *object, const char *key, int32_t n,
                               double *to, double *mean) {
  const hec_json_value *array;
  HEC_TRY(want_member(json, object, key, &array));
  HEC_TRY(want_array(json, array, n, "times in seconds, one per rank"));
  for (const hec_json_value *v = hec_json_first(array); v; v = hec_json_next(v)) {
    double seconds = hec_json_is_number(v) ? hec_json_number(v) : -1;
    if (!(seconds > 0 && seconds < 1e9))
      return hec_json_error(json, v, "seconds > 0");
    *to++ = seconds;
    *mean += seconds / n;
  }
  return HEC_OK;
}

static hec_status read_measured(const hec_json *json, hec_arena *arena, hec_outcome_case *c) {
  const hec_json_value *all, *one;
  HEC_TRY(want_member(json, hec_json_root(json), "measured_breakdown", &all));
  for (int32_t m = 0; m < HEC_N_METHODS; m++) {
    hec_outcome_measured *measured = &c->measured[m];
    HEC_TRY(want_member(json, all, hec_method_key[m], &one));
    measured->alltoall_s = HEC_NEW(arena, double, c->n_ranks);
    measured->expert_s = HEC_NEW(arena, double, c->n_ranks);
    HEC_TRY(
        read_seconds(json, one, "alltoall_s_per_rank", c->n_ranks, measured->alltoall_s, &measured->alltoall_mean_s));
    HEC_TRY(read_seconds(json, one, "expert_s_per_rank", c->n_ranks, measured->expert_s, &measured->expert_mean_s));
    HEC_TRY(hec_json_want_double(json, one, "step_s", 1e-9, 1e9, &measured->step_s));
  }
  return HEC_OK;
}

static hec_status read_end_to_end(const hec_json *json, hec_outcome_case *c) {
  const hec_json_value *rows = hec_json_get(hec_json_root(json), "measured_end_to_end");
  if (!rows)
    return HEC_OK;
  if (!hec_json_is_array(rows))
    return hec_json_error(json, rows, "an array");
  for (const hec_json_value *row = hec_json_first(rows); row; row = hec_json_next(row)) {
    const char *dataset, *method;
    double loss, ms;
    HEC_TRY(hec_json_want_text(json, row, "dataset", &dataset));
    HEC_TRY(hec_json_want_text(json, row, "method", &method));
    HEC_TRY(hec_json_want_double(json, row, "aux_loss", 0, 1e9, &loss));
    HEC_TRY(hec_json_want_double(json, row, "avg_iteration_ms", 1e-6, 1e12, &ms));
    for (int32_t m = 0; m < HEC_N_METHODS; m++)
      if (strcmp(dataset, "wikitext") == 0 && loss == 0 && strcmp(method, hec_method_key[m]) == 0)
        c->measured[m].end_to_end_s = ms * 1e-3;
  }
  return HEC_OK;
}

hec_status hec_outcome_case_read(const char *path, hec_arena *arena, hec_outcome_case *out) {
  *out = (hec_outcome_case){.n_layers = 0};
  HEC_OPENED(hec_json) *json = NULL;
  HEC_TRY(hec_json_read(path, &json));
  HEC_TRY(read_sizes(json, out));
  HEC_TRY(read_entries(json, arena, out));
  HEC_TRY(read_measured(json, arena, out));
  return read_end_to_end(json, out);
}
