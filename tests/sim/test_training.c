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

/* Sharded over all GPUs, by hand: in a pass all parameters but those that a node has enter it by its NICs. There are three passes of
 * a micro-batch: gathered forward, gathered backward, gradients back. Experts shared in the expert-parallel group (policy fsdp)
 * and then over the rest, or over all GPUs at once, are the same bytes and nearly the same time. */
static const double sharded_nic[] = {1e9, 5e9, 50e9};
static const struct {
  const char *layout;
  int32_t sharded;
} sharded[] = {{"ep=1", 0}, {"ep=8", 128}, {"ep=32", 128}, {"ep=128", 128}};

HEC_TEST_LOOP(gathers_of_fsdp, 3) {
  double first_s = 0;
  ck_ok(hec_moe_load("qwen3-235b-a22b", &moe));
  double params = 94 * (128 * hec_moe_expert_params(&moe) + hec_moe_block_params(&moe)) +
                  2 * (double)moe.vocabulary * (double)moe.d_model;
  for (int i = 0; i < 4; i++) {
    hec_training t = hec_test_training(&moe, sharded[i].layout, 256, 1024, "zero=3 dp-overlap=off", &arena);
    hec_gpu_laws laws = *t.laws;
    laws.gpu.sheet.nic_bandwidth = sharded_nic[_i];
    t.laws = &laws;
    hec_training_result r;
    ck_ok(hec_training_run(&(hec_training_job){.training = &t, .sharded = sharded[i].sharded}, &r));
    double bound_s = 4 * 3 * 2 * params * 31 / 32 / (8 * sharded_nic[_i]); /* 4 micro-batches, bf16 */
    ck_assert_msg(r.sharded_s >= bound_s && r.sharded_s < 1.7 * bound_s, "%s: %g s, by hand %g", sharded[i].layout,
                  r.sharded_s, bound_s);
    first_s = i == 0 ? r.sharded_s : first_s;
    ck_assert_msg(r.sharded_s > 0.9 * first_s && r.sharded_s < 1.25 * first_s, "%s: %g s, with ep=1 %g",
                  sharded[i].layout, r.sharded_s, first_s); /* a ring over 4 nodes carries 31 of 32 parts, not 3 of 4 */
  }
}

/* Without ZeRO-3 the group's gathers remain, and a pipeline pays them in every micro-batch, too. */
HEC_TEST(gathers_of_a_pipeline) {
  ck_ok(hec_moe_load("qwen3-235b-a22b", &moe));
  hec_training t = hec_test_training(&moe, "pp=2 ep=32", 256, 1024, "zero=1 dp-overlap=off", &arena);
  hec_training_result few, many;
  hec_training_job of = {.training = &t, .sharded = 128};
  ck_ok(hec_training_run(&of, &few));
  double params = 47 * 128 * hec_moe_expert_params(&moe), nic = t.laws->gpu.sheet.nic_bandwidth;
  ck_assert_double_ge(few.sharded_s, 8 * 3 * 2 * params * 3 / 4 / (8 * nic));
  t.global_batch *= 2;
  ck_ok(hec_training_run(&of, &many));
  ck_assert_double_eq_tol(many.sharded_s / few.sharded_s, 2, 1e-9);
  t.recipe.zero = 3;
  of.sharded = 0;
  ck_ok(hec_training_run(&of, &few)); /* its dense part alone: edp is 4 */
  ck_assert_double_gt(few.sharded_s, 0);
}
