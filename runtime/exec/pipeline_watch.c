/* See pipeline_watch.h. */
#include "runtime/exec/pipeline_watch.h"

#include "runtime/base/arena.h"
#include "runtime/plan/problem.h"

void hec_pipeline_watch_open(hec_pipeline_watch *w, const hec_replay *replay, const hec_pipeline_order *order,
                             hec_rank *rank, hec_arena *arena) {
  const hec_problem *stage = replay->problem;
  int64_t bytes = (int64_t)stage->tokens * stage->moe->d_model * (int64_t)sizeof(float);
  *w = (hec_pipeline_watch){.replay = replay, .order = order, .rank = rank, .n_own = hec_step_own_max(order)};
  w->own = HEC_NEW(arena, hec_step_stamp, w->n_own);
  w->op_at = HEC_NEW(arena, int32_t, w->n_own);
  if (replay->probe)
    w->probe = hec_probe_new(arena);
  if (rank->rank != 0)
    return;
  w->all = HEC_NEW(arena, hec_step_stamp, (size_t)rank->n_ranks * (size_t)w->n_own);
  w->digest = HEC_NEW(arena, uint64_t, rank->n_ranks);
  if (replay->probe)
    w->probe_s = HEC_NEW(arena, double, 2 * rank->n_ranks);
  hec_step_program_make(order, stage->n_ranks, bytes, stage->train, arena, &w->program, &w->ops);
  w->lost_ps = HEC_NEW(arena, int64_t, w->program.n_ops * (size_t)rank->n_ranks);
}

void hec_pipeline_watch_close(hec_pipeline_watch *w) {
  hec_program_free(&w->program);
  hec_timeline_free(&w->timeline);
}

/* All ranks at once, as they compute. */
static hec_status probe(hec_pipeline_watch *w, double *seconds) {
  int64_t start_ns;
  if (!w->replay->probe)
    return HEC_OK;
  HEC_TRY(hec_rank_start_together(w->rank, &start_ns));
  *seconds = hec_probe_run(&w->probe);
  return HEC_OK;
}

hec_status hec_pipeline_watch_begin(hec_pipeline_watch *w, hec_runner *runner, int64_t iter) {
  HEC_TRY(probe(w, &w->probed_s[0]));
  HEC_TRY(
      hec_runner_begin(runner, iter)); /* the ranks of a stage start together, then all: that is when the step begins */
  w->n_done = 0;
  return hec_rank_start_together(w->rank, &w->start_ns);
}

static int64_t to_ps(const hec_pipeline_watch *w, int64_t ns) {
  return ns < w->start_ns ? 0 : (ns - w->start_ns) * 1000;
}

void hec_pipeline_watch_input(hec_pipeline_watch *w) {
  w->own[w->n_done].input_ps = to_ps(w, hec_clock_ns());
}

void hec_pipeline_watch_done(hec_pipeline_watch *w, const hec_program *program) {
  w->op_at[w->n_done] = (int32_t)program->n_ops;
  w->own[w->n_done++].end_ps = to_ps(w, hec_clock_ns());
}

/* ---- On rank 0 ---- */

/* Of each of a rank's operations in the step's program. */
static void spread_lost(hec_pipeline_watch *w) {
  const hec_pipeline_order *o = w->order;
  int32_t n = w->replay->problem->n_ranks;
  for (int32_t r = 0; r < w->rank->n_ranks; r++) {
    const hec_step_stamp *own = w->all + (size_t)r * (size_t)w->n_own;
    int32_t d = r / n, first = o->piece_at[d];
    for (int32_t i = first; i < o->piece_at[d + 1]; i++)
      w->lost_ps[(size_t)w->ops.piece[i] * (size_t)w->rank->n_ranks + (size_t)r] = own[i - first].lost_ps;
    w->lost_ps[(size_t)w->ops.end[d] * (size_t)w->rank->n_ranks + (size_t)r] = own[w->n_own - 1].lost_ps;
  }
}

static double interrupted(const hec_pipeline_watch *w) {
  double worst = 0, end_ps = (double)hec_timeline_end_ps(&w->timeline);
  for (int32_t r = 0; r < w->rank->n_ranks; r++) {
    double lost_ps = 0;
    for (int32_t i = 0; i < w->n_own; i++)
      lost_ps += (double)w->all[(size_t)r * (size_t)w->n_own + (size_t)i].lost_ps;
    worst = lost_ps > worst * end_ps && end_ps > 0 ? lost_ps / end_ps : worst;
  }
  return worst;
}

static void hand_on(hec_pipeline_watch *w, const hec_replay_step *step) {
  const hec_pipeline_order *o = w->order;
  int32_t n = w->replay->problem->n_ranks;
  hec_step_timeline(o, &w->ops, &w->program, w->all, w->n_own, &w->timeline);
  spread_lost(w);
  for (int32_t d = 0; d < o->shape.n_stages; d++)
    w->digest[d] = w->digest[d * n]; /* all of a stage have one: the executor has compared them */
  w->replay->measured(w->replay->context, &(hec_replayed){.step = step,
                                                          .program = &w->program,
                                                          .digest = hec_stages_digest(w->digest, o->shape.n_stages),
                                                          .timeline = &w->timeline,
                                                          .interrupted = interrupted(w),
                                                          .lost_ps = w->lost_ps,
                                                          .probe_s = w->probe_s});
}

hec_status hec_pipeline_watch_end(hec_pipeline_watch *w, const hec_exec *exec, const hec_program *program,
                                  const hec_replay_step *step) {
  int32_t first = 0;
  for (int32_t i = 0; i < w->n_done; first = w->op_at[i++])
    w->own[i].lost_ps = hec_exec_span_of(exec, first, w->op_at[i]).lost_ps;
  hec_exec_span last = hec_exec_span_of(exec, first, (int32_t)program->n_ops);
  w->own[w->n_own - 1] = (hec_step_stamp){.end_ps = to_ps(w, last.end_ns), .lost_ps = last.lost_ps};
  HEC_TRY(probe(w, &w->probed_s[1]));
  uint64_t digest = hec_program_digest(program);
  HEC_TRY(hec_rank_gather(w->rank, w->own, (size_t)w->n_own * sizeof *w->own, w->all));
  HEC_TRY(hec_rank_gather(w->rank, &digest, sizeof digest, w->digest));
  if (w->replay->probe)
    HEC_TRY(hec_rank_gather(w->rank, w->probed_s, sizeof w->probed_s, w->probe_s));
  if (w->rank->rank == 0 && w->replay->measured)
    hand_on(w, step);
  return HEC_OK;
}
