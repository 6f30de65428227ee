/* See pipeline_drawing.h. Operations are appended stage by stage as far as their inputs are there, so that
 * dependencies name smaller ids. Memory: what a piece holds beyond the one before it is held from its begin. What it
 * holds less was given back at the end of that one. */
#include "tools/front/training/pipeline_drawing.h"

#include <math.h>
#include <stdlib.h>

static const hec_program_names names = {.rank = "stage",
                                        .lane = {"compute", "dispatch", "tensor", "forward", "backward"}};

typedef struct {
  int64_t begin_ps, end_ps; /* on the rank that does it */
  int32_t receiver;         /* of a send: who has it at end_ps; -1: nobody else */
} span;

/* What a stage holds of a class: newest last. */
typedef struct {
  int32_t first; /* operation */
  double bytes;
} held;

typedef struct {
  const hec_pipeline_drawn *of;
  const hec_pipeline_order *order;
  hec_pipeline_drawing *out;
  int64_t offset_ps;
  int32_t n_micro;
  int32_t *next, *last, *computes; /* [n_stages] piece to come; newest operation; of it the newest piece's computing */
  int32_t *made[2];                /* [n_parts][n_micro] operation that brings an output, a gradient; -1: not yet */
  int64_t *sent_ps[2];             /* [n_stages] end of the newest send forward and backward */
  span *spans;
  size_t n_spans_max;
  held *stack[HEC_N_MEMORY]; /* of the stage at hand */
  size_t n_stack_max[HEC_N_MEMORY];
  int32_t n_stack[HEC_N_MEMORY];
} drawer;

static int64_t scaled(const drawer *d, int64_t ps) {
  return d->of->factor < 1 || d->of->factor > 1 ? llround((double)ps * d->of->factor) : ps;
}

static int32_t add(drawer *d, hec_op op, int64_t begin_ps, int64_t end_ps, int32_t receiver, const int32_t deps[2]) {
  int32_t id = hec_program_add(&d->out->program, op, deps, 2);
  HEC_RESERVE(d->spans, d->n_spans_max, id + 1);
  d->spans[id] = (span){begin_ps, end_ps, receiver};
  return id;
}

/* ---- Pieces ---- */

static const char *title_of(drawer *d, int32_t device, const hec_pipeline_piece *p) {
  static const char *const kinds[] = {"forward", "input gradient", "weight gradient", "backward", "forward"};
  const int32_t *part = d->order->part + device * d->order->shape.n_chunks;
  bool parts = d->order->shape.n_chunks > 1;
  HEC_SCOPED(hec_text) text = {0};
  hec_text_printf(&text, "%s %d", kinds[p->kind], (int)p->micro_batch);
  if (parts)
    hec_text_printf(&text, " of virtual stage %d", (int)part[p->chunk]);
  if (p->kind == HEC_PIECE_PAIR)
    hec_text_printf(&text, " beside backward %d", (int)p->beside_micro_batch);
  if (p->kind == HEC_PIECE_PAIR && parts)
    hec_text_printf(&text, " of virtual stage %d", (int)part[p->beside_chunk]);
  const char *title = hec_arena_text(&d->out->arena, text.data);
  return title;
}

/* Dispatch and tensor traffic of one half of a piece. */
static void add_exposed(const drawer *d, int32_t at, int direction, int64_t *dispatch_ps, int64_t *tensor_ps) {
  const hec_piece_exposed *e = &d->of->pieces->exposed[2 * (int64_t)at + direction];
  const int64_t *exchange = d->of->pieces->cost[at].exchange_ps;
  *dispatch_ps += hec_seconds_to_ps(e->dispatch_s) + exchange[direction ? HEC_PIECE_INPUT_GRADIENT : HEC_PIECE_FORWARD];
  *tensor_ps += hec_seconds_to_ps(e->tensor_s);
}

/* When computing ends, and tensor traffic and dispatch begin, from the piece's begin on. */
typedef struct {
  int64_t compute_ps, tensor_at_ps, tensor_ps, dispatch_at_ps, dispatch_ps;
} inside;

static int64_t at_most(int64_t a, int64_t max) {
  return a < max ? a : max;
}

static inside inside_of(const drawer *d, hec_piece_work w, int64_t took_ps) {
  inside in = {0};
  int64_t tensor_ps = 0;
  if (w.forward >= 0)
    add_exposed(d, w.forward, 0, &in.dispatch_ps, &tensor_ps);
  if (w.input >= 0)
    add_exposed(d, w.input, 1, &in.dispatch_ps, &tensor_ps);
  in.dispatch_ps = at_most(in.dispatch_ps, took_ps);
  if (w.forward >= 0 && w.input >= 0) { /* both at once */
    in.compute_ps = d->of->pieces->cost[w.forward].compute_ps[HEC_PIECE_FORWARD];
    for (int k = HEC_PIECE_INPUT_GRADIENT; k <= HEC_PIECE_WEIGHT_GRADIENT; k++)
      in.compute_ps += d->of->pieces->cost[w.input].compute_ps[k];
    in.compute_ps = at_most(in.compute_ps, took_ps);
    return in;
  }
  in.tensor_ps = at_most(tensor_ps, took_ps - in.dispatch_ps);
  in.dispatch_at_ps = took_ps - in.dispatch_ps;
  in.tensor_at_ps = in.compute_ps = in.dispatch_at_ps - in.tensor_ps;
  return in;
}

static void keep(drawer *d, int32_t stage, int32_t kind, int64_t begin_ps, int64_t length_ps) {
  if (length_ps > 0)
    d->out->pieces[d->out->n_pieces++] = (hec_report_piece){stage, kind, begin_ps, begin_ps + length_ps};
}

static hec_op local(const char *title, hec_lane lane, hec_role role, int32_t device, const hec_pipeline_piece *p) {
  hec_op op = hec_op_new(HEC_OP_LOCAL, lane, role, -1);
  op.title = title;
  op.alone = device + 1;
  op.micro_batch = p ? p->micro_batch : -1;
  op.backward = p && p->kind != HEC_PIECE_FORWARD && p->kind != HEC_PIECE_PAIR;
  return op;
}

/* Returns the operation that ends it. */
static int32_t add_piece(drawer *d, int32_t device, int32_t i, hec_piece_work w, const int32_t deps[2]) {
  static const int32_t shown[] = {HEC_SHOWN_FORWARD, HEC_SHOWN_BACKWARD, HEC_SHOWN_WEIGHT, HEC_SHOWN_BACKWARD,
                                  HEC_SHOWN_PAIR};
  const hec_pipeline_piece *p = &d->order->piece[i];
  int64_t begin = d->of->pieces->run.begin_ps[i], end = d->of->pieces->run.end_ps[i];
  const inside in = inside_of(d, w, end - begin);
  int64_t base = d->offset_ps;
  struct {
    const char *title;
    hec_lane lane;
    hec_role role;
    int32_t kind;
    int64_t at, length;
  } steps[] = {
      {title_of(d, device, p), HEC_LANE_COMPUTE, HEC_ROLE_DENSE_BLOCKS, shown[p->kind], 0, in.compute_ps},
      {"tensor parallel", HEC_LANE_INTRA, HEC_ROLE_TENSOR_GATHER, HEC_SHOWN_TENSOR, in.tensor_at_ps, in.tensor_ps},
      {"dispatch and combine", HEC_LANE_TOKEN, HEC_ROLE_DISPATCH, HEC_SHOWN_DISPATCH, in.dispatch_at_ps,
       in.dispatch_ps}};
  int32_t last = -1, wait[2] = {deps[0], deps[1]};
  for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
    if (k > 0 && steps[k].length == 0)
      continue;
    int64_t from = scaled(d, base + begin + steps[k].at), to = scaled(d, base + begin + steps[k].at + steps[k].length);
    last = add(d, local(steps[k].title, steps[k].lane, steps[k].role, device, p), from, to, -1, wait);
    keep(d, device, steps[k].kind, from, to - from);
    if (k == 0)
      d->computes[device] = last;
    if (p->kind != HEC_PIECE_PAIR) {
      wait[0] = last;
      wait[1] = -1;
    }
  }
  return last;
}

/* ---- Sends ---- */

static int64_t bytes_sent(const hec_training *t) {
  return (int64_t)(hec_training_tokens(t) * (double)t->moe->d_model * 2);
}

/* The product of index `from`, wanted by index `to`. Returns the operation that brings it. */
static int32_t add_send(drawer *d, int32_t from, int32_t to, bool gradient, int32_t after, int64_t at_ps) {
  hec_program *program = &d->out->program;
  int32_t all = d->order->n_parts * d->n_micro, device = d->order->device[from];
  if (to < 0 || to >= all || d->order->device[to] == device || d->of->pieces->send_ps == 0)
    return after;
  hec_op op = hec_op_new(HEC_OP_EXCHANGE, gradient ? HEC_LANE_GRAD : HEC_LANE_PARAM,
                         gradient ? HEC_ROLE_COMBINE : HEC_ROLE_DISPATCH, -1);
  op.title = gradient ? "gradients to the stage before" : "activations to the next stage";
  op.micro_batch = from % d->n_micro;
  op.backward = gradient;
  HEC_RESERVE(program->transfers, program->transfers_capacity, program->n_transfers + 1);
  op.exchange.transfer_at = (int32_t)program->n_transfers;
  op.exchange.n_transfers = 1;
  program->transfers[program->n_transfers++] =
      (hec_transfer){bytes_sent(d->of->training), device, d->order->device[to], -1, -1};
  int64_t end = scaled(d, d->offset_ps + at_ps + d->of->pieces->send_ps), begin = scaled(d, d->offset_ps + at_ps);
  int64_t *before = &d->sent_ps[gradient][device];
  begin = begin > *before ? begin : *before < end ? *before : end;
  *before = end;
  const int32_t deps[2] = {after, -1};
  return add(d, op, begin, end, d->order->device[to], deps);
}

/* ---- Memory ---- */

static void bytes_of(const hec_memory_parts *p, double bytes[HEC_N_MEMORY]) {
  for (int32_t k = 0; k < HEC_N_MEMORY; k++)
    bytes[k] = 0;
  bytes[HEC_MEMORY_PARAM] = p->parameters;
  bytes[HEC_MEMORY_GRAD] = p->gradients;
  bytes[HEC_MEMORY_OPTIMIZER] = p->optimizer;
  bytes[HEC_MEMORY_ACTIVATION] = p->activations + p->logits;
  bytes[HEC_MEMORY_COPY_PARAM] = p->copies;
  bytes[HEC_MEMORY_BUFFER] = p->buffers;
}

static void hold(drawer *d, int32_t device, int32_t k, int32_t first, int32_t last, double bytes) {
  hec_program *program = &d->out->program;
  int32_t at = hec_program_local_bytes(program, program->n_ranks);
  program->local_bytes[at + device] = bytes;
  (void)hec_program_hold(program, (hec_hold){.memory = (hec_memory)k,
                                             .layer = -1,
                                             .first = first,
                                             .last = last,
                                             .bytes_at = at,
                                             .bytes = 1,
                                             .micro_batch = -1,
                                             .items_at = -1});
}

/* From operation `op` on the stage holds `bytes` of class k; up to the end of `before` it held what the stack has. */
static void change(drawer *d, int32_t device, int32_t k, int32_t before, int32_t op, double bytes) {
  double sum = 0;
  for (int32_t i = 0; i < d->n_stack[k]; i++)
    sum += d->stack[k][i].bytes;
  while (d->n_stack[k] > 0 && sum > bytes) {
    held *top = &d->stack[k][d->n_stack[k] - 1];
    double less = sum - bytes < top->bytes ? sum - bytes : top->bytes;
    hold(d, device, k, top->first, before, less);
    top->bytes -= less;
    sum -= less;
    d->n_stack[k] -= top->bytes <= 0;
  }
  if (bytes <= sum)
    return;
  HEC_RESERVE(d->stack[k], d->n_stack_max[k], d->n_stack[k] + 1);
  d->stack[k][d->n_stack[k]++] = (held){op, bytes - sum};
}

static void add_memory(drawer *d, int32_t device, const int32_t *op_of) {
  double bytes[HEC_N_MEMORY];
  for (int32_t i = d->order->piece_at[device]; i < d->order->piece_at[device + 1]; i++) {
    bytes_of(&d->of->pieces->memory[i], bytes);
    for (int32_t k = 0; k < HEC_N_MEMORY; k++)
      change(d, device, k, i > d->order->piece_at[device] ? op_of[i - 1] : -1, op_of[i], bytes[k]);
  }
  for (int32_t k = 0; k < HEC_N_MEMORY; k++) {
    for (int32_t i = 0; i < d->n_stack[k]; i++)
      hold(d, device, k, d->stack[k][i].first, -1, d->stack[k][i].bytes);
    d->n_stack[k] = 0;
  }
}

/* ---- The whole ---- */

/* Whether what the piece needs has been appended; `deps`: what brings it. Of a pair both inputs, the stage's own order is a lane. */
static bool is_ready(const drawer *d, hec_piece_work w, int32_t device, int32_t deps[2]) {
  int32_t n = d->n_micro, all = d->order->n_parts * n;
  deps[0] = deps[1] = d->last[device];
  if (w.forward >= n && d->made[0][w.forward - n] < 0)
    return false;
  if (w.input >= 0 && w.input + n < all && d->made[1][w.input + n] < 0)
    return false;
  if (w.forward >= n)
    deps[0] = d->made[0][w.forward - n];
  if (w.input >= 0 && w.input + n < all)
    deps[1] = d->made[1][w.input + n];
  return true;
}

/* False: it waits. */
static bool run_piece(drawer *d, int32_t device, int32_t *op_of) {
  int32_t i = d->next[device], n = d->n_micro, deps[2];
  const hec_piece_work w = hec_piece_work_of(d->order, device, &d->order->piece[i]);
  if (!is_ready(d, w, device, deps))
    return false;
  int64_t end_ps = d->of->pieces->run.end_ps[i];
  int32_t last = add_piece(d, device, i, w, deps);
  d->last[device] = last;
  op_of[i] = d->computes[device];
  if (w.forward >= 0)
    d->made[0][w.forward] = add_send(d, w.forward, w.forward + n, false, last, end_ps);
  if (w.input >= 0)
    d->made[1][w.input] = add_send(d, w.input, w.input - n, true, last, end_ps);
  d->next[device]++;
  return true;
}

/* What all stages do before and after. */
static int64_t add_all(drawer *d, const char *title, hec_lane lane, hec_role role, int64_t at_ps, double s) {
  int64_t length_ps = hec_seconds_to_ps(s), from = scaled(d, at_ps), to = scaled(d, at_ps + length_ps);
  for (int32_t device = 0; length_ps > 0 && device < d->order->shape.n_stages; device++) {
    const int32_t deps[2] = {d->last[device], -1};
    d->last[device] = add(d, local(title, lane, role, device, NULL), from, to, -1, deps);
    keep(d, device, lane == HEC_LANE_COMPUTE ? HEC_SHOWN_OPTIMIZER : HEC_SHOWN_DATA, from, to - from);
  }
  return at_ps + length_ps;
}

static void fill(const drawer *d) {
  hec_timeline *t = &d->out->timeline;
  const hec_program *p = &d->out->program;
  hec_timeline_resize(t, (int32_t)p->n_ops, p->n_ranks);
  for (size_t i = 0; i < p->n_ops; i++) {
    const span *s = &d->spans[i];
    int32_t rank = p->ops[i].alone > 0 ? p->ops[i].alone - 1 : p->transfers[p->ops[i].exchange.transfer_at].source;
    size_t row = i * (size_t)p->n_ranks;
    t->begin_ps[row + (size_t)rank] = s->begin_ps;
    t->end_ps[row + (size_t)rank] = s->end_ps;
    if (s->receiver >= 0)
      t->begin_ps[row + (size_t)s->receiver] = t->end_ps[row + (size_t)s->receiver] = s->end_ps;
  }
}

static void draw(drawer *d) {
  hec_arena *arena = &d->out->arena;
  int32_t n = d->order->shape.n_stages, left = d->order->n_pieces;
  int32_t *op_of = HEC_NEW(arena, int32_t, d->order->n_pieces);
  d->offset_ps = add_all(d, "experts move", HEC_LANE_PARAM, HEC_ROLE_MIGRATE, 0, d->of->moves_s);
  while (left > 0) {
    int32_t before = left;
    for (int32_t device = 0; device < n; device++)
      while (d->next[device] < d->order->piece_at[device + 1] && run_piece(d, device, op_of))
        left--;
    HEC_ASSERT(left < before); /* it has run */
  }
  for (int32_t device = 0; device < n; device++)
    add_memory(d, device, op_of);
  int64_t end = add_all(d, "data-parallel gradients", HEC_LANE_GRAD, HEC_ROLE_DENSE_REDUCE,
                        d->offset_ps + d->of->pieces->run.step_ps, d->of->result->data_s);
  (void)add_all(d, "optimizer", HEC_LANE_COMPUTE, HEC_ROLE_OPTIMIZER, end, d->of->result->optimizer_s);
  fill(d);
}

void hec_pipeline_drawing_make(const hec_pipeline_drawn *of, hec_pipeline_drawing *drawing) {
  const hec_pipeline_order *order = &of->pieces->order;
  int32_t n = order->shape.n_stages, n_products = order->n_parts * order->shape.n_micro_batches;
  *drawing = (hec_pipeline_drawing){.n_pieces = 0};
  hec_program_clear(&drawing->program, n);
  drawing->program.names = &names;
  drawing->pieces = HEC_NEW(&drawing->arena, hec_report_piece, 3 * order->n_pieces + 3 * n);
  drawer d = {.of = of, .order = order, .out = drawing, .n_micro = order->shape.n_micro_batches};
  d.next = HEC_NEW(&drawing->arena, int32_t, n);
  d.last = HEC_NEW(&drawing->arena, int32_t, n);
  d.computes = HEC_NEW(&drawing->arena, int32_t, n);
  for (int way = 0; way < 2; way++) {
    d.made[way] = HEC_NEW(&drawing->arena, int32_t, n_products);
    d.sent_ps[way] = HEC_NEW(&drawing->arena, int64_t, n);
    for (int32_t i = 0; i < n_products; i++)
      d.made[way][i] = -1;
  }
  for (int32_t i = 0; i < n; i++) {
    d.next[i] = order->piece_at[i];
    d.last[i] = d.computes[i] = -1;
  }
  draw(&d);
  for (int32_t k = 0; k < HEC_N_MEMORY; k++)
    free(d.stack[k]);
  free(d.spans);
}

void hec_pipeline_drawing_free(hec_pipeline_drawing *drawing) {
  hec_program_free(&drawing->program);
  hec_timeline_free(&drawing->timeline);
  hec_arena_free(&drawing->arena);
}
