/* When a layer ends, for planners that ask "what if". Given is who holds which expert and what each source sends. From
 * that follow the split of tokens over holders, and the predicted time of the layer on the critical path under a
 * schedule (hiding.h). Prices are those of the simulator's law `alpha_beta`: link_cost.h for tokens, compute_cost.h for
 * experts, part_lanes.h for copies.
 *
 *   D        the dispatch of the split, E, E' the busiest rank's experts, forward and backward, A the layer's attention and gate
 *   tokens   2 D + E; in chunks at best min over r of max(2 D, 2 D/r + E)             (degree.h)
 *            once per node: D of one row for all assignments of a token to a node      (an estimate, see layer_end.c)
 *   forward  F = A + tokens + late gather + what of the early gather outlasts its window
 *   backward B = 2 A + tokens',  lane = returned gradients + replicas + the layer's own gradients + its
 *            part of the head's, which come first
 *   end      F + max(B, lane) + O   where returns hide; else F + B + lane + O; O: the optimizer of the fullest rank's homes and
 *                                   residents
 *
 * Windows: a schedule that hides copies beside a layer has F for the gather and B for the returns. In the first layer
 * the gather has A and D alone. Backward comes to the first layer last: its returns have B less the lane, since the
 * second's are on it too. Beside attention the windows are A and 2 A. Between the layers of a pass windows are taken
 * as equal. What ranks wait for each other beyond the busiest, and network shared by lanes, is left out.
 *
 * A split is made in two steps. First, each source's tokens go to itself, otherwise evenly to the holders of its node,
 * otherwise to all. Then, if wanted, they are split so that the busiest rank has least (min_max.h). Tokens keep to
 * their own rank and node as far as the loads allow. */
#pragma once
#include "models/compute_cost.h"
#include "models/link_cost.h"
#include "runtime/plan/hiding.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/planners/min_max.h"
#include "runtime/plan/planners/part_lanes.h"
#include "runtime/plan/planners/work_memo.h"
#include "runtime/plan/quota.h"

/* Who holds an expert, and since when. */
typedef enum {
  HEC_HELD_NOT,
  HEC_HELD_HOME,
  HEC_HELD_RESIDENT,
  HEC_HELD_EARLY, /* a guest that is gathered before the gate */
  HEC_HELD_LATE,  /* after it */
} hec_held;

typedef struct {
  double travel_s, forward_s, backward_s; /* D, E, E' */
  double early_s, late_s, return_s, replicas_s;
  double end_s;
} hec_layer_times;

typedef struct {
  const hec_problem *problem;
  hec_hiding hides;
  bool regathers;      /* guests are gathered again in backward, in its own window; set after new */
  double head_s;       /* a layer's part of the head's all-reduce, before it on the gradient lane; likewise */
  hec_link_cost *link; /* the caller's, set before use */
  int32_t n_ranks, n_experts;
  hec_work_memo forward, backward; /* of experts */
  /* The layer. */
  int32_t layer;
  uint32_t *counts;   /* [n_experts * n_ranks] tokens of the sources */
  uint8_t *held;      /* [n_experts * n_ranks] hec_held */
  int32_t *n_held;    /* [n_experts] holders */
  int32_t *home;      /* [n_experts] */
  uint32_t *total;    /* [n_experts] */
  uint32_t *tokens;   /* [n_experts * n_ranks] of the split: computed on the rank */
  uint64_t *load;     /* [n_ranks] their sums */
  int32_t *n_guests;  /* [n_ranks] */
  double replicas_s;  /* of the residents */
  double optimizer_s; /* of homes and residents, the fullest rank's */
  double own_s;       /* reducing the layer's own gradients */
  double even_s;      /* the dispatch where every rank sends every rank as much; < 0: not yet known */
  hec_part_lanes early, late, all;
  uint64_t units; /* inner steps since the layer began */
  /* Scratch. */
  hec_min_max split;
  hec_transfer *transfers; /* [n_ranks * n_ranks] */
  uint32_t *pair;          /* [n_ranks * n_ranks] tokens on d of source s, by d; of a rank's own: undefined */
  int32_t *rows, *n_rows;  /* [n_ranks * n_experts], [n_ranks] */
  double *busy;            /* [2 * n_ranks] seconds of experts, forward and backward */
  int32_t *holder;         /* [n_ranks] of one expert, ascending */
  uint64_t *left;          /* [n_ranks] what it still takes */
  uint32_t *part;          /* [n_ranks * n_ranks] of source s at holder h */
  uint32_t *rest;          /* [n_ranks] of a source's tokens, those without a place */
} hec_layer_end;

/* The layer's guests and its split, to come back to. */
typedef struct {
  uint8_t *held;
  int32_t *n_held, *n_guests;
  uint32_t *tokens;
  uint64_t *load;
  hec_part_lanes early, all;
} hec_layer_kept;

hec_layer_kept hec_layer_kept_new(hec_arena *arena, const hec_problem *problem);
/* Before any late guest. The layer's tokens are gone afterwards, until they are split or taken back. What is taken back
 * is kept no longer. O(experts * ranks), in whole arrays. */
void hec_layer_end_keep(hec_layer_end *end, hec_layer_kept *kept);
void hec_layer_end_take_back(hec_layer_end *end, hec_layer_kept *kept);
/* Of that the split alone. O(ranks). */
void hec_layer_end_keep_split(hec_layer_end *end, hec_layer_kept *kept);
void hec_layer_end_take_back_split(hec_layer_end *end, hec_layer_kept *kept);

hec_layer_end hec_layer_end_new(hec_arena *arena, const hec_problem *problem, hec_hiding hides);

/* Homes and residents of the plan, and its guests as early ones; no split yet. O(experts * ranks). */
void hec_layer_end_set(hec_layer_end *end, const hec_plan *plan, int32_t layer, const uint32_t *counts);
/* Only homes home[e]; residents resident[e * n_ranks + r] (NULL: none). */
void hec_layer_end_place(hec_layer_end *end, int32_t layer, const uint32_t *counts, const int32_t *home,
                         const uint8_t *resident);
/* One holder more, or, with HEC_HELD_NOT, a guest less. O(nodes). */
void hec_layer_end_hold(hec_layer_end *end, int32_t expert, int32_t rank, hec_held held);
/* Of one expert, every rank that has it as `from` has it as `to` then: one of them is HEC_HELD_NOT. O(ranks). */
void hec_layer_end_hold_all(hec_layer_end *end, int32_t expert, hec_held from, hec_held to);

void hec_layer_end_split(hec_layer_end *end);   /* plainly; O(experts * ranks) */
void hec_layer_end_balance(hec_layer_end *end); /* from there; min_max.h */
/* No later than any split and any guests end the layer: nothing travels, and all ranks compute the mean. O(ranks). */
double hec_layer_end_min(hec_layer_end *end);
/* About the soonest end that a split could have with the guests as they are: what may be worth a split. The dispatch
 * would take `share` of what it does in `times`, and the busiest rank would compute the mean. O(ranks + nodes). */
double hec_layer_end_hope(const hec_layer_end *end, const hec_layer_times *times, double share);
/* Of the split. O(experts * ranks). */
hec_layer_times hec_layer_end_times(hec_layer_end *end);
/* About the end with other guests and a busiest rank of `max` instead of `before` tokens, for choosing among many.
 * Experts and dispatch take so much less, the latter no less than where all ranks exchange alike. O(ranks). */
double hec_layer_end_with(const hec_layer_end *end, const hec_layer_times *times, uint64_t before, uint64_t max);
/* Writes the split as the layer's quotas. O(experts * ranks). */
void hec_layer_end_quotas(hec_layer_end *end, hec_quota_writer *writer);

/* Between layer_end.c and layer_split.c, which has the splits. */
static inline uint8_t *hec_layer_held_of(const hec_layer_end *end, int32_t expert) {
  return end->held + (size_t)expert * (size_t)end->n_ranks;
}

static inline uint32_t *hec_layer_tokens_of(const hec_layer_end *end, int32_t expert) {
  return end->tokens + (size_t)expert * (size_t)end->n_ranks;
}

static inline const uint32_t *hec_layer_counts_of(const hec_layer_end *end, int32_t expert) {
  return end->counts + (size_t)expert * (size_t)end->n_ranks;
}

/* The holders into end->holder, ascending: their number. O(ranks), of one holder O(1). */
int32_t hec_layer_list_holders(const hec_layer_end *end, int32_t expert);
static inline int32_t hec_layer_holders(const hec_layer_end *end, int32_t expert) {
  if (end->n_held[expert] > 1)
    return hec_layer_list_holders(end, expert);
  end->holder[0] = end->home[expert];
  return 1;
}
/* Every source keeps its own tokens of the expert. */
bool hec_layer_all_stay(const hec_layer_end *end, int32_t expert);
/* Which source's tokens go to which of the n listed holders, of the split's tokens: own rank, own node, anywhere, in the
 * order of ranks. Adds to to[holder * n_ranks + source], but for what stays on its rank. */
void hec_layer_trace(hec_layer_end *end, int32_t expert, int32_t n, uint32_t *to);
