/* Responses of inference servers as JSON or JSON Lines, with the experts of every token in base64 (RFC 4648) under the
 * key "routed_experts", wherever in a response: vLLM's is a .npy file (pull request 28284), SGLang's int32
 * [tokens][layers][top_k] (meta_info.routed_experts, sgl_ext.routed_experts), whose shape the user says. Each such text
 * is a request; null is none. Other members are skipped; one request is in memory. */
#include "runtime/base/arena.h"
#include "traces/import/routed.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  hec_scan scan;
  hec_text text;
  hec_import_bytes bytes; /* in it */
  hec_routed routed;
  char closing[HEC_SCAN_NESTING]; /* of what is open */
  bool first[HEC_SCAN_NESTING];
  int depth;
  int64_t n_found; /* in this response */
} responses;

static hec_status begin(hec_import *job, const hec_import_input *beside) {
  (void)beside;
  hec_routed_begin(job);
  return HEC_OK;
}

static hec_status open_file(hec_import_file *file) {
  hec_source *source = NULL;
  HEC_TRY(hec_import_source(file->input, &source));
  responses *r = memset(hec_malloc(1, sizeof(responses)), 0, sizeof(responses));
  file->state = r;
  return hec_scan_begin(&r->scan, source);
}

static void close_file(hec_import_file *file) {
  responses *r = file->state;
  if (!r)
    return;
  hec_scan_end(&r->scan);
  hec_text_free(&r->text);
  hec_routed_free(&r->routed);
  free(r);
}

static hec_status open_bracket(responses *r, int byte) {
  if (r->depth == HEC_SCAN_NESTING)
    return hec_scan_fail(&r->scan, "deeper nesting", "at most %d levels of nesting", HEC_SCAN_NESTING);
  r->scan.at++;
  r->first[r->depth] = true;
  r->closing[r->depth++] = byte == '{' ? '}' : ']';
  return HEC_OK;
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
  return open_bracket(r, byte);
}

static hec_status close_response(responses *r) {
  if (r->n_found > 0)
    return HEC_OK;
  (void)strcpy(r->scan.key, "routed_experts");
  return hec_scan_fail(&r->scan, "no such key", "this key in every response");
}

/* To the next text under the key, over what is open; *found false at the end of the response. */
static hec_status find_text(responses *r, bool *found) {
  hec_scan *scan = &r->scan;
  int byte = 0;
  bool more = true;
  for (*found = false; r->depth > 0;) {
    HEC_TRY(hec_scan_more(scan, r->closing[r->depth - 1], &r->first[r->depth - 1], &more));
    if (!more) {
      r->depth--;
      continue;
    }
    bool member = r->closing[r->depth - 1] == '}';
    if (member)
      HEC_TRY(hec_scan_key(scan));
    HEC_TRY(hec_scan_peek(scan, &byte));
    if (member && strcmp(scan->key, "routed_experts") == 0 && byte != 'n' && byte != '{') {
      *found = true;
      r->n_found++;
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

static hec_status read_request(hec_import_file *file, responses *r, bool *more) {
  bool found = false;
  while (!found) {
    if (r->depth == 0)
      HEC_TRY(open_response(r, more));
    if (!*more)
      return HEC_OK;
    HEC_TRY(find_text(r, &found));
  }
  int64_t line = r->scan.line;
  HEC_TRY(hec_scan_long_text(&r->scan, HEC_ROUTED_BYTES_MAX, &r->text));
  int64_t n = decode_base64(r->text.data, r->text.length);
  if (n < 0)
    return hec_import_fail(file, line, "routed_experts", "expected base64, found other text");
  r->bytes = (hec_import_bytes){.input = file->input, .memory = r->text.data, .length = (uint64_t)n};
  return hec_routed_read(file, line, "routed_experts", &r->bytes, &r->routed);
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
    .tail = true,
    .counted = HEC_COUNTED_BEFORE_DROP,
    .phase = "prefill+decode",
    .recognise = recognise,
    .begin = begin,
    .open = open_file,
    .next = next,
    .close = close_file,
};
