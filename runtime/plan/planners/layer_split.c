/* Of a layer's end (layer_end.h): whose tokens go to which holders. */
#include "runtime/plan/planners/layer_end.h"

#include "runtime/plan/problem.h"

#include <string.h>

/* A source's node ends before rank `end`. Holders first .. last-1 of those listed are on it. */
typedef struct {
  int32_t end, first, last;
} near;

/* From one node to that of a later source. */
static near near_of(const hec_layer_end *end, int32_t n, int32_t source, near before) {
  int32_t node = hec_problem_node(end->problem, source);
  int32_t node_begin = node * end->problem->cluster->devices_per_node;
  near now = {.end = hec_problem_node_end(end->problem, node), .first = before.last};
  while (now.first < n && end->holder[now.first] < node_begin)
    now.first++;
  for (now.last = now.first; now.last < n && end->holder[now.last] < now.end;)
    now.last++;
  return now;
}

typedef struct {
  int32_t first, last, turn;
} spread;

/* hec_even_share of n to each of the listed holders first .. last-1. */
static void spread_evenly(const hec_layer_end *end, spread to, uint32_t n, uint32_t *tokens) {
  const int32_t *holder = end->holder + to.first;
  int32_t count = to.last - to.first, at = to.turn % count;
  uint32_t share = n / (uint32_t)count, rest = n - share * (uint32_t)count;
  for (int32_t i = 0; share > 0 && i < count; i++)
    tokens[holder[i]] += share;
  for (uint32_t k = 0; k < rest; k++) {
    tokens[holder[at]]++;
    at = at + 1 < count ? at + 1 : 0;
  }
}

/* To its own rank, else evenly over its node, else evenly over all. */
static void split_plainly(hec_layer_end *end, int32_t expert, int32_t n) {
  uint32_t *tokens = hec_layer_tokens_of(end, expert);
  const uint32_t *counts = hec_layer_counts_of(end, expert);
  const uint8_t *held = hec_layer_held_of(end, expert);
  const size_t bytes = (size_t)end->n_ranks * sizeof *tokens;
  if (n == end->n_ranks) {
    memcpy(tokens, counts, bytes);
    return;
  }
  memset(tokens, 0, bytes);
  if (n == 1) {
    tokens[end->holder[0]] = end->total[expert];
    return;
  }
  near node = {0};
  for (int32_t s = 0; s < end->n_ranks; s++) {
    if (held[s] != HEC_HELD_NOT) {
      tokens[s] += counts[s];
      continue;
    }
    if (counts[s] == 0)
      continue;
    if (s >= node.end)
      node = near_of(end, n, s, node);
    bool any = node.first < node.last;
    spread_evenly(end, (spread){any ? node.first : 0, any ? node.last : n, s}, counts[s], tokens);
  }
}

/* The busiest rank has least; experts on one rank are its fixed load. */
void hec_layer_end_balance(hec_layer_end *end) {
  hec_min_max *m = &end->split;
  int32_t n_places = 0;
  memcpy(m->load, end->load, (size_t)end->n_ranks * sizeof *m->load);
  for (int32_t e = 0; e < end->n_experts; e++) {
    int32_t n = hec_layer_holders(end, e);
    const uint32_t *tokens = hec_layer_tokens_of(end, e);
    m->at[e] = n_places;
    for (int32_t i = 0; n > 1 && i < n; i++) {
      int32_t r = end->holder[i];
      m->rank[n_places] = r;
      m->tokens[n_places++] = tokens[r];
      m->load[r] -= tokens[r];
    }
  }
  m->at[end->n_experts] = n_places;
  if (n_places == 0)
    return;
  hec_min_max_solve(m);
  end->units += m->units;
  for (int32_t e = 0; e < end->n_experts; e++) {
    uint32_t *tokens = hec_layer_tokens_of(end, e);
    for (int32_t i = m->at[e]; i < m->at[e + 1]; i++)
      tokens[m->rank[i]] = (uint32_t)m->tokens[i];
  }
  memcpy(end->load, m->load, (size_t)end->n_ranks * sizeof *m->load);
}

void hec_layer_end_split(hec_layer_end *end) {
  memset(end->load, 0, (size_t)end->n_ranks * sizeof *end->load);
  for (int32_t e = 0; e < end->n_experts; e++) {
    int32_t n = hec_layer_holders(end, e);
    split_plainly(end, e, n);
    const uint32_t *tokens = hec_layer_tokens_of(end, e);
    for (int32_t i = 0; i < n; i++)
      end->load[end->holder[i]] += tokens[end->holder[i]];
  }
  end->units += (uint64_t)end->n_experts * (uint64_t)end->n_ranks / 2;
}

/* Takes what holders first .. last-1 have left for the rest of the source; `to` gets it. */
static inline void give(hec_layer_end *end, int32_t source, int32_t first, int32_t last, uint32_t *to, int32_t stride) {
  const int32_t *holder = end->holder;
  uint64_t *left = end->left;
  uint32_t rest = end->rest[source];
  for (int32_t i = first; rest > 0 && i < last; i++) {
    uint32_t part = rest < left[i] ? rest : (uint32_t)left[i];
    to[(size_t)holder[i] * (size_t)stride] += part;
    left[i] -= part;
    rest -= part;
  }
  end->rest[source] = rest;
}

void hec_layer_trace(hec_layer_end *end, int32_t expert, int32_t n, uint32_t *to) {
  const uint32_t *tokens = hec_layer_tokens_of(end, expert);
  int32_t n_ranks = end->n_ranks;
  memcpy(end->rest, hec_layer_counts_of(end, expert), (size_t)n_ranks * sizeof *end->rest);
  uint32_t *rest = end->rest;
  const int32_t *holder = end->holder;
  uint64_t *left = end->left;
  for (int32_t i = 0; i < n; i++) {
    int32_t rank = holder[i];
    uint32_t own = rest[rank] < tokens[rank] ? rest[rank] : tokens[rank];
    left[i] = tokens[rank] - own;
    rest[rank] -= own;
  }
  near node = {0};
  for (int32_t s = 0; s < n_ranks; s++) {
    if (rest[s] == 0)
      continue;
    if (s >= node.end)
      node = near_of(end, n, s, node);
    while (node.first < node.last && left[node.first] == 0)
      node.first++;
    give(end, s, node.first, node.last, to + s, n_ranks);
  }
  for (int32_t s = 0, from = 0; s < n_ranks; s++) { /* those before `from` have nothing left */
    if (rest[s] == 0)
      continue;
    for (; from < n && left[from] == 0;)
      from++;
    give(end, s, from, n, to + s, n_ranks);
    HEC_ASSERT(rest[s] == 0);
  }
}

bool hec_layer_all_stay(const hec_layer_end *end, int32_t expert) {
  return memcmp(hec_layer_tokens_of(end, expert), hec_layer_counts_of(end, expert),
                (size_t)end->n_ranks * sizeof *end->tokens) == 0;
}

typedef struct {
  int32_t expert, source, n; /* n: holders */
  uint32_t left;
} hec_quota_row;

/* Where the source's tokens went: end->part. Mostly all stay. */
static void add_quotas(const hec_layer_end *end, hec_quota_writer *writer, hec_quota_row row) {
  const uint32_t *part = end->part + row.source;
  if (row.left > 0 && hec_layer_held_of(end, row.expert)[row.source] != HEC_HELD_NOT &&
      part[(size_t)row.source * (size_t)end->n_ranks] == row.left) {
    hec_quota_add(writer, row.expert, (hec_quota){row.source, row.source, row.left});
    return;
  }
  for (int32_t i = 0; row.left > 0 && i < row.n; i++) {
    uint32_t tokens = part[(size_t)end->holder[i] * (size_t)end->n_ranks];
    hec_quota_add(writer, row.expert, (hec_quota){row.source, end->holder[i], tokens});
    row.left -= tokens;
  }
}

void hec_layer_end_quotas(hec_layer_end *end, hec_quota_writer *writer) {
  int32_t n_ranks = end->n_ranks;
  for (int32_t e = 0; e < end->n_experts; e++) {
    int32_t n = hec_layer_holders(end, e);
    if (n == 1 || hec_layer_all_stay(end, e)) /* the rule `group` sends them there */
      continue;
    const uint32_t *tokens = hec_layer_tokens_of(end, e), *counts = hec_layer_counts_of(end, e);
    for (int32_t i = 0; i < n; i++)
      memset(end->part + (size_t)end->holder[i] * (size_t)n_ranks, 0, (size_t)n_ranks * sizeof *end->part);
    hec_layer_trace(end, e, n, end->part);
    for (int32_t i = 0; i < n; i++) {
      int32_t r = end->holder[i];
      end->part[(size_t)r * (size_t)n_ranks + (size_t)r] = counts[r] < tokens[r] ? counts[r] : tokens[r];
    }
    for (int32_t s = 0; s < n_ranks; s++)
      add_quotas(end, writer, (hec_quota_row){e, s, n, counts[s]});
  }
  hec_quota_end(writer);
}
