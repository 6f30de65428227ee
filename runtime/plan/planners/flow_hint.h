/* How tokens of overloaded ranks would flow to ranks with room if staying on a node were three times as cheap: the hint
 * of TAOT. Apart from the policy, so that it can be tested exactly. */
#pragma once
#include "runtime/base/arena.h"

typedef struct {
  int32_t n_ranks, steps;
  const int32_t *node; /* [n_ranks] in: node of the rank, ascending from 0 */
  double *u, *v;       /* [n_ranks] result: scalings of givers and takers */
  double *sum;         /* scratch [n_ranks] by node */
} hec_flow_hint;

hec_flow_hint hec_flow_hint_new(hec_arena *arena, int32_t n_ranks, int32_t steps);
/* give, take: [n_ranks] tokens, none negative, some of both positive. Takes are scaled to the sum of what is given. */
void hec_flow_hint_make(hec_flow_hint *hint, const int64_t *give, const int64_t *take);
double hec_flow_hint_of(const hec_flow_hint *hint, int32_t from, int32_t to); /* tokens */
