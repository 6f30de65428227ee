/* The three ranges of the law `collective`. For every pair of sizes at which a range may end, each range is solved by
 * linear least squares on relative errors (GSL multifit). Of all pairs it takes the one with the min sum of absolute
 * relative errors; ties to the smaller sizes. A negative slope or knee is fitted again without it. O(sizes^2 rows). */
#include "validate/device/fit.h"

#include "models/laws/work.h"
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <gsl/gsl_multifit.h>
#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { A1, B1, V1, A2, B2, V2, A3, B3, KNEE };
enum { SIZES_MAX = 512, SIZES_MIN = 2, LAST_MIN = 4 }; /* sizes that a range must have */
#define NO_SLOPE 100.0                                 /* NVLink rates: as good as free */

typedef struct {
  const hec_fit_rows *rows;
  int32_t n_sizes;
  double sizes[SIZES_MAX]; /* ascending */
} scan;

static double bytes_of(const hec_fit_rows *rows, int32_t i) {
  return ((const hec_collective_work *)rows->work[i])->bytes;
}

/* A range ends between two sizes, in the middle of their logarithms: which of them it is nobody measured. */
static double end_after(const scan *s, int32_t i) {
  return sqrt(s->sizes[i] * s->sizes[i + 1]);
}

/* x minimises sum (1 - (columns x)_i)^2 over rows with low < v <= high; columns 1, v, sqrt v, each over the measured time. */
static void solve(const scan *s, double low, double high, int32_t n_columns, double *x) {
  const hec_fit_rows *rows = s->rows;
  int32_t n = 0;
  for (int32_t i = 0; i < rows->n; i++)
    n += bytes_of(rows, i) > low && bytes_of(rows, i) <= high;
  gsl_matrix *a = gsl_matrix_alloc((size_t)n, (size_t)n_columns),
             *cov = gsl_matrix_alloc((size_t)n_columns, (size_t)n_columns);
  gsl_vector *one = gsl_vector_alloc((size_t)n), *c = gsl_vector_alloc((size_t)n_columns);
  gsl_multifit_linear_workspace *w = gsl_multifit_linear_alloc((size_t)n, (size_t)n_columns);
  HEC_ASSERT(a && cov && one && c && w);
  gsl_vector_set_all(one, 1);
  for (int32_t i = 0, at = 0; i < rows->n; i++) {
    double v = bytes_of(rows, i), column[3] = {1, v, sqrt(v)};
    if (v <= low || v > high)
      continue;
    for (int32_t j = 0; j < n_columns; j++)
      gsl_matrix_set(a, (size_t)at, (size_t)j, column[j] / rows->measured_s[i]);
    at++;
  }
  double residual;
  HEC_ASSERT(gsl_multifit_linear(a, one, c, cov, &residual, w) == GSL_SUCCESS);
  for (int32_t j = 0; j < 3; j++)
    x[j] = j < n_columns ? gsl_vector_get(c, (size_t)j) : 0;
  gsl_matrix_free(a);
  gsl_matrix_free(cov);
  gsl_vector_free(one);
  gsl_vector_free(c);
  gsl_multifit_linear_free(w);
}

/* a, rate (in NVLinks) and knee of one range, all not negative. */
static void solve_range(const scan *s, double low, double high, bool last, double *a, double *rate, double *knee) {
  double x[3], link = s->rows->sheet->nvlink_bandwidth;
  solve(s, low, high, last ? 3 : 2, x);
  if (last && (x[2] < 0 || x[1] <= 0 || x[0] < 0))
    solve(s, low, high, 2, x);
  if (x[1] <= 0)
    solve(s, low, high, 1, x);
  *a = x[0] > 0 ? x[0] : 0;
  *rate = x[1] * link * NO_SLOPE > 1 ? 1 / (x[1] * link) : NO_SLOPE;
  *knee = x[1] > 0 ? (x[2] / x[1]) * (x[2] / x[1]) : 0;
}

static double error_of(const hec_fit_rows *rows, const double *constants, double low, double high) {
  double sum = 0;
  for (int32_t i = 0; i < rows->n; i++)
    if (bytes_of(rows, i) > low && bytes_of(rows, i) <= high)
      sum += fabs(rows->law->seconds(rows->sheet, constants, rows->work[i]) / rows->measured_s[i] - 1);
  return sum;
}

static void find_sizes(scan *s) {
  int32_t n = 0;
  double *all = hec_malloc((size_t)s->rows->n, sizeof *all);
  for (int32_t i = 0; i < s->rows->n; i++)
    all[i] = bytes_of(s->rows, i);
  gsl_sort(all, 1, (size_t)s->rows->n);
  for (int32_t i = 0; i < s->rows->n && n < SIZES_MAX; i++)
    if (n == 0 || all[i] > s->sizes[n - 1])
      s->sizes[n++] = all[i];
  s->n_sizes = n;
  free(all);
}

void hec_law_fit_ranges(const hec_fit_rows *rows, double *constants) {
  scan *s = hec_malloc(1, sizeof *s);
  double best = INFINITY, end = INFINITY;
  s->rows = rows;
  find_sizes(s);
  /* One range alone is what too few sizes allow. */
  double c[HEC_LAW_CONSTANTS_MAX] = {0}, unused;
  c[B1] = c[B2] = 1;
  solve_range(s, 0, end, s->n_sizes > LAST_MIN, &c[A3], &c[B3], &c[KNEE]);
  memcpy(constants, c, (KNEE + 1) * sizeof *c);
  if (s->n_sizes >= 2 * SIZES_MIN + LAST_MIN)
    for (int32_t i = SIZES_MIN - 1; i + SIZES_MIN + LAST_MIN < s->n_sizes; i++) {
      c[V1] = end_after(s, i);
      solve_range(s, 0, c[V1], false, &c[A1], &c[B1], &unused);
      for (int32_t j = i + SIZES_MIN; j + LAST_MIN < s->n_sizes; j++) {
        c[V2] = end_after(s, j);
        solve_range(s, c[V1], c[V2], false, &c[A2], &c[B2], &unused);
        solve_range(s, c[V2], end, true, &c[A3], &c[B3], &c[KNEE]);
        double error = error_of(rows, c, 0, end);
        if (error < best) {
          best = error;
          memcpy(constants, c, (KNEE + 1) * sizeof *c);
        }
      }
    }
  free(s);
}
