/* Two passes over the cells, each a counting sort by what the row is keyed with. */
#include "runtime/exec/rows/rows.h"

/* What both passes know. Slots are (chunk, peer), shelves (chunk, expert, member). */
typedef struct {
  const hec_rows_cells *of;
  int32_t rank, n;     /* n: cells of a chunk */
  int32_t *shelf_at;   /* [degree * n_experts * esp + 1] computed rows; while placing: the next one */
  int32_t *row, *left; /* [n_slots] the next assigned row, and run, that leaves */
  int32_t *came;       /* [n_slots] the next run that arrives */
  int32_t *assignment; /* [n] the next one of the cell, of this rank's own */
  int32_t stay;        /* the next assigned row that stays */
} pass;

/* Of cell i. */
static int32_t shelf_of(const pass *p, int32_t i) {
  const hec_cell *c = &p->of->cells[i];
  return (i / p->n * p->of->n_experts + c->expert) * p->of->esp + c->rank % p->of->esp;
}

/* Whether this rank computes the cell's rows: they arrived in its group. */
static bool computes(const pass *p, const hec_cell *c) {
  return c->rank / p->of->esp == p->rank / p->of->esp;
}

static void count(const pass *p, hec_rows *rows) {
  for (int32_t i = 0; i < p->of->n_cells; i++) {
    const hec_cell *c = &p->of->cells[i];
    int32_t slots = i / p->n * p->of->n_ranks;
    if (c->rows == 0)
      continue;
    if (c->source == p->rank) {
      rows->n_assigned += c->rows;
      if (c->rank != p->rank) {
        rows->leaving_at[slots + c->rank + 1] += c->rows;
        rows->leave.at[slots + c->rank + 1]++;
      }
    }
    if (computes(p, c)) {
      rows->n_computed += c->rows;
      p->shelf_at[shelf_of(p, i) + 1] += c->rows;
    }
    if (c->rank == p->rank && c->source != p->rank)
      rows->arrive.at[slots + c->source + 1]++;
  }
}

static void accumulate(int32_t *at, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    at[i + 1] += at[i];
}

/* Where the next of each slot goes. */
static int32_t *fill(hec_arena *arena, const int32_t *at, int32_t n) {
  int32_t *next = HEC_NEW(arena, int32_t, n);
  for (int32_t i = 0; i < n; i++)
    next[i] = at[i];
  return next;
}

/* Which assignment of this rank each of its cells begins with: a cell's rows are those of all its chunks. */
static int32_t *assignments(hec_arena *arena, const pass *p) {
  int32_t *first = HEC_NEW(arena, int32_t, p->n), next = 0;
  for (int32_t i = 0; i < p->n; i++) {
    first[i] = next;
    for (int32_t c = 0; p->of->cells[i].source == p->rank && c < p->of->degree; c++)
      next += p->of->cells[c * p->n + i].rows;
  }
  return first;
}

static void allocate(hec_rows *rows, hec_arena *arena) {
  rows->place = HEC_NEW(arena, int32_t, rows->n_assigned);
  rows->stays = HEC_NEW(arena, int32_t, rows->n_assigned);
  rows->leave.n = rows->leave.at[rows->n_slots];
  rows->leave.run = HEC_NEW(arena, hec_rows_run, rows->leave.n);
  rows->arrive.n = rows->arrive.at[rows->n_slots];
  rows->arrive.run = HEC_NEW(arena, hec_rows_run, rows->arrive.n);
}

/* One cell of one chunk, in the order of the program: computed rows of an expert fill up by source. */
static void put(pass *p, hec_rows *rows, int32_t i) {
  const hec_cell *c = &p->of->cells[i];
  int32_t slots = i / p->n * p->of->n_ranks, to = slots + c->rank, from = slots + c->source;
  int32_t *computed = &p->shelf_at[shelf_of(p, i)], *assignment = &p->assignment[i % p->n];
  if (c->rows == 0)
    return;
  if (c->rank == p->rank && c->source != p->rank)
    rows->arrive.run[p->came[from]++] = (hec_rows_run){c->source, c->expert, *computed, c->rows};
  if (c->source == p->rank && c->rank != p->rank)
    rows->leave.run[p->left[to]++] = (hec_rows_run){c->rank, c->expert, p->row[to], c->rows};
  for (int32_t k = 0; c->source == p->rank && k < c->rows; k++, (*assignment)++) {
    rows->place[*assignment] = c->rank == p->rank ? p->stay++ : p->row[to]++;
    rows->stays[*assignment] = c->rank == p->rank ? *computed + k : -1;
  }
  if (computes(p, c))
    *computed += c->rows;
}

hec_rows hec_rows_make(hec_arena *arena, const hec_rows_cells *of, int32_t rank) {
  int32_t n_slots = of->degree * of->n_ranks, n_shelves = of->degree * of->n_experts * of->esp;
  hec_rows rows = {.n_ranks = of->n_ranks,
                   .n_slots = n_slots,
                   .leaving_at = HEC_NEW(arena, int32_t, n_slots + 1),
                   .computed_at = HEC_NEW(arena, int32_t, of->degree + 1),
                   .leave = {.at = HEC_NEW(arena, int32_t, n_slots + 1)},
                   .arrive = {.at = HEC_NEW(arena, int32_t, n_slots + 1)}};
  pass p = {.of = of, .rank = rank, .n = of->n_cells / of->degree, .shelf_at = HEC_NEW(arena, int32_t, n_shelves + 1)};
  count(&p, &rows);
  accumulate(p.shelf_at, n_shelves);
  accumulate(rows.leaving_at, n_slots);
  accumulate(rows.leave.at, n_slots);
  accumulate(rows.arrive.at, n_slots);
  for (int32_t c = 0; c <= of->degree; c++)
    rows.computed_at[c] = p.shelf_at[c * of->n_experts * of->esp];
  rows.shelf_at = fill(arena, p.shelf_at, n_shelves + 1);
  allocate(&rows, arena);
  p.row = fill(arena, rows.leaving_at, n_slots);
  p.left = fill(arena, rows.leave.at, n_slots);
  p.came = fill(arena, rows.arrive.at, n_slots);
  p.stay = rows.leaving_at[n_slots];
  p.assignment = assignments(arena, &p);
  for (int32_t i = 0; i < of->n_cells; i++)
    put(&p, &rows, i);
  return rows;
}
