/* Inferred token sets: what the counts say exactly, the mean number of nodes that a token reaches, tokens by node against
 * marks on every token. */
#include "runtime/plan/plan.h"
#include "runtime/plan/token_sets.h"
#include "tests/support/test.h"

#include <string.h>

enum { EXPERTS = 256, TOKENS = 512, NODES = 8 };

/* Nodes of `token` by the definition, as bits, and how many assignments it has. */
static uint32_t nodes_of(const hec_token_row *row, const int32_t *first, int32_t token, int32_t n_nodes, int32_t *n) {
  uint32_t nodes = 0;
  *n = 0;
  for (int32_t e = 0; e < row->n_experts; e++) {
    int32_t here =
        (token - first[e] + row->tokens) % row->tokens; /* assignment `here`, here + T, .. are of the token */
    for (uint32_t i = (uint32_t)here; i < row->counts[e]; i += (uint32_t)row->tokens) {
      nodes |= 1u << (e * n_nodes / row->n_experts);
      ++*n;
    }
  }
  return nodes;
}

static int32_t ones(uint32_t bits) {
  int32_t n = 0;
  for (; bits; bits &= bits - 1)
    n++;
  return n;
}

HEC_TEST_LOOP(tokens_share_evenly, 200) {
  uint64_t random = 71 + (uint64_t)_i;
  uint32_t counts[40], total = 0;
  int32_t first[40], order[40], tokens = 1 + (int32_t)hec_test_below(&random, 60), seen[40] = {0};
  hec_token_row row = {counts, 1 + (int32_t)hec_test_below(&random, 40), tokens, _i % 5, _i};
  for (int32_t e = 0; e < row.n_experts; e++)
    total += counts[e] = (uint32_t)hec_test_below(&random, 1 + hec_test_below(&random, 2 * (uint64_t)tokens));
  hec_token_sets(&row, first, order);
  for (int32_t e = 0; e < row.n_experts; e++) {
    ck_assert(order[e] >= 0 && order[e] < row.n_experts);
    seen[order[e]]++;
  }
  for (int32_t e = 0; e < row.n_experts; e++)
    ck_assert_int_eq(seen[e], 1);
  for (int32_t t = 0; t < tokens; t++) {
    int32_t n;
    uint32_t nodes = nodes_of(&row, first, t, 4, &n);
    ck_assert(n >= (int32_t)total / tokens && n <= ((int32_t)total + tokens - 1) / tokens);
    ck_assert(ones(nodes) <= n && ones(nodes) <= 4 && (n == 0) == (nodes == 0));
  }
}

/* Mean over layers and sources of the nodes that a token reaches, even loads, experts on nodes in a row. in_order: the
 * experts one after the other instead of the permutation. */
static double mean_nodes(int32_t n_experts, int32_t top_k, int32_t n_nodes, bool in_order) {
  static uint32_t counts[EXPERTS];
  static int32_t first[EXPERTS], order[EXPERTS];
  int64_t sum = 0, all = 0;
  for (int32_t e = 0; e < n_experts; e++)
    counts[e] = (uint32_t)(TOKENS * top_k / n_experts);
  for (int32_t layer = 0; layer < 8; layer++)
    for (int32_t source = 0; source < 16; source++) {
      hec_token_row row = {counts, n_experts, TOKENS, layer, source};
      hec_token_sets(&row, first, order);
      for (int32_t e = 0; in_order && e < n_experts; e++)
        first[e] = (int32_t)counts[e] * e % TOKENS;
      for (int32_t t = 0; t < TOKENS; t++, all++) {
        int32_t n;
        sum += ones(nodes_of(&row, first, t, n_nodes, &n));
        ck_assert_int_eq(n, top_k);
      }
    }
  return (double)sum / (double)all;
}

/* N (1 - C(E - E/N, k) / C(E, k)); with replacement N (1 - (1 - 1/N)^k). */
static double expected_nodes(int32_t n_experts, int32_t top_k, int32_t n_nodes, bool replaced) {
  double none = 1;
  for (int32_t i = 0; i < top_k; i++)
    none *= replaced ? 1 - 1.0 / n_nodes : 1 - (double)(n_experts / n_nodes) / (n_experts - i);
  return n_nodes * (1 - none);
}

/* A layer and source has E/k sets, 128 of these 128 E/k. A standard deviation below 1 node each makes 3 / sqrt(128
 * E/k) of the mean. With replacement a token may draw an expert twice: a little less, as much less as the formulas
 * differ. */
HEC_TEST(as_if_independent) {
  static const struct {
    int32_t experts, top_k, nodes;
  } cases[] = {{64, 8, 8}, {64, 2, 4}, {256, 8, 4}, {256, 8, 8}, {128, 4, 2}, {32, 2, 2}, {16, 4, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int32_t n_experts = cases[i].experts, k = cases[i].top_k, nodes = cases[i].nodes;
    double mean = mean_nodes(n_experts, k, nodes, false), exact = expected_nodes(n_experts, k, nodes, false);
    double many = expected_nodes(n_experts, k, nodes, true), three = 3.0, sets = 128.0 * n_experts / k;
    ck_assert_msg((mean - exact) * (mean - exact) * sets <= three * three, "E %d k %d N %d: %g of %g", n_experts, k,
                  nodes, mean, exact);
    ck_assert(exact >= many && exact < many * 1.09);
    double far = mean_nodes(n_experts, k, nodes, true); /* the old rule's sets: as far apart as can be */
    ck_assert_double_eq(far, k < nodes ? k : nodes);
    ck_assert_double_lt(mean, far);
  }
}

HEC_TEST_LOOP(by_node_as_marked, 400) {
  uint64_t random = 171 + (uint64_t)_i;
  static hec_token_span spans[2 * 40];
  static uint8_t marked[NODES][TOKENS];
  uint32_t by_node[NODES], expected[NODES] = {0};
  int32_t tokens = 1 + (int32_t)hec_test_below(&random, TOKENS), n = (int32_t)hec_test_below(&random, 40);
  memset(marked, 0, sizeof marked);
  for (int32_t i = 0; i < n; i++) {
    uint64_t max = hec_test_below(&random, 3) ? 1 + (uint64_t)tokens / 8 : 2 * (uint64_t)tokens;
    spans[i] =
        (hec_token_span){(int32_t)hec_test_below(&random, NODES), (int32_t)hec_test_below(&random, (uint64_t)tokens),
                         1 + (int32_t)hec_test_below(&random, max)};
    for (int32_t k = 0; k < spans[i].rows; k++)
      marked[spans[i].node][(spans[i].first + k) % tokens] = 1;
  }
  for (int32_t v = 0; v < NODES; v++)
    for (int32_t t = 0; t < tokens; t++)
      expected[v] += marked[v][t];
  hec_tokens_by_node(spans, n, tokens, by_node, NODES);
  ck_assert(memcmp(by_node, expected, sizeof expected) == 0);
}
