/* The degree of a layer in chunks: into how many chunks r its tokens are cut. So the experts of one chunk are computed
 * while others travel. All dispatches, then all combines on one lane, experts on the other. For chunks that are alike,
 * of a seconds an all-to-all and x seconds of experts, the layer takes
 *
 *   t(r) = max(2 r a, 2 a + r x)          2 r all-to-alls in a row; or the first, all experts, the last
 *
 * exactly. With expert-sharding groups (problem.esp) a holds half of a chunk's AllGather and ReduceScatter, which stand in
 * line with its two all-to-alls. Of a = alpha + n beta / r with alpha = 0 it never grows with r: t(r) = max(2 n beta, 2 n beta / r + X) <= t(1).
 *
 * PipeMoE (INFOCOM 2023, doi 10.1109/INFOCOM53939.2023.10228874) as FSMoE (arXiv:2501.10714) has it: its cases 2 and 3
 * without intra-node collectives. There is one r for forward and backward, enumerated over the powers of two that its
 * code uses. */
#pragma once
#include "runtime/base/arena.h"

#include <stdbool.h>

typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */

enum { HEC_N_DEGREES = 4 };
extern const int32_t hec_degrees[HEC_N_DEGREES]; /* 1, 2, 4, 8 */

/* Seconds of one chunk. */
typedef struct {
  double a2a_s, experts_s;
} hec_chunk_time;

double hec_degree_s(int32_t degree, hec_chunk_time chunk); /* t */

/* forward, backward: [HEC_N_DEGREES] chunks at each of hec_degrees; backward NULL: there is none. The degree whose t, of both
 * together, is least; the lower of equals. */
int32_t hec_degree_best(const hec_chunk_time *forward, const hec_chunk_time *backward);

/* A chunk at that degree where every expert gets as many tokens: by the cost laws, on the slowest device. Scratch comes
 * from the arena and goes back to it. */
hec_chunk_time hec_degree_balanced(const hec_problem *problem, int32_t degree, bool backward, hec_arena *arena);
/* The best degree on balanced loads, as a planner before training has it. */
int32_t hec_degree_of(const hec_problem *problem, hec_arena *arena);
