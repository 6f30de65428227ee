/* Tensor parallelism of the dense part in a program (runtime/plan/problem.h has what it is). Of T rows a rank, in a group of s:
 *
 *   AllGather      r sends its T rows to each of the s - 1 others
 *   compute        s T rows at 1/s of the work each; what comes out are partial sums of all s T rows
 *   ReduceScatter  the AllGather reversed: r receives s - 1 parts of its T rows, one from each of the others. Each has
 *                  a staging slot. r adds them to its own: (s + 1) T rows of memory traffic
 *
 * on the intra-node lane, or in line with the tokens where the schedule says so; backward the same, rows being gradients.
 * Norms and residuals, which are of a rank's own rows, are charged with the compute between. With recomputation both
 * exchanges of the forward precede the backward's (systems may spread them over the block; the sum is the same). Blocks
 * without MoE are one operation elsewhere; here each is attention, then FFN, both between such exchanges.
 *
 * Memory in flight: gathered rows that are not kept for backward, partial sums, staging.
 * O(ranks * s) transfers an iteration, operations O(blocks). */
#include "runtime/program/lowering_state.h"

/* What is computed between an AllGather and its ReduceScatter. */
typedef struct {
  hec_role role;
  int32_t shape, layer;
  bool backward;
  bool kept; /* forward: gathered rows are kept as activations, and counted there */
} dense_part;

static double rows_bytes(const hec_lowering *low) {
  return (double)low->problem->tokens * low->problem->bytes.token;
}

/* Every rank's rows to the others of its group. */
static void add_transfers(hec_lowering *low) {
  hec_program *program = &low->in->program;
  int32_t n_ranks = low->problem->n_ranks, mp = low->problem->mp;
  HEC_RESERVE(program->transfers, program->transfers_capacity, program->n_transfers + (size_t)n_ranks * (size_t)mp);
  low->in->tensor.transfer_at = (int32_t)program->n_transfers;
  for (int32_t r = 0; r < n_ranks; r++)
    for (int32_t d = r / mp * mp, end = d + mp; d < end; d++)
      if (d != r && low->problem->tokens > 0)
        program->transfers[program->n_transfers++] =
            (hec_transfer){.bytes = (int64_t)rows_bytes(low), .source = r, .destination = d, .item = -1, .after = -1};
  low->in->tensor.n_transfers = (int32_t)program->n_transfers - low->in->tensor.transfer_at;
}

static hec_op op_of(const hec_lowering *low, hec_op_kind kind, hec_role role, const dense_part *part) {
  hec_lane lane = low->in->schedule->inside ? HEC_LANE_INTRA : HEC_LANE_TOKEN;
  return hec_op_of(low, kind, lane, role, part->layer, part->backward);
}

static void hold(hec_lowering *low, const dense_part *part, hec_tensor tensor, int32_t first, int32_t last,
                 double times) {
  (void)hec_program_hold(&low->in->program, (hec_hold){.memory = HEC_MEMORY_BUFFER,
                                                       .layer = part->layer,
                                                       .first = first,
                                                       .last = last,
                                                       .bytes_at = -1,
                                                       .bytes = times * rows_bytes(low),
                                                       .tensor = tensor,
                                                       .micro_batch = low->in->micro_batch,
                                                       .items_at = -1});
}

static int32_t emit_exchange(hec_lowering *low, hec_role role, const dense_part *part, const int32_t *deps,
                             int32_t n_deps) {
  hec_op op = op_of(low, HEC_OP_EXCHANGE, role, part);
  if (low->in->tensor.part_at < 0)
    add_transfers(low);
  op.reverse = role == HEC_ROLE_TENSOR_SCATTER;
  return hec_emit_span(low, op, &low->in->tensor, deps, n_deps);
}

static int32_t emit_scatter(hec_lowering *low, const dense_part *part, int32_t after) {
  int32_t scatter = emit_exchange(low, HEC_ROLE_TENSOR_SCATTER, part, HEC_DEPS(after));
  hec_op add = op_of(low, HEC_OP_LOCAL, HEC_ROLE_TENSOR_REDUCE, part);
  add.bytes = (low->problem->mp + 1) * rows_bytes(low);
  int32_t id = hec_program_add(&low->in->program, add, HEC_DEPS(scatter));
  hold(low, part, HEC_TENSOR_PARTIAL, after, id, low->problem->mp);
  hold(low, part, HEC_TENSOR_STAGING, scatter, id, low->problem->mp - 1);
  return id;
}

/* Returns the addition; *gather: the first AllGather, *compute: the operation between. */
static int32_t emit_part(hec_lowering *low, const dense_part *part, const int32_t *deps, int32_t n_deps,
                         int32_t *gather, int32_t *compute) {
  int32_t mp = low->problem->mp, again = -1, added = -1;
  if (low->problem->tokens == 0) {
    *gather = *compute = hec_emit_uniform(low, part->role, part->shape, part->layer, part->backward, 0, deps, n_deps);
    return *compute;
  }
  if (part->backward && low->problem->moe->recompute) {
    again = emit_exchange(low, HEC_ROLE_TENSOR_GATHER, part, deps, n_deps);
    added = emit_scatter(low, part, again);
  }
  *gather = again >= 0 ? emit_exchange(low, HEC_ROLE_TENSOR_GATHER, part, HEC_DEPS(added))
                       : emit_exchange(low, HEC_ROLE_TENSOR_GATHER, part, deps, n_deps);
  *compute = hec_emit_uniform(low, part->role, part->shape, part->layer, part->backward,
                              (double)mp * low->problem->tokens, HEC_DEPS(*gather));
  if (!part->kept)
    hold(low, part, HEC_TENSOR_GATHERED, *gather, *compute, mp);
  if (again >= 0)
    hold(low, part, HEC_TENSOR_GATHERED, again, *compute, mp);
  return emit_scatter(low, part, *compute);
}

int32_t hec_emit_tensor_attention(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps,
                                  int32_t n_deps) {
  const hec_problem *problem = low->problem;
  bool dense = hec_moe_dense_attention(problem->moe, layer);
  dense_part part = {HEC_ROLE_ATTENTION, dense ? HEC_SHAPE_DENSE_ATTENTION : HEC_SHAPE_ATTENTION, layer, backward,
                     !backward && !problem->moe->recompute};
  int32_t gather, compute, id = emit_part(low, &part, deps, n_deps, &gather, &compute);
  if (backward) /* the norm's backward follows the sum */
    hec_close_buffer(low, layer, HEC_TENSOR_BLOCK, id);
  else
    hec_open_buffer(low, layer, HEC_TENSOR_BLOCK,
                    (hec_hold){.memory = HEC_MEMORY_ACTIVATION,
                               .first = gather,
                               .bytes_at = -1,
                               .bytes = problem->bytes.activation_layer});
  return id;
}

void hec_emit_tensor_blocks(hec_lowering *low, bool backward) {
  const hec_moe *moe = low->problem->moe;
  int32_t n = moe->n_layers - moe->n_moe_layers;
  int32_t n_dense = hec_moe_n_dense_attention(moe, false) - hec_moe_n_dense_attention(moe, true);
  bool kept = !backward && low->problem->train && !moe->recompute;
  for (int32_t i = 0; i < 2 * n; i++) {
    int32_t at = backward ? 2 * n - 1 - i : i, gather, compute;
    int32_t attention = at / 2 < n - n_dense ? HEC_SHAPE_ATTENTION : HEC_SHAPE_DENSE_ATTENTION;
    dense_part part = {HEC_ROLE_DENSE_BLOCKS, at % 2 == 0 ? attention : HEC_SHAPE_DENSE_FFN, -1, backward, kept};
    low->tail = emit_part(low, &part, HEC_DEPS(low->tail, low->moved), &gather, &compute);
  }
}
