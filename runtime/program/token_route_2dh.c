/* Route `2dh`: Tutel's two-dimensional hierarchical all-to-all (arXiv:2206.03382; reference policies.md 3.5). With G ranks a
 * node, rows of s for d go over the rank of s's node that has d's place in its own:
 *
 *   q(s, d) = G floor(s / G) + d mod G        s -> q inside the node, q -> d between nodes, same place in both
 *
 * q = s: the first exchange has nothing to do. s and d on one node: q = d, and the second has nothing to do. With N
 * nodes a rank sends N - 1 messages between nodes instead of G (N - 1). Each has the rows of all G ranks of the node.
 * So as many bytes leave the node, in a G-th of the messages.
 *
 * Inferred: in a partly used last node q may not exist; such rows go directly, in the second exchange. The rows of G - 1 of
 * G ranks pass the ports inside the node once more, which is what it costs. O(1). */
#include "runtime/plan/problem.h"
#include "runtime/program/token_route.h"

static int32_t relay(const hec_problem *problem, int32_t s, int32_t d) {
  int32_t per_node = problem->cluster->devices_per_node, q = s - s % per_node + d % per_node;
  return q < problem->n_ranks ? q : s;
}

static bool applies(const hec_problem *problem) {
  return problem->n_nodes > 1 && problem->cluster->devices_per_node > 1;
}

const hec_token_route hec_token_route_2dh = {
    .name = "2dh",
    .summary = "inside the node to the rank with the destination's place, from there between nodes",
    .source = "Tutel, arXiv:2206.03382",
    .relay = relay,
    .applies = applies,
};
