/* Routing: the dispatch rule applied to every (source, expert) of a layer.
 *
 *   x[s][e][d] >= 0 integers, sum over d of x[s][e][d] = load[s][e], x > 0 only where d holds e
 *   pair[s][d] = sum over e of x,   tokens of (d, e) = sum over s of x
 *
 * Hot: called for every layer of every simulated micro-batch. Holders are listed once per layer. An expert with a
 * single holder (most of them) needs no rule, nor does one that all ranks hold where own ranks come first. Sources run
 * outside so that a row of `pair` stays in cache. A rule sees the holders of the source's group alone (plan.width).
 * O(ranks * experts + parts). */
#include "runtime/plan/dispatch/dispatch.h"
#include "runtime/plan/problem.h"

#include <string.h>

hec_routing hec_routing_new(hec_arena *arena, const hec_problem *problem) {
  size_t ranks = (size_t)problem->n_ranks, experts = (size_t)problem->n_experts;
  return (hec_routing){
      .n_ranks = problem->n_ranks,
      .n_experts = problem->n_experts,
      .pair = HEC_NEW(arena, uint32_t, ranks * ranks),
      .rank_tokens = HEC_NEW(arena, uint64_t, ranks),
      .expert_at = HEC_NEW(arena, int32_t, ranks + 1),
      .expert = HEC_NEW(arena, int32_t, ranks * experts + 1),
      .tokens = HEC_NEW(arena, uint32_t, ranks * experts + 1),
      .cell = HEC_NEW(arena, uint32_t, ranks * experts),
      .single_at = HEC_NEW(arena, int32_t, ranks + 1),
      .single = HEC_NEW(arena, int32_t, experts),
      .single_rank = HEC_NEW(arena, int32_t, experts),
      .stays = HEC_NEW(arena, bool, experts),
      .total = HEC_NEW(arena, uint32_t, experts),
      .holder_at = HEC_NEW(arena, int32_t, experts + 1),
      .holders = HEC_NEW(arena, int32_t, (ranks + 1) * experts),
      .share = HEC_NEW(arena, uint32_t, (ranks + 1) * experts),
  };
}

/* Writes the holders of every expert of the layer: CSR holder_at, holders. */
void hec_routing_hold(hec_routing *routing, const hec_plan *plan, int32_t layer) {
  routing->holder_at[0] = 0;
  for (int32_t e = 0; e < routing->n_experts; e++) {
    int32_t at = routing->holder_at[e];
    routing->holder_at[e + 1] = at + hec_plan_holders(plan, layer, e, routing->holders + at);
  }
}

/* From now on the row's holders are those of the source's group. */
static void narrow(hec_dispatch_row *row, int32_t source) {
  int32_t width = row->plan->width, first = source / width * width;
  if (width == row->plan->n_ranks)
    return;
  int32_t begin = hec_dispatch_lower(row, first), end = hec_dispatch_lower(row, first + width);
  HEC_ASSERT(begin < end); /* every group keeps every expert */
  row->holders += begin;
  row->n_holders = end - begin;
}

/* The rule's parts of one (source, expert) go to the source's row of pairs and to the experts' cells. */
static void add_parts(hec_routing *routing, const hec_dispatch *rule, const hec_dispatch_row *row, int32_t source,
                      uint32_t n) {
  uint32_t *share = routing->share, *pair = routing->pair + (size_t)source * (size_t)routing->n_ranks;
  if (row->n_holders == 1)
    share[0] = n;
  else
    rule->split(row, source, n, share);
  for (int32_t j = 0; j < row->n_holders; j++) {
    if (share[j] == 0)
      continue;
    pair[row->holders[j]] += share[j];
    routing->cell[(size_t)row->holders[j] * (size_t)routing->n_experts + (size_t)row->expert] += share[j];
    share[j] = 0;
  }
}

static bool has_one_holder(const hec_routing *routing, int32_t expert) {
  return routing->holder_at[expert + 1] - routing->holder_at[expert] == 1;
}

/* Sorts the experts by their only holder (counting sort, ascending); those with several go to the end, ascending. */
static void sort_singles(hec_routing *routing) {
  int32_t *at = routing->single_at, n_ranks = routing->n_ranks, n_experts = routing->n_experts;
  memset(at, 0, (size_t)(n_ranks + 1) * sizeof *at);
  for (int32_t e = 0; e < n_experts; e++)
    if (has_one_holder(routing, e))
      at[routing->holders[routing->holder_at[e]]]++;
  for (int32_t d = 0; d < n_ranks; d++)
    at[d + 1] += at[d]; /* the end of d's run; filling from the back turns it into its beginning */
  int32_t several = n_experts;
  for (int32_t e = n_experts - 1; e >= 0; e--)
    routing->single[has_one_holder(routing, e) ? --at[routing->holders[routing->holder_at[e]]] : --several] = e;
  for (int32_t i = 0; i < several; i++)
    routing->single_rank[i] = routing->holders[routing->holder_at[routing->single[i]]];
}

/* Which of the experts with several holders stay on every source: rank s stands at place s of the holders. */
static void mark_staying(hec_routing *routing, const hec_dispatch *rule) {
  for (int32_t i = routing->single_at[routing->n_ranks]; i < routing->n_experts; i++) {
    int32_t e = routing->single[i], at = routing->holder_at[e];
    bool everywhere = rule->own_first && routing->holder_at[e + 1] - at == routing->n_ranks;
    for (int32_t r = 0; everywhere && r < routing->n_ranks; r++)
      everywhere = routing->holders[at + r] == r;
    routing->stays[e] = everywhere;
  }
}

/* Experts with one holder: no rule to ask, and sums that stay in registers. Returns the source's assignments. */
static uint64_t route_singles(hec_routing *routing, int32_t source, const uint32_t *count) {
  uint32_t *pair = routing->pair + (size_t)source * (size_t)routing->n_ranks;
  int32_t n_singles = routing->single_at[routing->n_ranks];
  uint64_t sent = 0;
  memset(pair, 0, (size_t)routing->n_ranks * sizeof *pair);
  for (int32_t i = 0; i < n_singles; i++)
    pair[routing->single_rank[i]] += count[routing->single[i]];
  for (int32_t e = 0; e < routing->n_experts; e++) {
    routing->total[e] += count[e];
    sent += count[e];
  }
  return sent;
}

/* Experts with several holders. */
static void route_others(hec_routing *routing, const hec_dispatch *rule, hec_dispatch_row *row, int32_t source,
                         const uint32_t *count) {
  uint32_t kept = 0;
  for (int32_t i = routing->single_at[routing->n_ranks]; i < routing->n_experts; i++) {
    int32_t e = routing->single[i], at = routing->holder_at[e];
    if (routing->stays[e]) {
      kept += count[e];
      continue;
    }
    row->expert = e;
    row->holders = routing->holders + at;
    row->n_holders = routing->holder_at[e + 1] - at;
    if (count[e] == 0)
      continue;
    narrow(row, source);
    add_parts(routing, rule, row, source, count[e]);
  }
  routing->pair[(size_t)source * (size_t)routing->n_ranks + (size_t)source] += kept;
}

static void put(hec_routing *routing, int32_t *filled, int32_t expert, uint32_t tokens) {
  routing->expert[*filled] = expert;
  routing->tokens[*filled] = tokens;
  *filled += tokens > 0; /* one without tokens is written over */
}

/* The experts of one rank, ascending: its own singles merged with the others. Of these a staying one has what the rank
 * itself sends (`count`). The cells of the rest are zeroed again. */
static void collect_rank(hec_routing *routing, int32_t rank, const uint32_t *count, int32_t *filled) {
  const int32_t *single = routing->single;
  uint32_t *cell = routing->cell + (size_t)rank * (size_t)routing->n_experts;
  int32_t own = routing->single_at[rank], end = routing->single_at[rank + 1];
  for (int32_t i = routing->single_at[routing->n_ranks]; i < routing->n_experts; i++) {
    int32_t e = single[i];
    uint32_t tokens = routing->stays[e] ? count[e] : cell[e];
    for (; own < end && single[own] < e; own++)
      put(routing, filled, single[own], routing->total[single[own]]);
    put(routing, filled, e, tokens);
    cell[e] = 0;
  }
  for (; own < end; own++)
    put(routing, filled, single[own], routing->total[single[own]]);
}

/* Fills the CSR of experts per rank; returns all assignments. */
static uint64_t collect(hec_routing *routing, const hec_load *load, int32_t layer) {
  uint64_t all = 0;
  int32_t filled = 0;
  for (int32_t d = 0; d < routing->n_ranks; d++) {
    routing->expert_at[d] = filled;
    collect_rank(routing, d, hec_load_row(load, layer, d), &filled);
    uint64_t total = 0;
    for (int32_t i = routing->expert_at[d]; i < filled; i++)
      total += routing->tokens[i];
    routing->rank_tokens[d] = total;
    all += total;
  }
  routing->expert_at[routing->n_ranks] = filled;
  return all;
}

void hec_routing_make(hec_routing *routing, const hec_dispatch *rule, const hec_problem *problem, const hec_plan *plan,
                      const hec_load *load, int32_t layer) {
  HEC_ASSERT(load->n_sources == routing->n_ranks && load->n_experts == routing->n_experts);
  hec_dispatch_row row = {.problem = problem, .plan = plan, .layer = layer};
  hec_routing_hold(routing, plan, layer);
  sort_singles(routing);
  mark_staying(routing, rule);
  memset(routing->total, 0, (size_t)routing->n_experts * sizeof *routing->total);
  uint64_t wanted = 0;
  for (int32_t s = 0; s < routing->n_ranks; s++) {
    const uint32_t *count = hec_load_row(load, layer, s);
    uint64_t sent = route_singles(routing, s, count);
    HEC_ASSERT(sent <= UINT32_MAX); /* a source's assignments fit a pair */
    route_others(routing, rule, &row, s, count);
    wanted += sent;
  }
  HEC_ASSERT(collect(routing, load, layer) ==
             wanted); /* every assignment exactly once; also that no 32 bits ran over */
}

/* The rule's parts of the row: routing->share [row->n_holders]. */
static void share_among(hec_routing *routing, const hec_dispatch *rule, hec_dispatch_row *row, int32_t source,
                        uint32_t n) {
  narrow(row, source);
  if (row->n_holders == 1)
    routing->share[0] = n;
  else
    rule->split(row, source, n, routing->share);
}

/* The same among the holders that are listed. */
static void share_out(hec_routing *routing, const hec_dispatch *rule, hec_dispatch_row *row, int32_t source,
                      uint32_t n) {
  row->holders = routing->holders + routing->holder_at[row->expert];
  row->n_holders = routing->holder_at[row->expert + 1] - routing->holder_at[row->expert];
  share_among(routing, rule, row, source, n);
}

/* The shares that are not zero, those of several slots of a rank as one; they become zero again. */
static int32_t take_parts(hec_routing *routing, const hec_dispatch_row *row, int32_t *ranks, uint32_t *tokens) {
  int32_t parts = 0;
  for (int32_t j = 0; j < row->n_holders; j++) {
    if (routing->share[j] > 0 && parts > 0 && ranks[parts - 1] == row->holders[j]) {
      tokens[parts - 1] += routing->share[j];
    } else if (routing->share[j] > 0) {
      ranks[parts] = row->holders[j];
      tokens[parts++] = routing->share[j];
    }
    routing->share[j] = 0;
  }
  return parts;
}

static int32_t one_part(const hec_problem *problem, int32_t holder, int32_t source, uint32_t n, int32_t *ranks,
                        uint32_t *tokens) {
  ranks[0] = problem->esp > 1 ? holder + source % problem->esp : holder;
  tokens[0] = n;
  return 1;
}

int32_t hec_routing_split(hec_routing *routing, const hec_dispatch *rule, const hec_problem *problem,
                          const hec_plan *plan, const hec_load *load, int32_t layer, int32_t source, int32_t expert,
                          int32_t *ranks, uint32_t *tokens) {
  uint32_t n = hec_load_row(load, layer, source)[expert];
  if (n == 0)
    return 0;
  hec_dispatch_row row = {
      .problem = problem, .plan = plan, .layer = layer, .expert = expert, .holders = routing->holders};
  row.n_holders = hec_plan_holders(plan, layer, expert, routing->holders);
  if (row.n_holders == 1)
    return one_part(problem, row.holders[0], source, n, ranks, tokens);
  HEC_ASSERT(problem->esp == 1);
  share_among(routing, rule, &row, source, n);
  return take_parts(routing, &row, ranks, tokens);
}

int32_t hec_routing_split_again(hec_routing *routing, const hec_dispatch *rule, const hec_problem *problem,
                                const hec_plan *plan, const hec_load *load, int32_t layer, int32_t source,
                                int32_t expert, int32_t *ranks, uint32_t *tokens) {
  uint32_t n = hec_load_row(load, layer, source)[expert];
  if (n == 0)
    return 0;
  if (has_one_holder(routing, expert))
    return one_part(problem, routing->holders[routing->holder_at[expert]], source, n, ranks, tokens);
  HEC_ASSERT(problem->esp == 1);
  hec_dispatch_row row = {.problem = problem, .plan = plan, .layer = layer, .expert = expert};
  share_out(routing, rule, &row, source, n);
  return take_parts(routing, &row, ranks, tokens);
}

void hec_routing_send(hec_routing *routing, const hec_dispatch *rule, const hec_problem *problem, const hec_plan *plan,
                      int32_t layer, const uint32_t *counts, int32_t source, uint32_t *tokens) {
  hec_dispatch_row row = {.problem = problem, .plan = plan, .layer = layer};
  HEC_ASSERT(problem->esp == 1);
  counts += (size_t)source * (size_t)plan->n_experts;
  for (int32_t e = 0; e < plan->n_experts; e++, tokens += plan->n_ranks) {
    if (counts[e] == 0)
      continue;
    if (has_one_holder(routing, e)) {
      tokens[routing->holders[routing->holder_at[e]]] = counts[e];
      continue;
    }
    row.expert = e;
    share_out(routing, rule, &row, source, counts[e]);
    for (int32_t j = 0; j < row.n_holders; j++) {
      tokens[row.holders[j]] += routing->share[j];
      routing->share[j] = 0;
    }
  }
}

/* Whether all sources that hold the row's expert keep their assignments of it. */
static bool keeps_own(const hec_dispatch *rule, const hec_dispatch_row *row) {
  const hec_plan *plan = row->plan;
  if (rule->own_first || !rule->own_unspread)
    return rule->own_first;
  const int32_t *at = plan->quota_at + (size_t)row->layer * (size_t)(plan->n_experts + 1) + row->expert;
  return at[0] == at[1];
}

/* What the rank gets of the source's n assignments of the row's expert, which it holds. */
static uint32_t received(hec_routing *routing, const hec_dispatch *rule, hec_dispatch_row *row, int32_t source,
                         int32_t rank, uint32_t n) {
  uint32_t tokens = 0;
  share_out(routing, rule, row, source, n);
  for (int32_t j = hec_dispatch_lower(row, rank); j < row->n_holders && row->holders[j] == rank; j++)
    tokens += routing->share[j];
  memset(routing->share, 0, (size_t)row->n_holders * sizeof *routing->share);
  return tokens;
}

void hec_routing_receive(hec_routing *routing, const hec_dispatch *rule, const hec_problem *problem,
                         const hec_plan *plan, int32_t layer, const uint32_t *counts, int32_t rank, uint32_t *tokens) {
  hec_dispatch_row row = {.problem = problem, .plan = plan, .layer = layer};
  size_t experts = (size_t)plan->n_experts;
  int32_t first = rank / plan->width * plan->width, end = first + plan->width;
  HEC_ASSERT(problem->esp == 1);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    const hec_dispatch_row all = {.holders = routing->holders + routing->holder_at[e],
                                  .n_holders = routing->holder_at[e + 1] - routing->holder_at[e]};
    int32_t own_place = hec_dispatch_lower(&all, rank), place = hec_dispatch_lower(&all, first), at = 0;
    if (own_place == all.n_holders || all.holders[own_place] != rank)
      continue;
    row.expert = e;
    bool own = keeps_own(rule, &row);
    for (int32_t s = first; s < end; s++) {
      size_t cell = (size_t)s * experts + (size_t)e;
      uint32_t n = 0;
      while (place < all.n_holders && all.holders[place] < s)
        place++;
      if (counts[cell] == 0 || (own && s != rank && place < all.n_holders && all.holders[place] == s))
        continue;
      if (!rule->part || !rule->part(&row, s, rank, &at, &n))
        n = received(routing, rule, &row, s, rank, counts[cell]);
      tokens[cell] += n;
    }
  }
}

void hec_routing_shard(hec_routing *routing, const hec_problem *problem) {
  int32_t esp = problem->esp, n_ranks = routing->n_ranks;
  for (int32_t s = 0; s < n_ranks; s++)
    for (int32_t home = 0; home < n_ranks; home += esp) {
      uint32_t *pair = routing->pair + (size_t)s * (size_t)n_ranks + home, sent = pair[0];
      pair[0] = 0;
      pair[s % esp] = sent;
    }
  /* The last group first: its lists, once for each of its ranks, end up behind all others. */
  int32_t end = routing->expert_at[n_ranks] * esp;
  routing->expert_at[n_ranks] = end;
  for (int32_t home = n_ranks - esp; home >= 0; home -= esp) {
    int32_t at = routing->expert_at[home], n = end / esp - at;
    for (int32_t r = home + esp - 1; r >= home; r--) {
      end -= n;
      memmove(routing->expert + end, routing->expert + at, (size_t)n * sizeof *routing->expert);
      memmove(routing->tokens + end, routing->tokens + at, (size_t)n * sizeof *routing->tokens);
      routing->expert_at[r] = end;
      routing->rank_tokens[r] = routing->rank_tokens[home];
    }
  }
}

double hec_routing_overload(const hec_routing *routing) {
  uint64_t max = 0, all = 0;
  for (int32_t d = 0; d < routing->n_ranks; d++) {
    max = routing->rank_tokens[d] > max ? routing->rank_tokens[d] : max;
    all += routing->rank_tokens[d];
  }
  return all == 0 ? 1.0 : (double)max * routing->n_ranks / (double)all;
}
