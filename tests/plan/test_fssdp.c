/* Algorithms 1 and 2, t and m, against the golden table of the reference (hecate.md 4.4). And against plain
 * re-statements of the rules written here without looking for speed. */
#include "runtime/plan/dispatch/dispatch.h"
#include "runtime/plan/planners/fssdp.h"
#include "tests/plan/plan_cases.h"
#include "tests/support/test.h"

#include <string.h>

enum { RANKS_MAX = 32, EXPERTS_MAX = 40, LAYERS_MAX = 6 };

static void start_order(int32_t *order, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    order[i] = i;
}

static void random_loads(uint64_t *seed, uint64_t *load, int32_t n) {
  uint64_t kind = hec_test_below(seed, 4), range = kind == 0 ? 4 : kind == 1 ? 1 : kind == 2 ? 1000 : 1ull << 44;
  for (int32_t i = 0; i < n; i++)
    load[i] = hec_test_below(seed, 4) == 0 ? 0 : hec_test_below(seed, range) * (1 + hec_test_below(seed, 8));
}

HEC_TEST(test_golden_table) {
  static const uint64_t load[16] = {96, 64, 40, 24, 16, 12, 10, 8, 8, 6, 4, 4, 3, 2, 2, 1};
  static const struct {
    int32_t t, m;
    uint64_t copies[4]; /* ranks of experts 0-3 as bits, owner included */
    uint64_t tokens[8], crossing;
    double overload;
  } golden[] = {
      {0, 0, {0x01, 0x01, 0x02, 0x02}, {160, 64, 28, 18, 14, 8, 5, 3}, 156, 4.267},
      {3, 4, {0xff, 0xff, 0xff, 0x02}, {25, 49, 53, 43, 39, 33, 30, 28}, 56, 1.413},
      {4, 2, {0xff, 0x3f, 0xc3, 0x03}, {42, 42, 48, 38, 42, 36, 27, 25}, 56, 1.280},
  };
  HEC_OPENED(hec_case) *c = hec_case_new("2x4 nvlink=100G@1us nic=10G@5us flops=100T mem=40G", 8, 1, 16, 1000);
  hec_fssdp fssdp = hec_fssdp_new(&c->arena, &c->problem);
  hec_plan plan = hec_plan_new(&c->arena, &c->problem, 1);
  hec_load counts = hec_load_new(&c->arena, 1, 8, 16);
  hec_routing routing = hec_routing_new(&c->arena, &c->problem);
  int32_t order[16];
  start_order(order, 16);
  (void)hec_fssdp_order(load, 16, order);
  for (int32_t e = 0; e < 16; e++) {
    hec_plan_set_home(&plan, 0, e, hec_fssdp_even_owner(&c->problem, 0, e));
    for (int32_t s = 0; s < 8; s++)
      hec_load_row(&counts, 0, s)[e] = (uint32_t)(load[e] / 8 + ((uint64_t)s < load[e] % 8));
  }
  for (size_t k = 0; k < sizeof golden / sizeof *golden; k++) {
    (void)hec_fssdp_materialise(&fssdp, &plan, 0, load, order, golden[k].t, golden[k].m);
    hec_plan_check(&plan);
    for (int32_t e = 0; e < 16; e++)
      for (int32_t d = 0; d < 8; d++)
        ck_assert_int_eq(hec_plan_holds(&plan, 0, e, d), e < 4 ? (int)(golden[k].copies[e] >> d & 1) : d == e / 2);
    hec_routing_make(&routing, &hec_dispatch_local_first, &c->problem, &plan, &counts, 0);
    uint64_t crossing = 0;
    for (int32_t d = 0; d < 8; d++) {
      ck_assert_uint_eq(routing.rank_tokens[d], golden[k].tokens[d]);
      for (int32_t s = 0; s < 8; s++)
        crossing += s / 4 != d / 4 ? routing.pair[s * 8 + d] : 0;
    }
    ck_assert_uint_eq(crossing, golden[k].crossing);
    ck_assert_double_eq_tol(hec_routing_overload(&routing), golden[k].overload, 5e-4);
  }
}

/* The rules of 4.3 and 14, literally. held[e][d] on entry: owners only. */
static void plain_materialise(const hec_problem *p, const uint64_t *F, int32_t t, int32_t m,
                              bool held[EXPERTS_MAX][RANKS_MAX]) {
  int32_t E = p->n_experts, D = p->n_ranks, hot[EXPERTS_MAX], n[EXPERTS_MAX] = {0}, free_of[RANKS_MAX];
  bool taken[EXPERTS_MAX] = {false};
  t = t < E ? t : E;
  m = m < t ? m : t;
  for (int32_t i = 0; i < t; i++) {
    int32_t best = -1;
    for (int32_t e = 0; e < E; e++)
      if (!taken[e] && (best < 0 || F[e] > F[best]))
        best = e;
    taken[hot[i] = best] = true;
  }
  if (t <= m) {
    for (int32_t i = 0; i < t; i++)
      for (int32_t d = 0; d < D; d++)
        held[hot[i]][d] = true;
    return;
  }
  uint64_t total = (uint64_t)D * (uint64_t)m, sum = 0, given = 0;
  for (int32_t i = 0; i < t; i++)
    sum += F[hot[i]];
  for (int32_t i = 0; i < t && sum > 0; i++) { /* the largest n with n * sum <= total * F, by long multiplication */
    while (n[i] < D - 1 && (long double)(n[i] + 1) * (long double)sum <= (long double)total * (long double)F[hot[i]])
      n[i]++;
    given += (uint64_t)n[i];
  }
  for (; given < total; given++) {
    int32_t best = -1;
    for (int32_t e = 0; e < E; e++)
      for (int32_t i = 0; i < t; i++)
        if (hot[i] == e && n[i] < D - 1 &&
            (best < 0 || (long double)F[e] * (n[best] + 1) > (long double)F[hot[best]] * (n[i] + 1)))
          best = i;
    if (best < 0)
      break;
    n[best]++;
  }
  for (int32_t d = 0; d < D; d++)
    free_of[d] = m;
  for (int32_t i = 0; i < t; i++)
    for (int32_t k = 0; k < n[i]; k++) {
      int64_t best_key[3] = {0};
      int32_t best = -1;
      for (int32_t d = 0; d < D; d++) {
        if (free_of[d] == 0 || held[hot[i]][d])
          continue;
        int64_t key[3] = {0, 0, -free_of[d]};
        for (int32_t q = 0; q < D; q++)
          if (hec_problem_node(p, q) == hec_problem_node(p, d)) {
            key[0] |= held[hot[i]][q];
            key[1] -= free_of[q];
          }
        if (best < 0 || key[0] < best_key[0] ||
            (key[0] == best_key[0] && (key[1] < best_key[1] || (key[1] == best_key[1] && key[2] < best_key[2])))) {
          best = d;
          memcpy(best_key, key, sizeof key);
        }
      }
      if (best < 0)
        break;
      held[hot[i]][best] = true;
      free_of[best]--;
    }
}

HEC_TEST(test_materialise_random) {
  uint64_t seed = 11;
  for (int32_t k = 0; k < 1500; k++) {
    int32_t E = 1 + (int32_t)hec_test_below(&seed, EXPERTS_MAX);
    HEC_OPENED(hec_case) *c = hec_case_random(&seed, 2, E, 1000);
    hec_fssdp fssdp = hec_fssdp_new(&c->arena, &c->problem);
    hec_plan plan = hec_plan_new(&c->arena, &c->problem, 1);
    uint64_t load[EXPERTS_MAX];
    int32_t order[EXPERTS_MAX], D = c->problem.n_ranks;
    static bool held[EXPERTS_MAX][RANKS_MAX];
    memset(held, 0, sizeof held);
    random_loads(&seed, load, E);
    start_order(order, E);
    (void)hec_fssdp_order(load, E, order);
    for (int32_t e = 0; e < E; e++) {
      int32_t home = (int32_t)hec_test_below(&seed, (uint64_t)D);
      hec_plan_set_home(&plan, 1, e, home);
      held[e][home] = true;
    }
    int32_t t = (int32_t)hec_test_below(&seed, (uint64_t)E + 2), m = (int32_t)hec_test_below(&seed, (uint64_t)E + 2);
    m = hec_test_below(&seed, 2) ? m % 4 : m;
    (void)hec_fssdp_materialise(&fssdp, &plan, 1, load, order, t, m);
    plain_materialise(&c->problem, load, t, m, held);
    hec_plan_check(&plan);
    int32_t distinct = 0, copies[RANKS_MAX] = {0};
    for (int32_t e = 0; e < E; e++) {
      hec_copies of_row = hec_plan_copies(&plan, 1, e);
      distinct += of_row.n > 0;
      for (int32_t i = 0; i < of_row.n; i++) {
        ck_assert(of_row.kind[i] == HEC_COPY_GUEST && of_row.rank[i] != hec_plan_home(&plan, 1, e));
        copies[of_row.rank[i]]++;
      }
      for (int32_t d = 0; d < D; d++)
        ck_assert_int_eq(hec_plan_holds(&plan, 1, e, d), held[e][d]);
      ck_assert_int_eq(hec_plan_copies(&plan, 0, e).n, 0); /* the other layer is left alone */
    }
    ck_assert_int_le(distinct, t);
    for (int32_t d = 0; d < D; d++)
      ck_assert_int_le(copies[d], m);
  }
}

/* Algorithm 2 as hecate.md 7 states it. */
static void plain_shard(const hec_problem *p, uint64_t F[LAYERS_MAX][EXPERTS_MAX], const int32_t *t, int32_t *owner) {
  int32_t L = p->n_layers, E = p->n_experts, D = p->n_ranks, slots[RANKS_MAX];
  int32_t rank_of[LAYERS_MAX][EXPERTS_MAX]; /* experts by load */
  bool done[LAYERS_MAX] = {false};
  for (int32_t d = 0; d < D; d++)
    slots[d] = L * E / D + (d < L * E % D ? 1 : 0);
  for (int32_t l = 0; l < L; l++)
    for (int32_t e = 0; e < E; e++) {
      int32_t before = 0;
      for (int32_t q = 0; q < E; q++)
        before += F[l][q] > F[l][e] || (F[l][q] == F[l][e] && q < e);
      rank_of[l][before] = e;
    }
  for (int32_t step = 0; step < L; step++) {
    int32_t next = -1;
    uint64_t top = 0;
    for (int32_t l = L - 1; l >= 0; l--) {
      uint64_t hottest = 0;
      for (int32_t i = t[l]; i < E; i++)
        hottest = F[l][rank_of[l][i]] > hottest ? F[l][rank_of[l][i]] : hottest;
      if (!done[l] && (next < 0 || hottest >= top)) {
        next = l;
        top = hottest;
      }
    }
    done[next] = true;
    uint64_t load[RANKS_MAX] = {0};
    for (int32_t i = t[next]; i < E; i++) {
      uint64_t best_key[6] = {0};
      int32_t best = -1;
      for (int32_t d = 0; d < D; d++) {
        uint64_t node_load = 0, node_free = 0;
        for (int32_t q = 0; q < D; q++)
          if (hec_problem_node(p, q) == hec_problem_node(p, d)) {
            node_load += load[q];
            node_free += (uint64_t)slots[q];
          }
        uint64_t key[6] = {node_load, node_free,          (uint64_t)hec_problem_node(p, d),
                           load[d],   (uint64_t)slots[d], (uint64_t)d};
        int32_t differ = 0;
        while (best >= 0 && differ < 5 && key[differ] == best_key[differ])
          differ++;
        if (slots[d] > 0 && (best < 0 || key[differ] < best_key[differ])) {
          best = d;
          memcpy(best_key, key, sizeof key);
        }
      }
      owner[next * E + rank_of[next][i]] = best;
      load[best] += F[next][rank_of[next][i]];
      slots[best]--;
    }
  }
  for (int32_t l = 0; l < L; l++)
    for (int32_t i = 0; i < t[l] && i < E; i++) {
      int32_t best = 0;
      for (int32_t d = 0; d < D; d++)
        best = slots[d] > slots[best] ? d : best;
      owner[l * E + rank_of[l][i]] = best;
      slots[best]--;
    }
}

HEC_TEST(test_shard_random) {
  uint64_t seed = 12;
  for (int32_t k = 0; k < 600; k++) {
    int32_t E = 1 + (int32_t)hec_test_below(&seed, EXPERTS_MAX), L = 1 + (int32_t)hec_test_below(&seed, LAYERS_MAX);
    HEC_OPENED(hec_case) *c = hec_case_random(&seed, L, E, 1000);
    hec_fssdp fssdp = hec_fssdp_new(&c->arena, &c->problem);
    static uint64_t F[LAYERS_MAX][EXPERTS_MAX], load[LAYERS_MAX * EXPERTS_MAX];
    int32_t order[LAYERS_MAX * EXPERTS_MAX], t[LAYERS_MAX], fast[LAYERS_MAX * EXPERTS_MAX],
        plain[LAYERS_MAX * EXPERTS_MAX];
    int32_t owned[RANKS_MAX] = {0}, D = c->problem.n_ranks;
    for (int32_t l = 0; l < L; l++) {
      random_loads(&seed, F[l], E);
      memcpy(load + l * E, F[l], (size_t)E * sizeof *load);
      start_order(order + l * E, E);
      (void)hec_fssdp_order(F[l], E, order + l * E);
      t[l] = (int32_t)hec_test_below(&seed, (uint64_t)E + 1);
      memset(fast, 0xff, sizeof fast);
    }
    (void)hec_fssdp_shard(&fssdp, load, order, t, fast);
    plain_shard(&c->problem, F, t, plain);
    ck_assert_mem_eq(fast, plain, (size_t)(L * E) * sizeof *fast);
    for (int32_t row = 0; row < L * E; row++) {
      ck_assert(fast[row] >= 0 && fast[row] < D);
      owned[fast[row]]++;
    }
    for (int32_t d = 0; d < D; d++)
      ck_assert(owned[d] == L * E / D || owned[d] == (L * E + D - 1) / D);
  }
}

HEC_TEST(test_order) {
  uint64_t seed = 13, load[EXPERTS_MAX];
  int32_t order[EXPERTS_MAX];
  start_order(order, EXPERTS_MAX);
  for (int32_t k = 0; k < 200; k++) { /* from whatever the last loads left */
    random_loads(&seed, load, EXPERTS_MAX);
    (void)hec_fssdp_order(load, EXPERTS_MAX, order);
    for (int32_t i = 1; i < EXPERTS_MAX; i++)
      ck_assert(load[order[i - 1]] > load[order[i]] ||
                (load[order[i - 1]] == load[order[i]] && order[i - 1] < order[i]));
  }
}

/* Price of gathering order[0..k) everywhere, by lowering and pricing it. */
static double lowered_cost(hec_case *c, hec_link_cost *cost, const int32_t *order, const int32_t *home, int32_t k) {
  static hec_sparse_case s;
  hec_sparse_case_begin(&s, c->problem.bytes.expert_param);
  for (int32_t e = 0; e < c->problem.n_experts; e++)
    for (int32_t i = 0; i < k; i++)
      if (order[i] == e)
        hec_sparse_case_add(&s, e, home[e], c->problem.n_ranks, NULL);
  return hec_sparse_case_s(&s, cost, &c->problem, false);
}

HEC_TEST(test_overlap_degree) {
  uint64_t seed = 14;
  int32_t partial = 0;
  for (int32_t k = 0; k < 250; k++) {
    int32_t E = 1 + (int32_t)hec_test_below(&seed, EXPERTS_MAX);
    double bytes = (double)hec_test_below(&seed, 20000000);
    HEC_OPENED(hec_case) *c = hec_case_random(&seed, 1, E, bytes);
    hec_rank_links links = hec_rank_links_new(&c->arena, &c->problem);
    hec_spread gather = hec_spread_new(&c->arena, &c->problem, &links, bytes, false);
    hec_spread_sum sum = hec_spread_sum_new(&c->arena, &gather);
    HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&c->cluster, &c->arena);
    int32_t order[EXPERTS_MAX], home[EXPERTS_MAX];
    uint64_t load[EXPERTS_MAX], steps = 0;
    random_loads(&seed, load, E);
    start_order(order, E);
    (void)hec_fssdp_order(load, E, order);
    for (int32_t e = 0; e < E; e++)
      home[e] = (int32_t)hec_test_below(&seed, (uint64_t)c->problem.n_ranks);
    /* windows on, just below and between the prices */
    double at_price = lowered_cost(c, &cost, order, home, (int32_t)hec_test_below(&seed, (uint64_t)E + 1));
    uint64_t kind = hec_test_below(&seed, 4);
    c->problem.window_s = kind == 0   ? at_price
                          : kind == 1 ? at_price * 0.9999999
                          : kind == 2 ? 0
                                      : hec_test_uniform(&seed) * 5e-3;
    int32_t naive = 0;
    while (naive < E && lowered_cost(c, &cost, order, home, naive + 1) <= c->problem.window_s)
      naive++;
    partial += naive > 0 && naive < E;
    for (int32_t start = 0; start <= E; start += 1 + E / 3)
      ck_assert_int_eq(hec_fssdp_overlap_degree(&gather, &sum, &(hec_overlap_case){order, home, 0, start}, &steps),
                       naive);
    c->problem.t = 7;
    hec_overlap_case of = {order, home, 0, 0};
    ck_assert_int_eq(hec_fssdp_overlap_degree(&gather, &sum, &of, &steps), E < 7 ? E : 7);
    c->problem.t = HEC_T_PAPER;
    double fit = c->problem.window_s * hec_cluster_node_bandwidth(&c->cluster, true) / bytes;
    ck_assert_int_eq(hec_fssdp_overlap_degree(&gather, &sum, &of, &steps), fit >= E ? E : (int32_t)fit);
  }
  ck_assert_int_gt(partial, 40);
}

/* Layers that s2 leaves dense have the longer window, the others theirs. */
HEC_TEST(test_overlap_degree_of_a_dense_layer) {
  enum { E = 8 };
  HEC_OPENED(hec_case) *c = hec_case_new("1x4 nvlink=100G@1us nic=10G@5us flops=100T mem=1G", 4, 3, E, 1e6);
  hec_rank_links links = hec_rank_links_new(&c->arena, &c->problem);
  hec_spread gather = hec_spread_new(&c->arena, &c->problem, &links, 1e6, false);
  hec_spread_sum sum = hec_spread_sum_new(&c->arena, &gather);
  const int32_t order[E] = {0, 1, 2, 3, 4, 5, 6, 7}, home[E] = {0, 0, 1, 1, 2, 2, 3, 3};
  uint64_t steps = 0;
  c->moe.attention = HEC_ATTENTION_S2;
  c->moe.s2.dense = 2;
  c->problem.window_s = 0;
  c->problem.dense_window_s = 1;
  for (int32_t l = 0; l < 3; l++)
    ck_assert_int_eq(hec_fssdp_overlap_degree(&gather, &sum, &(hec_overlap_case){order, home, l, 0}, &steps),
                     l == 1 ? 0 : E);
}

HEC_TEST(test_memory_capacity) {
  HEC_OPENED(hec_case) *c = hec_case_new("1x4 nvlink=100G@1us nic=10G@5us flops=100T mem=1000", 4, 5, 8, 10);
  hec_problem *p = &c->problem;
  /* 5 * 8 / 4 = 10 experts of 10 + 10 + 60 bytes, two buffers of 1000 tokens of 100 bytes: far too much */
  ck_assert_int_eq(hec_fssdp_memory_capacity(p, false), 0);
  p->tokens = 0;
  ck_assert_double_eq_tol(hec_problem_bytes_without_copies(p), 800, 1e-9);
  ck_assert_int_eq(hec_fssdp_memory_capacity(p, false), 3); /* 200 / (10 * 5 + 10) */
  ck_assert_int_eq(hec_fssdp_memory_capacity(p, true), 8);  /* 200 / (10 + 10) = 10, but there are 8 experts */
  p->bytes.expert_grad = 20;                                /* 900 without copies */
  ck_assert_int_eq(hec_fssdp_memory_capacity(p, false), 1); /* 100 / 70 */
  ck_assert_int_eq(hec_fssdp_memory_capacity(p, true), 3);  /* 100 / 30 */
  p->train = false; /* no gradient, and no backward to keep copies for: 100 / 10, but there are 8 experts */
  ck_assert_int_eq(hec_fssdp_memory_capacity(p, false), 8);
  c->cluster.devices[2].memory_bytes = 950; /* the smallest device decides: 50 / 10 */
  ck_assert_int_eq(hec_fssdp_memory_capacity(p, false), 5);
  c->cluster.devices[2].memory_bytes = 900;
  ck_assert_int_eq(hec_fssdp_memory_capacity(p, false), 0);
  p->m = 6;
  ck_assert_int_eq(hec_fssdp_memory_capacity(p, false), 6);
  p->m = 60;
  ck_assert_int_eq(hec_fssdp_memory_capacity(p, false), 8);
}
