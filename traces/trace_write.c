/* Writer of hecate-trace version 1 (JSON Lines). Counts are printed by us (traces/digits.h) into a block that goes to the
 * sink when full: a record of any size needs the same memory. */
#include "runtime/base/arena.h"
#include "traces/digits.h"
#include "traces/sink.h"
#include "traces/trace_header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 256 << 10, NUMBER_BYTES = 16 };

struct hec_trace_writer {
  hec_sink *sink;
  bool per_source;
  int32_t n_layers, n_sources, n_experts;
  int64_t last_iter;
  hec_status status; /* of the first failure: later calls return it */
  size_t n_bytes;
  hec_text text; /* head of a record */
  char block[BLOCK_BYTES];
};

static hec_status flush(hec_trace_writer *writer) {
  if (writer->status == HEC_OK && writer->n_bytes > 0)
    writer->status = writer->sink->write(writer->sink, writer->block, writer->n_bytes);
  writer->n_bytes = 0;
  return writer->status;
}

static hec_status put(hec_trace_writer *writer, const char *bytes, size_t n) {
  while (n > 0) {
    size_t m = BLOCK_BYTES - writer->n_bytes;
    m = n < m ? n : m;
    memcpy(writer->block + writer->n_bytes, bytes, m);
    writer->n_bytes += m;
    bytes += m;
    n -= m;
    if (writer->n_bytes == BLOCK_BYTES)
      HEC_TRY(flush(writer));
  }
  return HEC_OK;
}

/* [1,2,...] */
static hec_status put_row(hec_trace_writer *writer, const uint32_t *counts, int32_t n) {
  HEC_TRY(put(writer, "[", 1));
  for (int32_t i = 0; i < n; i++) {
    if (BLOCK_BYTES - writer->n_bytes < NUMBER_BYTES)
      HEC_TRY(flush(writer));
    char *to = writer->block + writer->n_bytes;
    if (i > 0)
      *to++ = ',';
    to = hec_digits_print(to, counts[i]);
    writer->n_bytes = (size_t)(to - writer->block);
  }
  return put(writer, "]", 1);
}

static hec_status begin(hec_sink *sink, const hec_trace_header *header, hec_trace_writer **created) {
  HEC_ASSERT(header->n_layers > 0 && header->n_experts > 0 && header->n_sources > 0);
  HEC_ASSERT(header->top_k > 0 && header->top_k <= header->n_experts);
  HEC_ASSERT(header->per_source || header->n_sources == 1);
  *created = NULL;
  hec_trace_writer *writer = hec_malloc(1, sizeof *writer);
  writer->sink = sink;
  writer->per_source = header->per_source;
  writer->n_layers = header->n_layers;
  writer->n_sources = header->n_sources;
  writer->n_experts = header->n_experts;
  writer->last_iter = 0;
  writer->status = HEC_OK;
  writer->n_bytes = 0;
  writer->text = (hec_text){0};
  hec_trace_header_print(header, &writer->text);
  hec_status status = put(writer, writer->text.data, writer->text.length);
  if (status != HEC_OK) {
    hec_trace_abandon(writer);
    return status;
  }
  *created = writer;
  return HEC_OK;
}

hec_status hec_trace_create(const char *path, const hec_trace_header *header, hec_trace_writer **created) {
  hec_sink *sink = NULL;
  *created = NULL;
  HEC_TRY(hec_sink_open(path, &sink));
  return begin(sink, header, created);
}

hec_status hec_trace_create_memory(hec_text *text, size_t limit, const hec_trace_header *header,
                                   hec_trace_writer **created) {
  return begin(hec_sink_memory(text, limit), header, created);
}

/* {"iter":7,"label":"..","layers": */
static hec_status put_head(hec_trace_writer *writer, int64_t iter, const char *label) {
  hec_text *text = &writer->text;
  text->length = 0;
  hec_json_out json = hec_json_begin(text, 0);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "iter", iter);
  if (label && label[0])
    hec_json_string(&json, "label", label);
  hec_json_close(&json);
  text->length -= 2; /* brace and line feed */
  hec_text_add(text, ",\"layers\":[");
  return put(writer, text->data, text->length);
}

static hec_status put_layers(hec_trace_writer *writer, const hec_load *load) {
  for (int32_t l = 0; l < load->n_layers; l++) {
    if (l > 0)
      HEC_TRY(put(writer, ",", 1));
    if (!writer->per_source) {
      HEC_TRY(put_row(writer, hec_load_row(load, l, 0), load->n_experts));
      continue;
    }
    for (int32_t s = 0; s < load->n_sources; s++) {
      HEC_TRY(put(writer, s > 0 ? "," : "[", 1));
      HEC_TRY(put_row(writer, hec_load_row(load, l, s), load->n_experts));
    }
    HEC_TRY(put(writer, "]", 1));
  }
  return HEC_OK;
}

hec_status hec_trace_write(hec_trace_writer *writer, int64_t iter, const char *label, const hec_load *load) {
  HEC_ASSERT(load->n_layers == writer->n_layers && load->n_sources == writer->n_sources &&
             load->n_experts == writer->n_experts);
  HEC_ASSERT(iter >= writer->last_iter);
  writer->last_iter = iter;
  HEC_TRY(put_head(writer, iter, label));
  HEC_TRY(put_layers(writer, load));
  return put(writer, "]}\n", 3);
}

static hec_status close_writer(hec_trace_writer *writer, bool keep) {
  hec_status status = keep ? flush(writer) : HEC_OK;
  hec_sink *sink = writer->sink;
  hec_text_free(&writer->text);
  free(writer);
  if (status != HEC_OK) {
    (void)!sink->close(sink, 0);
    return status;
  }
  return sink->close(sink, keep);
}

hec_status hec_trace_finish(hec_trace_writer *writer) {
  return close_writer(writer, true);
}

void hec_trace_abandon(hec_trace_writer *writer) {
  if (writer)
    (void)!close_writer(writer, false);
}
