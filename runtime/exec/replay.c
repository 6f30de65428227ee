/* The driver of replay. Per iteration and rank: lowering O(layers * (ranks^2 + ranks * experts)), posting, execution. */
#include "runtime/exec/replay.h"

#include "runtime/base/arena.h"
#include "runtime/exec/check.h"
#include "runtime/exec/launch/probe.h"
#include "runtime/plan/problem.h"

#include <inttypes.h>
#include <string.h>

/* The runner's context. */
typedef struct {
  hec_load seen; /* what the counts said */
  hec_check *check;
  hec_probe probe;
  double *probe_s; /* [2 * n_ranks] on rank 0 */
  float *rows;     /* [T * d] on the host */
} state;

/* Assignments of one source in a layer, at most; `together`: of all. */
static uint64_t assigned_in(const hec_load *load, int32_t layer, bool together) {
  uint64_t max = 0;
  if (together)
    return hec_load_layer_total(load, layer);
  for (int32_t s = 0; s < load->n_sources; s++) {
    const uint32_t *row = hec_load_row(load, layer, s);
    uint64_t n = 0;
    for (int32_t e = 0; e < load->n_experts; e++)
      n += row[e];
    max = n > max ? n : max;
  }
  return max;
}

/* Of one rank's tokens in a layer, at most: a policy that rewrites loads may give one source what several had. There is
 * room for as many in every layer, so it matters. */
static int32_t assigned_max(const hec_replay *replay, const hec_policy *policy) {
  uint64_t max = 0;
  for (int32_t i = 0; i < replay->n_steps; i++)
    for (int32_t k = 0; k < replay->steps[i].n_loads; k++)
      for (int32_t l = 0; l < replay->steps[i].loads[k].n_layers; l++) {
        uint64_t n = assigned_in(&replay->steps[i].loads[k], l, policy->rewrite != NULL);
        max = n > max ? n : max;
      }
  HEC_ASSERT(max <= INT32_MAX);
  return (int32_t)max;
}

static hec_runner_options options_of(const hec_replay *replay, const hec_policy *policy) {
  return (hec_runner_options){.problem = replay->problem,
                              .model = replay->model,
                              .n_micro_batches = replay->n_micro_batches,
                              .assigned = assigned_max(replay, policy),
                              .schedule = replay->schedule,
                              .collective = replay->collective,
                              .virtual_time = replay->virtual_time,
                              .watched = replay->probe,
                              .keep_grads = replay->check,
                              .capacity = replay->capacity};
}

size_t hec_replay_bytes(const hec_replay *replay, const hec_policy *policy) {
  hec_runner_options options = options_of(replay, policy);
  return hec_runner_bytes(&options, policy);
}

/* Loads, inputs and output gradients of an iteration: before its clock starts. */
static void prepare(hec_runner *r, const hec_replay *replay, const hec_replay_step *step, int64_t index) {
  state *s = r->context;
  hec_processor *on = r->rank->processor;
  int32_t tokens = replay->problem->tokens, rank = r->rank->rank;
  int64_t n = (int64_t)tokens * replay->model->moe.d_model;
  for (int32_t mb = 0; mb < replay->n_micro_batches; mb++) {
    hec_load_copy(&step->loads[step->n_loads == 1 ? 0 : mb], &r->loads[mb]);
    hec_lowering_rewrite(r->low, &r->loads[mb]);
    hec_model_input(replay->model, index + 1, mb, rank, tokens, s->rows);
    on->math->to_device(on, hec_work_stream(&r->work, r->work.x, mb), s->rows, n);
    if (!replay->problem->train)
      continue;
    hec_model_output_gradient(replay->model, index + 1, mb, rank, tokens, s->rows);
    on->math->to_device(on, hec_work_stream(&r->work, r->work.dx, mb), s->rows, n);
  }
  r->work.loads = r->loads;
  r->work.step = index + 1;
  if (r->work.keep_grads && replay->problem->train)
    hec_work_zero_grads(&r->work, r->exec);
}

/* What the policy looks at after the gate: the counts as they arrived. */
static hec_status load_of(hec_runner *r, int32_t micro_batch, int32_t layer, const hec_load **load) {
  state *s = r->context;
  *load = &r->loads[micro_batch];
  if (!hec_lowering_run(r->low)->policy->refine)
    return HEC_OK;
  *load = &s->seen;
  return hec_runner_counts(r, micro_batch, layer, &s->seen);
}

/* A fault on purpose: this rank believes in another past. */
static void differ(hec_runner *r, const hec_replay *replay, int64_t index) {
  if (replay->differ_rank != r->rank->rank || replay->differ_iteration != index)
    return;
  for (int32_t l = 0; l < r->loads[0].n_layers; l++) {
    uint32_t *row = hec_load_row(&r->loads[0], l, 0);
    uint32_t first = row[0];
    memmove(row, row + 1, (size_t)(r->loads[0].n_experts - 1) * sizeof *row);
    row[r->loads[0].n_experts - 1] = first;
  }
}

/* The counts that were exchanged are those that were planned with. */
static hec_status verify_counts(hec_runner *r, int64_t iter) {
  const hec_problem *p = r->options.problem;
  for (int32_t mb = 0; mb < r->options.n_micro_batches; mb++)
    for (int32_t l = 0; l < p->n_layers; l++)
      if (memcmp(hec_exec_counts(r->exec, l, mb), hec_load_row(&r->loads[mb], l, 0),
                 (size_t)p->n_ranks * (size_t)p->n_experts * sizeof(uint32_t)) != 0)
        return hec_rank_fail(r->rank,
                             "iteration %" PRId64 ", layer %d: the counts that were exchanged are not those "
                             "that this rank planned with",
                             iter, l);
  return HEC_OK;
}

/* The probe is the CPU's: it says nothing of a device. */
static bool probes(const hec_rank *rank, const hec_replay *replay) {
  return replay->probe && !rank->processor->streams;
}

/* All ranks at once, as they compute; in virtual time one after the other. */
static hec_status probe(hec_runner *r, const hec_replay *replay, double *seconds) {
  int64_t start_ns;
  if (!probes(r->rank, replay))
    return HEC_OK;
  HEC_TRY(hec_rank_start_together(r->rank, &start_ns));
  if (replay->virtual_time)
    HEC_TRY(hec_rank_take_turn(r->rank));
  *seconds = hec_probe_run(&((state *)r->context)->probe);
  if (replay->virtual_time)
    hec_rank_end_turn(r->rank);
  return HEC_OK;
}

static hec_status iterate(hec_runner *r, const hec_replay *replay, const hec_replay_step *step, int64_t index) {
  state *s = r->context;
  hec_check *check = s->check;
  double probed[2] = {0};
  prepare(r, replay, step, index);
  differ(r, replay, index);
  HEC_TRY(probe(r, replay, &probed[0]));
  HEC_TRY(hec_runner_iterate(r, step->iter));
  HEC_TRY(probe(r, replay, &probed[1]));
  if (probes(r->rank, replay))
    HEC_TRY(hec_rank_gather(r->rank, probed, sizeof probed, s->probe_s));
  HEC_TRY(verify_counts(r, step->iter));
  if (r->rank->rank == 0 && replay->measured)
    replay->measured(replay->context, &(hec_replayed){.step = step,
                                                      .low = r->low,
                                                      .program = hec_lowering_program(r->low),
                                                      .digest = hec_program_digest(hec_lowering_program(r->low)),
                                                      .timeline = &r->timeline,
                                                      .interrupted = hec_exec_interrupted(r->exec),
                                                      .moving = hec_exec_moved(r->exec),
                                                      .lost_ps = hec_exec_lost_ps(r->exec),
                                                      .probe_s = s->probe_s});
  return check ? hec_check_step(check, &r->work, index, r->loads, NULL) : HEC_OK;
}

hec_status hec_replay_run(const hec_replay *replay, const hec_policy *policy, hec_rank *rank,
                          hec_replay_check *result) {
  const hec_problem *p = replay->problem;
  state s = {0};
  hec_runner r = {.options = options_of(replay, policy), .rank = rank, .load_of = load_of, .context = &s};
  hec_status status = hec_runner_open(&r, policy);
  s.rows = HEC_NEW(&r.arena, float, (int64_t)p->tokens * replay->model->moe.d_model);
  s.seen = hec_load_new(&r.arena, p->n_layers, p->n_ranks, p->n_experts);
  if (probes(rank, replay)) {
    s.probe = hec_probe_new(&r.arena);
    s.probe_s = rank->rank == 0 ? HEC_NEW(&r.arena, double, 2 * rank->n_ranks) : NULL;
  }
  if (replay->check)
    s.check = hec_check_new(p, replay->model, replay->n_micro_batches, rank);
  for (int32_t i = 0; status == HEC_OK && i < replay->n_steps; i++)
    status = iterate(&r, replay, &replay->steps[i], i);
  if (status == HEC_OK && s.check)
    status = hec_check_finish(s.check, r.exec, replay->n_steps, result);
  hec_check_free(s.check);
  hec_runner_close(&r);
  return status;
}
