/* Runs of a part: a row of its columns of each of Wq, Wk, Wv. Then its rows of Wo, which are neighbours. Then all that
 * is whole. O(size of the part). */
#include "runtime/exec/model/dense_part.h"

#include "runtime/exec/model/model_parts.h"

#include <string.h>

hec_model hec_model_of_parts(const hec_model *model, int32_t of) {
  HEC_ASSERT(of >= 1 && model->moe.n_heads % of == 0 && model->moe.n_kv_heads % of == 0);
  hec_model parts = *model;
  parts.moe.n_heads /= of;
  parts.moe.n_kv_heads /= of;
  parts.parts = of;
  return parts;
}

int32_t hec_dense_part_runs(const hec_dense_part *part) {
  return 3 * part->model->moe.d_model + 2;
}

hec_shard_run hec_dense_part_run(const hec_dense_part *part, int32_t i) {
  hec_model cut = hec_model_of_parts(part->model, part->of);
  hec_block_layout from = hec_model_block(part->model), to = hec_model_block(&cut);
  int64_t d = part->model->moe.d_model, m = part->member;
  const int64_t whole_at[] = {from.q, from.k, from.v, from.o, from.norm1};
  const int64_t part_at[] = {to.q, to.k, to.v, to.o, to.norm1, to.size};
  int32_t matrix = i < 3 * d ? (int32_t)(i / d) : (int32_t)(i - 3 * d) + 3;
  int64_t n = part_at[matrix + 1] - part_at[matrix];
  if (matrix == 4)
    return (hec_shard_run){.whole = from.norm1, .shard = to.norm1, .n = n};
  if (matrix == 3)
    return (hec_shard_run){.whole = from.o + m * n, .shard = to.o, .n = n};
  int64_t width = n / d, row = i % d;
  return (hec_shard_run){
      .whole = whole_at[matrix] + (row * part->of + m) * width, .shard = part_at[matrix] + row * width, .n = width};
}

void hec_dense_part_take(const hec_dense_part *part, const float *whole, float *out) {
  for (int32_t i = 0, n = hec_dense_part_runs(part); i < n; i++) {
    hec_shard_run run = hec_dense_part_run(part, i);
    memcpy(out + run.shard, whole + run.whole, (size_t)run.n * sizeof *out);
  }
}
