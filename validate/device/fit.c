/* A downhill simplex (Nelder and Mead 1965, GSL's nmsimplex2) in the logarithms of the constants, over the mean of
 * |log(predicted / measured)|. Absolute errors make it robust: a row that is ten times off pulls no harder than one that is
 * 10 % off. Constants are held inside the law's bounds by a penalty. Where the simplex shrank it is restarted with
 * other steps, since a tiling law is only piecewise smooth. The first rounds see a quarter of the rows. Nothing is
 * random.
 *
 * A few shapes do not determine all constants: with two of A100's three shapes of MoE layers, the third was 4.7 / 14.7 % off
 * (median / 90th percentile). So squared logarithms of constants over where the law starts are added, with weight `prior`
 * over the number of shapes. With nine constants A100 then had 3.9 / 12.3 %, with three times the weight 3.9 / 12.4,
 * with sixteen times 3.8 / 12.6. B200's two shapes of flashinfer-cutlass had 12.1 / 37.6, not 13.8 / 60.5. Beyond
 * FEW_SHAPES there is none: it gained nothing.
 * O(restarts * steps * constants * rows * one evaluation). */
#include "validate/device/fit.h"

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <gsl/gsl_multimin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_PER_CONSTANT = 110, DIGITS = 4, SPARSE_MIN = 400, FEW_SHAPES = 4 };
static const struct {
  double step;
  int32_t stride; /* sees each row of so many */
} rounds[] = {{0.4, 4}, {-0.25, 4}, {0.2, 1}, {-0.12, 1}};
enum { N_ROUNDS = sizeof rounds / sizeof *rounds };

static const double prior = 0.001;

typedef struct {
  const hec_fit_rows *rows;
  double prior; /* for this number of shapes */
  int32_t stride, n_free;
  int32_t free[HEC_LAW_CONSTANTS_MAX]; /* constant of each coordinate */
  double constants[HEC_LAW_CONSTANTS_MAX];
} search;

static double clamp(double value, double low, double high) {
  return value < low ? low : value > high ? high : value;
}

/* Sets the constants from coordinates; returns the penalty for being outside, and for being far from where the law starts. */
static double place(search *s, const gsl_vector *z) {
  double penalty = 0;
  for (int32_t i = 0; i < s->n_free; i++) {
    const hec_law_constant *c = &s->rows->law->constants[s->free[i]];
    double at = gsl_vector_get(z, (size_t)i), inside = clamp(at, log(c->low), log(c->high));
    double far = inside - log(c->start);
    penalty += (at - inside) * (at - inside) + s->prior * far * far;
    s->constants[s->free[i]] = exp(inside);
  }
  return penalty;
}

static double loss(const gsl_vector *z, void *context) {
  search *s = context;
  const hec_fit_rows *rows = s->rows;
  double sum = 0, penalty = place(s, z);
  int32_t n = 0;
  for (int32_t i = 0; i < rows->n; i += s->stride, n++)
    sum += fabs(log(rows->law->seconds(rows->sheet, s->constants, rows->work[i]) / rows->measured_s[i]));
  return sum / (double)n + penalty;
}

/* How many there are; more than HEC_FIT_SHAPES_MAX: that and one. */
static int32_t count_shapes(const hec_fit_rows *rows, uint64_t shapes[HEC_FIT_SHAPES_MAX + 1], int32_t *fold) {
  int32_t n = 0;
  for (int32_t i = 0; i < rows->n && n <= HEC_FIT_SHAPES_MAX; i++) {
    int32_t k = 0;
    while (k < n && shapes[k] != rows->shape[i])
      k++;
    if (k == n)
      shapes[n++] = rows->shape[i];
    if (fold)
      fold[i] = k;
  }
  return n;
}

/* Bits of constants that change no prediction. */
static uint32_t unused_of(const hec_fit_rows *rows, uint32_t pinned, const double *constants) {
  uint32_t unused = 0;
  for (int32_t k = 0; k < rows->law->n_constants; k++) {
    double moved[HEC_LAW_CONSTANTS_MAX];
    bool counts = false;
    if (pinned >> k & 1)
      continue;
    for (int up = 0; up < 2 && !counts; up++) {
      memcpy(moved, constants, sizeof moved);
      moved[k] = up ? rows->law->constants[k].high : rows->law->constants[k].low;
      for (int32_t i = 0; i < rows->n && !counts; i++) {
        double a = rows->law->seconds(rows->sheet, constants, rows->work[i]);
        double b = rows->law->seconds(rows->sheet, moved, rows->work[i]);
        counts = fabs(a - b) > 1e-9 * a;
      }
    }
    unused |= counts ? 0 : UINT32_C(1) << k;
  }
  return unused;
}

static void run_round(search *s, int32_t round, gsl_vector *z, gsl_vector *step) {
  gsl_multimin_function function = {.f = loss, .n = (size_t)s->n_free, .params = s};
  gsl_multimin_fminimizer *minimizer =
      gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, (size_t)s->n_free);
  HEC_ASSERT(minimizer);
  s->stride = s->rows->n >= SPARSE_MIN ? rounds[round].stride : 1;
  gsl_vector_set_all(step, rounds[round].step);
  for (int32_t i = 0; i < s->n_free; i++) { /* into the bounds */
    const hec_law_constant *c = &s->rows->law->constants[s->free[i]];
    double at = clamp(gsl_vector_get(z, (size_t)i), log(c->low), log(c->high));
    gsl_vector_set(z, (size_t)i, at);
    double to = at + rounds[round].step;
    if (to > log(c->high) || to < log(c->low))
      gsl_vector_set(step, (size_t)i, -rounds[round].step);
  }
  HEC_ASSERT(gsl_multimin_fminimizer_set(minimizer, &function, z, step) == GSL_SUCCESS);
  for (int32_t i = 0; i < STEPS_PER_CONSTANT * s->n_free; i++)
    if (gsl_multimin_fminimizer_iterate(minimizer) != GSL_SUCCESS || gsl_multimin_fminimizer_size(minimizer) < 1e-4)
      break;
  gsl_vector_memcpy(z, gsl_multimin_fminimizer_x(minimizer));
  gsl_multimin_fminimizer_free(minimizer);
}

static double rounded(double value) {
  char text[32];
  (void)snprintf(text, sizeof text, "%.*g", DIGITS, value);
  return strtod(text, NULL);
}

static void search_from(const hec_fit_rows *rows, uint32_t fixed, double *constants) {
  uint64_t shapes[HEC_FIT_SHAPES_MAX + 1];
  int32_t n_shapes = count_shapes(rows, shapes, NULL);
  search s = {.rows = rows, .prior = n_shapes > FEW_SHAPES ? 0 : prior / n_shapes};
  memcpy(s.constants, constants, sizeof s.constants);
  for (int32_t k = 0; k < rows->law->n_constants; k++)
    if (!(fixed >> k & 1))
      s.free[s.n_free++] = k;
  if (s.n_free == 0)
    return;
  gsl_vector *z = gsl_vector_alloc((size_t)s.n_free), *step = gsl_vector_alloc((size_t)s.n_free);
  HEC_ASSERT(z && step);
  for (int32_t i = 0; i < s.n_free; i++)
    gsl_vector_set(z, (size_t)i, log(constants[s.free[i]]));
  for (int32_t round = 0; round < N_ROUNDS; round++)
    run_round(&s, round, z, step);
  (void)place(&s, z);
  memcpy(constants, s.constants, sizeof s.constants);
  gsl_vector_free(z);
  gsl_vector_free(step);
}

static double mean_error(const hec_fit_rows *rows, const double *constants) {
  double sum = 0;
  for (int32_t i = 0; i < rows->n; i++)
    sum += fabs(log(rows->law->seconds(rows->sheet, constants, rows->work[i]) / rows->measured_s[i]));
  return sum / (double)rows->n;
}

static const double switch_gain = 0.1; /* by which on must be better than off */

static void search_switch(const hec_fit_rows *rows, uint32_t fixed, int32_t at, double *constants) {
  double on[HEC_LAW_CONSTANTS_MAX];
  memcpy(on, constants, sizeof on);
  constants[at] = rows->law->constants[at].off;
  on[at] = rows->law->constants[at].high;
  search_from(rows, fixed | UINT32_C(1) << at, constants);
  search_from(rows, fixed | UINT32_C(1) << at, on);
  if (mean_error(rows, on) < (1 - switch_gain) * mean_error(rows, constants))
    memcpy(constants, on, sizeof on);
}

/* The first switch that rows depend on; < 0: none. */
static int32_t find_switch(const hec_cost_law *law, uint32_t fixed) {
  for (int32_t k = 0; k < law->n_constants; k++)
    if (!(fixed >> k & 1) && law->constants[k].low <= 0)
      return k;
  return -1;
}

uint32_t hec_law_fit_solve(const hec_fit_rows *rows, uint32_t pinned, double *constants) {
  HEC_ASSERT(rows->n > 0);
  uint32_t unused = unused_of(rows, pinned, constants);
  int32_t either = find_switch(rows->law, pinned | unused);
  if (rows->law == &hec_cost_law_collective)
    hec_law_fit_ranges(rows, constants);
  else if (either >= 0)
    search_switch(rows, pinned | unused, either, constants);
  else
    search_from(rows, pinned | unused, constants);
  for (int32_t k = 0; k < rows->law->n_constants; k++)
    constants[k] = rounded(constants[k]);
  return unused;
}

/* The fold of each row; returns the number of folds. */
static int32_t make_folds(const hec_fit_rows *rows, int32_t *fold) {
  uint64_t shapes[HEC_FIT_SHAPES_MAX + 1];
  int32_t n = count_shapes(rows, shapes, fold);
  if (n <= HEC_FIT_SHAPES_MAX)
    return n;
  for (int32_t i = 0; i < rows->n; i++)
    fold[i] = (int32_t)((rows->shape[i] >> 20) % HEC_FIT_FOLDS);
  return HEC_FIT_FOLDS;
}

void hec_law_fit_cross(const hec_fit_rows *rows, double *predicted_s) {
  const void **work = hec_malloc((size_t)rows->n, sizeof *work);
  double *measured_s = hec_malloc((size_t)rows->n, sizeof *measured_s);
  uint64_t *shape = hec_malloc((size_t)rows->n, sizeof *shape);
  int32_t *fold_of = hec_malloc((size_t)rows->n, sizeof *fold_of), n_folds = make_folds(rows, fold_of);
  for (int32_t fold = 0; fold < n_folds; fold++) {
    hec_fit_rows seen = {
        .law = rows->law, .sheet = rows->sheet, .work = work, .measured_s = measured_s, .shape = shape};
    double constants[HEC_LAW_CONSTANTS_MAX] = {0};
    for (int32_t i = 0; i < rows->n; i++)
      if (fold_of[i] != fold) {
        work[seen.n] = rows->work[i];
        shape[seen.n] = rows->shape[i];
        measured_s[seen.n++] = rows->measured_s[i];
      }
    for (int32_t k = 0; k < rows->law->n_constants; k++)
      constants[k] = rows->law->constants[k].start;
    if (seen.n > 0)
      (void)hec_law_fit_solve(&seen, 0, constants);
    for (int32_t i = 0; i < rows->n; i++)
      if (fold_of[i] == fold) /* with nothing seen: the law's start */
        predicted_s[i] = rows->law->seconds(rows->sheet, constants, rows->work[i]);
  }
  free(work);
  free(measured_s);
  free(shape);
  free(fold_of);
}
