/* max_min against SimGrid on random networks: every finish within 1e-8, relative, or 2 ps. Skipped where the program that asks
 * SimGrid was not built (simgrid_flows.cpp). */
#include "tests/support/test.h"
#include "validate/network_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM HEC_BINARY_DIR "/simgrid-flows"

HEC_TEST_NEEDS(access(PROGRAM, X_OK) == 0, "SimGrid (libsimgrid-dev) was not found when this was built")
HEC_TEST_ARENA(arena)

enum { HOSTS_MAX = 48, LINKS_MAX = 4 * HOSTS_MAX, FLOWS_MAX = 600, HOPS_MAX = 5 };

/* kind 0: one switch; 1: nodes of 4 behind a shared NIC; 2: the same under two thin cores; 3: relays, as with PXN. */
static int32_t make_route(int kind, int32_t n, int32_t s, int32_t d, int32_t *link) {
  int32_t nodes = (n + 3) / 4, at = 0, relay = s / 4 * 4 + d % 4;
  link[at++] = s;
  if (kind > 0 && s / 4 != d / 4) {
    if (kind == 3 && relay != s && relay < n)
      link[at++] = n + relay;
    link[at++] = 2 * n + s / 4;
    if (kind == 2)
      link[at++] = 2 * n + 2 * nodes + (s / 4 + d / 4) % 2;
    link[at++] = 2 * n + nodes + d / 4;
  }
  link[at++] = n + d;
  return at;
}

static void make_case(uint64_t *random, hec_flows *flows) {
  int kind = (int)hec_test_below(random, 4);
  int32_t n = 2 + (int32_t)hec_test_below(random, HOSTS_MAX - 1), nodes = (n + 3) / 4, at = 0;
  bool staggered = hec_test_below(random, 2) == 0, unequal = hec_test_below(random, 2) == 0;
  *flows = (hec_flows){.n_hosts = n, .n_links = 2 * n + 2 * nodes + 2, .hosts_per_node = n};
  flows->bandwidth = HEC_NEW(&arena, double, flows->n_links);
  flows->route_at = HEC_NEW(&arena, int32_t, FLOWS_MAX + 1);
  flows->route_link = HEC_NEW(&arena, int32_t, FLOWS_MAX * HOPS_MAX);
  flows->route_latency = HEC_NEW(&arena, double, FLOWS_MAX);
  flows->flow = HEC_NEW(&arena, hec_flow, FLOWS_MAX);
  for (int32_t l = 0; l < flows->n_links; l++)
    flows->bandwidth[l] = floor(2.385e10 * (unequal ? 0.1 + 2 * hec_test_uniform(random) : 1));
  uint64_t share = 1 + hec_test_below(random, 8);
  for (int32_t s = 0; s < n; s++)
    for (int32_t d = 0; d < n; d++) {
      if (s == d || hec_test_below(random, 8) >= share || flows->n_flows + 2 > FLOWS_MAX)
        continue;
      int32_t route = flows->n_routes++;
      at += make_route(kind, n, s, d, flows->route_link + at);
      flows->route_at[route + 1] = at;
      flows->route_latency[route] = 1e-6 * (double)hec_test_below(random, 10);
      for (uint64_t k = 1 + (hec_test_below(random, 6) == 0); k > 0; k--)
        flows->flow[flows->n_flows++] = (hec_flow){.source = s,
                                                   .destination = d,
                                                   .route = route,
                                                   .bytes = 1 + (int64_t)(8e6 * pow(hec_test_uniform(random), 3)),
                                                   .start = staggered ? 1e-3 * hec_test_uniform(random) : 0,
                                                   .expected_finish = -1};
    }
}

HEC_TEST_LOOP(finishes_are_simgrids, 10) {
  uint64_t random = 500 + (uint64_t)_i;
  static double ours[FLOWS_MAX], theirs[FLOWS_MAX];
  for (int k = 0; k < 10; k++) {
    hec_flows flows;
    double seconds;
    make_case(&random, &flows);
    if (flows.n_flows == 0)
      continue;
    ck_assert_int_eq(hec_flows_run(&flows, "max_min", ours), HEC_OK);
    ck_assert_msg(hec_network_peer(PROGRAM, &flows, &seconds, theirs) == HEC_OK, "%s", hec_last_error());
    for (int32_t f = 0; f < flows.n_flows; f++)
      ck_assert_msg(fabs(ours[f] - theirs[f]) <= fmax(2e-12, 1e-8 * theirs[f]), "flow %d of %d: %.17g s, SimGrid %.17g",
                    f, flows.n_flows, ours[f], theirs[f]);
    hec_arena_free(&arena);
  }
}
