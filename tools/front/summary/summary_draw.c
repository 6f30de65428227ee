/* An iteration of a row of the summary as a timeline. */
#include "tools/front/summary/summary_write.h"

#include <inttypes.h>
#include <stdio.h>

hec_status hec_summary_draw(const hec_summary_row *row, int32_t index, int64_t iter, const hec_lowering *low,
                            const hec_timeline *timeline, const hec_timeline_out *out) {
  char label[160], folder[128];
  (void)snprintf(label, sizeof label, "%s (%s), iteration %" PRId64, row->name, row->schedule, iter);
  (void)snprintf(folder, sizeof folder, "%s", row->label);
  for (char *c = folder; *c; c++)
    *c = *c == '/' ? '-' : *c; /* a policy under several schedules */
  return hec_timeline_draw(out, &(hec_drawing){.label = label,
                                               .folder = folder,
                                               .index = index,
                                               .iter = iter,
                                               .program = hec_lowering_program(low),
                                               .timeline = timeline,
                                               .executed = row->executed});
}
