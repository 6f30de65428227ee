/* Memory over a step: by hand for a tiny model, what each schedule holds, and what must hold of any layout. */
#include "sim/training.h"
#include "tests/support/test.h"
#include "tests/support/training_case.h"

HEC_TEST_ARENA(arena)

static hec_moe moe;

static hec_training training(const char *model, const char *layout, int32_t gpus, int32_t batch, const char *recipe) {
  ck_ok(hec_moe_load(model, &moe));
  return hec_test_training(&moe, layout, gpus, batch, recipe, &arena);
}

static hec_training_memory memory_of(const hec_training *t, const char *schedule, const hec_layer_load *loads) {
  hec_training_result r;
  hec_training_job job = {.training = t, .pipeline = schedule ? hec_pipeline_find(schedule) : NULL, .loads = loads};
  ck_ok(hec_training_run(&job, &r));
  return r.memory;
}

/* Two stages of one MoE layer each, by hand. The sizes are those of tests/models/test_training_memory.c with two MoE layers:
 * width 8, 16 tokens, 4 experts of 144 parameters, ep = 1, two GPUs, 4 micro-batches.
 *
 *   a layer: 480 dense parameters, 576 of experts; embedding and head 800 each: 1856 on both stages
 *   state: 2 x 1856 + 4 x 1856 + 12 x 1856 = 33,408; standing 2 x (480 + 144) = 1248
 *   stage 0: two micro-batches of 5056 in flight, backward 2176:                    33,408 + 1248 + 2 x 5056 + 2176 = 46,944
 *   stage 1: one of 5056 + 512 with 3200 of logits, gradient of them, head's 1600:  33,408 + 1248 + 8768 + 4800     = 48,224 */
static hec_training tiny(const char *recipe) {
  hec_training t;
  moe = hec_test_tiny_moe;
  moe.n_moe_layers = 2;
  moe.d_ffn_dense = 6;
  t = hec_test_training(&moe, "pp=2", 2, 4, "grads=fp32 zero=1", &arena);
  ck_ok(hec_recipe_read(recipe, &t.recipe));
  return t;
}

HEC_TEST(two_stages_by_hand) {
  const hec_training t = tiny("");
  const hec_training_memory m = memory_of(&t, NULL, NULL);
  ck_assert_int_eq(m.device, 1);
  ck_assert_int_eq(m.in_flight, 1);
  ck_assert_int_eq(m.piece.kind, HEC_PIECE_BACKWARD);
  ck_near(m.parts.parameters, 3712);
  ck_near(m.parts.gradients, 7424);
  ck_near(m.parts.optimizer, 22272);
  ck_near(m.parts.activations, 5056 + 512);
  ck_near(m.parts.logits, 3200 + 3200);
  ck_near(m.parts.buffers, 1248 + 1600);
  ck_near(m.peak, 48224);
  ck_near(m.reserved, 48224 * 1.06);
}

/* Every layer of every micro-batch has a guest and a replica, 144 parameters each: the replica has its state, 18 bytes a parameter.
 * Stage 1, in the backward of its head, keeps one guest; stage 0 two, and the gradient of one. Guests that are gathered again are
 * there in the backward of their layer alone, which is not the head's. */
HEC_TEST(copies_by_hand) {
  const hec_training t = tiny("");
  for (int again = 0; again < 2; again++) {
    hec_layer_load loads[2 * 4];
    for (int i = 0; i < 8; i++)
      loads[i] =
          (hec_layer_load){.received = 1, .guests = 1, .guests_kept = !again, .guests_again = again, .replicas = 1};
    const hec_training_memory m = memory_of(&t, NULL, loads);
    ck_assert_int_eq(m.device, 1);
    ck_near(m.parts.copies, again ? 2592 : 2592 + 288);
    ck_near(m.peak, 48224 + m.parts.copies);
    const hec_layer_bytes b = hec_layer_bytes_of(&t, HEC_LAYER_MOE, &loads[0]);
    ck_near(b.guests, again ? 0 : 288);
    ck_near(b.guests_working, again ? 576 + 288 : 576);
  }
}

/* The first stage: 4 micro-batches in flight under gpipe, 2 under 1f1b. At the first of them gpipe needs more than the last. */
HEC_TEST(gpipe_by_hand) {
  const hec_training t = tiny("");
  const hec_training_memory m = memory_of(&t, "gpipe", NULL);
  ck_assert_int_eq(m.device, 1);
  ck_assert_int_eq(m.in_flight, 4);
  ck_near(m.peak, 33408 + 1248 + 4 * 8768 + 4800);
}

/* All of a layer but its input of 256 is computed again, one layer at a time. */
HEC_TEST(recomputed_by_hand) {
  const hec_training t = tiny("recompute=full");
  const hec_training_memory m = memory_of(&t, "gpipe", NULL);
  ck_near(m.peak, 33408 + 1248 + 4 * (256 + 512 + 3200) + (5056 - 256 + 2176));
}

/* 1f1b: stage 0 holds as many micro-batches as there are stages. Without a head it would always be the worst. */
HEC_TEST(first_stage_holds_pp_micro_batches) {
  for (int32_t pp = 2; pp <= 8; pp *= 2) {
    hec_training t = training("deepseek-v3", pp == 2 ? "pp=2 ep=8" : pp == 4 ? "pp=4 ep=8" : "pp=8 ep=8", 128, 512, "");
    moe.n_layers = moe.n_moe_layers = 56; /* equal stages */
    moe.vocabulary = 1;
    const hec_training_memory m = memory_of(&t, "1f1b", NULL);
    ck_assert_int_eq(m.device, 0);
    ck_assert_int_eq(m.in_flight, pp);
  }
}

HEC_TEST(peaks_of_all_devices) {
  const hec_training t = tiny("");
  hec_pipeline_order order;
  hec_pipeline_run run;
  hec_training_memory m;
  double peaks[2];
  const hec_pipeline_shape shape = {.n_stages = 2, .n_chunks = 1, .n_micro_batches = 4};
  static const hec_piece_cost cost[8];
  ck_ok(hec_pipeline_order_make(hec_pipeline_find("1f1b"), &shape, &arena, &order));
  ck_ok(hec_pipeline_run_make(&order, &(hec_pipeline_costs){.piece = cost}, &arena, &run));
  hec_training_memory_of(&t, NULL, &order, &run, peaks, &m);
  ck_near(peaks[0], 46944);
  ck_near(peaks[1], 48224);
}

/* The hot rank's rows: one layer of one micro-batch, twice the rows of 1280 + 384 bytes and working 2176. On stage 0, where two
 * micro-batches are in flight. */
HEC_TEST(one_hot_layer) {
  const hec_training t = tiny("");
  hec_layer_load loads[2 * 4];
  for (int i = 0; i < 8; i++)
    loads[i] = (hec_layer_load){.received = 1};
  ck_near(memory_of(&t, NULL, loads).peak, 48224);
  loads[1].received = 2; /* layer 0, micro-batch 1 */
  const hec_training_memory m = memory_of(&t, NULL, loads);
  ck_assert_int_eq(m.device, 0);
  ck_assert_int_eq(m.piece.micro_batch, 1);
  ck_near(m.peak, 46944 + 1664 + 2176);
}

/* ---- What must hold of any ---- */

static double static_bytes(const hec_training_memory *m) {
  return m->parts.parameters + m->parts.gradients + m->parts.optimizer;
}

/* From left to right nothing may grow. */
static const struct {
  const char *layouts[4], *recipes[4];
} shrinking[] = {
    {{"pp=4 ep=8"}, {"zero=0", "zero=1", "zero=2", "zero=3"}},
    {{"pp=4 ep=8", "tp=2 pp=4 ep=8", "tp=4 pp=4 ep=8", "tp=8 pp=4 ep=8"}, {"zero=1"}},
    {{"pp=4 ep=1", "pp=4 ep=2", "pp=4 ep=8", "pp=4 ep=16"}, {"zero=1"}},
    {{"pp=4 ep=8", "cp=2 pp=4 ep=8", "cp=4 pp=4 ep=8", "cp=8 pp=4 ep=8"}, {"zero=1"}},
    {{"pp=4 ep=8"}, {"recompute=none", "recompute=norm", "recompute=norm+act", "recompute=full"}},
    {{"pp=4 ep=8"}, {"recompute=none", "recompute=act", "recompute=moe", "recompute=moe+attention"}},
    {{"pp=4 ep=8"}, {"precision=bf16", "precision=fp8"}},
};

HEC_TEST_ROWS(more_sharing_never_needs_more, shrinking) {
  static const char *const models[] = {"deepseek-v3", "mixtral-8x22b", "qwen3-30b-a3b"};
  for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
    double before = 1e18;
    for (int i = 0; i < 4 && (shrinking[_i].layouts[i] || shrinking[_i].recipes[i]); i++) {
      const char *layout = shrinking[_i].layouts[shrinking[_i].layouts[1] ? i : 0];
      const char *recipe = shrinking[_i].recipes[shrinking[_i].recipes[1] ? i : 0];
      hec_layout l;
      ck_ok(hec_moe_load(models[k], &moe));
      ck_ok(hec_layout_read(layout, &l));
      if (hec_layout_fit(&l, 256, &moe) != HEC_OK)
        continue; /* mixtral has 8 experts */
      hec_training t = training(models[k], layout, 256, 1024, recipe);
      const hec_training_memory m = memory_of(&t, "1f1b", NULL);
      ck_assert_msg(m.peak <= before, "%s %s %s: %g GB after %g GB", models[k], layout, recipe, m.peak * 1e-9,
                    before * 1e-9);
      ck_assert(m.peak >= static_bytes(&m));
      ck_assert(m.parts.activations > 0 && m.parts.logits >= 0 && m.parts.buffers > 0);
      before = m.peak;
    }
  }
}

/* Every schedule: each part of the peak is counted once, and two copies of the model have twice the parameters. */
HEC_TEST_TABLE(every_schedule, hec_pipeline_schedules) {
  const hec_pipeline_schedule *row = hec_pipeline_schedules[_i];
  hec_training t =
      training("deepseek-v3", row->copies == 1 && (row->min_chunks > 1 || row->pairs) ? "pp=4 vpp=2 ep=8" : "pp=4 ep=8",
               128, 1024, "recompute=norm+act");
  const hec_training_memory m = memory_of(&t, row->name, NULL), plain = memory_of(&t, NULL, NULL);
  ck_near(hec_memory_parts_sum(&m.parts), m.peak);
  ck_assert(m.peak > static_bytes(&m) && m.in_flight >= 1 && m.device >= 0 && m.device < 4);
  if (row->copies > 1)
    ck_assert(m.parts.parameters > 1.5 * plain.parts.parameters);
}

/* 80 GB of an H100: DeepSeek-V3 as published fits (16 stages, 64 ranks); on 64 GPUs it does not. */
HEC_TEST(fits) {
  hec_training published =
      training("deepseek-v3", "pp=16 ep=64", 2048, 2048 * 8, "precision=fp8 recompute=norm+act+attention");
  const hec_training_memory fits = memory_of(&published, NULL, NULL);
  ck_assert_msg(fits.fits && fits.margin > 0, "%g GB", fits.peak * 1e-9);
  hec_training small = training("deepseek-v3", "ep=64", 64, 512, "");
  const hec_training_memory large = memory_of(&small, NULL, NULL);
  ck_assert(!large.fits && large.margin < 0);
  ck_near(large.margin, large.device_bytes - large.reserved - large.outside);
}

/* ---- Published peaks ---- */

/* Allocated GiB on B200 under Megatron, ZeRO-1, fp32 gradients, bf16, one sequence a micro-batch: SimuMax, docs/b200, release 1.2
 * (b200_release_v1.2_summary.json has each stage). No form of a term was chosen by the dense rows. */
typedef struct {
  const char *layout;
  int32_t gpus, seq;
  double gib[2]; /* of the stages; 0: not published */
} published;

static hec_training on_b200(const published *p) {
  const hec_gpu *gpu;
  hec_training t = {.moe = &moe,
                    .seq = p->seq,
                    .micro_batch = 1,
                    .constants = hec_step_constants_fitted,
                    .recipe = hec_recipe_default()};
  ck_ok(hec_gpu_laws_load("b200", &arena, &gpu, &t.laws));
  ck_ok(hec_layout_read(p->layout, &t.layout));
  ck_ok(hec_layout_fit(&t.layout, p->gpus, &moe));
  ck_ok(hec_recipe_read("grads=fp32", &t.recipe));
  t.global_batch = 4 * t.layout.dp;
  return t;
}

static void stages_near(const published *p, double tolerance) {
  const hec_training t = on_b200(p);
  const hec_pipeline_shape shape = {.n_stages = t.layout.pp, .n_chunks = 1, .n_micro_batches = 4};
  hec_piece_cost *cost = HEC_NEW(&arena, hec_piece_cost, 2 * 4);
  hec_pipeline_order order;
  hec_pipeline_run run;
  hec_training_memory m;
  double peaks[2];
  ck_ok(hec_pipeline_order_make(hec_pipeline_find("1f1b"), &shape, &arena, &order));
  ck_ok(hec_pipeline_run_make(&order, &(hec_pipeline_costs){.piece = cost}, &arena, &run));
  hec_training_memory_of(&t, NULL, &order, &run, peaks, &m);
  for (int32_t d = 0; d < t.layout.pp; d++) {
    double error = peaks[d] / 1073741824 / p->gib[d] - 1;
    ck_assert_msg(error > -tolerance && error < tolerance, "%s %s, stage %d: %.2f GiB, published %.2f", moe.name,
                  p->layout, (int)d, peaks[d] / 1073741824, p->gib[d]);
  }
}

/* Llama 3 70B of 12 layers, 405B of 4. */
static void dense_model(int32_t layers, int32_t width, int32_t ffn, int32_t heads) {
  moe = (hec_moe){.name = "dense",
                  .n_layers = layers,
                  .d_model = width,
                  .d_ffn = ffn,
                  .d_ffn_dense = ffn,
                  .n_ffn_matrices = 3,
                  .n_experts = 1,
                  .top_k = 1,
                  .n_heads = heads,
                  .n_kv_heads = 8,
                  .d_head = 128,
                  .vocabulary = 128256,
                  .seq_len = 4096,
                  .dtype_bytes = 2,
                  .attention = HEC_ATTENTION_CAUSAL};
}

static const published dense_70b[] = {{"pp=2", 8, 4096, {66.55, 62.97}}, {"tp=2", 8, 4096, {60.68}},
                                      {"tp=4", 8, 4096, {39.07}},        {"tp=8", 8, 4096, {28.29}},
                                      {"tp=2 cp=4", 8, 32768, {68.43}},  {"cp=8", 8, 32768, {104.51}},
                                      {"tp=2 cp=4", 8, 131072, {112.67}}};
static const published dense_405b[] = {{"tp=2", 8, 4096, {81.59}},   {"tp=4", 8, 4096, {52.89}},
                                       {"tp=8", 8, 4096, {38.57}},   {"tp=2 cp=4", 8, 32768, {87.03}},
                                       {"cp=8", 8, 32768, {139.22}}, {"tp=2 cp=4", 8, 131072, {118.13}}};

HEC_TEST_ROWS(published_dense_70b, dense_70b) {
  dense_model(12, 8192, 28672, 64);
  stages_near(&dense_70b[_i], 0.015);
}

HEC_TEST_ROWS(published_dense_405b, dense_405b) {
  dense_model(4, 16384, 53248, 128);
  stages_near(&dense_405b[_i], 0.015);
}

/* DeepSeek-V2 and V3 of 4 layers, the first of them dense. */
static const struct {
  const char *model;
  published run;
} published_moe[] = {
    {"deepseek-v2", {"ep=8", 8, 4096, {45.63}}},
    {"deepseek-v2", {"pp=2 ep=4", 8, 4096, {31.59, 44.70}}},
    {"deepseek-v3", {"ep=8", 8, 4096, {104.30}}},
    {"deepseek-v3", {"pp=2 ep=4", 8, 4096, {71.24, 114.00}}},
};

HEC_TEST_ROWS(published_moe_stages, published_moe) {
  ck_ok(hec_moe_load(published_moe[_i].model, &moe));
  moe.n_layers = 4;
  moe.n_moe_layers = 3;
  stages_near(&published_moe[_i].run, 0.02);
}
