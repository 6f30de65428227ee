/* Drift with chosen lag correlations.
 *
 * The log-popularity of an expert is a stationary Gaussian process z with autocorrelation g, independent of the others.
 * g runs through (0, 1) and (lag_k, g_k) by Steffen's monotone interpolation and ends in a Gaussian tail. Its periodic
 * spectrum P_m = sum_k g_k cos(2 pi k m / N) is made a spectrum by dropping negative values. z is white noise filtered
 * with the taps h_j = 1/N sum_m sqrt(P_m) cos(2 pi j m / N), whose autocorrelation is that g again. It is a moving
 * average: a stream, with a ring of N noises. A mixture of AR(1) processes would not do: it decays convexly, measured
 * drift (0.96 / 0.89 / 0.76 / 0.33 at 1 / 5 / 9 / 20) does not.
 *
 * What is asked for is not g but the correlation of counts, median over layers and pairs of records, as hecate-trace
 * info measures it. exp() and sampling noise lower it, and a finite trace scatters around it. So g_k is corrected by
 * (wanted - measured) until they agree. Measured are the very draws that will be written (the first records of a long
 * trace). It is a fixed-point iteration whose slope is near one. A short trace may not reach it with its noise; then
 * other noise is tried. */
#include "traces/drift.h"
#include "traces/synth_memory.h"
#include "traces/synth_state.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_interp.h>
#include <gsl/gsl_math.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { ROUNDS = 16, ATTEMPTS = 6 };
static const double good_enough = 0.003, too_far = 0.03;
static const int64_t cells_per_round = 3000000; /* counts drawn per measurement */

/* Correlation of logarithms that gives correlation r of log-normal values. */
static double latent_guess(const hec_synth_options *o, double r) {
  double variance = o->sigma * o->sigma;
  if (hec_synth_find(o->workload) != hec_synth_find("lognormal") || variance < 1e-6)
    return r;
  double inside = 1 + r * (exp(variance) - 1);
  return inside > 0 ? log(inside) / variance : -0.9;
}

/* Width tau of exp(-(k / tau)^2) through (lag, g); a g without such a curve gets one that is nearly zero behind lag. */
static double tail_width(double lag, double g) {
  double clipped = g < 0.05 ? 0.05 : g > 0.995 ? 0.995 : g;
  return lag / sqrt(-log(clipped));
}

/* [half + 1] values of g at lags 0..half. */
static void interpolate(const hec_synth_options *o, const double *knot, int32_t half, double *g) {
  double x[HEC_SYNTH_KNOTS + 1] = {0}, y[HEC_SYNTH_KNOTS + 1] = {1};
  size_t n = 1;
  for (int32_t k = 0; k < o->n_knots; k++, n++) {
    x[n] = o->lag[k];
    y[n] = knot[k];
  }
  double last = x[n - 1], at_last = y[n - 1], width = tail_width(last, at_last);
  bool enough = n >= gsl_interp_type_min_size(gsl_interp_steffen);
  hec_gsl_watch_memory(false);
  gsl_interp *interpolation = gsl_interp_alloc(enough ? gsl_interp_steffen : gsl_interp_linear, n);
  HEC_ASSERT(gsl_interp_init(interpolation, x, y, n) == GSL_SUCCESS);
  for (int32_t k = 0; k <= half; k++)
    g[k] = k <= last ? gsl_interp_eval(interpolation, x, y, k, NULL)
                     : at_last * exp((last - k) * (last + k) / (width * width));
  gsl_interp_free(interpolation);
}

/* Enough for the tail to die out. */
static int32_t choose_n_taps(const hec_synth_options *o) {
  double last = o->lag[o->n_knots - 1], n = 4.6 * tail_width(last, latent_guess(o, o->correlation[o->n_knots - 1]));
  n = n < 6 * last ? 6 * last : n > 16 * last ? 16 * last : n;
  return n < 48 ? 48 : 2 * (int32_t)(n / 2);
}

/* One period of cos(2 pi i / n). */
static void fill_cosines(double *cosine, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    cosine[i] = cos(2 * M_PI * i / n);
}

static void make_taps(const double *g, const double *cosine, double *root, int32_t n, double *taps) {
  for (int32_t m = 0; m < n; m++) {
    double p = g[0];
    for (int32_t k = 1; k <= n / 2; k++)
      p += (k < n / 2 ? 2 : 1) * g[k] * cosine[(int64_t)k * m % n];
    root[m] = p > 0 ? sqrt(p) : 0;
  }
  double squares = 0;
  for (int32_t j = 0; j < n; j++) {
    taps[j] = 0;
    for (int32_t m = 0; m < n; m++) /* centred, so that the filter is short on both sides */
      taps[j] += root[m] * cosine[(int64_t)m * ((j + n / 2) % n) % n];
    squares += taps[j] * taps[j];
  }
  for (int32_t j = 0; j < n; j++)
    taps[j] /= sqrt(squares);
}

/* Median correlation at the lags of the options over n_records of this generator. */
static void measure(const hec_synth_options *o, const hec_synth_filter *filter, double *median) {
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_OPENED(hec_synth) *synth = hec_synth_with_filter(o, filter);
  hec_drift drift = hec_drift_new(&arena, o->n_layers, o->n_experts, o->lag, o->n_knots);
  size_t n_rows = (size_t)o->n_layers * (size_t)o->n_sources, n = (size_t)o->n_layers * (size_t)o->n_experts;
  hec_load load = {o->n_layers, o->n_sources, o->n_experts, HEC_NEW(&arena, uint32_t, n_rows * (size_t)o->n_experts)};
  uint64_t *totals = HEC_NEW(&arena, uint64_t, n);
  for (int64_t i = 0; i < o->n_iterations; i++) {
    hec_synth_next(synth, &load);
    memset(totals, 0, n * sizeof *totals);
    for (size_t row = 0; row < n_rows; row++)
      for (size_t e = 0; e < (size_t)o->n_experts; e++)
        totals[row / (size_t)o->n_sources * (size_t)o->n_experts + e] += load.counts[row * (size_t)o->n_experts + e];
    hec_drift_add(&drift, totals);
  }
  for (int32_t k = 0; k < o->n_knots; k++) {
    median[k] = hec_histogram_quantile(&drift.correlation[k], 0.5);
    median[k] = isnan(median[k]) ? 1 : median[k]; /* loads that never vary */
  }
}

/* The trace that is measured: the whole, or the first records when it is long; sources pooled when there are many. */
static hec_synth_options sample_of(const hec_synth_options *o) {
  hec_synth_options sample = *o;
  sample.switch_iter = 0;
  int64_t last = o->lag[o->n_knots - 1], min = 5 * last, per_record = (int64_t)o->n_layers * o->n_experts;
  if (per_record * o->n_sources * (o->n_iterations < min ? o->n_iterations : min) > cells_per_round &&
      o->tokens * o->n_sources * o->top_k < UINT32_MAX) {
    sample.tokens = o->tokens * o->n_sources;
    sample.n_sources = 1;
    sample.ranks = 0;
  }
  int64_t affordable = cells_per_round / (per_record * sample.n_sources);
  affordable = affordable < min ? min : affordable;
  sample.n_iterations = o->n_iterations < affordable ? o->n_iterations : affordable;
  return sample;
}

static double bounded(double g) {
  return g > 0.9999 ? 0.9999 : g < -0.99 ? -0.99 : g;
}

typedef struct {
  const hec_synth_options *options;
  hec_synth_options sample;
  double *g, *cosine, *root;      /* [n / 2 + 1], [n], [n] scratch of make_taps */
  hec_synth_filter tried, best;   /* [n] taps each */
  double best_error;              /* largest distance from what is wanted */
  double median[HEC_SYNTH_KNOTS]; /* of best */
} search;

static void correct(search *s) {
  const hec_synth_options *o = s->options;
  double knot[HEC_SYNTH_KNOTS] = {0}, median[HEC_SYNTH_KNOTS] = {0};
  for (int32_t k = 0; k < o->n_knots; k++)
    knot[k] = bounded(latent_guess(o, o->correlation[k]));
  for (int round = 0; round < ROUNDS && s->best_error > good_enough; round++) {
    interpolate(o, knot, s->tried.n_taps / 2, s->g);
    make_taps(s->g, s->cosine, s->root, s->tried.n_taps, s->tried.taps);
    measure(&s->sample, &s->tried, median);
    double error = 0;
    for (int32_t k = 0; k < o->n_knots; k++) {
      double miss = o->correlation[k] - median[k];
      error = fabs(miss) > error ? fabs(miss) : error;
      knot[k] = bounded(knot[k] + 0.8 * miss);
    }
    if (error < s->best_error) {
      s->best_error = error;
      s->best.attempt = s->tried.attempt;
      memcpy(s->best.taps, s->tried.taps, (size_t)s->best.n_taps * sizeof *s->best.taps);
      memcpy(s->median, median, sizeof median);
    }
  }
}

static hec_status cannot(const search *s) {
  const hec_synth_options *o = s->options;
  int32_t worst = 0;
  for (int32_t k = 1; k < o->n_knots; k++)
    if (fabs(o->correlation[k] - s->median[k]) > fabs(o->correlation[worst] - s->median[worst]))
      worst = k;
  return hec_fail(HEC_BAD_INPUT,
                  "--drift: expected correlations that this trace can have, found %g at lag %" PRId32
                  " (reached %.3f; more tokens, experts or iterations may help)",
                  o->correlation[worst], o->lag[worst], s->median[worst]);
}

hec_status hec_synth_calibrate(const hec_synth_options *options, hec_arena *arena, hec_synth_filter *filter) {
  int32_t n = choose_n_taps(options);
  search s = {.options = options, .sample = sample_of(options), .best_error = INFINITY};
  s.g = HEC_NEW(arena, double, n / 2 + 1);
  s.cosine = HEC_NEW(arena, double, n);
  s.root = HEC_NEW(arena, double, n);
  s.tried = (hec_synth_filter){n, HEC_NEW(arena, double, n), 0};
  s.best = (hec_synth_filter){n, HEC_NEW(arena, double, n), 0};
  fill_cosines(s.cosine, n);
  for (; s.tried.attempt < ATTEMPTS && s.best_error > too_far / 2; s.tried.attempt++)
    correct(&s);
  *filter = s.best;
  return s.best_error <= too_far ? HEC_OK : cannot(&s);
}
