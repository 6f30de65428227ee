/* A training step put together: bubble, batch and scale. */
#include "sim/training.h"
#include "tests/support/test.h"
#include "tests/support/training_case.h"

HEC_TEST_ARENA(arena)

static hec_moe moe;

static hec_training_result run(const char *layout, int32_t gpus, int32_t batch, const char *recipe) {
  hec_training_result r;
  ck_ok(hec_moe_load("mixtral-8x22b", &moe));
  const hec_training t = hec_test_training(&moe, layout, gpus, batch, recipe, &arena);
  ck_ok(hec_training_run(&(hec_training_job){.training = &t}, &r));
  return r;
}

/* Stages that cost the same: m micro-batches and (p - 1) / v of them to fill. */
HEC_TEST(bubble_of_equal_stages) {
  hec_training_result even = run("tp=2 pp=8 ep=8", 128, 256, "head=shared");
  hec_training_result virtual_stages = run("tp=2 pp=8 vpp=7 ep=8", 128, 256, "head=shared");
  ck_assert_double_eq_tol(even.bubble_s / even.busy_s, 7.0 / 32, 0.02);           /* sends come on top */
  ck_assert_double_gt(virtual_stages.bubble_s / virtual_stages.busy_s, 1.0 / 32); /* 7 sends of a part each */
  ck_assert_double_lt(virtual_stages.bubble_s / virtual_stages.busy_s, 2.0 / 32);
}

HEC_TEST(figures_agree) {
  hec_training_result r = run("tp=2 pp=8 vpp=7 ep=8", 128, 256, "head=shared");
  ck_near(r.tokens_per_s_per_gpu * r.step_s * 128, 256.0 * 4096);
  ck_near(r.mfu, r.model_tflops_per_gpu * 1e12 / 989e12);
  ck_near(r.gpu_hours_per_1e12_tokens * 3600 * r.tokens_per_s_per_gpu, 1e12);
}

/* More micro-batches: the bubble weighs less. The head on the last stage alone costs more than shared out. */
HEC_TEST(batch_and_head) {
  ck_assert(run("tp=2 pp=8 ep=8", 128, 1024, "").mfu > run("tp=2 pp=8 ep=8", 128, 256, "").mfu);
  ck_assert(run("tp=2 pp=8 ep=8", 128, 256, "head=shared").step_s < run("tp=2 pp=8 ep=8", 128, 256, "").step_s);
}

/* A forward beside a backward: dispatch hides there, but never more than all of it, and computing stays. */
HEC_TEST(pairs_hide_dispatch) {
  ck_ok(hec_moe_load("qwen3-30b-a3b", &moe));
  const hec_training t = hec_test_training(&moe, "pp=4 vpp=2 ep=16", 64, 512, "graph=full", &arena);
  hec_training_job job = {.training = &t};
  hec_training_result plain, pairs;
  ck_ok(hec_training_run(&job, &plain));
  job.pipeline = hec_pipeline_find("1f1b-overlap");
  ck_ok(hec_training_run(&job, &pairs));
  ck_assert_double_lt(pairs.dispatch_s, 0.5 * plain.dispatch_s);
  ck_assert_double_ge(pairs.dispatch_s, 0);
  ck_assert_double_eq_tol(pairs.busy_s - pairs.dispatch_s, plain.busy_s - plain.dispatch_s,
                          1e-6); /* computing is the same */
}

/* Piece by piece it is the same step: what pieces expose adds up to the result's, the fullest piece is the peak. */
HEC_TEST(pieces_of_a_step) {
  ck_ok(hec_moe_load("mixtral-8x22b", &moe));
  const hec_training t = hec_test_training(&moe, "tp=2 pp=8 vpp=7 ep=8", 128, 256, "", &arena);
  hec_training_result r, plain;
  hec_training_pieces p;
  ck_ok(hec_training_run_pieces(&(hec_training_job){.training = &t}, &p, &r));
  ck_ok(hec_training_run(&(hec_training_job){.training = &t}, &plain));
  ck_assert_double_eq(r.step_s, plain.step_s);
  double dispatch_s = 0, tensor_s = 0, peak = 0;
  for (int32_t i = 0; i < p.order.n_parts * p.order.shape.n_micro_batches; i++)
    for (int way = 0; way < 2 && p.order.device[i] == r.device; way++) {
      dispatch_s += p.exposed[2 * i + way].dispatch_s;
      tensor_s += p.exposed[2 * i + way].tensor_s;
    }
  ck_near(dispatch_s, r.dispatch_s);
  ck_near(tensor_s, r.tensor_s);
  for (int32_t i = 0; i < p.order.n_pieces; i++)
    peak = hec_memory_parts_sum(&p.memory[i]) > peak ? hec_memory_parts_sum(&p.memory[i]) : peak;
  ck_near(peak, r.memory.peak);
  hec_arena_free(&p.arena);
}
