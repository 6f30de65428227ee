/* Lanes as streams of a device. An operation is put on the stream of its lane as soon as it is bound, in the order of ids:
 *
 *     the stream waits for what the operation needs on other lanes, by end events (for memory that is reused too);
 *     event "began" | its steps, or its exchange over the link | event "ended"
 *
 * The host waits for the device only where a policy asks for counts, and at the end of an iteration. Then it looks at
 * the oldest operation that is not done, whose change is progress. After limit_ns without any it says where it hangs.
 * Deadlock freedom: the argument of program.h, since every wait of a stream names an operation that was put on its
 * stream before. Times are those of the events. O(operations) per iteration beside the work itself. */
#include "runtime/exec/exec_state.h"
#include "runtime/exec/launch/world.h"
#include "runtime/exec/link/device_link.h"

static const int64_t look_ns = 20 * 1000;

static hec_processor *processor_of(const hec_exec *exec) {
  return exec->rank->processor;
}

static void wait_for_others(hec_exec *exec, const hec_exec_op *op) {
  hec_processor *on = processor_of(exec);
  for (int32_t i = 0; i < op->n_waits; i++) {
    const hec_exec_op *earlier = exec->ops[op->waits[i]];
    if (earlier->ended && earlier->op.lane != op->op.lane)
      on->streams->after(on, earlier->ended);
  }
}

static hec_status enqueue(hec_exec *exec, hec_exec_op *op) {
  hec_processor *on = processor_of(exec);
  if (op->op.kind == HEC_OP_PLAN)
    return HEC_OK; /* the host's: it is over when what depends on it is posted */
  on->streams->select(on, (int32_t)op->op.lane);
  wait_for_others(exec, op);
  op->given_ns = hec_clock_ns();
  op->began = on->streams->mark(on);
  if (hec_op_exchanges(op)) {
    hec_place place = hec_exec_place(exec, op);
    hec_rank_at(exec->rank, &place);
    HEC_TRY(hec_exchange_enqueue(exec, op));
  }
  while (op->step < op->n_steps)
    hec_exec_step(exec, op);
  op->ended = on->streams->mark(on);
  on->streams->select(on, HEC_LANE_COMPUTE);
  return HEC_OK;
}

static bool is_done(const hec_exec *exec, size_t id) {
  const hec_exec_op *op = exec->ops[id];
  return !op || !op->ended || processor_of(exec)->streams->reached(processor_of(exec), op->ended);
}

/* Whether the oldest operation that is not done is another one now. */
static bool moved_on(hec_exec *exec) {
  size_t before = (size_t)exec->first_undone, at = before;
  while (at < exec->n_ops && is_done(exec, at))
    at++;
  exec->first_undone = (int32_t)at;
  return at > before;
}

/* The partner of an exchange that has not come as far; else the first one. -1: none. */
static int32_t partner_behind(const hec_exec *exec, const hec_exec_op *op) {
  const hec_post *post = op->exchange ? &op->exchange->post : NULL;
  int32_t first = -1;
  for (int32_t i = 0; post && i < post->n_sends + post->n_receives; i++) {
    hec_place place;
    int32_t peer = i < post->n_receives ? post->receives[i].peer : post->sends[i - post->n_receives].peer;
    if (hec_world_place(exec->rank->world, peer, &place) && place.op < op->id)
      return peer;
    first = first < 0 ? peer : first;
  }
  return first;
}

static hec_status late(hec_exec *exec, const hec_exec_op *op, int32_t peer) {
  if (peer >= 0)
    return hec_exec_late(exec, op, peer);
  return hec_rank_fail(exec->rank, "waited %.3g s for the device", (double)exec->rank->limit_ns * 1e-9);
}

/* Says where this rank is, and that it is alive; gives up when nothing has moved for too long, else rests until something
 * may have. */
static hec_status look(hec_exec *exec, int32_t id, int64_t *progress_ns) {
  hec_rank *rank = exec->rank;
  int64_t now = hec_clock_ns();
  HEC_TRY(hec_rank_check(rank));
  if (rank->link->check)
    HEC_TRY(rank->link->check(rank));
  if (moved_on(exec)) {
    *progress_ns = now;
    return HEC_OK;
  }
  bool all = (size_t)exec->first_undone == exec->n_ops;
  const hec_exec_op *op = exec->ops[all ? id : exec->first_undone];
  hec_place place = hec_exec_place(exec, op);
  int32_t peer = partner_behind(exec, op);
  hec_rank_at(rank, &place);
  hec_rank_waits_for(rank, peer);
  if (now - *progress_ns > rank->limit_ns)
    return late(exec, op, peer);
  return rank->transport->wait(rank, now + look_ns);
}

static bool reached(hec_exec *exec, int32_t id) {
  return id >= 0 ? is_done(exec, (size_t)id) : (size_t)exec->first_undone == exec->n_ops;
}

hec_status hec_stream_wait(hec_exec *exec, int32_t id) {
  hec_processor *on = processor_of(exec);
  int64_t progress_ns = hec_clock_ns();
  (void)moved_on(exec);
  while (!reached(exec, id))
    HEC_TRY(look(exec, id, &progress_ns));
  hec_rank_waits_for(exec->rank, -1);
  const char *error = on->streams->error(on);
  return error ? hec_rank_fail(exec->rank, "the device failed: %s", error) : HEC_OK;
}

/* In virtual time the device does one thing at a time, so that what it took is the operation's own. Exchanges are not
 * timed, but take turns too (device_link.h). */
hec_status hec_stream_enqueue(hec_exec *exec, hec_exec_op *op) {
  if (!exec->rank->serial || op->n_steps == 0)
    return enqueue(exec, op);
  HEC_TRY(hec_rank_take_turn(exec->rank));
  hec_status status = enqueue(exec, op);
  if (status == HEC_OK)
    status = hec_stream_wait(exec, op->id);
  hec_rank_end_turn(exec->rank);
  return status;
}

/* When everything is over that the operation had to wait for; `lane_ns`: what was on its lane. */
static int64_t earliest(const hec_exec *exec, const hec_exec_op *op, int64_t lane_ns) {
  int64_t at = lane_ns;
  for (int32_t i = 0; i < op->n_waits; i++)
    at = exec->ops[op->waits[i]]->end_ns > at ? exec->ops[op->waits[i]]->end_ns : at;
  return at;
}

/* The stream could have begun at min_ns, had the host been there. */
static int64_t late_by(const hec_exec_op *op, int64_t min_ns) {
  int64_t there_ns = op->given_ns < op->begin_ns ? op->given_ns : op->begin_ns;
  return there_ns > min_ns ? there_ns - min_ns : 0;
}

/* Planning is the host's, and may be over before the device gets to where it belongs in its lane. The two clocks agree to
 * some microseconds. So nothing begins before what it waits for has ended. */
void hec_stream_times(hec_exec *exec) {
  hec_processor *on = processor_of(exec);
  int64_t lane_ns[HEC_N_LANES];
  for (int32_t l = 0; l < HEC_N_LANES; l++)
    lane_ns[l] = exec->start_ns;
  for (size_t i = 0; i < exec->n_ops; i++) {
    hec_exec_op *op = exec->ops[i];
    if (!op)
      continue;
    if (op->ended) {
      op->begin_ns = on->streams->when(on, op->began);
      op->end_ns = on->streams->when(on, op->ended);
    }
    int64_t min_ns = earliest(exec, op, lane_ns[op->op.lane]);
    if (op->ended && !hec_op_exchanges(op))
      op->cpu_ns = op->end_ns - op->begin_ns;
    op->wall_ns = op->cpu_ns + (op->ended && op->op.lane == HEC_LANE_COMPUTE ? late_by(op, min_ns) : 0);
    op->begin_ns = op->begin_ns > min_ns ? op->begin_ns : min_ns;
    op->end_ns = op->end_ns > op->begin_ns ? op->end_ns : op->begin_ns;
    op->posted_ns = op->begin_ns;
    lane_ns[op->op.lane] = op->end_ns;
  }
}
