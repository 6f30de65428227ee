/* Patterns are made by the rows of the collective table themselves: one expert is lowered, its transfers walked, bytes
 * and delays left on the links. A later change of a row changes the price with it. Adding or pricing a pattern costs
 * O(stages * links), branch-free over contiguous vectors. */
#include "runtime/plan/spread_cost.h"

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
  const int32_t *route;
  int32_t n = hec_rank_links_route(spread->links, t->source, t->destination, &route);
  double slowest = spread->links->bandwidth[route[0]];
  for (int32_t i = 1; i < n; i++)
    slowest = spread->links->bandwidth[route[i]] < slowest ? spread->links->bandwidth[route[i]] : slowest;
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

void hec_spread_item(hec_spread *spread, int32_t owner, const int32_t *receivers, int32_t n, hec_spread_sum *item) {
  int32_t expert = 0, receiver_at[2] = {0, n};
  hec_sparse sparse = {.n_items = 1,
                       .n_slices = 1,
                       .expert = &expert,
                       .owner = &owner,
                       .receiver_at = receiver_at,
                       .receiver = (int32_t *)receivers,
                       .bytes = spread->bytes};
  hec_spread_clear(spread, item);
  for (int32_t w = 0; w < spread->n_ways; w++) {
    lower_of(spread, spread->way_row[w])(spread->problem, &sparse, &spread->lowered);
    HEC_ASSERT(spread->lowered.n_stages <= spread->way_at[w + 1] - spread->way_at[w]);
    for (int32_t k = 0; k < spread->lowered.n_stages; k++) {
      size_t at = (size_t)slot_of(spread, w, k) * (size_t)spread->links->n_padded;
      walk_stage(spread, &spread->lowered.stage[k], spread->lowered.n_chunks, item->load + at, item->delay + at);
    }
  }
}

static size_t sum_length(const hec_spread *spread) {
  return (size_t)spread->n_stages * (size_t)spread->links->n_padded;
}

hec_spread_sum hec_spread_sum_new(hec_arena *arena, const hec_spread *spread) {
  return (hec_spread_sum){HEC_NEW(arena, double, sum_length(spread)), HEC_NEW(arena, double, sum_length(spread))};
}

hec_spread_sum hec_spread_everywhere(const hec_spread *spread, int32_t owner) {
  size_t at = (size_t)owner * sum_length(spread);
  return (hec_spread_sum){spread->everywhere.load + at, spread->everywhere.delay + at};
}

hec_spread hec_spread_new(hec_arena *arena, const hec_problem *problem, const hec_rank_links *links, double bytes,
                          bool scatter) {
  size_t ranks = (size_t)problem->n_ranks;
  hec_spread spread = {.problem = problem, .links = links, .bytes = (int64_t)bytes, .scatter = scatter};
  list_ways(&spread);
  spread.everywhere.load = HEC_NEW(arena, double, ranks *sum_length(&spread));
  spread.everywhere.delay = HEC_NEW(arena, double, ranks *sum_length(&spread));
  spread.everywhere_s = HEC_NEW(arena, double, ranks);
  spread.delay_of = HEC_NEW(arena, double, ranks);
  for (int32_t k = 0; k < HEC_STAGES_MAX; k++) { /* one expert: ranks - 1 transfers, twice that and counters to sort */
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

void hec_spread_clear(const hec_spread *spread, hec_spread_sum *sum) {
  memset(sum->load, 0, sum_length(spread) * sizeof *sum->load);
  memset(sum->delay, 0, sum_length(spread) * sizeof *sum->delay);
}

void hec_spread_add(const hec_spread *spread, hec_spread_sum *sum, const hec_spread_sum *item) {
  size_t n = sum_length(spread);
  double *restrict load = sum->load, *restrict delay = sum->delay;
  for (size_t i = 0; i < n; i++) {
    load[i] += item->load[i];
    delay[i] = delay[i] > item->delay[i] ? delay[i] : item->delay[i];
  }
}

/* Links are priced a block at a time into `link_s`, then the largest is taken: of the two loops the first, with its
 * divisions, becomes vector code (a maximum over all would not, since compilers may not reorder it). */
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

/* The cheapest way; its row into *row unless NULL. */
static double cheapest(const hec_spread *spread, const hec_spread_sum *sum, const hec_spread_sum *item, int32_t *row) {
  int32_t n = spread->links->n_padded, best = 0;
  const double *bandwidth = spread->links->bandwidth;
  double best_s = 0;
  for (int32_t w = 0; w < spread->n_ways; w++) {
    double way_s = 0;
    for (int32_t k = spread->way_at[w]; k < spread->way_at[w + 1]; k++) {
      size_t at = (size_t)k * (size_t)n;
      way_s += item ? stage_with_s(sum->load + at, sum->delay + at, item->load + at, item->delay + at, bandwidth, n)
                    : stage_s(sum->load + at, sum->delay + at, bandwidth, n);
    }
    if (w > 0 && way_s >= best_s)
      continue;
    best = w;
    best_s = way_s;
  }
  if (row)
    *row = spread->way_row[best];
  return best_s;
}

double hec_spread_cost(const hec_spread *spread, const hec_spread_sum *sum) {
  return cheapest(spread, sum, NULL, NULL);
}

double hec_spread_cost_with(const hec_spread *spread, const hec_spread_sum *sum, const hec_spread_sum *item) {
  return cheapest(spread, sum, item, NULL);
}

const hec_collective *hec_spread_choose(hec_spread *spread, const hec_sparse *sparse, hec_spread_sum *sum,
                                        hec_spread_sum *item) {
  HEC_ASSERT(sparse->n_slices == 1 && sparse->bytes == spread->bytes);
  hec_spread_clear(spread, sum);
  for (int32_t i = 0; i < sparse->n_items; i++) {
    int32_t n = sparse->receiver_at[i + 1] - sparse->receiver_at[i];
    hec_spread_sum pattern = *item;
    if (n == spread->problem->n_ranks - 1)
      pattern = hec_spread_everywhere(spread, sparse->owner[i]);
    else
      hec_spread_item(spread, sparse->owner[i], sparse->receiver + sparse->receiver_at[i], n, item);
    hec_spread_add(spread, sum, &pattern);
  }
  int32_t row;
  (void)cheapest(spread, sum, NULL, &row);
  return hec_collectives[row];
}
