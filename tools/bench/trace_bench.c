/* One record is generated and printed, then repeated as micro-batches of one iteration until the text is long enough.
 * So the time is that of the scanner, the memory that of the text. */
#include "tools/bench/bench.h"

#include "traces/synth.h"
#include "traces/trace_header.h"

#include <stdlib.h>

static hec_status make_record(const hec_synth_options *o, hec_text *text) {
  HEC_OPENED(hec_synth) *synth = NULL;
  HEC_TRY(hec_synth_new(o, &synth));
  HEC_SCOPED(hec_arena) arena = {0};
  size_t n_rows = (size_t)o->n_layers * (size_t)o->n_sources;
  hec_load load = {o->n_layers, o->n_sources, o->n_experts, HEC_NEW(&arena, uint32_t, n_rows * (size_t)o->n_experts)};
  hec_synth_next(synth, &load);
  hec_text_add(text, "{\"iter\":1,\"layers\":[");
  for (int32_t l = 0; l < o->n_layers; l++) {
    hec_text_add(text, l > 0 ? ",[" : "[");
    for (int32_t s = 0; s < o->n_sources; s++) {
      hec_text_add(text, s > 0 ? ",[" : "[");
      for (int32_t e = 0; e < o->n_experts; e++)
        hec_text_printf(text, e > 0 ? ",%u" : "%u", hec_load_row(&load, l, s)[e]);
      hec_text_add(text, "]");
    }
    hec_text_add(text, "]");
  }
  hec_text_add(text, "]}\n");
  return HEC_OK;
}

static hec_status read_text(const hec_text *text, hec_trace_bench *result) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  const hec_trace_record *record = NULL;
  double begin_s = hec_bench_now_s();
  HEC_TRY(hec_trace_open_memory(text->data, text->length, "benchmark", &reader));
  hec_status status = HEC_OK;
  do {
    status = hec_trace_next(reader, &record);
    result->records += record != NULL;
  } while (status == HEC_OK && record);
  result->seconds = hec_bench_now_s() - begin_s;
  return status;
}

hec_status hec_trace_bench_read(uint64_t bytes, hec_trace_bench *result) {
  hec_synth_options o = hec_synth_defaults();
  o.workload = "lognormal";
  o.n_layers = 24;
  o.n_sources = 16;
  hec_trace_header header = {
      .n_layers = o.n_layers, .n_experts = o.n_experts, .top_k = o.top_k, .n_sources = o.n_sources, .per_source = true};
  char synthetic[] = "true";
  header.synthetic = synthetic;
  HEC_SCOPED(hec_text) text = {0}, record = {0};
  *result = (hec_trace_bench){0};
  hec_trace_header_print(&header, &text);
  hec_status status = make_record(&o, &record);
  if (status == HEC_OK) {
    do
      hec_text_add_bytes(&text, record.data, record.length);
    while (text.length < bytes);
    result->bytes = text.length;
    status = read_text(&text, result);
  }
  return status;
}
