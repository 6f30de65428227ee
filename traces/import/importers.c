/* The table of importers, and what each of them may use: facts that must agree, messages, JSON objects and lines. */
#include "traces/import/importer.h"

#include "runtime/base/nearest.h"
#include "runtime/base/table.h"
#include "traces/import/job.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 32 }; /* of an object */

#define ROW(name) &hec_importer_##name,
const hec_importer *const hec_importers[] = {HEC_IMPORTER_LIST(ROW) NULL};
#undef ROW

HEC_TABLE_OF(hec_importer);
const hec_importer *hec_importer_find(const char *name) {
  return hec_table_find(hec_importers, name);
}

/* ---- facts ---- */

const hec_import_options *hec_import_options_of(const hec_import *job) {
  return &job->options;
}

int32_t hec_import_experts(const hec_import *job) {
  return job->n_experts;
}

int32_t hec_import_top_k(const hec_import *job) {
  return job->top_k;
}

int32_t hec_import_ranks(const hec_import *job) {
  return job->n_ranks;
}

const hec_import_input *hec_import_first(const hec_import *job) {
  return job->inputs[0];
}

void hec_import_set_sources(hec_import *job, int32_t n) {
  job->n_sources = n;
}

hec_status hec_import_set_model(hec_import_file *file, int64_t line, const char *field, const char *model) {
  HEC_SCOPED(hec_text) plain = {0};
  hec_text_add_plain(&plain, model);
  hec_text *known = &file->job->model;
  hec_status status = HEC_OK;
  if (known->length == 0)
    hec_text_add(known, plain.data);
  else if (!file->job->options.model && strcmp(known->data, plain.data) != 0)
    status =
        hec_import_fail(file, line, field, "expected \"%.60s\" as before, found \"%.60s\"", known->data, plain.data);
  return status;
}

/* ---- the phase ---- */

bool hec_import_phase_known(const char *phase) {
  static const char *const phases[] = {"train", "prefill", "decode", "prefill+decode", "forward"};
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
    if (strcmp(phase, phases[i]) == 0)
      return true;
  return false;
}

void hec_import_assume_phase(hec_import *job, const char *phase) {
  if (job->options.phase || job->phase.length > 0)
    return;
  hec_text_add(&job->phase, phase);
  bool forward = strcmp(phase, "train") != 0;
  hec_import_assume(job, "phase: %s%s", phase,
                    forward ? ", so hecate-sim simulates the forward pass only (--phase train: backward too)"
                            : " (--phase)");
}

hec_status hec_import_set_phase(hec_import_file *file, int64_t line, const char *field, const char *phase) {
  hec_text *known = &file->job->phase;
  if (file->job->options.phase)
    return HEC_OK;
  if (!hec_import_phase_known(phase))
    return hec_import_fail(file, line, field,
                           "expected train, prefill, decode, prefill+decode or forward, found \"%.40s\"", phase);
  if (known->length == 0)
    hec_text_add(known, phase);
  if (strcmp(known->data, phase) == 0)
    return HEC_OK;
  return hec_import_fail(file, line, field, "expected %s as before (a trace has one phase), found %.40s", known->data,
                         phase);
}

void hec_import_take_counts(hec_import *job) {
  job->no_transitions = true;
  if (!job->options.counted)
    job->counted = HEC_COUNTED_UNKNOWN;
}

void hec_import_reads(hec_import *job, const char *path) {
  job->beside.length = 0;
  hec_text_add(&job->beside, path);
}
void hec_import_know_ranks(hec_import *job) {
  job->knows_ranks = true;
}

/* `before`: who said what is known. */
static hec_status set_fact(hec_import_file *file, int64_t line, const char *field, int64_t n, int32_t *fact,
                           const char *before) {
  if (n < 1 || n > HEC_TRACE_DIMENSION_MAX)
    return hec_import_fail(file, line, field, "expected from 1 to %d, found %" PRId64, HEC_TRACE_DIMENSION_MAX, n);
  if (*fact != 0 && *fact != n)
    return hec_import_fail(file, line, field, "expected %" PRId32 " (%s), found %" PRId64, *fact, before, n);
  *fact = (int32_t)n;
  return HEC_OK;
}

hec_status hec_import_set_experts(hec_import_file *file, int64_t line, const char *field, int64_t n) {
  return set_fact(file, line, field, n, &file->job->n_experts,
                  file->job->options.experts > 0 ? "--experts" : "as before");
}

hec_status hec_import_set_top_k(hec_import_file *file, int64_t line, const char *field, int64_t n) {
  return set_fact(file, line, field, n, &file->job->top_k, file->job->options.top_k > 0 ? "--top-k" : "as before");
}

hec_status hec_import_set_ranks(hec_import_file *file, int64_t line, const char *field, int64_t n) {
  return set_fact(file, line, field, n, &file->job->header_ranks, "as before");
}

void hec_import_note(hec_import *job, const char *kind, const char *words) {
  HEC_SCOPED(hec_text) line = {0};
  hec_text_printf(&line, "%-9s ", kind);
  hec_text_add_plain(&line, words);
  hec_text_add(&line, "\n");
  if (!job->notes.data || !strstr(job->notes.data, line.data))
    hec_text_add(&job->notes, line.data);
}

void hec_import_assume(hec_import *job, const char *format, ...) {
  char words[512];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  hec_import_note(job, "assumed", words);
}

/* ---- messages ---- */

hec_status hec_import_fail(const hec_import_file *file, int64_t line, const char *field, const char *format, ...) {
  char words[512], place[32] = "";
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  if (line > 0)
    (void)snprintf(place, sizeof place, ":%" PRId64, line);
  return hec_fail(HEC_BAD_INPUT, "%s%s: %s: %s", file->input->path, place, field, words);
}

/* ---- bytes ---- */

hec_status hec_import_source(const hec_import_input *input, hec_source **source) {
  if (input->bytes)
    return hec_source_open_memory(input->bytes, input->length, input->path, source);
  *source = input->stream;
  return input->stream ? HEC_OK : hec_source_open(input->path, source);
}

hec_status hec_import_slurp(const hec_import_input *input, size_t max, hec_text *text) {
  hec_source *source = NULL;
  HEC_TRY(hec_import_source(input, &source));
  hec_status status = HEC_OK;
  char block[1 << 14];
  size_t got = 1;
  while (status == HEC_OK && got > 0) {
    status = source->read(source, block, sizeof block, &got);
    if (status == HEC_OK && got > max - text->length)
      status = hec_fail(HEC_BAD_INPUT, "%s: expected at most %zu bytes, found more", input->path, max);
    else if (status == HEC_OK)
      hec_text_add_bytes(text, block, got);
  }
  source->close(source);
  return status;
}

hec_status hec_import_read_json(const hec_import_input *input, hec_json **json) {
  HEC_SCOPED(hec_text) text = {0};
  *json = NULL;
  HEC_TRY(hec_import_slurp(input, 1 << 20, &text));
  return hec_json_parse(text.data ? text.data : "", text.length, input->path, json);
}

hec_status hec_import_scan(const hec_import_file *file, hec_scan *scan) {
  hec_source *source = NULL;
  HEC_TRY(hec_import_source(file->input, &source));
  return hec_scan_begin(scan, source);
}

bool hec_import_has(const char *head, size_t n, const char *word) {
  size_t length = strlen(word);
  const char *end = head + n;
  for (const char *p = head; (size_t)(end - p) >= length; p++) {
    p = memchr(p, word[0], (size_t)(end - p) - length + 1);
    if (!p)
      return false;
    if (memcmp(p, word, length) == 0)
      return true;
  }
  return false;
}

/* ---- JSON ---- */

static void leave_key(hec_import_file *file, const hec_scan *scan, const hec_import_field *fields) {
  const char *known[FIELDS_MAX];
  size_t n = 0;
  for (; fields[n].key; n++)
    known[n] = fields[n].key;
  hec_import_leave(file->job, HEC_LEFT_KEY, scan->key, known, n);
}

/* A member that should be there. `near`: one that is, whose name may be meant; "": none. */
static hec_status lacks(hec_scan *scan, const char *key, const char *near) {
  char found[96] = "no such key";
  if (*near)
    (void)snprintf(found, sizeof found, "no such key (but \"%s\")", near);
  (void)snprintf(scan->key, sizeof scan->key, "%s", key);
  return hec_scan_fail(scan, found, "this key in every record");
}

static hec_status read_field(hec_scan *scan, const hec_import_field *field, void *state) {
  uint64_t number = 0;
  if (field->read)
    return field->read(state);
  HEC_TRY(hec_scan_integer(scan, field->min, field->max, &number));
  *(int64_t *)((char *)state + field->at) = (int64_t)number;
  return HEC_OK;
}

static hec_status read_object(hec_import_file *file, hec_scan *scan, const hec_import_field *fields, void *state) {
  uint32_t seen = 0;
  bool first = true, more = true;
  char near[FIELDS_MAX][48] = {{0}}; /* of each field: a key that was left out and may be it */
  HEC_TRY(hec_scan_expect(scan, '{'));
  for (;;) {
    HEC_TRY(hec_scan_more(scan, '}', &first, &more));
    if (!more)
      break;
    HEC_TRY(hec_scan_key(scan));
    int f = 0;
    while (fields[f].key && strcmp(scan->key, fields[f].key) != 0)
      f++;
    HEC_ASSERT(f < FIELDS_MAX);
    if (!fields[f].key) {
      leave_key(file, scan, fields);
      for (f = 0; fields[f].key; f++)
        if (fields[f].required && !(seen >> f & 1) && hec_nearest(scan->key, &fields[f].key, 1))
          hec_name_copy(near[f], sizeof near[f], scan->key);
      HEC_TRY(hec_scan_skip(scan));
      continue;
    }
    if (seen >> f & 1)
      return hec_scan_fail(scan, "a second one", "this key once");
    seen |= UINT32_C(1) << f;
    HEC_TRY(read_field(scan, &fields[f], state));
    scan->n_indices = 0;
  }
  scan->n_indices = 0;
  for (int f = 0; fields[f].key; f++)
    if (fields[f].required && !(seen >> f & 1))
      return lacks(scan, fields[f].key, near[f]);
  return HEC_OK;
}

hec_status hec_import_line(hec_import_file *file, hec_scan *scan, const hec_import_field *fields, void *state,
                           bool *more) {
  int byte = 0;
  scan->one_line = false;
  scan->key[0] = 0;
  scan->n_indices = 0;
  HEC_TRY(hec_scan_peek(scan, &byte)); /* passes blank lines */
  *more = scan->at != scan->end;
  scan->one_line = true;
  if (!*more)
    return HEC_OK;
  HEC_TRY(read_object(file, scan, fields, state));
  scan->key[0] = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  return byte == '\n' || scan->at == scan->end ? HEC_OK : hec_scan_fail(scan, NULL, "end of line");
}
