/* Posting: in the order of ids, an operation's buffers open, the operation finds its bytes, buffers that it is the last
 * to use close. Cost per operation: the open buffers (some ten per layer) plus its own transfers, cells and parcels. */
#include "runtime/base/arena.h"
#include "runtime/exec/exec_state.h"

#include <stdlib.h>
#include <string.h>

static double hold_bytes(const hec_exec *exec, const hec_hold *hold) {
  return hold->bytes_at < 0 ? hold->bytes : hold->bytes * exec->program->local_bytes[hold->bytes_at + exec->r];
}

static hec_status open_hold(hec_exec *exec, int32_t index, int32_t *n_after) {
  const hec_hold *hold = &exec->program->holds[index];
  hec_open_buffer_of b = {.hold = index,
                          .tensor = hold->tensor,
                          .layer = hold->layer,
                          .micro_batch = hold->micro_batch,
                          .at = exec->buffers.base,
                          .bytes = hold_bytes(exec, hold)};
  if (b.bytes > 0) {
    size_t max = (size_t)*n_after + exec->buffers.n_pieces; /* a piece is free after one operation */
    HEC_RESERVE(exec->after, exec->after_capacity, max);
    b.at = hec_buffers_take(&exec->buffers, b.bytes, exec->after, n_after, (int32_t)max);
  }
  if (!b.at)
    return hec_rank_fail(exec->rank, "%.0f bytes of planned buffers do not fit beside %.0f", b.bytes,
                         exec->buffers.live);
  HEC_TRY(hec_exec_check_capacity(exec));
  if (hold->items_at >= 0) {
    const int32_t *at = exec->program->item_index + hold->items_at + exec->r;
    int32_t *items = HEC_NEW(&exec->step, int32_t, at[1] - at[0]);
    if (at[1] > at[0])
      memcpy(items, exec->program->items + at[0], (size_t)(at[1] - at[0]) * sizeof *items);
    b.items = items;
    b.n_items = at[1] - at[0];
  }
  HEC_RESERVE(exec->open, exec->open_capacity, exec->n_open + 1);
  exec->open[exec->n_open++] = b;
  return HEC_OK;
}

/* This rank may have no part in the operation that uses a buffer last (the last chunk of a dispatch, say). Then the
 * last operation of its own on that lane may have used it. */
static void close_holds(hec_exec *exec, int32_t id) {
  int32_t last = exec->newest[exec->program->ops[id].lane];
  size_t kept = 0;
  for (size_t i = 0; i < exec->n_open; i++) {
    hec_open_buffer_of b = exec->open[i];
    if (exec->program->holds[b.hold].last != id) {
      exec->open[kept++] = b;
      continue;
    }
    if (b.bytes > 0)
      hec_buffers_give(&exec->buffers, b.at, b.bytes, last);
  }
  exec->n_open = kept;
}

/* New holds by their first operation (they may be listed later than others that start later). */
typedef struct {
  int32_t first, hold;
} opening;

static int by_first(const void *a, const void *b) {
  const opening *x = a, *y = b;
  if (x->first != y->first)
    return x->first < y->first ? -1 : 1;
  return (x->hold > y->hold) - (x->hold < y->hold);
}

static opening *list_openings(hec_exec *exec, size_t *n) {
  const hec_program *program = exec->program;
  opening *list = HEC_NEW(&exec->step, opening, program->n_holds - exec->n_holds);
  *n = 0;
  for (size_t i = exec->n_holds; i < program->n_holds; i++) {
    const hec_hold *hold = &program->holds[i];
    if (hold->tensor == HEC_TENSOR_STATE)
      continue;
    HEC_ASSERT(hold->first >= (int32_t)exec->n_ops);
    list[(*n)++] = (opening){hold->first, (int32_t)i};
  }
  exec->n_holds = program->n_holds;
  if (*n > 1)
    qsort(list, *n, sizeof *list, by_first);
  return list;
}

/* The reduction of an exchange that added while it received has nothing left to do. */
static void bind_reduction(hec_exec *exec, hec_exec_op *op) {
  op->exchange = HEC_NEW(&exec->step, hec_exchange_state, 1);
  op->exchange->own = hec_exchange_own(exec, &op->op, true, &op->exchange->n_own);
  op->n_steps = exec->n_staged > 0 || op->exchange->n_own > 0;
  op->exchange->additions = exec->staged;
  op->exchange->n_additions = exec->n_staged;
  exec->n_staged = 0;
}

static hec_status bind(hec_exec *exec, hec_exec_op *op) {
  switch (op->op.kind) {
  case HEC_OP_EXCHANGE:
  case HEC_OP_ALLREDUCE:
  case HEC_OP_COUNTS:
    return hec_exchange_bind(exec, op);
  case HEC_OP_PLAN:
    op->begin_ns = exec->planned_begin_ns;
    op->end_ns = exec->planned_end_ns;
    exec->planned_begin_ns = exec->planned_end_ns; /* planned once, however many operations it is */
    return HEC_OK;
  case HEC_OP_LOCAL:
    if (op->op.role == HEC_ROLE_REDUCE || op->op.role == HEC_ROLE_SHARD_REDUCE) {
      bind_reduction(exec, op);
      return HEC_OK;
    }
    if (op->op.role == HEC_ROLE_ALIGN) {
      hec_alignment_bind(exec, op);
      return HEC_OK;
    }
    if (op->op.role == HEC_ROLE_TENSOR_REDUCE) /* and then what follows from the sum */
      bind_reduction(exec, op);
    if (op->op.role == HEC_ROLE_GATHER || op->op.role == HEC_ROLE_CALIBRATE || op->op.role == HEC_ROLE_REGATHER)
      return HEC_OK; /* the end of a gather of several stages */
    break;
  default:
    break;
  }
  exec->options.work.bind(exec->options.work.context, exec, op);
  return HEC_OK;
}

static hec_exec_op *new_op(hec_exec *exec, int32_t id, int32_t n_after) {
  const hec_op *op = &exec->program->ops[id];
  hec_exec_op *new = HEC_NEW(&exec->step, hec_exec_op, 1);
  *new = (hec_exec_op){.op = *op, .id = id, .posted_ns = -1, .begin_ns = -1, .end_ns = -1};
  new->waits = HEC_NEW(&exec->step, int32_t, op->n_deps + n_after);
  for (int32_t i = 0; i < op->n_deps; i++)
    if (exec->ops[exec->program->deps[op->dep_at + i]] != NULL)
      new->waits[new->n_waits++] = exec->program->deps[op->dep_at + i];
  for (int32_t i = 0; i < n_after; i++)
    if (exec->ops[exec->after[i]] != NULL)
      new->waits[new->n_waits++] = exec->after[i];
  return new;
}

static void append(hec_exec *exec, hec_exec_op *op) {
  hec_lane_queue *lane = &exec->lane[op->op.lane];
  HEC_RESERVE(lane->op, lane->capacity, lane->n + 1);
  lane->op[lane->n++] = op;
}

hec_status hec_exec_post(hec_exec *exec, const hec_program *program) {
  exec->program = program;
  size_t n_openings, next = 0;
  opening *openings = list_openings(exec, &n_openings);
  HEC_RESERVE(exec->ops, exec->ops_capacity, program->n_ops);
  /* Memory opened at an operation in which this rank has no part is first written by its compute lane. */
  int32_t n_after = 0;
  for (int32_t id = (int32_t)exec->n_ops; id < (int32_t)program->n_ops; id++) {
    const hec_op *op = &program->ops[id];
    bool takes_part = hec_program_takes_part(program, op, exec->r);
    exec->ops[id] = NULL;
    for (; next < n_openings && openings[next].first == id; next++)
      HEC_TRY(open_hold(exec, openings[next].hold, &n_after));
    if (takes_part) {
      hec_exec_op *new = new_op(exec, id, n_after);
      n_after = op->lane == HEC_LANE_COMPUTE ? 0 : n_after;
      exec->ops[id] = new;
      exec->newest[op->lane] = id;
      HEC_TRY(bind(exec, new));
      if (exec->streams)
        HEC_TRY(hec_stream_enqueue(exec, new));
      else
        append(exec, new);
    } else {
      exec->n_done++;
    }
    close_holds(exec, id);
  }
  exec->n_ops = program->n_ops;
  return HEC_OK;
}
