/* MoETuner's second integer programme (arXiv 2502.06643; reference policies.md 2): bijections y_l of groups to ranks,
 *
 *   minimise  sum over l of  max over groups a, b of  flow_l[a][b] * seconds[y_l(a)][y_{l+1}(b)]
 *
 * a chain of quadratic assignments. With the layers beside it fixed, a layer is a linear assignment if the maximum is
 * replaced by the sum. That is solved exactly: first each layer after the one before it alone, then forward and
 * backward with both neighbours. A solution is kept where the maximum falls, or stays and the sum falls, until a sweep
 * changes nothing. */
#include "runtime/plan/planners/chain.h"

#include <stdbool.h>
#include <string.h>

enum { SWEEPS_MAX = 50 };

hec_chain hec_chain_new(hec_arena *arena, int32_t n_layers, int32_t n) {
  size_t pairs = (size_t)n * (size_t)n;
  return (hec_chain){
      .n_layers = n_layers,
      .n = n,
      .seconds = HEC_NEW(arena, double, pairs),
      .flow = HEC_NEW(arena, uint64_t, (size_t)(n_layers - 1) * pairs),
      .rank = HEC_NEW(arena, int32_t, (size_t)n_layers * (size_t)n),
      .start = HEC_NEW(arena, int32_t, (size_t)n_layers * (size_t)n),
      .assign = hec_assignment_new(arena, n),
  };
}

typedef struct {
  double max, all;
} times;

/* Between layer l and the next, groups on ranks `from` and `to`. */
static times between(const hec_chain *c, int32_t l, const int32_t *from, const int32_t *to) {
  times t = {0};
  const uint64_t *flow = c->flow + (size_t)l * (size_t)c->n * (size_t)c->n;
  for (int32_t a = 0; a < c->n; a++)
    for (int32_t b = 0; b < c->n; b++) {
      double s = (double)flow[a * c->n + b] * c->seconds[from[a] * c->n + to[b]];
      t.max = s > t.max ? s : t.max;
      t.all += s;
    }
  return t;
}

/* Of a layer on ranks `own`, with both layers beside it. */
static times around(const hec_chain *c, int32_t l, const int32_t *own) {
  const int32_t *rank = c->rank + (ptrdiff_t)l * c->n;
  times before = l > 0 ? between(c, l - 1, rank - c->n, own) : (times){0};
  times after = l + 1 < c->n_layers ? between(c, l, own, rank + c->n) : (times){0};
  return (times){before.max + after.max, before.all + after.all};
}

double hec_chain_seconds(const hec_chain *c, double *all) {
  double max = 0;
  *all = 0;
  for (int32_t l = 0; l + 1 < c->n_layers; l++) {
    times t = between(c, l, c->rank + (ptrdiff_t)l * c->n, c->rank + (ptrdiff_t)(l + 1) * c->n);
    max += t.max;
    *all += t.all;
  }
  return max;
}

/* cost[a][r] = seconds of all tokens into and, looking ahead, out of group a if it stands on rank r. */
static void fill_costs(hec_chain *c, int32_t l, bool ahead) {
  int32_t n = c->n;
  size_t pairs = (size_t)n * (size_t)n;
  const uint64_t *in = c->flow + (size_t)(l > 0 ? l - 1 : 0) * pairs;
  const uint64_t *out = c->flow + (size_t)(l + 1 < c->n_layers ? l : 0) * pairs;
  const int32_t *rank = c->rank + (ptrdiff_t)l * n;
  for (int32_t a = 0; a < n; a++)
    for (int32_t r = 0; r < n; r++) {
      double sum = 0;
      for (int32_t b = 0; b < n && l > 0; b++)
        sum += (double)in[b * n + a] * c->seconds[rank[b - n] * n + r];
      for (int32_t b = 0; b < n && ahead && l + 1 < c->n_layers; b++)
        sum += (double)out[a * n + b] * c->seconds[r * n + rank[b + n]];
      c->assign.cost[a * n + r] = sum;
    }
  c->units += 3 * (uint64_t)n * (uint64_t)n * (uint64_t)n;
}

static bool improve(hec_chain *c, int32_t l) {
  int32_t *own = c->rank + (ptrdiff_t)l * c->n;
  fill_costs(c, l, true);
  (void)hec_assignment_make(&c->assign);
  times was = around(c, l, own), now = around(c, l, c->assign.column);
  if (now.max > was.max || (now.max == was.max && now.all >= was.all))
    return false;
  memcpy(own, c->assign.column, (size_t)c->n * sizeof *own);
  return true;
}

/* Each layer after the one before it alone; kept if that is no worse than the start. */
static void follow(hec_chain *c) {
  size_t n = (size_t)c->n, all = (size_t)c->n_layers * n;
  double sum, started_sum, started = hec_chain_seconds(c, &started_sum);
  memcpy(c->start, c->rank, all * sizeof *c->start);
  for (int32_t l = 1; l < c->n_layers; l++) {
    fill_costs(c, l, false);
    (void)hec_assignment_make(&c->assign);
    memcpy(c->rank + (size_t)l * n, c->assign.column, n * sizeof *c->rank);
  }
  double now = hec_chain_seconds(c, &sum);
  if (now > started || (now == started && sum >= started_sum))
    memcpy(c->rank, c->start, all * sizeof *c->rank);
}

void hec_chain_make(hec_chain *c) {
  bool changed = c->n_layers > 1;
  c->units = 0;
  follow(c);
  for (int32_t sweep = 0; sweep < SWEEPS_MAX && changed; sweep++) {
    changed = false;
    for (int32_t l = 1; l < c->n_layers; l++)
      changed |= improve(c, l);
    for (int32_t l = c->n_layers - 2; l >= 0; l--)
      changed |= improve(c, l);
  }
}
