/* Runs of a shard: a row of f/s numbers of each of the first matrices, then all of the last one's, which are neighbours.
 * O(size of the shard). */
#include "runtime/exec/model/expert_shard.h"

#include <string.h>

hec_model hec_model_of_shards(const hec_model *model, int32_t of) {
  HEC_ASSERT(of >= 1 && model->moe.d_ffn % of == 0);
  hec_model shards = *model;
  shards.moe.d_ffn /= of;
  return shards;
}

int32_t hec_expert_shard_runs(const hec_expert_shard *shard) {
  const hec_moe *moe = &shard->model->moe;
  return (moe->n_ffn_matrices - 1) * moe->d_model + 1;
}

hec_shard_run hec_expert_shard_run(const hec_expert_shard *shard, int32_t i) {
  const hec_moe *moe = &shard->model->moe;
  int64_t d = moe->d_model, f = moe->d_ffn, width = f / shard->of, rows = hec_expert_shard_runs(shard) - 1;
  if (i < rows)
    return (hec_shard_run){.whole = i * f + shard->member * width, .shard = i * width, .n = width};
  return (hec_shard_run){.whole = rows * f + shard->member * width * d, .shard = rows * width, .n = width * d};
}

void hec_expert_shard_take(const hec_expert_shard *shard, const float *whole, float *out) {
  for (int32_t i = 0, n = hec_expert_shard_runs(shard); i < n; i++) {
    hec_shard_run run = hec_expert_shard_run(shard, i);
    memcpy(out + run.shard, whole + run.whole, (size_t)run.n * sizeof *out);
  }
}
