/* The table of pipeline schedules, and what all orders have in common: making, checking, counting what is held. */
#include "runtime/program/pipelines/pipeline_schedule.h"

#include <stdarg.h>
#include <stdio.h>

enum { SIZE_MAX_EACH = 1 << 20, PIECES_MAX = 1 << 26, KINDS = 3 };

#define ROW(name) &hec_pipeline_##name,
const hec_pipeline_schedule *const hec_pipeline_schedules[] = {HEC_PIPELINE_LIST(ROW) NULL};
HEC_TABLE_OF(hec_pipeline_schedule);
const hec_table hec_pipeline_table = {.rows = hec_pipeline_schedules, .list = "hecate-sim `list`"};

const hec_pipeline_schedule *hec_pipeline_find(const char *name) {
  return hec_table_find(hec_pipeline_schedules, name);
}

const hec_pipeline_schedule *hec_pipeline_default(int32_t n_stages, int32_t n_chunks) {
  return n_stages > 1 && n_chunks > 1 ? &hec_pipeline_interleaved : &hec_pipeline_1f1b;
}

/* ---- Sizes ---- */

hec_status hec_pipeline_refuse(const char *name, const char *expected, int32_t found, const char *use, ...) {
  char what[160];
  va_list values;
  va_start(values, use);
  (void)vsnprintf(what, sizeof what, use, values);
  va_end(values);
  return hec_fail(HEC_BAD_INPUT, "pipeline %s: expected %s, found %d; use %s", name, expected, (int)found, what);
}

static hec_status fit(const hec_pipeline_schedule *s, hec_pipeline_shape *shape) {
  if (shape->n_stages < 1 || shape->n_stages > SIZE_MAX_EACH)
    return hec_pipeline_refuse(s->name, "at least 1 stage", shape->n_stages, "1 to %d", SIZE_MAX_EACH);
  if (shape->n_micro_batches < 1 || shape->n_micro_batches > SIZE_MAX_EACH)
    return hec_pipeline_refuse(s->name, "at least 1 micro-batch", shape->n_micro_batches, "1 to %d", SIZE_MAX_EACH);
  if (shape->n_chunks == 0)
    shape->n_chunks = s->min_chunks;
  if (shape->n_chunks < s->min_chunks || shape->n_chunks > s->max_chunks) {
    if (s->max_chunks > s->min_chunks)
      return hec_pipeline_refuse(s->name, "several virtual stages per stage", shape->n_chunks, "%d or more",
                                 (int)s->min_chunks);
    return hec_pipeline_refuse(s->name, s->min_chunks == 1 ? "1 virtual stage per stage" : "2 virtual stages per stage",
                               shape->n_chunks, "%d%s", (int)s->min_chunks,
                               s->min_chunks == 1 ? ", or the pipeline interleaved" : "");
  }
  if (shape->group == 0)
    shape->group = shape->n_stages;
  if ((int64_t)shape->n_stages * shape->n_chunks * shape->n_micro_batches > PIECES_MAX / KINDS)
    return hec_pipeline_refuse(s->name, "fewer pieces (stages x virtual stages x micro-batches)",
                               shape->n_micro_batches, "fewer micro-batches");
  return s->fits ? s->fits(shape) : HEC_OK;
}

/* ---- Making ---- */

void hec_pipeline_add(hec_pipeline_order *order, hec_piece_kind kind, int32_t chunk, int32_t micro_batch) {
  order->piece[order->n_pieces++] = (hec_pipeline_piece){kind, chunk, micro_batch, -1, -1};
}

void hec_pipeline_add_pair(hec_pipeline_order *order, int32_t chunk, int32_t micro_batch, int32_t beside_chunk,
                           int32_t beside_micro_batch) {
  order->piece[order->n_pieces++] =
      (hec_pipeline_piece){HEC_PIECE_PAIR, chunk, micro_batch, beside_chunk, beside_micro_batch};
}

hec_piece_work hec_piece_work_of(const hec_pipeline_order *order, int32_t device, const hec_pipeline_piece *piece) {
  const int32_t *part = &order->part[device * order->shape.n_chunks];
  int32_t n = order->shape.n_micro_batches, at = part[piece->chunk] * n + piece->micro_batch;
  switch (piece->kind) {
  case HEC_PIECE_FORWARD:
    return (hec_piece_work){at, -1, -1};
  case HEC_PIECE_INPUT_GRADIENT:
    return (hec_piece_work){-1, at, -1};
  case HEC_PIECE_WEIGHT_GRADIENT:
    return (hec_piece_work){-1, -1, at};
  case HEC_PIECE_BACKWARD:
    return (hec_piece_work){-1, at, at};
  case HEC_PIECE_PAIR:
    break;
  }
  int32_t beside = part[piece->beside_chunk] * n + piece->beside_micro_batch;
  return (hec_piece_work){at, beside, beside};
}

/* Who runs which forward is written down from the pieces. */
static void note_devices(hec_pipeline_order *order) {
  for (int32_t d = 0; d < order->shape.n_stages; d++)
    for (int32_t i = order->piece_at[d]; i < order->piece_at[d + 1]; i++) {
      hec_piece_work work = hec_piece_work_of(order, d, &order->piece[i]);
      if (work.forward >= 0)
        order->device[work.forward] = d;
    }
}

hec_status hec_pipeline_order_make(const hec_pipeline_schedule *schedule, const hec_pipeline_shape *shape,
                                   hec_arena *arena, hec_pipeline_order *order) {
  *order = (hec_pipeline_order){.schedule = schedule, .shape = *shape};
  HEC_TRY(fit(schedule, &order->shape));
  int32_t n = order->shape.n_stages, chunks = order->shape.n_chunks, micro_batches = order->shape.n_micro_batches;
  order->n_parts = n * chunks / schedule->copies;
  order->part = HEC_NEW(arena, int32_t, n * chunks);
  order->device = HEC_NEW(arena, int32_t, order->n_parts * micro_batches);
  order->piece_at = HEC_NEW(arena, int32_t, n + 1);
  order->piece = HEC_NEW(arena, hec_pipeline_piece, KINDS * order->n_parts * micro_batches);
  for (int32_t d = 0; d < n; d++) {
    for (int32_t c = 0; c < chunks; c++)
      order->part[d * chunks + c] = schedule->part ? schedule->part(&order->shape, d, c) : c * n + d;
    schedule->order(order, d);
    order->piece_at[d + 1] = order->n_pieces;
  }
  note_devices(order);
  return HEC_OK;
}

/* ---- Checking ---- */

void hec_piece_describe(const hec_pipeline_order *order, int32_t device, const hec_pipeline_piece *piece,
                        hec_text *text) {
  static const char *const names[] = {"forward", "input gradient", "weight gradient", "backward", "forward"};
  const int32_t *part = &order->part[device * order->shape.n_chunks];
  hec_text_printf(text, "%s of micro-batch %d, virtual stage %d", names[piece->kind], (int)piece->micro_batch,
                  (int)part[piece->chunk]);
  if (piece->kind == HEC_PIECE_PAIR)
    hec_text_printf(text, " beside the backward of micro-batch %d, virtual stage %d", (int)piece->beside_micro_batch,
                    (int)part[piece->beside_chunk]);
}

static hec_status wrong(const hec_pipeline_order *order, int32_t device, int32_t i, const char *what) {
  HEC_SCOPED(hec_text) text = {0};
  hec_piece_describe(order, device, &order->piece[i], &text);
  return hec_fail(HEC_FAILED, "pipeline %s, stage %d, piece %d (%s): %s; this is a bug of the schedule",
                  order->schedule->name, (int)device, (int)(i - order->piece_at[device]), text.data, what);
}

/* What a (part, micro-batch) has had so far. */
enum { HAD_FORWARD = 1, HAD_INPUT = 2, HAD_WEIGHT = 4, HAD_ALL = 7 };

static const char *step(uint8_t *had, int32_t before, int32_t now) {
  const char *fault = *had & now ? "it runs a second time" : *had != before ? "what it needs comes later" : NULL;
  *had = (uint8_t)(*had | now);
  return fault;
}

static bool exists(const hec_pipeline_order *order, int32_t chunk, int32_t micro_batch) {
  return chunk >= 0 && chunk < order->shape.n_chunks && micro_batch >= 0 && micro_batch < order->shape.n_micro_batches;
}

static const char *step_piece(const hec_pipeline_order *order, int32_t device, const hec_pipeline_piece *piece,
                              uint8_t *had) {
  if (!exists(order, piece->chunk, piece->micro_batch) ||
      (piece->kind == HEC_PIECE_PAIR && !exists(order, piece->beside_chunk, piece->beside_micro_batch)))
    return "there is no such chunk or micro-batch";
  hec_piece_work work = hec_piece_work_of(order, device, piece);
  int32_t at[] = {work.input, work.weight,
                  work.forward}; /* the forward last: halves of a pair may not need each other */
  static const int now[] = {HAD_INPUT, HAD_WEIGHT, HAD_FORWARD}, before[] = {HAD_FORWARD, HAD_FORWARD | HAD_INPUT, 0};
  const char *fault = NULL;
  for (int i = 0; i < 3 && !fault; i++)
    if (at[i] >= 0)
      fault = order->device[at[i]] != device ? "another stage runs its forward" : step(&had[at[i]], before[i], now[i]);
  return fault;
}

hec_status hec_pipeline_order_check(const hec_pipeline_order *order) {
  int32_t n = order->n_parts * order->shape.n_micro_batches;
  HEC_SCOPED(hec_arena) arena = {0};
  uint8_t *had = HEC_NEW(&arena, uint8_t, n); /* [n_parts][n_micro_batches] */
  hec_status status = HEC_OK;
  for (int32_t d = 0; status == HEC_OK && d < order->shape.n_stages; d++)
    for (int32_t i = order->piece_at[d]; status == HEC_OK && i < order->piece_at[d + 1]; i++) {
      const char *fault = step_piece(order, d, &order->piece[i], had);
      status = fault ? wrong(order, d, i, fault) : HEC_OK;
    }
  for (int32_t i = 0; status == HEC_OK && i < n; i++)
    if (had[i] != HAD_ALL)
      status = hec_fail(
          HEC_FAILED, "pipeline %s: micro-batch %d misses a piece in virtual stage %d; this is a bug of the schedule",
          order->schedule->name, (int)(i % order->shape.n_micro_batches), (int)(i / order->shape.n_micro_batches));
  return status;
}

/* ---- What is held ---- */

void hec_pipeline_order_held(const hec_pipeline_order *order, const hec_piece_held *each, int32_t chunk,
                             int64_t *held) {
  static const hec_piece_held one = {.activation = 1};
  for (int32_t d = 0; d < order->shape.n_stages; d++) {
    int64_t now = 0;
    for (int32_t i = order->piece_at[d]; i < order->piece_at[d + 1]; i++) {
      const hec_pipeline_piece *piece = &order->piece[i];
      hec_piece_work work = hec_piece_work_of(order, d, piece);
      int32_t back = work.input >= 0 ? work.input : work.weight;
      int32_t back_chunk = piece->kind == HEC_PIECE_PAIR ? piece->beside_chunk : piece->chunk;
      if (work.forward >= 0 && (chunk < 0 || piece->chunk == chunk))
        now += each ? each[work.forward].activation : one.activation;
      held[i] = now;
      if (back < 0 || (chunk >= 0 && back_chunk != chunk))
        continue;
      const hec_piece_held *of = each ? &each[back] : &one;
      now -= work.input >= 0 ? of->activation : of->weight;
      now += work.input >= 0 && work.weight < 0 ? of->weight : 0;
    }
    HEC_ASSERT(now == 0);
  }
}
