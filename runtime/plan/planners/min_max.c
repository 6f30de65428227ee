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

/* An expert with more holders has them as a set of bits: a search passes 64 of them at a time. */
enum { MANY = 8 };

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
      .n_words = (n_ranks + 63) / 64,
      .holders = HEC_NEW(arena, uint64_t, (size_t)n_experts * (size_t)((n_ranks + 63) / 64)),
      .at_level = HEC_NEW(arena, uint64_t, ((size_t)n_ranks + 1) * (size_t)((n_ranks + 63) / 64)),
  };
}

static bool has_many(const hec_min_max *m, int32_t expert) {
  return m->at[expert + 1] - m->at[expert] > MANY;
}

static uint64_t *holders_of(const hec_min_max *m, int32_t expert) {
  return m->holders + (size_t)expert * (size_t)m->n_words;
}

static uint64_t *ranks_at(const hec_min_max *m, int32_t level) {
  return m->at_level + (size_t)level * (size_t)m->n_words;
}

static void list_holders(hec_min_max *m, int32_t expert) {
  uint64_t *holders = holders_of(m, expert);
  memset(holders, 0, (size_t)m->n_words * sizeof *holders);
  if (m->at[expert + 1] - m->at[expert] == m->n_ranks) { /* all */
    for (int32_t r = 0; r < m->n_ranks; r += 64)
      holders[r / 64] = ~(uint64_t)0 >> (m->n_ranks - r < 64 ? 64 - (m->n_ranks - r) : 0);
    return;
  }
  for (int32_t i = m->at[expert], last = -1; i < m->at[expert + 1]; last = m->rank[i++]) {
    HEC_ASSERT(m->rank[i] > last);
    holders[m->rank[i] / 64] |= (uint64_t)1 << m->rank[i] % 64;
  }
}

/* Places by rank (counting sort), their experts, and the loads. Returns the sum of the loads. */
static uint64_t start(hec_min_max *m) {
  int32_t *at = m->place_at, n_places = m->at[m->n_experts];
  HEC_ASSERT(n_places <= m->capacity);
  memset(at, 0, ((size_t)m->n_ranks + 1) * sizeof *at);
  for (int32_t e = 0; e < m->n_experts; e++) {
    for (int32_t i = m->at[e]; i < m->at[e + 1]; i++) {
      m->expert[i] = e;
      m->load[m->rank[i]] += m->tokens[i];
      at[m->rank[i]]++;
    }
    if (has_many(m, e))
      list_holders(m, e);
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

/* The first n of the queue, which stands by levels, and an empty level behind the last. */
static void list_levels(hec_min_max *m, int32_t n) {
  size_t bytes = (size_t)m->n_words * sizeof *m->at_level;
  for (int32_t i = 0, cleared = -1; i < n; i++) {
    int32_t g = m->queue[i];
    for (; cleared <= m->level[g]; cleared++)
      memset(ranks_at(m, cleared + 1), 0, bytes);
    ranks_at(m, m->level[g])[g / 64] |= (uint64_t)1 << g % 64;
  }
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
  list_levels(m, *n_queued);
  return last < m->n_ranks;
}

/* Members of the set below the one bit of word w. */
static int32_t count_below(const uint64_t *set, int32_t w, uint64_t bit) {
  int32_t n = __builtin_popcountll(set[w] & (bit - 1));
  for (int32_t i = 0; i < w; i++)
    n += __builtin_popcountll(set[i]);
  return n;
}

/* The first place of the expert from `from` on whose rank is of the level; at[e + 1]: none. */
static int32_t find_many(const hec_min_max *m, int32_t e, int32_t from, int32_t level) {
  const uint64_t *holders = holders_of(m, e), *wanted = ranks_at(m, level);
  int32_t w = m->rank[from] / 64;
  uint64_t found = holders[w] & wanted[w] & ~(uint64_t)0 << m->rank[from] % 64;
  while (found == 0 && ++w < m->n_words)
    found = holders[w] & wanted[w];
  return found == 0 ? m->at[e + 1] : m->at[e] + count_below(holders, w, found & -found);
}

static int32_t find_few(const hec_min_max *m, int32_t e, int32_t from, int32_t level) {
  while (from < m->at[e + 1] && m->level[m->rank[from]] != level)
    from++;
  return from;
}

/* The current arc of rank g, moved on to one that leads a level further: its place in *next. False: none is left. */
static bool find_arc(hec_min_max *m, int32_t g) {
  const int32_t level = m->level[g] + 1, end = m->place_at[g + 1];
  int32_t next = m->next[g];
  for (int32_t arc = m->arc[g]; arc < end; arc++, next = -1) {
    int32_t place = m->place[arc], e = m->expert[place];
    if (m->tokens[place] == 0)
      continue;
    int32_t from = next < 0 ? m->at[e] : next;
    if (from < m->at[e + 1])
      next = has_many(m, e) ? find_many(m, e, from, level) : find_few(m, e, from, level);
    m->units += (uint64_t)(next - from) + (next < m->at[e + 1]);
    if (next == m->at[e + 1])
      continue;
    m->arc[g] = arc;
    m->next[g] = next;
    return true;
  }
  m->arc[g] = end;
  m->next[g] = -1;
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
      ranks_at(m, m->level[g])[g / 64] &= ~((uint64_t)1 << g % 64);
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
