/* Written by hand rather than with traces/, so that a mistake there is not repeated here. */
#include "tests/support/trace_text.h"

#include "tests/support/check_main.h"

#include <inttypes.h>

void hec_test_trace_write(const hec_test_trace *t, uint64_t seed, hec_text *out) {
  bool totals = t->sources == 1;
  hec_text_printf(
      out,
      "{\"format\":\"hecate-trace\",\"version\":1,\"name\":\"made\",\"layers\":%d,\"experts\":%d,\"top_k\":%d,"
      "\"source_ranks\":%d,\"layout\":\"%s\",\"unit\":\"token-expert assignments\"%s}\n",
      t->layers, t->experts, t->top_k, t->sources, totals ? "layer x expert" : "layer x source_rank x expert",
      t->extra ? t->extra : "");
  for (int32_t i = 0; i < t->records; i++) {
    int64_t iter = t->first_iter + (i / (t->per_iter ? t->per_iter : 1)) * (t->stride ? t->stride : 1);
    hec_text_printf(out, "{\"iter\":%" PRId64 ",\"layers\":[", iter);
    for (int32_t l = 0; l < t->layers; l++) {
      hec_text_add(out, l ? ",[" : "[");
      for (int32_t s = 0; s < t->sources; s++) {
        hec_text_add(out, totals ? "" : s ? ",[" : "[");
        for (int32_t e = 0; e < t->experts; e++)
          hec_text_printf(out, "%s%" PRIu32, e ? "," : "", t->cell ? t->cell : (uint32_t)hec_test_below(&seed, 60));
        hec_text_add(out, totals ? "" : "]");
      }
      hec_text_add(out, "]");
    }
    hec_text_add(out, "]}\n");
  }
}

hec_trace_reader *hec_test_trace_open(const hec_test_trace *trace, uint64_t seed, hec_text *text) {
  hec_trace_reader *reader = NULL;
  hec_test_trace_write(trace, seed, text);
  if (hec_trace_open_memory(text->data, text->length, "made", &reader) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  return reader;
}
