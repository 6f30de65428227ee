/* One iteration of every row of a comparison, drawn as timelines. */
#pragma once
#include "sim/compare.h"
#include "tools/front/timelines/timeline_format.h"

/* Which iteration (hec_compare_view), and who looks at it beside the timelines. */
typedef struct {
  int64_t iter;
  void (*look)(void *context, int32_t row, int64_t iter, const hec_lowering *low,
               const hec_timeline *timeline); /* NULL: nobody */
  void *context;
} hec_compare_drawing;

/* Several threads put files of ranks, each those of other rows. */
hec_status hec_compare_draw(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                            hec_summary *summary, const hec_compare_drawing *drawing,
                            const hec_timeline_out *out) HEC_MUST_USE;
