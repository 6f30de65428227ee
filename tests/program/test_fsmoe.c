/* FSMoE's schedules: every byte of dense gradients is reduced once, in a micro-batch that has all of it. That is after
 * the block's backward and before the optimizer. Pieces really are cut, and in line with the tokens. */
#include "runtime/program/emit.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <stdlib.h>

HEC_TEST_ARENA(arena)

static int64_t end_of(const hec_timeline *t, size_t op) {
  int64_t latest = -1;
  for (int32_t r = 0; r < t->n_ranks; r++) {
    int64_t end = t->end_ps[op * (size_t)t->n_ranks + (size_t)r];
    latest = end > latest ? end : latest;
  }
  return latest;
}

typedef struct {
  int32_t cut, on_tokens, at_end;
} seen;

static void check(const hec_problem *p, const hec_program *program, const hec_timeline *t, seen *s) {
  int64_t block = (int64_t)(hec_moe_block_params(p->moe) * p->moe->grad_bytes), done[8] = {0};
  int64_t ready[8] = {0}, optimizer = 0;
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    if (op->role == HEC_ROLE_ATTENTION && op->backward)
      ready[op->layer] = end_of(t, i); /* the last micro-batch's comes last */
    if (op->role == HEC_ROLE_OPTIMIZER)
      optimizer = t->begin_ps[i * (size_t)t->n_ranks];
  }
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    if (op->role != HEC_ROLE_DENSE_REDUCE || op->layer < 0)
      continue;
    ck_assert_int_eq(op->allreduce.first_byte, done[op->layer]); /* in order, so nothing twice */
    done[op->layer] += (int64_t)op->bytes;
    for (int32_t l = op->layer + 1; l < p->n_layers; l++) /* oldest first */
      ck_assert_int_eq(done[l], block);
    ck_assert_int_ge(t->begin_ps[i * (size_t)t->n_ranks], ready[op->layer]);
    ck_assert_int_le(end_of(t, i), optimizer);
    ck_assert(op->lane == HEC_LANE_TOKEN || op->lane == HEC_LANE_GRAD);
    s->cut += op->allreduce.first_byte > 0;
    s->on_tokens += op->lane == HEC_LANE_TOKEN;
    s->at_end += op->lane == HEC_LANE_GRAD;
  }
  for (int32_t l = 0; l < p->n_layers; l++)
    ck_assert_int_eq(done[l], block);
}

HEC_TEST(gradients_are_reduced_once) {
  seen all = {0};
  for (int i = 0; i < 60; i++) {
    uint64_t seed = 3000 + (uint64_t)i;
    char line[160];
    (void)snprintf(line, sizeof line, "2x4 nvlink=%dG@%dus nic=%dM@%dus flops=%dG mem=40G",
                   1 + (int)hec_test_below(&seed, 50), (int)hec_test_below(&seed, 9),
                   50 + (int)hec_test_below(&seed, 3000), (int)hec_test_below(&seed, 50),
                   50 + (int)hec_test_below(&seed, 5000));
    hec_problem *p = hec_test_problem(&arena, line, 8, 2 + (int32_t)hec_test_below(&seed, 6), 8, 2, true);
    ck_ok(hec_problem_shard(p, 1 << hec_test_below(&seed, 3)));
    hec_load load = hec_test_random_load(&arena, p, &seed);
    const char *name = i % 2 ? "fsmoe" : "fsmoe-no-iio";
    HEC_OPENED(hec_lowering) *low = hec_lowering_new(p, hec_policy_find("ep"), hec_schedule_find(name), NULL, &arena);
    for (int32_t iteration = 0; iteration < 2; iteration++) {
      hec_lower_iteration(low, iteration, &load, 1, 1 + i % 3);
      HEC_SCOPED(hec_timeline) timeline =
          hec_test_simulate(p, hec_lowering_program(low), &hec_law_alpha_beta, (hec_sim_options){0});
      check(p, hec_lowering_program(low), &timeline, &all);
    }
  }
  ck_assert_int_gt(all.cut, 20);
  ck_assert_int_gt(all.on_tokens, 100);
  ck_assert_int_ge(all.at_end, 120);
}
