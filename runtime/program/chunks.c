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
 * O(ranks * experts * holders) for the cells, as in programs with detail, and r (cells + ranks^2 + ranks * experts). */
#include "runtime/program/lowering_state.h"

void hec_add_cells(hec_lowering *low, int32_t layer) {
  hec_program *program = &low->in->program;
  hec_layer_ops *ops = &low->layer[layer];
  const hec_problem *problem = low->problem;
  ops->in->cell_at = (int32_t)program->n_cells;
  HEC_RESERVE(program->cells, program->cells_capacity, program->n_cells + 1); /* no tokens: an end, not NULL */
  for (int32_t s = 0; s < problem->n_ranks; s++)
    for (int32_t e = 0; e < problem->n_experts; e++) {
      int32_t n = hec_routing_split(&low->in->routing, low->in->shared->run.policy->dispatch, problem, &low->in->shared->run.plan,
                                    low->load, layer, s, e, low->in->split_rank, low->in->split_tokens);
      HEC_RESERVE(program->cells, program->cells_capacity, program->n_cells + (size_t)n);
      for (int32_t i = 0; i < n; i++)
        program->cells[program->n_cells++] =
            (hec_cell){s, low->in->split_rank[i], e, (int32_t)low->in->split_tokens[i]};
    }
  ops->in->n_cells = (int32_t)program->n_cells - ops->in->cell_at;
}

/* The first row of the cell that is in chunk c or behind it. */
static int32_t cut_at(const hec_cell *cell, int32_t c, int32_t degree) {
  int32_t phase = (cell->source + cell->rank + cell->expert) % degree;
  return (int32_t)(((int64_t)cell->rows * c + phase) / degree);
}

/* The layer's n cells, the newest of the program, once for each chunk; the last chunk first, since chunk 0 comes to stand
 * where they are. */
static void repeat_cells(hec_program *program, hec_layer_ops *ops) {
  int32_t n = ops->in->n_cells, degree = ops->degree;
  HEC_RESERVE(program->cells, program->cells_capacity, program->n_cells + (size_t)n * (size_t)(degree - 1));
  hec_cell *cells = program->cells + ops->in->cell_at;
  for (int32_t c = degree - 1; c >= 0; c--)
    for (int32_t i = 0; i < n; i++) {
      hec_cell cell = cells[i];
      cell.rows = cut_at(&cell, c + 1, degree) - cut_at(&cell, c, degree);
      cells[c * n + i] = cell;
    }
  ops->in->n_cells = n * degree;
  program->n_cells = (size_t)(ops->in->cell_at + ops->in->n_cells);
}

/* Adds up a chunk: bytes of pairs, rows of experts. */
static void add_up(hec_lowering *low, const hec_cell *cells, int32_t n) {
  size_t n_ranks = (size_t)low->problem->n_ranks, n_experts = (size_t)low->problem->n_experts;
  int64_t token = (int64_t)low->problem->bytes.token;
  int32_t esp = low->problem->esp; /* every rank of a group computes over what arrived at any of them */
  for (const hec_cell *cell = cells; cell != cells + n; cell++) {
    for (int32_t r = cell->rank - cell->rank % esp, end = r + esp; r < end; r++)
      low->in->chunk_rows[(size_t)r * n_experts + (size_t)cell->expert] += (uint32_t)cell->rows;
    if (esp > 1)
      low->in->arrived[cell->rank] += cell->rows * token;
    if (cell->source != cell->rank && !low->in->dispatched)
      low->in->pair_bytes[(size_t)cell->source * n_ranks + (size_t)cell->rank] += cell->rows * token;
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

static void take_work(hec_lowering *low, hec_layer_chunk *chunk) {
  hec_program *program = &low->in->program;
  int32_t n_ranks = low->problem->n_ranks, n_experts = low->problem->n_experts;
  HEC_RESERVE(program->work, program->work_capacity, program->n_work + (size_t)n_ranks * (size_t)n_experts);
  HEC_RESERVE(program->work_index, program->work_index_capacity, program->n_work_index + (size_t)n_ranks + 1);
  chunk->work_at = (int32_t)program->n_work_index;
  program->work_index[program->n_work_index++] = (int32_t)program->n_work;
  for (int32_t r = 0; r < n_ranks; r++) {
    for (int32_t e = 0; e < n_experts; e++) {
      uint32_t *rows = &low->in->chunk_rows[(size_t)r * (size_t)n_experts + (size_t)e];
      if (*rows > 0)
        program->work[program->n_work++] = (hec_work){e, (int32_t)*rows};
      *rows = 0;
    }
    program->work_index[program->n_work_index++] = (int32_t)program->n_work;
  }
}

void hec_cut_layer(hec_lowering *low, int32_t layer) {
  hec_layer_ops *ops = &low->layer[layer];
  int32_t n = ops->in->n_cells;
  HEC_ASSERT(ops->degree > 1 && ops->degree <= HEC_DEGREE_MAX);
  repeat_cells(&low->in->program, ops);
  for (int32_t c = 0; c < ops->degree; c++) {
    add_up(low, low->in->program.cells + ops->in->cell_at + c * n, n);
    if (!low->in->dispatched)
      hec_add_transfers(low, ops, &ops->in->chunk[c]);
    take_work(low, &ops->in->chunk[c]);
    if (low->problem->esp > 1)
      hec_add_shard_gather(low, &ops->in->chunk[c]);
  }
}
