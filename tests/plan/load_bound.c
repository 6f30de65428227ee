/* Insertion into the list of a rank's largest experts, rank by rank. O(experts * (ranks + extra)). */
#include "tests/plan/load_bound.h"

#include <stdlib.h>

static uint64_t sum_of(const uint64_t *load, int32_t n) {
  uint64_t sum = 0;
  for (int32_t e = 0; e < n; e++)
    sum += load[e];
  return sum;
}

double hec_load_mean(const uint64_t *load, int32_t n_experts, int32_t n_ranks) {
  return (double)sum_of(load, n_experts) / n_ranks;
}

typedef struct {
  uint64_t load;
  int32_t rank;
} rank_load;

static int fuller(const void *a, const void *b) {
  const rank_load *x = a, *y = b;
  return x->load != y->load ? (x->load < y->load) - (x->load > y->load) : x->rank - y->rank;
}

double hec_load_bound(const uint64_t *load, const int32_t *home, int32_t n_experts, int32_t n_ranks, int32_t extra,
                      hec_arena *arena) {
  hec_arena_mark mark = hec_arena_save(arena);
  int32_t n_top = extra < n_experts ? extra : n_experts;
  rank_load *ranks = HEC_NEW(arena, rank_load, n_ranks);
  uint64_t *top = HEC_NEW(arena, uint64_t, n_top + 1); /* [n_top] descending, and one of slack */
  for (int32_t r = 0; r < n_ranks; r++)
    ranks[r].rank = r;
  for (int32_t e = 0; e < n_experts; e++)
    ranks[home[e]].load += load[e];
  qsort(ranks, (size_t)n_ranks, sizeof *ranks, fuller);
  double bound = hec_load_mean(load, n_experts, n_ranks);
  uint64_t inside = 0;
  for (int32_t p = 0; p < n_ranks; p++) {
    inside += ranks[p].load;
    for (int32_t e = 0; e < n_experts; e++) {
      if (home[e] != ranks[p].rank)
        continue;
      int32_t at = n_top;
      for (; at > 0 && load[e] > top[at - 1]; at--)
        top[at] = top[at - 1];
      top[at] = at < n_top ? load[e] : 0;
      top[n_top] = 0;
    }
    uint64_t max = (uint64_t)(n_ranks - p - 1) * sum_of(top, n_top);
    double kept = inside > max ? (double)(inside - max) / (p + 1) : 0;
    bound = kept > bound ? kept : bound;
  }
  hec_arena_rewind(arena, mark);
  return bound;
}
