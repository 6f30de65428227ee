/* Pieces are appended when all that they wait for has been, device after device, again and again: every dependency is then a
 * smaller id. */
#include "runtime/program/pipelines/step_program.h"

#include <string.h>

enum { STREAM, GRADIENT, N_KINDS };

/* Sends of a kind that a device has begun: the pieces that receive the newest and the one before; -1: none. */
typedef struct {
  int32_t newest, before;
} sending;

typedef struct {
  const hec_pipeline_order *order;
  int32_t n_ranks;
  int64_t bytes;
  bool train;
  hec_program *program;
  hec_step_ops *ops;
  int32_t *done[N_KINDS];     /* [n_parts * n_micro_batches] operation of the forward, of the backward; -1: not yet */
  int32_t *receiver[N_KINDS]; /* likewise: the piece, an index of order->piece */
  int32_t *at;                /* [n_stages] pieces of a device that are appended */
  sending (*sent)[N_KINDS];   /* [n_stages] */
  int32_t *parts_at;          /* [n_stages] into program->parts */
} maker;

static int32_t cell_of(const maker *m, int32_t device, const hec_pipeline_piece *p, int32_t further) {
  const hec_pipeline_order *o = m->order;
  int32_t part = o->part[device * o->shape.n_chunks + p->chunk] + further;
  return part < 0 || part >= o->n_parts ? -1 : part * o->shape.n_micro_batches + p->micro_batch;
}

static int32_t kind_of(const hec_pipeline_piece *p) {
  return p->kind == HEC_PIECE_FORWARD ? STREAM : GRADIENT;
}

/* The cell that a piece's input comes from; -1: from outside the model. */
static int32_t source_of(const maker *m, int32_t device, const hec_pipeline_piece *p) {
  return cell_of(m, device, p, kind_of(p) == STREAM ? -1 : 1);
}

static bool travels(const maker *m, int32_t device, const hec_pipeline_piece *p, int32_t cell) {
  return cell >= 0 && m->order->device[cell] != device && (m->train || kind_of(p) == STREAM);
}

/* The exchange of a send; -1: there is none, or it is not appended yet. */
static int32_t arrival(const maker *m, int32_t receiver) {
  return receiver < 0 ? -1 : m->ops->input[receiver];
}

static bool is_ready(const maker *m, int32_t device, const hec_pipeline_piece *p) {
  int32_t source = source_of(m, device, p), own = cell_of(m, device, p, 0);
  if (kind_of(p) == GRADIENT && m->done[STREAM][own] < 0)
    return false;
  if (source >= 0 && m->done[kind_of(p)][source] < 0)
    return false;
  for (int32_t k = 0; k < N_KINDS; k++)
    if (m->sent[device][k].before >= 0 && arrival(m, m->sent[device][k].before) < 0)
      return false;
  return true;
}

/* Between rank i of both stages, for every i. */
static int32_t add_exchange(maker *m, int32_t from, int32_t to, const hec_pipeline_piece *p, int32_t source) {
  static const hec_lane lanes[N_KINDS][2] = {{HEC_LANE_TOKEN, HEC_LANE_INTRA}, {HEC_LANE_PARAM, HEC_LANE_GRAD}};
  hec_program *program = m->program;
  hec_op op = hec_op_new(HEC_OP_EXCHANGE, lanes[kind_of(p)][from % 2], HEC_ROLE_STAGE_SEND, -1);
  op.micro_batch = p->micro_batch;
  op.backward = kind_of(p) == GRADIENT;
  op.exchange.transfer_at = (int32_t)program->n_transfers;
  op.exchange.n_transfers = m->n_ranks;
  HEC_RESERVE(program->transfers, program->transfers_capacity, program->n_transfers + (size_t)m->n_ranks);
  for (int32_t r = 0; r < m->n_ranks; r++)
    program->transfers[program->n_transfers++] =
        (hec_transfer){m->bytes, from * m->n_ranks + r, to * m->n_ranks + r, -1, -1};
  int32_t first = m->order->piece_at[to], before = m->at[to] > first ? m->ops->piece[m->at[to] - 1] : -1;
  return hec_program_add(program, op, (const int32_t[]){m->done[kind_of(p)][source], before}, 2);
}

static int32_t add_local(maker *m, int32_t device, hec_role role, const hec_pipeline_piece *p, int32_t input) {
  hec_op op = hec_op_new(HEC_OP_LOCAL, HEC_LANE_COMPUTE, role, -1);
  op.micro_batch = p ? p->micro_batch : 0;
  op.backward = role != HEC_ROLE_STAGE_FORWARD;
  op.local.part_at = m->parts_at[device];
  int32_t deps[1 + N_KINDS] = {input};
  for (int32_t k = 0; k < N_KINDS; k++)
    deps[1 + k] = arrival(m, p ? m->sent[device][k].before : m->sent[device][k].newest);
  return hec_program_add(m->program, op, deps, 1 + N_KINDS);
}

static void add_piece(maker *m, int32_t device, int32_t i) {
  const hec_pipeline_piece *p = &m->order->piece[i];
  int32_t kind = kind_of(p), source = source_of(m, device, p), own = cell_of(m, device, p, 0);
  m->ops->input[i] = -1;
  if (travels(m, device, p, source))
    m->ops->input[i] = add_exchange(m, m->order->device[source], device, p, source);
  m->ops->piece[i] = m->done[kind][own] =
      add_local(m, device, kind == STREAM ? HEC_ROLE_STAGE_FORWARD : HEC_ROLE_STAGE_BACKWARD, p, m->ops->input[i]);
  int32_t next = cell_of(m, device, p, kind == STREAM ? 1 : -1);
  if (travels(m, device, p, next))
    m->sent[device][kind] = (sending){m->receiver[kind][next], m->sent[device][kind].newest};
}

static bool can_end(const maker *m, int32_t device) {
  for (int32_t k = 0; k < N_KINDS; k++)
    if (m->sent[device][k].newest >= 0 && arrival(m, m->sent[device][k].newest) < 0)
      return false;
  return m->ops->end[device] < 0;
}

/* As far as the device can go; whether it could at all. */
static bool go_on(maker *m, int32_t device) {
  const hec_pipeline_order *o = m->order;
  int32_t last = o->piece_at[device + 1], begun = m->at[device];
  while (m->at[device] < last && is_ready(m, device, &o->piece[m->at[device]])) {
    add_piece(m, device, m->at[device]);
    m->at[device]++;
  }
  if (m->at[device] < last || !can_end(m, device))
    return m->at[device] > begun;
  m->ops->end[device] = add_local(m, device, HEC_ROLE_STAGE_END, NULL, -1);
  return true;
}

static void find_receivers(maker *m) {
  for (int32_t d = 0; d < m->order->shape.n_stages; d++)
    for (int32_t i = m->order->piece_at[d]; i < m->order->piece_at[d + 1]; i++) {
      const hec_pipeline_piece *p = &m->order->piece[i];
      HEC_ASSERT(p->kind == HEC_PIECE_FORWARD || p->kind == HEC_PIECE_BACKWARD);
      m->receiver[kind_of(p)][cell_of(m, d, p, 0)] = i;
    }
}

/* Who takes part in a stage's own operations. */
static void mark_stages(maker *m) {
  hec_program *program = m->program;
  size_t n = (size_t)program->n_ranks;
  HEC_RESERVE(program->parts, program->parts_capacity, program->n_parts + n * (size_t)m->order->shape.n_stages);
  for (int32_t d = 0; d < m->order->shape.n_stages; d++) {
    m->parts_at[d] = (int32_t)program->n_parts;
    memset(program->parts + program->n_parts, 0, n);
    memset(program->parts + program->n_parts + (size_t)d * (size_t)m->n_ranks, 1, (size_t)m->n_ranks);
    program->n_parts += n;
  }
}

static int32_t *none(hec_arena *arena, int32_t n) {
  int32_t *list = HEC_NEW(arena, int32_t, n);
  memset(list, 0xff, (size_t)n * sizeof *list);
  return list;
}

void hec_step_program_make(const hec_pipeline_order *order, int32_t n_ranks, int64_t bytes, bool train,
                           hec_arena *arena, hec_program *program, hec_step_ops *ops) {
  int32_t n_stages = order->shape.n_stages, n_cells = order->n_parts * order->shape.n_micro_batches;
  maker m = {.order = order, .n_ranks = n_ranks, .bytes = bytes, .train = train, .program = program, .ops = ops};
  *ops = (hec_step_ops){none(arena, order->n_pieces), none(arena, order->n_pieces), none(arena, n_stages)};
  hec_program_clear(program, n_stages * n_ranks);
  m.at = HEC_NEW(arena, int32_t, n_stages);
  m.parts_at = HEC_NEW(arena, int32_t, n_stages);
  m.sent = (sending(*)[N_KINDS])(void *)none(arena, n_stages * N_KINDS * 2);
  for (int32_t k = 0; k < N_KINDS; k++) {
    m.done[k] = none(arena, n_cells);
    m.receiver[k] = none(arena, n_cells);
  }
  for (int32_t d = 0; d < n_stages; d++)
    m.at[d] = order->piece_at[d];
  find_receivers(&m);
  mark_stages(&m);
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t d = 0; d < n_stages; d++)
      moved = go_on(&m, d) || moved;
  }
  for (int32_t d = 0; d < n_stages; d++)
    HEC_ASSERT(ops->end[d] >= 0); /* devices do not wait for each other in a circle */
}

uint64_t hec_stages_digest(const uint64_t *digest, int32_t n_stages) {
  uint64_t all = 0xcbf29ce484222325u; /* FNV-1a, word by word */
  for (int32_t d = 0; d < n_stages; d++)
    all = (all ^ digest[d]) * 0x100000001b3u;
  return all;
}

/* ---- Its timeline ---- */

int32_t hec_step_own_max(const hec_pipeline_order *order) {
  int32_t max = 0;
  for (int32_t d = 0; d < order->shape.n_stages; d++) {
    int32_t n = order->piece_at[d + 1] - order->piece_at[d];
    max = n > max ? n : max;
  }
  return max + 1;
}

typedef struct {
  const hec_program *program;
  hec_timeline *timeline;
  int64_t *lane_end; /* [HEC_N_LANES * n_ranks] */
} filler;

static int64_t ready_of(const filler *f, const hec_op *op, int32_t rank) {
  int32_t n = f->program->n_ranks;
  int64_t ready = f->lane_end[(int32_t)op->lane * n + rank];
  for (int32_t i = 0; i < op->n_deps; i++) {
    int64_t end = f->timeline->end_ps[(size_t)f->program->deps[op->dep_at + i] * (size_t)n + (size_t)rank];
    ready = end > ready ? end : ready;
  }
  return ready;
}

static void put(filler *f, int32_t id, int32_t rank, int64_t begin, int64_t end) {
  int32_t n = f->program->n_ranks;
  size_t at = (size_t)id * (size_t)n + (size_t)rank;
  f->timeline->begin_ps[at] = begin;
  f->timeline->end_ps[at] = end > begin ? end : begin;
  f->lane_end[(int32_t)f->program->ops[id].lane * n + rank] = f->timeline->end_ps[at];
}

/* Both sides have it once the receiver has all of it. */
static void put_exchange(filler *f, int32_t id, const hec_step_stamp *stamps, int32_t n_own, int32_t own) {
  const hec_op *op = &f->program->ops[id];
  for (int32_t k = 0; k < op->exchange.n_transfers; k++) {
    const hec_transfer *t = &f->program->transfers[op->exchange.transfer_at + k];
    int64_t from = ready_of(f, op, t->source), to = ready_of(f, op, t->destination), begin = from > to ? from : to;
    int64_t end = stamps[(size_t)t->destination * (size_t)n_own + (size_t)own].input_ps;
    put(f, id, t->source, begin, end);
    put(f, id, t->destination, begin, end);
  }
}

void hec_step_timeline(const hec_pipeline_order *order, const hec_step_ops *ops, const hec_program *program,
                       const hec_step_stamp *stamps, int32_t n_own, hec_timeline *timeline) {
  HEC_SCOPED(hec_arena) arena = {0};
  int32_t n = program->n_ranks / order->shape.n_stages, n_ops = (int32_t)program->n_ops;
  filler f = {program, timeline, HEC_NEW(&arena, int64_t, HEC_N_LANES * program->n_ranks)};
  int32_t *own = HEC_NEW(&arena, int32_t, n_ops), *device = HEC_NEW(&arena, int32_t, n_ops);
  hec_timeline_resize(timeline, n_ops, program->n_ranks);
  for (int32_t d = 0; d < order->shape.n_stages; d++) {
    for (int32_t i = order->piece_at[d]; i < order->piece_at[d + 1]; i++) {
      own[ops->piece[i]] = i - order->piece_at[d];
      device[ops->piece[i]] = d;
      if (ops->input[i] >= 0)
        own[ops->input[i]] = i - order->piece_at[d];
    }
    own[ops->end[d]] = n_own - 1;
    device[ops->end[d]] = d;
  }
  for (int32_t id = 0; id < n_ops; id++) {
    const hec_op *op = &program->ops[id];
    if (op->kind == HEC_OP_EXCHANGE)
      put_exchange(&f, id, stamps, n_own, own[id]);
    for (int32_t r = device[id] * n; op->kind != HEC_OP_EXCHANGE && r < (device[id] + 1) * n; r++)
      put(&f, id, r, ready_of(&f, op, r), stamps[(size_t)r * (size_t)n_own + (size_t)own[id]].end_ps);
  }
}
