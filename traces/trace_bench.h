/* How fast the reader is, for hecate-bench: a synthetic trace made in memory and read once. */
#ifndef HEC_TRACES_TRACE_BENCH_H
#define HEC_TRACES_TRACE_BENCH_H
#include "runtime/base/status.h"

#include <stdint.h>

typedef struct {
  uint64_t bytes, records;
  double seconds; /* of reading only, CLOCK_MONOTONIC; text is not compressed */
} hec_trace_bench;

/* Log-normal loads, 24 layers x 16 sources x 64 experts, 2048 tokens x top-2 a row; at least `bytes` long. */
hec_status hec_trace_bench_read(uint64_t bytes, hec_trace_bench *result) HEC_MUST_USE;

#endif
