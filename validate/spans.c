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
  for (int32_t k = 0; op->kind == HEC_OP_EXCHANGE && k < op->n_transfers; k++) {
    const hec_transfer *t = &p->program->transfers[op->transfer_at + k];
    int64_t *a = &p->start[t->source], *b = &p->start[t->destination];
    *a = p->ready[t->destination] > *a ? p->ready[t->destination] : *a;
    *b = p->ready[t->source] > *b ? p->ready[t->source] : *b;
  }
}

void hec_spans_find(hec_spans *spans, const hec_program *program, const hec_timeline *timeline) {
  size_t n = (size_t)program->n_ranks;
  HEC_RESERVE(spans->ps, spans->capacity, program->n_ops * n);
  HEC_RESERVE(spans->scratch, spans->scratch_capacity, (HEC_N_LANES + 2) * n);
  memset(spans->scratch, 0, (HEC_N_LANES + 2) * n * sizeof *spans->scratch);
  pass p = {program, timeline, spans->scratch, spans->scratch + HEC_N_LANES * n,
            spans->scratch + (HEC_N_LANES + 1) * n};
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    find_ready(&p, op);
    find_start(&p, op);
    for (size_t r = 0; r < n; r++) {
      int64_t end = timeline->end_ps[i * n + r], begin = timeline->begin_ps[i * n + r];
      int64_t from = op->kind == HEC_OP_PLAN ? begin : p.start[r];
      spans->ps[i * n + r] = end < 0 ? -1 : end > from ? end - from : 0;
      int64_t *lane_end = &p.lane_end[(size_t)op->lane * n + r];
      *lane_end = end > *lane_end ? end : *lane_end;
    }
  }
}

void hec_spans_free(hec_spans *spans) {
  free(spans->ps);
  free(spans->scratch);
  *spans = (hec_spans){0};
}
