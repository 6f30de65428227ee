/* Largest loads that no placement can go below; statements, proofs and where they are tight are in the header.
 *
 * `held` by Newton's method on L (Dinkelbach 1967): with L = w(S) / |N(S)|, a flow of all tokens through ranks of
 * capacity L exists, or its minimum cut is a set with a larger ratio and fewer ranks, so at most n_ranks rounds. In whole
 * numbers: demands and capacities are multiplied by |N(S)|. Shortest augmenting paths, breadth first: O(entries^2) steps
 * per round at worst, hardly ever more than a few per expert. */
#include "runtime/plan/bound/bound.h"

#include <stdlib.h>
#include <string.h>

static uint64_t sum_of(const uint64_t *load, int32_t n) {
  uint64_t sum = 0;
  for (int32_t e = 0; e < n; e++)
    sum += load[e];
  return sum;
}

static int descending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x < y) - (x > y);
}

double hec_bound_mean(const uint64_t *load, int32_t n_experts, int32_t n_ranks) {
  return (double)sum_of(load, n_experts) / n_ranks;
}

double hec_bound_whole(const uint64_t *load, int32_t n_experts, int32_t n_ranks, hec_arena *arena) {
  hec_arena_mark mark = hec_arena_save(arena);
  uint64_t *sorted = HEC_NEW(arena, uint64_t, n_experts), max = 0;
  memcpy(sorted, load, (size_t)n_experts * sizeof *load);
  qsort(sorted, (size_t)n_experts, sizeof *sorted, descending);
  for (int32_t last = 0, k = 0; last < n_experts; last += n_ranks, k++) {
    uint64_t together = sum_of(sorted + last - k, k + 1);
    max = together > max ? together : max;
  }
  hec_arena_rewind(arena, mark);
  double mean = hec_bound_mean(load, n_experts, n_ranks);
  return (double)max > mean ? (double)max : mean;
}

/* Slots given one by one to the expert with the most tokens per slot: after each, max w/c is the min possible. */
double hec_bound_slots(const uint64_t *load, int32_t n_experts, int32_t n_ranks, int32_t slots, hec_arena *arena) {
  HEC_ASSERT((int64_t)slots * n_ranks >= n_experts);
  hec_arena_mark mark = hec_arena_save(arena);
  uint64_t *count = HEC_NEW(arena, uint64_t, n_experts), total = sum_of(load, n_experts);
  for (int32_t e = 0; e < n_experts; e++)
    count[e] = 1;
  double bound = (double)total / n_ranks;
  for (int64_t left = (int64_t)slots * n_ranks - n_experts; n_experts > 0; left--) {
    int32_t max = 0;
    for (int32_t e = 1; e < n_experts; e++)
      max = load[e] * count[max] > load[max] * count[e] ? e : max;
    if (load[max] * (uint64_t)n_ranks <= total * count[max])
      break; /* the mean */
    if (left == 0) {
      bound = (double)load[max] / (double)count[max];
      break;
    }
    count[max]++;
  }
  hec_arena_rewind(arena, mark);
  return bound;
}

typedef struct {
  uint64_t load;
  int32_t rank;
} rank_load;

static int fuller(const void *a, const void *b) {
  const rank_load *x = a, *y = b;
  return x->load != y->load ? (x->load < y->load) - (x->load > y->load) : x->rank - y->rank;
}

double hec_bound_extra(const uint64_t *load, const int32_t *home, int32_t n_experts, int32_t n_ranks, int32_t extra,
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
  double bound = hec_bound_mean(load, n_experts, n_ranks);
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

/* ---- Given holders: max-flow ---- */

typedef struct {
  const int32_t *holder_at, *holder;
  int32_t n_experts, n_ranks;
  int64_t *flow;           /* [entries] tokens of the expert on that holder, times the scale */
  int64_t *demand, *spare; /* [n_experts] still to place, [n_ranks] room left; scaled alike */
  int32_t *expert_of;      /* [entries] */
  int32_t *from;           /* [n_ranks] the entry over which the search came to the rank; -1: not yet */
  int32_t *back;           /* [n_experts] the entry over which it came to the expert; -2: not yet, -1: it began there */
  int32_t *queue;          /* [n_experts] */
} net;

/* From one expert, or from all with tokens to place (-1), breadth first: the first rank with room, or -1. In that case
 * what was reached is the cut. */
static int32_t search(net *n, int32_t expert) {
  int32_t head = 0, tail = 0;
  for (int32_t e = 0; e < n->n_experts; e++) {
    bool first = expert < 0 ? n->demand[e] > 0 : e == expert;
    n->back[e] = first ? -1 : -2;
    if (first)
      n->queue[tail++] = e;
  }
  for (int32_t r = 0; r < n->n_ranks; r++)
    n->from[r] = -1;
  while (head < tail) {
    int32_t e = n->queue[head++];
    for (int32_t i = n->holder_at[e]; i < n->holder_at[e + 1]; i++) {
      int32_t rank = n->holder[i];
      if (n->from[rank] >= 0)
        continue;
      n->from[rank] = i;
      if (n->spare[rank] > 0)
        return rank;
      for (int32_t k = 0; k < n->holder_at[n->n_experts]; k++)
        if (n->holder[k] == rank && n->flow[k] > 0 && n->back[n->expert_of[k]] == -2) {
          n->back[n->expert_of[k]] = k;
          n->queue[tail++] = n->expert_of[k];
        }
    }
  }
  return -1;
}

static void augment(net *n, int32_t expert, int32_t rank) {
  int64_t amount = n->demand[expert] < n->spare[rank] ? n->demand[expert] : n->spare[rank];
  for (int32_t e = n->expert_of[n->from[rank]]; n->back[e] >= 0; e = n->expert_of[n->from[n->holder[n->back[e]]]])
    amount = n->flow[n->back[e]] < amount ? n->flow[n->back[e]] : amount;
  n->demand[expert] -= amount;
  n->spare[rank] -= amount;
  for (int32_t r = rank;;) {
    int32_t e = n->expert_of[n->from[r]];
    n->flow[n->from[r]] += amount;
    if (n->back[e] < 0)
      break;
    n->flow[n->back[e]] -= amount;
    r = n->holder[n->back[e]];
  }
}

/* As many tokens as go into ranks of `capacity`: whether all do; if not, the cut stands in back and from. */
static bool place(net *n, const uint64_t *load, int64_t scale, int64_t capacity) {
  bool all = true;
  memset(n->flow, 0, (size_t)n->holder_at[n->n_experts] * sizeof *n->flow);
  for (int32_t r = 0; r < n->n_ranks; r++)
    n->spare[r] = capacity;
  for (int32_t e = 0; e < n->n_experts; e++)
    n->demand[e] = (int64_t)load[e] * scale;
  for (int32_t e = 0; e < n->n_experts; e++)
    for (int32_t rank; n->demand[e] > 0 && (rank = search(n, e)) >= 0;)
      augment(n, e, rank);
  for (int32_t e = 0; e < n->n_experts; e++)
    all = all && n->demand[e] == 0;
  if (!all)
    HEC_ASSERT(search(n, -1) < 0);
  return all;
}

double hec_bound_held(const uint64_t *load, const int32_t *holder_at, const int32_t *holder, int32_t n_experts,
                      int32_t n_ranks, hec_arena *arena) {
  hec_arena_mark mark = hec_arena_save(arena);
  int32_t entries = holder_at[n_experts];
  net n = {.holder_at = holder_at,
           .holder = holder,
           .n_experts = n_experts,
           .n_ranks = n_ranks,
           .flow = HEC_NEW(arena, int64_t, entries),
           .demand = HEC_NEW(arena, int64_t, n_experts),
           .spare = HEC_NEW(arena, int64_t, n_ranks),
           .expert_of = HEC_NEW(arena, int32_t, entries),
           .from = HEC_NEW(arena, int32_t, n_ranks),
           .back = HEC_NEW(arena, int32_t, n_experts),
           .queue = HEC_NEW(arena, int32_t, n_experts)};
  for (int32_t e = 0; e < n_experts; e++)
    for (int32_t i = holder_at[e]; i < holder_at[e + 1]; i++)
      n.expert_of[i] = e;
  int64_t weight = (int64_t)sum_of(load, n_experts), width = n_ranks; /* L = weight / width */
  while (weight > 0 && !place(&n, load, width, weight)) {
    int64_t cut = 0, ranks = 0;
    for (int32_t e = 0; e < n_experts; e++)
      cut += n.back[e] != -2 ? (int64_t)load[e] : 0;
    for (int32_t r = 0; r < n_ranks; r++)
      ranks += n.from[r] >= 0;
    HEC_ASSERT(cut * width > weight * ranks && ranks < width);
    weight = cut;
    width = ranks;
  }
  hec_arena_rewind(arena, mark);
  return (double)weight / (double)width;
}
