/* An iteration's frame: its start, its end, and the timeline of all ranks.
 *
 * Rank r reports for each operation when it posted it, began and ended it. An exchange begins on a rank when its
 * partners have posted too (timeline.h). So rank 0 takes for each exchange the latest post among the rank and its
 * partners. For all-reduce and counts it takes the latest of all. Virtual time: rank 0 walks the program with the
 * measured CPU times. */
#include "runtime/base/arena.h"
#include "runtime/exec/exec_state.h"
#include "runtime/program/walk.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void hec_exec_begin(hec_exec *exec, int64_t iteration, int64_t start_ns) {
  hec_arena_rewind(&exec->step, (hec_arena_mark){0});
  exec->iteration = iteration;
  exec->start_ns = start_ns;
  exec->n_ops = exec->n_holds = exec->n_open = exec->n_done = 0;
  exec->n_staged = 0;
  exec->first_undone = 0;
  for (int32_t l = 0; l < HEC_N_LANES; l++) {
    exec->lane[l].n = exec->lane[l].head = 0;
    exec->newest[l] = -1;
  }
  for (int32_t i = 0; i < exec->options.n_micro_batches * exec->n_layers; i++)
    exec->rows[i] = NULL;
  hec_buffers_clear(&exec->buffers);
}

void hec_exec_restart(hec_exec *exec) {
  if (exec->streams)
    exec->rank->processor->streams->restart(exec->rank->processor);
}

void hec_exec_planned(hec_exec *exec, int64_t begin_ns, int64_t end_ns) {
  exec->planned_begin_ns = begin_ns;
  exec->planned_end_ns = end_ns;
}

/* State as the program counts it for this rank. */
static double state_of(const hec_exec *exec, const hec_program *program) {
  double sum = 0;
  for (size_t i = 0; i < program->n_holds; i++) {
    const hec_hold *hold = &program->holds[i];
    if (hold->tensor == HEC_TENSOR_STATE)
      sum += hold->bytes_at < 0 ? hold->bytes : hold->bytes * program->local_bytes[hold->bytes_at + exec->r];
  }
  return sum;
}

/* Experts that the plan no longer keeps here. */
static void give_back(hec_exec *exec) {
  for (int32_t row = 0; row < exec->store.n_rows; row++)
    for (int32_t part = 0; part < exec->store.n_parts; part++) {
      bool keep = exec->keeps[(size_t)row * (size_t)exec->store.n_parts + (size_t)part] != 0;
      if (!keep && hec_store_has(&exec->store, row, part))
        hec_store_give(&exec->store, row, part);
      HEC_ASSERT(!keep || hec_store_has(&exec->store, row, part));
    }
}

hec_status hec_exec_finish(hec_exec *exec, const hec_program *program) {
  HEC_TRY(hec_exec_post(exec, program));
  HEC_TRY(hec_exec_drain(exec));
  if (exec->streams)
    hec_stream_times(exec);
  HEC_ASSERT(exec->n_open == 0 && exec->buffers.live < 0.5);
  double state = state_of(exec, program), used = state + exec->buffers.peak;
  HEC_ASSERT(fabs(state - exec->kept_bytes) < 1 + 1e-9 * state);
  double *peak = HEC_NEW(&exec->step, double, exec->n_ranks);
  hec_program_memory_peak(program, peak, NULL);
  HEC_ASSERT(fabs(peak[exec->r] - used) < 1 + 1e-9 * peak[exec->r]); /* the simulator's memory model */
  give_back(exec);
  return HEC_OK;
}

/* ---- The timeline ---- */

enum { POSTED, BEGIN, END, CPU, LOST, N_STAMPS };

static int64_t lost_ns(const hec_exec_op *op) {
  return op->wall_ns > op->cpu_ns ? op->wall_ns - op->cpu_ns : op->late_ns;
}

hec_exec_span hec_exec_span_of(const hec_exec *exec, int32_t first, int32_t end) {
  hec_exec_span span = {0};
  HEC_ASSERT(first >= 0 && (size_t)end <= exec->n_ops);
  for (int32_t i = first; i < end; i++) {
    const hec_exec_op *op = exec->ops[i];
    if (!op)
      continue;
    span.end_ns = op->end_ns > span.end_ns ? op->end_ns : span.end_ns;
    span.lost_ps += 1000 * lost_ns(op);
  }
  return span;
}

static int64_t *own_stamps(hec_exec *exec) {
  int64_t *stamps = HEC_NEW(&exec->step, int64_t, N_STAMPS * exec->n_ops + 1);
  for (size_t i = 0; i < exec->n_ops; i++) {
    const hec_exec_op *op = exec->ops[i];
    int64_t *s = stamps + N_STAMPS * i;
    s[POSTED] = op ? op->posted_ns - exec->start_ns : -1;
    s[BEGIN] = op ? op->begin_ns - exec->start_ns : -1;
    s[END] = op ? op->end_ns - exec->start_ns : -1;
    s[LOST] = op ? lost_ns(op) : 0;
    s[CPU] = op ? (op->op.kind == HEC_OP_PLAN ? op->end_ns - op->begin_ns : op->cpu_ns) : 0;
  }
  return stamps;
}

/* When the exchange began on each rank: the latest post among it and its partners. */
static void meet(const hec_program *program, const hec_op *op, const int64_t *posted, int64_t *begin) {
  memcpy(begin, posted, (size_t)program->n_ranks * sizeof *begin);
  for (int32_t k = 0; k < op->exchange.n_transfers; k++) {
    int32_t s = program->transfers[op->exchange.transfer_at + k].source,
            d = program->transfers[op->exchange.transfer_at + k].destination;
    begin[s] = posted[d] > begin[s] ? posted[d] : begin[s];
    begin[d] = posted[s] > begin[d] ? posted[s] : begin[d];
  }
}

static int64_t to_ps(int64_t ns) {
  return ns < 0 ? 0 : ns * 1000;
}

static void put_measured(hec_exec *exec, const hec_program *program, const int64_t *all, hec_timeline *timeline) {
  int32_t n_ranks = exec->n_ranks;
  size_t row = N_STAMPS * exec->n_ops + 1;
  int64_t *posted = HEC_NEW(&exec->step, int64_t, n_ranks), *begin = HEC_NEW(&exec->step, int64_t, n_ranks);
  hec_timeline_resize(timeline, (int32_t)exec->n_ops, n_ranks);
  for (size_t i = 0; i < exec->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    int64_t latest = 0;
    for (int32_t r = 0; r < n_ranks; r++) {
      posted[r] = all[(size_t)r * row + N_STAMPS * i + POSTED];
      latest = posted[r] > latest ? posted[r] : latest;
    }
    if (op->kind == HEC_OP_EXCHANGE)
      meet(program, op, posted, begin);
    for (int32_t r = 0; r < n_ranks; r++) {
      if (!hec_program_takes_part(program, op, r))
        continue;
      const int64_t *s = all + (size_t)r * row + N_STAMPS * i;
      bool together = op->kind == HEC_OP_ALLREDUCE || op->kind == HEC_OP_COUNTS;
      int64_t at = op->kind == HEC_OP_EXCHANGE ? begin[r] : together ? latest : s[BEGIN];
      at = at < s[END] ? at : s[END]; /* clocks of two machines */
      timeline->begin_ps[i * (size_t)n_ranks + (size_t)r] = to_ps(at);
      timeline->end_ps[i * (size_t)n_ranks + (size_t)r] = to_ps(s[END]);
    }
  }
}

static void put_virtual(hec_exec *exec, const hec_program *program, const int64_t *all, hec_timeline *timeline) {
  size_t row = N_STAMPS * exec->n_ops + 1, n_ranks = (size_t)exec->n_ranks;
  int64_t *own = HEC_NEW(&exec->step, int64_t, exec->n_ops * n_ranks);
  for (size_t i = 0; i < exec->n_ops; i++)
    for (size_t r = 0; r < n_ranks; r++)
      own[i * n_ranks + r] = to_ps(all[r * row + N_STAMPS * i + CPU]);
  hec_arena_mark mark = hec_arena_save(&exec->step);
  hec_walk *walk = hec_walk_new(&exec->cost, exec->n_ranks, &exec->step);
  hec_walk_run(walk, program, (hec_walk_options){.own = hec_walk_own_measured, .context = own}, timeline);
  hec_walk_free(walk);
  hec_arena_rewind(&exec->step, mark);
}

/* What each operation's steps took on the clock beyond the thread's own time; how late the end of an exchange was. */
static int64_t *lost_ps(hec_exec *exec, const int64_t *all) {
  size_t row = N_STAMPS * exec->n_ops + 1, n_ranks = (size_t)exec->n_ranks;
  int64_t *lost = HEC_NEW(&exec->step, int64_t, exec->n_ops * n_ranks + 1);
  for (size_t i = 0; i < exec->n_ops; i++)
    for (size_t r = 0; r < n_ranks; r++)
      lost[i * n_ranks + r] = to_ps(all[r * row + N_STAMPS * i + LOST]);
  return lost;
}

static double interrupted(const hec_exec *exec, const int64_t *all, const int64_t *lost_of) {
  size_t row = N_STAMPS * exec->n_ops + 1, n_ranks = (size_t)exec->n_ranks;
  double worst = 0;
  for (size_t r = 0; r < n_ranks; r++) {
    int64_t lost = 0, end = 1000;
    for (size_t i = 0; i < exec->n_ops; i++) {
      int64_t ended = to_ps(all[r * row + N_STAMPS * i + END]);
      lost += lost_of[i * n_ranks + r];
      end = ended > end ? ended : end;
    }
    double share = (double)lost / (double)end;
    worst = share > worst ? share : worst;
  }
  return worst;
}

static hec_exec_moving moving(const hec_exec *exec, const hec_program *program, const int64_t *all,
                              const hec_timeline *timeline) {
  size_t row = N_STAMPS * exec->n_ops + 1, n_ranks = (size_t)exec->n_ranks;
  hec_exec_moving sum = {0};
  for (size_t i = 0; i < exec->n_ops; i++)
    for (size_t r = 0; r < n_ranks; r++) {
      hec_op_kind kind = program->ops[i].kind;
      if ((kind != HEC_OP_EXCHANGE && kind != HEC_OP_ALLREDUCE && kind != HEC_OP_COUNTS) ||
          timeline->begin_ps[i * n_ranks + r] < 0)
        continue;
      sum.busy_s += 1e-9 * (double)all[r * row + N_STAMPS * i + CPU];
      sum.lasted_s += 1e-12 * (double)(timeline->end_ps[i * n_ranks + r] - timeline->begin_ps[i * n_ranks + r]);
    }
  return sum;
}

hec_exec_moving hec_exec_moved(const hec_exec *exec) {
  return exec->moving;
}

double hec_exec_interrupted(const hec_exec *exec) {
  return exec->interrupted;
}

const int64_t *hec_exec_lost_ps(const hec_exec *exec) {
  return exec->lost_ps;
}

hec_status hec_exec_timeline(hec_exec *exec, const hec_program *program, hec_timeline *timeline) {
  int64_t *stamps = own_stamps(exec), *all = NULL;
  size_t row = N_STAMPS * exec->n_ops + 1;
  uint64_t digest[2] = {hec_program_detail_digest(program), program->n_ops}, *digests = NULL;
  if (exec->r == 0) {
    all = HEC_NEW(&exec->step, int64_t, row * (size_t)exec->n_ranks);
    digests = HEC_NEW(&exec->step, uint64_t, 2 * exec->n_ranks);
  }
  HEC_TRY(hec_rank_gather(exec->rank, digest, sizeof digest, digests));
  for (int32_t r = 1; digests && r < exec->n_ranks; r++)
    if (memcmp(digests, digests + 2 * r, sizeof digest) != 0)
      return hec_rank_fail(exec->rank,
                           "iteration %" PRId64 ": rank %d planned another program than rank 0 (%016" PRIx64
                           " with %" PRIu64 " operations, not %016" PRIx64 " with %" PRIu64 ")",
                           exec->iteration, r, digests[2 * r], digests[2 * r + 1], digests[0], digests[1]);
  HEC_TRY(hec_rank_gather(exec->rank, stamps, row * sizeof *stamps, all));
  if (exec->r == 0) {
    const int64_t *lost = lost_ps(exec, all);
    exec->interrupted = interrupted(exec, all, lost);
    exec->lost_ps = exec->options.virtual_time || exec->streams ? NULL : lost;
  }
  if (exec->r == 0 && exec->options.virtual_time)
    put_virtual(exec, program, all, timeline);
  else if (exec->r == 0)
    put_measured(exec, program, all, timeline);
  if (exec->r == 0 && !exec->options.virtual_time)
    exec->moving = moving(exec, program, all, timeline);
  return HEC_OK;
}
