/* Each device runs until its next piece wants an input that nobody has made yet. It then leaves its number with that input,
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

/* From the device that made something to the one that runs index `to`, if there is such a part. */
static int64_t send_ps(const state *s, int32_t from, int32_t to) {
  const hec_pipeline_order *o = s->order;
  if (!s->costs->send_ps || to < 0 || to >= o->n_parts * o->shape.n_micro_batches || o->device[from] == o->device[to])
    return 0;
  return s->costs->send_ps[(from < to ? from : to) / o->shape.n_micro_batches];
}

/* *at_ps becomes no earlier than when the product is where `to` runs; false: it is not made, and `device` waits for it. */
static bool arrives(state *s, int32_t way, int32_t from, int32_t to, int32_t device, int64_t *at_ps) {
  product *p = &s->made[way][from];
  if (p->at_ps < 0) {
    p->waiter = device;
    return false;
  }
  *at_ps = longer(*at_ps, p->at_ps + send_ps(s, from, to));
  return true;
}

/* What each half waits for. Its own earlier pieces are asked for too: a wrong order has them later. */
static bool inputs_arrive(state *s, hec_piece_work w, int32_t device, int64_t *at_ps) {
  int32_t n = s->order->shape.n_micro_batches, all = s->order->n_parts * n;
  if (w.forward >= n && !arrives(s, OUTPUT, w.forward - n, w.forward, device, at_ps))
    return false;
  if (w.input < 0)
    return w.weight < 0 || arrives(s, GRADIENT, w.weight, w.weight, device, at_ps);
  return arrives(s, OUTPUT, w.input, w.input, device, at_ps) &&
         (w.input + n >= all || arrives(s, GRADIENT, w.input + n, w.input, device, at_ps));
}

static void make(state *s, int32_t way, int32_t at, int64_t at_ps) {
  product *p = &s->made[way][at];
  p->at_ps = at_ps;
  if (p->waiter >= 0)
    s->ready[s->n_ready++] = p->waiter;
  p->waiter = -1;
}

static int64_t cost_ps(const hec_pipeline_costs *costs, hec_piece_work w) {
  if (w.forward >= 0 && w.input >= 0)
    return (costs->pair_ps ? costs->pair_ps : hec_pair_overlapped_ps)(costs->pair_context, &costs->piece[w.forward],
                                                                      &costs->piece[w.input]);
  return (w.forward >= 0 ? alone_ps(&costs->piece[w.forward], HEC_PIECE_FORWARD) : 0) +
         (w.input >= 0 ? alone_ps(&costs->piece[w.input], HEC_PIECE_INPUT_GRADIENT) : 0) +
         (w.weight >= 0 ? alone_ps(&costs->piece[w.weight], HEC_PIECE_WEIGHT_GRADIENT) : 0);
}

/* Runs piece i of a device; false: an input is missing. */
static bool run_piece(state *s, int32_t device, int32_t i) {
  int32_t n = s->order->shape.n_micro_batches;
  hec_piece_work w = hec_piece_work_of(s->order, device, &s->order->piece[i]);
  int64_t begin_ps = s->free_ps[device], sent_ps = 0;
  if (!inputs_arrive(s, w, device, &begin_ps))
    return false;
  int64_t took_ps = cost_ps(s->costs, w), end_ps = begin_ps + took_ps;
  if (w.forward >= 0) {
    make(s, OUTPUT, w.forward, end_ps);
    sent_ps = send_ps(s, w.forward, w.forward + n);
  }
  if (w.input >= 0) {
    make(s, GRADIENT, w.input, end_ps);
    sent_ps = longer(sent_ps, send_ps(s, w.input, w.input - n)); /* a pair sends both at once */
  }
  s->run->begin_ps[i] = begin_ps;
  s->run->end_ps[i] = end_ps;
  s->run->device[device].busy_ps += took_ps;
  s->run->device[device].sending_ps += s->costs->send_blocks ? sent_ps : 0;
  s->free_ps[device] = end_ps + (s->costs->send_blocks ? sent_ps : 0);
  return true;
}

/* Some device that is not done, for the message. */
static hec_status stuck(const state *s, int32_t device) {
  const hec_pipeline_order *o = s->order;
  HEC_SCOPED(hec_text) text = {0};
  hec_piece_describe(o, device, &o->piece[s->next[device]], &text);
  return hec_fail(
      HEC_FAILED,
      "pipeline %s: stages wait for each other: stage %d has run %d of %d pieces and waits for the input of the "
      "%s; this is a bug of the schedule",
      o->schedule->name, (int)device, (int)(s->next[device] - o->piece_at[device]),
      (int)(o->piece_at[device + 1] - o->piece_at[device]), text.data);
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
