/* Every (operation, rank) with a span becomes one observation, but for operations that move bytes while the rank
 * computes. The executor looks at those between two steps of computing only, so such a span says how long a step is.
 * O(operations * ranks + exchanges * operations of the rank + pieces of work). */
#include "validate/calibrate/samples.h"

#include "runtime/base/arena.h"
#include "runtime/plan/problem.h"
#include "runtime/program/lower.h"

#include <stdlib.h>

static hec_sample_set *set_of(hec_samples *samples, hec_curve_kind kind, bool backward, double flops_per_row) {
  for (int32_t i = 0; i < samples->n_sets; i++) {
    hec_sample_set *s = &samples->sets[i];
    if (s->kind == kind && s->backward == backward && !(s->flops_per_row < flops_per_row) &&
        !(s->flops_per_row > flops_per_row))
      return s;
  }
  HEC_ASSERT(samples->n_sets < HEC_SAMPLE_SETS_MAX);
  hec_sample_set *s = &samples->sets[samples->n_sets++];
  *s = (hec_sample_set){.kind = kind, .backward = backward, .flops_per_row = flops_per_row};
  HEC_RESERVE(s->x_at, s->x_at_capacity, 1);
  s->x_at[0] = 0;
  return s;
}

/* One more observation, without pieces yet. */
static void open(hec_sample_set *s, double seconds, int32_t reading) {
  HEC_RESERVE(s->from, s->from_capacity, (size_t)s->n + 1);
  s->from[s->n] = reading;
  HEC_RESERVE(s->x_at, s->x_at_capacity, (size_t)s->n + 2);
  HEC_RESERVE(s->y, s->y_capacity, (size_t)s->n + 1);
  s->x_at[s->n + 1] = s->x_at[s->n];
  s->y[s->n++] = seconds;
}

static void add_piece(hec_sample_set *s, double x) {
  size_t at = (size_t)s->x_at[s->n];
  HEC_RESERVE(s->x, s->x_capacity, at + 1);
  s->x[at] = x;
  s->x_at[s->n]++;
}

static void add_pair(hec_sample_pairs *pairs, double x, double y, int32_t reading) {
  HEC_RESERVE(pairs->from, pairs->from_capacity, (size_t)pairs->n + 1);
  pairs->from[pairs->n] = reading;
  HEC_RESERVE(pairs->x, pairs->x_capacity, (size_t)pairs->n + 1);
  HEC_RESERVE(pairs->y, pairs->y_capacity, (size_t)pairs->n + 1);
  pairs->x[pairs->n] = x;
  pairs->y[pairs->n++] = y;
}

static void add_rows(hec_samples *samples, const hec_program *program, const hec_op *op, int32_t rank, double seconds) {
  const hec_work_shape *shape = &program->shapes[op->compute.shape];
  if (shape->kind == HEC_CURVE_NONE)
    return;
  hec_sample_set *set = set_of(samples, shape->kind, op->backward, shape->flops_per_row);
  if (op->compute.work_at < 0 && op->compute.rows <= 0)
    return;
  if (op->compute.work_at < 0) {
    open(set, seconds, samples->reading);
    add_piece(set, op->compute.rows);
    return;
  }
  const int32_t *at = program->work_index + op->compute.work_at + rank;
  if (at[1] == at[0])
    return;
  open(set, seconds, samples->reading);
  for (int32_t i = at[0]; i < at[1]; i++)
    add_piece(set, (double)program->work[i].rows);
}

static void add_bytes(hec_samples *samples, const hec_program *program, const hec_op *op, int32_t rank,
                      double seconds) {
  hec_curve_kind kind = hec_op_curve(op);
  bool per_rank = op->kind == HEC_OP_LOCAL && op->local.bytes_at >= 0;
  double bytes = per_rank ? op->bytes * program->local_bytes[op->local.bytes_at + rank] : op->bytes;
  if (kind == HEC_CURVE_NONE || bytes <= 0)
    return;
  hec_sample_set *set = set_of(samples, kind, op->kind == HEC_OP_LOCAL && op->backward, 0);
  open(set, seconds, samples->reading);
  add_piece(set, bytes);
}

static bool exchanges(const hec_op *op) {
  return op->kind == HEC_OP_EXCHANGE || op->kind == HEC_OP_ALLREDUCE || op->kind == HEC_OP_COUNTS;
}

/* Share of the operation's span in which its rank did something else: it computed or, of an exchange between hosts, whose
 * links all of its exchanges share, moved other bytes. Reductions of gradients hardly ever travel alone. */
static double busy(const hec_samples *samples, const hec_program *program, const hec_timeline *t, int32_t id,
                       int32_t rank) {
  size_t n_ranks = (size_t)program->n_ranks;
  int64_t end = t->end_ps[(size_t)id * n_ranks + (size_t)rank], span = hec_span_ps(&samples->spans, program, id, rank);
  int64_t begin = end - span, sum = 0;
  for (size_t i = 0; i < program->n_ops; i++) {
    int64_t from = t->begin_ps[i * n_ranks + (size_t)rank], to = t->end_ps[i * n_ranks + (size_t)rank];
    bool moves = samples->between_hosts && program->ops[id].kind == HEC_OP_EXCHANGE && i != (size_t)id &&
                 exchanges(&program->ops[i]);
    if ((program->ops[i].lane != HEC_LANE_COMPUTE && !moves) || to < 0)
      continue;
    from = from > begin ? from : begin;
    to = to < end ? to : end;
    sum += to > from ? to - from : 0;
  }
  return (double)sum / (double)span;
}

static bool is_chain(const hec_program *program, const hec_op *op) {
  for (int32_t k = 0; k < op->exchange.n_transfers; k++)
    if (program->transfers[op->exchange.transfer_at + k].after >= 0)
      return true;
  return false;
}

#define IN_STEP 0.1 /* of a span */

/* Between hosts an exchange takes longer than computing, so ranks that end one early begin the next early. MPI sends at once, whether or
 * not the other side has posted. What moves before the last has begun is then missing in its span, down to nothing. Only where the
 * ranks begin together does a span say what the links take. And it says so of the rank that ends last: the others share links with
 * it, which the closed form leaves out. */
static bool in_step(const hec_samples *samples, int32_t id, int64_t span_ps) {
  return (double)samples->spans.apart_ps[id] <= IN_STEP * (double)span_ps;
}

static void add_exchange(hec_samples *samples, const hec_program *program, const hec_timeline *t, int32_t id,
                         hec_link_cost *links) {
  const hec_op *op = &program->ops[id];
  hec_curve_kind kind = hec_op_curve(op);
  if (is_chain(program, op) || kind == HEC_CURVE_NONE)
    return;
  (void)hec_link_cost_exchange(links, program->transfers + op->exchange.transfer_at, op->exchange.n_transfers,
                               op->reverse, op->exchange.n_chunks);
  int32_t last = 0; /* by the closed form */
  for (int32_t r = 1; r < program->n_ranks; r++)
    last = links->done_s[r] > links->done_s[last] ? r : last;
  for (int32_t r = 0; r < program->n_ranks; r++) {
    int64_t span = hec_span_ps(&samples->spans, program, id, r);
    if (samples->between_hosts && r != last)
      continue;
    if (span > 0 && links->done_s[r] > 0 && busy(samples, program, t, id, r) < HEC_BUSY_MAX &&
        (!samples->between_hosts || in_step(samples, id, span)))
      add_pair(&samples->exchange[kind], links->done_s[r], 1e-12 * (double)span, samples->reading);
  }
}

static void add_op(hec_samples *samples, const hec_program *program, const hec_timeline *t, int32_t id,
                   hec_link_cost *links) {
  const hec_op *op = &program->ops[id];
  if (op->kind == HEC_OP_EXCHANGE) {
    add_exchange(samples, program, t, id, links);
    return;
  }
  bool moves = op->kind == HEC_OP_ALLREDUCE || op->kind == HEC_OP_COUNTS;
  for (int32_t r = 0; r < program->n_ranks; r++) {
    double seconds = 1e-12 * (double)hec_span_ps(&samples->spans, program, id, r);
    if (seconds <= 0 || (moves && busy(samples, program, t, id, r) >= HEC_BUSY_MAX))
      continue;
    if (op->kind == HEC_OP_COMPUTE)
      add_rows(samples, program, op, r, seconds);
    else if (op->kind == HEC_OP_PLAN)
      add_pair(&samples->plan, (double)op->plan.units, seconds, samples->reading);
    else
      add_bytes(samples, program, op, r, seconds);
  }
}

void hec_samples_add(hec_samples *samples, const hec_problem *problem, const hec_replayed *iteration, int32_t reading,
                     hec_link_cost *links) {
  const hec_program *program = hec_lowering_program(iteration->low);
  HEC_ASSERT(program->n_ranks == problem->n_ranks);
  samples->reading = reading;
  samples->busy_s += iteration->moving.busy_s;
  samples->lasted_s += iteration->moving.lasted_s;
  hec_spans_find(&samples->spans, program, iteration->timeline);
  for (int32_t i = 0; i < (int32_t)program->n_ops; i++)
    add_op(samples, program, iteration->timeline, i, links);
}

static void keep_set(hec_sample_set *s, const bool *counts) {
  int32_t n = 0, end = 0;
  for (int32_t i = 0; i < s->n; i++) {
    int32_t first = s->x_at[i], last = s->x_at[i + 1]; /* read before what is kept moves over them */
    if (!counts[s->from[i]])
      continue;
    for (int32_t k = first; k < last; k++)
      s->x[end++] = s->x[k];
    s->y[n] = s->y[i];
    s->from[n] = s->from[i];
    s->x_at[n] = end - (last - first);
    n++;
  }
  s->x_at[n] = end;
  s->n = n;
}

static void keep_pairs(hec_sample_pairs *p, const bool *counts) {
  int32_t n = 0;
  for (int32_t i = 0; i < p->n; i++)
    if (counts[p->from[i]]) {
      p->x[n] = p->x[i];
      p->y[n] = p->y[i];
      p->from[n++] = p->from[i];
    }
  p->n = n;
}

void hec_samples_keep(hec_samples *samples, const bool *counts) {
  for (int32_t i = 0; i < samples->n_sets; i++)
    keep_set(&samples->sets[i], counts);
  for (int32_t i = 0; i < HEC_N_CURVE_KINDS; i++)
    keep_pairs(&samples->exchange[i], counts);
  keep_pairs(&samples->plan, counts);
}

static void free_pairs(hec_sample_pairs *pairs) {
  free(pairs->from);
  free(pairs->x);
  free(pairs->y);
}

void hec_samples_free(hec_samples *samples) {
  for (int32_t i = 0; i < samples->n_sets; i++) {
    free(samples->sets[i].x_at);
    free(samples->sets[i].x);
    free(samples->sets[i].y);
    free(samples->sets[i].from);
  }
  for (int32_t i = 0; i < HEC_N_CURVE_KINDS; i++)
    free_pairs(&samples->exchange[i]);
  free_pairs(&samples->plan);
  hec_spans_free(&samples->spans);
  *samples = (hec_samples){0};
}
