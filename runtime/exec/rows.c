/* Four passes over the cells, each a counting sort by what the row is keyed with. */
#include "runtime/exec/rows.h"

static void count(hec_rows *rows, const hec_cell *cells, int32_t n_cells, int32_t rank, int32_t *computed_at) {
  for (int32_t i = 0; i < n_cells; i++) {
    const hec_cell *c = &cells[i];
    if (c->source == rank) {
      rows->n_assigned += c->rows;
      if (c->rank != rank)
        rows->leaving_at[c->rank + 1] += c->rows;
    }
    if (c->rank == rank) {
      rows->n_computed += c->rows;
      computed_at[c->expert + 1] += c->rows;
      if (c->source != rank) {
        rows->runs_at[c->source + 1]++;
        rows->n_runs++;
      }
    }
  }
}

static void accumulate(int32_t *at, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    at[i + 1] += at[i];
}

hec_rows hec_rows_make(hec_arena *arena, const hec_cell *cells, int32_t n_cells, int32_t n_experts, int32_t n_ranks,
                       int32_t rank) {
  hec_rows rows = {.n_ranks = n_ranks,
                   .leaving_at = HEC_NEW(arena, int32_t, n_ranks + 1),
                   .runs_at = HEC_NEW(arena, int32_t, n_ranks + 1)};
  int32_t *computed_at = HEC_NEW(arena, int32_t, n_experts + 1), *leave = HEC_NEW(arena, int32_t, n_ranks + 1);
  count(&rows, cells, n_cells, rank, computed_at);
  accumulate(computed_at, n_experts);
  accumulate(rows.leaving_at, n_ranks);
  accumulate(rows.runs_at, n_ranks);
  rows.place = HEC_NEW(arena, int32_t, rows.n_assigned);
  rows.stays = HEC_NEW(arena, int32_t, rows.n_assigned);
  rows.runs = HEC_NEW(arena, hec_rows_run, rows.n_runs);
  int32_t *filled = HEC_NEW(arena, int32_t, n_ranks + 1);
  int32_t stay = rows.leaving_at[n_ranks], assignment = 0;
  for (int32_t r = 0; r < n_ranks; r++) {
    leave[r] = rows.leaving_at[r];
    filled[r] = rows.runs_at[r];
  }
  for (int32_t i = 0; i < n_cells; i++) { /* sources ascending: computed rows of an expert fill up by source */
    const hec_cell *c = &cells[i];
    if (c->rank == rank && c->source != rank)
      rows.runs[filled[c->source]++] = (hec_rows_run){c->source, c->expert, computed_at[c->expert], c->rows};
    for (int32_t k = 0; c->source == rank && k < c->rows; k++, assignment++) {
      rows.place[assignment] = c->rank == rank ? stay++ : leave[c->rank]++;
      rows.stays[assignment] = c->rank == rank ? computed_at[c->expert] + k : -1;
    }
    if (c->rank == rank)
      computed_at[c->expert] += c->rows;
  }
  return rows;
}
