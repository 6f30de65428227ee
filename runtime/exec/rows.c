/* Four passes over the cells, each a counting sort by what the row is keyed with. */
#include "runtime/exec/rows.h"

static void count(hec_rows *rows, const hec_cell *cells, int32_t n_cells, int32_t rank, int32_t *computed_at) {
  for (int32_t i = 0; i < n_cells; i++) {
    const hec_cell *c = &cells[i];
    if (c->source == rank) {
      rows->n_assigned += c->rows;
      if (c->rank != rank) {
        rows->leaving_at[c->rank + 1] += c->rows;
        rows->leave.at[c->rank + 1]++;
      }
    }
    if (c->rank == rank) {
      rows->n_computed += c->rows;
      computed_at[c->expert + 1] += c->rows;
      if (c->source != rank)
        rows->arrive.at[c->source + 1]++;
    }
  }
}

static void accumulate(int32_t *at, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    at[i + 1] += at[i];
}

/* Where the next of each peer goes. */
static int32_t *fill(hec_arena *arena, const int32_t *at, int32_t n) {
  int32_t *next = HEC_NEW(arena, int32_t, n);
  for (int32_t i = 0; i < n; i++)
    next[i] = at[i];
  return next;
}

static void allocate(hec_rows *rows, hec_arena *arena) {
  rows->place = HEC_NEW(arena, int32_t, rows->n_assigned);
  rows->stays = HEC_NEW(arena, int32_t, rows->n_assigned);
  rows->leave.n = rows->leave.at[rows->n_ranks];
  rows->leave.run = HEC_NEW(arena, hec_rows_run, rows->leave.n);
  rows->arrive.n = rows->arrive.at[rows->n_ranks];
  rows->arrive.run = HEC_NEW(arena, hec_rows_run, rows->arrive.n);
}

hec_rows hec_rows_make(hec_arena *arena, const hec_cell *cells, int32_t n_cells, int32_t n_experts, int32_t n_ranks,
                       int32_t rank) {
  hec_rows rows = {.n_ranks = n_ranks,
                   .leaving_at = HEC_NEW(arena, int32_t, n_ranks + 1),
                   .leave = {.at = HEC_NEW(arena, int32_t, n_ranks + 1)},
                   .arrive = {.at = HEC_NEW(arena, int32_t, n_ranks + 1)}};
  int32_t *computed_at = HEC_NEW(arena, int32_t, n_experts + 1);
  count(&rows, cells, n_cells, rank, computed_at);
  accumulate(computed_at, n_experts);
  accumulate(rows.leaving_at, n_ranks);
  accumulate(rows.leave.at, n_ranks);
  accumulate(rows.arrive.at, n_ranks);
  allocate(&rows, arena);
  int32_t *row = fill(arena, rows.leaving_at, n_ranks), *leave = fill(arena, rows.leave.at, n_ranks);
  int32_t *arrive = fill(arena, rows.arrive.at, n_ranks);
  int32_t stay = rows.leaving_at[n_ranks], assignment = 0;
  for (int32_t i = 0; i < n_cells; i++) { /* sources ascending: computed rows of an expert fill up by source */
    const hec_cell *c = &cells[i];
    if (c->rank == rank && c->source != rank)
      rows.arrive.run[arrive[c->source]++] = (hec_rows_run){c->source, c->expert, computed_at[c->expert], c->rows};
    if (c->source == rank && c->rank != rank)
      rows.leave.run[leave[c->rank]++] = (hec_rows_run){c->rank, c->expert, row[c->rank], c->rows};
    for (int32_t k = 0; c->source == rank && k < c->rows; k++, assignment++) {
      rows.place[assignment] = c->rank == rank ? stay++ : row[c->rank]++;
      rows.stays[assignment] = c->rank == rank ? computed_at[c->expert] + k : -1;
    }
    if (c->rank == rank)
      computed_at[c->expert] += c->rows;
  }
  return rows;
}
