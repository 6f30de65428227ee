/* Loads for benchmarks: synthetic, in memory. */
#ifndef HEC_TOOLS_BENCH_BENCH_LOADS_H
#define HEC_TOOLS_BENCH_BENCH_LOADS_H
#include "models/load.h"
#include "runtime/base/status.h"

/* Fills n loads of equal shape: log-normal popularity (`sigma`) that drifts from one to the next as LAER's recorded
 * training run does (reference traces.md 1), `tokens` per source. */
hec_status hec_bench_loads(hec_load *loads, int32_t n, double sigma, int32_t tokens, int32_t top_k) HEC_MUST_USE;

double hec_bench_now_s(void);
/* Sorts; values[share * n], the last at most. */
double hec_bench_quantile(double *values, int32_t n, double share);

#endif
