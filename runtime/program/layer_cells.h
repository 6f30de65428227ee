/* Where the tokens of a layer go, and who has cut them into chunks (chunks.c). Lowerings of one policy under several
 * schedules have it together: it follows from the plan and the load, not from the schedule. */
#pragma once
#include "runtime/program/emit.h"

/* Of one layer, until hec_layer_cells_clear. */
typedef struct {
  hec_cell *cells; /* [n] by source, expert, rank */
  size_t n, capacity;
  bool there;
  const hec_lowering *by[HEC_DEGREE_MAX + 1]; /* whose program has the layer cut into so many on the plain route */
  double work_s[HEC_DEGREE_MAX + 1][HEC_N_TOKEN_ROUTES]; /* hec_token_work_s of such a cut; 0: not known */
  int32_t *split_rank;                                   /* scratch [2 * n_ranks + copies of a layer] */
  uint32_t *split_tokens;                                /* likewise */
  uint32_t *pair; /* scratch [n_ranks * n_ranks * HEC_DEGREE_MAX], zero between uses */
  uint32_t *rows; /* scratch [n_ranks * n_experts * HEC_DEGREE_MAX], likewise */
} hec_layer_cells;

hec_layer_cells hec_layer_cells_new(const hec_problem *problem, const hec_plan *plan, hec_arena *arena);
void hec_layer_cells_clear(hec_layer_cells *of); /* another layer, or micro-batch */
void hec_layer_cells_free(hec_layer_cells *of);
/* The assignments of the layer that is lowered, each on the rank that computes it. Valid until the layer ends. */
const hec_layer_cells *hec_layer_cells_of(hec_lowering *low, int32_t layer);
