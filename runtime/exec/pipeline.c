/* One rank of a stage: walks the pieces of its device in order. Before a piece its input is received, after it the output is
 * sent. Streams stand in the workspace per micro-batch and are worked on in place. So a piece's output is where its
 * input was, and neighbours on one device need no message.
 *
 * Channels: programs use the token and gradient lanes while pieces run, so the others are free for what goes between
 * stages. (The parameter lane moves experts too, before the first piece.) A rank has one post at a time on each, so a
 * device never receives on the channel that it sends on. Neighbours have two colours, and a device sends on the channel
 * of its own colour. Streams and their gradients have channels of their own, for they do not come in one order. Around
 * a ring, colours need an even number of devices. */
#include "runtime/exec/pipeline.h"

#include "runtime/base/arena.h"
#include "runtime/exec/launch/group.h"
#include "runtime/exec/pipeline_watch.h"
#include "runtime/program/pipelines/pipeline_stage.h"

#include <string.h>

enum { STREAM, GRADIENT, N_KINDS };
static const int32_t channel[N_KINDS][2] = {{HEC_LANE_COMPUTE, HEC_CHANNEL_CONTROL}, {HEC_LANE_INTRA, HEC_LANE_PARAM}};

/* The newest send of a kind. */
typedef struct {
  hec_segment segment;
  hec_message message;
  hec_post post;
  bool on;
} sending;

/* The layers of one device as a model of its own. */
typedef struct {
  hec_pipeline_stage in;
  hec_model model;
  hec_model_cut cut;
  int32_t assigned; /* of a rank's tokens in a layer, at most */
} stage;

typedef struct {
  const hec_pipelined *p;
  hec_rank *rank; /* of the launch */
  stage *stage;
  hec_pipeline_watch watch;
  hec_runner runner;
  int32_t *n_forward, *n_backward; /* [n_micro_batches] pieces that are done in this step */
  hec_load *whole;                 /* [n_micro_batches] of all layers */
  float *rows;                     /* [T * d] on the host */
  hec_check *check;
  sending sent[N_KINDS];
  hec_stage_memory memory;
} pipeline;

static hec_pipeline_parts parts_of(const hec_pipelined *p) {
  return (hec_pipeline_parts){p->order, p->layer_at};
}

static int32_t assigned_max(const hec_pipelined *p) {
  uint64_t max = 0;
  for (int32_t i = 0; i < p->replay.n_steps; i++)
    for (int32_t k = 0; k < p->replay.steps[i].n_loads; k++) {
      const hec_load *load = &p->replay.steps[i].loads[k];
      for (int32_t row = 0; row < load->n_layers * load->n_sources; row++) {
        uint64_t n = 0;
        for (int32_t e = 0; e < load->n_experts; e++)
          n += hec_load_row(load, row / load->n_sources, row % load->n_sources)[e];
        max = n > max ? n : max;
      }
    }
  HEC_ASSERT(max <= INT32_MAX);
  return (int32_t)max;
}

static hec_status make_stage(const hec_pipelined *p, int32_t device, hec_arena *arena, stage *s) {
  *s = (stage){.model = *p->replay.model, .assigned = assigned_max(p)};
  HEC_TRY(hec_pipeline_stage_make(parts_of(p), device, p->replay.problem, arena, &s->in));
  s->cut = (hec_model_cut){.n_blocks = p->replay.model->n_blocks, .block = s->in.layer};
  s->model.moe = s->in.moe;
  s->model.n_blocks = s->in.n_layers;
  s->model.cut = &s->cut;
  return HEC_OK;
}

static hec_runner_options options_of(const hec_pipelined *p, const stage *s) {
  return (hec_runner_options){.problem = &s->in.problem,
                              .model = &s->model,
                              .n_micro_batches = p->replay.n_micro_batches,
                              .assigned = s->assigned,
                              .schedule = "serial",
                              .collective = p->replay.collective,
                              .keep_grads = p->replay.check,
                              .watched = p->replay.probe,
                              .capacity = p->replay.capacity};
}

hec_status hec_pipelined_bytes(const hec_pipelined *p, const hec_policy *policy, size_t *bytes) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_status status = HEC_OK;
  *bytes = 0;
  for (int32_t device = 0; status == HEC_OK && device < p->order->shape.n_stages; device++) {
    stage s;
    status = make_stage(p, device, &arena, &s);
    if (status != HEC_OK)
      break;
    hec_runner_options options = options_of(p, &s);
    size_t needed = hec_runner_bytes(&options, policy);
    *bytes = needed > *bytes ? needed : *bytes;
  }
  return status;
}

hec_status hec_pipelined_check_schedule(const hec_pipeline_schedule *schedule, const hec_pipeline_shape *shape) {
  if (schedule->splits || schedule->pairs || schedule->copies > 1)
    return hec_fail(HEC_BAD_INPUT,
                    "pipeline %s: expected one whose pieces are whole forwards and backwards to be executed, found one "
                    "that %s; use 1f1b, interleaved or gpipe",
                    schedule->name, schedule->copies > 1 ? "holds every virtual stage twice" : "splits or pairs them");
  if (shape->n_chunks > 1 && shape->n_stages > 1 && shape->n_stages % 2 != 0)
    return hec_fail(HEC_BAD_INPUT,
                    "pipeline %s: expected an even number of stages to be executed with several virtual stages each, "
                    "found %d; use %d",
                    schedule->name, (int)shape->n_stages, (int)shape->n_stages + 1);
  return HEC_OK;
}

hec_status hec_pipelined_check(const hec_pipelined *p, const hec_policy *policy) {
  HEC_TRY(hec_pipelined_check_schedule(p->order->schedule, &p->order->shape));
  if (policy->known > HEC_KNOWN_PERIODIC || policy->refine || policy->rewrite || policy->sliced)
    return hec_fail(
        HEC_BAD_INPUT,
        "policy %s: expected one that keeps its plan through an iteration to be executed in pipeline stages, "
        "found one that %s; use ep or eplb",
        policy->name,
        policy->sliced    ? "cuts experts into slices"
        : policy->rewrite ? "computes other loads than the gate's"
                          : "plans anew for every micro-batch");
  if (p->replay.problem->zero && policy->known != HEC_KNOWN_STATIC)
    return hec_fail(
        HEC_BAD_INPUT,
        "policy %s: expected one that leaves experts where they are to be executed with `zero` 1, which keeps "
        "sharded optimizer state; use ep",
        policy->name);
  return HEC_OK;
}

/* ---- Between stages ---- */

static hec_status finish_send(pipeline *l, int32_t kind) {
  if (l->sent[kind].on)
    HEC_TRY(hec_rank_finish(l->rank, &l->sent[kind].post, "a pipeline stage's send"));
  l->sent[kind].on = false;
  return HEC_OK;
}

static hec_message message_to(const pipeline *l, int32_t device, const hec_segment *segment) {
  int32_t peer = device * l->stage->in.problem.n_ranks + l->rank->rank % l->stage->in.problem.n_ranks;
  return (hec_message){.peer = peer, .n_segments = 1, .segments = segment, .bytes = segment->bytes, .after = -1};
}

static int64_t stream_bytes(const pipeline *l) {
  return (int64_t)l->stage->in.problem.tokens * l->stage->in.moe.d_model * (int64_t)sizeof(float);
}

/* To the device that has `part`; this one: it is there already. */
static hec_status send(pipeline *l, int32_t kind, int32_t part, float *stream) {
  const hec_pipeline_order *o = l->p->order;
  if (part < 0 || part >= o->n_parts || hec_pipeline_device_of(o, part) == l->stage->in.device)
    return HEC_OK;
  HEC_TRY(finish_send(l, kind));
  sending *s = &l->sent[kind];
  s->segment = (hec_segment){stream, stream_bytes(l)};
  s->message = message_to(l, hec_pipeline_device_of(o, part), &s->segment);
  s->post = (hec_post){.lane = channel[kind][l->stage->in.device % 2], .sends = &s->message, .n_sends = 1};
  s->on = true;
  return l->rank->transport->start(l->rank, &s->post);
}

static hec_status receive(pipeline *l, int32_t kind, int32_t part, float *stream) {
  const hec_pipeline_order *o = l->p->order;
  if (part < 0 || part >= o->n_parts || hec_pipeline_device_of(o, part) == l->stage->in.device)
    return HEC_OK;
  if (l->sent[kind].segment.at == stream) /* it goes where another part's output stands */
    HEC_TRY(finish_send(l, kind));
  hec_segment segment = {stream, stream_bytes(l)};
  hec_message message = message_to(l, hec_pipeline_device_of(o, part), &segment);
  hec_post post = {.lane = channel[kind][hec_pipeline_device_of(o, part) % 2], .receives = &message, .n_receives = 1};
  HEC_TRY(l->rank->transport->start(l->rank, &post));
  return hec_rank_finish(l->rank, &post, "a pipeline stage's receive");
}

/* ---- Pieces ---- */

static bool faulty(const pipeline *l, hec_pipeline_fault fault, int32_t device) {
  return l->p->fault == fault && l->stage->in.device == device && l->runner.work.step == l->p->replay.n_steps;
}

/* The stream to send of a micro-batch. */
static float *sent_stream(pipeline *l, float *streams, int32_t mb, bool gradient) {
  hec_pipeline_fault fault = gradient ? HEC_PIPELINE_SENDS_ANOTHER_GRADIENT : HEC_PIPELINE_SENDS_ANOTHER;
  int32_t device = gradient ? l->p->order->shape.n_stages - 1 : 0;
  return hec_work_stream(&l->runner.work, streams, mb == 0 && faulty(l, fault, device) ? 1 : mb);
}

static hec_runner_piece layers_of(const pipeline *l, int32_t chunk, int32_t mb) {
  return (hec_runner_piece){mb, l->stage->in.own_at[chunk], l->stage->in.own_at[chunk + 1]};
}

static void end_micro_batch(pipeline *l, int32_t mb, int32_t n_pieces) {
  if (n_pieces == l->p->order->shape.n_chunks)
    hec_lower_micro_batch_done(l->runner.low, &l->runner.loads[mb]);
}

static hec_status forward(pipeline *l, int32_t chunk, int32_t mb) {
  hec_runner *r = &l->runner;
  int32_t part = hec_pipeline_part_of(l->p->order, l->stage->in.device, chunk);
  HEC_TRY(receive(l, STREAM, part - 1, hec_work_stream(&r->work, r->work.x, mb)));
  hec_pipeline_watch_input(&l->watch);
  if (l->n_forward[mb]++ == 0)
    HEC_TRY(hec_runner_start(r, mb));
  HEC_TRY(hec_runner_forward(r, layers_of(l, chunk, mb)));
  HEC_TRY(hec_exec_drain(r->exec));
  if (!l->stage->in.problem.train)
    end_micro_batch(l, mb, l->n_forward[mb]);
  hec_pipeline_watch_done(&l->watch, hec_lowering_program(r->low));
  return send(l, STREAM, part + 1, sent_stream(l, r->work.x, mb, false));
}

static hec_status backward(pipeline *l, int32_t chunk, int32_t mb) {
  hec_runner *r = &l->runner;
  int32_t part = hec_pipeline_part_of(l->p->order, l->stage->in.device, chunk);
  if (!l->stage->in.problem.train) {
    hec_pipeline_watch_done(&l->watch, hec_lowering_program(r->low));
    return HEC_OK;
  }
  HEC_TRY(receive(l, GRADIENT, part + 1, hec_work_stream(&r->work, r->work.dx, mb)));
  hec_pipeline_watch_input(&l->watch);
  if (mb == l->stage->in.last && l->n_backward[mb] == 0 && faulty(l, HEC_PIPELINE_FORGETS, 0))
    hec_work_zero_grads(&r->work, r->exec);
  HEC_TRY(hec_runner_backward(r, layers_of(l, chunk, mb)));
  HEC_TRY(hec_exec_drain(r->exec));
  end_micro_batch(l, mb, ++l->n_backward[mb]);
  hec_pipeline_watch_done(&l->watch, hec_lowering_program(r->low));
  return send(l, GRADIENT, part - 1, sent_stream(l, r->work.dx, mb, true));
}

static hec_status run_pieces(pipeline *l) {
  const hec_pipeline_order *o = l->p->order;
  for (int32_t i = o->piece_at[l->stage->in.device]; i < o->piece_at[l->stage->in.device + 1]; i++) {
    const hec_pipeline_piece *piece = &o->piece[i];
    HEC_ASSERT(piece->kind == HEC_PIECE_FORWARD || piece->kind == HEC_PIECE_BACKWARD);
    HEC_TRY((piece->kind == HEC_PIECE_FORWARD ? forward : backward)(l, piece->chunk, piece->micro_batch));
  }
  HEC_TRY(finish_send(l, STREAM));
  return finish_send(l, GRADIENT);
}

/* ---- A step ---- */

/* Loads of the stage's layers; inputs where the model begins, output gradients where it ends. */
static void prepare(pipeline *l, const hec_replay_step *step, int64_t index) {
  hec_runner *r = &l->runner;
  const hec_model *whole = l->p->replay.model;
  hec_processor *on = r->rank->processor;
  int32_t tokens = l->stage->in.problem.tokens, source = r->rank->rank;
  int64_t n = (int64_t)tokens * whole->moe.d_model;
  for (int32_t mb = 0; mb < l->p->replay.n_micro_batches; mb++) {
    l->n_forward[mb] = l->n_backward[mb] = 0;
    l->whole[mb] = step->loads[step->n_loads == 1 ? 0 : mb];
    hec_pipeline_stage_load(&l->stage->in, &l->whole[mb], &r->loads[mb]);
    hec_model_input(whole, index + 1, mb, source, tokens, l->rows);
    on->math->to_device(on, hec_work_stream(&r->work, r->work.x, mb), l->rows, n);
    if (!l->stage->in.problem.train)
      continue;
    hec_model_output_gradient(whole, index + 1, mb, source, tokens, l->rows);
    on->math->to_device(on, hec_work_stream(&r->work, r->work.dx, mb), l->rows, n);
  }
  r->work.loads = r->loads;
  r->work.step = index + 1;
  if (r->work.keep_grads && l->stage->in.problem.train)
    hec_work_zero_grads(&r->work, r->exec);
}

static hec_status load_of(hec_runner *r, int32_t micro_batch, int32_t layer, const hec_load **load) {
  (void)layer;
  *load = &r->loads[micro_batch];
  return HEC_OK;
}

/* Of the step's end, where parts are updated. */
static void prepare_end(pipeline *l) {
  hec_work_state *work = &l->runner.work;
  bool first = l->runner.rank->rank == 0;
  work->update_another = first && faulty(l, HEC_PIPELINE_UPDATES_ANOTHER, 0);
  work->update_nothing = first && faulty(l, HEC_PIPELINE_UPDATES_NOTHING, 0);
}

static void widen(hec_rank_memory *max, hec_rank_memory m) {
  max->parameters = m.parameters > max->parameters ? m.parameters : max->parameters;
  max->gradients = m.gradients > max->gradients ? m.gradients : max->gradients;
  max->optimizer = m.optimizer > max->optimizer ? m.optimizer : max->optimizer;
  max->activations = m.activations > max->activations ? m.activations : max->activations;
}

static void count_memory(pipeline *l) {
  hec_runner *r = &l->runner;
  widen(&l->memory.predicted, hec_program_rank_memory(hec_lowering_program(r->low), r->rank->rank));
  widen(&l->memory.counted, hec_exec_memory(r->exec, r->work.updated));
  l->memory.workspace = hec_exec_workspace_bytes(r->exec);
}

static hec_status step(pipeline *l, int64_t index) {
  const hec_replay_step *of = &l->p->replay.steps[index];
  prepare(l, of, index);
  HEC_TRY(hec_pipeline_watch_begin(&l->watch, &l->runner, of->iter));
  HEC_TRY(run_pieces(l));
  prepare_end(l);
  HEC_TRY(hec_runner_end(&l->runner));
  count_memory(l);
  HEC_TRY(hec_pipeline_watch_end(&l->watch, l->runner.exec, hec_lowering_program(l->runner.low), of));
  return l->check ? hec_check_step(l->check, &l->runner.work, index, l->whole, NULL) : HEC_OK;
}

/* ---- The run ---- */

static void check_open(pipeline *l, hec_arena *arena) {
  const hec_pipelined *p = l->p;
  hec_check_stages stages = {.n_stages = p->order->shape.n_stages,
                             .first = hec_pipeline_device_of(p->order, 0),
                             .last = hec_pipeline_device_of(p->order, p->order->n_parts - 1)};
  for (int32_t d = 0; d < stages.n_stages; d++)
    stages.n_local = hec_pipeline_layers_of(parts_of(p), d) > stages.n_local ? hec_pipeline_layers_of(parts_of(p), d)
                                                                             : stages.n_local;
  int32_t *layer = HEC_NEW(arena, int32_t, stages.n_stages * stages.n_local);
  for (int32_t i = 0; i < stages.n_stages * stages.n_local; i++)
    layer[i] = -1;
  for (int32_t d = 0; d < stages.n_stages; d++)
    for (int32_t c = 0, n = 0; c < p->order->shape.n_chunks; c++) {
      int32_t part = hec_pipeline_part_of(p->order, d, c);
      for (int32_t at = p->layer_at[part]; at < p->layer_at[part + 1]; at++)
        layer[d * stages.n_local + n++] = at;
    }
  stages.layer = layer;
  l->check = hec_check_new(p->replay.problem, p->replay.model, p->replay.n_micro_batches, l->rank);
  hec_check_stages_are(l->check, &stages);
}

/* Every expert at the same place of each expert-parallel group, as hec_replica_own_of has it. */
static bool in_every_group(const hec_problem *problem, const hec_plan *plan) {
  for (int32_t l = 0; l < plan->n_layers; l++)
    for (int32_t e = 0; e < plan->n_experts; e++) {
      hec_copies copies = hec_plan_copies(plan, l, e);
      int32_t home = hec_plan_home(plan, l, e);
      bool right = copies.n == problem->dp - 1 && home < problem->ep;
      for (int32_t i = 0; right && i < copies.n; i++)
        right = copies.rank[i] == home + (i + 1) * problem->ep && copies.kind[i] == HEC_COPY_RESIDENT;
      if (!right)
        return false;
    }
  return true;
}

/* Guests of several micro-batches at once would need a place for each. */
static bool has_guests(const hec_plan *plan) {
  for (int32_t l = 0; l < plan->n_layers; l++)
    for (int32_t e = 0; e < plan->n_experts; e++) {
      hec_copies copies = hec_plan_copies(plan, l, e);
      for (int32_t i = 0; i < copies.n; i++)
        if (copies.kind[i] != HEC_COPY_RESIDENT)
          return true;
    }
  return false;
}

static hec_status run(pipeline *l, const hec_policy *policy, hec_replay_check *result) {
  const hec_pipelined *p = l->p;
  hec_runner *r = &l->runner;
  int32_t n = p->replay.n_micro_batches;
  HEC_TRY(hec_runner_open(r, policy));
  if (has_guests(&hec_lowering_run(r->low)->plan))
    return hec_rank_fail(l->rank, "policy %s gathers experts for a layer: pipeline stages do not execute that yet",
                         policy->name);
  if (l->stage->in.problem.zero && !in_every_group(&l->stage->in.problem, &hec_lowering_run(r->low)->plan))
    return hec_rank_fail(l->rank, "policy %s: expected every expert once in each expert-parallel group for ZeRO-1",
                         policy->name);
  hec_lowering_interleave(r->low, n, l->stage->in.last);
  l->n_forward = HEC_NEW(&r->arena, int32_t, n);
  l->n_backward = HEC_NEW(&r->arena, int32_t, n);
  l->whole = HEC_NEW(&r->arena, hec_load, n);
  l->rows = HEC_NEW(&r->arena, float, (int64_t)l->stage->in.problem.tokens * l->stage->in.moe.d_model);
  hec_stage_memory *memory = p->memory ? p->memory : HEC_NEW(&r->arena, hec_stage_memory, l->rank->n_ranks);
  hec_pipeline_watch_open(&l->watch, &p->replay, p->order, l->rank, &r->arena);
  if (p->replay.check)
    check_open(l, &r->arena);
  for (int32_t i = 0; i < p->replay.n_steps; i++)
    HEC_TRY(step(l, i));
  HEC_TRY(hec_rank_gather(l->rank, &l->memory, sizeof l->memory, l->rank->rank == 0 ? memory : NULL));
  return l->check ? hec_check_finish(l->check, r->exec, p->replay.n_steps, result) : HEC_OK;
}

hec_status hec_pipelined_run(const hec_pipelined *p, const hec_policy *policy, hec_rank *rank,
                             hec_replay_check *result) {
  int32_t n_ranks = p->replay.problem->n_ranks, device = rank->rank / n_ranks;
  HEC_ASSERT(rank->n_ranks == n_ranks * p->order->shape.n_stages);
  HEC_ASSERT(p->order->shape.n_micro_batches == p->replay.n_micro_batches);
  HEC_SCOPED(hec_arena) arena = {0};
  stage s;
  hec_status status = make_stage(p, device, &arena, &s);
  if (status == HEC_OK) {
    hec_group *group = hec_group_new(rank, device * n_ranks, n_ranks);
    pipeline l = {.p = p, .rank = rank, .stage = &s};
    l.runner = (hec_runner){.options = options_of(p, &s), .rank = hec_group_rank(group), .load_of = load_of};
    status = run(&l, policy, result);
    hec_check_free(l.check);
    hec_pipeline_watch_close(&l.watch);
    hec_runner_close(&l.runner);
    hec_group_free(group);
  }
  return status;
}
