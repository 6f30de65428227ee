/* Cells come by (chunk, source, expert, rank). A stable counting sort by rank brings them into the order of ALIGNED
 * within a chunk. One by source after that brings them into the order of RELAYED. */
#include "runtime/exec/rows/relays.h"

typedef struct {
  const hec_rows_cells *of;
  const hec_token_route *route;
  const hec_problem *problem;
  int32_t rank;
} passing;

static bool passes(const passing *p, const hec_cell *c) {
  if (c->rows == 0 || c->source == c->rank || c->source == p->rank || c->rank == p->rank)
    return false;
  return p->route->relay(p->problem, c->source, c->rank) == p->rank;
}

static int32_t *count_chunks(hec_arena *arena, const passing *p) {
  int32_t *at = HEC_NEW(arena, int32_t, p->of->degree + 1), n = p->of->n_cells / p->of->degree;
  for (int32_t c = 0; c < p->of->degree; c++) {
    at[c + 1] = at[c];
    for (int32_t i = c * n; i < (c + 1) * n; i++)
      at[c + 1] += passes(p, &p->of->cells[i]);
  }
  return at;
}

/* The first of each key's among n, from their numbers in next[key + 1]. */
static void add_up(int32_t *next, int32_t n_keys) {
  for (int32_t k = 0; k < n_keys; k++)
    next[k + 1] += next[k];
}

/* The runs of chunk c, in the order of ALIGNED. */
static void sort_by_rank(const passing *p, hec_relays *relays, int32_t c, int32_t *next) {
  int32_t n = p->of->n_cells / p->of->degree, n_ranks = p->of->n_ranks, row = 0;
  const hec_cell *cells = p->of->cells + (ptrdiff_t)c * n;
  for (int32_t k = 0; k <= n_ranks; k++)
    next[k] = 0;
  for (int32_t i = 0; i < n; i++)
    if (passes(p, &cells[i]))
      next[cells[i].rank + 1]++;
  add_up(next, n_ranks);
  for (int32_t i = 0; i < n; i++)
    if (passes(p, &cells[i]))
      relays->run[relays->at[c] + next[cells[i].rank]++] =
          (hec_relay_run){cells[i].source, cells[i].rank, cells[i].expert, cells[i].rows, 0, 0};
  for (int32_t i = relays->at[c]; i < relays->at[c + 1]; row += relays->run[i++].rows)
    relays->run[i].aligned = row;
}

/* And in that of RELAYED. */
static void sort_by_source(const passing *p, hec_relays *relays, int32_t c, int32_t *next) {
  int32_t n_ranks = p->of->n_ranks, row = 0;
  for (int32_t k = 0; k <= n_ranks; k++)
    next[k] = 0;
  for (int32_t i = relays->at[c]; i < relays->at[c + 1]; i++)
    next[relays->run[i].source + 1]++;
  add_up(next, n_ranks);
  for (int32_t i = relays->at[c]; i < relays->at[c + 1]; i++)
    relays->by_source[relays->at[c] + next[relays->run[i].source]++] = i;
  for (int32_t k = relays->at[c]; k < relays->at[c + 1]; k++) {
    relays->run[relays->by_source[k]].relayed = row;
    row += relays->run[relays->by_source[k]].rows;
  }
}

const hec_relays *hec_relays_make(hec_arena *arena, const hec_rows_cells *of, const hec_token_route *route,
                                  const hec_problem *problem, int32_t rank) {
  hec_relays *relays = HEC_NEW(arena, hec_relays, 1);
  passing p = {of, route, problem, rank};
  relays->over_to = HEC_NEW(arena, int32_t, of->n_ranks);
  relays->over_from = HEC_NEW(arena, int32_t, of->n_ranks);
  for (int32_t peer = 0; peer < of->n_ranks; peer++) {
    relays->over_to[peer] = peer == rank ? rank : route->relay(problem, rank, peer);
    relays->over_from[peer] = peer == rank ? rank : route->relay(problem, peer, rank);
  }
  relays->at = count_chunks(arena, &p);
  relays->run = HEC_NEW(arena, hec_relay_run, relays->at[of->degree]);
  relays->by_source = HEC_NEW(arena, int32_t, relays->at[of->degree]);
  int32_t *next = HEC_NEW(arena, int32_t, of->n_ranks + 1);
  for (int32_t c = 0; c < of->degree; c++) {
    sort_by_rank(&p, relays, c, next);
    sort_by_source(&p, relays, c, next);
  }
  return relays;
}
