/* What a step keeps in memory: a tiny model by hand, and what each part of a recipe and a layout must do. */
#include "models/training/memory.h"
#include "tests/support/test.h"
#include "tests/support/training_case.h"

/* 1 dense and 1 MoE layer, width 8, 2 heads of 4, 1 key head, dense FFN of 20. 4 experts of 6, top-2, 1 shared expert
 * of 10, vocabulary 100. Sequences of 16. So 16 tokens and 32 assignments.
 *
 *   attention 8 x 8 + 2 (8 x 4) + 8 x 8 = 192, norms 16, gate 32, shared 3 x 8 x 10 = 240, dense FFN 3 x 8 x 20 = 480
 *   dense layer 688, MoE layer 480 and 3 x 8 x 6 = 144 for each expert, embedding 800 */
HEC_TEST_ARENA(arena)

static hec_training training(const char *layout, int32_t gpus, const char *recipe) {
  return hec_test_training(&hec_test_tiny_moe, layout, gpus, 0, recipe, &arena);
}

/* ---- State ---- */

/* 8 GPUs, ep = 2: dp = 8, edp = 4. 1600 dense parameters, 400 of experts: 2,000 in all, a share of 200 + 100 = 300. */
static const struct {
  const char *recipe;
  double parameters, gradients, optimizer;
} levels[] = {
    {"zero=0 grads=fp32", 4000, 8000, 24000}, {"zero=1 grads=fp32", 4000, 8000, 3600},
    {"zero=2 grads=fp32", 4000, 1200, 3600},  {"zero=3 grads=fp32", 600, 1200, 3600},
    {"zero=1 grads=bf16", 4000, 4000, 3600},
};

HEC_TEST_ROWS(zero_by_hand, levels) {
  const hec_training t = training("ep=2", 8, levels[_i].recipe);
  const hec_state_bytes b = hec_state_bytes_of(&t, 1600, 400);
  ck_near(b.parameters, levels[_i].parameters);
  ck_near(b.gradients, levels[_i].gradients);
  ck_near(b.optimizer, levels[_i].optimizer);
}

/* Context-parallel ranks hold the same dense part: they share its optimizer too. Experts: edp = 8 x 2 / 2. */
HEC_TEST(context_parallel_ranks_share_the_optimizer) {
  const hec_training t = training("cp=2 ep=2", 16, "zero=1");
  ck_near(hec_state_bytes_of(&t, 1600, 800).optimizer, 12 * (1600.0 / 16 + 800.0 / 8));
}

/* ---- Activations ---- */

/* Of the 16 tokens, bytes:
 *   stream 2 x 8 x 16 = 256, twice; norms 2 x 256 = 512
 *   attention 16 x (2 x (2 x 8 + 2 x 4) + 4 x 2) = 16 x 56 = 896
 *   dense FFN 16 x 6 x 20 = 1920; shared expert 16 x 6 x 10 = 960
 *   experts 32 rows x (2 x 8 + 4 x 6) = 1280, after the activation 32 x 2 x 6 = 384; router 8 x 4 x 16 = 512 */
static const struct {
  const char *recipe;
  hec_layer_kind kind;
  double activations, recomputed;
} kept[] = {
    {"recompute=none", HEC_LAYER_DENSE, 512 + 512 + 896 + 1920, 0},
    {"recompute=mlp", HEC_LAYER_DENSE, 512 + 512 + 896, 1920},
    {"recompute=attention", HEC_LAYER_DENSE, 512 + 512 + 1920, 896},
    {"recompute=act", HEC_LAYER_DENSE, 512 + 512 + 896 + 1920, 0},
    {"recompute=full", HEC_LAYER_DENSE, 256, 256 + 512 + 896 + 1920},
    {"recompute=none", HEC_LAYER_MOE, 512 + 512 + 896 + 960 + 1280 + 384 + 512, 0},
    {"recompute=norm+act", HEC_LAYER_MOE, 512 + 896 + 960 + 1280 + 512, 512 + 384},
    {"recompute=mlp", HEC_LAYER_MOE, 512 + 512 + 896 + 960 + 1280 + 384 + 512, 0},
    {"recompute=moe", HEC_LAYER_MOE, 512 + 512 + 896, 960 + 1280 + 384 + 512},
    {"recompute=full", HEC_LAYER_MOE, 256, 256 + 512 + 896 + 960 + 1280 + 384 + 512},
    /* fp8: inputs of products have a byte; the projection keeps its own of 16 x 8 */
    {"precision=fp8", HEC_LAYER_MOE, 512 + 256 + 896 + 128 + 800 + 32 * (8 + 24) + 192 + 512, 0},
};

HEC_TEST_ROWS(activations_by_hand, kept) {
  const hec_training t = training("", 1, kept[_i].recipe);
  const hec_layer_bytes b = hec_layer_bytes_of(&t, kept[_i].kind, NULL);
  ck_near(b.activations, kept[_i].activations);
  ck_near(b.recomputed, kept[_i].recomputed);
}

/* Working: rows permuted and sorted, 2 x 2 x 8 x 32 = 1024; sent and received, as much again. Gradients inside of the experts
 * 2 x 3 x 6 x 32 = 1152, of the dense FFN 2 x 3 x 20 x 16 = 1920. The whole sequence twice under tp, 4 x 8 x 16 = 512. */
HEC_TEST(working_by_hand) {
  const hec_training alone = training("", 1, ""), sends = training("ep=2", 2, ""), cut = training("tp=2", 2, "");
  ck_near(hec_layer_bytes_of(&alone, HEC_LAYER_MOE, NULL).working, 1024 + 1152);
  ck_near(hec_layer_bytes_of(&sends, HEC_LAYER_MOE, NULL).working, 2048 + 1152);
  ck_near(hec_layer_bytes_of(&alone, HEC_LAYER_DENSE, NULL).working, 1920);
  ck_near(hec_layer_bytes_of(&cut, HEC_LAYER_DENSE, NULL).working, 512 + 960);
}

/* Without expert parallelism the two ranks of etp gather their 32 tokens, whatever the dispatcher: 2 x 2 x 8 x 32 =
 * 1024. Of 64 rows permuted and sorted 2048, and inside of half an expert 2 x 3 x 3 x 64 = 1152. */
HEC_TEST(working_of_cut_experts) {
  const hec_training sends = training("etp=2", 2, "dispatcher=alltoall"),
                     gathers = training("etp=2", 2, "dispatcher=allgather");
  ck_near(hec_layer_bytes_of(&sends, HEC_LAYER_MOE, NULL).working, 2048 + 1024 + 1152);
  ck_near(hec_layer_bytes_of(&gathers, HEC_LAYER_MOE, NULL).working, 2048 + 1024 + 1152);
}

/* Head: (2 + 2) x 8 x 16 = 512; logits 2 x 100 x 16 = 3200, and their gradient; weight gradient 2 x 800. Halved by tp. */
HEC_TEST(head_by_hand) {
  const hec_training one = training("", 1, ""), two = training("tp=2", 2, "");
  hec_layer_bytes b = hec_layer_bytes_of(&one, HEC_LAYER_HEAD, NULL);
  ck_near(b.activations, 512);
  ck_near(b.logits, 3200);
  ck_near(b.working, 3200 + 1600);
  b = hec_layer_bytes_of(&two, HEC_LAYER_HEAD, NULL);
  ck_near(b.activations, 256);
  ck_near(b.logits, 1600);
  ck_near(b.working, 1600 + 800);
}

/* Products of a MoE layer in bf16: attention 16 x (8 + 8) + 16 x (16 + 8) = 640, shared 256 + 16 x 30 = 736. And
 * experts 32 x (16 + 18) = 1088 elements. */
HEC_TEST(weight_gradients_by_hand) {
  const hec_training t = training("", 1, "");
  ck_near(hec_layer_bytes_of(&t, HEC_LAYER_MOE, NULL).weight, 2 * (640 + 736 + 1088));
}

/* Standing: one weight gradient of each shape: 688 + 480 - 192 of attention + 144 of an expert. FSDP on 8 ranks: two layers and a
 * gradient of 688 and of two experts, embedding and head. */
HEC_TEST(standing_by_hand) {
  const hec_device_layers all = {.dense = true, .moe = true, .embeddings = 2};
  hec_training t = training("ep=2", 8, "");
  ck_near(hec_standing_bytes_of(&t, &all), 2 * (688 + 480 - 192 + 144));
  t.recipe.zero = 3;
  ck_near(hec_standing_bytes_of(&t, &all), 6 * (688 + 288) + 2 * 1600);
}

/* The busiest rank's rows count: given one by one, or as a share. */
HEC_TEST(loads) {
  const hec_training t = training("ep=2", 2, "");
  const int32_t rows[2] = {40, 24};
  const hec_layer_load by_rows = {.rows = rows, .n = 2, .received = 2}, by_share = {.received = 2};
  const double even = hec_layer_bytes_of(&t, HEC_LAYER_MOE, NULL).activations;
  ck_near(hec_layer_bytes_of(&t, HEC_LAYER_MOE, &by_rows).activations, even + 1280 + 384);
  ck_near(hec_layer_bytes_of(&t, HEC_LAYER_MOE, &by_share).activations, even + 1280 + 384);
  ck_near(hec_layer_bytes_of(&t, HEC_LAYER_DENSE, &by_share).activations, 3840);
}

/* A dense layer is about 34 s b h bytes (arXiv 2205.05198). It has a plain FFN of 4 h, all heads, dropout masks of 2 s
 * b h. */
HEC_TEST(a_dense_layer_as_published) {
  hec_moe plain = hec_test_tiny_moe;
  plain.d_model = 64;
  plain.n_kv_heads = plain.n_heads = 2;
  plain.d_head = 32;
  plain.d_ffn_dense = 256;
  plain.n_ffn_matrices = 2;
  hec_training t = training("", 1, "");
  t.moe = &plain;
  double token = hec_layer_bytes_of(&t, HEC_LAYER_DENSE, NULL).activations / 16;
  ck_assert_double_eq_tol(token / 64, 34 - 2, 0.2);
}
