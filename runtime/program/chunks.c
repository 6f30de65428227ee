/* The cut of a layer's token work into chunks (chunked.h).
 *
 * A cell is n assignments of one source to one expert, computed on one rank. Of degree r, chunk c has of it the rows
 *
 *     floor((n c + p) / r) .. floor((n (c+1) + p) / r) - 1,     p = (source + rank + expert) mod r
 *
 * in the order of the source's list: floor(n/r) or one more. Without the phase p every odd row would be in the last chunk;
 * systems that cut a padded capacity have equal chunks. What transfers and work rows of a chunk are follows by sums:
 *
 *     rows from s to d = sum over cells (s, d, any expert),     rows of e on d = sum over cells (any source, d, e)
 *
 * All r chunks of a cell at once: floor(n/r) for each, and one more where a counter passes r. It starts at p and grows
 * by n mod r. Cells and cuts are made once for all schedules of a policy. The first that cuts a layer into r
 * leaves the cut in its program, and the others copy it. O(ranks * experts * holders) for the cells, and
 * r (cells + ranks^2) for a cut. */
#include "runtime/program/layer_cells.h"

#include "runtime/base/arena.h"
#include "runtime/program/lowering_state.h"

#include <stdlib.h>
#include <string.h>

hec_layer_cells hec_layer_cells_new(const hec_problem *problem, const hec_plan *plan, hec_arena *arena) {
  size_t ranks = (size_t)problem->n_ranks, split = 2 * ranks + (size_t)plan->copy_capacity;
  return (hec_layer_cells){.split_rank = HEC_NEW(arena, int32_t, split),
                           .split_tokens = HEC_NEW(arena, uint32_t, split),
                           .pair = HEC_NEW(arena, uint32_t, ranks * ranks * HEC_DEGREE_MAX),
                           .rows = HEC_NEW(arena, uint32_t, ranks * (size_t)problem->n_experts * HEC_DEGREE_MAX)};
}

void hec_layer_cells_clear(hec_layer_cells *of) {
  of->there = false;
  memset(of->by, 0, sizeof of->by);
  memset(of->work_s, 0, sizeof of->work_s);
}

void hec_layer_cells_free(hec_layer_cells *of) {
  free(of->cells);
  of->cells = NULL;
  of->capacity = 0;
}

const hec_layer_cells *hec_layer_cells_of(hec_lowering *low, int32_t layer) {
  hec_lowering_shared *shared = low->in->shared;
  hec_layer_cells *of = &shared->cells;
  const hec_problem *problem = low->problem;
  if (of->there)
    return of;
  of->there = true;
  of->n = 0;
  for (int32_t s = 0; s < problem->n_ranks; s++)
    for (int32_t e = 0; e < problem->n_experts; e++) {
      int32_t n = hec_routing_split_again(&shared->routing, shared->run.policy->dispatch, problem, &shared->run.plan,
                                          low->load, layer, s, e, of->split_rank, of->split_tokens);
      HEC_RESERVE(of->cells, of->capacity, of->n + (size_t)n + 1); /* no tokens: an end, not NULL */
      for (int32_t i = 0; i < n; i++)
        of->cells[of->n++] = (hec_cell){s, of->split_rank[i], e, (int32_t)of->split_tokens[i]};
    }
  return of;
}

void hec_add_cells(hec_lowering *low, int32_t layer) {
  hec_program *program = &low->in->program;
  hec_layer_ops *ops = &low->layer[layer];
  const hec_layer_cells *of = hec_layer_cells_of(low, layer);
  ops->in->cell_at = (int32_t)program->n_cells;
  ops->in->n_cells = (int32_t)of->n;
  HEC_RESERVE(program->cells, program->cells_capacity, program->n_cells + of->n + 1); /* no tokens: an end, not NULL */
  if (of->n > 0)
    memcpy(program->cells + program->n_cells, of->cells, of->n * sizeof *of->cells);
  program->n_cells += of->n;
}

/* Of rows that are cut into `degree`: those of the next chunk. */
typedef struct {
  int32_t all, rest, carry, degree;
} rows_cut;

static inline rows_cut cut_of(const hec_cell *cell, int32_t degree) {
  return (rows_cut){cell->rows / degree, cell->rows % degree, (cell->source + cell->rank + cell->expert) % degree,
                    degree};
}

static inline uint32_t cut_next(rows_cut *cut) {
  cut->carry += cut->rest;
  bool more = cut->carry >= cut->degree;
  cut->carry -= more ? cut->degree : 0;
  return (uint32_t)(cut->all + more);
}

/* The layer's n cells, the newest of the program, once for each chunk; chunk 0 comes to stand where they are. */
static void repeat_cells(hec_program *program, hec_layer_ops *ops) {
  int32_t n = ops->in->n_cells, degree = ops->degree;
  HEC_RESERVE(program->cells, program->cells_capacity, program->n_cells + (size_t)n * (size_t)(degree - 1));
  hec_cell *cells = program->cells + ops->in->cell_at;
  for (int32_t i = 0; i < n; i++) {
    hec_cell cell = cells[i];
    rows_cut cut = cut_of(&cell, degree);
    for (int32_t c = 0; c < degree; c++) {
      cell.rows = (int32_t)cut_next(&cut);
      cells[c * n + i] = cell;
    }
  }
  ops->in->n_cells = n * degree;
  program->n_cells = (size_t)(ops->in->cell_at + ops->in->n_cells);
}

/* Adds up the chunks: rows of pairs, rows of experts. */
static inline void add_up(hec_lowering *low, const hec_layer_cells *of, int32_t degree) {
  size_t n_ranks = (size_t)low->problem->n_ranks, n_experts = (size_t)low->problem->n_experts, r = (size_t)degree;
  int32_t esp = low->problem->esp; /* every rank of a group computes over what arrived at any of them */
  for (const hec_cell *cell = of->cells; cell != of->cells + of->n; cell++) {
    rows_cut cut = cut_of(cell, degree);
    uint32_t *pair = of->pair + ((size_t)cell->source * n_ranks + (size_t)cell->rank) * r;
    uint32_t *rows = of->rows + ((size_t)(cell->rank - cell->rank % esp) * n_experts + (size_t)cell->expert) * r;
    for (size_t c = 0; c < r; c++) {
      uint32_t n = cut_next(&cut);
      pair[c] += n;
      rows[c] += n;
    }
  }
}

/* Most degrees are powers of two (hec_degrees): without divisions. */
static void add_up_all(hec_lowering *low, const hec_layer_cells *of, int32_t degree) {
  switch (degree) {
  case 2:
    add_up(low, of, 2);
    break;
  case 4:
    add_up(low, of, 4);
    break;
  case 8:
    add_up(low, of, 8);
    break;
  default:
    add_up(low, of, degree);
  }
}

void hec_add_transfers(hec_lowering *low, const hec_layer_ops *ops, hec_layer_chunk *chunk) {
  hec_program *program = &low->in->program;
  if (hec_token_routes[ops->route]->relay)
    hec_add_relays(low, hec_token_routes[ops->route], chunk);
  int32_t n_ranks = low->problem->n_ranks;
  HEC_RESERVE(program->transfers, program->transfers_capacity,
              program->n_transfers + (size_t)n_ranks * (size_t)n_ranks);
  chunk->dispatch.transfer_at = (int32_t)program->n_transfers;
  for (int32_t s = 0; s < n_ranks; s++)
    for (int32_t d = 0; d < n_ranks; d++) {
      int64_t *bytes = &low->in->pair_bytes[(size_t)s * (size_t)n_ranks + (size_t)d];
      if (*bytes > 0)
        program->transfers[program->n_transfers++] =
            (hec_transfer){.bytes = *bytes, .source = s, .destination = d, .item = -1, .after = -1};
      *bytes = 0;
    }
  chunk->dispatch.n_transfers = (int32_t)program->n_transfers - chunk->dispatch.transfer_at;
}

/* The chunk's transfers, from the sums of pairs. */
static void take_pairs(hec_lowering *low, hec_layer_ops *ops, int32_t c) {
  size_t n_ranks = (size_t)low->problem->n_ranks, degree = (size_t)ops->degree;
  int64_t token = (int64_t)low->problem->bytes.token;
  uint32_t *pair = low->in->shared->cells.pair + c;
  for (size_t s = 0; s < n_ranks; s++)
    for (size_t d = 0; d < n_ranks; d++, pair += degree) {
      low->in->pair_bytes[s * n_ranks + d] = s == d || low->in->dispatched ? 0 : *pair * token;
      if (low->problem->esp > 1)
        low->in->arrived[d] += *pair * token;
      *pair = 0;
    }
  if (!low->in->dispatched)
    hec_add_transfers(low, ops, &ops->in->chunk[c]);
  if (low->problem->esp > 1)
    hec_add_shard_gather(low, &ops->in->chunk[c]);
}

/* The chunk's work, from the sums of experts. A rank's experts are those of the routing. A group's rows stand at its
 * first rank. */
static void take_work(hec_lowering *low, const hec_layer_ops *ops, int32_t c) {
  hec_program *program = &low->in->program;
  const hec_routing *routing = &low->in->shared->routing;
  int32_t n_ranks = low->problem->n_ranks, esp = low->problem->esp;
  HEC_RESERVE(program->work, program->work_capacity, program->n_work + (size_t)routing->expert_at[n_ranks]);
  HEC_RESERVE(program->work_index, program->work_index_capacity, program->n_work_index + (size_t)n_ranks + 1);
  ops->in->chunk[c].work_at = (int32_t)program->n_work_index;
  program->work_index[program->n_work_index++] = (int32_t)program->n_work;
  for (int32_t r = 0; r < n_ranks; r++) {
    uint32_t *first =
        low->in->shared->cells.rows + (size_t)(r - r % esp) * (size_t)low->problem->n_experts * (size_t)ops->degree + c;
    for (int32_t i = routing->expert_at[r]; i < routing->expert_at[r + 1]; i++) {
      uint32_t *rows = first + (size_t)routing->expert[i] * (size_t)ops->degree;
      if (*rows > 0)
        program->work[program->n_work++] = (hec_work){routing->expert[i], (int32_t)*rows};
      *rows = r % esp == esp - 1 ? 0 : *rows;
    }
    program->work_index[program->n_work_index++] = (int32_t)program->n_work;
  }
}

/* A chunk as in another program of the layer. */
static void copy_chunk(const hec_program *from, const hec_layer_chunk *cut, hec_program *to, hec_layer_chunk *chunk) {
  size_t n = (size_t)cut->dispatch.n_transfers, n_index = (size_t)to->n_ranks + 1;
  HEC_RESERVE(to->transfers, to->transfers_capacity, to->n_transfers + n);
  chunk->dispatch.transfer_at = (int32_t)to->n_transfers;
  chunk->dispatch.n_transfers = (int32_t)n;
  if (n > 0)
    memcpy(to->transfers + to->n_transfers, from->transfers + cut->dispatch.transfer_at, n * sizeof *to->transfers);
  to->n_transfers += n;
  const int32_t *index = from->work_index + cut->work_at;
  size_t n_work = (size_t)(index[to->n_ranks] - index[0]);
  HEC_RESERVE(to->work, to->work_capacity, to->n_work + n_work);
  HEC_RESERVE(to->work_index, to->work_index_capacity, to->n_work_index + n_index);
  chunk->work_at = (int32_t)to->n_work_index;
  for (size_t i = 0; i < n_index; i++)
    to->work_index[to->n_work_index++] = (int32_t)to->n_work + index[i] - index[0];
  if (n_work > 0)
    memcpy(to->work + to->n_work, from->work + index[0], n_work * sizeof *to->work);
  to->n_work += n_work;
}

void hec_cut_layer(hec_lowering *low, int32_t layer) {
  hec_layer_ops *ops = &low->layer[layer];
  int32_t degree = ops->degree;
  HEC_ASSERT(degree > 1 && degree <= HEC_DEGREE_MAX);
  hec_layer_cells *shared = &low->in->shared->cells;
  const hec_lowering *by = shared->by[degree];
  bool plain = !hec_token_routes[ops->route]->relay && low->problem->esp == 1 && !low->in->dispatched;
  if (low->in->detail) {
    hec_add_cells(low, layer);
    repeat_cells(&low->in->program, ops);
  }
  if (plain && by) {
    for (int32_t c = 0; c < degree; c++)
      copy_chunk(&by->in->program, &by->layer[layer].in->chunk[c], &low->in->program, &ops->in->chunk[c]);
    return;
  }
  add_up_all(low, hec_layer_cells_of(low, layer), degree);
  for (int32_t c = 0; c < degree; c++) {
    take_pairs(low, ops, c);
    take_work(low, ops, c);
  }
  shared->by[degree] = plain ? low : by;
}
