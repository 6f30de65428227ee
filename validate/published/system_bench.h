/* What the systems share: loads as their papers describe them, and one policy simulated on a set-up. */
#ifndef HEC_VALIDATE_PUBLISHED_SYSTEM_BENCH_H
#define HEC_VALIDATE_PUBLISHED_SYSTEM_BENCH_H
#include "validate/published/published_cell.h"
#include "validate/published/system.h"

/* ---- loads ---- */

/* Of a series of loads. All are scaled to n_ranks * tokens * top_k assignments a layer and spread evenly over the ranks
 * as sources, unless they were recorded by source. */
typedef struct {
  int32_t n_layers, n_experts, top_k, n_ranks, tokens, n; /* n iterations */
} hec_system_shape;

/* The first n_hot experts share `share` of the assignments evenly, the others the rest: the same in every layer and
 * iteration. They are neighbours, so the first ranks hold them. */
hec_status hec_system_hot(hec_system_report *report, const hec_system_shape *shape, int32_t n_hot, double share,
                          hec_loads *loads) HEC_MUST_USE;

typedef enum {
  HEC_DRIFT_NONE,     /* popularity stands still */
  HEC_DRIFT_TRAINING, /* correlation 0.96, 0.89, 0.76, 0.33 at 1, 5, 9, 20 iterations, measured in training by LAER-MoE */
} hec_system_drift;

/* Log-normal popularity, drawn for every layer. */
hec_status hec_system_lognormal(hec_system_report *report, const hec_system_shape *shape, double sigma,
                                hec_system_drift drift, hec_loads *loads) HEC_MUST_USE;

/* The same with the sigma under which contiguous experts on `ep` ranks (0: all that fit) have the busiest rank's share a
 * source states: mean over layers and iterations of busiest over mean, by bisection, to about 0.5 %. `sigma` may be
 * NULL. */
hec_status hec_system_lognormal_of(hec_system_report *report, const hec_system_shape *shape, int32_t ep,
                                   double overload, hec_system_drift drift, hec_loads *loads,
                                   double *sigma) HEC_MUST_USE;

/* The first n iterations of recorded loads below the folder of recorded data, layers as many as wanted of those there,
 * at even distances. *there: whether there is such a file. Fails when it has other experts, or fewer layers. */
hec_status hec_system_recorded(hec_system_report *report, const char *file, const hec_system_shape *shape,
                               hec_loads *loads, bool *there) HEC_MUST_USE;
/* For rows that need it. */
const char *hec_system_absent(hec_system_report *report, const char *file);

/* Mean over layers and iterations of busiest over mean rank, experts contiguous on groups of `ep` ranks (0: all). */
double hec_system_overload(const hec_loads *loads, int32_t ep);

/* ---- simulation ---- */

typedef struct {
  const char *cluster; /* any specification */
  hec_moe moe;         /* experts, top_k and layers as the loads have them; layers without MoE none */
  int32_t n_ranks, tokens;
  bool forward;          /* no backward, no gradients, no optimizer */
  int32_t ep;            /* ranks of an expert-parallel group; 0: as many as there can be */
  int32_t period, slots; /* 0: the policy's own */
  int32_t n_micro_batches;
  int32_t warmup;
  const hec_loads *loads;
} hec_system_setup;

/* `schedule` NULL: the policy's own. */
hec_status hec_system_simulate(hec_system_report *report, const hec_system_setup *setup, const char *policy,
                               const char *schedule, hec_lab_cell *cell) HEC_MUST_USE;
/* A model's preset cut to n layers, all of them MoE: ratios of layers need no more. */
hec_status hec_system_moe(const char *preset, int32_t n_layers, hec_moe *moe) HEC_MUST_USE;
/* Times of MoE layers, forward and backward, or forward alone: sum over layers. */
double hec_system_layers_s(const hec_lab_cell *cell, bool forward);

static inline hec_span hec_system_number(double value) {
  return (hec_span){value, value};
}
/* Of n >= 1 values. */
hec_span hec_system_range(const double *value, int32_t n);

#endif
