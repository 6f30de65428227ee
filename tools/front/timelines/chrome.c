/* The default: Chrome trace events, one file with all rows (trace_events.c). */
#include "tools/front/timelines/timeline_format.h"

static void add(const hec_drawing *drawing, int32_t rank, hec_text *out) {
  (void)rank;
  hec_trace_events_add(out, drawing->label, (drawing->index + 1) * 10000, drawing->program, drawing->timeline,
                       drawing->executed || drawing->beside);
}

const hec_timeline_format hec_timeline_chrome = {
    .name = "chrome",
    .summary = "Chrome trace events: timeline.json, opens in https://ui.perfetto.dev",
    .begin = hec_trace_events_begin,
    .end = hec_trace_events_end,
    .append = hec_trace_events_append,
    .add = add,
};
