/* Requests of routed experts, longer than the window that the importer goes through them by. Counts and transitions beside
 * those that the test adds up itself, token by token. As .npy in memory and in a file, and as numbers in base64. Layers
 * that have only zeros in a request are dense, those that have them in a part of it are not. (Of several experts a
 * token has no two alike there: its part is expert 0 and the next ones.) */
#include "runtime/base/arena.h"
#include "tests/support/test.h"
#include "tests/traces/import_case.h"
#include "traces/import/import.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { REQUESTS = 2, LAYERS = 4, TOP_K = 3, EXPERTS = 9 };

typedef struct {
  int tokens[REQUESTS], layers, top_k, experts, item, dense; /* dense: a layer, -1: none */
  bool is_signed;
  uint32_t *ids[REQUESTS]; /* [tokens][layers][top_k] */
  uint32_t counts[REQUESTS][LAYERS][EXPERTS];
  uint64_t transitions[LAYERS][EXPERTS][EXPERTS]; /* into a layer, from the one before that is not dense */
} requests;

/* top_k experts of a token, all different. */
static void draw(const requests *r, uint64_t *seed, bool first_ones, uint32_t *ids) {
  if (!first_ones)
    hec_test_distinct(seed, r->experts, r->top_k, ids);
  for (int k = 0; first_ones && k < r->top_k; k++)
    ids[k] = (uint32_t)k;
}

static void count(requests *r, int q) {
  const uint32_t *id = r->ids[q];
  for (int t = 0; t < r->tokens[q]; t++, id += r->layers * r->top_k)
    for (int l = 0, before = -1; l < r->layers; l++) {
      if (l == r->dense)
        continue;
      for (int k = 0; k < r->top_k; k++) {
        r->counts[q][l][id[l * r->top_k + k]]++;
        for (int b = 0; before >= 0 && b < r->top_k; b++)
          r->transitions[l][id[before * r->top_k + b]][id[l * r->top_k + k]]++;
      }
      before = l;
    }
}

static void make(requests *r, uint64_t seed) {
  static const int items[] = {1, 2, 4, 8};
  *r = (requests){.layers = 2 + (int)hec_test_below(&seed, LAYERS - 1),
                  .top_k = 1 + (int)hec_test_below(&seed, TOP_K),
                  .experts = 2 + (int)hec_test_below(&seed, EXPERTS - 1),
                  .item = items[hec_test_below(&seed, 4)],
                  .is_signed = hec_test_below(&seed, 2) == 1,
                  .dense = -1};
  r->top_k = r->top_k < r->experts ? r->top_k : r->experts;
  if (r->top_k > 1 && hec_test_below(&seed, 2) == 1)
    r->dense = (int)hec_test_below(&seed, (uint64_t)r->layers);
  for (int q = 0; q < REQUESTS; q++) {
    int n = 100 + (int)hec_test_below(&seed, 60000), from[LAYERS], until[LAYERS];
    r->tokens[q] = n;
    for (int l = 0; l < r->layers; l++) {
      bool some = hec_test_below(&seed, 3) == 0;
      from[l] = hec_test_below(&seed, 2) == 0 ? 0 : (int)hec_test_below(&seed, (uint64_t)n);
      until[l] = some ? (from[l] == 0 ? n - 1 - (int)hec_test_below(&seed, 50) : n) : 0;
    }
    r->ids[q] = calloc((size_t)(n * r->layers * r->top_k), sizeof *r->ids[q]);
    uint32_t *to = r->ids[q];
    for (int t = 0; t < n; t++)
      for (int l = 0; l < r->layers; l++, to += r->top_k)
        if (l != r->dense)
          draw(r, &seed, t >= from[l] && t < until[l], to);
    for (int l = 0; l < r->layers && r->top_k == 1; l++) /* one of the last tokens goes somewhere */
      r->ids[q][(n - 1) * r->layers + l] = 1;
    count(r, q);
  }
}

static void add_numbers(const requests *r, int q, int item, hec_text *text) {
  size_t n = (size_t)r->tokens[q] * (size_t)r->layers * (size_t)r->top_k;
  for (size_t i = 0; i < n; i++) {
    char bytes[8] = {(char)r->ids[q][i]};
    hec_text_add_bytes(text, bytes, (size_t)item);
  }
}

static void add_npy(const requests *r, int q, hec_text *text) {
  char type[8], shape[48];
  (void)snprintf(type, sizeof type, "%c%c%d", r->item == 1 ? '|' : '<', r->is_signed ? 'i' : 'u', r->item);
  (void)snprintf(shape, sizeof shape, "(%d, %d, %d)", r->tokens[q], r->layers, r->top_k);
  hec_test_npy_header(text, type, shape);
  add_numbers(r, q, r->item, text);
}

static void add_base64(const hec_text *bytes, hec_text *text) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const unsigned char *p = (const unsigned char *)bytes->data;
  for (size_t i = 0, n = bytes->length; i < n; i += 3) {
    uint32_t bits = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
    char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63], i + 1 < n ? digits[bits >> 6 & 63] : '=',
                    i + 2 < n ? digits[bits & 63] : '='};
    hec_text_add_bytes(text, four, 4);
  }
}

static void check_header(const requests *r, hec_import *job) {
  hec_trace_header header;
  int layer[LAYERS], n = 0;
  hec_import_header(job, &header);
  for (int l = 0; l < r->layers; l++)
    if (l != r->dense)
      layer[n++] = l;
  ck_assert_int_eq(header.n_layers, n);
  ck_assert_int_eq(header.transitions != NULL, n > 1);
  for (int i = 1; i < n; i++)
    for (int a = 0; a < r->experts; a++)
      for (int b = 0; b < r->experts; b++)
        ck_assert_uint_eq(header.transitions[((i - 1) * r->experts + a) * r->experts + b],
                          r->transitions[layer[i]][a][b]);
}

/* A request is an iteration, or with --ranks a source of the only one. */
static void check(const requests *r, const char *format, const hec_import_input *inputs, int n, bool by_ranks) {
  hec_import_options options = {
      .experts = r->experts, .last_step = -1, .ranks = by_ranks ? REQUESTS : 0, .axes = "tokens,layers,top_k"};
  HEC_OPENED(hec_import) *job = NULL;
  hec_import_record record;
  bool more = true;
  if (strcmp(format, "json-routed-experts") == 0) {
    options.layers = r->layers;
    options.top_k = r->top_k;
  }
  ck_ok(hec_import_begin(hec_importer_find(format), &options, inputs, n, &job));
  for (int q = 0; q < REQUESTS; q++) {
    if (q == 0 || !by_ranks)
      ck_assert_msg(hec_import_next(job, &record, &more) == HEC_OK && more, "%s", hec_last_error());
    for (int l = 0, i = 0; l < r->layers; l++) {
      if (l == r->dense)
        continue;
      ck_assert_int_lt(i, record.load.n_layers);
      const uint32_t *row = hec_load_row(&record.load, i++, by_ranks ? q : 0);
      for (int e = 0; e < r->experts; e++)
        ck_assert_uint_eq(row[e], r->counts[q][l][e]);
    }
  }
  ck_assert(hec_import_next(job, &record, &more) == HEC_OK && !more);
  check_header(r, job);
}

static void check_files(const requests *r, const hec_text npy[REQUESTS]) {
  char paths[REQUESTS][32];
  hec_import_input inputs[REQUESTS];
  for (int q = 0; q < REQUESTS; q++) {
    (void)snprintf(paths[q], sizeof paths[q], "/tmp/%d-hecate-XXXXXX", q);
    int file = mkstemp(paths[q]);
    ck_assert(file >= 0 && write(file, npy[q].data, npy[q].length) == (ssize_t)npy[q].length);
    (void)close(file);
    inputs[q] = (hec_import_input){.path = paths[q]};
  }
  check(r, "npy-routed-experts", inputs, REQUESTS, false);
  for (int q = 0; q < REQUESTS; q++)
    (void)remove(paths[q]);
}

HEC_TEST_LOOP(requests_of_many_windows, 24) {
  static requests r;
  HEC_SCOPED(hec_text) json = {0};
  hec_text npy[REQUESTS] = {{0}};
  hec_import_input inputs[REQUESTS];
  make(&r, (uint64_t)_i + 1);
  for (int q = 0; q < REQUESTS; q++) {
    HEC_SCOPED(hec_text) numbers = {0};
    add_npy(&r, q, &npy[q]);
    inputs[q] =
        (hec_import_input){.path = q == 0 ? "d/r-0.npy" : "d/r-1.npy", .bytes = npy[q].data, .length = npy[q].length};
    add_numbers(&r, q, 4, &numbers);
    hec_text_add(&json, "{\"routed_experts\": \"");
    add_base64(&numbers, &json);
    hec_text_add(&json, "\"}\n");
  }
  check(&r, "npy-routed-experts", inputs, REQUESTS, _i % 2 == 0);
  check_files(&r, npy);
  inputs[0] = (hec_import_input){.path = "d/a.jsonl", .bytes = json.data, .length = json.length};
  check(&r, "json-routed-experts", inputs, 1, _i % 2 == 1);
  for (int q = 0; q < REQUESTS; q++) {
    hec_text_free(&npy[q]);
    free(r.ids[q]);
  }
}

/* Of the first request's file; frees both. */
static void refused(requests *r, hec_text *npy, const char *wanted) {
  HEC_OPENED(hec_import) *job = NULL;
  hec_import_record record;
  bool more = true;
  hec_import_input input = {.path = "d/r.npy", .bytes = npy->data, .length = npy->length};
  hec_import_options options = {.experts = r->experts, .last_step = -1, .axes = "tokens,layers,top_k"};
  ck_ok(hec_import_begin(hec_importer_find("npy-routed-experts"), &options, &input, 1, &job));
  ck_assert(hec_import_next(job, &record, &more) == HEC_BAD_INPUT && !more);
  ck_assert_str_eq(hec_last_error(), wanted);
  hec_text_free(npy);
  for (int q = 0; q < REQUESTS; q++)
    free(r->ids[q]);
}

/* A number that is too large is found wherever it is, before a row is given, and the message names its place. */
HEC_TEST_LOOP(a_wrong_number_is_named, 12) {
  static requests r;
  uint64_t seed = (uint64_t)_i + 100;
  hec_text npy = {0};
  char wanted[256];
  make(&r, seed);
  add_npy(&r, 0, &npy);
  int t = (int)hec_test_below(&seed, (uint64_t)r.tokens[0]), l = (int)hec_test_below(&seed, (uint64_t)r.layers),
      k = (int)hec_test_below(&seed, (uint64_t)r.top_k);
  npy.data[128 + (((size_t)t * (size_t)r.layers + (size_t)l) * (size_t)r.top_k + (size_t)k) * (size_t)r.item] =
      (char)r.experts;
  (void)snprintf(
      wanted, sizeof wanted,
      "d/r.npy: experts[%d][%d][%d]: expected an expert from 0 to %d, found %d; if these are counts of tokens: --axes "
      "steps,layers,experts or layers,experts",
      t, l, k, r.experts - 1, r.experts);
  refused(&r, &npy, wanted);
}

/* A token with an expert twice, as one that was not recorded has (zeros), is found wherever it is, but in a dense layer. */
HEC_TEST_LOOP(a_repeated_expert_is_named, 12) {
  static requests r;
  uint64_t seed = (uint64_t)_i + 100;
  hec_text npy = {0};
  char wanted[128];
  for (make(&r, seed++); r.top_k == 1; make(&r, seed++))
    for (int q = 0; q < REQUESTS; q++)
      free(r.ids[q]);
  int t = (int)hec_test_below(&seed, (uint64_t)r.tokens[0]), l = (r.dense + 1) % r.layers;
  uint32_t *ids = r.ids[0] + (t * r.layers + l) * r.top_k, again = _i % 2 == 0 ? 0 : ids[0];
  for (int k = 0; k < r.top_k; k++)
    ids[k] = _i % 2 == 0 ? 0 : k == r.top_k - 1 ? again : ids[k];
  add_npy(&r, 0, &npy);
  (void)snprintf(wanted, sizeof wanted,
                 "d/r.npy: experts[%d][%d]: expected %d different experts of a token, found %d twice", t, l, r.top_k,
                 (int)again);
  refused(&r, &npy, wanted);
}

/* A request without tokens is a step without any. */
HEC_TEST(a_request_may_be_empty) {
  requests r = {.tokens = {0, 1}, .layers = 2, .top_k = 2, .experts = 3, .item = 1, .dense = -1};
  uint32_t ids[] = {0, 1, 2, 0};
  hec_text npy[REQUESTS] = {{0}};
  HEC_OPENED(hec_import) *job = NULL;
  hec_import_record record;
  bool more = true;
  hec_import_input inputs[REQUESTS];
  hec_import_options options = {.experts = 3, .last_step = -1, .axes = "tokens,layers,top_k"};
  for (int q = 0; q < REQUESTS; q++) {
    r.ids[q] = ids;
    add_npy(&r, q, &npy[q]);
    inputs[q] =
        (hec_import_input){.path = q == 0 ? "d/r-0.npy" : "d/r-1.npy", .bytes = npy[q].data, .length = npy[q].length};
  }
  ck_ok(hec_import_begin(hec_importer_find("npy-routed-experts"), &options, inputs, REQUESTS, &job));
  ck_assert_msg(hec_import_next(job, &record, &more) == HEC_OK && more, "%s", hec_last_error());
  ck_assert_int_eq(record.iter, 1);
  ck_assert_mem_eq(record.load.counts, ((uint32_t[]){1, 1, 0, 1, 0, 1}), 6 * sizeof(uint32_t));
  ck_assert(hec_import_next(job, &record, &more) == HEC_OK && !more);
  for (int q = 0; q < REQUESTS; q++)
    hec_text_free(&npy[q]);
}
