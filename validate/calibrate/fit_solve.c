/* min over c >= 0 of sum_i rho(1 - (A c)_i), rho Tukey's bisquare, by an active set around GSL's robust fit:
 *   1. fit the columns of the support S (all at first) without bounds; all coefficients >= 0: done
 *   2. with the weights of that fit, solve the bounded least squares exactly on its Gram matrix (Lawson and Hanson,
 *      Solving Least Squares Problems, 1974, ch. 23). S becomes the columns that it left above zero; again from 1
 * S only shrinks, so this ends after at most p rounds; in practice it takes one or two.
 *
 * gsl_multifit_robust (DuMouchel and O'Brien 1989) never lets its scale fall under 1e-6 of the standard deviation of
 * the right-hand side. It takes 1 when that deviation is 0. So a right-hand side of ones would switch its robustness
 * off. Every second row is therefore given with the other sign, on both sides. No residual changes but in sign, rho is
 * even, and the deviation is 1.
 *
 * Columns are scaled to norm 1. O(n p^2) per iteration of a fit, up to N_ITERATIONS of them. */
#include "validate/calibrate/fit_solve.h"

#include "traces/synth_memory.h"
#include "validate/stats.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <math.h>
#include <string.h>

enum { N_ITERATIONS = 60, MAX = HEC_FIT_COLUMNS_MAX };

/* ---- Gram matrices ---- */

typedef double square[MAX][MAX];

/* gram = A' W A and, unless NULL, right = A' W 1; columns 0 .. p-1. */
static void make_gram(const double *rows, const double *weight, int32_t n, int32_t p, square gram, double *right) {
  memset(gram, 0, sizeof(square));
  for (int32_t j = 0; right && j < p; j++)
    right[j] = 0;
  for (int32_t i = 0; i < n; i++) {
    const double *row = rows + (size_t)i * (size_t)p, w = weight ? weight[i] : 1;
    for (int32_t j = 0; j < p; j++) {
      double value = w * row[j];
      for (int32_t m = 0; m <= j; m++)
        gram[j][m] += value * row[m];
      if (right)
        right[j] += value;
    }
  }
  for (int32_t j = 0; j < p; j++)
    for (int32_t m = 0; m < j; m++)
      gram[m][j] = gram[j][m];
}

/* Cholesky in place, lower triangle. Returns the first column whose pivot is not above `min` times its diagonal, or
 * -1. */
static int32_t factorize(square gram, int32_t p, double min) {
  for (int32_t j = 0; j < p; j++) {
    double diagonal = gram[j][j];
    for (int32_t m = 0; m < j; m++) {
      double sum = gram[j][m];
      for (int32_t l = 0; l < m; l++)
        sum -= gram[j][l] * gram[m][l];
      gram[j][m] = sum / gram[m][m];
      diagonal -= gram[j][m] * gram[j][m];
    }
    if (!(diagonal > min * gram[j][j]))
      return j;
    gram[j][j] = sqrt(diagonal);
  }
  return -1;
}

int32_t hec_fit_dependent_column(const double *rows, const double *weight, int32_t n, int32_t p) {
  square gram;
  make_gram(rows, weight, n, p, gram, NULL);
  return factorize(gram, p, 1e-4); /* squares of norms */
}

/* ---- Bounded least squares on a Gram matrix ---- */

/* s = the minimum over the columns `in`, 0 elsewhere; false when they depend on each other. */
static bool solve_subset(square gram, const double *right, const bool *in, int32_t p, double *s) {
  square part;
  int32_t at[MAX], q = 0;
  double z[MAX];
  for (int32_t j = 0; j < p; j++) {
    s[j] = 0;
    if (in[j])
      at[q++] = j;
  }
  for (int32_t j = 0; j < q; j++)
    for (int32_t m = 0; m < q; m++)
      part[j][m] = gram[at[j]][at[m]];
  if (factorize(part, q, 1e-14) >= 0)
    return false;
  for (int32_t j = 0; j < q; j++) {
    z[j] = right[at[j]];
    for (int32_t m = 0; m < j; m++)
      z[j] -= part[j][m] * z[m];
    z[j] /= part[j][j];
  }
  for (int32_t j = q - 1; j >= 0; j--) {
    for (int32_t m = j + 1; m < q; m++)
      z[j] -= part[m][j] * z[m];
    z[j] /= part[j][j];
    s[at[j]] = z[j];
  }
  return true;
}

/* Lawson and Hanson's inner loop: from feasible c to the minimum over `in`; columns that meet zero on the way leave.
 * False when the columns depend on each other (weights of zero can do that). */
static bool walk_to_minimum(square gram, const double *right, bool *in, int32_t p, double *c) {
  double s[MAX], reach[MAX]; /* reach: the share of the way that a column can go */
  for (bool arrived = false; !arrived;) {
    if (!solve_subset(gram, right, in, p, s))
      return false;
    double step = 1;
    for (int32_t j = 0; j < p; j++) {
      reach[j] = !in[j] || s[j] > 0 ? INFINITY : c[j] > 0 ? c[j] / (c[j] - s[j]) : 0;
      step = reach[j] < step ? reach[j] : step;
    }
    arrived = true;
    for (int32_t j = 0; j < p; j++) {
      bool leaves = reach[j] <= step;
      c[j] = leaves ? 0 : c[j] + step * (s[j] - c[j]);
      in[j] &= !leaves;
      arrived &= !leaves;
    }
  }
  return true;
}

/* c [p] >= 0 with least (c' gram c) / 2 - right' c. */
static void solve_bounded(square gram, const double *right, int32_t p, double *c) {
  bool in[MAX] = {false}, barred[MAX] = {false};
  double largest = 0;
  for (int32_t j = 0; j < p; j++) {
    c[j] = 0;
    largest = fabs(right[j]) > largest ? fabs(right[j]) : largest;
  }
  for (int32_t round = 0; round < 3 * p; round++) {
    int32_t enters = -1;
    double steepest = 1e-12 * largest;
    for (int32_t j = 0; j < p; j++) {
      double slope = right[j];
      for (int32_t m = 0; m < p; m++)
        slope -= gram[j][m] * c[m];
      if (!in[j] && !barred[j] && slope > steepest) {
        steepest = slope;
        enters = j;
      }
    }
    if (enters < 0)
      return;
    in[enters] = true;
    if (!walk_to_minimum(gram, right, in, p, c)) {
      in[enters] = false;
      barred[enters] = true;
    }
  }
}

/* ---- GSL ---- */

typedef struct {
  int32_t n, p;
  double *rows;   /* [n][p] every second row with the other sign */
  double *ones;   /* [n] 1, -1, 1, ... */
  double *weight; /* [n] out */
  double *c;      /* [p] out */
  double *cov;    /* [p][p] */
} system_of;

static int least_squares(system_of *q, gsl_matrix *a, gsl_vector *ones, gsl_vector *c, gsl_matrix *cov) {
  gsl_multifit_linear_workspace *work = gsl_multifit_linear_alloc((size_t)q->n, (size_t)q->p);
  double chisq;
  int code = gsl_multifit_linear(a, ones, c, cov, &chisq, work);
  gsl_multifit_linear_free(work);
  for (int32_t i = 0; i < q->n; i++)
    q->weight[i] = 1;
  return code;
}

static int robust(const gsl_multifit_robust_type *type, system_of *q, gsl_matrix *a, gsl_vector *ones, gsl_vector *c,
                  gsl_matrix *cov) {
  gsl_multifit_robust_workspace *work = gsl_multifit_robust_alloc(type, (size_t)q->n, (size_t)q->p);
  int code = gsl_multifit_robust_maxiter(N_ITERATIONS, work);
  if (code == GSL_SUCCESS)
    code = gsl_multifit_robust(a, ones, c, cov, work);
  gsl_multifit_robust_stats stats = gsl_multifit_robust_statistics(work);
  for (int32_t i = 0; i < q->n; i++)
    q->weight[i] = gsl_vector_get(stats.weights, (size_t)i);
  gsl_multifit_robust_free(work);
  return code;
}

/* Without bounds. *how in: the first to try; out: what it came to. */
static hec_status solve_free(system_of *q, hec_fit_how *how) {
  gsl_matrix_view a = gsl_matrix_view_array(q->rows, (size_t)q->n, (size_t)q->p);
  gsl_matrix_view cov = gsl_matrix_view_array(q->cov, (size_t)q->p, (size_t)q->p);
  gsl_vector_view ones = gsl_vector_view_array(q->ones, (size_t)q->n);
  gsl_vector_view c = gsl_vector_view_array(q->c, (size_t)q->p);
  hec_gsl_watch_memory(true);
  int code = GSL_EMAXITER;
  if (*how == HEC_FIT_BISQUARE) {
    code = robust(gsl_multifit_robust_bisquare, q, &a.matrix, &ones.vector, &c.vector, &cov.matrix);
    *how = code == GSL_EMAXITER ? HEC_FIT_HUBER : *how;
  }
  if (code == GSL_EMAXITER && *how == HEC_FIT_HUBER) {
    code = robust(gsl_multifit_robust_huber, q, &a.matrix, &ones.vector, &c.vector, &cov.matrix);
    *how = code == GSL_EMAXITER ? HEC_FIT_LEAST_SQUARES : *how;
  }
  if (code == GSL_EMAXITER)
    code = least_squares(q, &a.matrix, &ones.vector, &c.vector, &cov.matrix);
  hec_gsl_watch_memory(false);
  return code == GSL_SUCCESS ? HEC_OK
                             : hec_fail(HEC_FAILED, "a fit of %d coefficients to %d observations failed: %s", q->p,
                                        q->n, gsl_strerror(code));
}

/* ---- The active set ---- */

/* Columns `at` [q->p] of `rows` [n][p] times `scale`, every second row with the other sign. */
static void take_columns(const double *rows, int32_t p, const double *scale, const int32_t *at, system_of *q) {
  for (int32_t i = 0; i < q->n; i++)
    for (int32_t j = 0; j < q->p; j++) {
      double value = rows[(size_t)i * (size_t)p + (size_t)at[j]] * scale[at[j]];
      q->rows[(size_t)i * (size_t)q->p + (size_t)j] = i & 1 ? -value : value;
    }
}

/* Fewer columns, by what the bounded fit with the last weights leaves out; at least the most negative one. */
static int32_t shrink(system_of *q, int32_t *at) {
  square gram;
  double right[MAX], c[MAX];
  for (int32_t i = 1; i < q->n; i += 2) /* back to ones on the right */
    for (int32_t j = 0; j < q->p; j++)
      q->rows[(size_t)i * (size_t)q->p + (size_t)j] *= -1;
  make_gram(q->rows, q->weight, q->n, q->p, gram, right);
  solve_bounded(gram, right, q->p, c);
  int32_t kept = 0, worst = 0;
  for (int32_t j = 0; j < q->p; j++) {
    kept += c[j] > 0;
    worst = q->c[j] < q->c[worst] ? j : worst;
  }
  if (kept == 0 || kept == q->p)
    for (int32_t j = 0; j < q->p; j++)
      c[j] = j != worst;
  kept = 0;
  for (int32_t j = 0; j < q->p; j++)
    if (c[j] > 0)
      at[kept++] = at[j];
  return kept;
}

hec_status hec_fit_solve(const double *rows, int32_t n, int32_t p, hec_arena *arena, hec_fit_solution *solution) {
  HEC_ASSERT(n >= p && p >= 1 && p <= MAX);
  size_t cells = (size_t)n * (size_t)p;
  system_of q = {.n = n, .p = p};
  q.weight = HEC_NEW(arena, double, n);
  q.ones = HEC_NEW(arena, double, n);
  q.rows = HEC_NEW(arena, double, cells);
  q.c = HEC_NEW(arena, double, p);
  q.cov = HEC_NEW(arena, double, p *p);
  for (int32_t i = 0; i < n; i++)
    q.ones[i] = i & 1 ? -1 : 1;
  double scale[MAX];
  int32_t at[MAX];
  for (int32_t j = 0; j < p; j++) {
    double sum = 0;
    for (size_t cell = (size_t)j; cell < cells; cell += (size_t)p)
      sum += rows[cell] * rows[cell];
    if (!(sum > 0) || !isfinite(sum))
      return hec_fail(HEC_FAILED, "a fit of %d coefficients to %d observations: sizes or durations too far apart", p,
                      n);
    scale[j] = 1 / sqrt(sum);
    at[j] = j;
  }
  *solution = (hec_fit_solution){.weight = q.weight, .how = n < 2 * p ? HEC_FIT_LEAST_SQUARES : HEC_FIT_BISQUARE};
  for (bool negative = true; negative;) {
    take_columns(rows, p, scale, at, &q);
    HEC_TRY(solve_free(&q, &solution->how));
    negative = false;
    for (int32_t j = 0; j < q.p; j++) {
      negative |= q.c[j] < 0;
      if (!isfinite(q.c[j]))
        return hec_fail(HEC_FAILED, "a fit of %d coefficients to %d observations is not finite", q.p, n);
    }
    if (negative)
      q.p = shrink(&q, at);
    HEC_ASSERT(q.p >= 1); /* a single column has a non-negative fit, its entries being so */
  }
  for (int32_t j = 0; j < q.p; j++)
    solution->c[at[j]] = q.c[j] * scale[at[j]];
  return HEC_OK;
}

void hec_fit_residuals(const double *rows, const double *c, int32_t n, int32_t p, hec_arena *arena, double *median,
                       double *p90) {
  double *off = HEC_NEW(arena, double, n);
  for (int32_t i = 0; i < n; i++) {
    double sum = 0;
    for (int32_t j = 0; j < p; j++)
      sum += rows[(size_t)i * (size_t)p + (size_t)j] * c[j];
    off[i] = fabs(sum - 1);
  }
  *median = hec_median(off, n);
  *p90 = hec_quantile(off, n, 0.9);
}
