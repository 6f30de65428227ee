/* Transitions with a chosen affinity A (0 to 1). Take the top_k assignments in layer l + 1 that follow an assignment to
 * expert a in layer l. A share A goes where a coupling of both layers' loads sends a. The rest goes to experts drawn by
 * the loads of layer l + 1 alone.
 *
 * The coupling: both layers' experts in random order, load laid on load (the north-west corner rule). So it keeps both
 * margins and joins at most 2 E - 1 pairs. Rows sum to top_k times the loads of iteration 1 exactly, columns in
 * expectation. The loads themselves know nothing of the transitions: records are drawn layer by layer. O(layers E^2). */
#include "traces/synth_state.h"

#include <gsl/gsl_randist.h>
#include <string.h>

/* [n_experts] summed over sources. */
static void sum_sources(const hec_load *load, int32_t layer, double *sum) {
  for (int32_t e = 0; e < load->n_experts; e++) {
    sum[e] = 0;
    for (int32_t s = 0; s < load->n_sources; s++)
      sum[e] += hec_load_row(load, layer, s)[e];
  }
}

static void shuffle(gsl_rng *rng, int32_t n, int32_t *order) {
  for (int32_t i = 0; i < n; i++)
    order[i] = i;
  gsl_ran_shuffle(rng, order, (size_t)n, sizeof *order);
}

typedef struct {
  int32_t n;
  double *from, *to, *room; /* [n] loads of a layer, of the next, what the coupling has left of them */
  int32_t *order[2];        /* [n] */
  double *joined;           /* [n * n] */
  uint32_t *counts, *more;  /* [n] */
} couple;

static void lay(couple *c) {
  size_t n = (size_t)c->n;
  memset(c->joined, 0, n * n * sizeof *c->joined);
  memcpy(c->room, c->to, n * sizeof *c->room);
  for (int32_t i = 0, j = 0; i < c->n; i++) {
    int32_t a = c->order[0][i];
    double left = c->from[a];
    while (left > 0 && j < c->n) {
      int32_t b = c->order[1][j];
      double part = left < c->room[b] ? left : c->room[b];
      c->joined[(size_t)a * n + (size_t)b] += part;
      left -= part;
      c->room[b] -= part;
      j += !(c->room[b] > 0);
    }
  }
}

/* Row a of the pair: draws in whole numbers. */
static void draw(couple *c, gsl_rng *rng, const hec_synth_options *o, int32_t a, uint64_t *row) {
  uint64_t n_draws = (uint64_t)c->from[a] * (uint64_t)o->top_k;
  double joined = 0, all = 0;
  for (int32_t b = 0; b < c->n; b++) {
    joined += c->joined[(size_t)a * (size_t)c->n + (size_t)b];
    all += c->to[b];
  }
  if (n_draws == 0 || !(all > 0))
    return;
  uint64_t n_joined = joined > 0 ? gsl_ran_binomial(rng, o->affinity, (unsigned)n_draws) : 0;
  hec_synth_multinomial(rng, c->n, c->joined + (size_t)a * (size_t)c->n, n_joined, c->counts);
  hec_synth_multinomial(rng, c->n, c->to, n_draws - n_joined, c->more);
  for (int32_t b = 0; b < c->n; b++)
    row[b] = (uint64_t)c->counts[b] + c->more[b];
}

void hec_synth_transitions(hec_synth *synth, const hec_load *load, uint64_t *transitions) {
  const hec_synth_options *o = &synth->options;
  size_t n = (size_t)o->n_experts;
  HEC_SCOPED(hec_arena) arena = {0};
  couple c = {.n = o->n_experts,
              .from = HEC_NEW(&arena, double, n),
              .to = HEC_NEW(&arena, double, n),
              .room = HEC_NEW(&arena, double, n),
              .order = {HEC_NEW(&arena, int32_t, n), HEC_NEW(&arena, int32_t, n)},
              .joined = HEC_NEW(&arena, double, n *n),
              .counts = HEC_NEW(&arena, uint32_t, n),
              .more = HEC_NEW(&arena, uint32_t, n)};
  for (int32_t l = 0; l + 1 < o->n_layers; l++) {
    hec_synth_reseed(synth->rng, o, HEC_STREAM_TRANSITIONS, (uint64_t)l, 0, 0);
    sum_sources(load, l, c.from);
    sum_sources(load, l + 1, c.to);
    shuffle(synth->rng, c.n, c.order[0]);
    shuffle(synth->rng, c.n, c.order[1]);
    lay(&c);
    for (int32_t a = 0; a < c.n; a++)
      draw(&c, synth->rng, o, a, transitions + ((size_t)l * n + (size_t)a) * n);
  }
}
