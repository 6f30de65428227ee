/* A source's cells say how many of its assignments each rank computes, token sets of which tokens. */
#include "runtime/exec/rows/node_rows.h"

#include "runtime/plan/problem.h"
#include "runtime/plan/token_sets.h"

#include <string.h>

/* A source, seen from a node. */
typedef struct {
  int32_t rank, n_tokens; /* tokens: with an assignment on the node */
  int32_t *cell_at;       /* [n_experts + 1] */
  int32_t *first,
      *expert_at; /* [n_experts] token of an expert's first assignment; place of that in the source's list */
  int32_t *row;   /* [tokens] which of the n_tokens it is; -1: not one */
  int32_t number; /* the next of its numbers */
} source;

/* One cell's place in its source's list. */
typedef struct {
  const hec_cell *cell;
  int32_t first, at; /* token and place of its first assignment */
} part;

static source source_of(hec_arena *arena, const hec_node_cells *of, int32_t rank) {
  int32_t n_experts = of->problem->n_experts, i = 0, n = 0;
  uint32_t *counts = HEC_NEW(arena, uint32_t, n_experts);
  source s = {.rank = rank,
              .cell_at = HEC_NEW(arena, int32_t, n_experts + 1),
              .first = HEC_NEW(arena, int32_t, n_experts),
              .expert_at = HEC_NEW(arena, int32_t, n_experts),
              .row = HEC_NEW(arena, int32_t, of->problem->tokens)};
  while (i < of->n_cells && of->cells[i].source < rank)
    i++;
  for (int32_t e = 0; e < n_experts; e++) {
    s.expert_at[e] = n;
    s.cell_at[e] = i;
    for (; i < of->n_cells && of->cells[i].source == rank && of->cells[i].expert == e; i++)
      counts[e] += (uint32_t)of->cells[i].rows;
    n += (int32_t)counts[e];
  }
  s.cell_at[n_experts] = i;
  hec_token_sets(&(hec_token_row){counts, n_experts, of->problem->tokens, of->layer, rank}, s.first,
                 HEC_NEW(arena, int32_t, n_experts));
  return s;
}

/* The source's part of an expert on a rank; false: it has none. */
static bool part_of(const hec_node_cells *of, const source *s, int32_t expert, int32_t rank, part *found) {
  int32_t before = 0;
  for (int32_t i = s->cell_at[expert]; i < s->cell_at[expert + 1]; before += of->cells[i++].rows)
    if (of->cells[i].rank == rank) {
      *found = (part){&of->cells[i], (int32_t)(((int64_t)s->first[expert] + before) % of->problem->tokens),
                      s->expert_at[expert] + before};
      return true;
    }
  return false;
}

/* Numbers the tokens with an assignment on the node; returns how many assignments. */
static int32_t number_tokens(const hec_node_cells *of, source *s, int32_t node) {
  int32_t tokens = of->problem->tokens, n = 0;
  part p;
  memset(s->row, 0xff, (size_t)tokens * sizeof *s->row);
  for (int32_t i = s->cell_at[0]; i < s->cell_at[of->problem->n_experts]; i++) {
    const hec_cell *cell = &of->cells[i];
    if (hec_problem_node(of->problem, cell->rank) != node || !part_of(of, s, cell->expert, cell->rank, &p))
      continue;
    n += cell->rows;
    for (int32_t k = 0, t = p.first; k < cell->rows && k < tokens; k++, t = t + 1 < tokens ? t + 1 : 0)
      s->row[t] = 0;
  }
  s->n_tokens = 0;
  for (int32_t t = 0; t < tokens; t++)
    s->row[t] = s->row[t] == 0 ? s->n_tokens++ : -1;
  return n;
}

static hec_node_peers new_peers(hec_arena *arena, int32_t n_ranks) {
  return (hec_node_peers){.row_at = HEC_NEW(arena, int32_t, n_ranks + 1),
                          .number_at = HEC_NEW(arena, int32_t, n_ranks + 1)};
}

/* Ascending peers. */
static void add_peer(hec_node_peers *peers, int32_t peer, int32_t n_ranks, int32_t rows, int32_t numbers) {
  peers->n_rows += rows;
  peers->n_numbers += numbers;
  for (int32_t p = peer + 1; p <= n_ranks; p++) {
    peers->row_at[p] = peers->n_rows;
    peers->number_at[p] = peers->n_numbers;
  }
}

/* What the rank sends to its proxies. */
static void make_sent(hec_arena *arena, const hec_node_cells *of, source *own, hec_node_rows *rows) {
  const hec_problem *p = of->problem;
  int32_t n = 0, here = hec_problem_node(p, own->rank);
  for (int32_t i = own->cell_at[0]; i < own->cell_at[p->n_experts]; i++)
    n += of->cells[i].rows;
  rows->to = new_peers(arena, p->n_ranks);
  rows->token = HEC_NEW(arena, int32_t, n); /* no more tokens than assignments on a node */
  rows->number = HEC_NEW(arena, int32_t, n);
  for (int32_t node = 0; node < p->n_nodes; node++) {
    int32_t numbers = node == here ? 0 : number_tokens(of, own, node), number = rows->to.n_numbers;
    if (numbers == 0)
      continue;
    for (int32_t t = 0; t < p->tokens; t++)
      if (own->row[t] >= 0)
        rows->token[rows->to.n_rows + own->row[t]] = t;
    for (int32_t i = own->cell_at[0]; i < own->cell_at[p->n_experts]; i++) {
      const hec_cell *cell = &of->cells[i];
      part at;
      if (hec_problem_node(p, cell->rank) != node || !part_of(of, own, cell->expert, cell->rank, &at))
        continue;
      for (int32_t k = 0; k < cell->rows; k++)
        rows->number[number++] = at.at + k;
    }
    add_peer(&rows->to, hec_proxy_of(p, own->rank, node), p->n_ranks, own->n_tokens, numbers);
  }
}

static hec_node_list new_list(hec_arena *arena, int32_t n) {
  return (hec_node_list){
      .place = HEC_NEW(arena, int32_t, n), .token = HEC_NEW(arena, int32_t, n), .number = HEC_NEW(arena, int32_t, n)};
}

static void put(hec_node_list *list, int32_t place, int32_t token, int32_t number) {
  list->place[list->n] = place;
  list->token[list->n] = token;
  list->number[list->n++] = number;
}

/* What the rank permutes, in the order of the folded cells. */
static void make_lists(const hec_node_cells *of, source *sources, int32_t n_sources, int32_t rank,
                       hec_node_rows *rows) {
  const hec_problem *p = of->problem;
  int32_t node = hec_problem_node(p, rank), place = 0;
  for (int32_t e = 0; e < p->n_experts; e++)
    for (int32_t d = node * p->cluster->devices_per_node; d < hec_problem_node_end(p, node); d++)
      for (int32_t i = 0; i < n_sources; i++) {
        source *s = &sources[i];
        part at;
        if (!part_of(of, s, e, d, &at))
          continue;
        for (int32_t k = 0, t = at.first; k < at.cell->rows; k++, t = t + 1 < p->tokens ? t + 1 : 0)
          if (s->rank == rank)
            put(&rows->own, place++, t, at.at + k);
          else
            put(&rows->others, place++, rows->from.row_at[s->rank] + s->row[t],
                rows->from.number_at[s->rank] + s->number++);
      }
}

hec_node_rows hec_node_rows_make(hec_arena *arena, const hec_node_cells *of, int32_t rank) {
  const hec_problem *p = of->problem;
  int32_t node = hec_problem_node(p, rank), n = 0, n_own = 0;
  source *sources = HEC_NEW(arena, source, p->n_ranks);
  hec_node_rows rows = {.from = new_peers(arena, p->n_ranks)};
  for (int32_t s = 0; s < p->n_ranks; s++) {
    if (hec_proxy_of(p, s, node) != rank)
      continue;
    source *one = &sources[n++];
    *one = source_of(arena, of, s);
    if (s == rank)
      make_sent(arena, of, one, &rows);
    int32_t numbers = number_tokens(of, one, node);
    if (s == rank)
      n_own = numbers;
    else
      add_peer(&rows.from, s, p->n_ranks, one->n_tokens, numbers);
  }
  rows.own = new_list(arena, n_own);
  rows.others = new_list(arena, rows.from.n_numbers);
  make_lists(of, sources, n, rank, &rows);
  return rows;
}
