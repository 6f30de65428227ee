/* Memory over time: see training_memory.h.
 *
 *   held(device, piece) = state + standing + sum over micro-batches in flight of activations, logits and guests that stay
 *                         + max over the layers of the piece (recomputed + working), if the piece runs a backward
 *
 * Bytes are rounded down to whole ones before they are added up along the order, so the sum is exact and comes back to 0. */
#include "sim/training_memory.h"

#include <string.h>

typedef struct {
  int64_t recomputed, working, logits, guests; /* of the layer that needs most in its backward; its logits' gradient */
} part_work;

static int64_t sum_of(const part_work *w) {
  return w->recomputed + w->working + w->logits + w->guests;
}

typedef struct {
  const hec_training *t;
  const hec_layer_load *loads;
  const hec_pipeline_order *order;
  hec_arena arena;
  int32_t n_micro;
  hec_piece_held *activations, *logits, *guests;     /* [n_parts][n_micro] */
  part_work *work;                                   /* [n_parts][n_micro] */
  int64_t *held, *held_logits, *held_guests, *total; /* [n_pieces] */
} state;

double hec_memory_parts_sum(const hec_memory_parts *p) {
  return p->parameters + p->gradients + p->optimizer + p->activations + p->logits + p->copies + p->buffers;
}

static int32_t layers_of(const state *s, int32_t part, int32_t *first, int32_t *dense) {
  const hec_moe *moe = s->t->moe;
  int32_t n = hec_layout_layers(&s->t->layout, moe, part, first), before = moe->n_layers - moe->n_moe_layers - *first;
  *dense = before < 0 ? 0 : before < n ? before : n;
  return n;
}

static bool is_last(const state *s, int32_t part) {
  return part == s->order->n_parts - 1;
}

/* ---- Of one micro-batch in one part ---- */

static void add_layers(state *s, int64_t at, hec_layer_kind kind, const hec_layer_load *load, int32_t times) {
  const hec_layer_bytes b = hec_layer_bytes_of(s->t, kind, load);
  part_work *work = &s->work[at];
  s->activations[at].activation += times * (int64_t)b.activations;
  s->activations[at].weight += times * (int64_t)(b.weight - b.logits);
  s->logits[at].activation += times * (int64_t)b.logits;
  s->logits[at].weight += times * (int64_t)b.logits;
  s->guests[at].activation += times * (int64_t)b.guests;
  const part_work own = {(int64_t)b.recomputed, (int64_t)(b.working - b.logits), (int64_t)b.logits,
                         (int64_t)b.guests_working};
  if (times > 0 && sum_of(&own) > sum_of(work))
    *work = own;
}

static void add_part(state *s, int32_t part, int32_t m) {
  int32_t first, dense, n = layers_of(s, part, &first, &dense);
  int32_t n_dense = s->t->moe->n_layers - s->t->moe->n_moe_layers;
  int64_t at = (int64_t)part * s->n_micro + m;
  add_layers(s, at, HEC_LAYER_DENSE, NULL, dense);
  if (!s->loads)
    add_layers(s, at, HEC_LAYER_MOE, NULL, n - dense);
  for (int32_t i = first + dense; s->loads && i < first + n; i++)
    add_layers(s, at, HEC_LAYER_MOE, &s->loads[(int64_t)(i - n_dense) * s->n_micro + m], 1);
  if (is_last(s, part)) {
    add_layers(s, at, HEC_LAYER_MOE, NULL, s->t->mtp);
    add_layers(s, at, HEC_LAYER_HEAD, NULL, 1 + s->t->mtp);
  }
}

static bool as_before(const state *s, int32_t part, int32_t m) {
  int32_t first, dense, n = layers_of(s, part, &first, &dense), n_dense = s->t->moe->n_layers - s->t->moe->n_moe_layers;
  for (int32_t i = first + dense; s->loads && i < first + n; i++) {
    const hec_layer_load *load = &s->loads[(int64_t)(i - n_dense) * s->n_micro + m];
    if (memcmp(load, load - 1, sizeof *load) != 0)
      return false;
  }
  return true;
}

static void add_parts(state *s) {
  int64_t n = (int64_t)s->order->n_parts * s->n_micro;
  s->activations = HEC_NEW(&s->arena, hec_piece_held, n);
  s->logits = HEC_NEW(&s->arena, hec_piece_held, n);
  s->guests = HEC_NEW(&s->arena, hec_piece_held, n);
  s->work = HEC_NEW(&s->arena, part_work, n);
  for (int64_t at = 0; at < n; at++) {
    int32_t part = (int32_t)(at / s->n_micro), m = (int32_t)(at % s->n_micro);
    if (m == 0 || !as_before(s, part, m)) {
      add_part(s, part, m);
      continue;
    }
    s->activations[at] = s->activations[at - 1];
    s->logits[at] = s->logits[at - 1];
    s->guests[at] = s->guests[at - 1];
    s->work[at] = s->work[at - 1];
  }
}

/* ---- Of one device ---- */

/* Room for them is there all the time. */
double hec_training_replicas(const hec_layer_load *loads, int32_t layer, int32_t n_micro) {
  int32_t max = 0;
  for (int32_t m = 0; m < n_micro; m++) {
    int32_t n = loads[(int64_t)layer * n_micro + m].replicas;
    max = n > max ? n : max;
  }
  return (double)max;
}

/* Multi-token prediction has a layer like the model's on the last part, a matrix that joins two tokens, and shares the head.
 * Its copy of the embedding is the device's own if that has one. */
static void count_part(const state *s, int32_t part, hec_device_layers *has, double *dense, double *expert,
                       double *replicas) {
  int32_t first, n_dense, n = layers_of(s, part, &first, &n_dense), mtp = is_last(s, part) ? s->t->mtp : 0;
  double width = (double)s->t->moe->d_model, tp = (double)s->t->layout.tp, one, experts;
  int32_t n_moe = n - n_dense + mtp;
  hec_training_params(s->t, HEC_LAYER_DENSE, &one, &experts);
  *dense += (double)n_dense * one;
  hec_training_params(s->t, HEC_LAYER_MOE, &one, &experts);
  *dense += (double)n_moe * one + (double)mtp * 2 * width * width / tp;
  *expert += (double)n_moe * experts;
  int32_t before = s->t->moe->n_layers - s->t->moe->n_moe_layers;
  for (int32_t i = first + n_dense; s->loads && i < first + n; i++)
    *replicas += hec_training_replicas(s->loads, i - before, s->n_micro) * hec_moe_expert_params(s->t->moe) /
                 (double)s->t->layout.etp;
  has->dense |= n_dense > 0;
  has->moe |= n_moe > 0;
  has->embeddings += (part == 0) + is_last(s, part) + (mtp > 0 && part > 0);
}

/* Everything that is there all the time. Copies of a part on two devices share its state as data-parallel ranks do. */
static hec_memory_parts standing(const state *s, int32_t device) {
  const hec_pipeline_order *o = s->order;
  hec_device_layers has = {0};
  hec_training t = *s->t;
  t.layout.dp *= o->schedule->copies;
  t.layout.edp *= o->schedule->copies;
  double dense = 0, expert = 0, replicas = 0, head, none;
  for (int32_t c = 0; c < o->shape.n_chunks; c++)
    count_part(s, o->part[device * o->shape.n_chunks + c], &has, &dense, &expert, &replicas);
  hec_training_params(&t, HEC_LAYER_HEAD, &head, &none);
  const hec_state_bytes b = hec_state_bytes_of(&t, dense + (double)has.embeddings * head, expert),
                        more = hec_state_bytes_of(&t, 0, replicas);
  return (hec_memory_parts){.parameters = b.parameters,
                            .gradients = b.gradients,
                            .optimizer = b.optimizer,
                            .copies = more.parameters + more.gradients + more.optimizer,
                            .buffers = hec_standing_bytes_of(&t, &has)};
}

/* The work of the backward that a piece runs; zeros: it runs none. */
static part_work work_of(const state *s, int32_t device, const hec_pipeline_piece *p) {
  bool pair = p->kind == HEC_PIECE_PAIR;
  if (p->kind == HEC_PIECE_FORWARD || p->kind == HEC_PIECE_WEIGHT_GRADIENT)
    return (part_work){0};
  int32_t chunk = pair ? p->beside_chunk : p->chunk, m = pair ? p->beside_micro_batch : p->micro_batch;
  return s->work[(int64_t)s->order->part[device * s->order->shape.n_chunks + chunk] * s->n_micro + m];
}

static void add_up(state *s) {
  const hec_pipeline_order *o = s->order;
  s->held = HEC_NEW(&s->arena, int64_t, o->n_pieces);
  s->held_logits = HEC_NEW(&s->arena, int64_t, o->n_pieces);
  s->held_guests = HEC_NEW(&s->arena, int64_t, o->n_pieces);
  s->total = HEC_NEW(&s->arena, int64_t, o->n_pieces);
  hec_pipeline_order_held(o, s->activations, -1, s->held);
  hec_pipeline_order_held(o, s->logits, -1, s->held_logits);
  hec_pipeline_order_held(o, s->guests, -1, s->held_guests);
  for (int32_t d = 0; d < o->shape.n_stages; d++) {
    const hec_memory_parts all_time = standing(s, d);
    for (int32_t i = o->piece_at[d]; i < o->piece_at[d + 1]; i++) {
      const part_work work = work_of(s, d, &o->piece[i]);
      s->total[i] =
          (int64_t)hec_memory_parts_sum(&all_time) + s->held[i] + s->held_logits[i] + s->held_guests[i] + sum_of(&work);
    }
  }
}

/* While a device runs a piece; `p`: what is there all the time. */
static hec_memory_parts parts_at(const state *s, int32_t device, int32_t piece, hec_memory_parts p) {
  const part_work work = work_of(s, device, &s->order->piece[piece]);
  p.activations = (double)(s->held[piece] + work.recomputed);
  p.logits = (double)(s->held_logits[piece] + work.logits);
  p.copies += (double)(s->held_guests[piece] + work.guests);
  p.buffers += (double)work.working;
  return p;
}

/* Micro-batches of the device's parts of which it keeps something: up to the end of the last gradient. */
static int32_t in_flight(const state *s, int32_t piece) {
  int64_t n = (int64_t)s->order->n_parts * s->n_micro;
  for (int64_t at = 0; at < n; at++)
    s->activations[at] = (hec_piece_held){1, 1};
  hec_pipeline_order_held(s->order, s->activations, -1, s->held);
  return (int32_t)s->held[piece];
}

static void sum_up(const state *s, const hec_pipeline_run *run, hec_training_memory *memory) {
  const hec_pipeline_peak peak = hec_pipeline_peak_of(s->order, run, s->total, -1);
  hec_training_memory m = {.device = peak.device,
                           .at_s = 1e-12 * (double)peak.at_ps,
                           .piece = s->order->piece[peak.piece],
                           .parts = parts_at(s, peak.device, peak.piece, standing(s, peak.device)),
                           .outside = hec_outside_bytes,
                           .device_bytes = hec_visible_bytes(&s->t->laws->gpu.sheet)};
  m.in_flight = in_flight(s, peak.piece);
  m.peak = hec_memory_parts_sum(&m.parts);
  m.reserved = hec_reserved_bytes(m.peak);
  m.margin = m.device_bytes - m.reserved - m.outside;
  m.fits = m.device_bytes <= 0 || m.margin >= 0;
  *memory = m;
}

void hec_training_memory_of(const hec_training *t, const hec_layer_load *loads, const hec_pipeline_order *order,
                            const hec_pipeline_run *run, double *peaks, hec_training_memory *memory) {
  state s = {.t = t, .loads = loads, .order = order, .n_micro = order->shape.n_micro_batches};
  HEC_ASSERT(order->n_parts == t->layout.pp * t->layout.vpp);
  add_parts(&s);
  add_up(&s);
  for (int32_t d = 0; peaks && d < order->shape.n_stages; d++)
    peaks[d] = (double)hec_pipeline_peak_of(order, run, s.total, d).held;
  sum_up(&s, run, memory);
  hec_arena_free(&s.arena);
}

void hec_training_memory_over(const hec_training *t, const hec_layer_load *loads, const hec_pipeline_order *order,
                              hec_memory_parts *over) {
  state s = {.t = t, .loads = loads, .order = order, .n_micro = order->shape.n_micro_batches};
  add_parts(&s);
  add_up(&s);
  for (int32_t d = 0; d < order->shape.n_stages; d++) {
    const hec_memory_parts all_time = standing(&s, d);
    for (int32_t i = order->piece_at[d]; i < order->piece_at[d + 1]; i++)
      over[i] = parts_at(&s, d, i, all_time);
  }
  hec_arena_free(&s.arena);
}
