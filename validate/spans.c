/* One pass in id order: every predecessor of (op, r) has its end. O(operations * ranks + dependencies + transfers). */
#include "validate/spans.h"

#include "runtime/base/arena.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const hec_program *program;
  const hec_timeline *timeline;
  int64_t *lane_end;      /* [HEC_N_LANES * n_ranks] */
  int64_t *ready, *start; /* [n_ranks] */
} pass;

static int64_t end_of(const pass *p, int32_t op, int32_t rank) {
  return p->timeline->end_ps[(size_t)op * (size_t)p->program->n_ranks + (size_t)rank];
}

static void find_ready(const pass *p, const hec_op *op) {
  int32_t n = p->program->n_ranks;
  for (int32_t r = 0; r < n; r++) {
    int64_t ready = p->lane_end[(int32_t)op->lane * n + r];
    for (int32_t d = 0; d < op->n_deps; d++) {
      int64_t end = end_of(p, p->program->deps[op->dep_at + d], r);
      ready = end > ready ? end : ready;
    }
    p->ready[r] = ready;
  }
}

static void find_start(const pass *p, const hec_op *op) {
  int32_t n = p->program->n_ranks;
  memcpy(p->start, p->ready, (size_t)n * sizeof *p->start);
  if (op->kind == HEC_OP_ALLREDUCE || op->kind == HEC_OP_COUNTS) {
    int64_t latest = 0;
    for (int32_t r = 0; r < n; r++)
      latest = p->ready[r] > latest ? p->ready[r] : latest;
    for (int32_t r = 0; r < n; r++)
      p->start[r] = latest;
  }
  for (int32_t k = 0; op->kind == HEC_OP_EXCHANGE && k < op->exchange.n_transfers; k++) {
    const hec_transfer *t = &p->program->transfers[op->exchange.transfer_at + k];
    int64_t *a = &p->start[t->source], *b = &p->start[t->destination];
    *a = p->ready[t->destination] > *a ? p->ready[t->destination] : *a;
    *b = p->ready[t->source] > *b ? p->ready[t->source] : *b;
  }
}

enum { SCRATCH = HEC_N_LANES + 2 }; /* times the ranks, of a pass */

static pass pass_of(const hec_program *program, const hec_timeline *timeline, int64_t *scratch) {
  size_t n = (size_t)program->n_ranks;
  memset(scratch, 0, SCRATCH * n * sizeof *scratch);
  return (pass){program, timeline, scratch, scratch + HEC_N_LANES * n, scratch + (HEC_N_LANES + 1) * n};
}

static void find(pass *p, const hec_op *op) {
  find_ready(p, op);
  find_start(p, op);
}

static void go_on(pass *p, const hec_op *op, int32_t id) {
  for (int32_t r = 0; r < p->program->n_ranks; r++) {
    int64_t end = end_of(p, id, r), *lane_end = &p->lane_end[(int32_t)op->lane * p->program->n_ranks + r];
    *lane_end = end > *lane_end ? end : *lane_end;
  }
}

void hec_spans_find(hec_spans *spans, const hec_program *program, const hec_timeline *timeline) {
  size_t n = (size_t)program->n_ranks;
  HEC_RESERVE(spans->ps, spans->capacity, program->n_ops * n);
  HEC_RESERVE(spans->apart_ps, spans->apart_capacity, program->n_ops);
  HEC_RESERVE(spans->scratch, spans->scratch_capacity, SCRATCH * n);
  pass p = pass_of(program, timeline, spans->scratch);
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    int64_t first = INT64_MAX, last = 0;
    find(&p, op);
    for (size_t r = 0; r < n; r++) {
      int64_t end = timeline->end_ps[i * n + r], begin = timeline->begin_ps[i * n + r];
      int64_t from = op->kind == HEC_OP_PLAN ? begin : p.start[r];
      spans->ps[i * n + r] = end < 0 ? -1 : end > from ? end - from : 0;
      first = end >= 0 && p.ready[r] < first ? p.ready[r] : first;
      last = end >= 0 && p.ready[r] > last ? p.ready[r] : last;
    }
    spans->apart_ps[i] = last > first ? last - first : 0;
    go_on(&p, op, (int32_t)i);
  }
}

/* ---- Mending ---- */

/* What is left of a piece that lasted `ps`. */
static int64_t kept_ps(const hec_mending *m, size_t at, double pace, int64_t ps) {
  int64_t lost = m->lost_ps ? m->lost_ps[at] : 0;
  return ps > lost ? (int64_t)((double)(ps - lost) / pace + 0.5) : ps < 0 ? ps : 0;
}

static void mend(const pass *was, const pass *is, int32_t id, const hec_mending *m, hec_timeline *mended) {
  const hec_op *op = &was->program->ops[id];
  bool computes = op->kind == HEC_OP_COMPUTE || op->kind == HEC_OP_LOCAL;
  for (int32_t r = 0; r < was->program->n_ranks; r++) {
    size_t at = (size_t)id * (size_t)was->program->n_ranks + (size_t)r;
    int64_t begin = was->timeline->begin_ps[at], end = was->timeline->end_ps[at];
    if (end < 0)
      continue;
    bool alone = op->kind == HEC_OP_PLAN; /* what the host did before it counts as nobody's, and stays */
    int64_t offset = end - (alone ? was->ready[r] : was->start[r]), lasted = end - begin;
    double pace = computes ? m->pace[r] : 1;
    if (!alone) {
      offset = kept_ps(m, at, pace, offset);
      lasted = kept_ps(m, at, pace, lasted);
    }
    int64_t until = (alone ? is->ready[r] : is->start[r]) + offset;
    until = until > is->ready[r] ? until : is->ready[r];
    mended->end_ps[at] = until;
    mended->begin_ps[at] = until - lasted > is->ready[r] ? until - lasted : is->ready[r];
  }
}

void hec_spans_mend(hec_spans *spans, const hec_program *program, const hec_timeline *timeline, const hec_mending *m,
                    hec_timeline *mended) {
  size_t n = (size_t)program->n_ranks;
  hec_timeline_resize(mended, (int32_t)program->n_ops, program->n_ranks);
  HEC_RESERVE(spans->scratch, spans->scratch_capacity, 2 * SCRATCH * n);
  pass was = pass_of(program, timeline, spans->scratch);
  pass is = pass_of(program, mended, spans->scratch + SCRATCH * n);
  for (int32_t i = 0; i < (int32_t)program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    find(&was, op);
    find(&is, op);
    mend(&was, &is, i, m, mended);
    go_on(&was, op, i);
    go_on(&is, op, i);
  }
}

void hec_spans_free(hec_spans *spans) {
  free(spans->ps);
  free(spans->apart_ps);
  free(spans->scratch);
  *spans = (hec_spans){0};
}
