/* Generator: per iteration, latent values (a moving average of white noise), weights by workload, rows drawn per
 * source. Random numbers are GSL's (taus2, ziggurat normals, binomials). Each purpose, layer, source and iteration has
 * its own seed. So the i-th iteration does not depend on what was drawn before it. And calibration sees the very draws
 * that are written. O(layers * experts * (sources + taps)) per iteration. */
#include "traces/synth_state.h"

#include "traces/synth_memory.h"

#include <gsl/gsl_randist.h>
#include <stdlib.h>
#include <string.h>

/* Finaliser of splitmix64 (Steele, Lea, Flood 2014): neighbouring inputs give unrelated seeds. */
static uint64_t mix(uint64_t x) {
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

void hec_synth_reseed(gsl_rng *rng, const hec_synth_options *options, uint64_t stream, uint64_t a, uint64_t b,
                      uint64_t c) {
  uint64_t seed = mix(mix(mix(mix(mix(options->seed) + stream) + a) + b) + c);
  gsl_rng_set(rng, (unsigned long)(seed >> 33) + 1); /* 0 would mean the default seed */
}

/* ---- latent values ---- */

/* Noise of time t (0, 1, ...) of this epoch into the ring. */
static void draw_noise(hec_synth *synth, int64_t t) {
  const hec_synth_options *o = &synth->options;
  size_t n = (size_t)o->n_experts, slot = (size_t)t % (size_t)synth->filter.n_taps;
  for (int32_t l = 0; l < o->n_layers; l++) {
    double *w = synth->noise + (slot * (size_t)o->n_layers + (size_t)l) * n;
    hec_synth_reseed(synth->rng, o, HEC_STREAM_LATENT + (synth->filter.attempt << 8), synth->epoch, (uint64_t)t,
                     (uint64_t)l);
    for (size_t e = 0; e < n; e++)
      w[e] = gsl_ran_gaussian_ziggurat(synth->rng, 1);
  }
}

static void filter_noise(hec_synth *synth, int64_t t) {
  size_t n = (size_t)synth->options.n_layers * (size_t)synth->options.n_experts;
  size_t n_taps = (size_t)synth->filter.n_taps;
  memset(synth->latent, 0, n * sizeof *synth->latent);
  for (size_t j = 0; j < n_taps; j++) {
    const double *w = synth->noise + ((size_t)t + j) % n_taps * n;
    double tap = synth->filter.taps[j];
    for (size_t i = 0; i < n; i++)
      synth->latent[i] += tap * w[i];
  }
}

/* Latent values of iteration iter (1, 2, ...). Popularity that stands still needs one draw per epoch. */
static void make_latent(hec_synth *synth, int64_t iter) {
  int64_t n_taps = synth->filter.n_taps, t = iter - 1;
  bool anew = t == 0 || iter == synth->options.switch_iter;
  if (n_taps == 1 && !anew)
    return;
  if (anew)
    for (int64_t j = 0; j < n_taps - 1; j++)
      draw_noise(synth, t + j);
  draw_noise(synth, t + n_taps - 1);
  filter_noise(synth, t);
}

/* ---- one iteration ---- */

static void make_tokens(hec_synth *synth, int64_t iter) {
  const hec_synth_options *o = &synth->options;
  for (int32_t s = 0; s < o->n_sources; s++)
    synth->tokens[s] = (uint32_t)o->tokens;
  if (!synth->workload->ragged)
    return;
  hec_synth_reseed(synth->rng, o, HEC_STREAM_RAGGED, synth->epoch, (uint64_t)iter, 0);
  for (int32_t s = 0; s < o->n_sources; s++)
    synth->ragged[s] = gsl_rng_uniform_pos(synth->rng);
  hec_synth_multinomial(synth->rng, o->n_sources, synth->ragged, (uint64_t)o->tokens * (uint64_t)o->n_sources,
                        synth->tokens);
}

void hec_synth_next(hec_synth *synth, hec_load *load) {
  const hec_synth_options *o = &synth->options;
  int64_t iter = ++synth->n_made;
  synth->epoch += iter == o->switch_iter;
  if (synth->workload->drifts)
    make_latent(synth, iter);
  make_tokens(synth, iter);
  for (int32_t l = 0; l < o->n_layers; l++) {
    synth->workload->weigh(synth, l, iter, synth->latent + (size_t)l * (size_t)o->n_experts, synth->weights);
    for (int32_t s = 0; s < o->n_sources; s++) {
      uint32_t *row = hec_load_row(load, l, s);
      if (synth->workload->even) {
        hec_synth_even_row(synth, (uint64_t)l + (uint64_t)s * (uint64_t)o->top_k + (uint64_t)iter, synth->tokens[s],
                           row);
        continue;
      }
      hec_synth_reseed(synth->rng, o, HEC_STREAM_ROWS, (uint64_t)iter, (uint64_t)l, (uint64_t)s);
      hec_synth_row(synth, synth->tokens[s], row);
    }
  }
}

/* ---- life ---- */

hec_synth *hec_synth_with_filter(const hec_synth_options *options, const hec_synth_filter *filter) {
  hec_synth *synth = hec_malloc(1, sizeof *synth);
  *synth = (hec_synth){.options = *options, .workload = hec_synth_find(options->workload)};
  synth->n_ranks = options->ranks > 0 ? options->ranks : options->n_sources > 1 ? options->n_sources : 8;
  size_t n_experts = (size_t)options->n_experts, n_sources = (size_t)options->n_sources;
  size_t n = (size_t)options->n_layers * n_experts, n_taps = (size_t)filter->n_taps;
  synth->filter = (hec_synth_filter){filter->n_taps, HEC_NEW(&synth->arena, double, n_taps), filter->attempt};
  memcpy(synth->filter.taps, filter->taps, n_taps * sizeof *filter->taps);
  synth->latent = HEC_NEW(&synth->arena, double, n);
  synth->noise = HEC_NEW(&synth->arena, double, synth->workload->drifts ? n *n_taps : 1);
  synth->weights = HEC_NEW(&synth->arena, double, n_experts);
  synth->room = HEC_NEW(&synth->arena, double, n_experts);
  synth->more = HEC_NEW(&synth->arena, uint32_t, n_experts);
  synth->ragged = HEC_NEW(&synth->arena, double, n_sources);
  synth->tokens = HEC_NEW(&synth->arena, uint32_t, n_sources);
  hec_gsl_watch_memory(false);
  synth->rng = gsl_rng_alloc(gsl_rng_taus2);
  return synth;
}

hec_status hec_synth_new(const hec_synth_options *options, hec_synth **synth) {
  double one = 1;
  hec_synth_filter filter = {1, &one, 0};
  HEC_SCOPED(hec_arena) arena = {0};
  *synth = NULL;
  HEC_TRY(options->n_knots > 0 ? hec_synth_calibrate(options, &arena, &filter) : HEC_OK);
  *synth = hec_synth_with_filter(options, &filter);
  return HEC_OK;
}

void hec_synth_free(hec_synth *synth) {
  if (!synth)
    return;
  gsl_rng_free(synth->rng);
  hec_arena_free(&synth->arena);
  free(synth);
}
