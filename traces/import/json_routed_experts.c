/* Responses of inference servers as JSON or JSON Lines. The experts of every token are in base64 (RFC 4648) under the
 * key "routed_experts", wherever in a response. vLLM's is a .npy file (pull request 28284). SGLang's is int32
 * [tokens][layers][top_k] (meta_info.routed_experts, sgl_ext.routed_experts), whose shape the user says. Each such
 * text is a request; null is none. An object has the key once. If some of a response's "choices" have it,
 * those without are counted as left out. Other members are skipped; one request is in memory. */
#include "runtime/base/arena.h"
#include "runtime/base/nearest.h"
#include "traces/import/routed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY "routed_experts"

typedef struct {
  hec_scan scan;
  hec_text text;
  hec_import_bytes bytes; /* in it */
  hec_routed routed;
  char closing[HEC_SCAN_NESTING]; /* of what is open */
  bool first[HEC_SCAN_NESTING];
  bool met[HEC_SCAN_NESTING]; /* the key, in this object */
  int depth;
  int choices;               /* depth in the array "choices" that is open; 0: none is */
  int64_t n_met;             /* requests found or noted in the file */
  int64_t n_met_before;      /* likewise, when the choice began */
  int64_t n_with, n_without; /* choices of the array */
  int64_t n_found;           /* in this response */
  bool has_null;             /* likewise */
  char near[48];             /* likewise: a key whose name may be meant, "": none */
} responses;

static hec_status open_file(hec_import_file *file) {
  return hec_import_scan(file, &((responses *)file->state)->scan);
}

static void close_file(void *state) {
  responses *r = state;
  hec_scan_end(&r->scan);
  hec_text_free(&r->text);
  hec_routed_free(&r->routed);
}

static hec_status open_bracket(responses *r, int byte) {
  if (r->depth == HEC_SCAN_NESTING)
    return hec_scan_fail(&r->scan, "deeper nesting", "at most %d levels of nesting", HEC_SCAN_NESTING);
  r->scan.at++;
  if (byte == '[' && r->choices == 0 && strcmp(r->scan.key, "choices") == 0) {
    r->choices = r->depth + 1;
    r->n_with = r->n_without = 0;
  } else if (r->depth == r->choices) {
    r->n_met_before = r->n_met;
  }
  r->first[r->depth] = true;
  r->met[r->depth] = false;
  r->closing[r->depth++] = byte == '{' ? '}' : ']';
  return HEC_OK;
}

static void close_bracket(hec_import_file *file, responses *r) {
  r->depth--;
  if (r->choices > 0 && r->depth == r->choices) {
    r->n_with += r->n_met > r->n_met_before;
    r->n_without += r->n_met == r->n_met_before;
  } else if (r->choices > 0 && r->depth < r->choices) {
    for (int64_t i = 0; r->n_with > 0 && i < r->n_without; i++)
      hec_import_leave(file->job, HEC_LEFT_REQUEST, KEY ": missing", NULL, 0);
    r->choices = 0;
  }
}

/* The first bracket of a response. */
static hec_status open_response(responses *r, bool *more) {
  int byte = 0;
  r->scan.key[0] = 0;
  HEC_TRY(hec_scan_peek(&r->scan, &byte));
  *more = r->scan.at != r->scan.end;
  if (!*more)
    return HEC_OK;
  if (byte != '{' && byte != '[')
    return hec_scan_fail(&r->scan, NULL, "a response, which begins with '{'");
  r->n_found = 0;
  r->has_null = false;
  r->near[0] = 0;
  return open_bracket(r, byte);
}

static hec_status close_response(responses *r) {
  if (r->n_found > 0)
    return HEC_OK;
  char found[80] = "no such key";
  if (r->near[0] || r->has_null)
    (void)snprintf(found, sizeof found, r->has_null ? "null alone" : "no such key (but \"%s\")", r->near);
  (void)strcpy(r->scan.key, KEY);
  return hec_scan_fail(&r->scan, found, "this key in every response");
}

/* A request whose experts are missing, or stand under a key that is not quite it, is left out, but not silently. */
static hec_status note_key(hec_import_file *file, responses *r, int byte) {
  static const char *const known[] = {KEY};
  bool is = strcmp(r->scan.key, KEY) == 0;
  if (is && r->met[r->depth - 1])
    return hec_scan_fail(&r->scan, "a second one", "this key once");
  r->met[r->depth - 1] = r->met[r->depth - 1] || is;
  if (is && byte == 'n') {
    r->has_null = true;
    r->n_met++;
    hec_import_leave(file->job, HEC_LEFT_REQUEST, KEY ": null", NULL, 0);
  } else if (!is && byte == '"' && hec_nearest(r->scan.key, known, 1)) {
    hec_name_copy(r->near, sizeof r->near, r->scan.key);
    r->n_met++;
    hec_import_leave(file->job, HEC_LEFT_REQUEST, r->scan.key, known, 1);
  }
  return HEC_OK;
}

/* To the next text under the key, over what is open; *found false at the end of the response. */
static hec_status find_text(hec_import_file *file, responses *r, bool *found) {
  hec_scan *scan = &r->scan;
  int byte = 0;
  bool more = true;
  for (*found = false; r->depth > 0;) {
    HEC_TRY(hec_scan_more(scan, r->closing[r->depth - 1], &r->first[r->depth - 1], &more));
    if (!more) {
      close_bracket(file, r);
      continue;
    }
    bool member = r->closing[r->depth - 1] == '}';
    if (member)
      HEC_TRY(hec_scan_key(scan));
    HEC_TRY(hec_scan_peek(scan, &byte));
    if (member)
      HEC_TRY(note_key(file, r, byte));
    if (member && strcmp(scan->key, KEY) == 0 && byte != 'n' && byte != '{') {
      *found = true;
      r->n_found++;
      r->n_met++;
      return HEC_OK;
    }
    if (byte == '{' || byte == '[')
      HEC_TRY(open_bracket(r, byte));
    else
      HEC_TRY(hec_scan_skip(scan));
  }
  return close_response(r);
}

/* In place; the number of bytes, or -1. */
static int64_t decode_base64(char *text, size_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static signed char value[256];
  static bool ready;
  if (!ready) {
    memset(value, -1, sizeof value);
    for (int i = 0; i < 64; i++)
      value[(unsigned char)digits[i]] = (signed char)i;
    ready = true;
  }
  size_t m = 0, padding = 0;
  while (padding < 2 && padding < n && text[n - 1 - padding] == '=')
    padding++;
  if (n % 4 != 0)
    return -1;
  for (size_t i = 0; i < n; i += 4) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; k++) {
      int v = i + k < n - padding ? value[(unsigned char)text[i + k]] : 0;
      if (v < 0)
        return -1;
      bits = bits << 6 | (uint32_t)v;
    }
    for (size_t k = 0; k < 3 - (i + 4 == n ? padding : 0); k++)
      text[m++] = (char)(bits >> (16 - 8 * k) & 0xff);
  }
  return (int64_t)m;
}

/* Without a shape of their own: int32 [tokens][layers][top_k]. */
static hec_status raw_array(const hec_import_file *file, int64_t line, uint64_t n, hec_npy *array) {
  const hec_import_options *o = hec_import_options_of(file->job);
  if (o->layers == 0 || o->top_k == 0)
    return hec_import_fail(file, line, "routed_experts",
                           "expected --layers N and --top-k N, as bare numbers have no shape, found %s",
                           o->layers == 0 ? "no --layers" : "no --top-k");
  uint64_t row = 4 * (uint64_t)o->layers * (uint64_t)o->top_k;
  if (n % row != 0)
    return hec_import_fail(file, line, "routed_experts",
                           "expected a multiple of %" PRIu64 " bytes (4 x layers x top_k), found %" PRIu64, row, n);
  *array =
      (hec_npy){.shape = {(int64_t)(n / row), o->layers, o->top_k}, .n_dimensions = 3, .item = 4, .is_signed = true};
  return HEC_OK;
}

static hec_status begin_request(hec_import_file *file, responses *r, int64_t line) {
  hec_npy array = {.item = 0};
  const hec_reading *reading = NULL;
  HEC_TRY(hec_npy_is(r->text.data, (size_t)r->bytes.length) ? hec_npy_read(file, line, &r->bytes, &array)
                                                            : raw_array(file, line, r->bytes.length, &array));
  const hec_axes_case of = {.n = array.n_dimensions, .shape = array.shape, .ids = true, .documented = true};
  HEC_TRY(hec_axes_choose(file, line, "routed_experts", &of, &reading));
  return hec_routed_read(file, line, "routed_experts", &r->bytes, &array, reading, &r->routed);
}

static hec_status read_request(hec_import_file *file, responses *r, bool *more) {
  bool found = false;
  while (!found) {
    if (r->depth == 0)
      HEC_TRY(open_response(r, more));
    if (!*more)
      return HEC_OK;
    HEC_TRY(find_text(file, r, &found));
  }
  int64_t line = r->scan.line;
  HEC_TRY(hec_scan_long_text(&r->scan, HEC_ROUTED_BYTES_MAX, &r->text));
  int64_t n = decode_base64(r->text.data, r->text.length);
  if (n < 0)
    return hec_import_fail(file, line, "routed_experts", "expected base64, found other text");
  r->bytes = (hec_import_bytes){.input = file->input, .memory = r->text.data, .length = (uint64_t)n};
  return begin_request(file, r, line);
}

static hec_status next(hec_import_file *file, hec_import_row *row, bool *more) {
  responses *r = file->state;
  *more = true;
  if (r->routed.window == r->routed.n_windows)
    HEC_TRY(read_request(file, r, more));
  return *more ? hec_routed_next(file, &r->routed, row, more) : HEC_OK;
}

static bool recognise(const char *head, size_t n) {
  return (head[0] == '{' || head[0] == '[') && hec_import_has(head, n, "\"routed_experts\"");
}

const hec_importer hec_importer_json_routed_experts = {
    .name = "json-routed-experts",
    .summary =
        "vLLM, SGLang responses with routed_experts in base64 (.npy, or int32 with --layers, --top-k); transitions",
    .source = "vLLM, --enable-return-routed-experts; SGLang, return_routed_experts",
    .pattern = "*.jsonl *.jsonl.gz *.json *.json.gz",
    .files = HEC_FILES_SEQUENCE,
    .numbered = true,
    .paths = true,
    .axes = true,
    .tail = true,
    .counted = HEC_COUNTED_BEFORE_DROP,
    .phase = "prefill+decode",
    .recognise = recognise,
    .begin = hec_routed_begin,
    .state_bytes = sizeof(responses),
    .open = open_file,
    .next = next,
    .close = close_file,
};
