/* Fits of sums of work: known curves come back, without noise exactly, with noise and stalls nearly. Whatever the data,
 * the curve is non-negative and does not decrease. Where the fit is plain least squares, no increment can be moved to a
 * better one; residuals are counted a second time. */
#include "tests/support/random_problem.h"
#include "tests/support/test.h"
#include "validate/calibrate/fit.h"
#include "validate/stats.h"

#include <math.h>
#include <string.h>

typedef struct {
  double x[HEC_FIT_KNOTS_MAX], y[HEC_FIT_KNOTS_MAX], fixed;
  int32_t n_knots;
  bool floor;
} curve;

typedef struct {
  hec_arena arena;
  hec_observations o;
  int32_t *x_at;
  double *x, *y;
} data;

/* A second evaluation of f, segment by segment. */
static double curve_at(const double *x, const double *y, int32_t n, bool floor, double at) {
  if (at <= x[0] && (floor || n == 1))
    return floor ? y[0] : y[0] / x[0] * at;
  double x0 = 0, y0 = 0;
  for (int32_t j = 0; j < n; j++) {
    if (at <= x[j] || j == n - 1)
      return y0 + (y[j] - y0) / (x[j] - x0) * (at - x0);
    x0 = x[j];
    y0 = y[j];
  }
  return NAN;
}

static curve random_curve(uint64_t *seed, int32_t knots, bool floor, bool fixed) {
  curve c = {.n_knots = knots, .floor = floor, .fixed = fixed ? 3e-5 : 0};
  for (int32_t j = 0; j < knots; j++) {
    c.x[j] = j == 0 ? 4 : (double)(int)(c.x[j - 1] * (1.4 + hec_test_uniform(seed))) + 1;
    c.y[j] = (j ? c.y[j - 1] : 2e-5) + (hec_test_below(seed, 4) ? 1e-6 * (c.x[j] - (j ? c.x[j - 1] : 0)) : 0);
  }
  return c;
}

/* n observations of 1 .. pieces pieces, sizes log-uniform from 1 to 1.5 times the last knot. With noise (relative,
 * uniform) and a share of stalls that take three times as long. With `fixed` every 16th has no piece. */
static void observe(data *d, const curve *c, int32_t n, int32_t pieces, double noise, double stalls, uint64_t *seed) {
  *d = (data){.arena = {0}};
  d->x_at = HEC_NEW(&d->arena, int32_t, n + 1);
  d->x = HEC_NEW(&d->arena, double, (size_t)n *(size_t)pieces);
  d->y = HEC_NEW(&d->arena, double, n);
  double range = log(1.5 * c->x[c->n_knots - 1]);
  for (int32_t i = 0; i < n; i++) {
    int32_t m = c->fixed > 0 && i % 16 == 15 ? 0 : 1 + (int32_t)hec_test_below(seed, (uint64_t)pieces);
    double sum = c->fixed;
    d->x_at[i + 1] = d->x_at[i] + m;
    for (int32_t k = d->x_at[i]; k < d->x_at[i + 1]; k++) {
      d->x[k] = floor(exp(range * hec_test_uniform(seed)));
      sum += curve_at(c->x, c->y, c->n_knots, c->floor, d->x[k]);
    }
    sum *= 1 + noise * (2 * hec_test_uniform(seed) - 1);
    d->y[i] = sum * (hec_test_uniform(seed) < stalls ? 3 : 1);
  }
  d->o = (hec_observations){.n = n, .x_at = d->x_at, .x = d->x, .y = d->y};
}

static hec_fit_options options_of(const curve *c) {
  return (hec_fit_options){.knots = c->x, .n_knots = c->n_knots, .floor = c->floor, .fixed = c->fixed > 0};
}

static double fitted(const data *d, const hec_fit *fit, bool floor, int32_t i) {
  double sum = fit->fixed;
  for (int32_t k = d->x_at[i]; k < d->x_at[i + 1]; k++)
    sum += curve_at(fit->x, fit->y, fit->n_knots, floor, d->x[k]);
  return sum;
}

/* What holds of every fit. */
static void check_fit(const data *d, const hec_fit_options *options, const hec_fit *fit) {
  ck_assert_int_ge(fit->n_knots, 1);
  ck_assert_int_le(fit->n_knots, options->n_knots);
  ck_assert(isfinite(fit->fixed) && fit->fixed >= 0 && (options->fixed || fit->fixed == 0));
  for (int32_t j = 0; j < fit->n_knots; j++) {
    ck_assert(isfinite(fit->y[j]) && fit->y[j] >= (j ? fit->y[j - 1] : 0));
    ck_assert_double_gt(fit->x[j], j ? fit->x[j - 1] : 0);
    bool known = false;
    for (int32_t k = 0; options->knots && k < options->n_knots; k++)
      known |= options->knots[k] == fit->x[j];
    for (int32_t k = 0; !options->knots && k < d->x_at[d->o.n]; k++)
      known |= d->x[k] == fit->x[j];
    ck_assert(known);
  }
  double *off = calloc((size_t)d->o.n, sizeof *off);
  int32_t n = 0;
  for (int32_t i = 0; i < d->o.n; i++)
    if (d->x_at[i + 1] > d->x_at[i] || options->fixed)
      off[n++] = fabs(fitted(d, fit, options->floor, i) / d->y[i] - 1);
  if (n == fit->n_observations) { /* else `fixed` was given up, and those without work with it */
    ck_assert_double_eq_tol(fit->residual_median, hec_median(off, n), 1e-9 * (1 + fit->residual_median));
    ck_assert_double_eq_tol(fit->residual_p90, hec_quantile(off, n, 0.9), 1e-9 * (1 + fit->residual_p90));
  } else {
    ck_assert(fit->fixed == 0 && options->fixed);
  }
  free(off);
}

HEC_TEST(known_curves_come_back_exactly) {
  uint64_t seed = 3;
  for (int k = 0; k < hec_test_cases(80); k++) {
    curve c = random_curve(&seed, 1 + (int32_t)hec_test_below(&seed, 12), hec_test_below(&seed, 2), k & 1);
    data d;
    observe(&d, &c, 150 + (int32_t)hec_test_below(&seed, 200), 1 + (int32_t)hec_test_below(&seed, 8), 0, 0.06, &seed);
    hec_fit_options options = options_of(&c);
    hec_fit fit;
    ck_assert_int_eq(hec_fit_curve(&d.o, &options, &d.arena, &fit), HEC_OK);
    check_fit(&d, &options, &fit);
    ck_assert_int_eq(fit.how, HEC_FIT_BISQUARE);
    ck_assert_int_eq(fit.n_knots, c.n_knots);
    ck_assert_double_eq_tol(fit.fixed, c.fixed, 1e-8 * c.y[0]);
    for (int32_t j = 0; j < c.n_knots; j++)
      ck_assert_double_eq_tol(fit.y[j], c.y[j], 1e-8 * c.y[j]);
    for (double x = 1; x < 3 * c.x[c.n_knots - 1]; x *= 1.3)
      ck_assert_double_eq_tol(hec_fit_at(&fit, c.floor, x), curve_at(c.x, c.y, c.n_knots, c.floor, x),
                              1e-7 * hec_fit_at(&fit, c.floor, x));
    hec_arena_free(&d.arena);
  }
}

HEC_TEST(noise_and_stalls_hardly_move_it) {
  uint64_t seed = 41;
  double worst = 0;
  for (int k = 0; k < hec_test_cases(16); k++) {
    curve c = random_curve(&seed, 8, k & 1, false);
    data d;
    observe(&d, &c, 1500, 4, 0.01, 0.05 + 0.05 * hec_test_uniform(&seed), &seed);
    hec_fit_options options = options_of(&c);
    hec_fit fit;
    ck_assert_int_eq(hec_fit_curve(&d.o, &options, &d.arena, &fit), HEC_OK);
    check_fit(&d, &options, &fit);
    ck_assert_int_eq(fit.how, HEC_FIT_BISQUARE);
    ck_assert_int_eq(fit.n_knots, c.n_knots);
    for (int32_t j = 0; j < c.n_knots; j++)
      worst = fmax(worst, fabs(fit.y[j] / c.y[j] - 1));
    ck_assert_double_lt(fit.residual_median, 0.008); /* of noise that is uniform in +-1 %: 0.5 %, and the stalls */
    hec_arena_free(&d.arena);
  }
  printf("worst knot with 1 %% of noise and 5 to 10 %% of stalls: %.2f %%\n", 100 * worst);
  ck_assert_double_lt(worst, 0.02);
}

/* Knots chosen from the sizes follow a smooth curve between them too. */
HEC_TEST(chosen_knots_follow_a_curve) {
  uint64_t seed = 8;
  data d = {.arena = {0}};
  enum { N = 600, M = 6 };
  d.x_at = HEC_NEW(&d.arena, int32_t, N + 1);
  d.x = HEC_NEW(&d.arena, double, N *M);
  d.y = HEC_NEW(&d.arena, double, N);
  for (int32_t i = 0; i < N; i++) {
    d.x_at[i + 1] = M * (i + 1);
    for (int32_t k = M * i; k < M * (i + 1); k++) {
      d.x[k] = floor(exp(log(4096) * hec_test_uniform(&seed)));
      d.y[i] += 1e-5 + 2e-7 * pow(d.x[k], 0.9);
    }
  }
  d.o = (hec_observations){.n = N, .x_at = d.x_at, .x = d.x, .y = d.y};
  hec_fit_options options = {.n_knots = 16, .floor = true};
  hec_fit fit;
  ck_assert_int_eq(hec_fit_curve(&d.o, &options, &d.arena, &fit), HEC_OK);
  check_fit(&d, &options, &fit);
  ck_assert_int_ge(fit.n_knots, 12);
  for (double x = 2; x < 3500; x *= 1.7)
    ck_assert_double_eq_tol(hec_fit_at(&fit, true, x) / (1e-5 + 2e-7 * pow(x, 0.9)), 1, 0.01);
  hec_arena_free(&d.arena);
}

/* Durations that have nothing to do with the work, few observations, knots far from everything. */
static void adversarial(data *d, hec_fit_options *options, double *knots, uint64_t *seed) {
  *d = (data){.arena = {0}};
  int32_t n = 1 + (int32_t)hec_test_below(seed, hec_test_below(seed, 3) ? 60 : 6), max = 5;
  double spread = hec_test_below(seed, 2) ? 12 : 1;
  d->x_at = HEC_NEW(&d->arena, int32_t, n + 1);
  d->x = HEC_NEW(&d->arena, double, n *max);
  d->y = HEC_NEW(&d->arena, double, n);
  uint64_t sizes = 1 + hec_test_below(seed, 6);
  for (int32_t i = 0; i < n; i++) {
    d->x_at[i + 1] = d->x_at[i] + (i == 0 ? 1 : (int32_t)hec_test_below(seed, (uint64_t)max + 1));
    for (int32_t k = d->x_at[i]; k < d->x_at[i + 1]; k++)
      d->x[k] = sizes < 4 ? pow(7, (double)hec_test_below(seed, sizes)) : exp(9 * hec_test_uniform(seed));
    d->y[i] = exp(spread * (hec_test_uniform(seed) - 0.5));
  }
  d->o = (hec_observations){.n = n, .x_at = d->x_at, .x = d->x, .y = d->y};
  options->n_knots = 1 + (int32_t)hec_test_below(seed, hec_test_below(seed, 2) ? 6 : HEC_FIT_KNOTS_MAX);
  options->knots = hec_test_below(seed, 2) ? knots : NULL;
  options->floor = hec_test_below(seed, 2);
  options->fixed = hec_test_below(seed, 2);
  for (int32_t j = 0; j < options->n_knots; j++)
    knots[j] = (j ? knots[j - 1] : 0) + exp(7 * hec_test_uniform(seed));
}

HEC_TEST(never_negative_never_decreasing) {
  uint64_t seed = 17;
  int32_t how[3] = {0, 0, 0}, zeros = 0;
  for (int k = 0; k < hec_test_cases(4000); k++) {
    data d;
    hec_fit_options options;
    double knots[HEC_FIT_KNOTS_MAX];
    adversarial(&d, &options, knots, &seed);
    hec_fit fit;
    ck_assert_int_eq(hec_fit_curve(&d.o, &options, &d.arena, &fit), HEC_OK);
    check_fit(&d, &options, &fit);
    how[fit.how]++;
    for (int32_t j = 1; j < fit.n_knots; j++)
      zeros += fit.y[j] == fit.y[j - 1];
    for (double x = 0.5, before = 0; x < 30000; x *= 1.5) {
      ck_assert_double_ge(hec_fit_at(&fit, options.floor, x), before);
      before = hec_fit_at(&fit, options.floor, x) * (1 - 1e-12);
    }
    ck_assert_double_eq(hec_fit_at(&fit, options.floor, 0), 0);
    hec_arena_free(&d.arena);
  }
  printf("bisquare %d, Huber %d, least squares %d; increments held at zero %d\n", how[0], how[1], how[2], zeros);
  ck_assert(how[HEC_FIT_BISQUARE] > 0 && how[HEC_FIT_LEAST_SQUARES] > 0 && zeros > 0);
}

static double squares(const data *d, const hec_fit *fit, const hec_fit_options *options) {
  double sum = 0;
  for (int32_t i = 0; i < d->o.n; i++)
    if (d->x_at[i + 1] > d->x_at[i] || fit->fixed > 0)
      sum += pow(fitted(d, fit, options->floor, i) / d->y[i] - 1, 2);
  return sum;
}

/* Least squares with bounds is convex: when no single move helps, nothing does. */
HEC_TEST(few_observations_are_fitted_best) {
  uint64_t seed = 29;
  int32_t seen = 0;
  for (int k = 0; k < hec_test_cases(2000); k++) {
    data d;
    hec_fit_options options;
    double knots[HEC_FIT_KNOTS_MAX];
    adversarial(&d, &options, knots, &seed);
    hec_fit fit;
    ck_assert_int_eq(hec_fit_curve(&d.o, &options, &d.arena, &fit), HEC_OK);
    seen += fit.how == HEC_FIT_LEAST_SQUARES && fit.n_observations < 2 * (fit.n_knots + options.fixed);
    for (int32_t j = 0; j < fit.n_knots && fit.how == HEC_FIT_LEAST_SQUARES; j++) {
      double increment = fit.y[j] - (j ? fit.y[j - 1] : 0), min = squares(&d, &fit, &options);
      double step = 1e-3 * fit.y[fit.n_knots - 1];
      for (int sign = -1; sign <= 1; sign += 2) {
        double move = sign < 0 ? -fmin(step, increment) : step;
        for (int32_t m = j; m < fit.n_knots; m++)
          fit.y[m] += move;
        ck_assert_double_ge(squares(&d, &fit, &options), min * (1 - 1e-7) - 1e-18);
        for (int32_t m = j; m < fit.n_knots; m++)
          fit.y[m] -= move;
      }
    }
    hec_arena_free(&d.arena);
  }
  ck_assert_int_gt(seen, 0);
}

static hec_fit fit_of(data *d, hec_fit_options options) {
  hec_fit fit;
  ck_assert_int_eq(hec_fit_curve(&d->o, &options, &d->arena, &fit), HEC_OK);
  check_fit(d, &options, &fit);
  return fit;
}

HEC_TEST(knots_that_nothing_determines_are_left_out) {
  int32_t x_at[] = {0, 1, 2, 3, 4};
  double x[] = {2, 1000, 2, 1000}, y[] = {3, 70, 3, 70}, knots[] = {2, 10, 100, 1000, 5000};
  data d = {.x_at = x_at, .x = x, .y = y, .o = {.n = 4, .x_at = x_at, .x = x, .y = y}};
  hec_fit fit = fit_of(&d, (hec_fit_options){.knots = knots, .n_knots = 5, .floor = true});
  ck_assert_int_eq(fit.n_knots, 2);
  ck_assert(fit.x[0] == 2 && fit.x[1] == 1000);
  ck_assert_double_eq_tol(fit.y[0], 3, 1e-12);
  ck_assert_double_eq_tol(fit.y[1], 70, 1e-12);
  ck_assert_double_eq_tol(hec_fit_at(&fit, true, 1), 3, 1e-12);
  ck_assert_double_eq_tol(hec_fit_at(&fit, false, 1), 1.5, 1e-12);
  ck_assert_double_eq_tol(hec_fit_at(&fit, true, 1998), 137, 1e-10); /* the last segment goes on */
  /* One piece per observation, at knots: a constant is told from them by nothing. */
  fit = fit_of(&d, (hec_fit_options){.knots = knots, .n_knots = 5, .floor = true, .fixed = true});
  ck_assert(fit.n_knots == 2 && fit.fixed == 0);
  ck_assert_double_eq_tol(fit.y[1], 70, 1e-12);
  /* All of one size: one knot of two, through the origin. */
  double same[] = {50, 50, 50, 50}, y_same[] = {7, 7, 7, 7};
  d.o.x = d.x = same;
  d.o.y = d.y = y_same;
  fit = fit_of(&d, (hec_fit_options){.knots = knots, .n_knots = 5});
  ck_assert_int_eq(fit.n_knots, 1);
  ck_assert_double_eq_tol(hec_fit_at(&fit, false, 50), 7, 1e-12);
  ck_assert_double_eq_tol(hec_fit_at(&fit, false, 500), 70, 1e-11);
  fit = fit_of(&d, (hec_fit_options){.n_knots = 8, .floor = true});
  ck_assert(fit.n_knots == 1 && fit.x[0] == 50);
  d.o.n = 1;
  fit = fit_of(&d, (hec_fit_options){.n_knots = 8, .fixed = true});
  ck_assert(fit.n_knots == 1 && fit.fixed == 0 && fit.n_observations == 1 && fit.how == HEC_FIT_LEAST_SQUARES);
  ck_assert_double_eq_tol(fit.y[0], 7, 1e-12);
  hec_arena_free(&d.arena);
}

HEC_TEST(nothing_to_fit_is_said) {
  int32_t none[] = {0, 0, 0}, x_at[] = {0, 1, 2};
  double x[] = {4, 5}, y[] = {1, 2}, *bad[] = {&y[1], &x[1]};
  const double wrong[] = {0, -1, NAN, INFINITY};
  HEC_SCOPED(hec_arena) arena = {0};
  hec_fit fit;
  hec_line line;
  hec_fit_options options = {.n_knots = 4, .fixed = true};
  ck_assert_int_eq(hec_fit_curve(&(hec_observations){.n = 2, .x_at = none, .y = y}, &options, &arena, &fit),
                   HEC_FAILED);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "no observation with work"));
  ck_assert_int_eq(hec_fit_curve(&(hec_observations){.n = 0, .x_at = none}, &options, &arena, &fit), HEC_FAILED);
  ck_assert_int_eq(hec_fit_line(x, y, 0, &arena, &line), HEC_FAILED);
  for (int k = 0; k < 8; k++) {
    double kept = *bad[k / 4];
    *bad[k / 4] = wrong[k % 4];
    hec_observations o = {.n = 2, .x_at = x_at, .x = x, .y = y};
    ck_assert_int_eq(hec_fit_curve(&o, &options, &arena, &fit), HEC_FAILED);
    ck_assert_ptr_nonnull(strstr(hec_last_error(), "observation 1"));
    ck_assert_int_eq(hec_fit_line(x, y, 2, &arena, &line), k == 4 ? HEC_OK : HEC_FAILED); /* a size of 0 is one */
    *bad[k / 4] = kept;
  }
  /* Numbers that no square can hold. */
  double far[] = {1e300};
  options = (hec_fit_options){.knots = far, .n_knots = 1};
  ck_assert_int_eq(hec_fit_curve(&(hec_observations){.n = 2, .x_at = x_at, .x = x, .y = y}, &options, &arena, &fit),
                   HEC_FAILED);
}

/* The size that calibration may bring; twice, and in another unit of time that is a power of two: the same bytes. */
HEC_TEST(the_same_twice_and_in_another_unit) {
  uint64_t seed = 77;
  curve c = random_curve(&seed, 24, true, true);
  data d;
  observe(&d, &c, hec_test_cases(5000), 32, 0.01, 0.07, &seed);
  hec_fit_options options = options_of(&c);
  hec_fit once = fit_of(&d, options), twice = fit_of(&d, options);
  for (int32_t i = 0; i < d.o.n; i++)
    d.y[i] *= 1024;
  hec_fit scaled = fit_of(&d, options);
  ck_assert(once.n_knots == twice.n_knots && once.n_knots == scaled.n_knots);
  size_t bytes = (size_t)once.n_knots * sizeof(double);
  ck_assert(memcmp(once.x, twice.x, bytes) == 0 && memcmp(once.y, twice.y, bytes) == 0);
  ck_assert(once.fixed == twice.fixed && once.residual_p90 == twice.residual_p90 && once.how == twice.how);
  for (int32_t j = 0; j < once.n_knots; j++)
    ck_assert_double_eq(scaled.y[j], once.y[j] * 1024);
  ck_assert_double_eq(scaled.fixed, once.fixed * 1024);
  hec_arena_free(&d.arena);
}

/* ---- Lines ---- */

static hec_line line_of(const double *x, const double *y, int32_t n) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_line line;
  ck_assert_int_eq(hec_fit_line(x, y, n, &arena, &line), HEC_OK);
  ck_assert_int_eq((int)arena.used_bytes, 0);
  double off[256];
  for (int32_t i = 0; i < n; i++)
    off[i] = fabs((line.a + line.b * x[i]) / y[i] - 1);
  ck_assert(line.a >= 0 && line.b >= 0 && line.n_observations == n);
  ck_assert_double_eq_tol(line.residual_median, hec_median(off, n), 1e-12);
  ck_assert_double_eq_tol(line.residual_p90, hec_quantile(off, n, 0.9), 1e-12);
  return line;
}

HEC_TEST(latency_and_bandwidth) {
  uint64_t seed = 2;
  double x[200], y[200];
  for (int noisy = 0; noisy < 2; noisy++) {
    for (int32_t i = 0; i < 200; i++) {
      x[i] = i % 20 == 0 ? 0 : ldexp(1, 4 + i % 22);
      y[i] = (2.385e-6 + x[i] / 11.7e9) * (1 + noisy * 0.01 * (2 * hec_test_uniform(&seed) - 1));
      y[i] *= hec_test_below(&seed, 12) == 0 ? 3 : 1;
    }
    hec_line line = line_of(x, y, 200);
    ck_assert_int_eq(line.how, HEC_FIT_BISQUARE);
    ck_assert_double_eq_tol(line.a, 2.385e-6, (noisy ? 5e-3 : 1e-9) * 2.385e-6);
    ck_assert_double_eq_tol(line.b, 1 / 11.7e9, (noisy ? 5e-3 : 1e-9) / 11.7e9);
  }
}

HEC_TEST(lines_stay_above_zero) {
  const double x[] = {10, 20, 30, 40}, early[] = {1, 11, 21, 31}, falling[] = {9, 7, 5, 3}, same[] = {5, 5, 5, 5};
  const double none[] = {0, 0, 0, 0}, y[] = {4, 4, 4, 4};
  hec_line line = line_of(x, early, 4);
  ck_assert(line.a == 0 && line.b > 0.1);
  line = line_of(x, falling, 4);
  ck_assert(line.b == 0 && line.a > 3);
  line = line_of(same, y, 4);
  ck_assert(line.a == 0);
  ck_assert_double_eq_tol(line.b, 0.8, 1e-14);
  line = line_of(none, y, 4);
  ck_assert(line.b == 0);
  ck_assert_double_eq_tol(line.a, 4, 1e-14);
  line = line_of(x, y, 1);
  ck_assert(line.a == 0 && line.how == HEC_FIT_LEAST_SQUARES);
  ck_assert_double_eq_tol(line.b, 0.4, 1e-14);
}
