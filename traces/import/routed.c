/* A request lies in its file as [tokens][layers][top_k]; layers are what is counted. It is gone through twice, a
 * window of tokens at a time. First every number is checked, and the layers are found that the server routed. Then
 * rows are given, layer by layer of a window. The requests are sources. With --ranks R, requests R*i .. R*i+R-1 are
 * iteration i, as if each rank ran one. Without it each is an iteration. A layer whose ids are all 0 although a token
 * has several experts is one that the server did not route: a dense layer. It gets no tokens. In other layers a
 * token's experts differ: one that has zeros there was not recorded, and is an error. Ids say nothing of how many
 * experts there are (--experts). Where layers are the first axis (--axes), all of the request is in memory, with
 * tokens first. */
#include "traces/import/routed.h"

#include "traces/import/job.h"

#include "runtime/base/arena.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layer's numbers of a window stay in the second cache; a window that is read from a file is of so many bytes. */
enum { WINDOW_IDS = 1 << 15, WINDOW_BYTES = 4 << 20 };

void hec_routed_free(hec_routed *routed) {
  free(routed->is_routed);
  free(routed->room);
  free(routed->ids);
  free(routed->ids_before);
  free(routed->counts);
  free(routed->counts_before);
  free(routed->last);
  hec_text_free(&routed->turned.text);
}

static int64_t sources_of(const hec_import *job) {
  int64_t ranks = hec_import_options_of(job)->ranks;
  return ranks > 0 ? ranks : 1;
}

hec_status hec_routed_begin(hec_import *job, const hec_import_input *beside) {
  (void)beside;
  hec_import_set_sources(job, (int32_t)sources_of(job));
  return HEC_OK;
}

/* ---- numbers ---- */

/* What numbers are below: the experts; a negative one is above all others of its size. */
static uint64_t limit_of(const hec_import_file *file, const hec_routed *r) {
  uint64_t n_experts = (uint64_t)hec_import_experts(file->job), half = UINT64_C(1) << (8 * r->item - 1);
  return r->is_signed && half < n_experts ? half : n_experts;
}

static hec_status wrong_number(hec_import_file *file, const char *field, const hec_routed *r, int64_t i, uint64_t id) {
  char place[128], found[32];
  int64_t row = r->n_layers * r->top_k, t = r->window * r->n_window + i / row, l = i % row / r->top_k;
  bool turned = r->bytes == &r->turned;
  bool negative = r->is_signed && id >> (8 * r->item - 1) != 0;
  (void)snprintf(place, sizeof place, "%s[%" PRId64 "][%" PRId64 "][%" PRId64 "]", field, turned ? l : t,
                 turned ? t : l, i % r->top_k);
  (void)snprintf(found, sizeof found, "%" PRIu64, id);
  return hec_import_fail(file, r->line, place, "expected an expert from 0 to %d, found %s%s",
                         (int)hec_import_experts(file->job) - 1, negative ? "a negative number" : found,
                         file->job->format->axes ? "; if these are counts of tokens: --axes steps,layers,experts or "
                                                   "layers,experts"
                                                 : "");
}

/* The first of n numbers that is not below the limit, n: none. */
static inline int64_t find_wrong(const unsigned char *p, int64_t n, int item, uint64_t limit) {
  bool any = false;
  for (int64_t i = 0; i < n; i++)
    any |= hec_import_number(p + i * item, item) >= limit;
  int64_t i = any ? 0 : n;
  while (i < n && hec_import_number(p + i * item, item) < limit)
    i++;
  return i;
}

/* Top-k chooses k different experts, so a token with one twice was not recorded, or was put together wrongly. */
static hec_status repeated_expert(hec_import_file *file, const hec_routed *r) {
  const uint32_t *id = r->ids;
  char place[64];
  int64_t t = 0, a = 0, b = 1, k = r->top_k;
  while (id[a] != id[b]) { /* there is one: the first */
    if (++b == k)
      b = ++a + 1;
    if (b == k) {
      a = 0;
      b = 1;
      id += k;
      t++;
    }
  }
  t += r->window * r->n_window;
  bool turned = r->bytes == &r->turned;
  (void)snprintf(place, sizeof place, "%s[%" PRId64 "][%" PRId64 "]", r->field, turned ? r->layer : t,
                 turned ? t : r->layer);
  return hec_import_fail(file, r->line, place,
                         "expected %" PRId64 " different experts of a token, found %" PRIu32 " twice", k, id[a]);
}

/* The window's numbers of a layer, and how many of each; those above the limit (the file has changed) count as 0. */
static inline bool take_layer(hec_routed *r, int64_t n_tokens, int item, uint64_t limit) {
  int64_t k = r->top_k;
  uint32_t *to = r->ids, *counts = r->counts;
  uint32_t *last = r->last;
  bool good = true, repeats = false;
  for (int64_t t = 0; t < n_tokens; t++) {
    const unsigned char *p = r->numbers + (t * r->n_layers + r->layer) * k * item;
    for (int64_t i = 0; i < k; i++) {
      uint64_t id = hec_import_number(p + i * item, item);
      good &= id < limit;
      id = id < limit ? id : 0;
      *to++ = (uint32_t)id;
      counts[id]++;
      repeats |= last[id] == (uint32_t)t + 1;
      last[id] = (uint32_t)t + 1;
    }
  }
  r->repeats = repeats;
  return good;
}

static int64_t find_wrong_of(const hec_routed *r, const unsigned char *p, int64_t n, uint64_t limit) {
  switch (r->item) {
  case 1:
    return find_wrong(p, n, 1, limit);
  case 2:
    return find_wrong(p, n, 2, limit);
  case 4:
    return find_wrong(p, n, 4, limit);
  default:
    return find_wrong(p, n, 8, limit);
  }
}

static bool take_layer_of(hec_routed *r, int64_t n_tokens, uint64_t limit) {
  switch (r->item) {
  case 1:
    return take_layer(r, n_tokens, 1, limit);
  case 2:
    return take_layer(r, n_tokens, 2, limit);
  case 4:
    return take_layer(r, n_tokens, 4, limit);
  default:
    return take_layer(r, n_tokens, 8, limit);
  }
}

/* Is a number of the layer not 0? */
static bool any_number(const hec_routed *r, int64_t layer, int64_t n_tokens) {
  int64_t n = r->top_k * r->item;
  for (int64_t t = 0; t < n_tokens; t++) {
    const unsigned char *p = r->numbers + (t * r->n_layers + layer) * n;
    for (int64_t i = 0; i < n; i++)
      if (p[i] != 0)
        return true;
  }
  return false;
}

/* ---- windows ---- */

static int64_t tokens_of(const hec_routed *r) {
  int64_t left = r->n_tokens - r->window * r->n_window;
  return left < r->n_window ? left : r->n_window;
}

static hec_status read_window(hec_routed *r) {
  size_t row = (size_t)(r->n_layers * r->top_k * r->item);
  return hec_import_bytes_at(r->bytes, r->data_at + (uint64_t)(r->window * r->n_window) * row,
                             (size_t)tokens_of(r) * row, r->room, &r->numbers);
}

/* Of a window as many tokens as are said above, but not fewer than make a row of counts worth while. */
static void make_windows(hec_routed *r, size_t n_experts) {
  size_t row = (size_t)(r->n_layers * r->top_k * r->item), k = (size_t)r->top_k;
  size_t n = (n_experts > WINDOW_IDS ? n_experts : WINDOW_IDS) / k, max = WINDOW_BYTES / row;
  n = n < max ? n : max;
  n = n > 0 ? n : 1;
  n = n < (size_t)r->n_tokens ? n : (size_t)r->n_tokens;
  r->n_window = (int64_t)n;
  r->n_windows = n > 0 ? (r->n_tokens + r->n_window - 1) / r->n_window : 1;
  HEC_RESERVE(r->is_routed, r->routed_capacity, r->n_layers);
  HEC_RESERVE(r->ids, r->ids_capacity, n * k + 1);
  HEC_RESERVE(r->ids_before, r->before_capacity, n * k + 1);
  HEC_RESERVE(r->room, r->room_capacity, r->bytes->file ? n * row : 0);
  if (!r->counts)
    r->counts = hec_malloc(n_experts, sizeof *r->counts);
  if (!r->counts_before)
    r->counts_before = hec_malloc(n_experts, sizeof *r->counts_before);
  if (!r->last)
    r->last = hec_malloc(n_experts, sizeof *r->last);
}

static hec_status check_windows(hec_import_file *file, const char *field, hec_routed *r) {
  uint64_t limit = limit_of(file, r);
  for (int64_t l = 0; l < r->n_layers; l++)
    r->is_routed[l] = r->top_k == 1;
  for (r->window = 0; r->window < r->n_windows; r->window++) {
    HEC_TRY(read_window(r));
    int64_t n = tokens_of(r) * r->n_layers * r->top_k, wrong = find_wrong_of(r, r->numbers, n, limit);
    if (wrong < n)
      return wrong_number(file, field, r, wrong, hec_import_number(r->numbers + wrong * r->item, r->item));
    for (int64_t l = 0; l < r->n_layers; l++)
      r->is_routed[l] = r->is_routed[l] || any_number(r, l, tokens_of(r));
  }
  return HEC_OK;
}

/* Layers first into tokens first. */
static hec_status turn(hec_routed *r) {
  size_t token = (size_t)(r->top_k * r->item), n_tokens = (size_t)r->n_tokens, n_layers = (size_t)r->n_layers;
  size_t n = token * n_tokens * n_layers;
  unsigned char *room = hec_malloc(n + 1, 1), *to = hec_malloc(n + 1, 1);
  const unsigned char *from = room;
  hec_status status = hec_import_bytes_at(r->bytes, r->data_at, n, room, &from);
  for (size_t l = 0; status == HEC_OK && l < n_layers; l++)
    for (size_t t = 0; t < n_tokens; t++)
      memcpy(to + (t * n_layers + l) * token, from + (l * n_tokens + t) * token, token);
  free(room);
  hec_text_free(&r->turned.text);
  r->turned = (hec_import_bytes){.input = r->bytes->input, .memory = (char *)to, .length = n};
  r->turned.text = (hec_text){.data = (char *)to, .length = n, .capacity = n + 1};
  r->bytes = &r->turned;
  r->data_at = 0;
  return status;
}

static int64_t size_of(const hec_npy *array, const hec_reading *reading, hec_axis axis) {
  int place = hec_reading_place(reading, axis);
  return place < 0 ? 1 : array->shape[place];
}

hec_status hec_routed_read(hec_import_file *file, int64_t line, const char *field, const hec_import_bytes *bytes,
                           const hec_npy *array, const hec_reading *reading, hec_routed *r) {
  int64_t layers = hec_import_options_of(file->job)->layers;
  int64_t n_layers = size_of(array, reading, HEC_AXIS_LAYERS), top_k = size_of(array, reading, HEC_AXIS_TOP_K);
  r->window = r->n_windows = 0;
  if (n_layers < 1 || n_layers > HEC_IMPORT_LAYERS_MAX || (layers > 0 && layers != n_layers))
    return hec_import_fail(file, line, "shape", "expected %" PRId64 " layers, found %" PRId64, layers > 0 ? layers : 1,
                           n_layers);
  HEC_TRY(hec_import_set_top_k(file, line, "shape (top_k)", top_k));
  if (hec_import_experts(file->job) == 0)
    return hec_import_fail(file, line, "experts", "expected --experts N, as only ids were recorded");
  HEC_TRY(hec_npy_check_length(file, line, bytes, array, HEC_ROUTED_BYTES_MAX));
  hec_axes_keep_sizes(file->job, reading, array->shape);
  if (sources_of(file->job) == 1)
    hec_import_assume(file->job, "every request is an iteration (--ranks R: so many are the sources of one)");
  r->bytes = bytes;
  r->field = field;
  r->data_at = array->data_at;
  r->item = array->item;
  r->is_signed = array->is_signed;
  r->n_tokens = size_of(array, reading, HEC_AXIS_TOKENS);
  r->n_layers = n_layers;
  r->top_k = top_k;
  r->line = line;
  r->layer = 0;
  r->layer_before = -1;
  if (reading->axis[0] == HEC_AXIS_LAYERS)
    HEC_TRY(turn(r));
  make_windows(r, (size_t)hec_import_experts(file->job));
  HEC_TRY(check_windows(file, field, r));
  r->window = 0;
  return HEC_OK;
}

/* ---- rows ---- */

static void swap_layers(hec_routed *r) {
  uint32_t *ids = r->ids, *counts = r->counts;
  size_t capacity = r->ids_capacity;
  r->ids = r->ids_before;
  r->ids_capacity = r->before_capacity;
  r->counts = r->counts_before;
  r->ids_before = ids;
  r->before_capacity = capacity;
  r->counts_before = counts;
}

hec_status hec_routed_next(hec_import_file *file, hec_routed *r, hec_import_row *row, bool *more) {
  size_t n_experts = (size_t)hec_import_experts(file->job);
  *more = r->window < r->n_windows;
  if (!*more)
    return HEC_OK;
  if (r->layer == 0 && r->n_windows > 1)
    HEC_TRY(read_window(r));
  if (r->layer > 0 && r->layer_before == r->layer - 1)
    swap_layers(r);
  memset(r->counts, 0, n_experts * sizeof *r->counts);
  *row = (hec_import_row){.step = file->kept / sources_of(file->job),
                          .layer = r->layer,
                          .source = (int32_t)(file->kept % sources_of(file->job)),
                          .n = (int32_t)n_experts,
                          .counts = r->counts,
                          .goes_on = r->window > 0,
                          .line = r->line};
  if (r->is_routed[r->layer]) {
    memset(r->last, 0, n_experts * sizeof *r->last);
    if (!take_layer_of(r, tokens_of(r), limit_of(file, r)))
      return hec_import_fail(file, r->line, "experts", "expected the numbers that were there, found others");
    if (r->repeats)
      return repeated_expert(file, r);
    row->ids = r->ids;
    row->ids_before = r->layer_before >= 0 ? r->ids_before : NULL;
    row->counts_before = r->counts_before;
    row->layer_before = r->layer_before;
    row->n_tokens = tokens_of(r);
    r->layer_before = r->layer;
  }
  if (++r->layer < r->n_layers)
    return HEC_OK;
  r->layer = 0;
  r->layer_before = -1;
  r->window++;
  file->kept += r->window == r->n_windows;
  return HEC_OK;
}
