/* See the header. The permutation: Fisher-Yates with splitmix64 (Steele, Lea, Flood, OOPSLA 2014), seeded by layer and
 * source. Tokens of a node: the union of its spans on the circle of tokens, cut open at 0, sorted, swept once. */
#include "runtime/plan/token_sets.h"

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>

static uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void hec_token_sets(const hec_token_row *row, int32_t *first, int32_t *order) {
  uint64_t state = mixed(((uint64_t)row->layer << 32) + (uint64_t)row->source + 1);
  int64_t at = 0;
  for (int32_t i = 0; i < row->n_experts; i++) {
    state += 0x9e3779b97f4a7c15u;
    int32_t with = (int32_t)(mixed(state) % ((uint64_t)i + 1));
    order[i] = i;
    order[i] = order[with];
    order[with] = i;
  }
  for (int32_t i = 0; i < row->n_experts; i++) {
    HEC_ASSERT(row->tokens > 0 || row->counts[order[i]] == 0);
    first[order[i]] = row->tokens > 0 ? (int32_t)(at % row->tokens) : 0;
    at += row->counts[order[i]];
  }
}

static inline bool is_behind(hec_token_span a, hec_token_span b) {
  return a.node != b.node ? a.node > b.node : a.first > b.first;
}

/* Shell's, with gaps after Ciura (2001): there are few, and qsort would ask a function for each comparison. Which of two
 * at one place stands first does not matter to the sweep. */
static void sort_by_place(hec_token_span *spans, int32_t n) {
  static const int32_t gaps[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};
  for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++)
    for (int32_t i = gaps[g]; i < n; i++) {
      hec_token_span span = spans[i];
      int32_t k = i;
      for (; k >= gaps[g] && is_behind(spans[k - gaps[g]], span); k -= gaps[g])
        spans[k] = spans[k - gaps[g]];
      spans[k] = span;
    }
}

void hec_tokens_by_node(hec_token_span *spans, int32_t n, int32_t tokens, uint32_t *by_node, int32_t n_nodes) {
  for (int32_t v = 0; v < n_nodes; v++)
    by_node[v] = 0;
  for (int32_t i = 0, n_given = n; i < n_given; i++) {
    hec_token_span *span = &spans[i];
    HEC_ASSERT(span->rows > 0 && span->first >= 0 && span->first < tokens);
    if (span->rows >= tokens)
      *span = (hec_token_span){span->node, 0, tokens};
    int32_t over = span->first + (span->rows - tokens);
    if (over <= 0)
      continue;
    span->rows -= over;
    spans[n++] = (hec_token_span){span->node, 0, over};
  }
  sort_by_place(spans, n);
  int32_t reached = 0; /* of the node at hand */
  for (int32_t i = 0; i < n; i++) {
    int32_t from = spans[i].first, end = from + spans[i].rows;
    if (i == 0 || spans[i].node != spans[i - 1].node)
      reached = 0;
    from = from > reached ? from : reached;
    by_node[spans[i].node] += end > from ? (uint32_t)(end - from) : 0;
    reached = end > reached ? end : reached;
  }
}
