/* Shortest augmenting paths with potentials (Kuhn, Munkres; Jonker and Volgenant), O(n^3): rows one by one, each by
 * the cheapest alternating path to a free column. Costs are cost - u - v >= 0, with equality on the matching. */
#include "runtime/plan/planners/assignment.h"

#include <string.h>

hec_assignment hec_assignment_new(hec_arena *arena, int32_t n) {
  return (hec_assignment){
      .n = n,
      .cost = HEC_NEW(arena, double, (size_t)n *(size_t)n),
      .column = HEC_NEW(arena, int32_t, n),
      .u = HEC_NEW(arena, double, n + 1),
      .v = HEC_NEW(arena, double, n + 1),
      .min = HEC_NEW(arena, double, n + 1),
      .row_of = HEC_NEW(arena, int32_t, n + 1),
      .previous = HEC_NEW(arena, int32_t, n + 1),
      .used = HEC_NEW(arena, uint8_t, n + 1),
  };
}

/* Looks from the row of column j at all columns not yet in the tree. Returns the nearest (ties: the lower), and moves
 * the potentials so that it touches. Column n stands for the row that is being added. */
static int32_t grow(hec_assignment *a, int32_t j) {
  int32_t n = a->n, row = a->row_of[j], nearest = -1;
  a->used[j] = 1;
  for (int32_t k = 0; k < n; k++) {
    if (a->used[k])
      continue;
    double reduced = a->cost[row * n + k] - a->u[row] - a->v[k];
    if (a->previous[k] < 0 || reduced < a->min[k]) {
      a->min[k] = reduced;
      a->previous[k] = j;
    }
    if (nearest < 0 || a->min[k] < a->min[nearest])
      nearest = k;
  }
  double step = a->min[nearest];
  for (int32_t k = 0; k <= n; k++) {
    if (a->used[k]) {
      a->u[a->row_of[k]] += step;
      a->v[k] -= step;
    } else {
      a->min[k] -= step;
    }
  }
  return nearest;
}

double hec_assignment_make(hec_assignment *a) {
  int32_t n = a->n;
  memset(a->u, 0, (size_t)(n + 1) * sizeof *a->u);
  memset(a->v, 0, (size_t)(n + 1) * sizeof *a->v);
  for (int32_t k = 0; k <= n; k++)
    a->row_of[k] = -1;
  for (int32_t row = 0; row < n; row++) {
    memset(a->used, 0, (size_t)(n + 1) * sizeof *a->used);
    for (int32_t k = 0; k <= n; k++) {
      a->previous[k] = -1;
      a->min[k] = 0;
    }
    a->row_of[n] = row;
    int32_t j = n;
    do
      j = grow(a, j);
    while (a->row_of[j] >= 0);
    for (; j != n; j = a->previous[j]) /* back along the path */
      a->row_of[j] = a->row_of[a->previous[j]];
  }
  double sum = 0;
  for (int32_t k = 0; k < n; k++)
    a->column[a->row_of[k]] = k;
  for (int32_t row = 0; row < n; row++)
    sum += a->cost[row * n + a->column[row]];
  return sum;
}
