/* Sinkhorn's scaling (LoongForge TAOT, arXiv 2608.03676; reference policies.md 4.9). M = exp(-W / 3) with W = 1 inside
 * a node and 3 across. T = diag(u) M diag(v), in `steps` (published: 50) of
 *
 *   u = give / (M v),   v = take / (M' u)
 *
 * M has two values only. So M v is its smaller value times the sum of v and the difference times the node's sum:
 * O(ranks) per step, not O(ranks^2). Ranks that give or take nothing have 0. */
#include "runtime/plan/planners/flow_hint.h"

#include <string.h>

static const double inside = 0.71653131057378925043; /* exp(-1/3) */
static const double across = 0.36787944117144232160; /* exp(-1) */

hec_flow_hint hec_flow_hint_new(hec_arena *arena, int32_t n_ranks, int32_t steps) {
  return (hec_flow_hint){
      .n_ranks = n_ranks,
      .steps = steps,
      .u = HEC_NEW(arena, double, n_ranks),
      .v = HEC_NEW(arena, double, n_ranks),
      .sum = HEC_NEW(arena, double, n_ranks),
  };
}

/* to = wanted * scale / (M from), 0 where nothing is wanted. */
static void step(hec_flow_hint *hint, const double *from, const int64_t *wanted, double scale, double *to) {
  double all = 0;
  memset(hint->sum, 0, (size_t)hint->n_ranks * sizeof *hint->sum);
  for (int32_t r = 0; r < hint->n_ranks; r++) {
    all += from[r];
    hint->sum[hint->node[r]] += from[r];
  }
  for (int32_t r = 0; r < hint->n_ranks; r++)
    to[r] =
        wanted[r] > 0 ? (double)wanted[r] * scale / (across * all + (inside - across) * hint->sum[hint->node[r]]) : 0;
}

void hec_flow_hint_make(hec_flow_hint *hint, const int64_t *give, const int64_t *take) {
  double given = 0, taken = 0;
  for (int32_t r = 0; r < hint->n_ranks; r++) {
    given += (double)give[r];
    taken += (double)take[r];
    hint->v[r] = take[r] > 0;
  }
  for (int32_t i = 0; i < hint->steps; i++) {
    step(hint, hint->v, give, 1, hint->u);
    step(hint, hint->u, take, given / taken, hint->v);
  }
}

double hec_flow_hint_of(const hec_flow_hint *hint, int32_t from, int32_t to) {
  return hint->u[from] * (hint->node[from] == hint->node[to] ? inside : across) * hint->v[to];
}
