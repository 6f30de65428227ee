/* LAER-MoE's planner (arXiv 2602.11686; reference hecate.md 10.3), apart from the policy so that it can be tested
 * exactly. It says how many replicas each expert gets, and on which ranks' slots they stand. */
#pragma once
#include "runtime/base/arena.h"

#include <stdint.h>

/* Seconds of a layout under routing to the own node's replicas, else to all, evenly:
 *   sum over sources of their remote assignments * (node_s or network_s) + compute_s * busiest rank's assignments
 * (a sum of the sources' times beside the maximum of the ranks', as published). */
typedef struct {
  double node_s;    /* per assignment sent to another rank of the node, all exchanges of an iteration */
  double network_s; /* to another node */
  double compute_s; /* per assignment computed, forward and backward */
} hec_replica_cost;

typedef struct {
  int32_t n_ranks, per_node, n_nodes, n_experts, capacity; /* capacity: slots of a rank */
  int32_t *slot;      /* [n_ranks * capacity] result: expert in slot c of rank r at r * capacity + c; -1: left empty */
  int32_t *count;     /* [n_experts] result: replicas */
  double seconds;     /* result: the model's */
  int32_t *try_slot;  /* scratch, as the results */
  int32_t *try_count; /* likewise */
  uint64_t *load;     /* scratch [n_experts] */
  double *key;        /* scratch [n_experts] load per replica */
  int32_t *order;     /* scratch [n_experts] */
  int32_t *n_used;    /* scratch [n_ranks] slots */
  double *rank_load;  /* scratch [n_ranks] */
  int32_t *node_rank; /* scratch [n_nodes] least loaded rank with a free slot; -1: none */
  int32_t *on_node;   /* scratch [n_nodes * n_experts] replicas */
  double *share;      /* scratch [n_nodes * n_experts] assignments of a node's sources per replica in the node */
  double *anywhere;   /* scratch [n_experts] assignments per replica from nodes without one */
  uint64_t units;     /* inner steps of the last choice */
} hec_replica_layout;

/* Nodes are runs of per_node ranks, the last one may be short. n_ranks * capacity >= n_experts, capacity <= n_experts.
 */
hec_replica_layout hec_replica_layout_new(hec_arena *arena, int32_t n_ranks, int32_t per_node, int32_t n_experts,
                                          int32_t capacity);

/* sent: [n_ranks][n_experts] assignments. The better of the even and the proportional layout (the earlier on a tie).
 * O(slots * (nodes + ranks of a node + log experts) + ranks * experts). */
void hec_replica_layout_choose(hec_replica_layout *layout, const hec_replica_cost *cost, const uint64_t *sent);

/* The layout of no load: slots shared out evenly, the first experts one more. */
void hec_replica_layout_even(hec_replica_layout *layout);
