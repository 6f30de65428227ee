/* Patterns are made by the rows of the collective table themselves: one expert is lowered, its transfers walked, bytes
 * and delays left on the links. A later change of a row changes the price with it. Rows whose ranks relay are left out:
 * without relays they lower like an earlier row, and so never win.
 *
 * A planner asks for the same patterns again and again, iteration after iteration, so they are kept (hec_spread_memo).
 *
 * Sums only grow until they are cleared. So the largest link of a stage is kept, and a pattern changes it by what it
 * touches alone:
 *
 *     stage with pattern = max(stage so far, max over touched links of (load + more) / bandwidth + max(delay, later))
 *
 * which is the price from nothing to the last bit, since rounding is monotonic.
 *
 * A comparison (hec_spread_fits, hec_spread_choose, hec_spread_cost_with) prices few ways in full. A stage takes no less than any one link of
 * it. So a way is out as soon as one link of each of its stages makes it dearer than the cheapest so far. The link tried
 * is the busiest when the way last lost. The winner of last time is tried first. Bounds are added in the order of the
 * values, and rounding is monotonic. So they hold in floating point too: hints decide how soon a price is found, never
 * which. */
#include "runtime/plan/planners/spread_cost.h"

#include "runtime/plan/planners/rank_set.h"
#include "runtime/plan/problem.h"

#include <math.h>
#include <string.h>

typedef void lower_function(const hec_problem *, const hec_sparse *, hec_collective_plan *);

static lower_function *lower_of(const hec_spread *spread, int32_t row) {
  return spread->scatter ? hec_collectives[row]->scatter : hec_collectives[row]->gather;
}

/* One way per different lowering: a row that lowers like an earlier one never wins, and patterns have no relays. */
static void list_ways(hec_spread *spread) {
  for (int32_t row = 0; hec_collectives[row]; row++) {
    bool repeats = hec_collectives[row]->relays;
    for (int32_t w = 0; w < spread->n_ways; w++)
      repeats = repeats || lower_of(spread, spread->way_row[w]) == lower_of(spread, row);
    if (repeats)
      continue;
    HEC_ASSERT(spread->n_ways < HEC_SPREAD_WAYS_MAX);
    spread->way_row[spread->n_ways++] = row;
    spread->n_stages += hec_collectives[row]->n_stages;
    spread->way_at[spread->n_ways] = spread->n_stages;
  }
}

static double larger(double a, double b) {
  return a > b ? a : b;
}

/* Time until the first chunk has crossed the route, as models/link_cost.h counts it. */
static double first_chunk_s(const hec_spread *spread, const hec_transfer *t, double latency_s, int32_t n_chunks) {
  const int32_t *route;
  int32_t n = hec_rank_links_route(spread->links, t->source, t->destination, &route);
  double slowest = spread->links->bandwidth[route[0]];
  for (int32_t k = 1; k < n; k++)
    slowest = spread->links->bandwidth[route[k]] < slowest ? spread->links->bandwidth[route[k]] : slowest;
  return latency_s + (double)t->bytes / (double)n_chunks / slowest;
}

/* Leaves the bytes and delays of the stage whose entries begin at `at` on its links. A rank is entered once per expert
 * and stage, so what a forwarding transfer waits for is kept by rank. */
static void walk_stage(hec_spread *spread, const hec_transfer_list *stage, int32_t n_chunks, int32_t at) {
  double *load = spread->made.load, *delay = spread->made.delay;
  for (size_t i = 0; i < stage->n; i++) {
    const hec_transfer *t = &stage->data[i];
    double latency_s = spread->links->latency_s[t->source * spread->problem->n_ranks + t->destination], begin_s = 0;
    if (n_chunks > 1) {
      begin_s = t->after >= 0 ? spread->delay_of[t->source] : 0;
      spread->delay_of[t->destination] = begin_s + first_chunk_s(spread, t, latency_s, n_chunks);
    }
    const int32_t *route;
    int32_t n = hec_rank_links_route(spread->links, t->source, t->destination, &route);
    for (int32_t k = 0; k < n; k++) {
      int32_t entry = at + route[k];
      if (load[entry] == 0)
        spread->touched[spread->n_touched++] = entry;
      load[entry] += (double)t->bytes;
      delay[entry] = larger(delay[entry], begin_s + latency_s);
    }
  }
}

/* A stage without transfers is dropped by the lowering; which of a way's stages was it? Of two_level's, the one inside
 * nodes: the last of a gather, the first of a scatter. */
static int32_t slot_of(const hec_spread *spread, int32_t way, int32_t stage) {
  int32_t n = spread->way_at[way + 1] - spread->way_at[way];
  int32_t dropped = spread->scatter ? n - spread->lowered.n_stages : 0;
  return spread->way_at[way] + dropped + stage;
}

/* The stages of one way of a pattern into `made`; they are zero so far. */
static void fill_way(hec_spread *spread, int32_t way, int32_t owner, const int32_t *receivers, int32_t n) {
  int32_t expert = 0, receiver_at[2] = {0, n};
  hec_sparse sparse = {.n_items = 1,
                       .n_slices = 1,
                       .expert = &expert,
                       .owner = &owner,
                       .receiver_at = receiver_at,
                       .receiver = (int32_t *)receivers,
                       .bytes = spread->bytes};
  lower_of(spread, spread->way_row[way])(spread->problem, &sparse, &spread->lowered);
  HEC_ASSERT(spread->lowered.n_stages <= spread->way_at[way + 1] - spread->way_at[way]);
  for (int32_t k = 0; k < spread->lowered.n_stages; k++)
    walk_stage(spread, &spread->lowered.stage[k], spread->lowered.n_chunks,
               slot_of(spread, way, k) * spread->links->n_padded);
}

/* What `made` touches becomes the pattern, which has room for it; `made` becomes zero. */
static void take_made(hec_spread *spread, hec_spread_pattern *pattern) {
  pattern->n = spread->n_touched;
  for (int32_t i = 0; i < spread->n_touched; i++) {
    int32_t at = spread->touched[i];
    pattern->at[i] = at;
    pattern->load[i] = spread->made.load[at];
    pattern->delay[i] = spread->made.delay[at];
    spread->made.load[at] = spread->made.delay[at] = 0;
  }
  spread->n_touched = 0;
}

static void make_pattern(hec_spread *spread, int32_t owner, const int32_t *receivers, int32_t n,
                         hec_spread_pattern *pattern) {
  for (int32_t w = 0; w < spread->n_ways; w++)
    fill_way(spread, w, owner, receivers, n);
  take_made(spread, pattern);
}

static size_t sum_length(const hec_spread *spread) {
  return (size_t)spread->n_stages * (size_t)spread->links->n_padded;
}

hec_spread_sum hec_spread_sum_new(hec_arena *arena, const hec_spread *spread) {
  return (hec_spread_sum){.load = HEC_NEW(arena, double, sum_length(spread)),
                          .delay = HEC_NEW(arena, double, sum_length(spread)),
                          .stage_s = HEC_NEW(arena, double, spread->n_stages),
                          .hint = HEC_NEW(arena, hec_spread_hint, 1)};
}

/* ---- Patterns made before ---- */

struct hec_spread_known {
  bool used;
  int32_t owner, n, at;
};

static hec_spread_pattern pattern_new(hec_arena *arena, size_t n) {
  return (hec_spread_pattern){
      .at = HEC_NEW(arena, int32_t, n), .load = HEC_NEW(arena, double, n), .delay = HEC_NEW(arena, double, n)};
}

/* Room for a few patterns of every expert of every layer: a job that is small clears little memory. */
static hec_spread_memo memo_new(hec_arena *arena, const hec_spread *spread) {
  enum { ENTRIES = 1 << 17, PATTERNS_OF_EXPERT = 4 };
  const hec_problem *problem = spread->problem;
  size_t patterns = PATTERNS_OF_EXPERT * (size_t)problem->n_layers * (size_t)problem->n_experts;
  size_t wanted = patterns < ENTRIES / sum_length(spread) ? patterns * sum_length(spread) : ENTRIES;
  size_t entries = sum_length(spread) > wanted ? sum_length(spread) : wanted;
  return (hec_spread_memo){.slot = HEC_NEW(arena, struct hec_spread_known, HEC_SPREAD_KNOWN),
                           .receivers = HEC_NEW(arena, uint64_t, HEC_SPREAD_KNOWN * (size_t)spread->n_words),
                           .entries = pattern_new(arena, entries),
                           .entries_max = (int32_t)entries};
}

static size_t slot_of_set(int32_t owner, const uint64_t *receivers, int32_t n_words) {
  uint64_t hash = (uint64_t)owner;
  for (int32_t w = 0; w < n_words; w++) {
    hash = (hash ^ receivers[w]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash * 0xbf58476d1ce4e5b9u >> 32 & (HEC_SPREAD_KNOWN - 1);
}

static hec_spread_pattern part_of(const hec_spread_pattern *all, int32_t at, int32_t n) {
  return (hec_spread_pattern){n, all->at + at, all->load + at, all->delay + at};
}

hec_spread_pattern hec_spread_item(hec_spread *spread, int32_t owner, const uint64_t *receivers) {
  hec_spread_memo *memo = &spread->memo;
  size_t slot = slot_of_set(owner, receivers, spread->n_words), bytes = (size_t)spread->n_words * sizeof *receivers;
  struct hec_spread_known *known = &memo->slot[slot];
  uint64_t *kept = memo->receivers + slot * (size_t)spread->n_words;
  if (known->used && known->owner == owner && memcmp(kept, receivers, bytes) == 0)
    return part_of(&memo->entries, known->at, known->n);
  if (memo->entries.n + (int32_t)sum_length(spread) > memo->entries_max) {
    memset(memo->slot, 0, HEC_SPREAD_KNOWN * sizeof *memo->slot);
    memo->entries.n = 0;
  }
  hec_spread_pattern made = part_of(&memo->entries, memo->entries.n, 0);
  make_pattern(spread, owner, spread->listed, hec_rank_set_list(receivers, spread->n_words, spread->listed), &made);
  memcpy(kept, receivers, bytes);
  *known = (struct hec_spread_known){true, owner, made.n, memo->entries.n};
  memo->entries.n += made.n;
  return made;
}

/* The vectors of everywhere_sum that are of this owner. */
static hec_spread_sum everywhere_of(const hec_spread *spread, int32_t owner) {
  size_t at = (size_t)owner * sum_length(spread);
  return (hec_spread_sum){.load = spread->everywhere_sum.load + at, .delay = spread->everywhere_sum.delay + at};
}

static void keep_everywhere(hec_arena *arena, hec_spread *spread, int32_t owner, const uint64_t *others) {
  hec_spread_pattern pattern = hec_spread_item(spread, owner, others), *kept = &spread->everywhere[owner];
  hec_spread_sum vectors = everywhere_of(spread, owner);
  *kept = pattern_new(arena, (size_t)pattern.n);
  kept->n = pattern.n;
  for (int32_t i = 0; i < pattern.n; i++) {
    kept->at[i] = pattern.at[i];
    vectors.load[pattern.at[i]] = kept->load[i] = pattern.load[i];
    vectors.delay[pattern.at[i]] = kept->delay[i] = pattern.delay[i];
  }
}

/* The links of the first route to another node, without those that some other such route does not have. */
static hec_spread_pattern way_out_of(hec_arena *arena, const hec_spread *spread, int32_t owner) {
  const hec_problem *p = spread->problem;
  hec_spread_pattern out = {0};
  bool first = true;
  double least_s = 0;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    if (hec_problem_node(p, r) == hec_problem_node(p, owner))
      continue;
    const int32_t *route;
    int32_t n = hec_rank_links_route(spread->links, owner, r, &route), kept = 0;
    double latency_s = spread->links->latency_s[owner * p->n_ranks + r];
    if (first) {
      out = pattern_new(arena, (size_t)n);
      memcpy(out.at, route, (size_t)n * sizeof *route);
      out.n = n;
    }
    for (int32_t i = 0; i < out.n; i++) {
      bool shared = false;
      for (int32_t k = 0; k < n; k++)
        shared = shared || route[k] == out.at[i];
      out.at[kept] = out.at[i];
      kept += shared;
    }
    least_s = first || latency_s < least_s ? latency_s : least_s;
    out.n = kept;
    first = false;
  }
  for (int32_t i = 0; i < out.n; i++) {
    out.load[i] = (double)spread->bytes;
    out.delay[i] = least_s;
  }
  return out;
}

hec_spread hec_spread_new(hec_arena *arena, const hec_problem *problem, const hec_rank_links *links, double bytes,
                          bool scatter) {
  size_t ranks = (size_t)problem->n_ranks;
  hec_spread spread = {.problem = problem,
                       .links = links,
                       .bytes = (int64_t)bytes,
                       .n_words = hec_rank_set_words(problem->n_ranks),
                       .scatter = scatter};
  list_ways(&spread);
  spread.everywhere = HEC_NEW(arena, hec_spread_pattern, ranks);
  spread.everywhere_sum.load = HEC_NEW(arena, double, ranks *sum_length(&spread));
  spread.everywhere_sum.delay = HEC_NEW(arena, double, ranks *sum_length(&spread));
  spread.way_out = HEC_NEW(arena, hec_spread_pattern, ranks);
  spread.made = hec_spread_sum_new(arena, &spread);
  spread.bandwidth = HEC_NEW(arena, double, sum_length(&spread));
  for (size_t i = 0; i < sum_length(&spread); i++)
    spread.bandwidth[i] = links->bandwidth[i % (size_t)links->n_padded];
  spread.touched = HEC_NEW(arena, int32_t, sum_length(&spread));
  spread.memo = memo_new(arena, &spread);
  spread.everywhere_s = HEC_NEW(arena, double, ranks);
  spread.delay_of = HEC_NEW(arena, double, ranks);
  spread.owner = HEC_NEW(arena, int32_t, problem->n_experts);
  spread.listed = HEC_NEW(arena, int32_t, ranks);
  spread.everywhere_at = HEC_NEW(arena, int32_t, (size_t)problem->n_experts + 1);
  for (int32_t i = 0; i <= problem->n_experts; i++)
    spread.everywhere_at[i] = i * (problem->n_ranks - 1);
  for (int32_t k = 0; k < HEC_COLLECTIVE_STAGES_MAX;
       k++) { /* one expert: ranks - 1 transfers, twice that and counters to sort */
    spread.lowered.stage[k].capacity = 4 * ranks + 16;
    spread.lowered.stage[k].data = HEC_NEW(arena, hec_transfer, spread.lowered.stage[k].capacity);
  }
  uint64_t *others = HEC_NEW(arena, uint64_t, spread.n_words);
  const hec_spread_sum nothing = hec_spread_sum_new(arena, &spread);
  for (int32_t owner = 0; owner < problem->n_ranks; owner++) {
    for (int32_t r = 0; r < problem->n_ranks; r++)
      hec_rank_set_add(others, r);
    hec_rank_set_remove(others, owner);
    keep_everywhere(arena, &spread, owner, others);
    if (!scatter)
      spread.way_out[owner] = way_out_of(arena, &spread, owner);
    spread.everywhere_s[owner] = hec_spread_cost_with(&spread, &nothing, &spread.everywhere[owner]);
  }
  return spread;
}

/* Entries at .. end-1 of the two vectors. */
static void clear_part(hec_spread_sum *sum, size_t at, size_t end) {
  memset(sum->load + at, 0, (end - at) * sizeof *sum->load);
  memset(sum->delay + at, 0, (end - at) * sizeof *sum->delay);
}

static void add_part(hec_spread_sum *sum, const hec_spread_sum *item, size_t at, size_t end) {
  double *restrict load = sum->load, *restrict delay = sum->delay;
  for (size_t i = at; i < end; i++) {
    load[i] += item->load[i];
    delay[i] = delay[i] > item->delay[i] ? delay[i] : item->delay[i];
  }
}

/* Four at once: the sum is read and written once. Bytes are whole numbers, so their order does not matter. */
static void add_four(hec_spread_sum *sum, const hec_spread_sum item[4], size_t at, size_t end) {
  double *restrict load = sum->load, *restrict delay = sum->delay;
  const double *a = item[0].load, *b = item[1].load, *c = item[2].load, *d = item[3].load;
  for (size_t i = at; i < end; i++)
    load[i] += (a[i] + b[i]) + (c[i] + d[i]);
  a = item[0].delay, b = item[1].delay, c = item[2].delay, d = item[3].delay;
  for (size_t i = at; i < end; i++) {
    double first = a[i] > b[i] ? a[i] : b[i], second = c[i] > d[i] ? c[i] : d[i];
    double latest = first > second ? first : second;
    delay[i] = delay[i] > latest ? delay[i] : latest;
  }
}

void hec_spread_clear(const hec_spread *spread, hec_spread_sum *sum) {
  clear_part(sum, 0, sum_length(spread));
  memset(sum->stage_s, 0, (size_t)spread->n_stages * sizeof *sum->stage_s);
}

void hec_spread_add(const hec_spread *spread, hec_spread_sum *sum, const hec_spread_pattern *pattern) {
  int32_t n = spread->links->n_padded, stage = 0, begin = 0;
  for (int32_t i = 0; i < pattern->n; i++) {
    int32_t at = pattern->at[i];
    for (; at - begin >= n; begin += n)
      stage++;
    sum->load[at] += pattern->load[i];
    sum->delay[at] = larger(sum->delay[at], pattern->delay[i]);
    double link_s = sum->load[at] / spread->links->bandwidth[at - begin] + sum->delay[at];
    sum->stage_s[stage] = larger(sum->stage_s[stage], link_s);
  }
}

/* ---- Prices of sums ---- */

static double cheapest(const hec_spread *spread, const double *stage_s) {
  double best = 0;
  for (int32_t w = 0; w < spread->n_ways; w++) {
    double seconds = 0;
    for (int32_t k = spread->way_at[w]; k < spread->way_at[w + 1]; k++)
      seconds += stage_s[k];
    best = w == 0 || seconds < best ? seconds : best;
  }
  return best;
}

double hec_spread_cost(const hec_spread *spread, const hec_spread_sum *sum) {
  return cheapest(spread, sum->stage_s);
}

/* A link needs no division where load / bandwidth + delay is less than the stage by more than rounding can hide: three
 * operations, each off by 2^-53 of its result at most. */
static const double SURELY_LESS = 1 - 0x1p-48;

/* The k-th way to look at: the cheapest of last time, then the others in order. */
static int32_t way_in_turn(const hec_spread_sum *sum, int32_t k) {
  int32_t first = sum->hint->way;
  return k == 0 ? first : k <= first ? k - 1 : k;
}

/* The first of a pattern's entries that is of the stage or a later one. */
static int32_t entry_of(const hec_spread *spread, const hec_spread_pattern *pattern, int32_t stage) {
  int32_t low = 0, high = stage > 0 ? pattern->n : 0, begin = stage * spread->links->n_padded;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (pattern->at[middle] < begin)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The way's price with the pattern, if that is below `limit`; else no less than it. */
static double way_with_s(const hec_spread *spread, int32_t way, const hec_spread_sum *sum,
                         const hec_spread_pattern *pattern, double limit) {
  const int32_t length = spread->links->n_padded;
  const double *load = sum->load, *delay = sum->delay, *bandwidth = spread->bandwidth;
  double seconds = 0;
  int32_t i = entry_of(spread, pattern, spread->way_at[way]);
  for (int32_t k = spread->way_at[way]; k < spread->way_at[way + 1] && seconds < limit; k++) {
    double max = sum->stage_s[k];
    if (seconds + max >= limit)
      return limit;
    for (int32_t end = (k + 1) * length; i < pattern->n && pattern->at[i] < end; i++) {
      int32_t at = pattern->at[i];
      double bytes = load[at] + pattern->load[i], wait_s = larger(delay[at], pattern->delay[i]);
      if (bytes <= (max - wait_s) * bandwidth[at] * SURELY_LESS)
        continue;
      max = larger(max, bytes / bandwidth[at] + wait_s);
      if (seconds + max >= limit)
        return limit;
    }
    seconds += max;
  }
  return seconds;
}

double hec_spread_cost_with(const hec_spread *spread, const hec_spread_sum *sum, const hec_spread_pattern *pattern) {
  double best = INFINITY;
  int32_t winner = 0;
  for (int32_t i = 0; i < spread->n_ways; i++) {
    int32_t way = way_in_turn(sum, i);
    double seconds = way_with_s(spread, way, sum, pattern, best);
    winner = seconds < best ? way : winner;
    best = seconds < best ? seconds : best;
  }
  sum->hint->way = winner;
  return best;
}

double hec_spread_cost_out(const hec_spread *spread, const hec_spread_sum *sum, int32_t owner) {
  const hec_spread_pattern *out = &spread->way_out[owner];
  double stage_s[HEC_SPREAD_STAGES_MAX];
  memcpy(stage_s, sum->stage_s, (size_t)spread->n_stages * sizeof *stage_s);
  for (int32_t w = 0; w < spread->n_ways; w++) {
    int32_t stage = spread->way_at[w]; /* its first */
    for (int32_t i = 0; i < out->n; i++) {
      size_t at = (size_t)stage * (size_t)spread->links->n_padded + (size_t)out->at[i];
      double link_s =
          (sum->load[at] + out->load[i]) / spread->links->bandwidth[out->at[i]] + larger(sum->delay[at], out->delay[i]);
      stage_s[stage] = larger(stage_s[stage], link_s);
    }
  }
  return cheapest(spread, stage_s);
}

/* ---- Comparisons ---- */

/* Links are priced a block at a time into `link_s`, then the largest is taken. Of the two loops the first, with its
 * divisions, becomes vector code. A maximum over all would not, since compilers may not reorder it. */
enum { BLOCK = 64 };

/* The larger of m and the n values; n is a multiple of 4. */
static double largest(double m, const double *value, int32_t n) {
  double run[4] = {m, m, m, m};
  for (int32_t l = 0; l < n; l += 4)
    for (int32_t i = 0; i < 4; i++)
      run[i] = run[i] > value[l + i] ? run[i] : value[l + i];
  return larger(larger(run[0], run[1]), larger(run[2], run[3]));
}

static double stage_s(const double *load, const double *delay, const double *bandwidth, int32_t n) {
  double link_s[BLOCK], seconds = 0;
  for (int32_t begin = 0; begin < n; begin += BLOCK) {
    int32_t length = n - begin < BLOCK ? n - begin : BLOCK;
    for (int32_t l = 0; l < length; l++)
      link_s[l] = load[begin + l] / bandwidth[begin + l] + delay[begin + l];
    seconds = largest(seconds, link_s, length);
  }
  return seconds;
}

/* Cheapest so far; -1: none. An earlier way wins ties. */
typedef struct {
  int32_t way;
  double s;
} winner;

static bool beats(int32_t way, double way_s, winner best) {
  return best.way < 0 || way_s < best.s || (way_s == best.s && way < best.way);
}

static double way_s(const hec_spread *spread, int32_t way, const hec_spread_sum *sum) {
  size_t n = (size_t)spread->links->n_padded;
  double seconds = 0;
  for (int32_t k = spread->way_at[way]; k < spread->way_at[way + 1]; k++)
    seconds += stage_s(sum->load + (size_t)k * n, sum->delay + (size_t)k * n, spread->links->bandwidth, (int32_t)n);
  return seconds;
}

static double link_s(const hec_spread *spread, int32_t stage, int32_t link, const hec_spread_sum *sum) {
  size_t at = (size_t)stage * (size_t)spread->links->n_padded + (size_t)link;
  return sum->load[at] / spread->links->bandwidth[link] + sum->delay[at];
}

static void note_busiest(const hec_spread *spread, int32_t way, const hec_spread_sum *sum) {
  for (int32_t k = spread->way_at[way]; k < spread->way_at[way + 1]; k++) {
    int32_t *busiest = &sum->hint->link[k];
    for (int32_t l = 0; l < spread->links->n_links; l++)
      if (link_s(spread, k, l, sum) > link_s(spread, k, *busiest, sum))
        *busiest = l;
  }
}

static bool goes_everywhere(const hec_spread *spread, const hec_sparse *sparse, int32_t i) {
  return sparse->receiver_at[i + 1] - sparse->receiver_at[i] == spread->problem->n_ranks - 1;
}

/* No more than the way's price: what goes everywhere, over the hinted link of every stage. */
static double min_request_s(const hec_spread *spread, int32_t way, const hec_sparse *sparse,
                            const hec_spread_sum *sum) {
  double seconds = 0;
  for (int32_t k = spread->way_at[way]; k < spread->way_at[way + 1]; k++) {
    int32_t link = sum->hint->link[k];
    size_t at = (size_t)k * (size_t)spread->links->n_padded + (size_t)link;
    double load = 0, delay = 0;
    for (int32_t i = 0; i < sparse->n_items; i++) {
      if (!goes_everywhere(spread, sparse, i))
        continue;
      hec_spread_sum pattern = everywhere_of(spread, sparse->owner[i]);
      load += pattern.load[at];
      delay = larger(delay, pattern.delay[at]);
    }
    seconds += load / spread->links->bandwidth[link] + delay;
  }
  return seconds;
}

/* The way's stages of the whole request into `sum`. */
static void sum_request(hec_spread *spread, int32_t way, const hec_sparse *sparse, hec_spread_sum *sum) {
  size_t n = (size_t)spread->links->n_padded;
  size_t at = (size_t)spread->way_at[way] * n, end = (size_t)spread->way_at[way + 1] * n;
  clear_part(sum, at, end);
  hec_spread_sum ready[4];
  int32_t n_ready = 0;
  for (int32_t i = 0; i < sparse->n_items; i++) {
    if (goes_everywhere(spread, sparse, i)) {
      ready[n_ready++] = everywhere_of(spread, sparse->owner[i]);
      if (n_ready == 4)
        add_four(sum, ready, at, end);
      n_ready %= 4;
      continue;
    }
    int32_t first = sparse->receiver_at[i];
    fill_way(spread, way, sparse->owner[i], sparse->receiver + first, sparse->receiver_at[i + 1] - first);
    for (; spread->n_touched > 0; spread->n_touched--) {
      int32_t entry = spread->touched[spread->n_touched - 1];
      sum->load[entry] += spread->made.load[entry];
      sum->delay[entry] = larger(sum->delay[entry], spread->made.delay[entry]);
      spread->made.load[entry] = spread->made.delay[entry] = 0;
    }
  }
  for (int32_t k = 0; k < n_ready; k++)
    add_part(sum, &ready[k], at, end);
}

bool hec_spread_fits(hec_spread *spread, const int32_t *expert, const int32_t *home, int32_t n, double limit_s,
                     hec_spread_sum *sum) {
  hec_sparse sparse = {.n_items = n, .n_slices = 1, .owner = spread->owner, .receiver_at = spread->everywhere_at};
  for (int32_t i = 0; i < n; i++)
    spread->owner[i] = home[expert[i]];
  for (int32_t i = 0; i < spread->n_ways; i++) {
    int32_t w = way_in_turn(sum, i);
    if (i > 0 && min_request_s(spread, w, &sparse, sum) > limit_s)
      continue;
    sum_request(spread, w, &sparse, sum);
    if (way_s(spread, w, sum) <= limit_s) {
      sum->hint->way = w;
      return true;
    }
    note_busiest(spread, w, sum);
  }
  return false;
}

const hec_collective *hec_spread_choose(hec_spread *spread, const hec_sparse *sparse, hec_spread_sum *sum) {
  HEC_ASSERT(sparse->n_slices == 1 && sparse->bytes == spread->bytes);
  winner best = {.way = -1};
  for (int32_t i = 0; i < spread->n_ways; i++) {
    int32_t w = way_in_turn(sum, i);
    if (i > 0 && !beats(w, min_request_s(spread, w, sparse, sum), best))
      continue;
    sum_request(spread, w, sparse, sum);
    double seconds = way_s(spread, w, sum);
    if (beats(w, seconds, best))
      best = (winner){w, seconds};
    else
      note_busiest(spread, w, sum);
  }
  sum->hint->way = best.way;
  return hec_collectives[spread->way_row[best.way]];
}
