/* The programme of LPLB and MicroMoE against the density formula over all sets of ranks, on random hypergraphs. */
#include "runtime/plan/planners/min_max.h"
#include "runtime/plan/planners/replica_graph.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* A random instance: each expert on some ranks, its tokens split anyhow over them, and fixed loads. */
static hec_min_max random_instance(uint64_t *seed, int32_t ranks_max) {
  int32_t ranks = 1 + (int32_t)hec_test_below(seed, (uint64_t)ranks_max), experts = (int32_t)hec_test_below(seed, 20);
  hec_min_max m = hec_min_max_new(&arena, ranks, experts, ranks * experts);
  uint64_t max = 1 + hec_test_below(seed, hec_test_below(seed, 3) ? 30 : 100000), dense = 1 + hec_test_below(seed, 4);
  for (int32_t g = 0; g < ranks; g++)
    m.load[g] = hec_test_below(seed, 2) ? hec_test_below(seed, max) : 0;
  for (int32_t e = 0; e < experts; e++) {
    m.at[e + 1] = m.at[e];
    for (int32_t g = 0; g < ranks; g++)
      if (hec_test_below(seed, dense + 1) == 0) {
        m.rank[m.at[e + 1]] = g;
        m.tokens[m.at[e + 1]++] = hec_test_below(seed, 3) == 0 ? hec_test_below(seed, max * 4) : 0;
      }
  }
  return m;
}

/* max over sets U of ceil((fixed loads in U + tokens of experts held inside U only) / |U|). */
static uint64_t densest(const hec_min_max *m, const uint64_t *fixed, const uint64_t *total) {
  uint64_t max = 0;
  for (uint32_t set = 1; set < 1u << m->n_ranks; set++) {
    uint64_t sum = 0, size = 0;
    for (int32_t g = 0; g < m->n_ranks; g++)
      if (set >> g & 1) {
        sum += fixed[g];
        size++;
      }
    for (int32_t e = 0; e < m->n_experts; e++) {
      bool inside = true;
      for (int32_t i = m->at[e]; i < m->at[e + 1]; i++)
        inside = inside && (set >> m->rank[i] & 1);
      sum += inside ? total[e] : 0;
    }
    uint64_t needs = (sum + size - 1) / size;
    max = needs > max ? needs : max;
  }
  return max;
}

static void totals(const hec_min_max *m, uint64_t *total) {
  for (int32_t e = 0; e < m->n_experts; e++) {
    total[e] = 0;
    for (int32_t i = m->at[e]; i < m->at[e + 1]; i++)
      total[e] += m->tokens[i];
  }
}

HEC_TEST_LOOP(equals_the_density_formula, 10) {
  uint64_t seed = 900 + (uint64_t)_i;
  for (int round = 0; round < 400; round++) {
    hec_min_max m = random_instance(&seed, 9);
    uint64_t fixed[9], before[20], after[20], load[9];
    memcpy(fixed, m.load, (size_t)m.n_ranks * sizeof *fixed);
    totals(&m, before);
    uint64_t wanted = densest(&m, fixed, before), found = 0;
    hec_min_max_solve(&m);
    totals(&m, after);
    ck_assert(memcmp(before, after, (size_t)m.n_experts * sizeof *before) == 0);
    memcpy(load, fixed, (size_t)m.n_ranks * sizeof *load);
    for (int32_t i = 0; i < m.at[m.n_experts]; i++)
      load[m.rank[i]] += m.tokens[i];
    for (int32_t g = 0; g < m.n_ranks; g++) {
      ck_assert_uint_eq(load[g], m.load[g]);
      found = load[g] > found ? load[g] : found;
    }
    ck_assert_uint_eq(found, wanted);
    ck_assert_uint_eq(m.max, wanted);
    hec_arena_free(&arena);
  }
}

/* Nothing moves where nothing can be gained: solving again changes nothing, and ranks below the mean only receive. */
HEC_TEST(moves_what_must) {
  uint64_t seed = 77;
  for (int round = 0; round < 400; round++) {
    hec_min_max m = random_instance(&seed, 12);
    uint64_t was[12], fixed[12];
    memcpy(fixed, m.load, (size_t)m.n_ranks * sizeof *fixed);
    memcpy(was, m.load, (size_t)m.n_ranks * sizeof *was);
    for (int32_t i = 0; i < m.at[m.n_experts]; i++)
      was[m.rank[i]] += m.tokens[i];
    uint64_t all = 0;
    for (int32_t g = 0; g < m.n_ranks; g++)
      all += was[g];
    hec_min_max_solve(&m);
    for (int32_t g = 0; g < m.n_ranks; g++)
      ck_assert(m.load[g] >= was[g] || was[g] * (uint64_t)m.n_ranks > all);
    size_t n = (size_t)m.at[m.n_experts];
    uint64_t tokens[240], max = m.max;
    memcpy(tokens, m.tokens, n * sizeof *tokens);
    memcpy(m.load, fixed, (size_t)m.n_ranks * sizeof *fixed);
    hec_min_max_solve(&m);
    ck_assert(memcmp(tokens, m.tokens, n * sizeof *tokens) == 0 && m.max == max);
    hec_arena_free(&arena);
  }
}

/* Experts with many holders are searched as sets of bits, here of three words. Where all that fixed loads leave can be levelled,
 * every rank has the mean. */
HEC_TEST(many_holders) {
  enum { RANKS = 150, EXPERTS = 12 };
  uint64_t seed = 5;
  for (int32_t holders = 7; holders <= RANKS; holders += 11) {
    hec_min_max m = hec_min_max_new(&arena, RANKS, EXPERTS, RANKS * EXPERTS);
    uint64_t before[EXPERTS], after[EXPERTS], all = 0;
    for (int32_t e = 0; e < EXPERTS; e++) { /* overlapping ranges, and one expert everywhere */
      int32_t first = e == 0 ? 0 : e * (RANKS - holders) / (EXPERTS - 1), n = e == 0 ? RANKS : holders;
      m.at[e + 1] = m.at[e];
      for (int32_t g = first; g < first + n; g++) {
        m.rank[m.at[e + 1]] = g;
        m.tokens[m.at[e + 1]++] = g == first ? (e == 0 ? 100000 : hec_test_below(&seed, 200)) : 0;
      }
    }
    totals(&m, before);
    for (int32_t e = 0; e < EXPERTS; e++)
      all += before[e];
    hec_min_max_solve(&m);
    totals(&m, after);
    ck_assert(memcmp(before, after, sizeof before) == 0);
    ck_assert_uint_eq(m.max, (all + RANKS - 1) / RANKS);
    for (int32_t g = 0; g < RANKS; g++)
      ck_assert_uint_le(m.load[g], m.max);
    hec_arena_free(&arena);
  }
}

/* LPLB's graphs as published; columns are permutations without fixed points. */
HEC_TEST(graphs) {
  static const int32_t cube[16] = {3, 0, 1, 2, 7, 4, 5, 6, 6, 7, 4, 5, 0, 1, 2, 3};
  static const int32_t hypercube[32] = {3,  0,  1,  2,  7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14,
                                        12, 13, 14, 15, 0, 1, 2, 3, 4,  5, 6, 7,  8,  9,  10, 11};
  int32_t from[2 * 64], n;
  ck_assert_ptr_eq(hec_replica_graph_of(8, 4, from, &n), &hec_replica_graph_cube);
  ck_assert(n == 2 && memcmp(from, cube, sizeof cube) == 0);
  ck_assert_ptr_eq(hec_replica_graph_of(16, 8, from, &n), &hec_replica_graph_hypercube);
  ck_assert(n == 2 && memcmp(from, hypercube, sizeof hypercube) == 0);
  ck_assert(hec_replica_graph_torus.make(16, 4, from) == 2 && memcmp(from, hypercube, sizeof hypercube) == 0);
  ck_assert_ptr_eq(hec_replica_graph_of(32, 8, from, &n), &hec_replica_graph_torus);
  ck_assert_ptr_eq(hec_replica_graph_of(4, 8, from, &n), &hec_replica_graph_ring);
  ck_assert_ptr_null(hec_replica_graph_of(1, 8, from, &n));
  for (int32_t ranks = 2; ranks <= 64; ranks++)
    for (int32_t per_node = 1; per_node <= 8; per_node++) {
      ck_assert_ptr_nonnull(hec_replica_graph_of(ranks, per_node, from, &n));
      for (int32_t c = 0; c < n; c++) {
        uint64_t seen = 0;
        for (int32_t r = 0; r < ranks; r++) {
          ck_assert_int_ne(from[c * ranks + r], r);
          seen |= (uint64_t)1 << from[c * ranks + r];
        }
        ck_assert_uint_eq(seen, ranks == 64 ? UINT64_MAX : ((uint64_t)1 << ranks) - 1);
      }
    }
}
