/* Compute and memory closed forms: values by hand. */
#include "models/compute_cost.h"
#include "models/memory_cost.h"
#include "tests/support/test.h"

static const hec_device device = {.flops = 1000,
                                  .flops_efficiency = 0.5,
                                  .hbm_bandwidth = 200,
                                  .gemm_a_s = 0.5,
                                  .gemm_c_s = 0.25,
                                  .gemm_tile = 8,
                                  .launch_s = 0.125,
                                  .speed = 1};

HEC_TEST(work_law) {
  hec_work_shape shape = {.flops_per_row = 50, .weight_bytes = 1000, .bytes_per_row = 4, .n_gemms = 2};
  ck_near(hec_work_s(&device, &shape, 0), 0);
  /* 1 row is a tile of 8: 1 + 8*50/500 = 1.8 s; streaming 0.5 + 1000/200 = 5.5 s wins; element-wise 4/200 */
  ck_near(hec_work_s(&device, &shape, 1), 5.5 + 0.02);
  ck_near(hec_work_s(&device, &shape, 8), 5.5 + 0.16);
  /* 41 rows are 48: 1 + 4.8 s; 48 rows the same, 49 rows another tile */
  ck_near(hec_work_s(&device, &shape, 41), 5.8 + 0.82);
  ck_near(hec_work_s(&device, &shape, 48), 5.8 + 0.96);
  ck_near(hec_work_s(&device, &shape, 49), 6.6 + 0.98);
  hec_device slow = device;
  slow.speed = 0.5;
  ck_near(hec_work_s(&slow, &shape, 48), 1 + 9.6 + 0.96);
  shape.exact = true;
  ck_near(hec_work_s(&device, &shape, 41), 4.1 + 0.82);
  ck_near(hec_work_s(&device, &shape, 0.5), 0.05 + 0.01);
  ck_near(hec_local_s(&device, HEC_CURVE_PERMUTE, false, 100), 0.125 + 0.5);
  ck_near(hec_local_s(&device, HEC_CURVE_PERMUTE, false, 0), 0);
}

/* Time never falls with rows, and the exact form is a lower bound. */
HEC_TEST(work_laws) {
  uint64_t random = 9;
  for (int trial = 0; trial < 2000; trial++) {
    hec_work_shape shape = {.flops_per_row = 100 * hec_test_uniform(&random),
                            .weight_bytes = 1000 * hec_test_uniform(&random),
                            .bytes_per_row = 10 * hec_test_uniform(&random),
                            .n_gemms = (int32_t)hec_test_below(&random, 4)};
    hec_work_shape exact = shape;
    exact.exact = true;
    double rows = (double)hec_test_below(&random, 100), more = rows + (double)hec_test_below(&random, 20);
    ck_assert(hec_work_s(&device, &shape, rows) <= hec_work_s(&device, &shape, more));
    ck_assert(hec_work_s(&device, &exact, rows) <= hec_work_s(&device, &shape, rows) * (1 + 1e-15));
    hec_work_shape twice = hec_work_backward(shape);
    ck_near(hec_work_s(&device, &twice, rows), 2 * hec_work_s(&device, &shape, rows));
  }
}

static hec_moe shape_of(void) {
  return (hec_moe){.n_layers = 5,
                   .n_moe_layers = 3,
                   .d_model = 64,
                   .d_ffn = 96,
                   .d_ffn_dense = 160,
                   .n_ffn_matrices = 2,
                   .n_experts = 16,
                   .top_k = 2,
                   .n_heads = 8,
                   .n_kv_heads = 8,
                   .d_head = 8,
                   .seq_len = 100,
                   .dtype_bytes = 2,
                   .grad_bytes = 4,
                   .optimizer_bytes = 12,
                   .attention = HEC_ATTENTION_FULL,
                   .fused_attention = true,
                   .nonmoe_scale = 1};
}

HEC_TEST(flops) {
  hec_moe moe = shape_of();
  double d = 64, s = 100;
  ck_near(hec_work_attention(&moe).flops_per_row, 8 * d * d + 4 * s * d);
  ck_near(hec_work_attention(&moe).weight_bytes, 4 * d * d * 2);
  ck_near(hec_work_attention(&moe).bytes_per_row, (10 * d + 4 * d) * 2);
  moe.fused_attention = false;
  ck_near(hec_work_attention(&moe).bytes_per_row, (14 * d + 6 * 8 * s) * 2);
  moe.attention = HEC_ATTENTION_CAUSAL;
  ck_near(hec_work_attention(&moe).flops_per_row, 8 * d * d + 2 * s * d);
  moe.attention = HEC_ATTENTION_S2;
  moe.s2 = (hec_s2){.shards = 8, .local = 10, .block = 10, .dense = 5};
  /* Ten blocks of ten. In its own block a query sees 5 keys (its own counts half). Of the 45 pairs of blocks apart every
   * one is in the shard of one of the eight heads. */
  double keys = 5 + 45.0 / 8;
  ck_near(hec_work_dense_attention(&moe).flops_per_row, 8 * d * d + 2 * s * d);
  ck_near(hec_work_attention(&moe).flops_per_row, 8 * d * d + 4 * keys * d);
  moe.n_kv_heads = 2; /* k and v shrink to a quarter */
  ck_near(hec_work_attention(&moe).flops_per_row, 5 * d * d + 4 * keys * d);
  double unscaled = hec_work_attention(&moe).bytes_per_row;
  moe.nonmoe_scale = 3;
  ck_near(hec_work_attention(&moe).flops_per_row, 3 * (5 * d * d + 4 * keys * d));
  ck_near(hec_work_attention(&moe).bytes_per_row, 3 * unscaled);
  moe.nonmoe_scale = 1;
  ck_near(hec_work_expert(&moe).flops_per_row, 2 * 2 * d * 96);
  ck_near(hec_work_expert(&moe).weight_bytes, 2 * d * 96 * 2);
  ck_near(hec_work_expert(&moe).bytes_per_row, 2 * 96 * 2);
  moe.n_ffn_matrices = 3;
  ck_near(hec_work_expert(&moe).flops_per_row, 2 * 3 * d * 96);
  ck_assert_int_eq(hec_work_expert(&moe).n_gemms, 3);
  ck_near(hec_work_shared(&moe).flops_per_row, 0);
  moe.n_shared_experts = 2;
  moe.d_ffn_shared = 32;
  ck_near(hec_work_shared(&moe).flops_per_row, 2 * 2 * 3 * d * 32);
  ck_near(hec_work_gate(&moe).flops_per_row, 2 * d * 16);
  double attention = hec_work_attention(&moe).flops_per_row;
  ck_near(hec_work_dense_blocks(&moe).flops_per_row, 2 * (attention + 2 * 3 * d * 160));
  moe.s2.dense = 2; /* of five layers the first, third and fifth */
  ck_near(hec_work_dense_blocks(&moe).flops_per_row,
          attention + hec_work_dense_attention(&moe).flops_per_row + 2 * 2 * 3 * d * 160);
  ck_assert_int_eq(hec_work_dense_blocks(&moe).n_gemms, 2 * (4 + 3));
  moe.n_moe_layers = 5;
  hec_work_shape none = hec_work_dense_blocks(&moe), no_head = hec_work_head(&moe);
  ck_near(hec_work_s(&device, &none, 100), 0);
  ck_near(hec_work_s(&device, &no_head, 100), 0);
  moe.vocabulary = 1000;
  ck_near(hec_work_head(&moe).flops_per_row, 2 * d * 1000);
}

/* Overlap degree of the attention FLOPs alone: the sanity table of the FSSDP reference, 8192 and 16384 tokens a device.
 */
HEC_TEST(overlap_degree) {
  static const struct {
    const char *model;
    double a, b;
  } rows[] = {{"gpt-moe-s", 5.95, 9.55}, {"gpt-moe-l", 4.25, 6.85}, {"bert-moe", 3.2, 5.1}};
  HEC_SCOPED(hec_arena) arena = {0};
  hec_cluster v100, a100;
  ck_ok(hec_cluster_load("4x8 nvlink=150G nic=12.5G flops=125T eff=0.32 mem=32G", &arena, &v100));
  ck_ok(hec_cluster_load("4x8 nvlink=300G nic=50G flops=312T eff=0.32 mem=40G", &arena, &a100));
  for (int i = 0; i < 3; i++) {
    hec_moe moe;
    ck_ok(hec_moe_load(rows[i].model, &moe));
    double flop = 8192 * hec_work_attention(&moe).flops_per_row, expert = 2 * hec_moe_expert_params(&moe);
    double rate_a = v100.devices[0].flops * v100.devices[0].flops_efficiency;
    double rate_b = a100.devices[0].flops * a100.devices[0].flops_efficiency;
    ck_assert_double_eq_tol(flop / rate_a * hec_cluster_node_bandwidth(&v100, true) / expert, rows[i].a, 0.06);
    ck_assert_double_eq_tol(flop / rate_b * hec_cluster_node_bandwidth(&a100, true) / expert, rows[i].b, 0.06);
  }
}

HEC_TEST(slowest_device_sets_the_window) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_cluster cluster;
  hec_moe moe = shape_of();
  ck_ok(hec_cluster_load("1x4 nvlink=1G flops=1M mem=1G slow=2:0.25", &arena, &cluster));
  hec_work_shape attention = hec_work_attention(&moe), gate = hec_work_gate(&moe);
  double fast = hec_work_s(&cluster.devices[0], &attention, 50) + hec_work_s(&cluster.devices[0], &gate, 50);
  double slow = hec_work_s(&cluster.devices[2], &attention, 50) + hec_work_s(&cluster.devices[2], &gate, 50);
  ck_assert(slow > 2 * fast);
  ck_near(hec_nonmoe_forward_s(&moe, attention, &cluster, 2, 50), fast);
  ck_near(hec_nonmoe_forward_s(&moe, attention, &cluster, 3, 50), slow);
}

HEC_TEST(memory) {
  hec_moe moe = shape_of();
  hec_memory_cost cost = hec_memory_cost_of(&moe, 10, true);
  double expert = 2 * 64 * 96, attention = 4 * 64 * 64 + 2 * 64;
  double dense = 3 * (attention + 64 * 16) + 2 * (attention + 2 * 64 * 160);
  ck_near(cost.expert_param, 2 * expert);
  ck_near(cost.expert_grad, 4 * expert);
  ck_near(cost.expert_optimizer, 12 * expert);
  ck_near(cost.dense_param, 2 * dense);
  ck_near(cost.dense_grad, 4 * dense);
  ck_near(cost.dense_optimizer, 12 * dense);
  ck_near(cost.token, 128);
  /* per token: 2 bytes * (4 + 4) * 64, masks 128, gate 64; FFN inner 2 * 160 * 2; expert row (64 + 2 * 96) * 2 */
  ck_near(cost.activation_layer, 10 * (1024 + 128 + 64));
  ck_near(cost.activation_rest, 10 * 2 * (1024 + 128 + 640));
  ck_near(cost.expert_row, 512);
  moe.fused_attention = false; /* scores: 8 heads * 100 keys * 5 bytes */
  ck_near(hec_memory_cost_of(&moe, 10, true).activation_layer, 10 * (1024 + 128 + 64 + 4000));
  moe.attention = HEC_ATTENTION_S2; /* five layers, the last three MoE; dense: the last, the third, the first */
  moe.s2 = (hec_s2){.shards = 8, .local = 10, .block = 10, .dense = 2};
  double kept_s2 = 8 * (5 + 45.0 / 8) * 5, kept_causal = 8 * 50.0 * 5;
  ck_near(hec_memory_cost_of(&moe, 10, true).activation_layer,
          10 * (1024 + 128 + 64 + (kept_s2 + 2 * kept_causal) / 3));
  ck_near(hec_memory_cost_of(&moe, 10, true).activation_rest, 10 * (2 * (1024 + 128 + 640) + kept_s2 + kept_causal));
  moe.attention = HEC_ATTENTION_FULL;
  moe.vocabulary = 1000;
  double head = 10 * (4 * 64 + 4000);
  ck_near(hec_memory_cost_of(&moe, 10, true).activation_rest, 10 * 2 * (1024 + 128 + 640 + 4000) + head);
  ck_near(hec_memory_cost_of(&moe, 10, true).dense_param, 2 * (dense + 128000));
  moe.recompute = true;
  cost = hec_memory_cost_of(&moe, 10, true);
  ck_near(cost.activation_layer, 10 * 128);
  ck_near(cost.activation_rest, 10 * 2 * 128 + head);
  ck_near(cost.expert_row, 128);
  cost = hec_memory_cost_of(&moe, 10, false);
  ck_assert(cost.expert_grad == 0 && cost.expert_optimizer == 0 && cost.dense_grad == 0 && cost.dense_optimizer == 0);
  ck_assert(cost.activation_rest == 0 && cost.returned_row == 0); /* nothing is kept for a backward */
  ck_near(cost.activation_layer, hec_memory_cost_of(&moe, 10, true).activation_layer); /* while the layer is computed */
  ck_near(cost.expert_param, 2 * expert);
}

/* 16 bytes a parameter in all, 2 + 2 + 12, and with recomputation never more activations. */
HEC_TEST(memory_of_presets) {
  static const char *const models[] = {"gpt-moe-s",    "gpt-moe-l",   "bert-moe-deep",
                                       "mixtral-8x7b", "deepseek-v3", "tiny"};
  for (int i = 0; i < 6; i++) {
    hec_moe moe;
    ck_ok(hec_moe_load(models[i], &moe));
    hec_memory_cost cost = hec_memory_cost_of(&moe, moe.tokens_per_rank, true);
    ck_near(cost.expert_param + cost.expert_grad + cost.expert_optimizer, 16 * hec_moe_expert_params(&moe));
    ck_near(cost.dense_param + cost.dense_grad + cost.dense_optimizer, 16 / (double)moe.dtype_bytes * cost.dense_param);
    moe.recompute = true;
    hec_memory_cost lower = hec_memory_cost_of(&moe, moe.tokens_per_rank, true);
    ck_assert(lower.activation_layer < cost.activation_layer && lower.activation_rest <= cost.activation_rest);
    ck_assert(lower.expert_row < cost.expert_row && lower.dense_param == cost.dense_param);
  }
}
