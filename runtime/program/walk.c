/* In id order every predecessor of (op, r) already has its end, so
 *   ready(op, r) = max(start skew of r, end of the lane's last operation on r, ends of the dependencies on r)
 *   alone        begin = ready,                                end = begin + the caller's duration of (op, r)
 *   exchange     begin = max of ready over r and its partners, end = begin + closed form of r's part
 *   together     begin = max of ready over all ranks,          end = begin + closed form (all-reduce, counts)
 *
 * One visit per (operation, rank) and two per transfer. Equal exchanges are priced once. There are two kinds of
 * equals. Exchanges over the same transfers, the same way, are equal (a combine and its backward dispatch). So are
 * those whose transfers are equal one by one (micro-batches that repeat a record, layers whose copies stay). A few
 * transfers, spread over the exchange, say where an equal one may be. Equal it is only after all have been compared,
 * so a hit is exact and a miss costs next to nothing.
 *
 * What that is worth: take 12 iterations on 32 ranks and 6 layers with 4 equal micro-batches. `ep` has 1152 exchanges:
 * 576 by place and 144 by content. `hecate` has 2204, 1628 and 705. Walks got shorter by 10 (`laer`) to 40 % (`ep`:
 * 0.32 to 0.19 ms).
 * With one micro-batch hardly any are found (`ep` 288, 144, 144; `hecate` 556, 412, 407) and walks take as long as without.
 * Only here: in the event engine an exchange's times depend on the others in flight. Where they do not (alpha_beta
 * with comm_share) events cost more than prices. */
#include "runtime/program/walk.h"

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdlib.h>
#include <string.h>

enum { PLACE_BITS = 12, EQUAL_BITS = 13 }; /* 58 layers in 8 chunks have 928 exchanges of tokens */

/* Times of an exchange that was already priced in this program. Tables are not cleared between runs: a slot of an older run is
 * empty. */
typedef struct {
  uint32_t run;
  int32_t transfer_at;
  bool reverse;
  int32_t at; /* into done_ps */
} priced;

/* The same by content. */
typedef struct {
  const hec_op *op;
  const hec_program *program;
  int32_t at;   /* into done_ps */
  uint32_t run; /* the first of those that go on */
} known;

/* What the last operation of a kind took that all ranks do together. */
typedef struct {
  const hec_op *op; /* NULL: none yet in this run */
  int64_t ps;
} together;

struct hec_walk {
  hec_link_cost *cost;
  int32_t n_ranks;
  int64_t *lane_end;      /* [HEC_N_LANES * n_ranks] */
  int64_t *ready, *begin; /* [n_ranks] */
  uint32_t run, first;    /* this one, and the first of those that go on to it; from 1: slots of 0 are empty */
  together last[2];       /* all-reduce, counts */
  priced cache[1 << PLACE_BITS];
  known equal[1 << EQUAL_BITS];
  int64_t *done_ps; /* [n_done] rows of n_ranks */
  size_t n_done, done_capacity;
  size_t n_places; /* exchanges not found by place: rows that would be needed if none were equal */
};

hec_walk *hec_walk_new(hec_link_cost *cost, int32_t n_ranks, hec_arena *arena) {
  hec_walk *walk = HEC_NEW(arena, hec_walk, 1);
  walk->cost = cost;
  walk->n_ranks = n_ranks;
  walk->lane_end = HEC_NEW(arena, int64_t, HEC_N_LANES * n_ranks);
  walk->ready = HEC_NEW(arena, int64_t, n_ranks);
  walk->begin = HEC_NEW(arena, int64_t, n_ranks);
  return walk;
}

void hec_walk_free(hec_walk *walk) {
  if (!walk)
    return;
  free(walk->done_ps);
  walk->done_ps = NULL;
  walk->n_done = walk->done_capacity = 0;
}

double hec_walk_exchange_s(const hec_cluster *cluster, const hec_op *op, double closed_form_s) {
  const hec_curve *curve =
      cluster->measured.n > 0 ? hec_curves_find(&cluster->measured, hec_op_curve(op), false, 0, 0) : NULL;
  return curve && closed_form_s > 0 ? hec_curve_s(curve, closed_form_s) : closed_form_s;
}

double hec_walk_together_s(const hec_cluster *cluster, int32_t n_ranks, const hec_op *op) {
  if (op->kind != HEC_OP_ALLREDUCE)
    return hec_link_cost_allgather(cluster, n_ranks, op->bytes);
  double s = op->allreduce.stride > 1
                 ? hec_link_cost_allreduce_strided(cluster, n_ranks, op->allreduce.stride, op->bytes)
                 : hec_link_cost_allreduce(cluster, n_ranks, op->bytes);
  return op->allreduce.half ? s / 2 : s; /* around a ring both take the same */
}

void hec_walk_own_measured(const void *context, const hec_program *program, int32_t op, int64_t *ps) {
  const int64_t *measured_ps = (const int64_t *)context + (size_t)op * (size_t)program->n_ranks;
  for (int32_t r = 0; r < program->n_ranks; r++) {
    HEC_ASSERT(measured_ps[r] >= 0);
    ps[r] = measured_ps[r] < HEC_TIME_END_PS ? measured_ps[r] : HEC_TIME_END_PS;
  }
}

/* An operation on its way through the walk. */
typedef struct {
  const hec_program *program;
  const hec_op *op;
  int32_t id;
  bool free_of_charge;
  int64_t *begin, *end; /* [n_ranks] its rows of the timeline */
} visit;

static void find_ready(hec_walk *walk, const visit *v, const hec_timeline *timeline) {
  int32_t n_ranks = walk->n_ranks;
  memcpy(walk->ready, walk->lane_end + (size_t)v->op->lane * (size_t)n_ranks, (size_t)n_ranks * sizeof *walk->ready);
  for (int32_t d = 0; d < v->op->n_deps; d++) {
    const int64_t *end = timeline->end_ps + (size_t)v->program->deps[v->op->dep_at + d] * (size_t)n_ranks;
    for (int32_t r = 0; r < n_ranks; r++)
      walk->ready[r] = end[r] > walk->ready[r] ? end[r] : walk->ready[r];
  }
}

static void walk_alone(hec_walk *walk, const visit *v, hec_walk_options options) {
  int32_t n_ranks = walk->n_ranks;
  memcpy(v->begin, walk->ready, (size_t)n_ranks * sizeof *v->begin);
  if (v->free_of_charge) {
    memcpy(v->end, walk->ready, (size_t)n_ranks * sizeof *v->end);
    return;
  }
  options.own(options.context, v->program, v->id, v->end);
  for (int32_t r = 0; r < n_ranks; r++)
    if (hec_program_takes_part(v->program, v->op, r))
      v->end[r] = hec_time_after(v->begin[r], v->end[r]);
    else
      v->begin[r] = v->end[r] = -1;
}

/* Where an exchange with such transfers would stand. */
static known *find_slot(hec_walk *walk, const hec_program *program, const hec_op *op) {
  enum { SAMPLES = 8 };
  const hec_transfer *t = program->transfers + op->exchange.transfer_at;
  uint64_t hash = (uint64_t)op->exchange.n_transfers * 2 + op->reverse;
  int32_t step = op->exchange.n_transfers / SAMPLES + 1;
  for (int32_t i = 0; i < op->exchange.n_transfers; i += step) {
    hash = (hash ^ (uint64_t)t[i].bytes) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ (hash >> 29) ^ ((uint64_t)(uint32_t)t[i].source << 32 | (uint32_t)t[i].destination)) *
           0xbf58476d1ce4e5b9u;
  }
  return &walk->equal[(hash * 0x9e3779b97f4a7c15u) >> (64 - EQUAL_BITS)];
}

_Static_assert(sizeof(hec_transfer) == sizeof(int64_t) + 4 * sizeof(int32_t), "compared as bytes: no padding");

static bool same_exchange(const known *before, const hec_program *program, const hec_op *b) {
  const hec_op *a = before->op;
  if (a->exchange.n_transfers != b->exchange.n_transfers || a->reverse != b->reverse ||
      a->exchange.n_chunks != b->exchange.n_chunks || hec_op_curve(a) != hec_op_curve(b))
    return false;
  const hec_transfer *x = before->program->transfers + a->exchange.transfer_at,
                     *y = program->transfers + b->exchange.transfer_at;
  return memcmp(x, y, (size_t)a->exchange.n_transfers * sizeof *x) == 0;
}

/* Kernels of a dispatcher say themselves how long they take. */
static int32_t price_kernels(hec_walk *walk, const hec_op *op, priced *slot, const double *kernels_s) {
  walk->n_places++;
  HEC_RESERVE(walk->done_ps, walk->done_capacity, walk->n_places * (size_t)walk->n_ranks);
  *slot = (priced){walk->run, op->exchange.transfer_at, op->reverse, (int32_t)walk->n_done};
  walk->n_done += (size_t)walk->n_ranks;
  for (int32_t r = 0; r < walk->n_ranks; r++)
    walk->done_ps[slot->at + r] = hec_seconds_to_ps(kernels_s[r]);
  return slot->at;
}

/* Index into done_ps of the closed-form times of an exchange. */
static int32_t price(hec_walk *walk, const hec_program *program, const hec_op *op) {
  uint32_t hash = ((uint32_t)op->exchange.transfer_at * 2 + op->reverse) * 2654435761u;
  priced *slot = &walk->cache[hash >> (32 - PLACE_BITS)];
  if (slot->run == walk->run && slot->transfer_at == op->exchange.transfer_at && slot->reverse == op->reverse)
    return slot->at;
  int32_t n_ranks = walk->n_ranks;
  const double *kernels_s = hec_program_kernels_s(program, op);
  if (kernels_s)
    return price_kernels(walk, op, slot, kernels_s);
  walk->n_places++; /* room by place: how many are equal changes with the loads, and no iteration may allocate */
  HEC_RESERVE(walk->done_ps, walk->done_capacity, walk->n_places * (size_t)n_ranks);
  known *equal = find_slot(walk, program, op);
  if (equal->run == walk->first && same_exchange(equal, program, op)) {
    *slot = (priced){walk->run, op->exchange.transfer_at, op->reverse, equal->at};
    return equal->at;
  }
  *equal = (known){op, program, (int32_t)walk->n_done, walk->first};
  *slot = (priced){walk->run, op->exchange.transfer_at, op->reverse, (int32_t)walk->n_done};
  walk->n_done += (size_t)n_ranks;
  (void)hec_link_cost_exchange(walk->cost, program->transfers + op->exchange.transfer_at, op->exchange.n_transfers,
                               op->reverse, op->exchange.n_chunks);
  for (int32_t r = 0; r < n_ranks; r++)
    walk->done_ps[slot->at + r] =
        hec_seconds_to_ps(hec_walk_exchange_s(walk->cost->cluster, op, walk->cost->done_s[r]));
  return slot->at;
}

/* start[r] = the latest of ready over r and its partners; start is ready so far. Transfers mostly stand by source, so a
 * source's own maximum stays at hand while its transfers last. */
static void meet(const hec_program *program, const hec_op *op, const int64_t *ready, int64_t *start) {
  const hec_transfer *t = program->transfers + op->exchange.transfer_at, *end = t + op->exchange.n_transfers;
  while (t != end) {
    int32_t source = t->source;
    int64_t own = ready[source], latest = start[source];
    for (; t != end && t->source == source; t++) {
      int64_t other = ready[t->destination], *begin = &start[t->destination];
      latest = other > latest ? other : latest;
      *begin = own > *begin ? own : *begin;
    }
    start[source] = latest;
  }
}

static void walk_exchange(hec_walk *walk, const visit *v) {
  int32_t n_ranks = walk->n_ranks;
  const uint8_t *part = v->program->parts + v->op->exchange.part_at;
  int64_t *start = walk->begin;
  memcpy(start, walk->ready, (size_t)n_ranks * sizeof *start);
  if (!v->free_of_charge)
    meet(v->program, v->op, walk->ready, start);
  int32_t at = v->free_of_charge ? 0 : price(walk, v->program, v->op); /* may move done_ps */
  const int64_t *done = v->free_of_charge ? NULL : walk->done_ps + at;
  for (int32_t r = 0; r < n_ranks; r++)
    if (part[r]) {
      v->begin[r] = start[r];
      v->end[r] = hec_time_after(start[r], done ? done[r] : 0);
    }
}

static int64_t together_ps(hec_walk *walk, const hec_op *op) {
  together *last = &walk->last[op->kind == HEC_OP_COUNTS];
  const hec_op *before = last->op;
  bool same = before && !(before->bytes < op->bytes) && !(before->bytes > op->bytes) &&
              (op->kind == HEC_OP_COUNTS ||
               (before->allreduce.stride == op->allreduce.stride && before->allreduce.half == op->allreduce.half));
  if (!same)
    *last = (together){op, hec_seconds_to_ps(hec_walk_together_s(walk->cost->cluster, walk->n_ranks, op))};
  return last->ps;
}

static void walk_together(hec_walk *walk, const visit *v) {
  int32_t n_ranks = walk->n_ranks;
  int64_t start = 0, ps = 0;
  if (!v->free_of_charge)
    ps = together_ps(walk, v->op);
  for (int32_t r = 0; r < n_ranks; r++)
    start = walk->ready[r] > start ? walk->ready[r] : start;
  for (int32_t r = 0; r < n_ranks; r++) {
    v->begin[r] = v->free_of_charge ? walk->ready[r] : start;
    v->end[r] = hec_time_after(v->begin[r], ps);
  }
}

static void begin_run(hec_walk *walk, bool goes_on) {
  if (++walk->run == 0) { /* after 2^32 runs slots of the first would count again */
    memset(walk->cache, 0, sizeof walk->cache);
    memset(walk->equal, 0, sizeof walk->equal);
    walk->run = 1;
    walk->first = 0;
  }
  if (!goes_on || walk->first == 0) {
    walk->first = walk->run;
    walk->n_done = walk->n_places = 0;
  }
  memset(walk->last, 0, sizeof walk->last);
}

void hec_walk_run(hec_walk *walk, const hec_program *program, hec_walk_options options, hec_timeline *timeline) {
  HEC_ASSERT(program->n_ranks == walk->n_ranks);
  size_t n_ranks = (size_t)walk->n_ranks;
  hec_timeline_resize(timeline, (int32_t)program->n_ops, program->n_ranks);
  for (size_t r = 0; r < n_ranks; r++) { /* not before its skew: as if every lane had an operation that ends there */
    timeline->late_ps[r] = options.on_time ? 0 : hec_seconds_to_ps(walk->cost->cluster->devices[r].skew_s);
    for (size_t lane = 0; lane < HEC_N_LANES; lane++)
      walk->lane_end[lane * n_ranks + r] = timeline->late_ps[r];
  }
  begin_run(walk, options.goes_on);
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    visit v = {.program = program,
               .op = op,
               .id = (int32_t)i,
               .free_of_charge = options.without_one_off && op->one_off,
               .begin = timeline->begin_ps + i * n_ranks,
               .end = timeline->end_ps + i * n_ranks};
    find_ready(walk, &v, timeline);
    if (op->kind == HEC_OP_EXCHANGE)
      walk_exchange(walk, &v);
    else if (op->kind == HEC_OP_ALLREDUCE || op->kind == HEC_OP_COUNTS)
      walk_together(walk, &v);
    else
      walk_alone(walk, &v, options);
    int64_t *lane_end = walk->lane_end + (size_t)op->lane * n_ranks;
    for (size_t r = 0; r < n_ranks; r++)
      lane_end[r] = v.end[r] > lane_end[r] ? v.end[r] : lane_end[r];
  }
}
