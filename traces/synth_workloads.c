/* One row per workload: what it is, and the weights of a layer's experts. A rank holds the experts e with
 * floor(e*R/E) = r. Where the heat sits is drawn per layer, anew at a workload switch. */
#include "traces/synth_state.h"

#include <math.h>
#include <string.h>

/* Uniform in 0..n-1 for this layer. */
static int64_t place_of(const hec_synth *synth, int32_t layer, int64_t n) {
  hec_synth_reseed(synth->rng, &synth->options, HEC_STREAM_PLACE, synth->epoch, (uint64_t)layer, 0);
  return (int64_t)gsl_rng_uniform_int(synth->rng, (unsigned long)n);
}

static int32_t rank_of(const hec_synth *synth, int32_t expert) {
  return (int32_t)((int64_t)expert * synth->n_ranks / synth->options.n_experts);
}

/* Experts of a rank, at least one. */
static int32_t experts_per_rank(const hec_synth *synth) {
  int32_t n = synth->options.n_experts / synth->n_ranks;
  return n > 0 ? n : 1;
}

static void weigh_all(const hec_synth *synth, double *weights) {
  for (int32_t e = 0; e < synth->options.n_experts; e++)
    weights[e] = 1;
}

/* Those marked 2 share hot_share of the load evenly, the others (1) the rest. */
static void heat_marked(const hec_synth *synth, double *weights) {
  int32_t n = synth->options.n_experts, n_hot = 0;
  for (int32_t e = 0; e < n; e++)
    n_hot += weights[e] > 1;
  if (n_hot == 0 || n_hot == n)
    return;
  for (int32_t e = 0; e < n; e++)
    weights[e] = weights[e] > 1 ? synth->options.hot_share / n_hot : (1 - synth->options.hot_share) / (n - n_hot);
}

static void heat_rank(const hec_synth *synth, int64_t rank, double *weights) {
  /* With more ranks than experts some ranks hold none: the expert below the rank's place is hot then. */
  int32_t n = synth->options.n_experts;
  int32_t hot = synth->n_ranks > n ? rank_of(synth, (int32_t)(rank * n / synth->n_ranks)) : (int32_t)rank;
  weigh_all(synth, weights);
  for (int32_t e = 0; e < n; e++)
    if (rank_of(synth, e) == hot)
      weights[e] = 2;
  heat_marked(synth, weights);
}

static void weigh_balanced(const hec_synth *synth, int32_t layer, int64_t iter, const double *z, double *weights) {
  (void)layer, (void)iter, (void)z;
  weigh_all(synth, weights);
}

/* Floyd's sampling of n_hot different experts. */
static void weigh_hot_set(const hec_synth *synth, int32_t layer, int64_t iter, const double *z, double *weights) {
  (void)iter, (void)z;
  int32_t n = synth->options.n_experts;
  int32_t n_hot = synth->options.n_hot > 0 ? synth->options.n_hot : experts_per_rank(synth);
  weigh_all(synth, weights);
  hec_synth_reseed(synth->rng, &synth->options, HEC_STREAM_PLACE, synth->epoch, (uint64_t)layer, 0);
  for (int32_t k = n - n_hot; k < n; k++) {
    unsigned long e = gsl_rng_uniform_int(synth->rng, (unsigned long)k + 1);
    weights[weights[e] > 1 ? (size_t)k : (size_t)e] = 2;
  }
  heat_marked(synth, weights);
}

static void weigh_hot_rank(const hec_synth *synth, int32_t layer, int64_t iter, const double *z, double *weights) {
  (void)iter, (void)z;
  heat_rank(synth, place_of(synth, layer, synth->n_ranks), weights);
}

/* As many hot experts as a rank holds, at equal distances: the ranks share the heat. */
static void weigh_spread(const hec_synth *synth, int32_t layer, int64_t iter, const double *z, double *weights) {
  (void)iter, (void)z;
  int64_t n = synth->options.n_experts, n_hot = experts_per_rank(synth), start = place_of(synth, layer, n);
  weigh_all(synth, weights);
  for (int64_t i = 0; i < n_hot; i++)
    weights[(start + i * n / n_hot) % n] = 2;
  heat_marked(synth, weights);
}

/* A block of experts, beginning at a rank's first, without any token. */
static void weigh_idle(const hec_synth *synth, int32_t layer, int64_t iter, const double *z, double *weights) {
  (void)iter, (void)z;
  int64_t n = synth->options.n_experts, n_idle = (int64_t)((double)n * synth->options.idle_share);
  n_idle = n_idle < 1 ? 1 : n_idle > n - synth->options.top_k ? n - synth->options.top_k : n_idle;
  int64_t rank = place_of(synth, layer, synth->n_ranks);
  int64_t start = (rank * n + synth->n_ranks - 1) / synth->n_ranks;
  weigh_all(synth, weights);
  for (int64_t i = 0; i < n_idle; i++)
    weights[(start + i) % n] = 0;
}

static void weigh_rotating(const hec_synth *synth, int32_t layer, int64_t iter, const double *z, double *weights) {
  (void)z;
  heat_rank(synth, (place_of(synth, layer, synth->n_ranks) + (iter - 1) / synth->options.period) % synth->n_ranks,
            weights);
}

static void weigh_burst(const hec_synth *synth, int32_t layer, int64_t iter, const double *z, double *weights) {
  int64_t period = synth->options.period, length = (period + 3) / 4;
  if ((iter - 1) % period >= period - length)
    weigh_hot_rank(synth, layer, iter, z, weights);
  else
    weigh_all(synth, weights);
}

static void weigh_lognormal(const hec_synth *synth, int32_t layer, int64_t iter, const double *z, double *weights) {
  (void)layer, (void)iter;
  for (int32_t e = 0; e < synth->options.n_experts; e++)
    weights[e] = exp(synth->options.sigma * z[e]);
}

/* The expert with the k-th largest latent value (ties to the lower index) has weight k^-exponent. */
static void weigh_zipf(const hec_synth *synth, int32_t layer, int64_t iter, const double *z, double *weights) {
  (void)layer, (void)iter;
  int32_t n = synth->options.n_experts;
  for (int32_t e = 0; e < n; e++) {
    int32_t place = 1;
    for (int32_t f = 0; f < n; f++)
      place += z[f] > z[e] || (f < e && !(z[f] < z[e]));
    weights[e] = pow(place, -synth->options.exponent);
  }
}

const hec_synth_workload hec_synth_workloads[] = {
    {"W0", "balanced", "every expert the same (not an upper bound for small batches)", false, true, false,
     weigh_balanced},
    {"W1", "hot-expert-set", "a random set of experts takes --hot-share", false, false, false, weigh_hot_set},
    {"W2", "hot-rank", "the experts of one rank take --hot-share", false, false, false, weigh_hot_rank},
    {"W3", "spread-heat", "the heat of W2, spread over the ranks", false, false, false, weigh_spread},
    {"W4", "ragged-source", "sources with different numbers of tokens, experts even", false, true, true,
     weigh_balanced},
    {"W5", "zero-load-experts", "a block of experts (--idle-share) gets no token", false, true, false, weigh_idle},
    {"W6", "rotating-hot-spot", "W2, to the next rank every --period iterations", false, false, false, weigh_rotating},
    {"W7", "burst", "even odds, W2 in the last quarter of every --period", false, false, false, weigh_burst},
    {"lognormal", "lognormal", "log-normal popularity (--sigma), may drift", true, false, false, weigh_lognormal},
    {"zipf", "zipf", "popularity k^-exponent (--exponent), may drift", true, false, false, weigh_zipf},
    {0},
};

const hec_synth_workload *hec_synth_find(const char *name) {
  for (const hec_synth_workload *w = hec_synth_workloads; w->name; w++)
    if (strcmp(name, w->name) == 0 || strcmp(name, w->alias) == 0)
      return w;
  return NULL;
}
