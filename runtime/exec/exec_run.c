/* Running: any lane whose head can move is moved. One pass looks at the communication lanes first, then does one step
 * of the compute lane. A pass in which nothing moved ends in a sleep. It lasts until a peer rings, a held operation is
 * due, or it is time to ask whether the peer is late. */
#include "runtime/base/arena.h"
#include "runtime/exec/exec_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t slice_ns = 50 * 1000 * 1000;

hec_place hec_exec_place(const hec_exec *exec, const hec_exec_op *op) {
  return (hec_place){.iteration = exec->iteration,
                     .op = op->id,
                     .layer = op->op.layer,
                     .micro_batch = op->op.micro_batch,
                     .role = (int32_t)op->op.role,
                     .lane = (int32_t)op->op.lane,
                     .backward = op->op.backward};
}

static void publish(hec_exec *exec, const hec_exec_op *op) {
  hec_place place = hec_exec_place(exec, op);
  hec_rank_at(exec->rank, &place);
}

static bool ready(const hec_exec *exec, const hec_exec_op *op) {
  for (int32_t i = 0; i < op->n_waits; i++)
    if (!hec_op_done(exec, op->waits[i]))
      return false;
  return true;
}

bool hec_op_exchanges(const hec_exec_op *op) {
  return op->op.kind == HEC_OP_EXCHANGE || op->op.kind == HEC_OP_ALLREDUCE || op->op.kind == HEC_OP_COUNTS;
}

static void finish(hec_exec *exec, hec_lane_queue *lane, hec_exec_op *op) {
  op->state = HEC_OP_DONE;
  if (op->op.kind != HEC_OP_PLAN)
    op->end_ns = hec_clock_ns();
  op->late_ns = hec_op_exchanges(op) ? exec->late_ns : 0;
  lane->head++;
  exec->n_done++;
}

static hec_status begin(hec_exec *exec, hec_exec_op *op) {
  op->state = HEC_OP_RUNNING;
  op->posted_ns = hec_clock_ns();
  if (op->op.kind != HEC_OP_PLAN)
    op->begin_ns = op->posted_ns;
  if (op->n_steps > 0 || hec_op_exchanges(op))
    publish(exec, op);
  if (!hec_op_exchanges(op))
    return HEC_OK;
  if (exec->rank->transport->held)
    hec_rank_set_posted(exec->rank, op->id, op->posted_ns);
  hec_status status = hec_exchange_start(exec, op);
  op->cpu_ns += hec_clock_ns() - op->posted_ns;
  return status;
}

/* Moving bytes is work that computing then waits for: it counts. Polls that moved nothing do not count. */
static hec_status move(hec_exec *exec, hec_exec_op *op, bool *done, bool *moved) {
  int64_t begin_ns = hec_clock_ns();
  bool some = false;
  HEC_TRY(hec_exchange_test(exec, op, done, &some));
  if (some)
    op->cpu_ns += hec_clock_ns() - begin_ns;
  *moved = *moved || some;
  return HEC_OK;
}

void hec_exec_step(hec_exec *exec, hec_exec_op *op) {
  bool tensor = op->op.role == HEC_ROLE_TENSOR_REDUCE;
  bool adds = tensor || op->op.role == HEC_ROLE_REDUCE || op->op.role == HEC_ROLE_SHARD_REDUCE;
  if (adds) {
    hec_processor *on = exec->rank->processor;
    on->math->add(on, op->exchange->additions, op->exchange->n_additions);
    on->math->add(on, op->exchange->own, op->exchange->n_own);
  } else if (op->op.role == HEC_ROLE_ALIGN) {
    exec->rank->processor->math->copy(exec->rank->processor, op->exchange->own, op->exchange->n_own);
  }
  if (tensor || (!adds && op->op.role != HEC_ROLE_ALIGN)) {
    exec->options.work.run(exec->options.work.context, exec, op);
  }
  op->step++;
}

static hec_status step(hec_exec *exec, hec_exec_op *op) {
  bool virtual_time = exec->options.virtual_time;
  if (virtual_time)
    HEC_TRY(hec_rank_take_turn(exec->rank));
  int64_t cpu_ns = hec_cpu_clock_ns(), wall_ns = hec_clock_ns();
  hec_exec_step(exec, op);
  op->cpu_ns += hec_cpu_clock_ns() - cpu_ns;
  op->wall_ns += hec_clock_ns() - wall_ns;
  if (virtual_time)
    hec_rank_end_turn(exec->rank);
  return HEC_OK;
}

/* Moves the lane's head; at most one step of work. */
static hec_status advance(hec_exec *exec, hec_lane_queue *lane, bool *moved) {
  if (lane->head == lane->n)
    return HEC_OK;
  hec_exec_op *op = lane->op[lane->head];
  if (op->state == HEC_OP_WAITING) {
    if (!ready(exec, op))
      return HEC_OK;
    HEC_TRY(begin(exec, op));
    *moved = true;
  }
  if (hec_op_exchanges(op)) {
    bool done;
    HEC_TRY(move(exec, op, &done, moved));
    if (!done || (op->exchange->partners && hec_clock_ns() < hec_exchange_held_until(exec, op)))
      return HEC_OK;
  } else if (op->step < op->n_steps) {
    HEC_TRY(step(exec, op));
    *moved = true;
    if (op->step < op->n_steps)
      return HEC_OK;
  }
  finish(exec, lane, op);
  *moved = true;
  return HEC_OK;
}

static hec_status pass(hec_exec *exec, bool *moved) {
  *moved = false;
  for (int32_t l = HEC_LANE_TOKEN; l < HEC_N_LANES; l++)
    HEC_TRY(advance(exec, &exec->lane[l], moved));
  return advance(exec, &exec->lane[HEC_LANE_COMPUTE], moved);
}

/* The exchange that has waited longest, NULL: none is in progress. */
static const hec_exec_op *oldest_exchange(const hec_exec *exec) {
  const hec_exec_op *oldest = NULL;
  for (int32_t l = 0; l < HEC_N_LANES; l++) {
    const hec_lane_queue *lane = &exec->lane[l];
    const hec_exec_op *op = lane->head < lane->n ? lane->op[lane->head] : NULL;
    if (op && op->state == HEC_OP_RUNNING && hec_op_exchanges(op) && (!oldest || op->posted_ns < oldest->posted_ns))
      oldest = op;
  }
  return oldest;
}

hec_status hec_exec_late(hec_exec *exec, const hec_exec_op *op, int32_t peer) {
  HEC_SCOPED(hec_text) what = {0};
  hec_place place = hec_exec_place(exec, op);
  publish(exec, op);
  hec_place_describe(&place, &what);
  return hec_rank_late(exec->rank, peer, what.data);
}

/* Until when there is nothing to do unless a peer rings. */
static int64_t next_due(const hec_exec *exec, int64_t now) {
  int64_t due = now + slice_ns;
  for (int32_t l = 0; l < HEC_N_LANES; l++) {
    const hec_lane_queue *lane = &exec->lane[l];
    const hec_exec_op *op = lane->head < lane->n ? lane->op[lane->head] : NULL;
    if (!op || op->state != HEC_OP_RUNNING || !op->exchange || !op->exchange->done)
      continue;
    int64_t held = hec_exchange_held_until(exec, op);
    due = held < due ? held : due;
  }
  return due;
}

/* How long this thread has been ready to run without a processor, by Linux's account (the second number of schedstat). */
static int64_t delay_ns(const hec_exec *exec) {
  char text[96];
  ssize_t n = exec->delays >= 0 ? pread(exec->delays, text, sizeof text - 1, 0) : 0;
  if (n <= 0)
    return 0;
  text[n] = 0;
  const char *second = strchr(text, ' ');
  return second ? strtoll(second, NULL, 10) : 0;
}

static hec_status idle(hec_exec *exec) {
  int64_t now = hec_clock_ns();
  const hec_exec_op *op = oldest_exchange(exec);
  HEC_ASSERT(op != NULL); /* else some operation waits for one that nobody will finish */
  int32_t peer = hec_exchange_waits_for(exec, op);
  hec_rank_waits_for(exec->rank, peer);
  if (hec_rank_turns(exec->rank) != exec->turns)
    exec->progress_ns = now;
  exec->turns = hec_rank_turns(exec->rank);
  if (peer >= 0 && now - exec->progress_ns > exec->rank->limit_ns)
    return hec_exec_late(exec, op, peer);
  int64_t delayed_ns = delay_ns(exec), looked_ns;
  exec->rank->looked_ns = 0;
  hec_status status = exec->rank->transport->wait(exec->rank, next_due(exec, now));
  exec->late_ns = delay_ns(exec) - delayed_ns;
  looked_ns = exec->rank->looked_ns;
  if (looked_ns > 0 && hec_clock_ns() - looked_ns < exec->late_ns) /* what comes while it sleeps again is not late */
    exec->late_ns = hec_clock_ns() - looked_ns;
  return status;
}

static hec_status run(hec_exec *exec, int32_t id) {
  exec->progress_ns = hec_clock_ns();
  while (id >= 0 ? !hec_op_done(exec, id) : exec->n_done < exec->n_ops) {
    bool moved;
    HEC_TRY(hec_rank_check(exec->rank));
    HEC_TRY(pass(exec, &moved));
    exec->late_ns = 0;
    if (moved)
      exec->progress_ns = hec_clock_ns();
    else
      HEC_TRY(idle(exec));
  }
  hec_rank_waits_for(exec->rank, -1);
  return HEC_OK;
}

hec_status hec_exec_wait(hec_exec *exec, int32_t id) {
  HEC_ASSERT(id >= 0 && (size_t)id < exec->n_ops);
  return exec->streams ? hec_stream_wait(exec, id) : run(exec, id);
}

hec_status hec_exec_drain(hec_exec *exec) {
  return exec->streams ? hec_stream_wait(exec, -1) : run(exec, -1);
}
