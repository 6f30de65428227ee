/* The topologies of LPLB (github.com/deepseek-ai/LPLB; reference policies.md 4.3):
 *
 *   cube       8 ranks: two squares, each rank replicates from the one before it in its square and from the other square
 *              along edges and diagonals
 *   hypercube  16 ranks: four squares; from the one before in the square, and from the same place of the square before
 *   torus      nodes x ranks of a node: from the rank before on the node, and from the same place of the node before
 *   ring       one column: from the rank before
 *
 * The published hypercube is the torus of 4 x 4. LPLB leaves the choice to its user. The order of the list (cube for 8,
 * hypercube for 16, as its README recommends, else torus, else ring) is ours. */
#include "runtime/plan/planners/replica_graph.h"

#include <stddef.h>
#include <string.h>

static int32_t make_cube(int32_t n_ranks, int32_t per_node, int32_t *from) {
  static const int32_t published[2][8] = {{3, 0, 1, 2, 7, 4, 5, 6}, {6, 7, 4, 5, 0, 1, 2, 3}};
  (void)per_node;
  if (n_ranks != 8)
    return 0;
  memcpy(from, published, sizeof published);
  return 2;
}

/* n_rings rings of `size` ranks, and rings across them. */
static int32_t make_grid(int32_t n_rings, int32_t size, int32_t *from) {
  int32_t n = n_rings * size;
  for (int32_t r = 0; r < n; r++) {
    from[r] = r / size * size + (r % size + size - 1) % size;
    from[n + r] = (r + n - size) % n;
  }
  return 2;
}

static int32_t make_hypercube(int32_t n_ranks, int32_t per_node, int32_t *from) {
  (void)per_node;
  return n_ranks == 16 ? make_grid(4, 4, from) : 0;
}

static int32_t make_torus(int32_t n_ranks, int32_t per_node, int32_t *from) {
  if (per_node < 2 || n_ranks % per_node != 0 || n_ranks / per_node < 2)
    return 0;
  return make_grid(n_ranks / per_node, per_node, from);
}

static int32_t make_ring(int32_t n_ranks, int32_t per_node, int32_t *from) {
  (void)per_node;
  for (int32_t r = 0; r < n_ranks; r++)
    from[r] = (r + n_ranks - 1) % n_ranks;
  return n_ranks > 1 ? 1 : 0;
}

#define GRAPH(row) const hec_replica_graph hec_replica_graph_##row = {.name = #row, .make = make_##row};
HEC_REPLICA_GRAPH_LIST(GRAPH)
#define ROW(row) &hec_replica_graph_##row,
static const hec_replica_graph *const graphs[] = {HEC_REPLICA_GRAPH_LIST(ROW) NULL};

const hec_replica_graph *hec_replica_graph_of(int32_t n_ranks, int32_t per_node, int32_t *from, int32_t *n_columns) {
  for (size_t i = 0; graphs[i]; i++)
    if ((*n_columns = graphs[i]->make(n_ranks, per_node, from)) > 0)
      return graphs[i];
  return NULL;
}
