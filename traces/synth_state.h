/* Inside of the generators. Private to traces/synth*.c. */
#pragma once
#include "traces/synth.h"

#include <gsl/gsl_rng.h>

/* z_t = sum_j taps[j] * w_(t+j), w independent standard normal: a stationary Gaussian process per (layer, expert). */
typedef struct {
  int32_t n_taps;
  double *taps;     /* [n_taps], sum of squares 1 */
  uint64_t attempt; /* which noise: another one is taken when the correlations cannot be reached with this */
} hec_synth_filter;

struct hec_synth {
  hec_synth_options options;
  const hec_synth_workload *workload;
  int32_t n_ranks;
  int64_t n_made; /* iterations so far */
  uint64_t epoch; /* counts workload switches */
  hec_arena arena;
  gsl_rng *rng;
  hec_synth_filter filter;
  double *noise;    /* [n_taps][n_layers][n_experts] ring of w */
  double *latent;   /* [n_layers][n_experts] z of this iteration */
  double *weights;  /* [n_experts] */
  double *room;     /* [n_experts] scratch of a row */
  uint32_t *more;   /* [n_experts] scratch of a row */
  double *ragged;   /* [n_sources] */
  uint32_t *tokens; /* [n_sources] of this iteration */
};

/* A fresh generator for one purpose: what is drawn elsewhere does not shift it. */
enum { HEC_STREAM_LATENT = 1, HEC_STREAM_ROWS, HEC_STREAM_PLACE, HEC_STREAM_RAGGED, HEC_STREAM_TRANSITIONS };
void hec_synth_reseed(gsl_rng *rng, const hec_synth_options *options, uint64_t stream, uint64_t a, uint64_t b,
                      uint64_t c);

/* traces/synth_row.c */
void hec_synth_multinomial(gsl_rng *rng, int32_t n, const double *weights, uint64_t draws, uint32_t *counts);
/* A row of tokens*top_k assignments, no expert above `tokens` (top-k experts of a token differ). */
void hec_synth_row(hec_synth *synth, uint32_t tokens, uint32_t *row);
void hec_synth_even_row(hec_synth *synth, uint64_t turn, uint32_t tokens, uint32_t *row);

/* traces/synth_affinity.c: between the loads of a record, into zeros [n_layers - 1][n_experts][n_experts]. */
void hec_synth_transitions(hec_synth *synth, const hec_load *load, uint64_t *transitions);

/* traces/synth_drift.c: the filter whose loads have the wanted correlations. */
hec_status hec_synth_calibrate(const hec_synth_options *options, hec_arena *arena,
                               hec_synth_filter *filter) HEC_MUST_USE;
/* With a filter that is given (n_taps 1: popularity stands still). */
hec_synth *hec_synth_with_filter(const hec_synth_options *options, const hec_synth_filter *filter);
