/* From loads to domains, from moves to guests and quotas.
 *
 *   total[e] = sum over sources of load[s][e]       load[r] = sum over e at home on r of total[e]
 *   hosts of e: the home with total[e] less its moves, and the rank of each move with the move's tokens
 *   quotas x[s][h] >= 0 with  sum over h of x[s][h] = load[s][e]  and  sum over s of x[s][h] = tokens of host h
 *
 * No published system of these prefers sources of the same node, so no rule here does.
 *
 * In proportion, source by source: floor(n left[h] / L), L = sum of left[h]; the missing ones to the largest
 * remainders. Since n <= L none exceeds left[h], and the last source takes exactly what is left.
 *
 * O(ranks * experts) sums, O(moves + experts + moved experts * ranks * hosts) to write. */
#include "runtime/plan/planners/spill.h"

#include "runtime/plan/problem.h"
#include "runtime/plan/quota.h"

#include <string.h>

__extension__ typedef unsigned __int128 uint128;

/* Fewer assignments than this: a product of two of their counts has 62 bits. */
static const uint64_t exact_max = (uint64_t)1 << 31;

int32_t hec_spill_slots(const hec_policy_run *run, int32_t i) {
  int32_t slots = hec_policy_slots(run, i), homes = hec_problem_share(run->problem);
  if (slots == HEC_AUTO)
    return (int32_t)run->policy->own[i];
  return slots > homes ? slots - homes : 0;
}

/* Quotas of a layer at most: all sources of every expert once. Each move adds at most one (consecutive ranges), or one
 * per source (in proportion, where a moved expert's home has as many). The largest first may leave a source with the
 * home and one move that it does not exhaust. */
static int64_t quotas_max(const hec_problem *p, hec_spill_split split, int64_t moves) {
  int64_t cells = (int64_t)p->n_experts * p->n_ranks;
  bool proportional = split == HEC_SPLIT_PROPORTIONAL || split == HEC_SPLIT_OWN_FIRST;
  return proportional ? cells + p->ep * moves : 2 * cells + moves;
}

static void new_plan_arrays(hec_policy_run *run, hec_spill *spill) {
  const hec_problem *p = run->problem;
  int64_t slots = spill->options.slots < p->n_experts ? spill->options.slots : p->n_experts;
  int64_t moves = slots * p->n_ranks, quotas = quotas_max(p, spill->options.split, moves);
  HEC_ASSERT(moves <= INT32_MAX && quotas <= INT32_MAX);
  spill->move_capacity = (int32_t)moves;
  hec_quota_reserve(&run->plan, run->arena, (int32_t)quotas);
}

void hec_spill_init(hec_policy_run *run, void (*plan)(hec_spill *spill), hec_spill_options options) {
  const hec_problem *p = run->problem;
  hec_arena *arena = run->arena;
  hec_spill *spill = HEC_NEW(arena, hec_spill, 1);
  int32_t ep = p->ep, experts = p->n_experts, max = experts > ep ? experts : ep;
  *spill = (hec_spill){
      .options = options,
      .plan = plan,
      .problem = p,
      .n_experts = experts,
      .load = HEC_NEW(arena, uint64_t, ep),
      .key = HEC_NEW(arena, double, max),
      .order = HEC_NEW(arena, int32_t, experts),
      .rank_order = HEC_NEW(arena, int32_t, ep),
      .used = HEC_NEW(arena, int32_t, ep),
      .a = HEC_NEW(arena, int64_t, ep),
      .b = HEC_NEW(arena, int64_t, ep),
      .left = HEC_NEW(arena, int64_t, experts),
      .all_home_at = HEC_NEW(arena, int32_t, ep + 1),
      .total = HEC_NEW(arena, uint64_t, experts),
      .move_at = HEC_NEW(arena, int32_t, experts + 1),
      .host = HEC_NEW(arena, int32_t, ep),
      .by_rank = HEC_NEW(arena, int32_t, ep),
      .host_left = HEC_NEW(arena, uint64_t, ep),
      .rest = HEC_NEW(arena, int64_t, ep),
      .count = HEC_NEW(arena, uint32_t, ep),
      .part = HEC_NEW(arena, uint32_t, (size_t)ep * (size_t)ep),
  };
  run->state = spill;
  hec_plan_set_contiguous(&run->plan, p);
  new_plan_arrays(run, spill);
  spill->moves = HEC_NEW(arena, hec_spill_move, spill->move_capacity);
  spill->move_of = HEC_NEW(arena, int32_t, spill->move_capacity);
  spill->home = run->plan.home; /* contiguous: alike in every layer */
  for (int32_t e = 0; e < experts; e++)
    spill->all_home_at[spill->home[e] + 1] = e + 1;
}

/* ---- Moves ---- */

static int32_t move_to(const hec_spill *spill, int32_t expert, int32_t rank) {
  for (int32_t i = spill->n_moves - 1; i >= 0 && spill->moves[i].expert == expert; i--)
    if (spill->moves[i].rank == spill->first + rank)
      return i;
  return -1;
}

bool hec_spill_moved(const hec_spill *spill, int32_t expert, int32_t rank) {
  return move_to(spill, expert, rank) >= 0;
}

void hec_spill_add(hec_spill *spill, int32_t expert, int32_t rank, uint64_t tokens) {
  HEC_ASSERT(rank >= 0 && rank < spill->n_ranks && rank != hec_spill_home(spill, expert) && tokens > 0);
  int32_t at = move_to(spill, expert, rank);
  if (at >= 0) {
    spill->moves[at].tokens += tokens;
    return;
  }
  HEC_ASSERT(spill->n_moves < spill->move_capacity);
  spill->moves[spill->n_moves++] = (hec_spill_move){expert, spill->first + rank, tokens};
}

/* One past the last rank of the domain that begins at `rank`. */
static int32_t domain_end(const hec_spill *spill, int32_t rank) {
  const hec_problem *p = spill->problem;
  return spill->options.within_node ? hec_problem_node_end(p, hec_problem_node(p, rank)) : p->n_ranks;
}

static void plan_domains(hec_spill *spill) {
  for (int32_t first = 0, end; first < spill->problem->n_ranks; first = end) {
    end = domain_end(spill, first);
    spill->n_ranks = end - first;
    spill->first = first;
    spill->home_at = spill->all_home_at + first;
    spill->all = 0;
    for (int32_t r = 0; r < spill->n_ranks; r++) {
      spill->load[r] = 0;
      for (int32_t e = spill->home_at[r]; e < spill->home_at[r + 1]; e++)
        spill->load[r] += spill->total[e];
      spill->all += spill->load[r];
    }
    if (spill->all > 0)
      spill->plan(spill);
  }
}

/* ---- Quotas ---- */

/* Moves by expert, order kept: counting sort. */
static void sort_moves(hec_spill *spill) {
  int32_t *at = spill->move_at;
  memset(at, 0, (size_t)(spill->n_experts + 1) * sizeof *at);
  for (int32_t i = 0; i < spill->n_moves; i++)
    at[spill->moves[i].expert]++;
  for (int32_t e = 0; e < spill->n_experts; e++)
    at[e + 1] += at[e]; /* ends; filling from the back makes them beginnings */
  for (int32_t i = spill->n_moves - 1; i >= 0; i--)
    spill->move_of[--at[spill->moves[i].expert]] = i;
}

/* The expert's hosts: its home, then its moves, `total` assignments in all; and their order. */
static void list_hosts(hec_spill *spill, int32_t expert, uint64_t total) {
  int32_t n = 1;
  spill->host[0] = spill->home[expert];
  for (int32_t i = spill->move_at[expert]; i < spill->move_at[expert + 1]; i++) {
    const hec_spill_move *move = &spill->moves[spill->move_of[i]];
    HEC_ASSERT(move->tokens <= total);
    spill->host[n] = move->rank;
    spill->host_left[n++] = move->tokens;
    total -= move->tokens;
  }
  spill->host_left[0] = total;
  spill->n_hosts = n;
  for (int32_t h = 0; h < n; h++) {
    int32_t place = h;
    for (; place > 0 && spill->host[spill->by_rank[place - 1]] > spill->host[h]; place--)
      spill->by_rank[place] = spill->by_rank[place - 1];
    spill->by_rank[place] = h;
  }
}

static void give(hec_spill *spill, int32_t s, int32_t h, uint64_t n) {
  spill->part[s * spill->n_hosts + h] += (uint32_t)n;
  spill->count[s] -= (uint32_t)n;
  spill->host_left[h] -= n;
}

static uint64_t min_of(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* order[h]: whose range comes h-th; NULL: as listed. */
static void split_ranges(hec_spill *spill, const int32_t *order) {
  for (int32_t s = 0, at = 0; s < spill->problem->ep; s++)
    while (spill->count[s] > 0) {
      int32_t h = order ? order[at] : at;
      give(spill, s, h, min_of(spill->count[s], spill->host_left[h]));
      at += spill->host_left[h] == 0;
    }
}

/* floor(product / by) and its remainder: a division in double is off by one at most, which the remainder shows. */
static int64_t divide(int64_t product, int64_t by, double inverse, int64_t *rest) {
  int64_t share = (int64_t)((double)product * inverse), over = product - share * by;
  if (over < 0) {
    share--;
    over += by;
  } else if (over >= by) {
    share++;
    over -= by;
  }
  *rest = over;
  return share;
}

/* One source, n of `all` assignments that the hosts have left. */
static void split_source(hec_spill *spill, int32_t s, uint64_t all) {
  uint64_t n = spill->count[s], missing = n, *left = spill->host_left;
  int64_t *rest = spill->rest;
  int32_t n_hosts = spill->n_hosts;
  const int32_t *by_rank = spill->by_rank;
  uint32_t *part = spill->part + s * n_hosts;
  double inverse = 1.0 / (double)all;
  for (int32_t h = 0; h < n_hosts; h++) {
    uint64_t share;
    if (all < exact_max) {
      share = (uint64_t)divide((int64_t)(n * left[h]), (int64_t)all, inverse, &rest[h]);
    } else {
      uint128 product = (uint128)n * left[h];
      share = (uint64_t)(product / all);
      rest[h] = (int64_t)(uint64_t)(product - (uint128)share * all);
    }
    part[h] += (uint32_t)share;
    left[h] -= share;
    missing -= share;
  }
  for (; missing > 0; missing--) {
    int32_t best = by_rank[0];
    for (int32_t k = 1; k < n_hosts; k++)
      best = rest[by_rank[k]] > rest[best] ? by_rank[k] : best;
    rest[best] = 0;
    part[best]++;
    left[best]--;
  }
}

/* The same for the home and one guest, whose remainders are 0 both or `all` together. It is the nearest whole number.
 * Between two of them the lower rank has the larger. */
static void split_two(hec_spill *spill, int64_t all) {
  int64_t left = (int64_t)spill->host_left[1], guest_lower = spill->by_rank[0] == 1;
  uint32_t *part = spill->part;
  for (int32_t s = 0; s < spill->problem->ep; s++, part += 2) {
    int64_t n = spill->count[s], rest;
    if (n == 0)
      continue;
    int64_t share = divide(n * left, all, 1.0 / (double)all, &rest);
    share += 2 * rest + guest_lower > all;
    part[0] += (uint32_t)(n - share);
    part[1] += (uint32_t)share;
    left -= share;
    all -= n;
  }
}

static void split_in_proportion(hec_spill *spill, uint64_t all) {
  if (spill->n_hosts == 2 && all < exact_max) {
    split_two(spill, (int64_t)all);
    return;
  }
  for (int32_t s = 0; s < spill->problem->ep; s++) {
    uint64_t n = spill->count[s];
    if (n > 0)
      split_source(spill, s, all);
    all -= n;
  }
}

static uint64_t serve_own(hec_spill *spill) {
  uint64_t served = 0;
  for (int32_t h = 0; h < spill->n_hosts; h++) {
    int32_t s = spill->host[h];
    uint64_t n = min_of(spill->count[s], spill->host_left[h]);
    give(spill, s, h, n);
    served += n;
  }
  return served;
}

/* Own rank, own node, anywhere: every part exhausts its source or its host. */
static void split_nearest(hec_spill *spill) {
  const hec_problem *p = spill->problem;
  (void)serve_own(spill);
  for (int32_t far = 0; far < 2; far++)
    for (int32_t s = 0; s < p->ep; s++)
      for (int32_t k = 0; k < spill->n_hosts && spill->count[s] > 0; k++) {
        int32_t h = spill->by_rank[k];
        if (far || hec_problem_node(p, spill->host[h]) == hec_problem_node(p, s))
          give(spill, s, h, min_of(spill->count[s], spill->host_left[h]));
      }
}

static void split_largest(hec_spill *spill) {
  int32_t ep = spill->problem->ep;
  for (int32_t h = 1; h < spill->n_hosts; h++)
    while (spill->host_left[h] > 0) {
      int32_t s = 0;
      uint32_t max = spill->count[0]; /* beside s, so that the loop does not wait for a load of count[s] */
      for (int32_t r = 1; r < ep; r++) {
        bool more = spill->count[r] > max;
        max = more ? spill->count[r] : max;
        s = more ? r : s;
      }
      give(spill, s, h, min_of(spill->count[s], spill->host_left[h]));
    }
  for (int32_t s = 0; s < ep; s++)
    give(spill, s, 0, spill->count[s]);
}

static void split(hec_spill *spill, uint64_t total) {
  memset(spill->part, 0, (size_t)spill->problem->ep * (size_t)spill->n_hosts * sizeof *spill->part);
  switch (spill->options.split) {
  case HEC_SPLIT_IN_ORDER:
    split_ranges(spill, NULL);
    return;
  case HEC_SPLIT_BY_RANK:
    split_ranges(spill, spill->by_rank);
    return;
  case HEC_SPLIT_PROPORTIONAL:
    split_in_proportion(spill, total);
    return;
  case HEC_SPLIT_OWN_FIRST:
    split_in_proportion(spill, total - serve_own(spill));
    return;
  case HEC_SPLIT_NEAREST:
    split_nearest(spill);
    return;
  case HEC_SPLIT_LARGEST_FIRST:
    split_largest(spill);
    return;
  }
}

/* ---- The plan ---- */

typedef struct {
  hec_spill *spill;
  hec_plan *plan;
  const hec_load *load; /* NULL: no moves */
  hec_quota_writer quotas;
  int32_t layer, copies;
} writer;

static void write_copies(writer *w) {
  const hec_spill *spill = w->spill;
  size_t block = (size_t)w->layer * (size_t)w->plan->copy_capacity;
  for (int32_t k = 0; k < spill->n_hosts; k++) {
    int32_t h = spill->by_rank[k];
    if (h == 0)
      continue; /* the home itself */
    HEC_ASSERT(w->copies < w->plan->copy_capacity);
    w->plan->copy_rank[block + (size_t)w->copies] = spill->host[h];
    w->plan->copy_kind[block + (size_t)w->copies++] = HEC_COPY_GUEST;
  }
}

static void write_quotas(writer *w, int32_t e) {
  const hec_spill *spill = w->spill;
  int32_t ep = spill->problem->ep;
  for (int32_t s = 0; s < ep; s++)
    for (int32_t k = 0; k < spill->n_hosts; k++) {
      int32_t h = spill->by_rank[k];
      hec_quota_add(&w->quotas, e, (hec_quota){s, spill->host[h], spill->part[s * spill->n_hosts + h]});
    }
}

static void write_expert(writer *w, int32_t e) {
  hec_spill *spill = w->spill;
  if (spill->move_at[e] == spill->move_at[e + 1])
    return;
  uint64_t total = 0;
  for (int32_t s = 0; s < spill->problem->n_ranks; s++)
    total += spill->count[s] = hec_load_row(w->load, w->layer, s)[e];
  list_hosts(spill, e, total);
  write_copies(w);
  split(spill, total);
  write_quotas(w, e);
}

/* The moves' guests in place of the layer's copies. */
static void write_layer(hec_spill *spill, hec_plan *plan, int32_t layer, const hec_load *load) {
  size_t row = (size_t)layer * (size_t)(plan->n_experts + 1);
  writer w = {spill, plan, load, hec_quota_begin(plan, layer), layer, 0};
  sort_moves(spill);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    write_expert(&w, e);
    plan->copy_at[row + (size_t)e + 1] = w.copies;
  }
  hec_quota_end(&w.quotas);
  spill->units += (uint64_t)w.quotas.filled;
}

void hec_spill_decide(hec_policy_run *run) {
  hec_spill *spill = run->state;
  spill->n_moves = 0;
  for (int32_t layer = 0; layer < run->plan.n_layers; layer++)
    write_layer(spill, &run->plan, layer, NULL);
}

void hec_spill_refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  hec_spill *spill = run->state;
  const hec_problem *p = run->problem;
  spill->n_moves = 0;
  spill->units = (uint64_t)p->n_ranks * (uint64_t)p->n_experts;
  hec_load_totals(load, layer, 0, p->n_ranks, spill->total);
  plan_domains(spill);
  write_layer(spill, &run->plan, layer, load);
  run->units = spill->units;
  run->planned = true;
}
