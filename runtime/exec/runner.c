/* Per iteration and rank: lowering O(layers * (ranks^2 + ranks * experts)), posting, execution. */
#include "runtime/exec/runner.h"

#include "runtime/base/arena.h"
#include "runtime/exec/train/language.h"
#include "runtime/plan/problem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of what a rank has of an expert: its shard. */
static int64_t expert_size(const hec_runner_options *o) {
  hec_model shards = hec_model_of_shards(o->model, o->problem->esp);
  return hec_model_expert_size(&shards);
}

static hec_exec_options exec_options(const hec_runner_options *o, hec_rank *rank, int32_t n_slices) {
  hec_model parts = hec_model_of_parts(o->model, o->problem->mp);
  return (hec_exec_options){.problem = o->problem,
                            .rank = rank,
                            .n_slices = n_slices,
                            .expert_size = expert_size(o),
                            .block_size = hec_model_block(&parts).size,
                            .rest_size = hec_language_size(o->model),
                            .n_micro_batches = o->n_micro_batches,
                            .workspace_size =
                                hec_work_workspace(&parts, o->problem->tokens, o->n_micro_batches, o->assigned),
                            .virtual_time = o->virtual_time,
                            .watched = o->watched,
                            .capacity = o->capacity};
}

/* A policy that stands for others may have their slices. */
size_t hec_runner_bytes(const hec_runner_options *options, const hec_policy *policy) {
  hec_exec_options sliced = exec_options(options, NULL, options->problem->n_ranks),
                   whole = exec_options(options, NULL, 1);
  size_t in_slices = hec_exec_bytes(&sliced), in_whole = hec_exec_bytes(&whole);
  if (policy->portfolio > 0)
    return in_slices > in_whole ? in_slices : in_whole;
  return policy->sliced ? in_slices : in_whole;
}

/* ---- A helper of the host ---- */

typedef struct {
  pthread_t thread;
  void (*work)(void *);
  void *context;
} helping;

static void *help(void *context) {
  helping *h = context;
  h->work(h->context);
  return NULL;
}

static void *help_begin(void (*work)(void *), void *context) {
  helping *h = hec_malloc(1, sizeof *h);
  *h = (helping){.work = work, .context = context};
  if (pthread_create(&h->thread, NULL, help, h) == 0)
    return h;
  free(h);
  return NULL;
}

static void help_end(void *begun) {
  helping *h = begun;
  (void)pthread_join(h->thread, NULL);
  free(h);
}

static const hec_helper helper = {.begin = help_begin, .end = help_end};

hec_status hec_runner_open(hec_runner *r, const hec_policy *policy) {
  const hec_runner_options *o = &r->options;
  const hec_problem *p = o->problem;
  const hec_schedule *schedule;
  HEC_TRY(hec_schedule_of(policy, o->schedule, &schedule));
  r->low = hec_lowering_new(p, policy, schedule, o->collective, &r->arena);
  hec_lowering_detail(r->low);
  hec_lowering_help(r->low, &helper);
  if (o->gated)
    hec_lowering_gated(r->low);
  r->loads = HEC_NEW(&r->arena, hec_load, o->n_micro_batches);
  for (int32_t mb = 0; mb < o->n_micro_batches; mb++)
    r->loads[mb] = hec_load_new(&r->arena, p->n_layers, p->n_ranks, p->n_experts);
  if (r->past)
    HEC_TRY(r->past(r));
  const hec_plan *plan = &hec_lowering_run(r->low)->plan;
  hec_exec_options wanted = exec_options(o, r->rank, plan->n_slices);
  r->work = (hec_work_state){.model = o->model,
                             .tokens = p->tokens,
                             .n_micro_batches = o->n_micro_batches,
                             .assigned = o->assigned,
                             .rank = r->rank->rank,
                             .keep_grads = o->keep_grads};
  wanted.work = hec_work_table_of(&r->work);
  HEC_TRY(hec_exec_new(&wanted, &r->arena, &r->exec));
  hec_work_open(&r->work, r->exec, &r->arena);
  HEC_TRY(hec_exec_set_plan(r->exec, plan, true));
  hec_work_init(&r->work, r->exec, &r->arena);
  return HEC_OK;
}

void hec_runner_close(hec_runner *r) {
  hec_timeline_free(&r->timeline);
  hec_exec_free(r->exec);
  hec_lowering_free(r->low);
  hec_arena_free(&r->arena);
}

hec_status hec_runner_counts(hec_runner *r, int32_t micro_batch, int32_t layer, hec_load *load) {
  HEC_TRY(hec_exec_wait(r->exec, hec_lowering_counts(r->low, layer)));
  size_t row = (size_t)load->n_sources * (size_t)load->n_experts;
  memcpy(hec_load_row(load, layer, 0), hec_exec_counts(r->exec, layer, micro_batch), row * sizeof *load->counts);
  return HEC_OK;
}

static void planning(hec_runner *r, int32_t micro_batch, int32_t layer) {
  hec_place place = {
      .iteration = r->iter, .op = -1, .layer = layer, .micro_batch = micro_batch, .role = -1, .lane = -1};
  (void)snprintf(place.phase, sizeof place.phase, "planning");
  hec_rank_at(r->rank, &place);
}

/* Planning in virtual time is work like any other: one rank at a time, on the processor's clock. What else the machine does
 * is not counted. */
typedef struct {
  int64_t begin_ns, cpu_ns;
} stopwatch;

static hec_status planning_begin(hec_runner *r, int32_t micro_batch, int32_t layer, stopwatch *w) {
  bool virtual_time = r->options.virtual_time;
  planning(r, micro_batch, layer);
  if (virtual_time)
    HEC_TRY(hec_rank_take_turn(r->rank));
  *w = (stopwatch){.begin_ns = hec_clock_ns(), .cpu_ns = virtual_time ? hec_cpu_clock_ns() : 0};
  return HEC_OK;
}

static void planning_end(hec_runner *r, stopwatch w) {
  bool virtual_time = r->options.virtual_time;
  int64_t end_ns = virtual_time ? w.begin_ns + (hec_cpu_clock_ns() - w.cpu_ns) : hec_clock_ns();
  if (virtual_time)
    hec_rank_end_turn(r->rank);
  hec_exec_planned(r->exec, w.begin_ns, end_ns);
}

static hec_status layer(hec_runner *r, int32_t micro_batch, int32_t l) {
  const hec_load *load;
  stopwatch w;
  hec_lower_to_gate(r->low, l);
  HEC_TRY(hec_exec_post(r->exec, hec_lowering_program(r->low)));
  HEC_TRY(r->load_of(r, micro_batch, l, &load));
  HEC_TRY(planning_begin(r, micro_batch, l, &w));
  hec_lower_from_gate(r->low, l, load);
  planning_end(r, w);
  return hec_exec_post(r->exec, hec_lowering_program(r->low));
}

hec_status hec_runner_start(hec_runner *r, int32_t mb) {
  stopwatch w;
  if (mb > 0 && !r->rank->processor->streams) /* one thread: planning would stand between steps of computing */
    HEC_TRY(hec_exec_drain(r->exec));
  HEC_TRY(planning_begin(r, mb, -1, &w));
  hec_lower_micro_batch(r->low, mb);
  planning_end(r, w);
  HEC_TRY(hec_exec_set_plan(r->exec, &hec_lowering_run(r->low)->plan, false));
  return hec_exec_post(r->exec, hec_lowering_program(r->low));
}

hec_status hec_runner_forward(hec_runner *r, hec_runner_piece piece) {
  hec_lower_resume(r->low, piece.micro_batch);
  for (int32_t l = piece.first; l < piece.end; l++)
    HEC_TRY(layer(r, piece.micro_batch, l));
  return HEC_OK;
}

hec_status hec_runner_backward(hec_runner *r, hec_runner_piece piece) {
  hec_lower_resume(r->low, piece.micro_batch);
  for (int32_t l = piece.end - 1; l >= piece.first; l--)
    hec_lower_backward(r->low, l);
  return hec_exec_post(r->exec, hec_lowering_program(r->low));
}

static hec_status micro_batch(hec_runner *r, int32_t mb) {
  HEC_TRY(hec_runner_start(r, mb));
  HEC_TRY(hec_runner_forward(r, (hec_runner_piece){mb, 0, r->options.problem->n_layers}));
  hec_lower_micro_batch_end(r->low, &r->loads[mb]);
  return hec_exec_post(r->exec, hec_lowering_program(r->low));
}

hec_status hec_runner_begin(hec_runner *r, int64_t iter) {
  int64_t start_ns;
  r->iter = iter;
  hec_exec_restart(r->exec);
  HEC_TRY(hec_rank_start_together(r->rank, &start_ns));
  hec_exec_begin(r->exec, iter, start_ns);
  hec_lower_begin(r->low, iter, r->options.n_micro_batches);
  return HEC_OK;
}

hec_status hec_runner_iterate(hec_runner *r, int64_t iter) {
  HEC_TRY(hec_runner_begin(r, iter));
  for (int32_t mb = 0; mb < r->options.n_micro_batches; mb++)
    HEC_TRY(micro_batch(r, mb));
  return hec_runner_end(r);
}

hec_status hec_runner_end(hec_runner *r) {
  hec_lower_end(r->low);
  HEC_TRY(hec_exec_finish(r->exec, hec_lowering_program(r->low)));
  return hec_exec_timeline(r->exec, hec_lowering_program(r->low), &r->timeline);
}
