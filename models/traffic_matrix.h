/* A traffic matrix: bytes from each rank to each rank. Its text form is the one that nccl-tests' alltoallv_perf reads
 * (NCCL_TESTS_ALLTOALLV_MATRIX_FILE; src/alltoallv.cu, github.com/NVIDIA/nccl-tests). So one file drives that benchmark
 * and this simulator:
 *
 *     0 200 150             line i: what rank i sends to rank 0, 1, 2 ..., numbers between blanks; as many lines as columns
 *     50 0 75               a number may be written with a point or exponent (1e6) where it is whole; empty lines are skipped
 *     300 150 0
 *
 * Written: integers, one blank between, a newline after each line; what was written reads back equal.
 *
 * Differences: nccl-tests rounds every number down to 16 bytes and uses the first ranks of a larger matrix. Here bytes are as
 * written, and the matrix has as many ranks as lines. The diagonal is a copy inside a rank: it crosses no link.
 *
 * Rates, as there: algbw = size / time, busbw = algbw (n - 1) / n. The size is what the busiest rank sends or receives,
 * its own part included (AlltoAllvGetBw there). Its user is told to let it report the longest time of any rank (-a 3).
 * A balanced all-to-all has size = count of all its n parts, as in alltoall_perf. Why the busiest: all end when it
 * does, so its bytes over that time are the rate that was reached. A mean would call a skewed matrix slow. What is
 * simulated and what is measured is rated by the same function, hec_traffic_rates. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
  int32_t n;
  int64_t *bytes; /* [n * n] row: source, column: destination; each at most 2^50 */
} hec_traffic_matrix;

/* On the arena. Errors (HEC_BAD_INPUT, "FILE:LINE:COLUMN: expected ..., found ..."): a number not of the form above,
 * negative or above 2^50. A line of another length; more or fewer lines than columns; more than 4096. */
hec_status hec_traffic_matrix_read(const char *path, hec_arena *arena, hec_traffic_matrix *matrix) HEC_MUST_USE;
hec_status hec_traffic_matrix_parse(const char *text, size_t length, const char *origin, hec_arena *arena,
                                    hec_traffic_matrix *matrix) HEC_MUST_USE;
void hec_traffic_matrix_write(const hec_traffic_matrix *matrix, hec_text *out);

/* The size that algbw is of: the max bytes that a rank sends or receives. */
int64_t hec_traffic_matrix_size(const hec_traffic_matrix *matrix);

typedef struct {
  double algbw, busbw; /* bytes/s */
} hec_traffic_rate;
/* Of so many seconds between n ranks; NAN without time: there is none. */
hec_traffic_rate hec_traffic_rates(int64_t size_bytes, int32_t n, double seconds);
/* GB/s as every report writes it: 4 significant digits, "-" where there is none. Returns `out`. */
const char *hec_traffic_gb_s(double rate, char out[32]);
