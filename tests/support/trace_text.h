/* Traces in memory for tests: a header with extra members, records of random counts. */
#pragma once
#include "runtime/base/text.h"
#include "traces/trace.h"

typedef struct {
  int32_t layers, experts, top_k, sources, records;
  int64_t first_iter, stride; /* iter of record i: first_iter + (i / per_iter) * stride */
  int32_t per_iter;           /* records that share an iter; 0: 1 */
  uint32_t cell;              /* 0: random below 60; else every count */
  const char *extra;          /* members added to the header, ",\"phase\":..." */
} hec_test_trace;

void hec_test_trace_write(const hec_test_trace *trace, uint64_t seed, hec_text *out);
/* Writes and opens it; `text` must outlive the reader. */
hec_trace_reader *hec_test_trace_open(const hec_test_trace *trace, uint64_t seed, hec_text *text);
