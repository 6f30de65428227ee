/* y = a + b x as 1 = a (1 / y) + b (x / y) over all observations. These are two columns of hec_fit_solve. x comes
 * first, so that it is the constant that goes when sizes are alike. O(n). */
#include "validate/calibrate/fit.h"

#include <math.h>

hec_status hec_fit_line(const double *x, const double *y, int32_t n, hec_arena *scratch, hec_line *line) {
  if (n < 1)
    return hec_fail(HEC_FAILED, "nothing to fit: no observation");
  bool work = false;
  for (int32_t i = 0; i < n; i++) {
    if (!(y[i] > 0) || !isfinite(y[i]) || !isfinite(1 / y[i]) || !(x[i] >= 0) || !isfinite(x[i]))
      return hec_fail(HEC_FAILED,
                      "observation %d: expected a size, at least 0, and a duration above 0, found %g and %g", i, x[i],
                      y[i]);
    work |= x[i] > 0;
  }
  hec_arena_mark mark = hec_arena_save(scratch);
  double *rows = HEC_NEW(scratch, double, 2 * (size_t)n);
  for (int32_t i = 0; i < n; i++) {
    rows[2 * i] = x[i] / y[i];
    rows[2 * i + 1] = 1 / y[i];
  }
  bool both = work && hec_fit_dependent_column(rows, NULL, n, 2) < 0;
  for (int32_t i = 0; i < n && !both; i++)
    rows[i] = work ? x[i] / y[i] : 1 / y[i];
  hec_fit_solution solution;
  hec_status status = hec_fit_solve(rows, n, both ? 2 : 1, scratch, &solution);
  if (status == HEC_OK) {
    *line = (hec_line){.how = solution.how, .n_observations = n};
    line->b = work ? solution.c[0] : 0;
    line->a = both ? solution.c[1] : work ? 0 : solution.c[0];
    hec_fit_residuals(rows, solution.c, n, both ? 2 : 1, scratch, &line->residual_median, &line->residual_p90);
  }
  hec_arena_rewind(scratch, mark);
  return status;
}
