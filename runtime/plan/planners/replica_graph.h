/* Fixed graphs of replicas: whose experts a rank replicates. */
#pragma once
#include <stdint.h>

enum { HEC_REPLICA_COLUMNS_MAX = 2 };

/* from[c * n_ranks + r]: the rank whose experts rank r replicates in column c; every column is a permutation without
 * fixed points. `from` has room for HEC_REPLICA_COLUMNS_MAX columns; returns how many there are. */
typedef struct {
  const char *name;
  int32_t (*make)(int32_t n_ranks, int32_t per_node, int32_t *from); /* 0: does not apply */
} hec_replica_graph;

#define HEC_REPLICA_GRAPH_LIST(X) X(cube) X(hypercube) X(torus) X(ring)
#define HEC_REPLICA_GRAPH_DECLARE(name) extern const hec_replica_graph hec_replica_graph_##name;
HEC_REPLICA_GRAPH_LIST(HEC_REPLICA_GRAPH_DECLARE)

/* The first of the list that applies to that many ranks, `per_node` of them on each node; NULL for one rank. */
const hec_replica_graph *hec_replica_graph_of(int32_t n_ranks, int32_t per_node, int32_t *from, int32_t *n_columns);
