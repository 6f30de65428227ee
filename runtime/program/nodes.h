/* Token rows that travel once per node (HierMoE's de-duplication, arXiv 2508.09591). A token with one or more of its
 * assignments on another node v is sent there once, to its proxy. The proxy acts for it as for a token of its own.
 *
 *   proxy(s, v) = the rank of node v with s's place in its own node, modulo the ranks that v has
 *
 *   forward    node permute   rows to send, one per (token, node)   | 4 bytes per assignment: its gate weight
 *              node dispatch  s -> proxy
 *              permute .. unpermute    as ever, inside nodes. `sources` are the proxies now, with the assignments of
 *                                      all that they act for. A token's weighted outputs add up to one row at its
 *                                      proxy
 *              node combine   proxy -> s
 *              node unpermute the rows added to their tokens
 *   backward   mirrored: gradients of the sums go out once, those of inputs come back as one row, with the weights'
 *
 * Who computes an assignment is what the dispatch rule said: loads of ranks do not change, only the ways of rows do. Which
 * tokens share a node follows from sets that counts do not have; they are inferred (runtime/plan/token_sets.h). */
#pragma once
#include "runtime/base/arena.h"

#include <stdbool.h>

typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */
typedef struct hec_lowering hec_lowering;

int32_t hec_proxy_of(const hec_problem *problem, int32_t source, int32_t node);

typedef struct hec_nodes hec_nodes;
hec_nodes *hec_nodes_new(const hec_problem *problem, hec_arena *arena);
/* Before the layer's permute: whether its rows travel once per node, by the closed-form price of either way. Where
 * equal, the plain way, whose price is `gain_s` less than that. Never on one node, with expert-sharding groups, or
 * where gates choose (lower.h). O(ranks * experts * (nodes + devices of a node)) beside pricing. */
bool hec_nodes_choose(hec_lowering *low, hec_nodes *nodes, int32_t layer, double gain_s);
