/* Reader of hecate-trace version 1: header once, then one record per call, into the same memory. O(bytes) time, O(one
 * record) memory. A failed read stays failed with the same message. */
#include "runtime/base/arena.h"
#include "traces/trace_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITER_MAX ((UINT64_C(1) << 53) - 1) /* exact in every JSON reader */

struct hec_trace_reader {
  hec_scan scan;
  const char *bytes; /* [length] the caller's, of a trace in memory; NULL: a file */
  size_t length;
  hec_arena arena; /* header */
  hec_trace_header header;
  hec_trace_record record;
  uint64_t *tokens_per_source; /* [n_sources] */
  hec_text text;               /* scratch */
  bool in_object;              /* records are elements of "iterations", not lines */
  bool first, ended;
  int64_t n_records, last_iter;
  hec_status status; /* of the first failure */
  char message[1024];
};

static hec_status hold(hec_trace_reader *reader, hec_status status) {
  if (status != HEC_OK && reader->status == HEC_OK) {
    reader->status = status;
    (void)snprintf(reader->message, sizeof reader->message, "%s", hec_last_error());
  }
  return status;
}

/* ---- members of a record ---- */

static hec_status read_iter(hec_trace_reader *reader) {
  hec_scan before = reader->scan; /* to name the value when it is too small */
  uint64_t iter = 0;
  HEC_TRY(hec_scan_integer(&reader->scan, 0, ITER_MAX, &iter));
  reader->record.iter = (int64_t)iter;
  if (reader->n_records > 0 && reader->record.iter < reader->last_iter) {
    char found[32];
    (void)snprintf(found, sizeof found, "%" PRIu64, iter);
    reader->scan.line = before.line;
    return hec_scan_fail(&reader->scan, found, "at least %" PRId64 " (iterations in order)", reader->last_iter);
  }
  return HEC_OK;
}

/* An array of n, one by one; scan->index has which, of the arrays around it too. */
static hec_status read_list(hec_trace_reader *reader, int32_t n, const char *what,
                            hec_status (*read)(hec_trace_reader *reader, int32_t i)) {
  hec_scan *scan = &reader->scan;
  int byte = 0, depth = scan->n_indices;
  HEC_TRY(hec_scan_peek(scan, &byte));
  if (byte != '[')
    return hec_scan_fail(scan, NULL, "an array of %" PRId32 " %s", n, what);
  scan->at++;
  scan->n_indices++;
  bool first = true, more = true;
  int64_t n_found = 0;
  for (; n_found < n; n_found++) {
    scan->index[depth] = n_found;
    HEC_TRY(hec_scan_more(scan, ']', &first, &more));
    if (!more)
      break;
    HEC_TRY(read(reader, (int32_t)n_found));
  }
  scan->n_indices--;
  if (more)
    HEC_TRY(hec_scan_count_rest(scan, n_found, &n_found));
  if (n_found == n)
    return HEC_OK;
  char found[32];
  (void)snprintf(found, sizeof found, "%" PRId64, n_found);
  return hec_scan_fail(scan, found, "%" PRId32 " %s", n, what);
}

static hec_status read_source(hec_trace_reader *reader, int32_t source) {
  const hec_load *load = &reader->record.load;
  int32_t layer = (int32_t)reader->scan.index[0];
  return hec_scan_counts(&reader->scan, hec_load_row(load, layer, source), load->n_experts, "counts");
}

static hec_status read_layer(hec_trace_reader *reader, int32_t layer) {
  (void)layer; /* scan->index[0] */
  return reader->header.per_source ? read_list(reader, reader->record.load.n_sources, "source ranks", read_source)
                                   : read_source(reader, 0);
}

static hec_status read_layers(hec_trace_reader *reader) {
  return read_list(reader, reader->header.n_layers, "layers", read_layer);
}

static hec_status read_token_count(hec_trace_reader *reader, int32_t source) {
  return hec_scan_integer(&reader->scan, 0, ITER_MAX, &reader->tokens_per_source[source]);
}

static hec_status read_tokens(hec_trace_reader *reader) {
  HEC_TRY(read_list(reader, reader->header.n_sources, "token counts", read_token_count));
  reader->record.tokens_per_source = reader->tokens_per_source;
  return HEC_OK;
}

static hec_status read_label(hec_trace_reader *reader) {
  HEC_TRY(hec_scan_text(&reader->scan, &reader->text));
  hec_name_copy(reader->record.label, sizeof reader->record.label, reader->text.length > 0 ? reader->text.data : "");
  return HEC_OK;
}

static hec_status read_micro_batch(hec_trace_reader *reader) {
  uint64_t value = 0;
  HEC_TRY(hec_scan_integer(&reader->scan, 0, INT32_MAX, &value));
  reader->record.micro_batch = (int32_t)value;
  return HEC_OK;
}

static const struct {
  const char *key;
  hec_status (*read)(hec_trace_reader *reader);
  bool required; /* the others may be null */
} members[] = {{"iter", read_iter, true},
               {"layers", read_layers, true},
               {"label", read_label, false},
               {"micro_batch", read_micro_batch, false},
               {"tokens_per_source", read_tokens, false}};
enum { N_MEMBERS = sizeof members / sizeof *members };

static hec_status read_member(hec_trace_reader *reader, bool seen[N_MEMBERS]) {
  hec_scan *scan = &reader->scan;
  HEC_TRY(hec_scan_key(scan));
  for (size_t i = 0; i < N_MEMBERS; i++) {
    if (strcmp(scan->key, members[i].key) != 0)
      continue;
    if (seen[i])
      return hec_scan_fail(scan, "a second one", "this key once");
    seen[i] = true;
    bool is_null = false;
    if (!members[i].required)
      HEC_TRY(hec_scan_null(scan, &is_null));
    return is_null ? HEC_OK : members[i].read(reader);
  }
  return hec_scan_skip(scan);
}

static hec_status read_record(hec_trace_reader *reader) {
  hec_scan *scan = &reader->scan;
  hec_trace_record *record = &reader->record;
  record->iter = 0;
  record->micro_batch = -1;
  record->line = scan->line;
  record->label[0] = 0;
  record->tokens_per_source = NULL;
  bool seen[N_MEMBERS] = {false}, first = true, more = true;
  HEC_TRY(hec_scan_expect(scan, '{'));
  for (;;) {
    HEC_TRY(hec_scan_more(scan, '}', &first, &more));
    scan->n_indices = 0;
    scan->key[0] = 0;
    if (!more)
      break;
    HEC_TRY(read_member(reader, seen));
  }
  for (size_t i = 0; i < N_MEMBERS; i++)
    if (members[i].required && !seen[i]) {
      (void)snprintf(scan->key, sizeof scan->key, "%s", members[i].key);
      return hec_scan_fail(scan, "no such key", "this key in every record");
    }
  reader->last_iter = record->iter;
  reader->n_records++;
  return HEC_OK;
}

/* ---- where records stand ---- */

static hec_status end_of_line(hec_scan *scan) {
  int byte = 0;
  scan->one_line = true;
  HEC_TRY(hec_scan_peek(scan, &byte));
  if (byte != '\n' && scan->at != scan->end)
    return hec_scan_fail(scan, NULL, "end of line");
  scan->one_line = false;
  return HEC_OK;
}

static hec_status next_line(hec_trace_reader *reader) {
  hec_scan *scan = &reader->scan;
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte)); /* passes blank lines */
  if (scan->at == scan->end) {
    reader->ended = true;
    return HEC_OK;
  }
  scan->one_line = true;
  HEC_TRY(read_record(reader));
  return end_of_line(scan);
}

/* Behind the last element of "iterations": other keys, the closing brace, nothing more. */
static hec_status end_of_object(hec_trace_reader *reader) {
  hec_scan *scan = &reader->scan;
  bool first = false, more = true;
  scan->prefix[0] = 0;
  for (;;) {
    scan->key[0] = 0;
    HEC_TRY(hec_scan_more(scan, '}', &first, &more));
    if (!more)
      break;
    HEC_TRY(hec_scan_key(scan));
    if (strcmp(scan->key, "iterations") == 0)
      return hec_scan_fail(scan, "a second one", "this key once");
    if (hec_trace_header_knows(scan->key))
      return hec_scan_fail(scan, "it behind them", "header fields before \"iterations\"");
    HEC_TRY(hec_scan_skip(scan));
  }
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  if (scan->at != scan->end)
    return hec_scan_fail(scan, NULL, "end of file");
  reader->ended = true;
  return HEC_OK;
}

static hec_status next_element(hec_trace_reader *reader) {
  hec_scan *scan = &reader->scan;
  bool more = true;
  (void)snprintf(scan->prefix, sizeof scan->prefix, "iterations");
  HEC_TRY(hec_scan_more(scan, ']', &reader->first, &more));
  if (!more)
    return end_of_object(reader);
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  (void)snprintf(scan->prefix, sizeof scan->prefix, "iterations[%" PRId64 "].", reader->n_records);
  return read_record(reader);
}

static hec_status next_record(hec_trace_reader *reader, const hec_trace_record **record) {
  hec_scan *scan = &reader->scan;
  scan->key[0] = 0;
  scan->n_indices = 0;
  if (!reader->ended)
    HEC_TRY(reader->in_object ? next_element(reader) : next_line(reader));
  if (reader->ended && reader->n_records == 0)
    return hec_scan_fail(scan, reader->in_object ? "none" : NULL, "at least one record");
  *record = reader->ended ? NULL : &reader->record;
  return HEC_OK;
}

hec_status hec_trace_next(hec_trace_reader *reader, const hec_trace_record **record) {
  *record = NULL;
  if (reader->status != HEC_OK)
    return hec_fail(reader->status, "%s", reader->message);
  return hold(reader, next_record(reader, record));
}

/* ---- opening and closing ---- */

static hec_status read_header(hec_trace_reader *reader, hec_arena *arena, hec_trace_header *header) {
  HEC_TRY(hec_trace_header_scan(&reader->scan, arena, header, &reader->in_object));
  if (!reader->in_object)
    HEC_TRY(end_of_line(&reader->scan));
  reader->first = true;
  reader->ended = false;
  reader->n_records = 0;
  return HEC_OK;
}

static hec_status open_source(hec_source *source, hec_trace_reader **opened) {
  hec_trace_reader *reader = hec_malloc(1, sizeof *reader);
  *reader = (hec_trace_reader){.status = HEC_OK};
  hec_status status = hec_scan_begin(&reader->scan, source);
  if (status == HEC_OK)
    status = read_header(reader, &reader->arena, &reader->header);
  if (status != HEC_OK) {
    hec_trace_close(reader);
    return status;
  }
  const hec_trace_header *h = &reader->header;
  size_t n_counts = (size_t)h->n_layers * (size_t)h->n_sources * (size_t)h->n_experts;
  reader->record.load = (hec_load){h->n_layers, h->n_sources, h->n_experts, hec_malloc(n_counts, sizeof(uint32_t))};
  reader->tokens_per_source = hec_malloc((size_t)h->n_sources, sizeof *reader->tokens_per_source);
  *opened = reader;
  return HEC_OK;
}

hec_status hec_trace_open(const char *path, hec_trace_reader **reader) {
  *reader = NULL;
  hec_source *source = NULL;
  HEC_TRY(hec_source_open(path, &source));
  return open_source(source, reader);
}

hec_status hec_trace_open_memory(const char *bytes, size_t length, const char *origin, hec_trace_reader **reader) {
  *reader = NULL;
  hec_source *source = NULL;
  HEC_TRY(hec_source_open_memory(bytes, length, origin, &source));
  HEC_TRY(open_source(source, reader));
  (*reader)->bytes = bytes;
  (*reader)->length = length;
  return HEC_OK;
}

hec_status hec_trace_open_again(const hec_trace_reader *reader, hec_trace_reader **again) {
  const char *origin = hec_trace_origin(reader);
  return reader->bytes ? hec_trace_open_memory(reader->bytes, reader->length, origin, again)
                       : hec_trace_open(origin, again);
}

const hec_trace_header *hec_trace_header_of(const hec_trace_reader *reader) {
  return &reader->header;
}

bool hec_trace_is_object(const hec_trace_reader *reader) {
  return reader->in_object;
}

const char *hec_trace_origin(const hec_trace_reader *reader) {
  return reader->scan.source->origin;
}

static hec_status rewind_reader(hec_trace_reader *reader) {
  HEC_TRY(hec_scan_rewind(&reader->scan));
  HEC_SCOPED(hec_arena) arena = {0};
  hec_trace_header again = {0};
  HEC_TRY(read_header(reader, &arena, &again));
  const hec_trace_header *h = &reader->header;
  if (again.n_layers != h->n_layers || again.n_sources != h->n_sources || again.n_experts != h->n_experts ||
      again.per_source != h->per_source)
    return hec_fail(HEC_BAD_INPUT, "%s: expected the header read before, found another (the file was changed)",
                    reader->scan.source->origin);
  return HEC_OK;
}

hec_status hec_trace_rewind(hec_trace_reader *reader) {
  reader->status = HEC_OK;
  return hold(reader, rewind_reader(reader));
}

hec_status hec_trace_count(hec_trace_reader *reader, int32_t max, int32_t *n) {
  const hec_trace_record *record;
  *n = 0;
  HEC_TRY(hec_trace_rewind(reader));
  while (*n < max) {
    HEC_TRY(hec_trace_next(reader, &record));
    if (!record)
      break;
    ++*n;
  }
  return hec_trace_rewind(reader);
}

void hec_trace_close(hec_trace_reader *reader) {
  if (!reader)
    return;
  hec_scan_end(&reader->scan);
  hec_arena_free(&reader->arena);
  hec_text_free(&reader->text);
  free(reader->record.load.counts);
  free(reader->tokens_per_source);
  free(reader);
}
