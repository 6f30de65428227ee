/* Observations for fits, taken from executed iterations: how long operations of each kind took, and of what size they
 * were. */
#pragma once
#include "models/curve.h"
#include "runtime/exec/replay.h"
#include "validate/spans.h"

/* Observations of one curve: y seconds for pieces x[x_at[i] .. x_at[i + 1]] (fit.h). */
typedef struct {
  hec_curve_kind kind;
  bool backward;
  double flops_per_row;
  int32_t n;
  int32_t *x_at; /* [n + 1] */
  size_t x_at_capacity;
  double *x;
  size_t x_capacity;
  double *y;
  size_t y_capacity;
  int32_t *from; /* [n] the reading that it was taken from */
  size_t from_capacity;
} hec_sample_set;

/* Pairs for a line: seconds over what the law of the links it ran on says (exchanges), over work units (planning). */
typedef struct {
  int32_t n;
  double *x, *y;
  int32_t *from; /* [n] */
  size_t x_capacity, y_capacity, from_capacity;
} hec_sample_pairs;

enum { HEC_SAMPLE_SETS_MAX = 64 };
#define HEC_BUSY_MAX 0.1 /* of the span of a rank that moves bytes, with something else: above, it is no observation */

typedef struct {
  hec_sample_set sets[HEC_SAMPLE_SETS_MAX];
  int32_t n_sets;
  hec_sample_pairs exchange[HEC_N_CURVE_KINDS]; /* by kind: seconds over the closed form's */
  hec_sample_pairs plan;
  hec_spans spans;
  double busy_s, lasted_s; /* of exchanges: processor time that moving bytes took, and how long they lasted */
  int32_t reading;         /* that is being added */
  bool between_hosts;      /* only exchanges count that their ranks begin together, and that are alone */
} hec_samples;             /* zero-initialise */

/* Adds all operations of an executed iteration under a schedule without overlap, whose timeline is mended (experiment.h), as reading
 * `reading`. Of those that move bytes only where the rank did nothing else (reductions of gradients overlap in every
 * schedule). `links`: closed form of the links that it ran on. Chains are left out: their law is not a line. */
void hec_samples_add(hec_samples *samples, const hec_problem *problem, const hec_replayed *iteration, int32_t reading,
                     hec_link_cost *links);
/* Leaves out the observations of readings that do not count. */
void hec_samples_keep(hec_samples *samples, const bool *counts);
void hec_samples_free(hec_samples *samples);
