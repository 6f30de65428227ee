/* How many significant bits the sums of a step in exact mode need: the step once more, in double, by another
 * implementation. reference.c's own. */
#pragma once
#include "runtime/exec/model/model.h"

typedef struct {
  const hec_model *model;
  const float *block, *experts;            /* parameters before the step: [size], [E][size] */
  const float *block_grads, *expert_grads; /* what the float step gave, of all micro-batches and ranks */
  const float *outputs, *input_grads;      /* [micro_batches][n_ranks][T, d] */
  int32_t n_ranks, tokens, n_micro_batches;
  bool train;
  int64_t step;
  const hec_load *loads; /* [n_micro_batches] */
} hec_bits_step;

/* The largest number of bits between the unit of a sum's terms and the sum of their absolute values. When it is at most
 * 24, every order of every sum is exact in float32, and the float step must equal this one everywhere (asserted). */
int32_t hec_bits_of_step(const hec_bits_step *step);
