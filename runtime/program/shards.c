/* Expert-sharding groups in a program (runtime/plan/problem.h has what they are). `arrived[r]` rows of a chunk end their
 * dispatch on rank r of a group of s:
 *
 *   AllGather      r sends its arrived[r] rows to each of the s - 1 others
 *   ReduceScatter  the AllGather reversed: r receives s - 1 parts of its rows' outputs, one from each of the others.
 *                  Each has a staging slot. r adds them to its own: s + 1 times arrived[r] rows of memory traffic
 *
 * on the intra-node lane, or in line with the tokens where the schedule says so. Both directions of the layer, since a
 * shard's gradients need all rows too, and gradients of inputs are sums over shards. O(ranks * s) transfers a chunk. */
#include "runtime/program/lowering_state.h"

void hec_add_shard_gather(hec_lowering *low, hec_layer_chunk *chunk) {
  hec_program *program = &low->in->program;
  int32_t n_ranks = low->problem->n_ranks, esp = low->problem->esp;
  chunk->arrived_at = hec_program_local_bytes(program, n_ranks);
  HEC_RESERVE(program->transfers, program->transfers_capacity, program->n_transfers + (size_t)n_ranks * (size_t)esp);
  chunk->gather.transfer_at = (int32_t)program->n_transfers;
  for (int32_t r = 0; r < n_ranks; r++) {
    for (int32_t d = r / esp * esp, end = d + esp; d < end; d++)
      if (d != r && low->in->arrived[r] > 0)
        program->transfers[program->n_transfers++] =
            (hec_transfer){.bytes = low->in->arrived[r], .source = r, .destination = d, .item = -1, .after = -1};
    program->local_bytes[chunk->arrived_at + r] = (double)low->in->arrived[r];
    low->in->arrived[r] = 0;
  }
  chunk->gather.n_transfers = (int32_t)program->n_transfers - chunk->gather.transfer_at;
}

static hec_op op_of(const hec_lowering *low, hec_op_kind kind, hec_role role, hec_chunk chunk, bool backward) {
  hec_lane lane = low->in->schedule->inside ? HEC_LANE_INTRA : HEC_LANE_TOKEN;
  hec_op op = hec_op_of(low, kind, lane, role, chunk.layer, backward);
  op.degree = low->layer[chunk.layer].degree;
  op.chunk = op.degree > 1 ? chunk.index : 0;
  return op;
}

int32_t hec_emit_shard_gather(hec_lowering *low, hec_chunk chunk, bool backward, int32_t arrived, const int32_t *deps,
                              int32_t n_deps) {
  hec_layer_chunk *of = &low->layer[chunk.layer].in->chunk[chunk.index];
  int32_t wait[8];
  HEC_ASSERT(n_deps < 8);
  if (of->gather.n_transfers == 0)
    return arrived;
  for (int32_t i = 0; i < n_deps; i++) /* a rank without part in the exchange waits for what the exchange waits for */
    wait[i] = deps[i];
  wait[n_deps] = arrived;
  hec_op op = op_of(low, HEC_OP_EXCHANGE, HEC_ROLE_SHARD_GATHER, chunk, backward);
  return hec_emit_span(low, op, &of->gather, wait, n_deps + 1);
}

int32_t hec_emit_shard_scatter(hec_lowering *low, hec_chunk chunk, bool backward, const int32_t *deps, int32_t n_deps) {
  hec_layer_chunk *of = &low->layer[chunk.layer].in->chunk[chunk.index];
  int32_t wait[8];
  HEC_ASSERT(n_deps < 8);
  if (of->gather.n_transfers == 0)
    return -1;
  hec_op op = op_of(low, HEC_OP_EXCHANGE, HEC_ROLE_SHARD_SCATTER, chunk, backward);
  op.reverse = true;
  for (int32_t i = 0; i < n_deps; i++)
    wait[i] = deps[i];
  wait[n_deps] = hec_emit_span(low, op, &of->gather, deps, n_deps);
  hec_op add = op_of(low, HEC_OP_LOCAL, HEC_ROLE_SHARD_REDUCE, chunk, backward);
  add.local.bytes_at = of->arrived_at;
  add.bytes = low->problem->esp + 1;
  int32_t id = hec_program_add(&low->in->program, add, wait, n_deps + 1);
  (void)hec_program_hold(&low->in->program, (hec_hold){.memory = HEC_MEMORY_BUFFER,
                                                       .layer = chunk.layer,
                                                       .first = wait[n_deps],
                                                       .last = id,
                                                       .bytes_at = of->arrived_at,
                                                       .bytes = low->problem->esp - 1,
                                                       .tensor = HEC_TENSOR_STAGING,
                                                       .micro_batch = low->in->micro_batch,
                                                       .items_at = -1});
  low->layer[chunk.layer].in->added = id;
  return id;
}
