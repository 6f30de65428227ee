/* A size x in segment s, between the knots s-1 and s (the origin for s = 0), at the share t of it, takes
 *     f(x) = (1 - t) f_(s-1) + t f_s = sum_j h_j(x) f_j          h: hat functions; t > 1 beyond the last knot
 *          = sum_j g_j(x) (f_j - f_(j-1)),  g_j = sum_(m >= j) h_m   in increments, g >= 0
 * An observation's row is the sum of h over its pieces, and 1 for `fixed`, all divided by its duration. The fit in
 * increments on the right-hand side 1 is hec_fit_solve. What the observations determine is judged on hats, where a
 * knot that nothing is near is a column of its own. Knots go one at a time, each time on the hats of those that stay.
 * O(knots * (pieces log knots + n knots)) for that, and the solver's. */
#include "validate/calibrate/fit.h"

#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KNOTS_MAX = HEC_FIT_KNOTS_MAX };

typedef struct {
  const hec_observations *observed;
  const double *weight; /* [n] of the observations that count; NULL: 1 */
  double near_min;      /* pieces that a knot needs */
  double knot[KNOTS_MAX], near[KNOTS_MAX];
  int32_t n_knots, n;
  bool floor, fixed;
  double *rows; /* [n][n_knots + fixed] */
} problem;

/* Segment and share of x > 0. */
static int32_t locate(const double *knot, int32_t n, bool floor, double x, double *share) {
  int32_t low = 0, high = n - 1; /* the first knot at or above x, the last when there is none */
  while (low < high) {
    int32_t middle = (low + high) / 2;
    if (knot[middle] >= x)
      high = middle;
    else
      low = middle + 1;
  }
  if (low == 0)
    *share = floor && x < knot[0] ? 1 : x / knot[0];
  else
    *share = (x - knot[low - 1]) / (knot[low] - knot[low - 1]);
  return low;
}

double hec_fit_at(const hec_fit *fit, bool floor, double x) {
  if (x <= 0)
    return 0;
  double share;
  int32_t s = locate(fit->x, fit->n_knots, floor, x, &share);
  double before = s > 0 ? fit->y[s - 1] : 0;
  return before + share * (fit->y[s] - before);
}

static bool counts(const problem *q, int32_t i) {
  return q->fixed || q->observed->x_at[i + 1] > q->observed->x_at[i];
}

static void count_observations(problem *q) {
  q->n = 0;
  for (int32_t i = 0; i < q->observed->n; i++)
    q->n += counts(q, i);
}

/* ---- Rows, and which knots they determine ---- */

static int32_t columns(const problem *q) {
  return q->n_knots + q->fixed;
}

/* Hats into `rows`, and how many pieces are near each knot. */
static void make_hats(problem *q) {
  const hec_observations *o = q->observed;
  double *row = q->rows;
  int32_t at = 0;
  memset(q->near, 0, sizeof q->near);
  for (int32_t i = 0; i < o->n; i++) {
    if (!counts(q, i))
      continue;
    double weight = q->weight ? q->weight[at] : 1;
    memset(row, 0, (size_t)columns(q) * sizeof *row);
    for (int32_t k = o->x_at[i]; k < o->x_at[i + 1]; k++) {
      double share;
      int32_t s = locate(q->knot, q->n_knots, q->floor, o->x[k], &share);
      row[s] += share;
      q->near[s] += weight * fmin(share, 1);
      if (s > 0) {
        row[s - 1] += 1 - share;
        q->near[s - 1] += weight * fmax(1 - share, 0);
      }
    }
    if (q->fixed)
      row[q->n_knots] = 1;
    for (int32_t j = 0; j < columns(q); j++)
      row[j] /= o->y[i];
    row += columns(q);
    at++;
  }
}

static void drop_knot(problem *q, int32_t j) {
  q->n_knots--;
  memmove(q->knot + j, q->knot + j + 1, (size_t)(q->n_knots - j) * sizeof *q->knot);
}

/* Observations without work count no longer, so weights of the old rows are of no use. */
static void drop_fixed(problem *q) {
  q->fixed = false;
  q->weight = NULL;
  count_observations(q);
}

/* Drops knots, and `fixed`, until the rest is determined; their hats are in `rows` then. Did anything go? */
static bool drop_undetermined(problem *q) {
  for (bool dropped = false;; dropped = true) {
    make_hats(q);
    int32_t loneliest = 0;
    for (int32_t j = 1; j < q->n_knots; j++)
      loneliest = q->near[j] < q->near[loneliest] ? j : loneliest;
    int32_t dependent = -1;
    if (q->n_knots > 1 && q->near[loneliest] < q->near_min)
      dependent = loneliest;
    else
      dependent = hec_fit_dependent_column(q->rows, q->weight, q->n, columns(q));
    if (dependent < 0 || (dependent == 0 && q->n_knots == 1))
      return dropped;
    if (dependent == q->n_knots)
      drop_fixed(q);
    else
      drop_knot(q, dependent);
  }
}

/* ---- Knots from the sizes observed ---- */

/* Up to `max` of the sizes, from the min to the max, as evenly spaced in their logarithm as they allow. */
static void choose_knots(problem *q, int32_t max, hec_arena *scratch) {
  const hec_observations *o = q->observed;
  int32_t n = o->x_at[o->n] - o->x_at[0], at = 0;
  double *sorted = HEC_NEW(scratch, double, n);
  memcpy(sorted, o->x + o->x_at[0], (size_t)n * sizeof *sorted);
  gsl_sort(sorted, 1, (size_t)n);
  double first = log(sorted[0]), range = log(sorted[n - 1]) - first;
  for (int32_t j = 0; j < max; j++) {
    double wanted = exp(first + range * (max > 1 ? (double)j / (max - 1) : 1));
    while (at < n - 1 && sorted[at] < wanted)
      at++;
    int32_t nearest = at > 0 && wanted / sorted[at - 1] < sorted[at] / wanted ? at - 1 : at;
    nearest = j == max - 1 ? n - 1 : nearest;
    if (q->n_knots == 0 || sorted[nearest] > q->knot[q->n_knots - 1])
      q->knot[q->n_knots++] = sorted[nearest];
  }
}

/* ---- The fit ---- */

static hec_status check_observations(const hec_observations *o) {
  for (int32_t i = 0; i < o->n; i++) {
    if (!(o->y[i] > 0) || !isfinite(o->y[i]) || !isfinite(1 / o->y[i]))
      return hec_fail(HEC_FAILED, "observation %d: expected a duration above zero, found %g", i, o->y[i]);
    for (int32_t k = o->x_at[i]; k < o->x_at[i + 1]; k++)
      if (!(o->x[k] > 0) || !isfinite(o->x[k]))
        return hec_fail(HEC_FAILED, "observation %d: expected a size above zero, found %g", i, o->x[k]);
  }
  if (o->n < 1 || o->x_at[o->n] == o->x_at[0])
    return hec_fail(HEC_FAILED, "nothing to fit: no observation with work");
  return HEC_OK;
}

static void make_problem(problem *q, const hec_observations *o, const hec_fit_options *options, hec_arena *scratch) {
  *q = (problem){.observed = o, .floor = options->floor, .fixed = options->fixed, .near_min = 0.5};
  count_observations(q);
  HEC_ASSERT(options->n_knots >= 1 && options->n_knots <= KNOTS_MAX);
  if (!options->knots) {
    q->near_min = 3;
    choose_knots(q, q->n / 3 < 1 ? 1 : q->n / 3 < options->n_knots ? q->n / 3 : options->n_knots, scratch);
  }
  for (int32_t j = 0; options->knots && j < options->n_knots; j++) {
    HEC_ASSERT(options->knots[j] > (j > 0 ? options->knots[j - 1] : 0));
    q->knot[q->n_knots++] = options->knots[j];
  }
  q->rows = HEC_NEW(scratch, double, (size_t)q->n *(size_t)columns(q));
}

/* Hats to increments: every column takes those after it along, `fixed` stays by itself. */
static void hats_to_increments(problem *q) {
  for (int32_t i = 0; i < q->n; i++) {
    double *row = q->rows + (size_t)i * (size_t)columns(q);
    for (int32_t j = q->n_knots - 2; j >= 0; j--)
      row[j] = fmax(row[j] + row[j + 1], 0);
  }
}

/* Leaves the rows of the last fit, in increments. */
static hec_status solve(problem *q, hec_arena *scratch, hec_fit_solution *solution) {
  drop_undetermined(q);
  do {
    hats_to_increments(q);
    HEC_TRY(hec_fit_solve(q->rows, q->n, columns(q), scratch, solution));
    q->weight = solution->weight; /* stalls have lost theirs: do the others still determine everything? */
  } while (drop_undetermined(q));
  hats_to_increments(q);
  return HEC_OK;
}

hec_status hec_fit_curve(const hec_observations *observed, const hec_fit_options *options, hec_arena *arena,
                         hec_fit *fit) {
  HEC_TRY(check_observations(observed));
  double *x = HEC_NEW(arena, double, KNOTS_MAX), *y = HEC_NEW(arena, double, KNOTS_MAX);
  hec_arena_mark mark = hec_arena_save(arena);
  problem q;
  hec_fit_solution solution;
  make_problem(&q, observed, options, arena);
  hec_status status = solve(&q, arena, &solution);
  if (status == HEC_OK) {
    *fit = (hec_fit){.n_knots = q.n_knots, .x = x, .y = y, .how = solution.how, .n_observations = q.n};
    fit->fixed = q.fixed ? solution.c[q.n_knots] : 0;
    memcpy(x, q.knot, (size_t)q.n_knots * sizeof *x);
    for (int32_t j = 0; j < q.n_knots; j++)
      y[j] = (j > 0 ? y[j - 1] : 0) + solution.c[j];
    hec_fit_residuals(q.rows, solution.c, q.n, columns(&q), arena, &fit->residual_median, &fit->residual_p90);
  }
  hec_arena_rewind(arena, mark);
  return status;
}
