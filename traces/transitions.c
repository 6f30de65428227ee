/* Transitions between layers: tokens of expert a in a layer and expert b in the next. In a model of many experts most
 * pairs have none, so a row may be an object of those that have. Only what is above 0 is kept while reading, so memory
 * follows the file's length, not the sizes that it claims; O(bytes). */
#include "traces/transitions.h"

#include "runtime/base/arena.h"
#include "traces/digits.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TOKENS_MAX ((UINT64_C(1) << 53) - 1) /* of a pair of layers: sums stay exact in every reader */

/* ---- reading ---- */

typedef struct {
  hec_scan *scan;
  hec_transitions *t;
  int64_t pair, from;
  uint64_t tokens; /* of the pair so far */
} reading;

static hec_status open_list(hec_scan *scan, const char *what) {
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  if (byte != '[')
    return hec_scan_fail(scan, NULL, "an array of %s", what);
  scan->at++;
  scan->n_indices++;
  return HEC_OK;
}

/* Goes to member `n`, or (*more false) past the end, which must come at *size members. The first list says what that is
 * where the header did not. */
static hec_status next_member(hec_scan *scan, bool *first, bool *more, int64_t n, int64_t *size, const char *what) {
  int64_t n_found = n, max = *size >= 0 ? *size : HEC_TRACE_DIMENSION_MAX;
  char found[32];
  *more = false;
  if (n < max)
    HEC_TRY(hec_scan_more(scan, ']', first, more));
  else
    HEC_TRY(hec_scan_count_rest(scan, n, &n_found));
  if (*more) {
    scan->index[scan->n_indices - 1] = n;
    return HEC_OK;
  }
  scan->n_indices--;
  *size = *size < 0 && n < max ? n : max;
  if (n_found == *size)
    return HEC_OK;
  (void)snprintf(found, sizeof found, "%" PRId64, n_found);
  return hec_scan_fail(scan, found, "%" PRId64 " %s", *size, what);
}

static hec_status read_count(reading *r, int64_t to) {
  uint64_t tokens = 0;
  HEC_TRY(hec_scan_integer(r->scan, 0, TOKENS_MAX - r->tokens, &tokens));
  if (tokens == 0)
    return HEC_OK;
  r->tokens += tokens;
  HEC_RESERVE(r->t->entries, r->t->capacity, r->t->n + 1);
  r->t->entries[r->t->n++] = (hec_transition){(int32_t)r->pair, (int32_t)r->from, (int32_t)to, tokens};
  return HEC_OK;
}

/* A bad value's message says which key has it. */
static hec_status name_key(hec_status status, const char *key) {
  if (status == HEC_OK)
    return HEC_OK;
  char why[512];
  (void)snprintf(why, sizeof why, "%s", hec_last_error());
  return hec_fail(status, "%s (key \"%s\")", why, key);
}

/* {"3":17,"9":2}: keys are experts in plain digits. Messages name the row. */
static hec_status read_sparse_row(reading *r) {
  hec_scan *scan = r->scan;
  char path[HEC_SCAN_KEY], found[HEC_SCAN_KEY + 8], key[HEC_SCAN_KEY];
  int n_indices = scan->n_indices;
  memcpy(path, scan->key, sizeof path);
  HEC_TRY(hec_scan_expect(scan, '{'));
  for (bool first = true, more = true;;) {
    HEC_TRY(hec_scan_more(scan, '}', &first, &more));
    if (!more)
      return HEC_OK;
    hec_status status = hec_scan_key(scan);
    memcpy(key, scan->key, sizeof key);
    memcpy(scan->key, path, sizeof path);
    scan->n_indices = n_indices;
    HEC_TRY(status);
    int64_t max = (r->t->n_experts >= 0 ? r->t->n_experts : HEC_TRACE_DIMENSION_MAX) - 1, to = 0;
    size_t n = strspn(key, "0123456789");
    bool good = n > 0 && n < 9 && key[n] == 0 && (key[0] != '0' || n == 1);
    for (size_t i = 0; good && i < n; i++)
      to = 10 * to + (key[i] - '0');
    if (!good || to > max) {
      (void)snprintf(found, sizeof found, "\"%s\"", key);
      return hec_scan_fail(scan, found, "keys that are experts from 0 to %" PRId64, max);
    }
    r->t->to_max = to > r->t->to_max ? to : r->t->to_max;
    HEC_TRY(name_key(read_count(r, to), key));
  }
}

static hec_status read_row(reading *r) {
  hec_scan *scan = r->scan;
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  if (byte == '{')
    return read_sparse_row(r);
  bool first = true, more = true;
  HEC_TRY(open_list(scan, "counts, or an object of those above 0"));
  for (int64_t to = 0;; to++) {
    HEC_TRY(next_member(scan, &first, &more, to, &r->t->n_experts, "counts"));
    if (!more)
      return HEC_OK;
    HEC_TRY(read_count(r, to));
  }
}

static hec_status read_pair(reading *r) {
  bool first = true, more = true;
  HEC_TRY(open_list(r->scan, "experts"));
  r->tokens = 0;
  for (r->from = 0;; r->from++) {
    HEC_TRY(next_member(r->scan, &first, &more, r->from, &r->t->n_experts, "experts"));
    if (!more)
      return HEC_OK;
    HEC_TRY(read_row(r));
  }
}

hec_status hec_transitions_scan(hec_scan *scan, hec_transitions *t) {
  reading r = {.scan = scan, .t = t};
  bool first = true, more = true;
  t->to_max = -1;
  HEC_TRY(open_list(scan, "layers but the last"));
  for (r.pair = 0;; r.pair++) {
    HEC_TRY(next_member(scan, &first, &more, r.pair, &t->n_pairs, "layers (all but the last)"));
    if (!more)
      return HEC_OK;
    HEC_TRY(read_pair(&r));
  }
}

void hec_transitions_spread(const hec_transitions *t, uint64_t *counts, const hec_transition **twice) {
  size_t experts = (size_t)t->n_experts;
  *twice = NULL;
  for (size_t i = 0; i < t->n; i++) {
    const hec_transition *e = &t->entries[i];
    uint64_t *cell = counts + ((size_t)e->pair * experts + (size_t)e->from) * experts + (size_t)e->to;
    if (*cell > 0 && !*twice)
      *twice = e;
    *cell = e->tokens;
  }
}

/* ---- writing ---- */

/* Bytes of {"b":n,...} against those of [n,...]: the digits of an n above 0 are in both. */
static bool sparse_is_shorter(const uint64_t *row, int64_t n) {
  size_t dense = n > 0 ? (size_t)n - 1 : 0, sparse = 0, digits = 1; /* digits: of b */
  for (int64_t b = 0, more_at = 10; b < n; b++) {
    if (b == more_at) {
      digits++;
      more_at *= 10;
    }
    if (row[b] > 0)
      sparse += 3 + digits + (sparse > 0);
    else
      dense++;
  }
  return sparse < dense;
}

static void print_row(const uint64_t *row, int64_t n, hec_text *text) {
  bool sparse = sparse_is_shorter(row, n);
  HEC_RESERVE(text->data, text->capacity, text->length + (size_t)n * (2 * HEC_DIGITS_MAX + 4) + 3);
  char *to = text->data + text->length;
  *to++ = sparse ? '{' : '[';
  for (int64_t b = 0, n_printed = 0; b < n; b++) {
    if (sparse && row[b] == 0)
      continue;
    if (n_printed++ > 0)
      *to++ = ',';
    if (sparse) {
      *to++ = '"';
      to = hec_digits_print(to, (uint64_t)b);
      *to++ = '"';
      *to++ = ':';
    }
    to = hec_digits_print(to, row[b]);
  }
  *to++ = sparse ? '}' : ']';
  *to = 0;
  text->length = (size_t)(to - text->data);
}

void hec_transitions_print(const uint64_t *counts, int64_t n_pairs, int64_t n_experts, hec_text *text) {
  hec_text_add(text, "[");
  for (int64_t l = 0; l < n_pairs; l++)
    for (int64_t a = 0; a < n_experts; a++) {
      hec_text_add(text, a > 0 ? "," : l > 0 ? "],[" : "[");
      print_row(counts + (l * n_experts + a) * n_experts, n_experts, text);
    }
  hec_text_add(text, n_pairs > 0 ? "]]" : "]");
}
