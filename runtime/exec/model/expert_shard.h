/* Shards of experts: what a rank of an expert-sharding group (runtime/plan/problem.h) keeps of an expert of width f. Member
 * m of s has columns m f/s .. (m+1) f/s - 1 of every matrix [d, f] and the same rows of the last one [f, d], packed as an
 * expert of width f/s. Sums over members of what shards make of a row are what the expert makes of it: the inner columns
 * are strangers to each other. s = 1: the expert itself. */
#pragma once
#include "runtime/exec/model/model.h"

typedef struct {
  const hec_model *model; /* of whole experts */
  int32_t member, of;     /* of: a divisor of d_ffn */
} hec_expert_shard;

/* The model with experts as wide as a shard: what experts compute with, and how large they are. */
hec_model hec_model_of_shards(const hec_model *model, int32_t of);

/* Numbers of a shard that stand together in the expert, too. */
typedef struct {
  int64_t whole, shard, n;
} hec_shard_run;
int32_t hec_expert_shard_runs(const hec_expert_shard *shard);
hec_shard_run hec_expert_shard_run(const hec_expert_shard *shard, int32_t i);

/* The shard of an array of the expert (parameters, gradients, moments). */
void hec_expert_shard_take(const hec_expert_shard *shard, const float *whole, float *out);
