/* Links found by exchanges that grow, on links whose law is known: a latency, a bucket that lets bytes pass at once, a
 * protocol for short messages, a rate so high that nothing is long, one so low that all is. And exchanges of a launch:
 * every rank gets the same answer, and each class the bytes that are its own. */
#include "tests/support/test.h"
#include "validate/calibrate/links.h"

#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)

typedef struct {
  double rate, latency_s, bucket, short_bytes, short_s; /* what has at most short_bytes takes short_s more */
  int32_t n;
  int64_t largest;
} law;

static hec_status by_law(void *context, int64_t bytes, double *seconds) {
  law *l = context;
  double size = (double)bytes;
  *seconds = l->latency_s + fmax(size - l->bucket, 0) / l->rate + (size <= l->short_bytes ? l->short_s : 0) + 1e-7;
  l->n++;
  l->largest = bytes;
  return HEC_OK;
}

static const struct {
  law of;
  double latency_s, off; /* expected, and how far the rate may be off */
  bool steady;
  int64_t largest; /* exchange tried */
} laws[] = {
    {{.rate = 1e6}, 0, 1e-6, true, 262144},                /* 1 MB/s: a fifth of a second is enough */
    {{.rate = 1e6, .bucket = 1e4}, 0, 1e-6, true, 262144}, /* the bucket is gone */
    {{.rate = 4e6, .latency_s = 0.01}, 0.01, 1e-6, true, 1048576},
    {{.rate = 25e9, .latency_s = 2e-6}, 2e-6, 1e-6, true, 1048576},
    {{.rate = 1e9, .latency_s = 5e-6, .short_bytes = 65536, .short_s = 1e-5}, 1.5e-5, 1e-6, true, 1048576},
    {{.rate = 100}, 0, 1e-6, false, 8192},                        /* no exchange takes hours */
    {{.rate = 1e6, .bucket = 1e9}, 0, INFINITY, false, 16777216}, /* nothing but bucket: said, not hidden */
};

HEC_TEST_ROWS(growth, laws) {
  law l = laws[_i].of;
  hec_link_growth found;
  ck_assert(hec_link_grow(by_law, &l, &found) == HEC_OK);
  ck_assert_int_eq(found.steady, laws[_i].steady);
  ck_assert_int_eq(l.largest, laws[_i].largest);
  ck_assert_int_eq(l.n, found.n);
  ck_assert(fabs(found.bandwidth / l.rate - 1) <= laws[_i].off);
  ck_assert_double_eq_tol(found.latency_s, laws[_i].latency_s, 2e-7);
}

static hec_status fails(void *context, int64_t bytes, double *seconds) {
  (void)context, (void)bytes, (void)seconds;
  return hec_fail(HEC_FAILED, "gone");
}

HEC_TEST(a_failure_ends_it) {
  hec_link_growth found;
  ck_assert_int_eq(hec_link_grow(fails, NULL, &found), HEC_FAILED);
  ck_assert_str_eq(hec_last_error(), "gone");
}

/* ---- On ranks ---- */

typedef struct {
  hec_cluster cluster;
  hec_links_found found[4];
} launched;

static hec_status measure(hec_rank *rank, void *context) {
  launched *l = context;
  return hec_links_measure(&l->cluster, rank, &l->found[rank->rank]);
}

static const struct {
  const char *line;
  bool port;
} lines[] = {{"2x2 nvlink=1G nic=1G flops=1T mem=1G", true}, {"4x1 nic=1G flops=1T mem=1G", false}};

HEC_TEST_ROWS(on_ranks, lines) {
  launched l = {.cluster = {.n_nodes = 0}};
  if (hec_cluster_load(lines[_i].line, &arena, &l.cluster) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  const hec_launch_options options = {.n_ranks = 4,
                                      .threads = true,
                                      .transport = hec_transport_find("shm"),
                                      .cluster = &l.cluster,
                                      .memory_bytes = hec_links_region(4)};
  if (hec_launch(&options, measure, &l) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  ck_assert_int_eq(l.found[0].port.bandwidth > 0, lines[_i].port);
  ck_assert(l.found[0].nic.bandwidth > 0 && l.found[0].nic.n >= 3);
  for (int32_t r = 1; r < 4; r++)
    ck_assert(l.found[r].nic.n == l.found[0].nic.n &&
              memcmp(l.found[r].nic.seconds, l.found[0].nic.seconds,
                     (size_t)l.found[0].nic.n * sizeof *l.found[0].nic.seconds) == 0);
}
