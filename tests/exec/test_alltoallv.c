/* A traffic matrix through the executor: every byte arrives, whatever the matrix, the ranks and the transport. Every kind of
 * fault is found, and named; times are those of the links that a transport imitates. */
#include "runtime/exec/alltoallv.h"
#include "sim/flows.h"
#include "tests/exec/launch_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ONCE(hec_math_open)
HEC_TEST_ARENA(arena)

/* Entries of all sizes: none, a few bytes, more than a block of the pattern, more than a socket takes at once. */
static hec_traffic_matrix random_matrix(uint64_t *seed, int32_t n) {
  hec_traffic_matrix m = {n, HEC_NEW(&arena, int64_t, n * n)};
  for (int32_t i = 0; i < n * n; i++) {
    uint64_t kind = hec_test_below(seed, 8);
    m.bytes[i] = kind < 2    ? 0
                 : kind < 5  ? 1 + (int64_t)hec_test_below(seed, 70)
                 : kind == 5 ? 262144 + (int64_t)hec_test_below(seed, 9) - 4
                             : (int64_t)hec_test_below(seed, 500000);
  }
  return m;
}

static int64_t sum_of(const hec_traffic_matrix *m) {
  int64_t sum = 0;
  for (int32_t i = 0; i < m->n * m->n; i++)
    sum += m->bytes[i];
  return sum;
}

static hec_alltoallv_check run(hec_alltoallv job, const char *transport, bool threads, const hec_cluster *cluster,
                               double *seconds) {
  hec_alltoallv_check check;
  hec_launch_options how = hec_test_options(job.matrix->n, threads);
  how.transport = hec_transport_find(transport);
  how.cluster = cluster;
  ck_assert_msg(hec_alltoallv_run(&job, &hec_backend_cpu, how, seconds, &check) == HEC_OK, "%s", hec_last_error());
  return check;
}

static const hec_cluster *load(const char *line) {
  hec_cluster *cluster = HEC_NEW(&arena, hec_cluster, 1);
  ck_assert_msg(hec_cluster_load(line, &arena, cluster) == HEC_OK, "%s", hec_last_error());
  return cluster;
}

HEC_TEST_LOOP(every_byte, 18) {
  uint64_t seed = 500 + (uint64_t)_i;
  int32_t n = 1 + _i % 6;
  hec_traffic_matrix m = random_matrix(&seed, n);
  const hec_cluster *cluster = load("3x2 nvlink=10G@1us nic=5G@2us flops=1T mem=1G");
  for (int32_t t = 0; hec_transports[t]; t++)
    for (int32_t threads = 0; threads < 2; threads++) {
      double seconds[3] = {-1, -1, -1};
      hec_alltoallv_check check = run((hec_alltoallv){.matrix = &m, .warmup = 1, .iterations = 3, .check = true},
                                      hec_transports[t]->name, threads, cluster, seconds);
      ck_assert_msg(check.wrong == 0 && check.rank == -1, "%s, %d ranks: %ld bytes are wrong", hec_transports[t]->name,
                    n, (long)check.wrong);
      ck_assert_int_eq(check.compared, 4 * sum_of(&m));
      for (int32_t i = 0; i < 3; i++)
        ck_assert(sum_of(&m) > 0 ? seconds[i] > 0 && seconds[i] < 20 : seconds[i] == 0);
    }
}

HEC_TEST_LOOP(nothing, 2) {
  int64_t bytes[9] = {0};
  const hec_traffic_matrix zero = {3, bytes};
  double seconds[2] = {-1, -1};
  hec_alltoallv_check check =
      run((hec_alltoallv){.matrix = &zero, .iterations = 2, .check = true}, "shm", _i, NULL, seconds);
  ck_assert(check.compared == 0 && check.wrong == 0 && seconds[0] == 0 && seconds[1] == 0);
  bytes[4] = 3; /* inside rank 1 alone */
  check = run((hec_alltoallv){.matrix = &zero, .iterations = 2, .check = true}, "shm", _i, NULL, seconds);
  ck_assert(check.compared == 6 && check.wrong == 0 && seconds[0] > 0);
  check = run((hec_alltoallv){.matrix = &zero, .iterations = 2}, "shm", _i, NULL, seconds);
  ck_assert(check.compared == 0 && check.rank == -1);
}

/* Rank 0 sends 1000 bytes to itself, 300001 to rank 2; ranks 1 and 2 send it 5003 each. */
static const int64_t faulty[9] = {1000, 10, 300001, 5003, 0, 0, 5003, 20, 30};
static const struct {
  hec_alltoallv_fault fault;
  int32_t rank, source;
  int64_t offset, min; /* -1: it may be any byte of the first word; wrong bytes at least */
} found[] = {{HEC_ALLTOALLV_FLIPPED, 2, 0, 300000, 1},
             {HEC_ALLTOALLV_EXCHANGED, 0, 1, -1, 5003},
             {HEC_ALLTOALLV_STALE, 0, 0, -1, 150000},
             {HEC_ALLTOALLV_NO_COPY, 0, 0, -1, 500}};

HEC_TEST_ROWS(faults, found) {
  const hec_traffic_matrix m = {3, (int64_t *)(uintptr_t)faulty};
  const hec_cluster *cluster = load("1x3 nvlink=10G flops=1T mem=1G");
  double seconds[2];
  ck_assert_int_eq(sizeof found / sizeof *found, HEC_ALLTOALLV_N_FAULTS - 1);
  for (int32_t t = 0; hec_transports[t]; t++)
    for (int32_t threads = 0; threads < 2; threads++) {
      hec_alltoallv_check check =
          run((hec_alltoallv){&m, .warmup = 1, .iterations = 2, .check = true, .fault = found[_i].fault},
              hec_transports[t]->name, threads, cluster, seconds);
      ck_assert_msg(check.wrong >= found[_i].min, "%s: %ld wrong bytes", hec_transports[t]->name, (long)check.wrong);
      ck_assert_int_eq(check.rank, found[_i].rank);
      ck_assert_int_eq(check.source, found[_i].source);
      ck_assert_int_eq(check.iteration, 2);
      if (found[_i].offset >= 0)
        ck_assert(check.offset == found[_i].offset && check.wrong == 1);
      else
        ck_assert_int_lt(check.offset, 4);
    }
}

/* Held to the links of a cluster, an exchange takes what the closed-form law says, and hardly more: 4 MB over 100 MB/s. The
 * quickest of several, since the machine may be busy. */
HEC_TEST_LOOP(takes_its_time, 4) {
  int64_t bytes[9] = {0, 4000000, 1000, 500000, 7, 1000000, 2000000, 1000000, 0};
  const hec_traffic_matrix m = {3, bytes};
  const hec_cluster *cluster = load("1x4 nvlink=100M@1ms flops=1T mem=1G");
  hec_flows flows;
  double finish[6], seconds[6], min = 1e9;
  ck_assert_int_eq(hec_flows_of_matrix(&m, cluster, &arena, &flows), HEC_OK);
  ck_assert_int_eq(hec_flows_run(&flows, "alpha_beta", finish), HEC_OK);
  double predicted = hec_flows_makespan(&flows, finish);
  ck_assert(predicted > 0.045 && predicted < 0.06);
  (void)run((hec_alltoallv){.matrix = &m, .warmup = 1, .iterations = 6}, _i < 2 ? "emulated" : "paced", _i % 2, cluster,
            seconds);
  for (int32_t i = 0; i < 6; i++)
    min = seconds[i] < min ? seconds[i] : min;
  ck_assert_msg(min >= (_i < 2 ? 0.9999 : 0.85) * predicted && min < 1.5 * predicted, "%.4f s measured, %.4f predicted",
                min, predicted);
}

HEC_TEST(sizes) {
  const hec_traffic_matrix m = {3, (int64_t *)(uintptr_t)faulty};
  double max, all = hec_alltoallv_bytes(&m, &max);
  ck_assert(all == 2.0 * (1000 + 12 + 300004 + 5004 + 5004 + 20 + 32));
  ck_assert(max == 1000 + 12 + 300004 + 1000 + 5004 + 5004);
  ck_assert_int_eq(hec_alltoallv_rounded(&m), 2 + 3 + 1 + 1 + 2);
}

/* A rank that fails names itself; the matrix is not left half done. */
HEC_TEST_LOOP(too_large, 2) {
  int64_t bytes[4] = {0, (int64_t)1 << 37, 0, 0}, n = 1;
  const hec_traffic_matrix m = {2, bytes};
  hec_alltoallv_check check;
  double seconds[1];
  hec_alltoallv job = {.matrix = &m, .iterations = (int32_t)n};
  ck_assert_int_eq(hec_alltoallv_run(&job, &hec_backend_cpu, hec_test_options(2, _i), seconds, &check), HEC_FAILED);
  ck_assert_msg(strstr(hec_last_error(), "137438953472 bytes of planned buffers do not fit") != NULL, "%s",
                hec_last_error());
}
