/* Price of a sparse collective, built up expert by expert. It is what hec_collective_choose would pay for a set of
 * experts, without making a transfer list for each set that a planner tries.
 *
 * Every row of the collective table treats experts independently. So the price of a set follows from two vectors per
 * stage, which add up over its experts:
 *
 *     load(l)  = bytes over link l (sum)        delay(l) = latest start, with latency, of a transfer over l (maximum)
 *     stage    = max over links of load(l) / bandwidth(l) + delay(l),   way = sum of its stages,   price = cheapest way
 *
 * which is the makespan of models/link_cost.h to the last bit: it too is a maximum over (transfer, link of its route).
 */
#pragma once
#include "runtime/plan/collective.h"
#include "runtime/plan/rank_links.h"

enum { HEC_SPREAD_WAYS_MAX = 8, HEC_SPREAD_STAGES_MAX = HEC_SPREAD_WAYS_MAX * HEC_COLLECTIVE_STAGES_MAX };

/* Where a comparison looks first. Results do not depend on it, only how soon they are found. */
typedef struct {
  int32_t way;                         /* the cheapest last time */
  int32_t link[HEC_SPREAD_STAGES_MAX]; /* the busiest link of the stage when its way last lost */
} hec_spread_hint;

/* The two vectors of a set of experts, all stages of all ways. */
typedef struct {
  double *load, *delay;  /* [n_stages * n_padded] */
  double *stage_s;       /* [n_stages] the largest over its links */
  hec_spread_hint *hint; /* written by comparisons */
} hec_spread_sum;

/* What one expert adds to a sum: the entries of its vectors that are not 0, by ascending stage. */
typedef struct {
  int32_t n;
  int32_t *at;          /* [n] */
  double *load, *delay; /* [n] */
} hec_spread_pattern;

/* Patterns made before, found again by owner and receivers; forgotten all at once when the memory is full. */
typedef struct {
  struct hec_spread_known *slot; /* [HEC_SPREAD_KNOWN] */
  uint64_t *receivers;           /* [HEC_SPREAD_KNOWN * n_words] of each */
  hec_spread_pattern entries;    /* [entries_max] of all of them; n: in use */
  int32_t entries_max;
} hec_spread_memo;
enum { HEC_SPREAD_KNOWN = 8192 };

typedef struct {
  const hec_problem *problem;
  const hec_rank_links *links;
  int64_t bytes;   /* of one expert */
  int32_t n_words; /* of a set of ranks (rank_set.h) */
  bool scatter;
  int32_t n_ways, n_stages;                /* different lowerings of the rows without relays; stages of all of them */
  double *bandwidth;                       /* [n_stages * n_padded] of each entry's link */
  int32_t way_at[HEC_SPREAD_WAYS_MAX + 1]; /* stages of way w: way_at[w] .. way_at[w + 1] - 1 */
  int32_t way_row[HEC_SPREAD_WAYS_MAX];    /* its row of hec_collectives */
  hec_spread_pattern *everywhere;          /* [n_ranks] an expert of that owner goes to all other ranks */
  hec_spread_sum everywhere_sum;           /* [n_ranks] vectors of the same */
  hec_spread_memo memo;
  hec_spread_sum made; /* scratch, zero between uses */
  int32_t *touched;    /* [n_touched] its entries that are not */
  int32_t n_touched;
  hec_spread_pattern
      *way_out;           /* [n_ranks] links that all routes from there to other nodes share (as `at`), latencies */
  double *everywhere_s;   /* [n_ranks] price of one of them alone */
  int32_t *everywhere_at; /* [n_experts + 1] offsets of receivers of experts that go everywhere */
  int32_t *owner;         /* scratch [n_experts] */
  int32_t *listed;        /* scratch [n_ranks] receivers of one expert */
  double *delay_of;       /* scratch [n_ranks] of one expert's chain */
  hec_collective_plan lowered; /* scratch for one expert, on the arena, large enough never to grow */
} hec_spread;

/* `bytes` of one expert's parameters (gather) or gradients (scatter). Patterns of every owner: O(ranks^2 * ways). */
hec_spread hec_spread_new(hec_arena *arena, const hec_problem *problem, const hec_rank_links *links, double bytes,
                          bool scatter);
hec_spread_sum hec_spread_sum_new(hec_arena *arena, const hec_spread *spread);

void hec_spread_clear(const hec_spread *spread, hec_spread_sum *sum);
/* O(pattern). */
void hec_spread_add(const hec_spread *spread, hec_spread_sum *sum, const hec_spread_pattern *pattern);
/* Pattern of an expert of `owner` that goes to the set `receivers` (without the owner); good until the next one. */
hec_spread_pattern hec_spread_item(hec_spread *spread, int32_t owner, const uint64_t *receivers);

double hec_spread_cost(const hec_spread *spread, const hec_spread_sum *sum); /* O(stages) */
/* With one pattern more: O(pattern). */
double hec_spread_cost_with(const hec_spread *spread, const hec_spread_sum *sum, const hec_spread_pattern *pattern);
/* No more than the price of a gather with one expert of `owner` more, some of whose receivers are on other nodes. O(ways). */
double hec_spread_cost_out(const hec_spread *spread, const hec_spread_sum *sum, int32_t owner);
/* Whether the experts expert[0..n) with owners home[expert], all to all other ranks, cost at most `limit_s`: a
 * comparison needs fewer prices than a price does. `sum` is scratch, no sum afterwards until cleared. */
bool hec_spread_fits(hec_spread *spread, const int32_t *expert, const int32_t *home, int32_t n, double limit_s,
                     hec_spread_sum *sum);
/* The row that hec_collective_choose would take for `sparse` (whole items of spread->bytes), without lowering it with
 * every row. `sum` likewise. */
const hec_collective *hec_spread_choose(hec_spread *spread, const hec_sparse *sparse, hec_spread_sum *sum);
