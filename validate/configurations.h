/* Random configurations to predict: what calibration never saw. Each draws its own number of tokens, top-k, skew of loads,
 * policy and loads from one seed; model shape, experts and ranks are the calibration's. */
#pragma once
#include "validate/experiment.h"

typedef struct {
  const hec_model *model;
  const hec_cluster *cluster;        /* problems are made for it until a session makes them anew */
  const hec_policy *const *policies; /* [n_policies] drawn from; none a bound */
  int32_t n_policies;
  const char *schedule;
  int32_t n_ranks, tokens; /* tokens: max per rank, an eighth is the min */
  int32_t ep;              /* ranks of an expert-parallel group; 0: the largest */
  int32_t esp;             /* ranks of an expert-sharding group; 0: 1 */
  int32_t n_steps, warmup; /* of each; one iteration past the warm-up is the usual */
  bool train;
  uint64_t seed;
} hec_configurations;

/* `n` cases into `cases`, whose names say everything that was drawn. */
hec_status hec_configurations_draw(const hec_configurations *options, int32_t n, hec_arena *arena,
                                   hec_experiment_case *cases) HEC_MUST_USE;
