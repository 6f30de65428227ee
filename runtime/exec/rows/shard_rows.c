/* Exchanges of expert-sharding groups (runtime/program/shards.c): which rows. Computed rows of a group stand at the
 * same places on all its members (rows.h). So a transfer is the rows that arrived at one member, from their places to
 * the same:
 *
 *   AllGather      the member's inputs, or gradients of outputs, to each of the others
 *   ReduceScatter  each of the others' partial sums of these rows' outputs, or of gradients of inputs, to the member, which
 *                  adds them to its own: first its own, then the others' in ascending order of ranks
 *
 * A message has one segment per expert with rows, at both ends. O(transfers + esp * experts) per exchange. */
#include "runtime/base/arena.h"
#include "runtime/exec/exec_state.h"
#include "runtime/plan/problem.h"

typedef struct {
  const hec_rows *rows;
  const hec_op *op;
  const hec_transfer *own; /* from whom to whom as the bytes go */
  float *computed;
  int32_t d, n_experts, esp;
} shard_rows;

/* Segments of own transfer k; returns their number. */
static int32_t row_segments(void *context, int32_t k, hec_segment *out) {
  const shard_rows *of = context;
  const hec_transfer *t = &of->own[k];
  int32_t member = (of->op->reverse ? t->destination : t->source) % of->esp, n = 0;
  int64_t bytes = 0, row = of->d * (int64_t)sizeof(float);
  for (int32_t e = 0; e < of->n_experts; e++) {
    int32_t shelf = (of->op->chunk * of->n_experts + e) * of->esp + member;
    const int32_t *at = of->rows->shelf_at + shelf;
    if (at[0] == at[1])
      continue;
    out[n] = (hec_segment){of->computed + (int64_t)at[0] * of->d, (at[1] - at[0]) * row};
    bytes += out[n++].bytes;
  }
  HEC_ASSERT(bytes == t->bytes); /* what the program says */
  return n;
}

hec_transfer *hec_exec_transfers(hec_exec *exec, const hec_op *op, int32_t max, int32_t *n) {
  hec_transfer *own = HEC_NEW(&exec->step, hec_transfer, max);
  int32_t before = -1; /* whom the last one is received from */
  *n = 0;
  for (int32_t k = 0; k < op->exchange.n_transfers; k++) {
    hec_transfer t = exec->program->transfers[op->exchange.transfer_at + k];
    if (t.source != exec->r && t.destination != exec->r)
      continue;
    HEC_ASSERT(*n < max);
    int32_t source = t.source;
    t.source = op->reverse ? t.destination : source;
    t.destination = op->reverse ? source : t.destination;
    HEC_ASSERT(t.destination != exec->r || t.source > before); /* the order in which parts are added */
    before = t.destination == exec->r ? t.source : before;
    own[(*n)++] = t;
  }
  return own;
}

void hec_shard_rows_bind(hec_exec *exec, hec_exec_op *op, bool adds) {
  const hec_op *o = &op->op;
  int32_t n;
  const hec_transfer *own = hec_exec_transfers(exec, o, 2 * exec->problem->esp, &n);
  static const hec_tensor tensor_of[2][2] = {{HEC_TENSOR_INPUT, HEC_TENSOR_GRAD_OUTPUT},
                                             {HEC_TENSOR_OUTPUT, HEC_TENSOR_GRAD_INPUT}};
  shard_rows of = {.rows = hec_exec_rows(exec, op),
                   .op = o,
                   .own = own,
                   .computed = hec_exec_tensor(exec, op, tensor_of[o->reverse][o->backward]),
                   .d = exec->problem->moe->d_model,
                   .n_experts = exec->n_experts,
                   .esp = exec->problem->esp};
  hec_exchange_bind_rows(exec, op, adds,
                         (hec_stage){.transfers = own,
                                     .n_transfers = n,
                                     .n_segments = n * exec->n_experts,
                                     .segments = row_segments,
                                     .context = &of});
}
