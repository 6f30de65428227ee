/* The programme (LPLB, github.com/deepseek-ai/LPLB; MicroMoE, arXiv 2511.16947; reference policies.md 4.3, 4.10).
 * Ranks g have b_g tokens that cannot be moved. Experts e have n_e tokens and the set D_e of their holders.
 *
 *   minimise t   subject to   sum over g in D_e of x[e][g] = n_e,   b_g + sum over e of x[e][g] <= t,   x >= 0
 *
 * It is a flow, so for whole t a feasible x is whole, and by the max-flow min-cut theorem
 *
 *   t* = max over sets U of ranks of (sum of b_g in U + sum of n_e with D_e inside U) / |U|
 *
 * and the best in whole tokens is ceil(t*): rounding costs less than one token.
 *
 * Newton's method on that maximum. t = ceil(mean). Ranks above t push their excess along chains of shared experts,
 *
 *   g -> h   while g computes tokens of an expert that h holds as well
 *
 * to ranks below t: shortest chains first, as blocking flows over levels (Dinic). When no chain is left, U = what can be
 * reached from the ranks above t. All that U computes has its holders inside U. No rank of U is below t and one is
 * above. So t rises to ceil(load of U / |U|), a bound from below; and again, with the flow kept. No rank above t: t is
 * both bound and reached. U only shrinks, so there are at most R values of t.
 *
 * O(R * places * holders) per blocking flow, at most R of them for each t; few in practice (tests/plan/test_min_max.c). */
#include "runtime/plan/planners/min_max.h"

#include "runtime/base/status.h"

#include <string.h>

hec_min_max hec_min_max_new(hec_arena *arena, int32_t n_ranks, int32_t n_experts, int32_t capacity) {
  return (hec_min_max){
      .n_ranks = n_ranks,
      .n_experts = n_experts,
      .capacity = capacity,
      .at = HEC_NEW(arena, int32_t, (size_t)n_experts + 1),
      .rank = HEC_NEW(arena, int32_t, capacity),
      .tokens = HEC_NEW(arena, uint64_t, capacity),
      .load = HEC_NEW(arena, uint64_t, n_ranks),
      .expert = HEC_NEW(arena, int32_t, capacity),
      .place_at = HEC_NEW(arena, int32_t, (size_t)n_ranks + 1),
      .place = HEC_NEW(arena, int32_t, capacity),
      .level = HEC_NEW(arena, int32_t, n_ranks),
      .queue = HEC_NEW(arena, int32_t, n_ranks),
      .path = HEC_NEW(arena, int32_t, n_ranks),
      .arc = HEC_NEW(arena, int32_t, n_ranks),
      .next = HEC_NEW(arena, int32_t, n_ranks),
  };
}

/* Places by rank (counting sort), their experts, and the loads. Returns the sum of the loads. */
static uint64_t start(hec_min_max *m) {
  int32_t *at = m->place_at, n_places = m->at[m->n_experts];
  HEC_ASSERT(n_places <= m->capacity);
  memset(at, 0, ((size_t)m->n_ranks + 1) * sizeof *at);
  for (int32_t e = 0; e < m->n_experts; e++)
    for (int32_t i = m->at[e]; i < m->at[e + 1]; i++) {
      m->expert[i] = e;
      m->load[m->rank[i]] += m->tokens[i];
      at[m->rank[i]]++;
    }
  uint64_t all = 0;
  for (int32_t g = 0; g < m->n_ranks; g++) {
    all += m->load[g];
    at[g + 1] += at[g];
  }
  for (int32_t i = n_places - 1; i >= 0; i--)
    m->place[--at[m->rank[i]]] = i;
  m->units = (uint64_t)n_places + (uint64_t)m->n_ranks;
  return all;
}

/* Adds to the queue, one level further, what rank g can push to; true if some of it is below t. */
static bool look_from(hec_min_max *m, int32_t g, uint64_t t, int32_t *n_queued) {
  bool found = false;
  for (int32_t k = m->place_at[g]; k < m->place_at[g + 1]; k++) {
    int32_t e = m->expert[m->place[k]];
    if (m->tokens[m->place[k]] == 0)
      continue;
    for (int32_t i = m->at[e]; *n_queued < m->n_ranks && i < m->at[e + 1]; i++) {
      int32_t h = m->rank[i];
      if (m->level[h] >= 0)
        continue;
      m->level[h] = m->level[g] + 1;
      m->queue[(*n_queued)++] = h;
      found |= m->load[h] < t;
    }
    m->units += (uint64_t)(m->at[e + 1] - m->at[e]);
  }
  return found;
}

/* Levels from the ranks above t, up to the first level with a rank below t; returns whether there is one. The queue has
 * the ranks reached, *n_queued of them. */
static bool find_levels(hec_min_max *m, uint64_t t, int32_t *n_queued) {
  *n_queued = 0;
  for (int32_t g = 0; g < m->n_ranks; g++) {
    m->level[g] = m->load[g] > t ? 0 : -1;
    if (m->load[g] > t)
      m->queue[(*n_queued)++] = g;
    m->arc[g] = m->place_at[g];
    m->next[g] = -1;
  }
  int32_t last = m->n_ranks; /* level of the first rank below t */
  for (int32_t i = 0; i < *n_queued && m->level[m->queue[i]] < last; i++)
    if (look_from(m, m->queue[i], t, n_queued) && last == m->n_ranks)
      last = m->level[m->queue[i]] + 1;
  return last < m->n_ranks;
}

/* The current arc of rank g, moved on to one that leads a level further: its place in *next. False: none is left. */
static bool find_arc(hec_min_max *m, int32_t g) {
  for (; m->arc[g] < m->place_at[g + 1]; m->arc[g]++, m->next[g] = -1) {
    int32_t place = m->place[m->arc[g]], e = m->expert[place];
    if (m->tokens[place] == 0)
      continue;
    for (m->next[g] = m->next[g] < 0 ? m->at[e] : m->next[g]; m->next[g] < m->at[e + 1]; m->next[g]++) {
      m->units++;
      if (m->level[m->rank[m->next[g]]] == m->level[g] + 1)
        return true;
    }
  }
  return false;
}

static uint64_t min(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* Pushes what fits along the chain path[0..n-1] to `end`, which is below t. */
static void push(hec_min_max *m, int32_t n, int32_t end, uint64_t t) {
  uint64_t amount = min(m->load[m->path[0]] - t, t - m->load[end]);
  for (int32_t i = 0; i < n; i++)
    amount = min(amount, m->tokens[m->place[m->arc[m->path[i]]]]);
  for (int32_t i = 0; i < n; i++) {
    m->tokens[m->place[m->arc[m->path[i]]]] -= amount;
    m->tokens[m->next[m->path[i]]] += amount;
  }
  m->load[m->path[0]] -= amount;
  m->load[end] += amount;
}

/* Empties the rank `from`, above t, along chains of rising levels, as far as they lead. */
static void relieve(hec_min_max *m, int32_t from, uint64_t t) {
  int32_t n = 1;
  m->path[0] = from;
  while (n > 0 && m->load[from] > t) {
    int32_t g = m->path[n - 1];
    if (!find_arc(m, g)) {
      m->level[g] = -1; /* a dead end */
      n--;
      continue;
    }
    int32_t h = m->rank[m->next[g]];
    if (m->load[h] < t) {
      push(m, n, h, t);
      n = 1;
    } else {
      m->path[n++] = h;
    }
  }
}

void hec_min_max_solve(hec_min_max *m) {
  uint64_t all = start(m), ranks = (uint64_t)m->n_ranks, t = (all + ranks - 1) / ranks;
  for (;;) {
    int32_t n_reached;
    if (find_levels(m, t, &n_reached)) {
      for (int32_t g = 0; g < m->n_ranks; g++)
        if (m->load[g] > t)
          relieve(m, g, t);
      continue;
    }
    if (n_reached == 0)
      break;
    uint64_t sum = 0, n = (uint64_t)n_reached;
    for (int32_t i = 0; i < n_reached; i++)
      sum += m->load[m->queue[i]];
    HEC_ASSERT(sum > t * n);
    t = (sum + n - 1) / n;
  }
  m->max = t;
}
