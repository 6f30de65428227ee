/* Exchanges of tensor-parallel groups (runtime/program/tensor.c): which rows. T rows a rank; what belongs to member p of a group
 * of s stands at rows p T .. (p+1) T - 1 of every member's buffers:
 *
 *   AllGather      a rank's own rows, of the stream or of its gradient, to their place in each of the others' gathered rows; its
 *                  own are copied there. Forward these are what the block keeps, backward a buffer of their own
 *   ReduceScatter  each of the others' partial sums of a rank's rows, to the rank, which adds them to its own: first its own,
 *                  then the others' in ascending order of ranks
 *
 * O(s) per exchange. */
#include "runtime/base/arena.h"
#include "runtime/exec/exec_state.h"
#include "runtime/plan/problem.h"

typedef struct {
  const hec_transfer *own; /* from whom to whom as the bytes go */
  const hec_op *op;
  float *stream, *rows; /* the rank's own; gathered rows, or partial sums */
  int64_t floats;       /* of T rows */
  int32_t mp, rank;
} tensor_rows;

static int32_t row_segments(void *context, int32_t k, hec_segment *out) {
  const tensor_rows *of = context;
  const hec_transfer *t = &of->own[k];
  bool sends = t->source == of->rank;
  int32_t owner = of->op->reverse ? t->destination : t->source; /* of the rows */
  float *at = of->rows + of->floats * (owner % of->mp);
  *out = (hec_segment){sends && !of->op->reverse ? of->stream : at, of->floats * (int64_t)sizeof(float)};
  HEC_ASSERT(out->bytes == t->bytes); /* what the program says */
  return 1;
}

void hec_tensor_rows_bind(hec_exec *exec, hec_exec_op *op, bool adds) {
  const hec_op *o = &op->op;
  const hec_problem *p = exec->problem;
  int32_t n;
  const hec_transfer *own = hec_exec_transfers(exec, o, 2 * p->mp, &n);
  hec_tensor tensor = o->reverse ? HEC_TENSOR_PARTIAL : o->backward ? HEC_TENSOR_GATHERED : HEC_TENSOR_BLOCK;
  tensor_rows of = {.own = own,
                    .op = o,
                    .stream = exec->options.work.stream(exec->options.work.context, o),
                    .rows = hec_exec_tensor(exec, op, tensor),
                    .floats = (int64_t)p->tokens * p->moe->d_model,
                    .mp = p->mp,
                    .rank = exec->r};
  hec_exchange_bind_rows(
      exec, op, adds,
      (hec_stage){.transfers = own, .n_transfers = n, .n_segments = n, .segments = row_segments, .context = &of});
  if (!o->reverse) {
    hec_exchange_state *x = op->exchange;
    x->own = HEC_NEW(&exec->step, hec_piece, 1);
    x->own[x->n_own++] = (hec_piece){of.rows + of.floats * (exec->r % p->mp), of.stream, of.floats};
  }
}
