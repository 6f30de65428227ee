/* The table of forms; names of operations in them; unions of a rank's intervals. Unions: the 2n ends of n intervals
 * are sorted by time. Between two neighbours the number of open intervals of each class says whose time it is: O(n log
 * n). It reads the timeline alone, not what a form made of it. */
#include "tools/front/timelines/timeline_format.h"

#include "runtime/base/arena.h"
#include "runtime/base/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define HEC_TIMELINE_FORMAT_ROW(name) &hec_timeline_##name,
const hec_timeline_format *const hec_timeline_formats[] = {HEC_TIMELINE_FORMAT_LIST(HEC_TIMELINE_FORMAT_ROW) NULL};

HEC_TABLE_OF(hec_timeline_format);
const hec_timeline_format *hec_timeline_format_find(const char *name) {
  return hec_table_find(hec_timeline_formats, name);
}

void hec_timeline_begin(const hec_timeline_out *out) {
  if (!hec_timeline_by_rank(out->format))
    out->format->begin(out->text);
}

void hec_timeline_end(const hec_timeline_out *out) {
  if (!hec_timeline_by_rank(out->format))
    out->format->end(out->text);
}

void hec_timeline_append(const hec_timeline_out *out, const hec_text *part) {
  if (!hec_timeline_by_rank(out->format))
    out->format->append(out->text, part);
  else if (part->length > 0)
    hec_text_add_bytes(out->text, part->data, part->length);
}

hec_status hec_timeline_draw(const hec_timeline_out *out, const hec_drawing *drawing) {
  if (!hec_timeline_by_rank(out->format)) {
    out->format->add(drawing, -1, out->text);
    return HEC_OK;
  }
  HEC_SCOPED(hec_text) file = {0};
  hec_status status = HEC_OK;
  for (int32_t r = 0; status == HEC_OK && r < drawing->timeline->n_ranks; r++) {
    file.length = 0;
    out->format->add(drawing, r, &file);
    status = out->put(out->context, drawing->folder, r, &file);
  }
  return status;
}

const char *hec_op_kernel(const hec_op *op) {
  switch (op->kind) {
  case HEC_OP_EXCHANGE:
    return "ncclDevKernel_SendRecv";
  case HEC_OP_ALLREDUCE:
    return "ncclDevKernel_AllReduce";
  case HEC_OP_COUNTS:
    return "ncclDevKernel_AllGather";
  case HEC_OP_LOCAL: /* of a drawing: what a stage spends in its own groups */
    return op->title && hec_role_book[op->role] != HEC_BOOK_COMPUTE ? "ncclDevKernel_SendRecv" : NULL;
  default:
    return NULL;
  }
}

const char *hec_op_category(const hec_op *op) {
  return op->kind == HEC_OP_PLAN ? "cpu_op" : "kernel";
}

void hec_op_title(const hec_op *op, char title[HEC_OP_TITLE_BYTES]) {
  if (op->title) {
    (void)snprintf(title, HEC_OP_TITLE_BYTES, "%s", op->title);
    return;
  }
  char chunk[32] = "";
  if (op->degree > 1 && op->chunk >= 0)
    (void)snprintf(chunk, sizeof chunk, " %" PRId32 "/%" PRId32, op->chunk + 1, op->degree);
  bool backward = op->backward && op->role != HEC_ROLE_OPTIMIZER; /* of neither pass: it ends the iteration */
  (void)snprintf(title, HEC_OP_TITLE_BYTES, "%s%s%s", hec_role_name[op->role], backward ? " backward" : "", chunk);
}

/* ---- Unions ---- */

typedef struct {
  int64_t time_ps;
  int32_t step; /* +1 begins, -1 ends */
  bool communicates;
} edge;

static int by_time(const void *a, const void *b) {
  const edge *x = a, *y = b;
  return (x->time_ps > y->time_ps) - (x->time_ps < y->time_ps); /* at one instant no time passes: any order will do */
}

hec_rank_time hec_timeline_rank_time(const hec_timeline *timeline, const hec_program *program, int32_t rank) {
  edge *edges = hec_malloc(2 * (size_t)timeline->n_ops + 1, sizeof *edges);
  size_t n = 0;
  for (int32_t i = 0; i < timeline->n_ops; i++) {
    size_t at = (size_t)i * (size_t)timeline->n_ranks + (size_t)rank;
    const hec_op *op = &program->ops[i];
    if (op->kind == HEC_OP_PLAN || timeline->end_ps[at] <= timeline->begin_ps[at])
      continue;
    bool communicates = hec_op_kernel(op) != NULL;
    edges[n++] = (edge){timeline->begin_ps[at], 1, communicates};
    edges[n++] = (edge){timeline->end_ps[at], -1, communicates};
  }
  qsort(edges, n, sizeof *edges, by_time);
  hec_rank_time time = {0};
  if (n > 0) {
    time.first_ps = edges[0].time_ps;
    time.last_ps = edges[n - 1].time_ps;
  }
  int32_t open[2] = {0};
  for (size_t i = 0; i + 1 < n; i++) {
    open[edges[i].communicates] += edges[i].step;
    int64_t length = edges[i + 1].time_ps - edges[i].time_ps;
    time.compute_ps += open[0] > 0 ? length : 0;
    time.communication_ps += open[1] > 0 ? length : 0;
    time.both_ps += open[0] > 0 && open[1] > 0 ? length : 0;
    time.idle_ps += open[0] == 0 && open[1] == 0 ? length : 0;
  }
  free(edges);
  return time;
}
