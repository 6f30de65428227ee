/* Exchanges are those of `hecate-run alltoallv`: the executor's own, over whatever carries its bytes. Each rank sends to
 * the rank after it on its host, or to the one in its place on the next host, so every link of a class is as busy. Of a
 * few exchanges of a size the lower quartile counts, after one that does not: connections and pages are made in it. Of the
 * smallest it is the shortest of many. What a busy host adds is neither rate nor latency.
 *
 * Hosts have clocks of their own, and leave a barrier apart, by up to a latency. In a ring that cancels: rank r begins at
 * t(r) and has everything at t(r - 1) + T, so what ranks take by their own clocks is T in the mean. */
#include "validate/calibrate/links.h"

#include "runtime/exec/alltoallv.h"
#include "validate/stats.h"

#include <math.h>

enum { ONCE = 1, TIMES = 5, TIMES_FIRST = 25, FIRST_BYTES = 256, BYTES_MIN = 4096 };
#define QUANTILE 0.25     /* of the times of a size */
#define GROWTH 2.0        /* from size to size */
#define STEADY 0.1        /* growth of time so near to that of bytes */
#define LONG_ENOUGH_S 0.2 /* or */
#define LONG_ENOUGH 1e6   /* bytes: what no queue lets pass at once */
#define TOO_LONG_S 1.0    /* no exchange needs longer, steady or not */

/* The last three sizes: did time grow with bytes from each to the next? */
static bool is_steady(const hec_link_growth *g) {
  bool steady = g->n >= 4;
  for (int32_t i = g->n - 2; steady && i < g->n; i++)
    steady = fabs(g->seconds[i] / g->seconds[i - 1] / GROWTH - 1) <= STEADY;
  int32_t last = g->n - 1;
  return steady && (g->seconds[last] >= LONG_ENOUGH_S || g->bytes[last] >= LONG_ENOUGH);
}

hec_status hec_link_grow(hec_link_probe *probe, void *context, hec_link_growth *g) {
  *g = (hec_link_growth){.n = 0};
  double bytes = FIRST_BYTES;
  do {
    g->bytes[g->n] = bytes;
    HEC_TRY(probe(context, (int64_t)bytes, &g->seconds[g->n]));
    bytes = g->n++ == 0 ? BYTES_MIN : GROWTH * bytes;
    g->steady = is_steady(g);
  } while (!g->steady && g->n < HEC_LINK_SIZES_MAX && (g->n < 3 || g->seconds[g->n - 1] < TOO_LONG_S));
  int32_t last = g->n - 1;
  double grown_s = g->seconds[last] - g->seconds[last - 2], grown = g->bytes[last] - g->bytes[last - 2];
  g->bandwidth = grown_s > 0 ? grown / grown_s : g->bytes[last] / g->seconds[last];
  g->latency_s = fmax(g->seconds[0] - g->bytes[0] / g->bandwidth, 0);
  return HEC_OK;
}

hec_line hec_link_line(const hec_link_growth *g) {
  double off[HEC_LINK_SIZES_MAX];
  for (int32_t i = 0; i < g->n; i++)
    off[i] = fabs((g->latency_s + g->bytes[i] / g->bandwidth) / g->seconds[i] - 1);
  return (hec_line){.b = 1,
                    .n_observations = g->n,
                    .residual_median = hec_quantile(off, g->n, 0.5),
                    .residual_p90 = hec_quantile(off, g->n, 0.9)};
}

/* ---- On ranks ---- */

typedef struct {
  const hec_exec_case *on;
  hec_rank *rank;
  int32_t per_host, per_link; /* ranks of a host, and of those that send over one link */
  bool between;
  int64_t *bytes; /* [n * n] */
  double *all;    /* [n * TIMES_FIRST] */
} ring;

static hec_status ring_takes(void *context, int64_t bytes, double *seconds) {
  ring *r = context;
  int32_t n = r->rank->n_ranks;
  for (int32_t i = 0; i < n; i++) {
    int32_t host = i / r->per_host * r->per_host, on_it = n - host < r->per_host ? n - host : r->per_host;
    int32_t to = r->between ? (i + r->per_host) % n : host + (i - host + 1) % on_it;
    r->bytes[(size_t)i * (size_t)n + (size_t)to] = bytes / r->per_link;
  }
  bool first = bytes == FIRST_BYTES;
  const hec_alltoallv job = {
      .matrix = &(hec_traffic_matrix){n, r->bytes}, .warmup = ONCE, .iterations = first ? TIMES_FIRST : TIMES};
  double unused[TIMES_FIRST], own[TIMES_FIRST] = {0}, mean[TIMES_FIRST] = {0};
  hec_alltoallv_check check;
  HEC_TRY(hec_alltoallv_on(&job, r->on, r->rank, unused, own, &check));
  HEC_TRY(hec_rank_gather(r->rank, own, sizeof own, r->rank->rank == 0 ? r->all : NULL));
  for (int32_t k = 0; r->rank->rank == 0 && k < n * TIMES_FIRST; k++)
    mean[k % TIMES_FIRST] += r->all[k] / n;
  *seconds = r->rank->rank == 0 ? hec_quantile(mean, job.iterations, first ? 0 : QUANTILE) : 0;
  return hec_rank_broadcast(r->rank, seconds, sizeof *seconds);
}

hec_status hec_links_measure(const hec_cluster *c, hec_rank *rank, hec_links_found *found) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_exec_case on;
  size_t n = (size_t)rank->n_ranks;
  ring r = {.on = &on, .rank = rank, .per_host = c->devices_per_node, .per_link = 1};
  *found = (hec_links_found){0};
  hec_status status = hec_exec_case_make(rank->n_ranks, &arena, &on);
  r.bytes = HEC_NEW(&arena, int64_t, n * n);
  r.all = HEC_NEW(&arena, double, n *TIMES_FIRST);
  if (status == HEC_OK && r.per_host > 1)
    status = hec_link_grow(ring_takes, &r, &found->port);
  r.between = true;
  r.per_link = (c->devices_per_node + c->nics - 1) / c->nics;
  r.bytes = HEC_NEW(&arena, int64_t, n * n);
  if (status == HEC_OK)
    status = hec_link_grow(ring_takes, &r, &found->nic);
  return status;
}

size_t hec_links_region(int32_t n_ranks) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_exec_case on;
  size_t bytes = hec_exec_case_make(n_ranks, &arena, &on) == HEC_OK ? hec_alltoallv_region(&on) : 0;
  return bytes;
}
