/* Which tokens of a source go to which experts, where only counts are known: inferred, the same by every interpreter.
 *
 *   order    of the experts of (layer, source): a fixed pseudo-random permutation
 *   list     the source's assignments, expert by expert in that order; number j of it is of token j mod T
 *
 * So expert e has the tokens first(e), first(e) + 1, .. first(e) + n(e) - 1, all mod T: no token has an expert twice
 * unless n(e) > T. Tokens share the assignments evenly, k = n / T each where that is whole. The experts of a token are
 * about n/T apart in the list: k different ones, picked without regard to each other. So with even loads a token
 * reaches, of N nodes,
 *
 *   N (1 - (1 - 1/N)^k)  on average, for many experts;  N (1 - C(E - E/N, k) / C(E, k))  for E of them
 *
 * at least one, at most min(k, N). A real router's choices correlate, so it may reach fewer (or, told to, more). */
#pragma once
#include <stdint.h>

typedef struct {
  const uint32_t *counts; /* [n_experts] assignments of the source in the layer */
  int32_t n_experts, tokens;
  int32_t layer, source; /* choose the order */
} hec_token_row;

/* Assignment i (0 .. counts[e] - 1) of expert e is of token (first[e] + i) mod tokens. first, and order (of the experts):
 * [n_experts]. tokens 0: no counts. O(n_experts). */
void hec_token_sets(const hec_token_row *row, int32_t *first, int32_t *order);

/* Tokens first, first + 1, .. first + rows - 1, mod T, have an assignment on the node; `rows` above 0. */
typedef struct {
  int32_t node, first, rows;
} hec_token_span;

/* by_node[v]: how many of the T tokens have an assignment on node v, [n_nodes]. spans: [2 * n] of room, written over.
 * O(n log n). */
void hec_tokens_by_node(hec_token_span *spans, int32_t n, int32_t tokens, uint32_t *by_node, int32_t n_nodes);
