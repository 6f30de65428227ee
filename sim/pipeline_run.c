/* Each device runs until its next piece wants an input that nobody has made yet; it then leaves its number with that input,
 * and whoever makes it wakes the device. So each piece is looked at twice at most. */
#include "sim/pipeline_run.h"

static int64_t longer(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t alone_ps(const hec_piece_cost *cost, int kind) {
  return cost->compute_ps[kind] + cost->exchange_ps[kind];
}

static int64_t backward_ps(const hec_piece_cost *cost) {
  return alone_ps(cost, HEC_PIECE_INPUT_GRADIENT) + alone_ps(cost, HEC_PIECE_WEIGHT_GRADIENT);
}

int64_t hec_pair_overlapped_ps(void *context, const hec_piece_cost *forward, const hec_piece_cost *backward) {
  (void)context;
  int64_t compute_ps = forward->compute_ps[HEC_PIECE_FORWARD] + backward->compute_ps[HEC_PIECE_INPUT_GRADIENT] +
                       backward->compute_ps[HEC_PIECE_WEIGHT_GRADIENT];
  int64_t exchange_ps = forward->exchange_ps[HEC_PIECE_FORWARD] + backward->exchange_ps[HEC_PIECE_INPUT_GRADIENT] +
                        backward->exchange_ps[HEC_PIECE_WEIGHT_GRADIENT];
  return longer(longer(compute_ps, exchange_ps), longer(alone_ps(forward, HEC_PIECE_FORWARD), backward_ps(backward)));
}

int64_t hec_pair_serial_ps(void *context, const hec_piece_cost *forward, const hec_piece_cost *backward) {
  (void)context;
  return alone_ps(forward, HEC_PIECE_FORWARD) + backward_ps(backward);
}

/* ---- The run ---- */

/* What pieces make, by (way, part, micro-batch): outputs forward, gradients of inputs backward. */
typedef struct {
  int64_t at_ps;  /* -1: not made yet */
  int32_t waiter; /* the device that waits for it; -1: none */
} product;

enum { OUTPUT, GRADIENT, N_WAYS };

typedef struct {
  const hec_pipeline_order *order;
  const hec_pipeline_costs *costs;
  hec_pipeline_run *run;
  product *made[N_WAYS];   /* [n_parts][n_micro_batches] */
  int32_t *next;           /* [n_stages] the piece that a device comes to next */
  int64_t *free_ps;        /* [n_stages] from when on the device may run it */
  int32_t *ready, n_ready; /* [n_stages] devices that may go on */
} state;

static int64_t send_ps(const state *s, int32_t from_part, int32_t to_part, int32_t micro_batch) {
  const hec_pipeline_order *o = s->order;
  if (!s->costs->send_ps || to_part < 0 || to_part >= o->n_parts ||
      o->device[from_part * o->shape.n_micro_batches + micro_batch] ==
          o->device[to_part * o->shape.n_micro_batches + micro_batch])
    return 0;
  return s->costs->send_ps[from_part < to_part ? from_part : to_part];
}

/* *at_ps becomes no earlier than when the product of that part is here; false: it is not made, and `device` waits for it. */
static bool arrives(state *s, int32_t way, int32_t from_part, int32_t part, int32_t micro_batch, int32_t device,
                    int64_t *at_ps) {
  product *p = &s->made[way][from_part * s->order->shape.n_micro_batches + micro_batch];
  if (p->at_ps < 0) {
    p->waiter = device;
    return false;
  }
  *at_ps = longer(*at_ps, p->at_ps + send_ps(s, from_part, part, micro_batch));
  return true;
}

static bool forward_arrives(state *s, int32_t part, int32_t micro_batch, int32_t device, int64_t *at_ps) {
  return part == 0 || arrives(s, OUTPUT, part - 1, part, micro_batch, device, at_ps);
}

static bool backward_arrives(state *s, int32_t part, int32_t micro_batch, int32_t device, int64_t *at_ps) {
  return arrives(s, OUTPUT, part, part, micro_batch, device, at_ps) && /* its own forward: wrong orders have it later */
         (part == s->order->n_parts - 1 || arrives(s, GRADIENT, part + 1, part, micro_batch, device, at_ps));
}

static void make(state *s, int32_t way, int32_t part, int32_t micro_batch, int64_t at_ps) {
  product *p = &s->made[way][part * s->order->shape.n_micro_batches + micro_batch];
  p->at_ps = at_ps;
  if (p->waiter >= 0)
    s->ready[s->n_ready++] = p->waiter;
  p->waiter = -1;
}

/* Runs piece i of a device; false: an input is missing. */
static bool run_piece(state *s, int32_t device, int32_t i) {
  const hec_pipeline_order *o = s->order;
  const hec_piece *piece = &o->piece[i];
  int32_t n = o->shape.n_micro_batches, part = o->part[device * o->shape.n_chunks + piece->chunk];
  bool pair = piece->kind == HEC_PIECE_PAIR, goes_forward = pair || piece->kind == HEC_PIECE_FORWARD;
  int32_t back_part = pair ? o->part[device * o->shape.n_chunks + piece->beside_chunk] : part;
  int32_t back_micro_batch = pair ? piece->beside_micro_batch : piece->micro_batch;
  const hec_piece_cost *cost = &s->costs->piece[part * n + piece->micro_batch];
  const hec_piece_cost *back_cost = &s->costs->piece[back_part * n + back_micro_batch];
  int64_t begin_ps = s->free_ps[device], sent_ps = 0;
  if (goes_forward && !forward_arrives(s, part, piece->micro_batch, device, &begin_ps))
    return false;
  if (piece->kind == HEC_PIECE_WEIGHT_GRADIENT) { /* its own input gradient; wrong orders have it later */
    if (!arrives(s, GRADIENT, part, part, piece->micro_batch, device, &begin_ps))
      return false;
  } else if ((!goes_forward || pair) && !backward_arrives(s, back_part, back_micro_batch, device, &begin_ps)) {
    return false;
  }
  int64_t took_ps =
      pair ? (s->costs->pair_ps ? s->costs->pair_ps : hec_pair_overlapped_ps)(s->costs->pair_context, cost, back_cost)
      : piece->kind == HEC_PIECE_BACKWARD ? backward_ps(cost)
                                          : alone_ps(cost, (int)piece->kind);
  int64_t end_ps = begin_ps + took_ps;
  if (goes_forward) {
    make(s, OUTPUT, part, piece->micro_batch, end_ps);
    sent_ps = send_ps(s, part, part + 1, piece->micro_batch);
  }
  if (!goes_forward || pair) {
    if (piece->kind != HEC_PIECE_WEIGHT_GRADIENT) {
      make(s, GRADIENT, back_part, back_micro_batch, end_ps);
      sent_ps = longer(sent_ps, send_ps(s, back_part, back_part - 1, back_micro_batch)); /* both ways at once */
    }
  }
  hec_pipeline_device *d = &s->run->device[device];
  s->run->begin_ps[i] = begin_ps;
  s->run->end_ps[i] = end_ps;
  d->busy_ps += took_ps;
  s->free_ps[device] = end_ps + (s->costs->send_blocks ? sent_ps : 0);
  d->sending_ps += s->free_ps[device] - end_ps;
  return true;
}

/* Some device that is not done, for the message. */
static hec_status stuck(const state *s, int32_t device) {
  const hec_pipeline_order *o = s->order;
  hec_text text = {0};
  hec_piece_describe(o, device, &o->piece[s->next[device]], &text);
  hec_status status = hec_fail(
      HEC_FAILED,
      "pipeline %s: stages wait for each other: stage %d has run %d of %d pieces and waits for the input of the "
      "%s; this is a bug of the schedule",
      o->schedule->name, (int)device, (int)(s->next[device] - o->piece_at[device]),
      (int)(o->piece_at[device + 1] - o->piece_at[device]), text.data);
  hec_text_free(&text);
  return status;
}

static void sum_up(state *s) {
  const hec_pipeline_order *o = s->order;
  hec_pipeline_run *run = s->run;
  for (int32_t d = 0; d < o->shape.n_stages; d++)
    run->step_ps = longer(run->step_ps, s->free_ps[d]);
  for (int32_t d = 0; d < o->shape.n_stages; d++) {
    hec_pipeline_device *device = &run->device[d];
    int32_t first = o->piece_at[d], last = o->piece_at[d + 1] - 1;
    device->begin_ps = run->begin_ps[first];
    device->end_ps = run->end_ps[last];
    int64_t last_send_ps = s->free_ps[d] - device->end_ps;
    device->waiting_ps = device->end_ps - device->begin_ps - device->busy_ps - (device->sending_ps - last_send_ps);
    device->bubble_ps = run->step_ps - device->busy_ps - device->sending_ps;
  }
}

hec_status hec_pipeline_run_make(const hec_pipeline_order *order, const hec_pipeline_costs *costs, hec_arena *arena,
                                 hec_pipeline_run *run) {
  int32_t n = order->shape.n_stages, n_products = order->n_parts * order->shape.n_micro_batches;
  *run = (hec_pipeline_run){.begin_ps = HEC_NEW(arena, int64_t, order->n_pieces),
                            .end_ps = HEC_NEW(arena, int64_t, order->n_pieces),
                            .device = HEC_NEW(arena, hec_pipeline_device, n)};
  hec_arena_mark mark = hec_arena_save(arena);
  state s = {.order = order,
             .costs = costs,
             .run = run,
             .next = HEC_NEW(arena, int32_t, n),
             .free_ps = HEC_NEW(arena, int64_t, n),
             .ready = HEC_NEW(arena, int32_t, n),
             .n_ready = n};
  for (int32_t way = 0; way < N_WAYS; way++) {
    s.made[way] = HEC_NEW(arena, product, n_products);
    for (int32_t i = 0; i < n_products; i++)
      s.made[way][i] = (product){.at_ps = -1, .waiter = -1};
  }
  for (int32_t d = 0; d < n; d++) {
    s.ready[d] = n - 1 - d;
    s.next[d] = order->piece_at[d];
  }
  while (s.n_ready > 0) {
    int32_t d = s.ready[--s.n_ready];
    while (s.next[d] < order->piece_at[d + 1] && run_piece(&s, d, s.next[d]))
      s.next[d]++;
  }
  hec_status status = HEC_OK;
  for (int32_t d = 0; d < n && status == HEC_OK; d++)
    status = s.next[d] < order->piece_at[d + 1] ? stuck(&s, d) : HEC_OK;
  if (status == HEC_OK)
    sum_up(&s);
  hec_arena_rewind(arena, mark);
  return status;
}

hec_pipeline_peak hec_pipeline_peak_of(const hec_pipeline_order *order, const hec_pipeline_run *run,
                                       const int64_t *held, int32_t device) {
  hec_pipeline_peak peak = {.held = -1};
  for (int32_t d = device < 0 ? 0 : device; d < (device < 0 ? order->shape.n_stages : device + 1); d++)
    for (int32_t i = order->piece_at[d]; i < order->piece_at[d + 1]; i++)
      if (held[i] > peak.held || (held[i] == peak.held && run->begin_ps[i] < peak.at_ps))
        peak = (hec_pipeline_peak){.held = held[i], .at_ps = run->begin_ps[i], .device = d, .piece = i};
  return peak;
}
