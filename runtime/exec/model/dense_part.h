/* Parts of a block's dense parameters: what a rank of a tensor-parallel group (runtime/plan/problem.h) keeps. Member m of s has
 * heads m h/s .. (m+1) h/s - 1: these columns of Wq, Wk and Wv and rows of Wo, packed as a block of h/s heads. Norms,
 * gate and shared experts are whole on every rank. Sums over members of what their heads make of a row are what all
 * heads make of it. s = 1: the block itself. */
#pragma once
#include "runtime/exec/model/expert_shard.h"

typedef struct {
  const hec_model *model; /* of whole blocks */
  int32_t member, of;     /* of: a divisor of heads and kv heads */
} hec_dense_part;

/* The model with as many heads as a part, over the rows of all: what blocks compute with, and how large they are. */
hec_model hec_model_of_parts(const hec_model *model, int32_t of);

/* Numbers of a part that stand together in the block, too. */
int32_t hec_dense_part_runs(const hec_dense_part *part);
hec_shard_run hec_dense_part_run(const hec_dense_part *part, int32_t i);
/* The part of an array of the block (parameters, gradients, moments). */
void hec_dense_part_take(const hec_dense_part *part, const float *whole, float *out);
