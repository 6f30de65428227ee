/* Rows that travel once per node, in the executor: where they stand (node_rows.h), and the two exchanges between nodes. A
 * message is two segments at both ends, rows and numbers, or rows alone; so links find the same cuts. */
#include "runtime/exec/exec_state.h"
#include "runtime/plan/problem.h"

const hec_node_rows *hec_exec_node_rows(hec_exec *exec, const hec_exec_op *op) {
  int32_t layer = op->op.layer;
  if (op->op.role == HEC_ROLE_NODE_PERMUTE && !op->op.backward) { /* the first of the layer */
    hec_node_rows *rows = HEC_NEW(&exec->step, hec_node_rows, 1);
    hec_node_cells of = {exec->problem, exec->program->cells + op->op.cell_at, op->op.n_cells, layer};
    *rows = hec_node_rows_make(&exec->step, &of, exec->r);
    exec->node_rows[layer] = rows;
  }
  return exec->node_rows[layer];
}

/* Messages of one end: rows and, where there are some, numbers of each peer in `buffer`. */
static int32_t add_messages(hec_exec *exec, const hec_node_peers *peers, bool numbers, float *buffer,
                            hec_message *list) {
  int32_t n = 0, d = exec->problem->moe->d_model;
  float *tail = buffer + (size_t)peers->n_rows * (size_t)d;
  hec_segment *segment = HEC_NEW(&exec->step, hec_segment, 2 * exec->n_ranks);
  for (int32_t p = 0; p < exec->n_ranks; p++) {
    const int32_t *row_at = peers->row_at + p, *number_at = peers->number_at + p;
    segment[0] = (hec_segment){buffer + (size_t)row_at[0] * (size_t)d,
                               (int64_t)(row_at[1] - row_at[0]) * d * (int64_t)sizeof *buffer};
    segment[1] = (hec_segment){tail + number_at[0], (int64_t)(number_at[1] - number_at[0]) * (int64_t)sizeof *buffer};
    hec_message_add(list, &n, p, segment, numbers ? 2 : 1);
    segment += 2;
  }
  return n;
}

void hec_exchange_bind_nodes(hec_exec *exec, hec_exec_op *op, hec_post *post) {
  const hec_node_rows *rows = hec_exec_node_rows(exec, op);
  bool home = op->op.reverse, numbers = op->op.role == HEC_ROLE_NODE_DISPATCH;
  float *here = hec_exec_tensor(exec, op, home ? HEC_TENSOR_NODE_RETURNED : HEC_TENSOR_NODE_SEND);
  float *proxy = hec_exec_tensor(exec, op, home ? HEC_TENSOR_NODE_PARTIAL : HEC_TENSOR_NODE_ARRIVED);
  post->n_sends = add_messages(exec, home ? &rows->from : &rows->to, numbers, home ? proxy : here, post->sends);
  post->n_receives = add_messages(exec, home ? &rows->to : &rows->from, numbers, home ? here : proxy, post->receives);
}
