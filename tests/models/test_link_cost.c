/* Exchange, all-reduce and all-gather costs. Values by hand on 2 x 2 devices, laws over random problems on every route
 * form. And a slow oracle that evaluates the header's formulas transfer by transfer. */
#include "models/link_cost.h"
#include "tests/support/test.h"

#include <string.h>

static hec_arena arena;
static hec_cluster cluster;

static void load_cluster(const char *line) {
  ck_ok(hec_cluster_parse_line(line, &arena, &cluster));
}

static hec_transfer transfer(int32_t s, int32_t d, int64_t bytes) {
  return (hec_transfer){.bytes = bytes, .source = s, .destination = d, .item = -1, .after = -1};
}

/* Port 100 B/s, NIC of the node 10 B/s, latencies 1 s and 2 s. */
static const char *const two_by_two = "2x2 nvlink=100@1s nic=10@2s flops=1 mem=1";

HEC_TEST(by_hand_one_nic) {
  load_cluster(two_by_two);
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  hec_transfer list[] = {transfer(0, 1, 300), transfer(0, 2, 40), transfer(1, 3, 20), transfer(3, 2, 50)};
  double makespan = hec_link_cost_exchange(&cost, list, 4, false, 1);
  /* node 0 sends 60 bytes at 10 B/s: 6 s, plus 2 s of latency; within nodes 1 + 3 s and 1 + 0.5 s */
  ck_near(cost.done_s[0], 8);
  ck_near(cost.done_s[1], 8);
  ck_near(cost.done_s[2], 8);
  ck_near(cost.done_s[3], 8);
  ck_near(makespan, 8);
  ck_near(hec_link_cost_exchange(&cost, list, 1, false, 1), 4);
  ck_near(cost.done_s[0], 4);
  ck_near(cost.done_s[1], 4);
  ck_near(cost.done_s[2], 0);
  ck_near(hec_link_cost_exchange(&cost, list + 3, 1, false, 1), 1.5);
  ck_near(hec_link_cost_exchange(&cost, list, 0, false, 1), 0);
  hec_transfer nothing = transfer(0, 3, 0);
  ck_near(hec_link_cost_exchange(&cost, &nothing, 1, false, 1), 2);
}

/* Rank 0 receives 100 bytes and rank 2 sends them. Rank 3 sends 30 bytes to rank 2 in the node: only its own ports
 * count. */
HEC_TEST(by_hand_sides) {
  load_cluster("2x2 nvlink=100@0s nic=10@0s flops=1 mem=1 nics=2");
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  hec_transfer list[] = {transfer(2, 0, 100), transfer(3, 0, 50), transfer(3, 2, 300)};
  double makespan = hec_link_cost_exchange(&cost, list, 3, false, 1);
  ck_near(cost.done_s[0], 15); /* 150 bytes into NIC 0 */
  ck_near(cost.done_s[2], 10); /* its own NIC out: 100 bytes; the other end's NIC is not on its side */
  ck_near(cost.done_s[3], 5);
  ck_near(cost.done_s[1], 0);
  ck_near(makespan, 15);
}

HEC_TEST(by_hand_chain) {
  load_cluster(two_by_two);
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  hec_transfer list[] = {transfer(0, 2, 100), transfer(2, 3, 100)};
  list[1].after = 0;
  /* whole: 2 + 10 and 1 + 1 side by side; in 4 chunks the second waits 2 + 25/10 for its first chunk */
  ck_near(hec_link_cost_exchange(&cost, list, 2, false, 1), 12);
  ck_near(hec_link_cost_exchange(&cost, list, 2, false, 4), 12);
  ck_near(cost.done_s[3], 2 + 2.5 + 1 + 1);
  ck_near(cost.done_s[2], 12);
  /* backwards: 3 -> 2 first, then 2 -> 0 waits 1 + 25/100 */
  ck_near(hec_link_cost_exchange(&cost, list, 2, true, 4), 1.25 + 12);
  ck_near(cost.done_s[3], 2);
}

HEC_TEST(by_hand_collectives) {
  load_cluster(two_by_two);
  ck_near(hec_link_cost_allreduce(&cluster, 1, 1000), 0);
  /* 2 ranks on one node: 2 * 1/2 * 100/100 + 2 hops of 1 s */
  ck_near(hec_link_cost_allreduce(&cluster, 2, 100), 1 + 2);
  /* 4 ranks, one ring: 2 * 3/4 * (100/10 + latencies 1 + 2 + 1 + 2) */
  ck_near(hec_link_cost_allreduce(&cluster, 4, 100), 1.5 * (10 + 6));
  /* all-gather of 20 bytes each: 60/100 into a port, 40/10 into a node, 2 s */
  ck_near(hec_link_cost_allgather(&cluster, 4, 20), 4 + 2);
  ck_near(hec_link_cost_allgather(&cluster, 2, 20), 0.2 + 1);
  ck_near(hec_link_cost_allgather(&cluster, 1, 20), 0);
  load_cluster("2x2 nvlink=100@1s nic=10@2s flops=1 mem=1 nics=2");
  ck_near(hec_link_cost_allreduce(&cluster, 4, 100), 1.5 * (5 + 6)); /* two rings of 50 bytes */
  ck_near(hec_link_cost_allreduce(&cluster, 3, 99),
          4.0 / 3 * (9.9 + 1 + 2 + 2)); /* rank 2 alone on its node: one ring */
  ck_near(hec_link_cost_allgather(&cluster, 4, 20), 2 + 2);
  /* two leaves of two nodes: the uplink carries the ring once; within one leaf it carries nothing */
  load_cluster("4x1 nic=10@1s leaf=2 uplink=5@3s flops=1 mem=1");
  ck_near(hec_link_cost_allreduce(&cluster, 4, 100), 1.5 * (20 + 1 + 4 + 1 + 4));
  ck_near(hec_link_cost_allreduce(&cluster, 2, 100), 10 + 2);
}

HEC_TEST(by_hand_equal_places) {
  load_cluster(two_by_two);
  /* pairs 0-2 and 1-3 over one NIC: 2 * 1/2 * (200/10 + 2 hops of 2 s). A pair in a node is a group of its own */
  ck_near(hec_link_cost_allreduce_strided(&cluster, 4, 2, 100), 20 + 4);
  ck_near(hec_link_cost_allreduce_strided(&cluster, 4, 4, 100), 0);
  ck_near(hec_link_cost_allreduce_strided(&cluster, 2, 2, 100), 0);
  ck_near(hec_link_cost_allreduce_strided(&cluster, 4, 2, 0), 0);
  for (double bytes = 1; bytes < 1000; bytes *= 3)
    ck_near(hec_link_cost_allreduce_strided(&cluster, 4, 1, bytes), hec_link_cost_allreduce(&cluster, 4, bytes));
  load_cluster("2x4 nvlink=100@1s nic=10@2s flops=1 mem=1 nics=4");
  /* each place its own NIC: 200 / 4 of two rings of 100 through a NIC; 4 ranks, hops 1 + 2 + 1 + 2 */
  ck_near(hec_link_cost_allreduce_strided(&cluster, 8, 2, 100), 1.5 * (5 + 6));
  ck_near(hec_link_cost_allreduce_strided(&cluster, 8, 4, 100), 10 + 4);
  load_cluster("1x4 nvlink=100@1s flops=1 mem=1");
  ck_near(hec_link_cost_allreduce_strided(&cluster, 4, 2, 100), 1 + 2);
  /* two leaves of two nodes: both rings of 4 ranks on the uplink */
  load_cluster("4x2 nvlink=100@1s nic=10@1s leaf=2 uplink=5@3s flops=1 mem=1");
  ck_near(hec_link_cost_allreduce_strided(&cluster, 8, 2, 100), 1.5 * (40 + 1 + 4 + 1 + 4));
}

/* Ports of 100 B/s of which messages of 10 bytes reach half, of 30 bytes all; NICs without such shares. */
HEC_TEST(by_hand_shares) {
  const char *text =
      "{\"nodes\": 2, \"devices_per_node\": 2, \"nics\": 1, \"device\": {\"flops\": 1, \"memory_bytes\": 1},"
      "\"nvlink\": {\"bandwidth\": 100, \"latency\": 1, \"efficiency_by_bytes\": [[10, 0.5], [30, 1]]},"
      "\"nic\": {\"bandwidth\": 10, \"latency\": 2}}";
  ck_ok(hec_cluster_parse_json(text, "c.json", &arena, &cluster));
  ck_near(hec_cluster_share_of(&cluster, 0, 1, 0), 0.5);
  ck_near(hec_cluster_share_of(&cluster, 0, 1, 10), 0.5);
  ck_near(hec_cluster_share_of(&cluster, 0, 1, 15), 0.625);
  ck_near(hec_cluster_share_of(&cluster, 0, 1, 31), 1);
  ck_near(hec_cluster_share_of(&cluster, 0, 2, 10), 1);
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  hec_transfer list[] = {transfer(0, 1, 10), transfer(0, 1, 300), transfer(1, 0, 8), transfer(0, 2, 40)};
  /* out of rank 0: 10 / 0.5 + 300; out of rank 1: 8 / 0.5; between nodes 40 / 10 */
  ck_near(hec_link_cost_exchange(&cost, list, 2, false, 1), 1 + 3.2);
  ck_near(hec_link_cost_exchange(&cost, list + 2, 1, false, 1), 1.16);
  ck_near(hec_link_cost_exchange(&cost, list, 4, false, 1), 6);
  ck_near(hec_link_cost_exchange(&cost, list, 4, true, 1), 6);
  ck_near(cost.done_s[1], 4.2);
  hec_transfer odd = transfer(0, 1, 15); /* 15 / 0.625 = 24 bytes */
  ck_near(hec_link_cost_exchange(&cost, &odd, 1, false, 1), 1.24);
  odd.bytes = 16; /* 16 / 0.65 = 24.6: whole bytes */
  ck_near(hec_link_cost_exchange(&cost, &odd, 1, false, 1), 1.25);
  /* ring of 2 ranks, a step's message 10 bytes: 2 * 1/2 * 20 / 50 + 2 latencies; all-gather of 15 each: 15 / 62.5 */
  ck_near(hec_link_cost_allreduce(&cluster, 2, 20), 0.4 + 2);
  ck_near(hec_link_cost_allreduce(&cluster, 2, 100), 1 + 2);
  ck_near(hec_link_cost_allgather(&cluster, 2, 15), 0.24 + 1);
}

static const char *const forms[] = {
    "3x4 nvlink=123.5G@2us nic=7.25G@5us flops=1T mem=1G",
    "3x4 nvlink=123.5G@2us nic=7.25G@5us flops=1T mem=1G through=1 nvlink_eff=0.75 nic_eff=0.9",
    "4x4 nvlink=100G@2us nic=7G@5us nics=4 leaf=2 uplink=11G@1us flops=1T mem=1G",
    "4x4 nvlink=100G@2us nic=7G@5us nics=4 leaf=2 uplink=11G@1us pxn=1 through=1 flops=1T mem=1G",
    "5x3 nvlink=100G@2us nic=7G@5us nics=2 leaf=2 uplink=11G@1us flops=1T mem=1G",
    "1x6 nvlink=100G@2us flops=1T mem=1G",
    "6x1 nic=10G@2us flops=1T mem=1G",
    "40x8 nvlink=100G@2us nic=7G@5us flops=1T mem=1G", /* no table of pairs: past 256 devices */
};
enum { N_FORMS = sizeof forms / sizeof *forms, TRANSFERS = 200 };

static int32_t random_transfers(uint64_t *random, hec_transfer *list) {
  int32_t n = (int32_t)hec_test_below(random, TRANSFERS) + 1;
  for (int32_t i = 0; i < n; i++) {
    int32_t s = (int32_t)hec_test_below(random, (uint64_t)cluster.n_devices);
    int32_t d = (int32_t)hec_test_below(random, (uint64_t)cluster.n_devices - 1);
    list[i] = transfer(s, d + (d >= s), (int64_t)hec_test_below(random, 1 << 28));
    if (hec_test_below(random, 10) == 0)
      list[i].bytes = 0;
  }
  return n;
}

/* The header's formulas, for one rank: all transfers of all links are summed again for each of its routes. */
static double oracle_done(const hec_transfer *list, int32_t n, int32_t rank) {
  double done = 0;
  for (int32_t i = 0; i < n; i++) {
    if (list[i].source != rank && list[i].destination != rank)
      continue;
    const int32_t *mine, *other;
    int32_t length = hec_cluster_route(&cluster, list[i].source, list[i].destination, &mine);
    double busiest = 0;
    for (int32_t l = 0; l < length; l++) {
      int side = cluster.route_side[mine - cluster.route_link + l];
      if (!(side & (list[i].source == rank ? 1 : 2)))
        continue;
      int64_t load = 0;
      for (int32_t j = 0; j < n; j++) {
        int32_t m = hec_cluster_route(&cluster, list[j].source, list[j].destination, &other);
        for (int32_t k = 0; k < m; k++)
          load += other[k] == mine[l] ? list[j].bytes : 0;
      }
      double s = (double)load / cluster.links[mine[l]].bandwidth;
      busiest = s > busiest ? s : busiest;
    }
    double t = (double)hec_cluster_latency_ps(&cluster, list[i].source, list[i].destination) * 1e-12 + busiest;
    done = t > done ? t : done;
  }
  return done;
}

HEC_TEST_LOOP(against_oracle, N_FORMS) {
  load_cluster(forms[_i]);
  uint64_t random = 11 + (uint64_t)_i;
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  hec_transfer list[TRANSFERS];
  for (int trial = 0; trial < 12; trial++) {
    int32_t n = random_transfers(&random, list);
    double makespan = hec_link_cost_exchange(&cost, list, n, false, 1), largest = 0;
    for (int32_t r = 0; r < cluster.n_devices; r++) {
      ck_near(cost.done_s[r], oracle_done(list, n, r));
      ck_assert(cost.done_s[r] <= makespan);
      largest = cost.done_s[r] > largest ? cost.done_s[r] : largest;
    }
    ck_assert(makespan == largest);
    for (int32_t l = 0; l < cluster.n_links; l++)
      ck_assert(cost.load[l] == 0);
  }
}

/* Rows of all pairs, some of them none, cost what their messages do; also of fewer ranks than devices. */
HEC_TEST_LOOP(rows_of_pairs, N_FORMS) {
  enum { RANKS = 16 };
  load_cluster(forms[_i]);
  uint64_t random = 91 + (uint64_t)_i;
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  ck_assert(!hec_link_cost_sums(&cost, 1024.5));
  ck_assert(hec_link_cost_sums(&cost, 1024) == cost.by_seats);
  for (int trial = 0; trial < 20 && cost.by_seats; trial++) {
    int32_t n = cluster.n_devices - (int32_t)hec_test_below(&random, 3), n_messages = 0;
    uint32_t rows[RANKS * RANKS];
    hec_transfer list[RANKS * RANKS];
    ck_assert(n > 0 && n <= RANKS);
    for (int32_t s = 0; s < n; s++)
      for (int32_t d = 0; d < n; d++) {
        uint32_t *of = &rows[d * n + s];
        *of = hec_test_below(&random, 4) == 0 ? (uint32_t)hec_test_below(&random, 1 << 20) : 0;
        if (s != d && *of > 0)
          list[n_messages++] = transfer(s, d, (int64_t)*of * 1024);
      }
    double makespan = hec_link_cost_rows(&cost, rows, n, 1024);
    ck_assert(makespan == hec_link_cost_exchange(&cost, list, n_messages, false, 1));
    ck_assert(hec_link_cost_rows(&cost, rows, n, 0) == 0);
  }
}

/* Reverse is the swapped input; time is linear in bytes beyond latency. No link is faster than its load; more
 * bandwidth, less or equal time; order of transfers does not matter. */
HEC_TEST_LOOP(laws, N_FORMS) {
  load_cluster(forms[_i]);
  uint64_t random = 100 + (uint64_t)_i;
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  hec_transfer list[TRANSFERS], other[TRANSFERS];
  for (int trial = 0; trial < 200; trial++) {
    int32_t n = random_transfers(&random, list);
    double forward = hec_link_cost_exchange(&cost, list, n, false, 1);
    for (int32_t i = 0; i < n; i++)
      other[i] = transfer(list[n - 1 - i].destination, list[n - 1 - i].source, list[n - 1 - i].bytes);
    ck_assert(hec_link_cost_exchange(&cost, other, n, true, 1) == forward);
    double backward = hec_link_cost_exchange(&cost, other, n, false, 1);
    ck_assert(hec_link_cost_exchange(&cost, list, n, true, 1) == backward);
    for (int32_t i = 0; i < n; i++)
      other[i] = transfer(list[i].source, list[i].destination, 2 * list[i].bytes);
    double twice = hec_link_cost_exchange(&cost, other, n, false, 1);
    ck_assert(twice >= forward && twice <= 2 * forward);
    int32_t link = (int32_t)hec_test_below(&random, (uint64_t)cluster.n_links);
    double before = cluster.links[link].bandwidth;
    cluster.links[link].bandwidth *= 1.5;
    ck_assert(hec_link_cost_exchange(&cost, list, n, false, 1) <= forward);
    cluster.links[link].bandwidth = before;
  }
}

/* Without latency, time is exactly proportional to bytes and the makespan is the busiest link's time. */
HEC_TEST(homogeneous) {
  load_cluster("3x4 nvlink=64G nic=4G flops=1T mem=1G");
  uint64_t random = 5;
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  hec_transfer list[TRANSFERS], other[TRANSFERS];
  for (int trial = 0; trial < 200; trial++) {
    int32_t n = random_transfers(&random, list);
    double load[64] = {0}, busiest = 0;
    for (int32_t i = 0; i < n; i++) {
      const int32_t *route;
      int32_t m = hec_cluster_route(&cluster, list[i].source, list[i].destination, &route);
      for (int32_t l = 0; l < m; l++)
        load[route[l]] += (double)list[i].bytes;
      other[i] = transfer(list[i].source, list[i].destination, 4 * list[i].bytes);
    }
    for (int32_t l = 0; l < cluster.n_links; l++)
      busiest = load[l] / cluster.links[l].bandwidth > busiest ? load[l] / cluster.links[l].bandwidth : busiest;
    double makespan = hec_link_cost_exchange(&cost, list, n, false, 1);
    ck_assert(makespan == busiest);
    ck_assert(hec_link_cost_exchange(&cost, other, n, false, 1) == 4 * makespan);
  }
}

/* A line of hops: more chunks never cost more, one chunk adds nothing, and reversing the chain keeps its length. */
HEC_TEST(chains) {
  load_cluster("4x2 nvlink=100G@2us nic=10G@5us flops=1T mem=1G");
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  hec_transfer list[] = {transfer(0, 2, 1 << 24), transfer(2, 4, 1 << 24), transfer(4, 6, 1 << 24)};
  list[1].after = 0;
  list[2].after = 1;
  double before = 1e9;
  for (int32_t chunks = 2; chunks <= 64; chunks *= 2) {
    double time = hec_link_cost_exchange(&cost, list, 3, false, chunks);
    ck_near(time, 5e-6 + 0x1p24 / 10e9 + 2 * (5e-6 + 0x1p24 / 10e9 / chunks));
    ck_near(hec_link_cost_exchange(&cost, list, 3, true, chunks), time);
    ck_assert(time < before);
    before = time;
  }
}

/* One object for many exchanges: what an earlier one left behind changes nothing. */
HEC_TEST(reused) {
  load_cluster("4x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G");
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  hec_transfer list[32 * 31];
  uint64_t seed = 311;
  double min = 1e9, max = 0;
  for (int32_t i = 0; i < 60; i++) {
    int32_t n = 0, part = 1 + i % 7;
    for (int32_t s = 0; s < 32; s++)
      for (int32_t d = 0; d < 32; d++)
        if (s != d && hec_test_below(&seed, 7) < (uint64_t)part)
          list[n++] = transfer(s, d, 1000 + (int64_t)hec_test_below(&seed, 1 << 20));
    HEC_SCOPED(hec_link_cost) fresh = hec_link_cost_new(&cluster, &arena);
    double time = hec_link_cost_exchange(&cost, list, n, i % 2 == 1, 1);
    ck_assert_double_eq(time, hec_link_cost_exchange(&fresh, list, n, i % 2 == 1, 1));
    min = time < min ? time : min;
    max = time > max ? time : max;
  }
  ck_assert_double_gt(max, 2 * min); /* the exchanges really differ */
}
