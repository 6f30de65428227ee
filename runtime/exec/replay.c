/* The driver of replay. Per iteration and rank: lowering O(layers * (ranks^2 + ranks * experts)), posting, execution. */
#include "runtime/exec/replay.h"

#include "runtime/base/arena.h"
#include "runtime/exec/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* One rank at work on one policy. */
typedef struct {
  const hec_replay *replay;
  hec_rank *rank;
  hec_arena arena; /* of the policy */
  hec_lowering *low;
  hec_exec *exec;
  hec_work_state work;
  hec_load *loads; /* [n_micro_batches] of the iteration, rewritten by the policy where it does that */
  hec_load seen;   /* what the counts said */
  hec_timeline timeline;
  hec_check *check;
} runner;

static hec_exec_options options_of(const hec_replay *replay, hec_rank *rank, int32_t n_slices) {
  hec_block_layout block = hec_model_block(replay->model);
  return (hec_exec_options){.problem = replay->problem,
                            .rank = rank,
                            .n_slices = n_slices,
                            .expert_size = hec_model_expert_size(replay->model),
                            .block_size = block.size,
                            .n_micro_batches = replay->n_micro_batches,
                            .workspace_size =
                                hec_work_workspace(replay->model, replay->problem->tokens, replay->n_micro_batches),
                            .virtual_time = replay->virtual_time};
}

size_t hec_replay_bytes(const hec_replay *replay, const hec_policy *policy) {
  hec_exec_options options = options_of(replay, NULL, policy->sliced ? replay->problem->n_ranks : 1);
  return hec_exec_bytes(&options);
}

static hec_status open_runner(runner *r, const hec_policy *policy) {
  const hec_replay *replay = r->replay;
  const hec_problem *p = replay->problem;
  const hec_schedule *schedule;
  HEC_TRY(hec_schedule_of(policy, replay->schedule, &schedule));
  r->low = hec_lowering_new(p, policy, schedule, replay->collective, &r->arena);
  hec_lowering_detail(r->low);
  const hec_plan *plan = &hec_lowering_run(r->low)->plan;
  hec_exec_options options = options_of(replay, r->rank, plan->n_slices);
  r->work = (hec_work_state){.model = replay->model,
                             .tokens = p->tokens,
                             .n_micro_batches = replay->n_micro_batches,
                             .rank = r->rank->rank,
                             .keep_grads = replay->check};
  options.work = hec_work_table_of(&r->work);
  HEC_TRY(hec_exec_new(&options, &r->arena, &r->exec));
  hec_work_open(&r->work, r->exec, &r->arena);
  HEC_TRY(hec_exec_set_plan(r->exec, plan, true));
  hec_work_init(&r->work, r->exec, &r->arena);
  r->loads = HEC_NEW(&r->arena, hec_load, replay->n_micro_batches);
  for (int32_t mb = 0; mb < replay->n_micro_batches; mb++)
    r->loads[mb] = hec_load_new(&r->arena, p->n_layers, p->n_ranks, p->n_experts);
  r->seen = hec_load_new(&r->arena, p->n_layers, p->n_ranks, p->n_experts);
  if (replay->check)
    r->check = hec_check_new(replay, r->rank);
  return HEC_OK;
}

static void close_runner(runner *r) {
  hec_check_free(r->check);
  hec_timeline_free(&r->timeline);
  hec_exec_free(r->exec);
  hec_lowering_free(r->low);
  hec_arena_free(&r->arena);
}

static size_t load_cells(const hec_load *load) {
  return (size_t)load->n_layers * (size_t)load->n_sources * (size_t)load->n_experts;
}

/* Loads, inputs and output gradients of an iteration: before its clock starts. */
static void prepare(runner *r, const hec_replay_step *step, int64_t index) {
  const hec_replay *replay = r->replay;
  int32_t tokens = replay->problem->tokens, rank = r->rank->rank;
  for (int32_t mb = 0; mb < replay->n_micro_batches; mb++) {
    const hec_load *from = &step->loads[step->n_loads == 1 ? 0 : mb];
    memcpy(r->loads[mb].counts, from->counts, load_cells(from) * sizeof *from->counts);
    hec_lowering_rewrite(r->low, &r->loads[mb]);
    hec_model_input(replay->model, index + 1, mb, rank, tokens, hec_work_stream(&r->work, r->work.x, mb));
    if (replay->problem->train)
      hec_model_output_gradient(replay->model, index + 1, mb, rank, tokens, hec_work_stream(&r->work, r->work.dx, mb));
  }
  r->work.loads = r->loads;
  r->work.step = index + 1;
  if (r->work.keep_grads && replay->problem->train)
    hec_work_zero_grads(&r->work, r->exec);
}

static void planning(runner *r, int64_t iter, int32_t micro_batch, int32_t layer) {
  hec_place place = {.iteration = iter, .op = -1, .layer = layer, .micro_batch = micro_batch, .role = -1, .lane = -1};
  (void)snprintf(place.phase, sizeof place.phase, "planning");
  hec_rank_at(r->rank, &place);
}

/* What the policy looks at after the gate: the counts as they arrived. */
static hec_status refine_load(runner *r, int32_t micro_batch, int32_t layer, const hec_load **load) {
  *load = &r->loads[micro_batch];
  if (!hec_lowering_run(r->low)->policy->refine)
    return HEC_OK;
  HEC_TRY(hec_exec_wait(r->exec, hec_lowering_counts(r->low, layer)));
  size_t row = (size_t)r->seen.n_sources * (size_t)r->seen.n_experts;
  memcpy(hec_load_row(&r->seen, layer, 0), hec_exec_counts(r->exec, layer, micro_batch), row * sizeof *r->seen.counts);
  *load = &r->seen;
  return HEC_OK;
}

static hec_status layer(runner *r, int64_t iter, int32_t micro_batch, int32_t l) {
  const hec_load *load;
  hec_lower_to_gate(r->low, l);
  HEC_TRY(hec_exec_post(r->exec, hec_lowering_program(r->low)));
  HEC_TRY(refine_load(r, micro_batch, l, &load));
  planning(r, iter, micro_batch, l);
  int64_t begin = hec_clock_ns();
  hec_lower_from_gate(r->low, l, load);
  hec_exec_planned(r->exec, begin, hec_clock_ns());
  return hec_exec_post(r->exec, hec_lowering_program(r->low));
}

static hec_status micro_batch(runner *r, int64_t iter, int32_t mb) {
  if (mb > 0)
    HEC_TRY(hec_exec_drain(r->exec));
  planning(r, iter, mb, -1);
  int64_t begin = hec_clock_ns();
  hec_lower_micro_batch(r->low, mb);
  hec_exec_planned(r->exec, begin, hec_clock_ns());
  HEC_TRY(hec_exec_set_plan(r->exec, &hec_lowering_run(r->low)->plan, false));
  HEC_TRY(hec_exec_post(r->exec, hec_lowering_program(r->low)));
  for (int32_t l = 0; l < r->replay->problem->n_layers; l++)
    HEC_TRY(layer(r, iter, mb, l));
  hec_lower_micro_batch_end(r->low, &r->loads[mb]);
  return hec_exec_post(r->exec, hec_lowering_program(r->low));
}

/* A fault on purpose: this rank believes in another past. */
static void differ(runner *r, int64_t index) {
  if (r->replay->differ_rank != r->rank->rank || r->replay->differ_iteration != index)
    return;
  for (int32_t l = 0; l < r->loads[0].n_layers; l++) {
    uint32_t *row = hec_load_row(&r->loads[0], l, 0);
    uint32_t first = row[0];
    memmove(row, row + 1, (size_t)(r->loads[0].n_experts - 1) * sizeof *row);
    row[r->loads[0].n_experts - 1] = first;
  }
}

/* The counts that were exchanged are the trace's (of the last micro-batch: tables are per micro-batch). */
static hec_status verify_counts(runner *r, int64_t iter) {
  const hec_problem *p = r->replay->problem;
  for (int32_t mb = 0; mb < r->replay->n_micro_batches; mb++)
    for (int32_t l = 0; l < p->n_layers; l++)
      if (memcmp(hec_exec_counts(r->exec, l, mb), hec_load_row(&r->loads[mb], l, 0),
                 (size_t)p->n_ranks * (size_t)p->n_experts * sizeof(uint32_t)) != 0)
        return hec_rank_fail(r->rank,
                             "iteration %" PRId64 ", layer %d: the counts that were exchanged are not those "
                             "that this rank planned with",
                             iter, l);
  return HEC_OK;
}

static hec_status iterate(runner *r, const hec_replay_step *step, int64_t index) {
  const hec_replay *replay = r->replay;
  int64_t start_ns;
  prepare(r, step, index);
  differ(r, index);
  HEC_TRY(hec_rank_start_together(r->rank, &start_ns));
  hec_exec_begin(r->exec, step->iter, start_ns);
  hec_lower_begin(r->low, step->iter, replay->n_micro_batches);
  for (int32_t mb = 0; mb < replay->n_micro_batches; mb++)
    HEC_TRY(micro_batch(r, step->iter, mb));
  hec_lower_end(r->low);
  HEC_TRY(hec_exec_finish(r->exec, hec_lowering_program(r->low)));
  HEC_TRY(hec_exec_timeline(r->exec, hec_lowering_program(r->low), &r->timeline));
  HEC_TRY(verify_counts(r, step->iter));
  if (r->rank->rank == 0 && replay->measured)
    replay->measured(replay->context, step, r->low, &r->timeline);
  return r->check ? hec_check_step(r->check, r->exec, &r->work, index, r->loads) : HEC_OK;
}

hec_status hec_replay_run(const hec_replay *replay, const hec_policy *policy, hec_rank *rank,
                          hec_replay_check *result) {
  runner r = {.replay = replay, .rank = rank};
  hec_status status = open_runner(&r, policy);
  for (int32_t i = 0; status == HEC_OK && i < replay->n_steps; i++)
    status = iterate(&r, &replay->steps[i], i);
  if (status == HEC_OK && r.check)
    status = hec_check_finish(r.check, r.exec, replay->n_steps, result);
  close_runner(&r);
  return status;
}
