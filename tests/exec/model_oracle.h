/* The model once more, forward only, in double, one token and one number at a time. The oracle of the float one, and what
 * gradients are differenced from. */
#pragma once
#include "runtime/exec/model/model.h"

typedef struct {
  const hec_model *model;
  const double *blocks;  /* [n_blocks][hec_model_block.size] */
  const double *experts; /* [n_blocks][E][hec_model_expert_size] */
  const hec_load *load;
  int32_t rank, tokens;
  /* Of a gate that chose (else NULL): the tokens of the assignments by expert, [n_blocks][tokens * top_k]; where to add
   * the probabilities of all tokens, [n_blocks][E]. */
  const int32_t *choices;
  double *probability_sums;
} hec_oracle;

void hec_oracle_forward(const hec_oracle *oracle, double *x); /* [T, d] in place, all blocks */
/* sum of dx * output, x kept. */
double hec_oracle_loss(const hec_oracle *oracle, const double *x, const float *dx);

/* A random small shape: 1..3 blocks (1 in exact mode), 2 or 3 matrices, shared experts, grouped heads, all masks. */
hec_model hec_oracle_random_model(uint64_t *random, bool exact);
/* Makes its attention s2: shards, a window of one or two blocks of at most block_max tokens, now and then dense layers. */
void hec_oracle_random_s2(uint64_t *random, int32_t block_max, hec_moe *moe);
/* Random counts per (block, rank, expert): about tokens * top_k a rank; some experts and ranks get none. */
hec_load hec_oracle_random_load(hec_arena *arena, uint64_t *random, const hec_model *model, int32_t n_ranks,
                                int32_t tokens);
