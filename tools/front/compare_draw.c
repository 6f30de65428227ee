/* See compare_draw.h. Rows are drawn at once into texts of their own, which the file takes in the order of the rows. */
#include "tools/front/compare_draw.h"

#include "tools/front/summary/summary_write.h"

#include <inttypes.h>

typedef struct {
  const hec_summary *summary;
  const hec_compare_drawing *drawing;
  const hec_timeline_out *out;
  hec_text *text; /* [n_rows] of rows that wait for those before them */
  int32_t n_drawn;
} drawer;

static hec_status draw(void *context, int32_t row, int64_t iter, const hec_lowering *low,
                       const hec_timeline *timeline) {
  drawer *d = context;
  hec_timeline_out own = *d->out; /* files of ranks are written from here, each row's beside the others' */
  own.text = &d->text[row];
  hec_timeline_begin(&own);
  hec_status status = hec_summary_draw(&d->summary->rows[row], row, iter, low, timeline, &own);
  if (d->drawing->look)
    d->drawing->look(d->drawing->context, row, iter, low, timeline);
  return status;
}

static void take(void *context, int32_t row) {
  drawer *d = context;
  hec_timeline_append(d->out, &d->text[row]);
  hec_text_free(&d->text[row]);
  d->n_drawn++;
}

hec_status hec_compare_draw(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                            hec_summary *summary, const hec_compare_drawing *drawing, const hec_timeline_out *out) {
  HEC_SCOPED(hec_arena) arena = {0};
  drawer d = {summary, drawing, out, HEC_NEW(&arena, hec_text, summary->n_rows), 0};
  const hec_compare_view view = {.iter = drawing->iter, .look = draw, .looked = take, .context = &d};
  hec_timeline_begin(out);
  hec_status status = hec_compare_look(job, reader, options, summary, &view);
  hec_timeline_end(out);
  if (status == HEC_OK && d.n_drawn == 0)
    status = drawing->iter >= 0
                 ? hec_fail(HEC_BAD_INPUT, "--timeline-iter: the trace has no iteration %" PRId64, drawing->iter)
                 : hec_fail(HEC_BAD_INPUT, "the trace was changed while it was read");
  return status;
}
