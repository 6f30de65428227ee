/* Patterns are made by the rows of the collective table themselves: one expert is lowered, its transfers walked, bytes
 * and delays left on the links. A later change of a row changes the price with it. Adding or pricing a pattern costs
 * O(stages * links), branch-free over contiguous vectors.
 *
 * Few ways are priced in full. A stage takes no less than any one link of it. So a way is out as soon as one link of
 * each of its stages makes it dearer than the cheapest so far. The link tried is the busiest when the way last lost.
 * The winner of last time is tried first. Bounds are added in the order of the values, and rounding is monotonic. So
 * they hold in floating point too: hints decide how soon a price is found, never which. */
#include "runtime/plan/planners/spread_cost.h"

#include "runtime/plan/problem.h"

#include <string.h>

typedef void lower_function(const hec_problem *, const hec_sparse *, hec_collective_plan *);

static lower_function *lower_of(const hec_spread *spread, int32_t row) {
  return spread->scatter ? hec_collectives[row]->scatter : hec_collectives[row]->gather;
}

/* One way per different lowering: a row that lowers like an earlier one never wins. */
static void list_ways(hec_spread *spread) {
  for (int32_t row = 0; hec_collectives[row]; row++) {
    bool repeats = false;
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
  double slowest = hec_cluster_slowest(spread->problem->cluster, t->source, t->destination);
  return latency_s + (double)t->bytes / (double)n_chunks / slowest;
}

/* Leaves the bytes and delays of one stage on its links. A rank is entered once per expert and stage, so what a
 * forwarding transfer waits for is kept by rank. */
static void walk_stage(hec_spread *spread, const hec_transfer_list *stage, int32_t n_chunks, double *load,
                       double *delay) {
  const hec_cluster *cluster = spread->problem->cluster;
  for (size_t i = 0; i < stage->n; i++) {
    const hec_transfer *t = &stage->data[i];
    double latency_s = (double)hec_cluster_latency_ps(cluster, t->source, t->destination) * 1e-12, begin_s = 0;
    if (n_chunks > 1) {
      begin_s = t->after >= 0 ? spread->delay_of[t->source] : 0;
      spread->delay_of[t->destination] = begin_s + first_chunk_s(spread, t, latency_s, n_chunks);
    }
    const int32_t *route;
    int32_t n = hec_rank_links_route(spread->links, t->source, t->destination, &route);
    for (int32_t k = 0; k < n; k++) {
      load[route[k]] += (double)t->bytes;
      delay[route[k]] = larger(delay[route[k]], begin_s + latency_s);
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

/* The stages of one way of the pattern; they are zero so far. */
static void fill_way(hec_spread *spread, int32_t way, int32_t owner, const int32_t *receivers, int32_t n,
                     hec_spread_sum *item) {
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
  for (int32_t k = 0; k < spread->lowered.n_stages; k++) {
    size_t at = (size_t)slot_of(spread, way, k) * (size_t)spread->links->n_padded;
    walk_stage(spread, &spread->lowered.stage[k], spread->lowered.n_chunks, item->load + at, item->delay + at);
  }
}

void hec_spread_item(hec_spread *spread, int32_t owner, const int32_t *receivers, int32_t n, hec_spread_sum *item) {
  hec_spread_clear(spread, item);
  for (int32_t w = 0; w < spread->n_ways; w++)
    fill_way(spread, w, owner, receivers, n, item);
}

static size_t sum_length(const hec_spread *spread) {
  return (size_t)spread->n_stages * (size_t)spread->links->n_padded;
}

hec_spread_sum hec_spread_sum_new(hec_arena *arena, const hec_spread *spread) {
  return (hec_spread_sum){.load = HEC_NEW(arena, double, sum_length(spread)),
                          .delay = HEC_NEW(arena, double, sum_length(spread)),
                          .hint = HEC_NEW(arena, hec_spread_hint, 1)};
}

hec_spread_sum hec_spread_everywhere(const hec_spread *spread, int32_t owner) {
  size_t at = (size_t)owner * sum_length(spread);
  return (hec_spread_sum){spread->everywhere.load + at, spread->everywhere.delay + at, spread->everywhere.hint};
}

hec_spread hec_spread_new(hec_arena *arena, const hec_problem *problem, const hec_rank_links *links, double bytes,
                          bool scatter) {
  size_t ranks = (size_t)problem->n_ranks;
  hec_spread spread = {.problem = problem, .links = links, .bytes = (int64_t)bytes, .scatter = scatter};
  list_ways(&spread);
  spread.everywhere.hint = HEC_NEW(arena, hec_spread_hint, 1);
  spread.everywhere.load = HEC_NEW(arena, double, ranks *sum_length(&spread));
  spread.everywhere.delay = HEC_NEW(arena, double, ranks *sum_length(&spread));
  spread.everywhere_s = HEC_NEW(arena, double, ranks);
  spread.delay_of = HEC_NEW(arena, double, ranks);
  spread.owner = HEC_NEW(arena, int32_t, problem->n_experts);
  spread.everywhere_at = HEC_NEW(arena, int32_t, (size_t)problem->n_experts + 1);
  for (int32_t i = 0; i <= problem->n_experts; i++)
    spread.everywhere_at[i] = i * (problem->n_ranks - 1);
  for (int32_t k = 0; k < HEC_COLLECTIVE_STAGES_MAX;
       k++) { /* one expert: ranks - 1 transfers, twice that and counters to sort */
    spread.lowered.stage[k].capacity = 4 * ranks + 16;
    spread.lowered.stage[k].data = HEC_NEW(arena, hec_transfer, spread.lowered.stage[k].capacity);
  }
  int32_t *others = HEC_NEW(arena, int32_t, ranks);
  for (int32_t owner = 0; owner < problem->n_ranks; owner++) {
    int32_t n = 0;
    for (int32_t r = 0; r < problem->n_ranks; r++)
      if (r != owner)
        others[n++] = r;
    hec_spread_sum item = hec_spread_everywhere(&spread, owner);
    hec_spread_item(&spread, owner, others, n, &item);
    spread.everywhere_s[owner] = hec_spread_cost(&spread, &item);
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
}

void hec_spread_add(const hec_spread *spread, hec_spread_sum *sum, const hec_spread_sum *item) {
  add_part(sum, item, 0, sum_length(spread));
}

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

static double stage_with_s(const double *load, const double *delay, const double *more, const double *later,
                           const double *bandwidth, int32_t n) {
  double link_s[BLOCK], seconds = 0;
  for (int32_t begin = 0; begin < n; begin += BLOCK) {
    int32_t length = n - begin < BLOCK ? n - begin : BLOCK;
    for (int32_t l = 0; l < length; l++) {
      double start_s = delay[begin + l] > later[begin + l] ? delay[begin + l] : later[begin + l];
      link_s[l] = (load[begin + l] + more[begin + l]) / bandwidth[begin + l] + start_s;
    }
    seconds = largest(seconds, link_s, length);
  }
  return seconds;
}

/* The k-th way to look at: the cheapest of last time, then the others in order. */
static int32_t way_in_turn(const hec_spread_sum *sum, int32_t k) {
  int32_t first = sum->hint->way;
  return k == 0 ? first : k <= first ? k - 1 : k;
}

/* Cheapest so far; -1: none. An earlier way wins ties. */
typedef struct {
  int32_t way;
  double s;
} winner;

static bool beats(int32_t way, double way_s, winner best) {
  return best.way < 0 || way_s < best.s || (way_s == best.s && way < best.way);
}

static double way_s(const hec_spread *spread, int32_t way, const hec_spread_sum *sum, const hec_spread_sum *item) {
  size_t n = (size_t)spread->links->n_padded;
  const double *bandwidth = spread->links->bandwidth;
  double seconds = 0;
  for (int32_t k = spread->way_at[way]; k < spread->way_at[way + 1]; k++) {
    size_t at = (size_t)k * n;
    seconds +=
        item ? stage_with_s(sum->load + at, sum->delay + at, item->load + at, item->delay + at, bandwidth, (int32_t)n)
             : stage_s(sum->load + at, sum->delay + at, bandwidth, (int32_t)n);
  }
  return seconds;
}

/* Seconds of one link, the sum of `sum` and, unless NULL, `item`. */
static double link_s(const hec_spread *spread, int32_t stage, int32_t link, const hec_spread_sum *sum,
                     const hec_spread_sum *item) {
  size_t at = (size_t)stage * (size_t)spread->links->n_padded + (size_t)link;
  if (!item)
    return sum->load[at] / spread->links->bandwidth[link] + sum->delay[at];
  return (sum->load[at] + item->load[at]) / spread->links->bandwidth[link] + larger(sum->delay[at], item->delay[at]);
}

/* No more than way_s: the hinted link of every stage. */
static double min_way_s(const hec_spread *spread, int32_t way, const hec_spread_sum *sum, const hec_spread_sum *item) {
  double seconds = 0;
  for (int32_t k = spread->way_at[way]; k < spread->way_at[way + 1]; k++)
    seconds += link_s(spread, k, sum->hint->link[k], sum, item);
  return seconds;
}

static void note_busiest(const hec_spread *spread, int32_t way, const hec_spread_sum *sum, const hec_spread_sum *item) {
  for (int32_t k = spread->way_at[way]; k < spread->way_at[way + 1]; k++) {
    int32_t *busiest = &sum->hint->link[k];
    for (int32_t l = 0; l < spread->links->n_links; l++)
      if (link_s(spread, k, l, sum, item) > link_s(spread, k, *busiest, sum, item))
        *busiest = l;
  }
}

static double cheapest(const hec_spread *spread, const hec_spread_sum *sum, const hec_spread_sum *item) {
  winner best = {.way = -1};
  for (int32_t i = 0; i < spread->n_ways; i++) {
    int32_t w = way_in_turn(sum, i);
    if (i > 0 && !beats(w, min_way_s(spread, w, sum, item), best))
      continue;
    double seconds = way_s(spread, w, sum, item);
    if (beats(w, seconds, best))
      best = (winner){w, seconds};
    else
      note_busiest(spread, w, sum, item);
  }
  sum->hint->way = best.way;
  return best.s;
}

double hec_spread_cost(const hec_spread *spread, const hec_spread_sum *sum) {
  return cheapest(spread, sum, NULL);
}

double hec_spread_cost_with(const hec_spread *spread, const hec_spread_sum *sum, const hec_spread_sum *item) {
  return cheapest(spread, sum, item);
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
      hec_spread_sum pattern = hec_spread_everywhere(spread, sparse->owner[i]);
      load += pattern.load[at];
      delay = larger(delay, pattern.delay[at]);
    }
    seconds += load / spread->links->bandwidth[link] + delay;
  }
  return seconds;
}

/* The way's stages of the whole request into `sum`. */
static void sum_request(hec_spread *spread, int32_t way, const hec_sparse *sparse, hec_spread_sum *sum,
                        hec_spread_sum *item) {
  size_t n = (size_t)spread->links->n_padded;
  size_t at = (size_t)spread->way_at[way] * n, end = (size_t)spread->way_at[way + 1] * n;
  clear_part(sum, at, end);
  hec_spread_sum ready[4];
  int32_t n_ready = 0;
  for (int32_t i = 0; i < sparse->n_items; i++) {
    if (goes_everywhere(spread, sparse, i)) {
      ready[n_ready++] = hec_spread_everywhere(spread, sparse->owner[i]);
      if (n_ready == 4)
        add_four(sum, ready, at, end);
      n_ready %= 4;
      continue;
    }
    int32_t first = sparse->receiver_at[i];
    clear_part(item, at, end);
    fill_way(spread, way, sparse->owner[i], sparse->receiver + first, sparse->receiver_at[i + 1] - first, item);
    add_part(sum, item, at, end);
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
    sum_request(spread, w, &sparse, sum, sum);
    if (way_s(spread, w, sum, NULL) <= limit_s) {
      sum->hint->way = w;
      return true;
    }
    note_busiest(spread, w, sum, NULL);
  }
  return false;
}

const hec_collective *hec_spread_choose(hec_spread *spread, const hec_sparse *sparse, hec_spread_sum *sum,
                                        hec_spread_sum *item) {
  HEC_ASSERT(sparse->n_slices == 1 && sparse->bytes == spread->bytes);
  winner best = {.way = -1};
  for (int32_t i = 0; i < spread->n_ways; i++) {
    int32_t w = way_in_turn(sum, i);
    if (i > 0 && !beats(w, min_request_s(spread, w, sparse, sum), best))
      continue;
    sum_request(spread, w, sparse, sum, item);
    double seconds = way_s(spread, w, sum, NULL);
    if (beats(w, seconds, best))
      best = (winner){w, seconds};
    else
      note_busiest(spread, w, sum, NULL);
  }
  sum->hint->way = best.way;
  return hec_collectives[spread->way_row[best.way]];
}
