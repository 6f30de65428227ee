/* Token rows as a dispatcher sends them (models/training/dispatcher.h; problem.dispatch), under any policy and schedule. Of s's
 * tokens, with d a rank and v another node than its own:
 *
 *   each   all-to-all        s -> d                          a row for every assignment
 *   all    gathers           s -> d of its expert-parallel group    a row for every token
 *   once   kernels (part_s)  s -> d on its own node          a row for every token with an assignment on d
 *                            s -> proxy(s, v)                a row for every token with one on v
 *                            proxy(s, v) -> d of v           a row for every token with one on d
 *
 * The proxy has s's place in its own node (nodes.h), and all its forwarding for all its sources is one message to each d.
 * `once` takes one exchange and one kernel of every rank r, over T tokens, whose law is given
 *
 *   ranks  max(copies that r makes for ranks of its node, itself too; copies that come to r) / T
 *   nodes  max(rows that r sends to proxies; rows that come to r as proxy) / T
 *
 * Chunks of a layer have equal parts of every number. Which tokens share ranks and nodes follows from sets that counts do not
 * have. They are inferred (runtime/plan/token_sets.h), and a router that limits nodes (hec_moe.token_nodes) is believed. */
#pragma once
#include "runtime/base/arena.h"

#include <stdint.h>

typedef struct hec_problem hec_problem;   /* runtime/plan/problem.h */
typedef struct hec_lowering hec_lowering; /* emit.h */

typedef struct hec_dispatched hec_dispatched;
hec_dispatched *hec_dispatched_new(const hec_problem *problem,
                                   hec_arena *arena); /* NULL: the problem has no dispatcher */
/* Transfers, and seconds of kernels, of every chunk of the layer. O(ranks * (experts * holders + ranks) * log). */
void hec_dispatched_add(hec_lowering *low, int32_t layer);

/* Of a dispatcher with kernels, one way, the mean of both: the busiest rank's seconds of the layer in one piece; what no
 * token shortens. */
double hec_dispatched_s(hec_lowering *low, int32_t layer, double *latency_s);
