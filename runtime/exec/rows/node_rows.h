/* Where rows stand that travel once per node (runtime/program/nodes.h), for one rank, from the layer's cells before
 * they were folded. Every rank has all counts, hence all inferred token sets. So both ends agree without a message.
 *
 *   for proxies       (NODE_SEND, NODE_RETURNED)   rows of the rank's tokens by (peer, token); behind them numbers, one per
 *                                                  assignment, by (peer, expert, position in the rank's list)
 *   as a proxy        (NODE_ARRIVED, NODE_PARTIAL) the same of its sources: rows by (peer, token); numbers by (peer, expert, ..)
 *   what it permutes  one per assignment of its own tokens inside its node, and of tokens that it is proxy for: by (expert,
 *                     rank that computes it, source, position), the order of the folded cells (rows.h)
 *
 * The numbers are gate weights on the way out, their gradients on the way home. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/program/nodes.h"
#include "runtime/program/program.h"

/* Those of peer p are at[p] .. at[p + 1] - 1. */
typedef struct {
  int32_t n_rows, n_numbers;
  int32_t *row_at, *number_at; /* [n_ranks + 1] */
} hec_node_peers;

/* Some of the permuted assignments: of own tokens, or of others'. */
typedef struct {
  int32_t n;
  int32_t *place;  /* [n] among all that the rank permutes, ascending */
  int32_t *token;  /* [n] own token, or row as a proxy */
  int32_t *number; /* [n] of its weight: in the rank's assignment list, or as a proxy */
} hec_node_list;

typedef struct {
  hec_node_peers to, from; /* for proxies, as a proxy */
  int32_t *token, *number; /* [to.n_rows] own tokens, [to.n_numbers] in the assignment list: what goes to proxies */
  hec_node_list own, others;
} hec_node_rows;

typedef struct {
  const hec_problem *problem;
  const hec_cell *cells; /* [n_cells] by (source, expert, rank), not folded */
  int32_t n_cells, layer;
} hec_node_cells;

/* On `arena`. O(cells + assignments + sources of the proxy * (tokens + experts * devices of a node)). */
hec_node_rows hec_node_rows_make(hec_arena *arena, const hec_node_cells *of, int32_t rank);
