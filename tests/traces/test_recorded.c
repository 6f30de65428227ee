/* The traces recorded by our own training runs, as committed. Every source sends all its tokens top-k times, and the
 * transitions of the header are those of the records' totals. */
#include "tests/support/test.h"
#include "traces/trace.h"

#include <string.h>

enum { LAYERS = 4, EXPERTS = 16, TOP_K = 2, SOURCES = 8, TOKENS = 256, STEPS = 500 };

static const char *const paths[] = {HEC_SOURCE_DIR "/traces/charlm-e16-noaux.jsonl.gz",
                                    HEC_SOURCE_DIR "/traces/charlm-e16-aux.jsonl.gz"};

static void add_record(const hec_load *load, uint64_t total[LAYERS][EXPERTS]) {
  for (int32_t l = 0; l < LAYERS; l++)
    for (int32_t s = 0; s < SOURCES; s++) {
      uint64_t sum = 0;
      for (int32_t e = 0; e < EXPERTS; e++) {
        sum += hec_load_row(load, l, s)[e];
        total[l][e] += hec_load_row(load, l, s)[e];
      }
      ck_assert_uint_eq(sum, TOKENS * TOP_K);
    }
}

HEC_TEST_LOOP(recorded, 2) {
  uint64_t total[LAYERS][EXPERTS] = {{0}}, count[LAYERS - 1][EXPERTS][EXPERTS];
  hec_trace_reader *reader;
  const hec_trace_record *record;
  ck_ok(hec_trace_open(paths[_i], &reader));
  const hec_trace_header *h = hec_trace_header_of(reader);
  ck_assert(h->n_layers == LAYERS && h->n_experts == EXPERTS && h->top_k == TOP_K && h->n_sources == SOURCES);
  ck_assert(h->per_source && h->transitions && !h->transitions_over && h->shape && !h->synthetic);
  ck_assert(strstr(h->source, "own training run") && strstr(h->notes, "Command: hecate-run train"));
  memcpy(count, h->transitions, sizeof count);
  int32_t n = 0;
  for (;; n++) {
    ck_ok(hec_trace_next(reader, &record));
    if (!record)
      break;
    ck_assert_int_eq(record->iter, n);
    add_record(&record->load, total);
  }
  ck_assert_int_eq(n, STEPS);
  hec_trace_close(reader);
  for (int32_t l = 0; l + 1 < LAYERS; l++)
    for (int32_t a = 0; a < EXPERTS; a++) {
      uint64_t row = 0, column = 0;
      for (int32_t b = 0; b < EXPERTS; b++) {
        row += count[l][a][b];
        column += count[l][b][a];
      }
      ck_assert_uint_eq(row, TOP_K * total[l][a]);
      ck_assert_uint_eq(column, TOP_K * total[l + 1][a]);
    }
}
