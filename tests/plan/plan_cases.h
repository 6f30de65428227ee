/* Random and small problems for the tests of the planning floor. A cluster from its one-line form and a problem filled
 * in by hand, so that these tests depend on no preset. */
#pragma once
#include "models/load.h"
#include "runtime/plan/collective.h"
#include "runtime/plan/problem.h"
#include "tests/support/checks.h"

typedef struct {
  hec_arena arena;
  hec_moe moe;
  hec_cluster cluster;
  hec_problem problem;
} hec_case;

/* `line`: hec_cluster_parse_line. Expert of `expert_bytes`, 1000 flops a row, token rows of 100 bytes, window 1 ms. */
static inline hec_case *hec_case_new(const char *line, int32_t n_ranks, int32_t n_layers, int32_t n_experts,
                                     double expert_bytes) {
  hec_case *c = calloc(1, sizeof *c);
  ck_ok(hec_cluster_parse_line(line, &c->arena, &c->cluster));
  ck_assert_int_le(n_ranks, c->cluster.n_devices);
  c->moe.n_layers = c->moe.n_moe_layers = n_layers;
  c->moe.n_experts = n_experts;
  c->moe.top_k = 1;
  int32_t per_node = c->cluster.devices_per_node, ep = n_ranks < n_experts ? n_ranks : n_experts;
  while (n_ranks % ep != 0)
    ep--;
  c->problem = (hec_problem){
      .moe = &c->moe,
      .cluster = &c->cluster,
      .train = true,
      .n_ranks = n_ranks,
      .n_nodes = (n_ranks + per_node - 1) / per_node,
      .n_layers = n_layers,
      .n_experts = n_experts,
      .top_k = 1,
      .tokens = 1000,
      .ep = ep,
      .dp = n_ranks / ep,
      .esp = 1,
      .mp = 1,
      .bytes = {.expert_param = expert_bytes,
                .expert_grad = expert_bytes,
                .expert_optimizer = 6 * expert_bytes,
                .token = 100},
      .expert = {.flops_per_row = 1000, .n_gemms = 2},
      .window_s = 1e-3,
      .t = HEC_AUTO,
      .m = HEC_AUTO,
      .period = HEC_AUTO,
      .slots = HEC_AUTO,
  };
  return c;
}

static inline void hec_case_free(hec_case *c) {
  hec_arena_free(&c->arena);
  free(c);
}
HEC_OPENED_BY(hec_case, hec_case_free)

/* A random cluster line: 1-4 nodes of 1-8 devices, one NIC per node or per device, random rates. */
static inline const char *hec_case_random_line(uint64_t *seed, int32_t *n_devices) {
  static char line[160];
  int32_t nodes = 1 + (int32_t)hec_test_below(seed, 4), per_node = 1 + (int32_t)hec_test_below(seed, 8);
  int32_t nics = hec_test_below(seed, 3) == 0 ? per_node : 1;
  *n_devices = nodes * per_node;
  (void)snprintf(line, sizeof line, "%dx%d nvlink=%dG@%dus nic=%dG@%dus flops=%dT mem=40G nics=%d through=%d", nodes,
                 per_node, 50 + (int)hec_test_below(seed, 300), 1 + (int)hec_test_below(seed, 3),
                 5 + (int)hec_test_below(seed, 80), 1 + (int)hec_test_below(seed, 9),
                 50 + (int)hec_test_below(seed, 900), nics, (int)hec_test_below(seed, 2));
  return line;
}

/* Some ranks of a random cluster, one at least. */
static inline hec_case *hec_case_random(uint64_t *seed, int32_t n_layers, int32_t n_experts, double expert_bytes) {
  int32_t n_devices;
  const char *line = hec_case_random_line(seed, &n_devices);
  return hec_case_new(line, 1 + (int32_t)hec_test_below(seed, (uint64_t)n_devices), n_layers, n_experts, expert_bytes);
}

/* ---- Whole experts that ranks ask for, added one by one ---- */

enum { HEC_CASE_ITEMS = 64, HEC_CASE_RANKS = 32 };
typedef struct {
  hec_sparse sparse;
  int32_t expert[HEC_CASE_ITEMS], owner[HEC_CASE_ITEMS], at[HEC_CASE_ITEMS + 1];
  int32_t receiver[HEC_CASE_ITEMS * HEC_CASE_RANKS];
} hec_sparse_case;

static inline void hec_sparse_case_begin(hec_sparse_case *c, double bytes) {
  c->at[0] = 0;
  c->sparse = (hec_sparse){.n_slices = 1,
                           .expert = c->expert,
                           .owner = c->owner,
                           .receiver_at = c->at,
                           .receiver = c->receiver,
                           .bytes = (int64_t)bytes};
}

/* To the ranks that `to` names, all for NULL, but for the owner; not added where nobody is left. */
static inline void hec_sparse_case_add(hec_sparse_case *c, int32_t expert, int32_t owner, int32_t n_ranks,
                                       const bool *to) {
  int32_t n = c->sparse.n_items, at = c->at[n];
  for (int32_t r = 0; r < n_ranks; r++)
    if (r != owner && (!to || to[r]))
      c->receiver[at++] = r;
  if (at == c->at[n])
    return;
  c->expert[n] = expert;
  c->owner[n] = owner;
  c->at[++c->sparse.n_items] = at;
}

/* What the cheapest collective takes, lowered and priced. */
static inline double hec_sparse_case_s(const hec_sparse_case *c, hec_link_cost *cost, const hec_problem *problem,
                                       bool scatter) {
  HEC_SCOPED(hec_collective_plan) out = {0}, scratch = {0};
  (void)hec_collective_choose(cost, problem, &c->sparse, scatter, NULL, &out, &scratch);
  double seconds = hec_collective_cost(cost, &out);
  return seconds;
}

/* At most 64 experts. Skewed counts: a few hot experts, different by source now and then; sometimes none at all. */
static inline void hec_case_random_counts(uint64_t *seed, hec_load *load) {
  for (int32_t l = 0; l < load->n_layers; l++) {
    uint64_t heat[64], scale = hec_test_below(seed, 10) == 0 ? 0 : 1 + hec_test_below(seed, 400);
    for (int32_t e = 0; e < load->n_experts; e++)
      heat[e] = hec_test_below(seed, 5) == 0 ? 40 : hec_test_below(seed, 4);
    for (int32_t s = 0; s < load->n_sources; s++)
      for (int32_t e = 0; e < load->n_experts; e++)
        hec_load_row(load, l, s)[e] = (uint32_t)(heat[e] * scale + hec_test_below(seed, 1 + scale));
  }
}
