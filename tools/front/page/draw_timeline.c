/* A timeline as spans of whole columns. A column of a lane is drawn as what takes most of it, nothing included; runs of
 * equal columns are one span. Columns are halved until the spans are few enough for the page. So what is drawn is true
 * to within a column, which the page says. O(operations * ranks shown + columns), at most 14 times. */
#include "tools/front/page/draw.h"

#include "runtime/base/arena.h"
#include "runtime/program/critical_path.h"

#include <stdlib.h>
#include <string.h>

enum { NOTHING = HEC_N_SPANS };

static int32_t lane_of(hec_lane lane) {
  return lane == HEC_LANE_COMPUTE ? 0 : lane == HEC_LANE_TOKEN || lane == HEC_LANE_INTRA ? 1 : 2;
}

typedef struct {
  const hec_program *program;
  const hec_timeline *timeline;
  hec_report_timeline *out;
  double column_ps;
  double *taken; /* [HEC_REPORT_COLUMNS * (HEC_N_SPANS + 1)] picoseconds of each kind in the columns of a lane */
  hec_report_span *spans;
  size_t capacity;
  int32_t n;
} painter;

static void take(painter *p, int64_t begin, int64_t end, int32_t kind) {
  int32_t first = (int32_t)((double)begin / p->column_ps), last = (int32_t)((double)end / p->column_ps);
  for (int32_t c = first; c <= last && c < p->out->n_columns; c++) {
    double from = (double)c * p->column_ps, to = from + p->column_ps;
    from = (double)begin > from ? (double)begin : from;
    to = (double)end < to ? (double)end : to;
    if (to > from)
      p->taken[c * (HEC_N_SPANS + 1) + kind] += to - from;
  }
}

static int32_t most_of(const painter *p, int32_t column) {
  const double *taken = &p->taken[column * (HEC_N_SPANS + 1)];
  double left = p->column_ps;
  int32_t max = 0;
  for (int32_t k = 0; k < HEC_N_SPANS; k++) {
    left -= taken[k];
    max = taken[k] > taken[max] ? k : max;
  }
  return taken[max] > 0 && taken[max] >= left ? max : (int32_t)NOTHING;
}

static void paint(painter *p, int32_t shown, int32_t lane) {
  memset(p->taken, 0, (size_t)p->out->n_columns * (HEC_N_SPANS + 1) * sizeof *p->taken);
  for (int32_t i = 0; i < p->timeline->n_ops; i++) {
    const hec_op *op = &p->program->ops[i];
    size_t at = (size_t)i * (size_t)p->timeline->n_ranks + (size_t)p->out->rank[shown];
    if (lane_of(op->lane) == lane && p->timeline->begin_ps[at] >= 0)
      take(p, p->timeline->begin_ps[at], p->timeline->end_ps[at], hec_span_of((int32_t)op->role));
  }
  for (int32_t c = 0; c < p->out->n_columns;) {
    int32_t kind = most_of(p, c), from = c;
    while (c < p->out->n_columns && most_of(p, c) == kind)
      c++;
    if (kind == NOTHING)
      continue;
    HEC_RESERVE(p->spans, p->capacity, p->n + 1);
    p->spans[p->n++] = (hec_report_span){HEC_REPORT_LANES * shown + lane, kind, from, c - from};
  }
}

static int by_place(const void *a, const void *b) {
  const hec_report_span *x = a, *y = b;
  if (x->kind != y->kind)
    return x->kind < y->kind ? -1 : 1;
  if (x->row != y->row)
    return x->row < y->row ? -1 : 1;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

/* By what the path is spent on, and on which rank most. */
static void weigh_path(const hec_critical_path *path, const hec_program *program, hec_report_timeline *out) {
  double *rank_s = hec_malloc((size_t)program->n_ranks, sizeof *rank_s);
  for (int32_t r = 0; r < program->n_ranks; r++)
    rank_s[r] = 0;
  for (int32_t i = 0; i < path->n; i++) {
    double s = (double)(path->steps[i].end_ps - path->steps[i].begin_ps) * 1e-12;
    out->path_s[hec_span_of((int32_t)program->ops[path->steps[i].op].role)] += s;
    rank_s[path->steps[i].rank] += s;
  }
  for (int32_t r = 0; r < program->n_ranks; r++)
    if (rank_s[r] > out->busiest_s) {
      out->busiest = r;
      out->busiest_s = rank_s[r];
    }
  free(rank_s);
}

static void add_path(const painter *p, hec_arena *arena) {
  HEC_SCOPED(hec_critical_path) path = {0};
  hec_critical_path_find(&path, p->timeline, p->program);
  weigh_path(&path, p->program, p->out);
  p->out->path = HEC_NEW(arena, hec_report_step, path.n + 1);
  for (int32_t i = 0; i < path.n; i++) {
    const hec_critical_step *s = &path.steps[i];
    const hec_op *op = &p->program->ops[s->op];
    int32_t begin = (int32_t)((double)s->begin_ps / p->column_ps + 0.5),
            end = (int32_t)((double)s->end_ps / p->column_ps + 0.5);
    if (end > begin)
      p->out->path[p->out->n_path++] =
          (hec_report_step){begin, end - begin, (int32_t)op->role, op->layer, s->rank, op->backward};
  }
}

void hec_report_draw_timeline(const hec_program *program, const hec_timeline *timeline, hec_report_iteration *it) {
  hec_report_timeline *out = HEC_NEW(&it->arena, hec_report_timeline, 1);
  painter p = {program, timeline, out, 0, hec_malloc(HEC_REPORT_COLUMNS * (HEC_N_SPANS + 1), sizeof *p.taken),
               NULL,    0,        0};
  int64_t end = hec_timeline_end_ps(timeline);
  out->n_ranks = program->n_ranks < HEC_REPORT_RANKS ? program->n_ranks : (int32_t)HEC_REPORT_RANKS;
  for (int32_t i = 0; i < out->n_ranks; i++)
    out->rank[i] = (int32_t)((int64_t)i * program->n_ranks / out->n_ranks);
  for (out->n_columns = HEC_REPORT_COLUMNS;; out->n_columns /= 2) {
    p.n = 0;
    p.column_ps = end > 0 ? (double)end / out->n_columns : 1;
    for (int32_t row = 0; row < HEC_REPORT_LANES * out->n_ranks; row++)
      paint(&p, row / HEC_REPORT_LANES, row % HEC_REPORT_LANES);
    if (p.n <= HEC_REPORT_PIECES || out->n_columns <= 1)
      break;
  }
  if (p.n > 0)
    qsort(p.spans, (size_t)p.n, sizeof *p.spans, by_place);
  out->spans = HEC_NEW(&it->arena, hec_report_span, p.n + 1);
  out->n_spans = p.n;
  if (p.n > 0)
    memcpy(out->spans, p.spans, (size_t)p.n * sizeof *p.spans);
  add_path(&p, &it->arena);
  free(p.taken);
  free(p.spans);
  it->timeline = out;
}
