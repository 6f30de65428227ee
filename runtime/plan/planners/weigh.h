/* How many of the t hottest experts are worth a copy everywhere (not in the paper, which copies all t):
 *
 *     T(k) = end of the layer (hec_calibrate_end_s) with the k hottest experts on every rank, on the window's mean load,
 *            every source alike; of their gather only what outlasts the window counts
 *     k    = the smallest of those with the min T, 0 <= k <= t
 *
 * Copies of the hottest alone can make a layer end later. Their tokens leave the owners of hot experts and come to all
 * ranks alike. Some of these own cold experts and have all of theirs. With balanced loads, half of the experts copied,
 * that is half as much again as the mean on the owners of the other half. k = 0 copies nothing, so the layer never ends
 * later than without copies, as far as the model can tell.
 *
 * Beyond m copies a rank (m < k <= t: places by Algorithm 1, which are not nested) t, t/2, t/4, ... are tried.
 * O(experts * (ranks * route + cells)) to begin, O(cells + ranks) for each k up to m. */
#pragma once
#include "runtime/plan/planners/calibrate.h"
#include "runtime/plan/planners/fssdp.h"

typedef struct {
  hec_calibrate *calibrate; /* its model, prices and scratch are used between calibrations */
  hec_fssdp *fssdp;
  const double **sent; /* [n_experts] of each source, of the mean load: hec_layer_model_send */
  double *rank_s;      /* [2 * n_ranks] work, forward, then backward */
  hec_spread_sum gathered, returned;
} hec_weigh;

hec_weigh hec_weigh_new(hec_arena *arena, hec_calibrate *calibrate, hec_fssdp *fssdp);

/* A layer: sums of `records` records, experts by descending load. */
typedef struct {
  const uint64_t *load;
  const int32_t *order;
  int32_t layer, records, t, m;
} hec_weigh_case;
/* Copies the k hottest experts of the layer (hec_fssdp_materialise) and returns k; inner steps are added to *units. */
int32_t hec_weigh_layer(hec_weigh *weigh, hec_plan *plan, const hec_weigh_case *of, uint64_t *units);
