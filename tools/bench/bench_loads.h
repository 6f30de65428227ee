/* What benchmarks share: loads (synthetic, in memory), the clock, the end of a command. */
#ifndef HEC_TOOLS_BENCH_BENCH_LOADS_H
#define HEC_TOOLS_BENCH_BENCH_LOADS_H
#include "models/load.h"
#include "validate/doc.h"

/* Fills n loads of equal shape: log-normal popularity (`sigma`), `tokens` per source. It drifts from one to the next
 * as LAER's recorded training run does (reference traces.md 1). */
hec_status hec_bench_loads(hec_load *loads, int32_t n, double sigma, int32_t tokens, int32_t top_k) HEC_MUST_USE;

double hec_bench_now_s(void);
/* Sorts; values[share * n], the last at most. */
double hec_bench_quantile(double *values, int32_t n, double share);

/* Log-normal loads as a trace in memory, 24 layers x 16 sources x 64 experts, 2048 tokens x top-2 a row, at least
 * `bytes` long. It is read once to give the seconds of reading alone. Text is not compressed. */
typedef struct {
  uint64_t bytes, records;
  double seconds;
} hec_trace_bench;
hec_status hec_trace_bench_read(uint64_t bytes, hec_trace_bench *result) HEC_MUST_USE;

/* Prints the report of what was measured, as text or JSON, unless `done` without it or failed; returns the exit code. */
int hec_bench_report(hec_status status, bool done, hec_doc_report *report, const void *of, bool json);
/* Prints what a command wrote, where it did well, and frees it; returns the exit code. */
int hec_bench_exit(hec_status status, hec_text *out);

#endif
