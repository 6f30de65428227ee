/* See training_case.h. */
#include "tests/support/training_case.h"

const hec_moe hec_test_tiny_moe = {.n_layers = 2,
                                   .n_moe_layers = 1,
                                   .d_model = 8,
                                   .d_ffn = 6,
                                   .d_ffn_dense = 20,
                                   .n_ffn_matrices = 3,
                                   .n_experts = 4,
                                   .top_k = 2,
                                   .n_shared_experts = 1,
                                   .d_ffn_shared = 10,
                                   .n_heads = 2,
                                   .n_kv_heads = 1,
                                   .d_head = 4,
                                   .vocabulary = 100,
                                   .seq_len = 16,
                                   .dtype_bytes = 2,
                                   .attention = HEC_ATTENTION_CAUSAL};

hec_training hec_test_training(const hec_moe *moe, const char *layout, int32_t gpus, int32_t batch, const char *recipe,
                               hec_arena *arena) {
  const hec_gpu *gpu;
  hec_training t = {.moe = moe,
                    .seq = moe->seq_len,
                    .global_batch = batch > 0 ? batch : 1024,
                    .micro_batch = 1,
                    .constants = hec_step_constants_fitted,
                    .recipe = hec_recipe_default()};
  ck_ok(hec_gpu_laws_load("h100", arena, &gpu, &t.laws));
  ck_ok(hec_layout_read(layout, &t.layout));
  ck_ok(hec_layout_fit(&t.layout, gpus, moe));
  ck_ok(hec_recipe_read(recipe, &t.recipe));
  if (batch > 0)
    ck_ok(hec_training_check(&t));
  return t;
}
