/* Gradients of replicas: how the ranks that keep an expert between iterations come to have the sum of their gradients.
 *
 * A gradient of G bytes, n keepers on m nodes, at most k of them on one node:
 *
 *   1  inside nodes    It is cut into k pieces. In each node one keeper sums piece j.
 *   2  between nodes   Piece j is cut into m parts, one for each node. Those who summed the piece sum one part each.
 *   3  between nodes, 4 inside nodes: the same transfers the other way round bring the sums back.
 *
 * Steps 1 and 2 move (n - m) G and (m - 1) G bytes, all four 2 (n - 1) G, the min of any all-reduce. Between nodes go
 * 2 (m - 1) G, however many keepers a node has. Without step 1 it would be 2 (n - 1) G times the share of pairs that span
 * nodes. The pieces spread what a node sends over the NICs of its keepers. A keeper of a node with fewer than k keepers may
 * have one piece more than another: which one changes from expert to expert.
 *
 * With one keeper a node, or one node, two of the steps are empty: a plain reduce-scatter and all-gather. */
#pragma once
#include "runtime/plan/plan.h"
#include "runtime/plan/problem.h"

typedef enum { HEC_REPLICA_INSIDE, HEC_REPLICA_BETWEEN } hec_replica_step;

/* `source` sends its part (hec_part_begin) of the gradient, and `destination` adds it to its own. */
typedef struct {
  int32_t source, destination, part, n_parts;
} hec_replica_piece;
typedef void hec_replica_visit(void *context, hec_replica_piece piece);

/* Distinct ranks that keep the expert between iterations, home and residents, ascending; 0: it has no residents. `out` has room
 * for n_ranks. O(copies of the row). */
int32_t hec_replica_keepers(const hec_plan *plan, int32_t layer, int32_t expert, int32_t *out);

/* Calls `visit` for the pieces of step 1 or 2. keeper: [n] ranks, ascending and different. O(pieces + k m n). */
void hec_replica_pieces(const hec_problem *problem, int32_t expert, const int32_t *keeper, int32_t n,
                        hec_replica_step step, hec_replica_visit *visit, void *context);

/* ZeRO-1: step 4 and 3 bring parameters back instead, which the rank that has a part's sums has updated. Where every
 * expert-parallel group keeps every expert at the same place, these are the parts that `rank` updates. If it keeps the
 * expert they are first, first + stride ... (n of them) of n_parts. Without problem.zero all: one of one. O(groups).
 * */
typedef struct {
  int32_t first, stride, n, n_parts;
} hec_replica_own;
hec_replica_own hec_replica_own_of(const hec_problem *problem, int32_t expert, int32_t rank);
