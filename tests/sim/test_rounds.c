/* NCCL's rounds: the order, what is in flight at once, that nothing waits for ever; and the laws that use them. */
#include "sim/flows.h"
#include "sim/rounds.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 48, MAX = 4000 };

static const hec_p2p one_by_one = {.channels = 1, .channels_per_peer = 1, .batch = 1};
HEC_TEST_ARENA(arena)

/* ---- The order ---- */

/* In every round each rank sends to one rank and receives from one, and after all rounds it has met everybody. */
HEC_TEST_LOOP(rounds_are_permutations, 9) {
  static const int32_t sizes[][2] = {{1, 1}, {4, 4}, {6, 3}, {8, 8}, {12, 4}, {13, 4}, {24, 8}, {48, 16}, {35, 5}};
  int32_t n = sizes[_i][0];
  const hec_rounds *rounds = hec_rounds_new(&arena, n, sizes[_i][1], one_by_one, 0, NULL);
  for (int32_t k = 0; k < n; k++)
    for (int32_t r = 0; r < n; r++) {
      int32_t sends = 0, receives = 0;
      for (int32_t p = 0; p < n; p++) {
        sends += hec_rounds_of(rounds, r, p) == k;
        receives += hec_rounds_of(rounds, p, r) == k;
      }
      ck_assert(sends == 1 && receives == 1);
      ck_assert((hec_rounds_of(rounds, r, r) == k) == (k == 0));
    }
}

/* One node of 16: the order that NCCL's source gives as an example. Two nodes of 4: own node first, then the other. */
HEC_TEST(order_by_hand) {
  static const int32_t order[16] = {0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8};
  const hec_rounds *node = hec_rounds_new(&arena, 16, 16, one_by_one, 0, NULL);
  for (int32_t k = 0; k < 16; k++)
    for (int32_t r = 0; r < 16; r++)
      ck_assert_int_eq(hec_rounds_of(node, r, (r + order[k]) % 16), k);
  static const int32_t of_rank_1[8] = {1, 2, 0, 3, 5, 6, 4, 7}; /* locals in the order 0, 1, 3, 2 */
  const hec_rounds *nodes = hec_rounds_new(&arena, 8, 4, one_by_one, 0, NULL);
  for (int32_t k = 0; k < 8; k++)
    ck_assert_int_eq(hec_rounds_of(nodes, 1, of_rank_1[k]), k);
}

/* ---- What is in flight ---- */

typedef struct {
  const hec_rounds_pair *pair;
  int32_t running[MAX], n_running;
  uint8_t started[MAX];
} run;

static void start(void *context, int32_t transfer) {
  run *r = context;
  ck_assert(!r->started[transfer]);
  r->started[transfer] = 1;
  r->running[r->n_running++] = transfer;
}

/* How many rounds a rank has in flight. */
static int32_t rounds_in_flight(const hec_rounds *rounds, const run *r, int32_t rank) {
  static uint8_t seen[RANKS_MAX];
  int32_t n = 0;
  memset(seen, 0, sizeof seen);
  for (int32_t i = 0; i < r->n_running; i++) {
    const hec_rounds_pair *p = &r->pair[r->running[i]];
    if (p->source != rank && p->destination != rank)
      continue;
    int32_t k = hec_rounds_of(rounds, p->source, p->destination);
    n += !seen[k];
    seen[k] = 1;
  }
  return n;
}

/* Random sparse transfers that end in random order. Each starts once, none is left, and no rank has more rounds in flight
 * than slots and batch allow. */
HEC_TEST_LOOP(bounded_and_complete, 60) {
  uint64_t random = 100 + (uint64_t)_i;
  static run r;
  static hec_rounds_pair pair[MAX];
  int32_t n_ranks = 2 + (int32_t)hec_test_below(&random, RANKS_MAX - 2), n = 0, max = 0;
  int32_t per_node = 1 + (int32_t)hec_test_below(&random, 8), each = 1 << hec_test_below(&random, 3);
  hec_p2p p2p = {.channels = each << hec_test_below(&random, 3),
                 .channels_per_peer = each,
                 .batch = 1 + (int32_t)hec_test_below(&random, 4)};
  for (int32_t s = 0; s < n_ranks; s++)
    for (int32_t d = 0; d < n_ranks; d++)
      for (uint64_t k = hec_test_below(&random, 8) / 3; s != d && k > 0 && n < MAX; k--)
        pair[n++] = (hec_rounds_pair){s, d};
  r = (run){.pair = pair};
  hec_rounds *rounds = hec_rounds_new(&arena, n_ranks, per_node, p2p, n, pair);
  hec_rounds_begin(rounds, start, &r);
  for (int32_t ended = 0; ended < n; ended++) {
    ck_assert_msg(r.n_running > 0, "%d of %d transfers wait for ever", n - ended, n);
    int32_t rank = (int32_t)hec_test_below(&random, (uint64_t)n_ranks), now = rounds_in_flight(rounds, &r, rank);
    ck_assert_int_le(now, p2p.channels / p2p.channels_per_peer * p2p.batch);
    max = now > max ? now : max;
    int32_t at = (int32_t)hec_test_below(&random, (uint64_t)r.n_running), transfer = r.running[at];
    r.running[at] = r.running[--r.n_running];
    hec_rounds_done(rounds, transfer, start, &r);
  }
  ck_assert_int_eq(r.n_running, 0);
  ck_assert(max > 0 || n == 0);
}

/* ---- Bare flows ---- */

/* All-to-all of n hosts on one switch of 1 byte/s, `bytes` each unless the sender is host 0: three times that. */
static double makespan(const char *law, int32_t n, int32_t bytes, const char *p2p, double *finish) {
  static char text[200000];
  size_t at = 0;
  hec_flows flows;
#define ADD(...) at += (size_t)snprintf(text + at, sizeof text - at, __VA_ARGS__)
  ADD("{\"p2p\":{%s},\"hosts\":[", p2p);
  for (int32_t h = 0; h < n; h++)
    ADD("%s\"h%d\"", h ? "," : "", h);
  ADD("],\"links\":[");
  for (int32_t h = 0; h < n; h++)
    ADD("%s{\"id\":\"u%d\",\"bandwidth\":1},{\"id\":\"d%d\",\"bandwidth\":1}", h ? "," : "", h, h);
  for (int part = 0; part < 2; part++) {
    ADD("],\"%s\":[", part ? "flows" : "routes");
    for (int32_t s = 0; s < n; s++)
      for (int32_t d = 0; d < n; d++)
        if (s != d && part)
          ADD("%s{\"src\":\"h%d\",\"dst\":\"h%d\",\"bytes\":%d}", s > 0 || d > 1 ? "," : "", s, d,
              s ? bytes : 3 * bytes);
        else if (s != d)
          ADD("%s{\"src\":\"h%d\",\"dst\":\"h%d\",\"links\":[\"u%d\",\"d%d\"]}", s > 0 || d > 1 ? "," : "", s, d, s, d);
  }
  ADD("]}");
  ck_assert_uint_lt(at, sizeof text);
  ck_ok(hec_flows_parse(text, at, "case", &arena, &flows));
  ck_ok(hec_flows_run(&flows, law, finish));
  return hec_flows_makespan(&flows, finish);
}

/* Four hosts, one round at a time, order 1, 3, 2. A round of host 0's takes 3 s for it and its receiver, 1 s for others.
 *
 *   0->1, 0->3, 0->2 follow one another: 3, 6, 9.
 *   1->2 and 2->3 run from 0; 3->0 too: all end at 1. Round 2 (to the one before) needs both ends done with round 1:
 *   2->1 waits for 0->1: 3 to 4. 3->2 runs 1 to 2. 1->0 waits for 0 and 1: 3 to 4.
 *   Round 3 (opposite): 1->3 needs 1 (done with 1->0 and 2->1 at 4) and 3 (done with 3->2 and 0->3 at 6): 6 to 7; 3->1
 *   likewise; 2->0 needs 2 (4) and 0 (6): 6 to 7; 0->2: 6 to 9. */
HEC_TEST(one_round_at_a_time) {
  double finish[12];
  double end = makespan("nccl_rounds", 4, 1, "\"channels\":1,\"channels_per_peer\":1,\"batch\":1", finish);
  static const double wanted[12] = {3, 9, 6, /* 1-> */ 4, 1, 7, /* 2-> */ 7, 4, 1, /* 3-> */ 1, 7, 2};
  for (int i = 0; i < 12; i++)
    ck_assert_double_eq_tol(finish[i], wanted[i], 1e-12);
  ck_assert_double_eq_tol(end, 9, 1e-12);
}

/* Protocol LL: what fits takes longer by 1 / share, what does not stays; the limit is of each channel. */
HEC_TEST(small_messages) {
  double plain[12], slow[12];
  double end = makespan("nccl_rounds", 4, 2, "\"channels\":1,\"channels_per_peer\":1,\"batch\":1", plain);
  double same =
      makespan("nccl_rounds", 4, 2, "\"channels\":1,\"channels_per_peer\":1,\"batch\":1,\"ll_bytes\":1", slow);
  ck_assert(end == same && memcmp(plain, slow, sizeof plain) == 0);
  makespan("nccl_rounds", 4, 2, "\"channels\":1,\"channels_per_peer\":1,\"batch\":1,\"ll_bytes\":6,\"ll_share\":0.25",
           slow);
  for (int i = 0; i < 12; i++)
    ck_assert_double_eq_tol(slow[i], 4 * plain[i], 1e-9);
  makespan("nccl_rounds", 4, 2, "\"channels\":2,\"channels_per_peer\":2,\"batch\":1,\"ll_bytes\":3", slow);
  for (int i = 0; i < 12; i++) /* two channels a peer: 6 bytes still go by LL */
    ck_assert_double_eq_tol(slow[i], 2 * plain[i], 1e-9);
  end = makespan("nccl_rounds", 4, 2, "\"channels\":1,\"channels_per_peer\":1,\"batch\":1,\"ll_bytes\":2", slow);
  ck_assert_double_eq_tol(slow[0], 6, 1e-9); /* host 0's are of 6 bytes, too large */
  makespan("nccl_rounds", 4, 2, "\"channels\":1,\"channels_per_peer\":1,\"batch\":1,\"ll_bytes\":5,\"ll_share\":0.5",
           slow);
  ck_assert_double_eq_tol(slow[0], 10, 1e-9); /* 6 bytes end no sooner than 5 bytes and their flags */
  end = makespan("nccl_rounds", 4, 2, "\"channels\":1,\"channels_per_peer\":1,\"batch\":1,\"ll_bytes\":2", slow);
  ck_assert_double_eq_tol(slow[4], 4, 1e-9); /* 2 bytes: 1->2 in the first round */
}

/* With room for all rounds it is max_min; with less it never beats the busiest port. */
HEC_TEST(between_max_min_and_rounds) {
  static double all[32 * 31], bounded[32 * 31];
  double free_end = makespan("max_min", 32, 5, "", all), same = makespan("nccl_rounds", 32, 5, "", bounded);
  ck_assert(free_end == same && memcmp(all, bounded, sizeof all) == 0);
  double end = makespan("nccl_rounds", 32, 5, "\"channels\":2,\"channels_per_peer\":1,\"batch\":2", bounded);
  ck_assert_double_ge(end, 31 * 15 * (1 - 1e-12));
  ck_assert(memcmp(all, bounded, sizeof all) != 0);
}

HEC_TEST_LOOP(bad_p2p, 7) {
  static const char *const bad[][2] = {
      {"`p2p`:{`channels`:6,`channels_per_peer`:4}", "channels_per_peer (4 unless given) to divide channels"},
      {"`p2p`:{`batch`:0}", "batch"},
      {"`p2p`:{`peers`:1}", "peers"},
      {"`p2p`:{`ll_share`:0}", "ll_share"},
      {"`p2p`:{`ll_bytes`:-1}", "ll_bytes"},
      {"`p2p`:{`chunk_bytes`:0.5}", "chunk_bytes"},
      {"`hosts_per_node`:3", "hosts_per_node"}};
  char text[400];
  hec_flows flows;
  (void)snprintf(
      text, sizeof text,
      "{%s,\"hosts\":[\"a\",\"b\"],\"links\":[{\"id\":\"l\",\"bandwidth\":1}],\"routes\":[{\"src\":\"a\",\"dst\":\"b\","
      "\"links\":[\"l\"]}],\"flows\":[{\"src\":\"a\",\"dst\":\"b\",\"bytes\":1}]}",
      hec_test_quoted(bad[_i][0]));
  ck_refused(hec_flows_parse(text, strlen(text), "case", &arena, &flows), bad[_i][1]);
}
