/* TensorRT-LLM's expert statistics (tensorrt_llm/_torch/expert_statistic.py; EXPERT_STATISTIC_ITER_RANGE, _PATH): a file
 * rank<r>.safetensors per rank and meta_info.json {"num_experts","num_experts_per_token"} beside them. In the former,
 *   [8 bytes: length n][n bytes: JSON {"<iteration>_<layer>":{"dtype":"I64","shape":[experts],"data_offsets":[b,e]},..}]
 *   [data]
 * the tensors are counts of the tokens that this source rank routes, before dispatch. They lie one behind the other and
 * fill the data: the format forbids holes, and who wrote bytes of two tensors wrote neither. The header is sorted by
 * (iteration, layer), the data is read tensor by tensor: the header is in memory, not the file. gzip is not undone here. */
#include "runtime/base/arena.h"
#include "traces/import/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 64 << 20 };

typedef struct {
  int64_t iter, at; /* at: from the beginning of the file */
  int32_t layer;
} tensor;

typedef struct {
  hec_import_bytes bytes;
  uint64_t data_at;
  tensor *tensors;
  size_t n, capacity, given;
  unsigned char *room; /* of a tensor */
  uint32_t *counts;
} safetensors;

/* ---- the header ---- */

/* "100_3" */
static bool read_key(const char *key, tensor *t) {
  size_t n = strspn(key, "0123456789"), m = key[n] == '_' ? strspn(key + n + 1, "0123456789") : 0;
  if (n == 0 || n > 15 || m == 0 || m > 6 || key[n + 1 + m] != 0)
    return false;
  t->iter = strtoll(key, NULL, 10);
  t->layer = (int32_t)strtol(key + n + 1, NULL, 10);
  return true;
}

/* Element i of an array of whole numbers. */
static bool element(const hec_json_value *array, int32_t i, int64_t *value) {
  const hec_json_value *v = array ? hec_json_first(array) : NULL;
  for (; v && i > 0; i--)
    v = hec_json_next(v);
  double number = v && hec_json_is_number(v) ? hec_json_number(v) : -1;
  if (!(number >= 0 && number < 0x1p53))
    return false;
  *value = (int64_t)number;
  return (double)*value == number;
}

static hec_status read_tensor(hec_import_file *file, safetensors *s, const hec_json_value *member) {
  const char *key = hec_json_key(member);
  char field[96];
  tensor t = {.iter = 0};
  int64_t begin = 0, end = 0, experts = 0;
  (void)snprintf(field, sizeof field, "%.40s", key);
  for (char *p = field; *p; p++)
    *p = (char)((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f ? '?' : *p);
  if (!read_key(key, &t) || t.layer >= 1 << 20)
    return hec_import_fail(file, 0, field, "expected a key <iteration>_<layer>, found another");
  bool object = hec_json_is_object(member);
  const hec_json_value *dtype = object ? hec_json_get(member, "dtype") : NULL;
  const hec_json_value *shape = object ? hec_json_get(member, "shape") : NULL;
  const hec_json_value *offsets = object ? hec_json_get(member, "data_offsets") : NULL;
  if (!dtype || !hec_json_is_string(dtype) || strcmp(hec_json_text(dtype), "I64") != 0) {
    (void)snprintf(field + strlen(field), 8, ".dtype");
    return hec_import_fail(file, 0, field, "expected I64, found %.16s",
                           dtype && hec_json_is_string(dtype) ? hec_json_text(dtype) : "no such text");
  }
  bool flat = shape && hec_json_is_array(shape) && hec_json_length(shape) == 1 && element(shape, 0, &experts);
  if (!flat || experts != hec_import_experts(file->job)) {
    (void)snprintf(field + strlen(field), 8, ".shape");
    return hec_import_fail(file, 0, field, "expected [%d] (experts), found another",
                           (int)hec_import_experts(file->job));
  }
  bool good = offsets && hec_json_is_array(offsets) && hec_json_length(offsets) == 2 && element(offsets, 0, &begin) &&
              element(offsets, 1, &end) && end - begin == 8 * experts && (uint64_t)end <= s->bytes.length - s->data_at;
  if (!good) {
    (void)snprintf(field + strlen(field), 16, ".data_offsets");
    return hec_import_fail(file, 0, field,
                           "expected [begin, end] inside the file, %" PRId64 " bytes apart, found others", 8 * experts);
  }
  t.at = (int64_t)s->data_at + begin;
  HEC_RESERVE(s->tensors, s->capacity, s->n + 1);
  s->tensors[s->n++] = t;
  return HEC_OK;
}

static int compare_tensors(const void *a, const void *b) {
  const tensor *x = a, *y = b;
  if (x->iter != y->iter)
    return x->iter < y->iter ? -1 : 1;
  return x->layer < y->layer ? -1 : x->layer > y->layer;
}

static int compare_places(const void *a, const void *b) {
  const tensor *x = a, *y = b;
  return x->at != y->at ? (x->at < y->at ? -1 : 1) : compare_tensors(a, b);
}

/* One behind the other, from the first byte of the data to the last. */
static hec_status check_places(const hec_import_file *file, safetensors *s) {
  int64_t end = (int64_t)s->data_at, size = 8 * (int64_t)hec_import_experts(file->job);
  if (s->n > 0)
    qsort(s->tensors, s->n, sizeof *s->tensors, compare_places);
  for (size_t i = 0; i < s->n; i++, end += size) {
    const tensor *t = &s->tensors[i];
    char field[64];
    (void)snprintf(field, sizeof field, "%" PRId64 "_%d.data_offsets", t->iter, (int)t->layer);
    if (t->at != end)
      return hec_import_fail(file, 0, field,
                             "expected to begin at %" PRId64 ", where the tensor before it ends, found %" PRId64,
                             end - (int64_t)s->data_at, t->at - (int64_t)s->data_at);
  }
  if ((uint64_t)end != s->bytes.length)
    return hec_import_fail(file, 0, "data_offsets",
                           "expected the file to end with the last tensor, found %" PRIu64 " bytes more",
                           s->bytes.length - (uint64_t)end);
  return HEC_OK;
}

static hec_status read_tensors(hec_import_file *file, safetensors *s, const hec_json *json) {
  const hec_json_value *root = hec_json_root(json);
  if (!hec_json_is_object(root))
    return hec_import_fail(file, 0, "header", "expected an object, found something else");
  for (const hec_json_value *m = hec_json_first(root); m; m = hec_json_next(m))
    if (strcmp(hec_json_key(m), "__metadata__") != 0)
      HEC_TRY(read_tensor(file, s, m));
  HEC_TRY(check_places(file, s));
  if (s->n > 0)
    qsort(s->tensors, s->n, sizeof *s->tensors, compare_tensors);
  return HEC_OK;
}

static hec_status read_header(hec_import_file *file, safetensors *s) {
  unsigned char room[8];
  const unsigned char *length = NULL, *header = NULL;
  uint64_t all = s->bytes.length, n = 0;
  if (all >= 8) {
    HEC_TRY(hec_import_bytes_at(&s->bytes, 0, 8, room, &length));
    n = hec_import_number(length, 8);
  }
  if (all < 8 || n > all - 8 || n > HEADER_MAX)
    return hec_import_fail(file, 0, "header",
                           "expected 8 bytes of length and a header so long (at most %d), found %" PRIu64
                           " bytes in all",
                           HEADER_MAX, all);
  char *text = hec_malloc((size_t)n + 1, 1);
  HEC_OPENED(hec_json) *json = NULL;
  s->data_at = 8 + n;
  hec_status status = hec_import_bytes_at(&s->bytes, 8, (size_t)n, text, &header);
  if (status == HEC_OK)
    status = hec_json_parse((const char *)header, (size_t)n, file->input->path, &json);
  free(text);
  if (status == HEC_OK)
    status = read_tensors(file, s, json);
  return status;
}

/* ---- the importer ---- */

static hec_status read_beside(hec_import_file *file, const hec_json *json) {
  int64_t experts = 0, top_k = 0;
  const hec_json_value *root = hec_json_root(json);
  if (!hec_json_is_object(root))
    return hec_import_fail(file, 0, "num_experts", "expected an object, found something else");
  HEC_TRY(hec_json_want_int(json, root, "num_experts", 1, HEC_TRACE_DIMENSION_MAX, &experts));
  HEC_TRY(hec_json_want_int(json, root, "num_experts_per_token", 1, HEC_TRACE_DIMENSION_MAX, &top_k));
  HEC_TRY(hec_import_set_experts(file, 0, "num_experts", experts));
  return hec_import_set_top_k(file, 0, "num_experts_per_token", top_k);
}

static hec_status begin(hec_import *job, const hec_import_input *beside) {
  const hec_import_options *o = hec_import_options_of(job);
  if (!beside && (o->experts == 0 || o->top_k == 0))
    return hec_fail(HEC_BAD_INPUT,
                    "%s: meta_info.json: expected this file beside it (or --experts N and --top-k N), found none",
                    hec_import_first(job)->path);
  if (!beside)
    return HEC_OK;
  HEC_OPENED(hec_json) *json = NULL;
  hec_import_file file = {.job = job, .input = beside};
  HEC_TRY(hec_import_read_json(beside, &json));
  return read_beside(&file, json);
}

static hec_status open_file(hec_import_file *file) {
  safetensors *s = file->state;
  HEC_TRY(hec_import_bytes_open(file->input, &s->bytes));
  HEC_TRY(read_header(file, s));
  size_t experts = (size_t)hec_import_experts(file->job);
  s->room = hec_malloc(experts, 8);
  s->counts = hec_malloc(experts, sizeof *s->counts);
  return HEC_OK;
}

static void close_file(void *state) {
  safetensors *s = state;
  hec_import_bytes_close(&s->bytes);
  free(s->tensors);
  free(s->room);
  free(s->counts);
}

static hec_status next(hec_import_file *file, hec_import_row *row, bool *more) {
  safetensors *s = file->state;
  *more = s->given < s->n;
  if (!*more)
    return HEC_OK;
  const tensor *t = &s->tensors[s->given++];
  int32_t experts = hec_import_experts(file->job);
  const unsigned char *found = NULL;
  HEC_TRY(hec_import_bytes_at(&s->bytes, (uint64_t)t->at, 8 * (size_t)experts, s->room, &found));
  for (int32_t e = 0; e < experts; e++) {
    uint64_t count = hec_import_number(found + 8 * (size_t)e, 8);
    char field[64];
    if (count > UINT32_MAX) {
      (void)snprintf(field, sizeof field, "%" PRId64 "_%d[%d]", t->iter, (int)t->layer, (int)e);
      return hec_import_fail(file, 0, field, "expected a count from 0 to %" PRIu32 ", found %" PRId64, UINT32_MAX,
                             (int64_t)count);
    }
    s->counts[e] = (uint32_t)count;
  }
  *row = (hec_import_row){.step = t->iter, .layer = t->layer, .source = -1, .n = experts, .counts = s->counts};
  return HEC_OK;
}

static bool recognise(const char *head, size_t n) {
  return n > 9 && head[8] == '{' && hec_import_number((const unsigned char *)head, 8) <= HEADER_MAX &&
         hec_import_has(head, n, "\"data_offsets\"");
}

const hec_importer hec_importer_trtllm = {
    .name = "trtllm",
    .summary = "TensorRT-LLM, rank<r>.safetensors and meta_info.json: tokens of each source rank per expert",
    .source = "TensorRT-LLM, tensorrt_llm/_torch/expert_statistic.py",
    .pattern = "rank*.safetensors",
    .beside = "meta_info.json",
    .files = HEC_FILES_ONE_PER_RANK,
    .counted = HEC_COUNTED_BEFORE_DROP,
    .phase = "prefill+decode",
    .recognise = recognise,
    .begin = begin,
    .state_bytes = sizeof(safetensors),
    .open = open_file,
    .next = next,
    .close = close_file,
};
