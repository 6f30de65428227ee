/* MoETuner's two problems: partitions against all of them, assignments against all permutations, chains with a planted
 * solution. */
#include "runtime/plan/planners/chain.h"
#include "runtime/plan/planners/partition.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* Sums, counts and bounds hold; no exchange of two items is left that helps. By hand: 8 7 6 5 4 on 2 is 15 and 15. */
HEC_TEST(partitions) {
  uint64_t seed = 60;
  for (int round = 0; round < 300; round++) {
    uint64_t weight[24], total = 0;
    int32_t n = 1 + (int32_t)hec_test_below(&seed, 24), parts = 1 + (int32_t)hec_test_below(&seed, 6);
    hec_partition p = hec_partition_new(&arena, n, parts);
    for (int32_t i = 0; i < n; i++)
      total += weight[i] = hec_test_below(&seed, hec_test_below(&seed, 2) ? 10 : 10000);
    hec_partition_make(&p, weight);
    int32_t count[6] = {0};
    uint64_t sum[6] = {0}, deviation = 0;
    for (int32_t i = 0; i < n; i++) {
      ck_assert(p.part[i] >= 0 && p.part[i] < parts);
      count[p.part[i]]++;
      sum[p.part[i]] += weight[i];
    }
    for (int32_t c = 0; c < parts; c++) {
      ck_assert(sum[c] == p.sum[c] && count[c] == p.count[c] && count[c] <= (n + parts - 1) / parts);
      ck_assert(count[c] > 0 || n < parts);
      uint64_t scaled = sum[c] * (uint64_t)parts;
      deviation += scaled > total ? scaled - total : total - scaled;
    }
    ck_assert_uint_eq(hec_partition_deviation(&p), deviation);
    for (int32_t i = 0; i < n; i++)
      for (int32_t j = 0; j < n; j++) {
        uint64_t *a = &p.sum[p.part[i]], *b = &p.sum[p.part[j]];
        *a += weight[j] - weight[i];
        *b += weight[i] - weight[j];
        ck_assert_uint_ge(hec_partition_deviation(&p), deviation);
        *a += weight[i] - weight[j];
        *b += weight[j] - weight[i];
      }
    hec_arena_free(&arena);
  }
  hec_partition p = hec_partition_new(&arena, 6, 2);
  hec_partition_make(&p, (const uint64_t[]){8, 7, 6, 5, 4, 0});
  ck_assert(p.sum[0] == 15 && p.sum[1] == 15);
}

static double best_of(const double *cost, int32_t n, int32_t row, uint32_t used) {
  double best = 0;
  bool found = false;
  for (int32_t k = 0; k < n; k++) {
    if (used >> k & 1)
      continue;
    double sum = cost[row * n + k] + (row + 1 < n ? best_of(cost, n, row + 1, used | 1u << k) : 0);
    best = !found || sum < best ? sum : best;
    found = true;
  }
  return best;
}

HEC_TEST(assignments) {
  uint64_t seed = 61;
  for (int round = 0; round < 300; round++) {
    int32_t n = 1 + (int32_t)hec_test_below(&seed, 7);
    hec_assignment a = hec_assignment_new(&arena, n);
    for (int32_t i = 0; i < n * n; i++)
      a.cost[i] = (double)hec_test_below(&seed, round % 2 ? 4 : 1000);
    ck_assert_double_eq(hec_assignment_make(&a), best_of(a.cost, n, 0, 0)); /* whole numbers: exact */
    uint32_t seen = 0;
    for (int32_t i = 0; i < n; i++)
      seen |= 1u << a.column[i];
    ck_assert_uint_eq(seen, (1u << n) - 1);
    hec_arena_free(&arena);
  }
}

static void start_chain(hec_chain *c) {
  for (int32_t i = 0; i < c->n_layers * c->n; i++)
    c->rank[i] = i % c->n;
  for (int32_t a = 0; a < c->n; a++)
    for (int32_t b = 0; b < c->n; b++)
      c->seconds[a * c->n + b] = a == b ? 0 : a / 2 == b / 2 ? 1 : 4;
}

/* Every group hands its tokens to one group of the next layer: nothing has to move between ranks. */
HEC_TEST(planted) {
  uint64_t seed = 62;
  for (int round = 0; round < 50; round++) {
    int32_t n = 1 + (int32_t)hec_test_below(&seed, 8), layers = 1 + (int32_t)hec_test_below(&seed, 6);
    hec_chain c = hec_chain_new(&arena, layers, n);
    start_chain(&c);
    for (int32_t l = 0; l + 1 < layers; l++) {
      int32_t next[8];
      for (int32_t a = 0; a < n; a++) {
        int32_t other = (int32_t)hec_test_below(&seed, (uint64_t)a + 1);
        next[a] = next[other];
        next[other] = a;
      }
      for (int32_t a = 0; a < n; a++)
        c.flow[(l * n + a) * n + next[a]] = 1 + hec_test_below(&seed, 100);
    }
    hec_chain_make(&c);
    double all;
    ck_assert(hec_chain_seconds(&c, &all) == 0 && all == 0);
    hec_arena_free(&arena);
  }
}

/* Never worse than the start, always bijections, and better most of the time. */
HEC_TEST(improves) {
  uint64_t seed = 63;
  int better = 0;
  for (int round = 0; round < 100; round++) {
    int32_t n = 2 + (int32_t)hec_test_below(&seed, 7), layers = 2 + (int32_t)hec_test_below(&seed, 4);
    hec_chain c = hec_chain_new(&arena, layers, n);
    start_chain(&c);
    for (int32_t i = 0; i < (layers - 1) * n * n; i++)
      c.flow[i] = hec_test_below(&seed, 100) * hec_test_below(&seed, 100);
    double before_all, all, before = hec_chain_seconds(&c, &before_all);
    hec_chain_make(&c);
    double after = hec_chain_seconds(&c, &all);
    ck_assert(after < before || (after == before && all <= before_all));
    better += after < before;
    for (int32_t l = 0; l < layers; l++) {
      uint32_t seen = 0;
      for (int32_t a = 0; a < n; a++)
        seen |= 1u << c.rank[l * n + a];
      ck_assert_uint_eq(seen, (1u << n) - 1);
    }
    hec_arena_free(&arena);
  }
  ck_assert_int_gt(better, 80);
}
