/* Layouts and recipes as text, and what a step costs: sizes by hand, laws of scale, and what every term must do. */
#include "models/training/dispatcher.h"
#include "tests/support/test.h"
#include "tests/support/training_case.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static hec_moe moe;

static void fit(const char *text, int32_t gpus, const char *model, hec_layout *layout) {
  ck_ok(hec_moe_load(model, &moe));
  ck_ok(hec_layout_read(text, layout));
  ck_ok(hec_layout_fit(layout, gpus, &moe));
}

/* DeepSeek-V3 as published: 16 stages, 64-way expert parallelism on 2,048 GPUs. */
HEC_TEST(folded_sizes) {
  hec_layout l;
  fit("pp=16 ep=64", 2048, "deepseek-v3", &l);
  ck_assert_int_eq(l.dp, 128);
  ck_assert_int_eq(l.edp, 2);
  fit("tp=2 cp=2 pp=4 vpp=2 ep=8 etp=1", 256, "mixtral-8x22b", &l);
  ck_assert_int_eq(l.dp, 16);
  ck_assert_int_eq(l.edp, 8);
}

HEC_TEST(layers_of_parts) {
  hec_layout l;
  int32_t first, all = 0;
  fit("pp=4 vpp=2", 4, "deepseek-v3", &l); /* 61 layers in 8 parts: five of 8, three of 7 */
  for (int32_t part = 0; part < 8; part++) {
    ck_assert_int_eq(hec_layout_layers(&l, &moe, part, &first), part < 5 ? 8 : 7);
    ck_assert_int_eq(first, all);
    all += part < 5 ? 8 : 7;
  }
  fit("pp=4:16,15,15,15", 4, "deepseek-v3", &l);
  ck_assert_int_eq(hec_layout_layers(&l, &moe, 0, &first), 16);
  ck_assert_int_eq(hec_layout_layers(&l, &moe, 3, &first), 15);
  ck_assert_int_eq(first, 46);
}

/* What is written reads back as the same layout. */
HEC_TEST(runs_of_equal_stages) {
  hec_layout l, again;
  HEC_SCOPED(hec_text) text = {0};
  fit("pp=8:8x6,7,6 ep=2", 16, "deepseek-v3", &l);
  ck_assert_int_eq(l.n_given, 8);
  ck_assert_int_eq(l.given[5], 8);
  ck_assert_int_eq(l.given[7], 6);
  hec_layout_write_sizes(&l, &text);
  ck_assert_str_eq(text.data, "tp=1 cp=1 pp=8:8x6,7,6 vpp=1 ep=2 etp=1");
  fit(text.data, 16, "deepseek-v3", &again);
  ck_assert_mem_eq(&l, &again, sizeof l);
}

static const struct {
  const char *text;
  int32_t gpus;
  const char *says;
} bad_layouts[] = {
    {"tp=3", 256, "tp"},
    {"pp=3", 256, "pp=2 would fit"},
    {"ep=48", 256, "ep"},
    {"ep=16", 256, "ep=8 would fit"},
    {"ep=512", 256, "ep"},
    {"pp=128", 256, "pp=56 vpp=1 would fit"},
    {"pp=4:14,14,14,13", 256, "expected 56"},
    {"pp=4:14x5", 256, "of 4 stages"},
    {"pp=4:14x", 256, "expected layers"},
    {"pp=4:14x0,56", 256, "expected layers"},
    {"pp=4:14x513", 256, "at most 512"},
    {"pp=2:56", 256, "expected layers of 2 stages"},
    {"tp=2 tp=2", 256, "twice"},
    {"tp=0", 256, "whole number"},
    {"tp=2x", 256, "whole number"},
    {"dp=2", 256, "dp and edp follow"},
    {"pp=2:", 256, "layers of at most"},
};

HEC_TEST_ROWS(bad_layout, bad_layouts) {
  hec_layout l;
  ck_ok(hec_moe_load("mixtral-8x22b", &moe));
  hec_status status = hec_layout_read(bad_layouts[_i].text, &l);
  if (status == HEC_OK)
    status = hec_layout_fit(&l, bad_layouts[_i].gpus, &moe);
  ck_assert_int_eq(status, HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), bad_layouts[_i].says), "%s: %s", bad_layouts[_i].text, hec_last_error());
}

/* A rank's experts are on the stack of who prices them. */
HEC_TEST(too_many_experts_on_a_rank) {
  hec_layout l;
  ck_ok(hec_moe_load("mixtral-8x22b", &moe));
  moe.n_experts = 2 * HEC_RANK_EXPERTS_MAX;
  ck_ok(hec_layout_read("ep=1", &l));
  ck_refused(hec_layout_fit(&l, 8, &moe), "on a rank");
  ck_ok(hec_layout_read("ep=2", &l));
  ck_ok(hec_layout_fit(&l, 8, &moe));
}

HEC_TEST(recipe_as_text) {
  hec_recipe r = hec_recipe_default();
  HEC_SCOPED(hec_text) all = {0}, assumed = {0};
  ck_ok(hec_recipe_read("precision=mxfp8 recompute=norm+act zero=3", &r));
  ck_assert_int_eq(r.precision, HEC_PRECISION_MXFP8);
  ck_assert_int_eq(r.recompute, HEC_RECOMPUTE_NORM | HEC_RECOMPUTE_ACT);
  hec_recipe_write(&r, &all);
  hec_recipe_assumed(&r, &assumed);
  ck_assert_str_eq(
      all.data,
      "precision=mxfp8 dispatcher=alltoall dispatch=bf16 overlap=off graph=none fused=off recompute=norm+act zero=3 "
      "grads=bf16 dp-overlap=on head=last fabric=infiniband");
  ck_assert_str_eq(assumed.data, "dispatcher=alltoall dispatch=bf16 overlap=off graph=none fused=off grads=bf16 "
                                 "dp-overlap=on head=last fabric=infiniband");
  ck_assert_int_eq(hec_recipe_read("zero=4", &r), HEC_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "0, 1, 2, 3"));
  ck_assert_int_eq(hec_recipe_read("speed=9", &r), HEC_BAD_INPUT);
  ck_refused(hec_recipe_read("precision=bf16 precision=fp8", &r), "expected precision once, found it twice");
  ck_refused(hec_recipe_read("recompute=none+norm", &r), "expected none alone");
  ck_refused(hec_recipe_read("recompute=norm+none", &r), "expected none alone");
  ck_assert_int_eq(r.zero, 3); /* unchanged by what failed */
  ck_assert_int_eq(r.precision, HEC_PRECISION_MXFP8);
  ck_ok(hec_recipe_read("precision=fp8", &r)); /* another text may change a part */
  ck_ok(hec_recipe_read("recompute=none", &r));
  ck_assert_int_eq(r.recompute, 0);
}

static hec_training training(const char *layout, int32_t gpus, const char *model, const char *recipe) {
  ck_ok(hec_moe_load(model, &moe));
  return hec_test_training(&moe, layout, gpus, 0, recipe, &arena);
}

/* Qwen3-235B-A22B: 148.1 GFLOP per token published by Megatron-Bridge at 4,096 tokens, 739 at 131,072. */
HEC_TEST(flops_per_token) {
  hec_training t = training("pp=2", 16, "qwen3-235b-a22b", "");
  ck_assert_double_eq_tol(hec_training_flops_per_token(&t, 0), 148.1e9, 1e9);
  t.seq = 131072;
  ck_assert_double_eq_tol(hec_training_flops_per_token(&t, 0), 735e9, 4e9);
}

/* GPT-OSS-120B: 18 of its 36 blocks see 128 keys. A layer takes the mean of both kinds, and what windows save is counted in no
 * FLOP: of 4,096 tokens, keys beyond 128 in 64 heads of 64. A window of the whole sequence is none. */
HEC_TEST(windows_take_turns) {
  static const char *const kinds[] = {"causal", "window:local=128", "window:local=128,dense=2", "window:local=4096"};
  double seconds[4][2], flops[4];
  for (int32_t k = 0; k < 4; k++) {
    hec_training t = training("ep=8", 8, "gpt-oss-120b", "");
    ck_assert_ptr_null(hec_attention_read(kinds[k], &moe.attention, &moe.s2));
    for (int32_t backward = 0; backward < 2; backward++)
      seconds[k][backward] = hec_test_pass(&t, HEC_LAYER_MOE, NULL, backward).compute_s;
    flops[k] = hec_training_flops_per_token(&t, 0);
  }
  for (int32_t backward = 0; backward < 2; backward++) {
    ck_assert_double_lt(seconds[1][backward], seconds[0][backward]);
    ck_near(seconds[2][backward], (seconds[0][backward] + seconds[1][backward]) / 2);
    ck_near(seconds[3][backward], seconds[0][backward]);
  }
  double pairs = 128.0 * 129 / 2 + (4096.0 - 128) * 128;
  ck_near(flops[0] - flops[2], 18 * 12 * (2048 + 0.5 - pairs / 4096) * 64 * 64);
  ck_near(flops[3], flops[0]);
}

/* Mixtral-8x22B: 56 layers, top-2 of experts of 3 matrices of 6,144 x 16,384. A quarter of the assignments is dropped. */
HEC_TEST(flops_of_what_is_computed) {
  hec_training t = training("ep=8", 8, "mixtral-8x22b", "");
  double dropped = 0.25 * 6 * 56 * 2 * 3.0 * 6144 * 16384;
  ck_near(hec_training_flops_per_token(&t, 0) - hec_training_flops_per_token(&t, 0.25), dropped);
}

HEC_TEST(micro_batches) {
  hec_training t = training("pp=2 ep=8", 64, "mixtral-8x22b", "");
  ck_assert_int_eq(hec_training_micro_batches(&t), 32); /* 1,024 sequences over 32 data-parallel ranks */
  ck_ok(hec_training_check(&t));
  t.global_batch = 1000;
  ck_assert_int_eq(hec_training_check(&t), HEC_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "1024 would fit"));
}

static double layer_s(const hec_training *t, bool backward) {
  hec_layer_pass pass = hec_test_pass(t, HEC_LAYER_MOE, NULL, backward);
  return hec_layer_pass_s(t, &pass);
}

/* What each part of a recipe does to a layer: the sign is certain, whatever the constants are. */
static const struct {
  const char *base, *change;
  int sign; /* of the change in time */
} effects[] = {
    {"graph=full", "precision=fp8", -1},     {"graph=full", "recompute=full", 1},
    {"graph=full", "recompute=norm+act", 1}, {"graph=full", "overlap=on", -1},
    {"graph=full", "fused=on", -1},          {"graph=full dispatcher=allgather", "dispatcher=alltoall", -1},
};

HEC_TEST_ROWS(recipe_effect, effects) {
  hec_training t = training("ep=8", 64, "mixtral-8x22b", effects[_i].base);
  double base_s = layer_s(&t, true);
  ck_ok(hec_recipe_read(effects[_i].change, &t.recipe));
  double change_s = layer_s(&t, true) - base_s;
  ck_assert_msg(change_s * effects[_i].sign > 0, "%s: %g s", effects[_i].change, change_s);
}

/* A layer of few tokens waits for launches; a CUDA graph has none. */
HEC_TEST(host_bound) {
  hec_training t = training("ep=8", 64, "mixtral-8x7b", "graph=none");
  t.seq = 128;
  ck_near(layer_s(&t, false), t.constants.host_s);
  t.recipe.graph = HEC_GRAPH_FULL;
  ck_assert(layer_s(&t, false) < 0.5 * t.constants.host_s);
}

/* The busiest rank's load decides a layer's time; a balanced load given row by row is the balanced one. */
HEC_TEST(loads) {
  hec_training t = training("ep=8", 8, "mixtral-8x7b", "graph=full");
  int32_t rows[1] = {4096 * 2};
  hec_layer_load even = {.rows = rows, .n = 1, .received = 1};
  hec_layer_pass by_rows = hec_test_pass(&t, HEC_LAYER_MOE, &even, false);
  ck_near(hec_layer_pass_s(&t, &by_rows), layer_s(&t, false));
  rows[0] *= 2;
  hec_layer_load hot = {.rows = rows, .n = 1, .received = 2};
  hec_layer_pass busy = hec_test_pass(&t, HEC_LAYER_MOE, &hot, false);
  ck_assert(busy.compute_s > by_rows.compute_s);
  ck_assert(busy.dispatch_s > 1.5 * by_rows.dispatch_s); /* small messages are slower */
}

/* Weight gradients of copies: 12 bytes of a parameter, by a GPU of etp that has its part; with the product's own sum 8. The forward
 * has none. */
HEC_TEST(gradients_of_copies) {
  static const double bytes[] = {12, 8};
  for (int fused = 0; fused < 2; fused++) {
    hec_training t = training("ep=4 etp=2", 64, "mixtral-8x7b", fused ? "graph=full fused=on" : "graph=full");
    int32_t rows[2] = {4096, 4096};
    hec_layer_load load = {.rows = rows, .n = 2, .received = 1};
    double s = hec_test_pass(&t, HEC_LAYER_MOE, &load, true).weight_s;
    double forward_s = hec_test_pass(&t, HEC_LAYER_MOE, &load, false).compute_s;
    load.guests = 2;
    load.replicas = 1;
    double params = 3 * hec_moe_expert_params(t.moe) / 2;
    double copies_s = hec_test_pass(&t, HEC_LAYER_MOE, &load, true).weight_s - s;
    ck_assert_double_eq_tol(copies_s, t.constants.in_step * bytes[fused] * params * t.laws->add.byte_s, 1e-12);
    ck_near(hec_test_pass(&t, HEC_LAYER_MOE, &load, false).compute_s, forward_s);
  }
}

/* Four kernels of every expert that has rows beside its two products in fp8, and twice as many backward. A fused recipe has
 * none, and its products have one launch less. */
HEC_TEST(launches_of_experts) {
  static const char *const recipes[] = {"precision=fp8", "precision=fp8-block", "precision=fp8 fused=on"};
  int32_t rows[3] = {4096, 0, 512};
  hec_layer_load load = {.rows = rows, .n = 3, .received = 1};
  for (int i = 0; i < 3; i++)
    for (int backward = 0; backward < 2; backward++) {
      hec_training t = training("ep=4", 64, "mixtral-8x7b", recipes[i]);
      hec_gpu_laws slower = *t.laws;
      slower.gpu.sheet.launch_s += 1e-6;
      double s = hec_test_pass(&t, HEC_LAYER_MOE, &load, backward).compute_s;
      t.laws = &slower;
      double late_s = hec_test_pass(&t, HEC_LAYER_MOE, &load, backward).compute_s - s;
      if (t.recipe.fused)
        ck_assert_double_lt(late_s, 0);
      else
        ck_assert_double_eq_tol(late_s, t.constants.in_step * (1 + backward) * 2 * 4e-6, 1e-12);
    }
}

/* Of a step's slower kernels attention's core feels nothing: two sequences against one of twice the length differ by the
 * core alone. The rest is slower, products by less than memory. */
HEC_TEST(in_step) {
  double longer_s[2], all_s[2];
  for (int32_t i = 0; i < 2; i++) {
    hec_training t = training("ep=8", 64, "mixtral-8x7b", "");
    t.constants.in_step = i ? 1.4 : 1;
    t.micro_batch = 2;
    all_s[i] = hec_test_pass(&t, HEC_LAYER_MOE, NULL, false).compute_s;
    t.micro_batch = 1;
    t.seq *= 2;
    longer_s[i] = hec_test_pass(&t, HEC_LAYER_MOE, NULL, false).compute_s - all_s[i];
  }
  ck_assert_double_gt(longer_s[0], 0);
  ck_assert_double_eq_tol(longer_s[1], longer_s[0], 1e-12);
  ck_assert_double_gt(all_s[1], 1.05 * all_s[0]);
  ck_assert_double_lt(all_s[1], 1.3 * all_s[0]);
}

/* Ranks that share an expert share its rows, even those that did not travel to it: copies do not spare that, and there is no jump
 * where the last one stays. One group that has all experts gathers tokens. */
HEC_TEST(expert_tensor_traffic) {
  hec_training t = training("ep=4 etp=2", 64, "mixtral-8x7b", "");
  int32_t rows[2] = {8192, 8192}; /* the mean: 2 x 4,096 tokens, top 2 */
  hec_layer_load load = {.rows = rows, .n = 2, .received = 1};
  double even_s = hec_test_pass(&t, HEC_LAYER_MOE, NULL, false).tensor_s;
  ck_near(hec_test_pass(&t, HEC_LAYER_MOE, &load, false).tensor_s, even_s);
  load.received = 0.1;
  ck_near(hec_test_pass(&t, HEC_LAYER_MOE, &load, false).tensor_s, even_s);
  load.received = 0;
  ck_near(hec_test_pass(&t, HEC_LAYER_MOE, &load, false).tensor_s, even_s);
  rows[0] /= 2; /* fewer rows take less */
  ck_assert(hec_test_pass(&t, HEC_LAYER_MOE, &load, false).tensor_s < 0.9 * even_s);
  t.layout.ep = 1;
  double own_s = hec_test_pass(&t, HEC_LAYER_MOE, NULL, false).tensor_s;
  ck_assert(own_s > 0 && own_s < 0.9 * even_s);
}

/* A group inside a node goes over NVLink; twice the stride, and half of it goes over the NIC, which is slower. */
HEC_TEST(groups_across_nodes) {
  hec_training t = training("ep=8", 64, "mixtral-8x7b", "");
  double inside_s = hec_group_collective_s(&t, HEC_ALL_TO_ALL, 8, 1, 1e8);
  double across_s = hec_group_collective_s(&t, HEC_ALL_TO_ALL, 8, 2, 1e8);
  ck_assert_int_eq(hec_group_inside(&t, 8, 1), 8);
  ck_assert_int_eq(hec_group_inside(&t, 8, 2), 4);
  ck_assert_double_gt(across_s, 0.5 * 1e8 / hec_nic_rate(&t));
  ck_assert_double_gt(across_s, 2 * inside_s);
  double ring_s = hec_group_collective_s(&t, HEC_ALL_GATHER, 16, 1, 1e9); /* 8 NICs carry a node's share */
  ck_assert_double_eq_tol(ring_s, 1e9 * 15 / 16 / (8 * hec_nic_rate(&t)) + hec_assumed_latency_s, 1e-9);
}

HEC_TEST(data_parallel_traffic) {
  hec_training t = training("ep=8", 64, "mixtral-8x7b", "zero=1");
  double once_s = hec_training_data_s(&t, 1e9, 0);
  t.recipe.zero = 3;
  ck_assert_double_eq_tol(hec_training_data_s(&t, 1e9, 0) / once_s, 1.5, 5e-3); /* two gathers, one reduction */
  t.recipe.zero = 1;
  t.recipe.grads = 4;
  ck_assert_double_eq_tol(hec_training_data_s(&t, 1e9, 0) / once_s, 1.5, 5e-3);
  hec_training one = training("", 1, "mixtral-8x7b", "");
  ck_near(hec_training_data_s(&one, 1e9, 1e9), 0);
}

/* Every dispatcher: named as the recipe names it, more load is never faster, and of all tokens to all ranks it plays no part. */
HEC_TEST_LOOP(each_dispatcher, HEC_N_DISPATCHERS) {
  const hec_dispatcher *d = hec_dispatchers[_i];
  HEC_SCOPED(hec_text) recipe = {0};
  hec_text_printf(&recipe, "dispatcher=%s", d->name);
  hec_training t = training("ep=16", 64, "qwen3-30b-a3b", recipe.data);
  ck_assert_int_eq(t.recipe.dispatcher, _i);
  double even = d->seconds(&t, 1), hot = d->seconds(&t, 2);
  ck_assert(even > 0 && (d->gathers ? hot <= even : hot > 1.5 * even));
  t.micro_batch = 2;
  ck_assert_double_gt(d->seconds(&t, 1), 1.5 * even);
}

/* In fp8 half of what travels to the experts is left, and all that comes back: about three quarters where bytes decide. */
HEC_TEST_LOOP(fp8_dispatch, HEC_N_DISPATCHERS) {
  const hec_dispatcher *d = hec_dispatchers[_i];
  hec_training t = training("ep=32", 32, "deepseek-v3", "");
  double bf16_s = d->seconds(&t, 1);
  ck_ok(hec_recipe_read("dispatch=fp8", &t.recipe));
  double share = d->seconds(&t, 1) / bf16_s;
  ck_assert_msg(share > 0.74 && share < 0.83, "%s: %.3f", d->name, share);
}

/* 64 GPUs in nodes of 8, two nodes below a leaf. Uplinks as fast as its NICs change nothing; slower ones by their bytes. */
HEC_TEST_LOOP(leaf_switches, HEC_N_DISPATCHERS) {
  const hec_dispatcher *d = hec_dispatchers[_i];
  hec_training t = training("pp=1 ep=32", 64, "qwen3-30b-a3b", "");
  double nic = t.laws->gpu.sheet.nic_bandwidth, flat_s = d->seconds(&t, 1);
  t.leaf_gpus = 16;
  t.uplink = 16 * nic;
  ck_near(d->seconds(&t, 1), flat_s);
  t.uplink = nic;
  double s = d->seconds(&t, 1);
  ck_assert_double_gt(s, 2 * flat_s);
  t.uplink = nic / 2; /* but for latencies */
  ck_assert_double_eq_tol(d->seconds(&t, 1) / s, 2, 0.02);
  t.layout.ep = 16; /* below one leaf */
  double below_s = d->seconds(&t, 1);
  t.leaf_gpus = 0;
  ck_near(below_s, d->seconds(&t, 1));
}

/* Rings and sends, by hand: 4 rings of a leaf of 16 GPUs share its uplink where the group has 4 ranks below it. */
HEC_TEST(leaf_switches_by_hand) {
  hec_training t = training("pp=2 ep=8", 64, "mixtral-8x7b", "");
  t.leaf_gpus = 16;
  t.uplink = 1e9;
  t.constants.nic = 1;
  double ring_s = hec_group_collective_s(&t, HEC_ALL_GATHER, 8, 4, 8e6);
  ck_near(ring_s, hec_assumed_latency_s + 4 * 7e6 / 1e9);
  double all_s = hec_group_collective_s(&t, HEC_ALL_TO_ALL, 8, 4, 8e6);
  ck_near(all_s, hec_assumed_latency_s + 16 * 4e6 / 1e9);
  double bytes = 2.0 * t.seq * t.micro_batch * moe.d_model; /* every GPU sends to a stage 32 further on */
  ck_near(hec_training_send_s(&t), hec_assumed_latency_s + 16 * bytes / 1e9);
  t.layout.pp = 8; /* stages of 8 GPUs: half of the leaf's send to another leaf */
  ck_near(hec_training_send_s(&t), hec_assumed_latency_s + 8 * bytes / 1e9);
}

/* A router that limits the nodes of a token: fewer copies over the network. */
HEC_TEST(token_nodes) {
  hec_training t = training("ep=64", 64, "deepseek-v3", "");
  ck_assert_int_eq(moe.token_nodes, 4);
  double limited = hec_dispatch_work_of(&t, true).nodes;
  moe.token_nodes = 0;
  ck_assert_double_eq_tol(limited, 4.0 * 7 / 8, 1e-12);
  ck_assert_double_gt(hec_dispatch_work_of(&t, true).nodes, 1.2 * limited);
}
