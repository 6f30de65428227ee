/* What the check of the fastest rows under another network law found. */
#include "tools/front/summary/summary_parts.h"

#include "runtime/base/value.h"

#include <inttypes.h>

/* "NAME (schedule S) 12.345 ms" */
static void add_row(hec_summary *summary, const hec_summary_crossed *one, hec_text *words) {
  const hec_summary_row *row = &summary->rows[one->row];
  hec_text_printf(words, "%s (schedule %s) %.3f ms", row->label, row->schedule, 1e3 * one->other_s);
}

static int32_t place_of(const hec_summary_cross *cross, int32_t row) {
  int32_t at = 0;
  while (at + 1 < cross->n && cross->rows[at].row != row)
    at++;
  return at;
}

void hec_summary_say_cross(hec_summary *summary, hec_text *words) {
  const hec_summary_cross *cross = summary->cross;
  if (!cross)
    return;
  int32_t best = hec_summary_winner(summary), place = place_of(cross, best);
  hec_text_printf(words, "Checked under law %s, which shares links exactly", cross->law);
  if (cross->n_iterations < summary->n_iterations)
    hec_text_printf(words, " (%" PRId64 " of %" PRId64 " iterations)", cross->n_iterations, summary->n_iterations);
  if (hec_summary_cross_agrees(cross)) {
    hec_text_printf(words, ": the %" PRId32 " fastest keep their order.", cross->n);
  } else if (place == 0) {
    hec_text_printf(words,
                    ": %s stays the fastest of %" PRId32 ", %.3f ms before %s with %.3f ms; the others change places.",
                    summary->rows[best].label, cross->n, 1e3 * cross->rows[0].other_s,
                    summary->rows[cross->rows[1].row].label, 1e3 * cross->rows[1].other_s);
  } else {
    hec_text_add(words, ": the order changes. The fastest there is ");
    add_row(summary, &cross->rows[0], words);
    hec_text_add(words, ", before ");
    add_row(summary, &cross->rows[place], words);
    hec_text_add(words, ". The laws disagree: measure both.");
  }
}

void hec_summary_add_cross(hec_summary *summary, hec_text *out) {
  HEC_SCOPED(hec_text) words = {0};
  hec_summary_say_cross(summary, &words);
  if (words.length > 0)
    hec_summary_add_paragraph(words.data, 0, out);
}

void hec_summary_json_cross(const hec_summary *summary, hec_json_out *json) {
  const hec_summary_cross *cross = summary->cross;
  if (!cross)
    return;
  hec_json_object(json, "cross_check");
  HEC_JSON(json, HEC_TEXT("law", cross->law), HEC_INT("iterations", cross->n_iterations),
           HEC_BOOL("order_stays", hec_summary_cross_agrees(cross)));
  hec_json_array(json, "rows");
  for (int32_t i = 0; i < cross->n; i++) {
    HEC_JSON(json, HEC_OBJECT(NULL, HEC_TEXT("name", summary->rows[cross->rows[i].row].name),
                              HEC_TEXT("schedule", summary->rows[cross->rows[i].row].schedule),
                              HEC_REAL("own_s", cross->rows[i].own_s), HEC_REAL("other_s", cross->rows[i].other_s)));
  }
  hec_json_close(json);
  hec_json_close(json);
}
