/* MoETuner's two programmes given to a solver. As good as all placements tried one by one, never worse than the
 * heuristics, the same every time, with bounds that are bounds. And what a solver that fails or lies may do: nothing.
 * With CBC where it is installed; the rest needs none. */
#include "runtime/plan/cbc/cbc.h"
#include "runtime/plan/planners/chain.h"
#include "runtime/plan/planners/partition.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static const hec_solver *solver_or_skip(const char *test) {
  const hec_solver *solver = hec_solver_ready(hec_solver_cbc());
  if (!solver)
    hec_test_skip(test, "no CBC on this machine (Debian: coinor-libcbc3)");
  return solver;
}

/* ---- partitions ---- */

static uint64_t deviation_of(const uint64_t *weight, const int32_t *part, int32_t n, int32_t parts, int32_t *fullest) {
  uint64_t sum[8] = {0}, total = 0, deviation = 0;
  int32_t count[8] = {0};
  for (int32_t i = 0; i < n; i++) {
    sum[part[i]] += weight[i];
    count[part[i]]++;
    total += weight[i];
  }
  *fullest = 0;
  for (int32_t c = 0; c < parts; c++) {
    uint64_t scaled = sum[c] * (uint64_t)parts;
    deviation += scaled > total ? scaled - total : total - scaled;
    *fullest = count[c] > *fullest ? count[c] : *fullest;
    if (count[c] == 0)
      *fullest = n + 1;
  }
  return deviation;
}

/* Every assignment of n items to the parts. */
static uint64_t least_deviation(const uint64_t *weight, int32_t n, int32_t parts) {
  int32_t part[10] = {0}, fullest;
  uint64_t min = UINT64_MAX;
  for (;;) {
    uint64_t deviation = deviation_of(weight, part, n, parts, &fullest);
    if (fullest <= (n + parts - 1) / parts && deviation < min)
      min = deviation;
    int32_t i = 0;
    while (i < n && ++part[i] == parts)
      part[i++] = 0;
    if (i == n)
      return min;
  }
}

static void check_partition(const hec_partition *p, const uint64_t *weight) {
  int32_t fullest;
  ck_assert_uint_eq(deviation_of(weight, p->part, p->n_items, p->n_parts, &fullest), hec_partition_deviation(p));
  ck_assert_int_le(fullest, (p->n_items + p->n_parts - 1) / p->n_parts);
}

HEC_TEST(partitions_equal_exhaustive_search) {
  const hec_solver *solver = solver_or_skip("partitions_equal_exhaustive_search");
  uint64_t seed = 70;
  int improved = 0;
  for (int round = 0; solver && round < 100; round++) {
    int32_t parts = 2 + (int32_t)hec_test_below(&seed, 3),
            n = round % 2 ? 8 + parts % 2 : parts + (int32_t)hec_test_below(&seed, 6);
    uint64_t weight[10];
    for (int32_t i = 0; i < n; i++)
      weight[i] = hec_test_below(&seed, round % 3 ? 1000000 : 12);
    hec_partition p = hec_partition_new(&arena, n, parts);
    hec_partition_exact x = hec_partition_exact_new(&arena, n, parts, solver);
    ck_assert(x.listed);
    hec_partition_make(&p, weight);
    uint64_t heuristic = hec_partition_deviation(&p), min = least_deviation(weight, n, parts);
    hec_partition_verdict bare = hec_partition_improve(&x, &p, weight, NULL);
    ck_assert(bare.bound <= min && !bare.improved && !bare.tried && hec_partition_deviation(&p) == heuristic);
    ck_assert(bare.proven == (bare.bound == heuristic));
    hec_partition_verdict verdict = hec_partition_improve(&x, &p, weight, solver);
    check_partition(&p, weight);
    ck_assert_uint_eq(hec_partition_deviation(&p), min);
    ck_assert(verdict.proven && verdict.bound == min && verdict.improved == (min < heuristic));
    improved += verdict.improved;
    hec_arena_free(&arena);
  }
  ck_assert_msg(!solver || improved > 1, "%d", improved);
}

/* The sizes that must be solved to the end; the answer does not depend on what was solved before. */
HEC_TEST(partitions_are_exact_and_repeat) {
  const hec_solver *solver = solver_or_skip("partitions_are_exact_and_repeat");
  static const int32_t sizes[][2] = {{16, 4}, {16, 3}, {16, 2}, {15, 4}, {13, 3}, {16, 4}, {32, 16}};
  uint64_t seed = 71;
  for (size_t s = 0; solver && s < sizeof sizes / sizeof *sizes; s++) {
    int32_t n = sizes[s][0], parts = sizes[s][1], first[32];
    uint64_t weight[32];
    for (int32_t i = 0; i < n; i++)
      weight[i] = hec_test_below(&seed, 1000000000);
    hec_partition p = hec_partition_new(&arena, n, parts);
    hec_partition_exact x = hec_partition_exact_new(&arena, n, parts, solver);
    for (int round = 0; round < 3; round++) {
      hec_partition_make(&p, weight);
      uint64_t heuristic = hec_partition_deviation(&p);
      hec_partition_verdict verdict = hec_partition_improve(&x, &p, weight, solver);
      ck_assert_msg(verdict.proven && hec_partition_deviation(&p) <= heuristic, "%d %d", n, parts);
      if (round == 0)
        memcpy(first, p.part, (size_t)n * sizeof *first);
      ck_assert(memcmp(first, p.part, (size_t)n * sizeof *first) == 0);
    }
    hec_arena_free(&arena);
  }
}

/* Too many sets to list: within a limit of nodes, never worse, the bound below; then too many for that as well. */
HEC_TEST(large_partitions_keep_the_better) {
  const hec_solver *solver = solver_or_skip("large_partitions_keep_the_better");
  static const int32_t sizes[][2] = {{40, 6}, {64, 4}, {256, 8}};
  uint64_t seed = 72, weight[256];
  for (size_t s = 0; solver && s < sizeof sizes / sizeof *sizes; s++) {
    int32_t n = sizes[s][0], parts = sizes[s][1], fullest;
    for (int32_t i = 0; i < n; i++)
      weight[i] = hec_test_below(&seed, 1000) * hec_test_below(&seed, 1000);
    hec_partition p = hec_partition_new(&arena, n, parts);
    hec_partition_exact x = hec_partition_exact_new(&arena, n, parts, solver);
    ck_assert(!x.listed);
    hec_partition_make(&p, weight);
    uint64_t heuristic = hec_partition_deviation(&p);
    hec_partition_verdict verdict = hec_partition_improve(&x, &p, weight, solver);
    ck_assert_int_eq(verdict.tried, n < 256 && !(verdict.proven && !verdict.improved && verdict.bound == heuristic));
    uint64_t deviation = deviation_of(weight, p.part, n, parts, &fullest);
    ck_assert(deviation <= heuristic && verdict.bound <= deviation && fullest <= (n + parts - 1) / parts);
    ck_assert_uint_eq(deviation, hec_partition_deviation(&p));
    hec_arena_free(&arena);
  }
}

/* ---- chains ---- */

static void random_chain(hec_chain *c, uint64_t *seed) {
  for (int32_t a = 0; a < c->n; a++)
    for (int32_t b = 0; b < c->n; b++)
      c->seconds[a * c->n + b] = a == b ? 0 : a / 2 == b / 2 ? 1e-9 : 5e-9;
  for (int32_t i = 0; i < (c->n_layers - 1) * c->n * c->n; i++)
    c->flow[i] = hec_test_below(seed, 100) * hec_test_below(seed, 1000);
  for (int32_t i = 0; i < c->n_layers * c->n; i++)
    c->rank[i] = i % c->n;
}

/* All permutations of n, by recursion. */
static int32_t n_listed;
static int32_t listed[120][8];
static void list(int32_t n, int32_t k, uint32_t used, int32_t *now) {
  if (k == n)
    memcpy(listed[n_listed++], now, (size_t)n * sizeof *now);
  for (int32_t i = 0; i < n && k < n; i++)
    if (!(used >> i & 1)) {
      now[k] = i;
      list(n, k + 1, used | 1u << i, now);
    }
}

/* The least sum over all bijections, layer by layer: cheapest[p] of those that end with permutation p. */
static double min_seconds(const hec_chain *c) {
  double cheapest[120] = {0}, next[120], min = 1e300;
  int32_t now[8];
  n_listed = 0;
  list(c->n, 0, 0, now);
  for (int32_t l = 0; l + 1 < c->n_layers; l++) {
    for (int32_t q = 0; q < n_listed; q++) {
      next[q] = 1e300;
      for (int32_t p = 0; p < n_listed; p++) {
        double max = 0;
        for (int32_t i = 0; i < c->n * c->n; i++) {
          double s =
              (double)c->flow[l * c->n * c->n + i] * c->seconds[listed[p][i / c->n] * c->n + listed[q][i % c->n]];
          max = s > max ? s : max;
        }
        next[q] = cheapest[p] + max < next[q] ? cheapest[p] + max : next[q];
      }
    }
    memcpy(cheapest, next, sizeof cheapest);
  }
  for (int32_t p = 0; p < n_listed; p++)
    min = cheapest[p] < min ? cheapest[p] : min;
  return min;
}

static double check_chain(const hec_chain *c) {
  double all;
  for (int32_t l = 0; l < c->n_layers; l++) {
    uint32_t seen = 0;
    for (int32_t a = 0; a < c->n; a++)
      seen |= 1u << c->rank[l * c->n + a];
    ck_assert_uint_eq(seen, (1u << c->n) - 1);
  }
  return hec_chain_seconds(c, &all);
}

static bool close_to(double a, double b) {
  return a <= b * (1 + 1e-9) && b <= a * (1 + 1e-9);
}

/* Up to 8 layers of 4 ranks proven; 5 ranks, written in the other form, within a limit. */
HEC_TEST(chains_equal_exhaustive_search) {
  const hec_solver *solver = solver_or_skip("chains_equal_exhaustive_search");
  uint64_t seed = 73;
  int improved = 0, reached = 0;
  for (int round = 0; solver && round < 24; round++) {
    int32_t n = round < 20 ? 2 + round % 3 : 5;
    int32_t layers = round < 20 ? 2 + (int32_t)hec_test_below(&seed, 7) : 2 + round % 2;
    hec_chain c = hec_chain_new(&arena, layers, n);
    hec_chain_exact x = hec_chain_exact_new(&arena, layers, n, solver);
    random_chain(&c, &seed);
    double min = min_seconds(&c);
    hec_chain_make(&c);
    double heuristic = check_chain(&c);
    hec_chain_verdict bare = hec_chain_improve(&x, &c, NULL);
    ck_assert(bare.bound_s <= min * (1 + 1e-12) && !bare.improved && !bare.tried && check_chain(&c) == heuristic);
    hec_chain_verdict verdict = hec_chain_improve(&x, &c, solver);
    double now = check_chain(&c);
    ck_assert(now <= heuristic && now >= min * (1 - 1e-9) && verdict.bound_s <= min * (1 + 1e-9));
    ck_assert(verdict.improved == (now < heuristic));
    ck_assert_int_eq(x.listed, n < 5);
    ck_assert_msg(!verdict.proven || close_to(now, min), "round %d: %g, least %g", round, now, min);
    ck_assert(n == 5 || verdict.proven);
    improved += verdict.improved;
    reached += n == 5 && close_to(now, min);
    hec_arena_free(&arena);
  }
  ck_assert(!solver || (improved > 5 && reached > 0));
}

HEC_TEST(chains_repeat) {
  const hec_solver *solver = solver_or_skip("chains_repeat");
  uint64_t seed = 74;
  for (int round = 0; solver && round < 4; round++) {
    int32_t n = round < 2 ? 4 : 6, layers = round < 2 ? 8 : 3, first[32] = {0};
    hec_chain c = hec_chain_new(&arena, layers, n);
    hec_chain_exact x = hec_chain_exact_new(&arena, layers, n, solver);
    random_chain(&c, &seed);
    for (int repeat = 0; repeat < 2; repeat++) {
      for (int32_t i = 0; i < layers * n; i++)
        c.rank[i] = i % n;
      hec_chain_make(&c);
      hec_chain_verdict verdict = hec_chain_improve(&x, &c, solver);
      ck_assert(verdict.tried && (verdict.proven || n > 4));
      if (repeat == 0)
        memcpy(first, c.rank, (size_t)(layers * n) * sizeof *first);
      ck_assert(memcmp(first, c.rank, (size_t)(layers * n) * sizeof *first) == 0);
    }
    hec_arena_free(&arena);
  }
}

/* ---- solvers that fail ---- */

static hec_milp_answer fails(hec_milp *milp, int64_t nodes_max) {
  (void)nodes_max;
  memset(milp->x, 0, (size_t)milp->n_columns * sizeof *milp->x);
  return (hec_milp_answer){.bound = -HEC_MILP_FREE};
}

static hec_milp_answer says_nothing_fits(hec_milp *milp, int64_t nodes_max) {
  hec_milp_answer answer = fails(milp, nodes_max);
  answer.found = true;
  return answer;
}

static hec_milp_answer says_all_fit(hec_milp *milp, int64_t nodes_max) {
  hec_milp_answer answer = fails(milp, nodes_max);
  for (int32_t c = 0; c < milp->n_columns; c++)
    milp->x[c] = 1;
  answer.found = true;
  return answer;
}

/* A wrong answer is none: the heuristic's stays, nothing is said to be proven. */
HEC_TEST(wrong_answers_change_nothing) {
  const hec_solver solvers[] = {{"a", fails, NULL}, {"b", says_nothing_fits, NULL}, {"c", says_all_fit, NULL}};
  uint64_t seed = 75, weight[40];
  for (size_t s = 0; s < 6; s++) {
    const hec_solver *solver = &solvers[s % 3];
    int32_t n = s < 3 ? 12 : 40, parts = s < 3 ? 3 : 6, groups = s < 3 ? 4 : 5, was[40], ranks[15];
    for (int32_t i = 0; i < n; i++)
      weight[i] = 1 + hec_test_below(&seed, 100000);
    hec_partition p = hec_partition_new(&arena, n, parts);
    hec_partition_exact x = hec_partition_exact_new(&arena, n, parts, solver);
    hec_partition_make(&p, weight);
    memcpy(was, p.part, (size_t)n * sizeof *was);
    uint64_t deviation = hec_partition_deviation(&p);
    hec_partition_verdict verdict = hec_partition_improve(&x, &p, weight, solver);
    ck_assert(verdict.tried && !verdict.improved && !verdict.proven && verdict.bound < deviation);
    ck_assert(memcmp(was, p.part, (size_t)n * sizeof *was) == 0 && hec_partition_deviation(&p) == deviation);
    check_partition(&p, weight);
    hec_chain c = hec_chain_new(&arena, 3, groups);
    hec_chain_exact y = hec_chain_exact_new(&arena, 3, groups, solver);
    random_chain(&c, &seed);
    hec_chain_make(&c);
    memcpy(ranks, c.rank, (size_t)(3 * groups) * sizeof *ranks);
    hec_chain_verdict chain = hec_chain_improve(&y, &c, solver);
    ck_assert(chain.tried && !chain.improved && !chain.proven);
    ck_assert(memcmp(ranks, c.rank, (size_t)(3 * groups) * sizeof *ranks) == 0);
    hec_arena_free(&arena);
  }
}
