/* Sparse collectives against their limits, in one run. The executor's SparseAllGather and SparseReduceScatter are timed
 * in turn with the min that moving the same bytes between the same memory can cost. */
#pragma once
#include "runtime/base/text.h"
#include "runtime/exec/backend.h"

enum { HEC_BENCH_SIZES_MAX = 16, HEC_BENCH_ROWS_MAX = 4 * HEC_BENCH_SIZES_MAX };

typedef struct {
  const hec_backend *backend;
  int32_t n_ranks, repeats;
  int32_t n_sizes;
  int64_t bytes[HEC_BENCH_SIZES_MAX]; /* of an expert: of each message */
} hec_collective_bench;

typedef struct {
  double median, low, high; /* low, high: 10th and 90th percentile */
} hec_bench_spread;
hec_bench_spread hec_bench_spread_of(double *values, int32_t n); /* sorts them */
void hec_bench_spread_json(hec_json_out *json, const char *key, hec_bench_spread spread);

typedef struct {
  bool scatter, all;             /* all: every rank sends (gather) or sums (scatter); else rank 0 alone */
  int64_t bytes;                 /* of a message */
  hec_bench_spread speed, limit; /* bytes/s into a receiving rank, executor and limit */
  hec_bench_spread ratio;        /* executor / limit, repeat by repeat */
  int32_t n_used, n_clean;       /* repeats counted; repeats in which no rank was interrupted */
} hec_collective_row;

/* Launches the ranks and fills in rows [HEC_BENCH_ROWS_MAX], where `speaks` is true. */
hec_status hec_collective_bench_run(const hec_collective_bench *bench, hec_collective_row *rows,
                                    int32_t *n_rows) HEC_MUST_USE;
