/* A traffic matrix on a cluster. By hand, and against what the simulator does with the same bytes as one exchange, under
 * every law, on clusters of every tier. */
#include "runtime/plan/problem.h"
#include "sim/flows.h"
#include "tests/sim/sim_case.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)

static void flows_of(const hec_traffic_matrix *m, const hec_cluster *cluster, hec_flows *flows) {
  ck_ok(hec_flows_of_matrix(m, cluster, &arena, flows));
}

/* Two nodes of two: 1 GB/s ports with 2 us, 0.5 GB/s NICs with 5 us. Ranks 0 and 1 send 1000 and 3000 bytes to node 1:
 * 5 us + 4000 / 0.5 GB/s = 13 us is the last. 1 sends 500 to 0 in the node. The size is what rank 2 receives, 4000,
 * against 107 (own part) + 3000 + 500 that rank 1 sends. */
HEC_TEST(by_hand) {
  hec_cluster cluster;
  ck_ok(hec_cluster_load("2x2 nvlink=1G@2us nic=500M@5us flops=1T mem=1G", &arena, &cluster));
  int64_t bytes[16] = {0, 0, 1000, 0, 500, 107, 3000, 0};
  const hec_traffic_matrix m = {4, bytes};
  hec_flows flows;
  double finish[3];
  flows_of(&m, &cluster, &flows);
  ck_assert(flows.n_flows == 3 && flows.n_hosts == 4 && flows.hosts_per_node == 2 && flows.size_bytes == 4000);
  ck_assert_str_eq(flows.host_name[3], "rank3");
  ck_assert_str_eq(flows.link_name[flows.route_link[flows.route_at[0]]], "nic_out:node0");
  ck_ok(hec_flows_run(&flows, "alpha_beta", finish));
  ck_assert_double_eq_tol(hec_flows_makespan(&flows, finish), 13e-6, 1e-15);
  ck_ok(hec_flows_run(&flows, "max_min", finish));
  ck_assert_double_eq_tol(finish[0], 5e-6 + 4e-6, 1e-15); /* half of the NIC each until then */
  ck_assert_double_eq_tol(finish[1], 2.5e-6, 1e-15);
  ck_assert_double_eq_tol(finish[2], 13e-6, 1e-15);
  hec_traffic_rate rate = hec_traffic_rates(flows.size_bytes, flows.n_hosts, 13e-6);
  ck_assert_double_eq_tol(rate.algbw, 4000 / 13e-6, 1e-3);
  ck_assert_double_eq_tol(rate.busbw, 3000 / 13e-6, 1e-3);
  ck_assert(isnan(hec_traffic_rates(flows.size_bytes, flows.n_hosts, 0).algbw));
  memset(bytes, 0, sizeof bytes);
  bytes[5] = 1000; /* the diagonal alone moves nothing */
  flows_of(&m, &cluster, &flows);
  ck_assert(flows.n_flows == 0 && flows.size_bytes == 1000);
  for (int32_t i = 0; hec_flows_law_name(i); i++) {
    ck_ok(hec_flows_run(&flows, hec_flows_law_name(i), finish));
    ck_assert(hec_flows_makespan(&flows, finish) == 0);
  }
}

/* PXN: 0 -> 3 goes over device 1, which has the first chunk of 128 KiB, or all of less, before it sends. 0 -> 2 stays
 * on its rail. Latency 2 us to the relay and 5 us on. max_min knows no chunks. */
HEC_TEST(relays_wait_for_a_chunk) {
  hec_cluster cluster;
  int64_t bytes[16] = {0};
  const hec_traffic_matrix m = {4, bytes};
  hec_flows flows;
  double finish;
  ck_ok(hec_cluster_load("2x2 nvlink=1G@2us nic=500M@5us nics=2 pxn=1 flops=1T mem=1G", &arena, &cluster));
  const struct {
    int32_t chunk, destination;
    int64_t bytes;
    double relay_s;
  } cases[] = {{131072, 3, 1000000, 131072e-9},
               {131072, 3, 100, 100e-9},
               {0, 3, 1000000, 0},
               {1000, 3, 1000000, 1e-6},
               {131072, 2, 1000000, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double latency = (cases[i].destination == 3 ? 7e-6 : 5e-6) + (double)cases[i].bytes / 500e6;
    if (i > 0)
      cluster.p2p.chunk_bytes = cases[i].chunk; /* the first is the default */
    bytes[2] = bytes[3] = 0;
    bytes[cases[i].destination] = cases[i].bytes;
    flows_of(&m, &cluster, &flows);
    ck_ok(hec_flows_run(&flows, "nccl_rounds", &finish));
    ck_assert_double_eq_tol(finish, latency + cases[i].relay_s, 1e-12);
    ck_ok(hec_flows_run(&flows, "max_min", &finish));
    ck_assert_double_eq_tol(finish, latency, 1e-12);
  }
}

static const char *const lines[] = {
    "1x4 nvlink=300G@2us flops=1T mem=1G",
    "2x4 nvlink=300G@2us nic=50G@5us flops=1T mem=1G",
    "4x2 nvlink=300G@2us nic=50G@5us nics=2 pxn=1 flops=1T mem=1G p2p=8:4",
    "4x2 nvlink=300G@2us nic=50G@5us leaf=2 uplink=60G@1us flops=1T mem=1G through=1",
    "4x4 nvlink=300G@2us nic=50G@5us nics=4 pxn=1 leaf=2 uplink=60G@1us flops=1T mem=1G",
    "6x1 nic=25G@3us flops=1T mem=1G p2p=4:4"};

/* The matrix as one exchange of a program. */
static void make_exchange(const hec_traffic_matrix *m, hec_program *p) {
  hec_program_clear(p, m->n);
  for (int32_t s = 0; s < m->n; s++)
    for (int32_t d = 0; d < m->n; d++)
      if (s != d && m->bytes[s * m->n + d] > 0) {
        HEC_RESERVE(p->transfers, p->transfers_capacity, p->n_transfers + 1);
        p->transfers[p->n_transfers++] =
            (hec_transfer){.bytes = m->bytes[s * m->n + d], .source = s, .destination = d, .item = -1, .after = -1};
      }
  hec_op sent = hec_op_new(HEC_OP_EXCHANGE, HEC_LANE_TOKEN, HEC_ROLE_DISPATCH, -1);
  sent.exchange.n_transfers = (int32_t)p->n_transfers;
  (void)hec_program_add(p, sent, NULL, 0);
}

/* On the last two clusters links have shares by message size; the whole cluster need not be used. */
HEC_TEST_LOOP(as_an_exchange, 120) {
  static const hec_link_share shares[] = {{1e4, 0.3}, {1e6, 0.9}, {1e8, 1}};
  uint64_t seed = 300 + (uint64_t)_i;
  hec_cluster cluster;
  int32_t line = _i % (int32_t)(sizeof lines / sizeof *lines);
  ck_ok(hec_cluster_load(lines[line], &arena, &cluster));
  for (int32_t l = 0; line >= 4 && l < cluster.n_links; l++) {
    cluster.links[l].shares = shares;
    cluster.links[l].n_shares = 3;
    cluster.sized = true;
  }
  int32_t n = 2 + (int32_t)hec_test_below(&seed, (uint64_t)cluster.n_devices - 1);
  hec_traffic_matrix m = {n, HEC_NEW(&arena, int64_t, n * n)};
  for (int32_t i = 0; i < n * n; i++)
    m.bytes[i] = hec_test_below(&seed, 3) == 0 ? 0 : (int64_t)hec_test_below(&seed, 1 << 24);
  m.bytes[1] = 77;
  hec_flows flows;
  HEC_SCOPED(hec_program) p = {0};
  flows_of(&m, &cluster, &flows);
  make_exchange(&m, &p);
  double *finish = HEC_NEW(&arena, double, flows.n_flows);
  const hec_problem problem = {.cluster = &cluster, .n_ranks = n};
  for (int32_t i = 0; hec_flows_law_name(i); i++) {
    const char *law = hec_flows_law_name(i);
    ck_ok(hec_flows_run(&flows, law, finish));
    int64_t end_ps = hec_test_end_ps(&problem, &p, hec_law_find(law), (hec_sim_options){0});
    double wanted = (double)end_ps * 1e-12, found = hec_flows_makespan(&flows, finish);
    double bytes = cluster.sized && strcmp(law, "alpha_beta") == 0 ? 0.5 * flows.n_flows : 0; /* rounded loads there */
    ck_assert_msg(fabs(wanted - found) <= 2e-12 + bytes / 25e9, "%s on %s, %d ranks: exchange %.15g s, flows %.15g s",
                  law, lines[line], n, wanted, found);
  }
}

HEC_TEST(too_many_ranks) {
  hec_cluster cluster;
  hec_flows flows;
  int64_t bytes[25] = {0};
  ck_ok(hec_cluster_load(lines[0], &arena, &cluster));
  ck_assert_int_eq(hec_flows_of_matrix(&(hec_traffic_matrix){5, bytes}, &cluster, &arena, &flows), HEC_BAD_INPUT);
  ck_assert(strstr(hec_last_error(), "at most the 4 devices") && strstr(hec_last_error(), "found 5 ranks"));
}
