/* Drops candidates for a policy's best schedule before the end of the trace. They can no longer win: another
 * one is at least as fast, whatever is still to come.
 *
 *   n iterations will be reported, k of them are known, so n - k are not. The medians that are still possible:
 *     the least      the others take no time:   value floor((n-1)/2) - (n-k) of those known, sorted; below 0: no time
 *     the greatest   the others take for ever:  value ceil((n-1)/2) of those known, sorted; from k on: for ever
 *
 * A candidate is dropped when its least median is above the greatest of another one, or equal and it stands behind it.
 * That is exact, and it holds too where n is more than will come. What fits the memory comes first, and peaks only
 * grow. So a candidate that does not fit now may be dropped. One that fits is dropped only for one that fits as well.
 * If that does not fit in the end, the comparison is made again without dropping. O(rows * n log n) at a few
 * iterations. */
#include "sim/compare_state.h"

#include <math.h>

enum { CHECKS = 16 };

typedef struct {
  double min_s, max_s;
} medians;

static medians medians_of(hec_series *known, int64_t n) {
  int64_t k = (int64_t)known->n, low = (n - 1) / 2 - (n - k), high = n / 2;
  (void)hec_series_quantile(known, 0); /* sorts */
  return (medians){low >= 0 ? known->sorted[low] : 0, high < k ? known->sorted[high] : INFINITY};
}

/* Of one policy, those from `first` to end - 1. */
static void drop_among(hec_comparison *c, int32_t first, int32_t end) {
  hec_summary *summary = c->summary;
  medians of[HEC_SCHEDULES_MAX];
  for (int32_t a = first; a < end; a++)
    of[a - first] = medians_of(&summary->rows[a].iteration_s, c->n_reported);
  for (int32_t a = first; a < end; a++)
    for (int32_t b = first; b < end && !c->runs[a].dropped; b++) {
      double min_s = of[a - first].min_s, max_s = of[b - first].max_s;
      bool fits = hec_summary_fits(summary, &summary->rows[a]), other = hec_summary_fits(summary, &summary->rows[b]);
      if (a == b || c->runs[a].kept || c->runs[b].dropped || (fits && !other) || min_s < max_s ||
          (min_s == max_s && a < b))
        continue;
      c->runs[a].dropped = true;
      c->runs[b].must_fit = c->runs[b].must_fit || fits;
    }
}

void hec_compare_drop(hec_comparison *c) {
  int64_t n = c->n_reported, k = c->summary->n_iterations, step = n / CHECKS > 0 ? n / CHECKS : 1;
  if (2 * k <= n || k % step != 0)
    return;
  for (int32_t first = 0, end; first < c->n_rows; first = end) {
    for (end = first + 1; end < c->n_rows && c->runs[end].policy == c->runs[first].policy;)
      end++;
    if (end - first > 1)
      drop_among(c, first, end);
  }
}

bool hec_compare_dropped_wrongly(const hec_comparison *c) {
  bool wrong = c->n_reported > 0 && c->summary->n_iterations > c->n_reported;
  for (int32_t p = 0; p < c->n_rows; p++)
    wrong = wrong || (c->runs[p].must_fit && !hec_summary_fits(c->summary, &c->summary->rows[p]));
  return wrong;
}
