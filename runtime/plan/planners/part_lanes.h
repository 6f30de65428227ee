/* What copies of a layer put on the network when they travel in parts (collectives/parts.c). It is kept such that one
 * copy more costs a pass over ranks and nodes. With G ranks in a node, B bytes of an expert, port and node rates p and
 * n:
 *
 *   stage 1   max over owners   of  B (G-1)/G                 for each expert that leaves its rank          / p
 *   stage 2   max over nodes    of  B for each (expert, node) that enters, or leaves to, another node       / n
 *             and over ranks    of  B (G-1)/G for each copy in the owner's node                             / p
 *   stage 3   max over ranks    of  B (G-1)/G for each copy in another node, and B/G for each that it passes on  / p
 *
 * and three latencies. Gradients come back the same way in reverse. It is what parts.c costs where nodes are full and parts are
 * equal (tests/plan/test_layer_end.c). Where another row of the table is cheaper, the price is too high. */
#pragma once
#include "runtime/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */

typedef struct {
  const hec_problem *problem;
  int32_t n_ranks, n_nodes, per_node; /* per_node: G */
  double port, node, latency_s;       /* bytes/s; of three stages */
  double other;                       /* (G-1)/G */
  int32_t *node_of;                   /* [n_ranks] */
  /* In experts. */
  double *owner_out, *near_in, *far_in; /* [n_ranks] */
  double *node_out, *node_in, *passed;  /* [n_nodes] */
  int32_t *copies;                      /* [n_experts * n_nodes] of the expert in the node, its owner not counted */
  int32_t *all;                         /* [n_experts] likewise, of all nodes */
} hec_part_lanes;

hec_part_lanes hec_part_lanes_new(hec_arena *arena, const hec_problem *problem);
void hec_part_lanes_clear(hec_part_lanes *lanes);
void hec_part_lanes_copy(const hec_part_lanes *from, hec_part_lanes *to); /* of the same problem */
/* A copy of the expert of `owner` on `rank` comes (or, with sign -1, goes). O(1). */
void hec_part_lanes_add(hec_part_lanes *lanes, int32_t expert, int32_t owner, int32_t rank, int sign);
/* The same on every rank r with held[r] == which, of ranks where no copy is (with -1: where one is). O(ranks). */
void hec_part_lanes_add_all(hec_part_lanes *lanes, int32_t expert, int32_t owner, const uint8_t *held, uint8_t which,
                            int sign);
/* Seconds of all of them at `bytes` an expert; 0 if there are none. O(ranks + nodes). */
double hec_part_lanes_s(const hec_part_lanes *lanes, double bytes);
