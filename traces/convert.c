/* Bytes are copied, not values. So what a reader does not know or would round stays as it was. Going there and back
 * gives the same bytes (of a file without blank lines and with line feeds). The first pass is the reader's: after it
 * the text is known to be a trace, so the second only counts brackets outside of texts:
 *
 *   lines    {header}\n{record}\n{record}\n          object    {header,"iterations":[\n{record},\n{record}\n]}\n
 *
 * Of an object, members before "iterations" are the header. O(bytes), a block of memory. */
#include "traces/convert.h"

#include "runtime/base/arena.h"
#include "runtime/base/progress.h"
#include "traces/sink.h"
#include "traces/source.h"
#include "traces/trace.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 256 << 10, KEY_BYTES = 16 };

typedef enum { BEFORE, IN_HEADER, BEHIND_KEY, BETWEEN, IN_RECORD, BEHIND } place;

typedef struct {
  hec_sink *sink;
  hec_trace_form form;
  hec_trace_converted *result;
  bool object; /* form of the input */
  place at;
  int depth;
  bool in_text, escaped, new_line;
  char key[KEY_BYTES]; /* of the header, of depth 1, while it may be "iterations"; with its quotes */
  size_t n_key;
  bool holds_key, wants_key; /* a key is being held back; the next text is one */
  hec_text held;             /* comma and white space before it */
  char *block;               /* [BLOCK_BYTES] to be written */
  size_t n;
} copier;

/* ---- output ---- */

static hec_status flush(copier *c) {
  hec_status status = c->n > 0 ? c->sink->write(c->sink, c->block, c->n) : HEC_OK;
  c->n = 0;
  return status;
}

static hec_status put(copier *c, const char *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (c->n == BLOCK_BYTES)
      HEC_TRY(flush(c));
    c->block[c->n++] = bytes[i];
  }
  return HEC_OK;
}

static hec_status put_text(copier *c, const char *text) {
  return put(c, text, strlen(text));
}

static hec_status end_header(copier *c) {
  c->at = BETWEEN;
  return put_text(c, c->form == HEC_FORM_LINES ? "}\n" : ",\"iterations\":[\n");
}

static hec_status begin_record(copier *c) {
  c->at = IN_RECORD;
  if (c->result->n_records++ > 0)
    HEC_TRY(put_text(c, c->form == HEC_FORM_LINES ? "\n" : ",\n"));
  return put_text(c, "{");
}

/* ---- input ---- */

static hec_status release_key(copier *c) {
  HEC_TRY(put(c, c->held.data ? c->held.data : "", c->held.length));
  HEC_TRY(put(c, c->key, c->n_key));
  c->holds_key = c->wants_key = false;
  c->held.length = c->n_key = 0;
  return HEC_OK;
}

/* Depth 1 of the header: a comma, and what is between it and the key, wait for the key. */
static hec_status header_byte(copier *c, char byte) {
  if (c->object && c->depth == 1 && !c->in_text && (byte == ',' || (c->wants_key && (byte == ' ' || byte == '\t')))) {
    c->wants_key = true;
    hec_text_add_bytes(&c->held, &byte, 1);
    return HEC_OK;
  }
  if (c->wants_key && !c->holds_key && byte == '"')
    c->holds_key = true;
  if (!c->holds_key)
    return put(c, &byte, 1);
  c->key[c->n_key++] = byte;
  if (c->n_key == 12 && memcmp(c->key, "\"iterations\"", 12) == 0) {
    c->at = BEHIND_KEY;
    return HEC_OK;
  }
  return c->n_key == KEY_BYTES || !c->in_text ? release_key(c) : HEC_OK;
}

/* A bracket or a byte of what is between: depth is that before it. */
static hec_status plain_byte(copier *c, char byte) {
  bool opens = byte == '{' || byte == '[', closes = byte == '}' || byte == ']';
  c->depth += opens - closes;
  switch (c->at) {
  case BEFORE:
    if (byte == '{') {
      c->at = IN_HEADER;
      c->wants_key = c->object;
      return put_text(c, "{");
    }
    return HEC_OK; /* byte order mark */
  case IN_HEADER:
    return closes && c->depth == 0 ? end_header(c) : header_byte(c, byte);
  case BEHIND_KEY:
    c->at = byte == '[' ? BETWEEN : BEHIND_KEY;
    return byte == '[' ? end_header(c) : HEC_OK;
  case BETWEEN:
    if (byte == '{')
      return begin_record(c);
    c->at = closes ? BEHIND : BETWEEN;
    return HEC_OK;
  case IN_RECORD:
    c->at = closes && c->depth == (c->object ? 2 : 0) ? BETWEEN : IN_RECORD;
    return put(c, &byte, 1);
  case BEHIND:
    c->result->left_out = c->result->left_out || byte == ':';
    return HEC_OK;
  }
  return HEC_OK;
}

static hec_status copy_byte(copier *c, char byte) {
  if (c->in_text) {
    bool ends = byte == '"' && !c->escaped;
    c->escaped = byte == '\\' && !c->escaped;
    c->in_text = !ends;
    if (c->at == IN_HEADER)
      return header_byte(c, byte);
    return c->at == IN_RECORD ? put(c, &byte, 1) : HEC_OK;
  }
  if (byte == '\n' || byte == '\r') {
    c->new_line = true;
    return HEC_OK;
  }
  if (c->new_line && (byte == ' ' || byte == '\t'))
    return HEC_OK;
  c->new_line = false;
  if (byte != '"')
    return plain_byte(c, byte);
  c->in_text = true;
  if (c->at == IN_HEADER)
    return header_byte(c, byte);
  return c->at == IN_RECORD ? put(c, &byte, 1) : HEC_OK;
}

static hec_status copy(copier *c, hec_source *source, char *bytes) {
  for (size_t got = 1; got > 0;) {
    HEC_TRY(source->read(source, bytes, BLOCK_BYTES, &got));
    for (size_t i = 0; i < got; i++)
      HEC_TRY(copy_byte(c, bytes[i]));
  }
  if (c->result->n_records == 0)
    return hec_fail(HEC_BAD_INPUT, "%s: expected \"iterations\" written plainly, found escapes or another file",
                    source->origin);
  HEC_TRY(put_text(c, c->form == HEC_FORM_LINES ? "\n" : "\n]}\n"));
  return flush(c);
}

/* ---- all of it ---- */

/* Is it a trace to its end? */
static hec_status check(const char *in, bool *object, hec_trace_converted *result) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  const hec_trace_record *record = NULL;
  HEC_TRY(hec_trace_open(in, &reader));
  *object = hec_trace_is_object(reader);
  hec_name_copy(result->misspelt, sizeof result->misspelt, hec_trace_header_of(reader)->misspelt);
  hec_status status = HEC_OK;
  int64_t n = 0;
  hec_progress_stage("checking", "records");
  do {
    status = hec_trace_next(reader, &record);
    hec_progress_at((double)n++, 0, 0);
  } while (status == HEC_OK && record);
  hec_progress_stage("converting", NULL);
  return status;
}

hec_status hec_trace_convert(const char *in, const char *out, hec_trace_form form, hec_trace_converted *result) {
  hec_source *source = NULL;
  copier c = {.form = form, .result = result};
  *result = (hec_trace_converted){0};
  if (strcmp(in, "-") == 0)
    return hec_fail(HEC_BAD_INPUT, "-: expected a file that can be read twice, found standard input");
  HEC_TRY(check(in, &c.object, result));
  HEC_TRY(hec_source_open(in, &source));
  hec_status status = hec_sink_open(out, &c.sink);
  if (status == HEC_OK) {
    char *bytes = hec_malloc(BLOCK_BYTES, 1);
    c.block = hec_malloc(BLOCK_BYTES, 1);
    status = copy(&c, source, bytes);
    free(bytes);
    free(c.block);
    if (status == HEC_OK)
      status = c.sink->close(c.sink, 1);
    else
      (void)!c.sink->close(c.sink, 0);
  }
  hec_text_free(&c.held);
  source->close(source);
  return status;
}
