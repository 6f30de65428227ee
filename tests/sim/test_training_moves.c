/* What copies of experts cost a training step, by hand: one copy between two nodes. */
#include "sim/training_moves.h"

#include "tests/support/problem_case.h"
#include "tests/support/test.h"
#include "tests/support/training_case.h"

#include <math.h>
#include <stdio.h>

HEC_TEST_ARENA(arena)

typedef struct {
  double gather_s, scatter_s, replicas_s;
} cost;

/* A copy of expert 0 of rank 0 on rank 1, of that kind, in the first of two layers. */
static cost cost_of(const char *cluster, const hec_training *t, hec_copy_kind kind) {
  const hec_problem *p = hec_test_problem(&arena, cluster, 4, 2, 8, 1, true);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_ep, p, &arena);
  hec_plan_add_copy(&run.plan, 0, 0, 1, kind);
  HEC_SCOPED(hec_training_moves) moves = hec_training_moves_new(&run, t, &arena);
  const cost c = {.gather_s = hec_training_gather_s(&moves, &run, 0, false),
                  .scatter_s = hec_training_gather_s(&moves, &run, 0, true),
                  .replicas_s = hec_training_replicas_s(&moves, &run)};
  return c;
}

static double expert(double bytes) { /* of an expert of cost_of's problem, so many of a parameter */
  const hec_problem *p = hec_test_problem(&arena, "4x1 nic=1G flops=312T mem=40G", 4, 2, 8, 1, true);
  return bytes * hec_moe_expert_params(p->moe);
}

/* A GPU has 1 / etp of an expert, and gradients are as large as the recipe says. */
static const struct {
  const char *layout, *recipe;
  double part, grads, back, kept;
} copies[] = {{"ep=4", "zero=0 grads=fp32", 1, 4, 4, 1},
              {"ep=4", "zero=1 grads=bf16", 1, 2, 2, 1},
              {"ep=4 etp=2", "zero=1 grads=fp32", 0.5, 4, 2, 1},
              {"ep=4 etp=2", "zero=3 grads=fp32", 0.5, 4, 2, 0.25}};

HEC_TEST_ROWS(one_copy_by_hand, copies) {
  const double rate = 1e9, latency = 5e-6, part = copies[_i].part;
  const hec_training t =
      hec_test_training(&hec_test_tiny_moe, copies[_i].layout, part < 1 ? 32 : 4, 0, copies[_i].recipe, &arena);
  static const char line[] = "4x1 nic=1G@5us flops=312T mem=40G";
  double add_s = 3 * t.constants.in_step * t.laws->add.byte_s, grads = expert(copies[_i].grads);
  cost c = cost_of(line, &t, HEC_COPY_GUEST);
  ck_assert_double_eq_tol(c.gather_s, part * (latency + expert(2) / rate), 1e-12);
  ck_assert_double_eq_tol(c.scatter_s, part * (latency + grads / rate + grads * add_s), 1e-12);
  ck_near(c.replicas_s, 0);
  c = cost_of(line, &t, HEC_COPY_RESIDENT); /* each keeper adds up half of it */
  ck_near(c.gather_s + c.scatter_s, 0);
  double there_s = latency + grads / 2 / rate + grads / 2 * add_s,
         back_s = latency + expert(copies[_i].back) / 2 / rate;
  ck_assert_double_eq_tol(c.replicas_s, copies[_i].kept * part * (there_s + back_s), 1e-12);
}

/* Expert 0 goes from rank 0 to rank 1: 2 bytes of a parameter, and 12 of the optimizer, of which ZeRO leaves each of 8 copies
 * of the group a part. */
static const struct {
  const char *recipe;
  double bytes;
} moved[] = {{"zero=0", 2 + 12}, {"zero=1", 2 + 12.0 / 8}, {"zero=3", (2 + 12.0) / 8}};

HEC_TEST_ROWS(one_move_by_hand, moved) {
  const double rate = 1e9, latency = 5e-6;
  const hec_training t = hec_test_training(&hec_test_tiny_moe, "ep=4", 32, 0, moved[_i].recipe, &arena);
  const hec_problem *p = hec_test_problem(&arena, "4x1 nic=1G@5us flops=312T mem=40G", 4, 2, 8, 1, true);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_ep, p, &arena);
  HEC_SCOPED(hec_training_moves) moves = hec_training_moves_new(&run, &t, &arena);
  hec_plan_set_home(&run.plan, 0, 0, 1);
  run.plan.version++;
  ck_assert_double_eq_tol(hec_training_migration_s(&moves, &run), latency + expert(moved[_i].bytes) / rate, 1e-11);
  ck_near(hec_training_migration_s(&moves, &run), 0); /* they are there */
}

/* Faster links are never slower, and with nothing but speed copies are free. */
HEC_TEST(links) {
  static const char *const nics[] = {"100M", "1G", "20G", "1000T"};
  hec_training t = hec_test_training(&hec_test_tiny_moe, "ep=4", 4, 0, "", &arena);
  hec_gpu_laws laws = *t.laws;
  laws.add.byte_s = 0;
  t.laws = &laws;
  for (int kind = HEC_COPY_RESIDENT; kind <= HEC_COPY_GUEST; kind++) {
    cost before = {INFINITY, INFINITY, INFINITY};
    for (int i = 0; i < 4; i++) {
      char line[80];
      (void)snprintf(line, sizeof line, "4x1 nic=%s@0us flops=312T mem=40G", nics[i]);
      cost c = cost_of(line, &t, kind == HEC_COPY_GUEST ? HEC_COPY_GUEST : HEC_COPY_RESIDENT);
      ck_assert(c.gather_s <= before.gather_s && c.scatter_s <= before.scatter_s && c.replicas_s <= before.replicas_s);
      ck_assert(i == 3 || c.gather_s + c.scatter_s + c.replicas_s > 0);
      before = c;
    }
    ck_assert_double_lt(before.gather_s + before.scatter_s + before.replicas_s, 1e-9);
  }
}
