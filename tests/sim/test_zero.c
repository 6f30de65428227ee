/* ZeRO-1 in programs: gradients are scattered, each rank updates its part, parameters are gathered; memory and traffic by hand. */
#include "runtime/program/emit.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <stdlib.h>

HEC_TEST_ARENA(arena)

enum { RANKS = 4, LAYERS = 2, EXPERTS = 4, OWN = LAYERS * EXPERTS / 2 /* on a rank: groups of two */ };

static hec_problem *problem_of(bool zero) {
  hec_problem *p = hec_test_problem(&arena, "2x2 nvlink=300G@2us nic=10G@5us flops=100T mem=40G hbm=1T", RANKS, LAYERS,
                                    EXPERTS, 1, true);
  ck_ok(hec_problem_group(p, 2));
  if (zero)
    hec_problem_share_optimizer(p);
  return p;
}

static hec_lowering *lower(bool zero) {
  hec_problem *p = problem_of(zero);
  const hec_load load = hec_test_equal_load(p, 64, &arena);
  return hec_test_lower(p, "ep", "serial", &load, &arena);
}

static double optimizer_bytes(const hec_program *program) {
  double peak[RANKS], by_class[HEC_N_MEMORY];
  hec_program_memory_peak(program, peak, by_class);
  return by_class[HEC_MEMORY_OPTIMIZER];
}

/* 12 bytes of state for a parameter. Of the dense part a quarter on each of four ranks, of an expert half in each of two groups. */
HEC_TEST(memory_by_hand) {
  const hec_problem *p = problem_of(false);
  double dense = p->bytes.dense_optimizer, expert = 12.0 * p->moe->n_ffn_matrices * 64 * 128;
  HEC_OPENED(hec_lowering) *whole = lower(false), *parts = lower(true);
  ck_near(optimizer_bytes(hec_lowering_program(whole)), dense + OWN * expert);
  ck_near(optimizer_bytes(hec_lowering_program(parts)), dense / RANKS + OWN * expert / 2);
}

/* Parameters have as many bytes as gradients here, so that as much travels. */
HEC_TEST(traffic_is_that_of_an_all_reduce) {
  double one[2][HEC_N_TRAFFIC], off[HEC_N_TRAFFIC];
  for (int zero = 0; zero < 2; zero++) {
    HEC_OPENED(hec_lowering) *low = lower(zero);
    hec_program_traffic(hec_lowering_program(low), one[zero], off);
  }
  for (int k = 0; k < HEC_N_TRAFFIC; k++)
    ck_near(one[1][k], one[0][k]);
  ck_assert(one[1][HEC_TRAFFIC_DENSE] > 0 && one[1][HEC_TRAFFIC_REPLICA] > 0);
}

static int32_t count(const hec_program *program, hec_role role, bool after, int32_t optimizer) {
  int32_t n = 0;
  for (int32_t i = 0; i < (int32_t)program->n_ops; i++)
    n += program->ops[i].role == role && (after ? i > optimizer : i < optimizer);
  return n;
}

/* Sums before the optimizer, what it has updated after it; nothing is gathered before. */
HEC_TEST(order) {
  HEC_OPENED(hec_lowering) *low = lower(true);
  const hec_program *program = hec_lowering_program(low);
  int32_t optimizer = -1;
  for (int32_t i = 0; i < (int32_t)program->n_ops; i++)
    optimizer = program->ops[i].role == HEC_ROLE_OPTIMIZER ? i : optimizer;
  ck_assert_int_eq(count(program, HEC_ROLE_DENSE_REDUCE, false, optimizer), LAYERS);
  ck_assert_int_eq(count(program, HEC_ROLE_REPLICA_SCATTER, false, optimizer), LAYERS);
  ck_assert_int_eq(count(program, HEC_ROLE_DENSE_GATHER, false, optimizer), 0);
  ck_assert_int_eq(count(program, HEC_ROLE_REPLICA_GATHER, false, optimizer), 0);
  ck_assert_int_eq(count(program, HEC_ROLE_DENSE_GATHER, true, optimizer), LAYERS);
  ck_assert_int_eq(count(program, HEC_ROLE_REPLICA_GATHER, true, optimizer), LAYERS);
  for (int32_t i = optimizer + 1; i < (int32_t)program->n_ops; i++)
    ck_assert_int_eq(program->deps[program->ops[i].dep_at], optimizer);
}

/* An all-reduce takes what its halves take, one after the other. */
HEC_TEST_LOOP(halves_make_a_whole, 2) {
  const hec_problem *p = problem_of(false);
  int64_t ps[3];
  for (int half = 0; half < 3; half++) {
    HEC_SCOPED(hec_program) program = {0};
    hec_program_clear(&program, RANKS);
    hec_op op = hec_op_new(HEC_OP_ALLREDUCE, HEC_LANE_GRAD, HEC_ROLE_DENSE_REDUCE, 0);
    op.bytes = 3e6;
    op.allreduce.half = (hec_allreduce_half)half;
    (void)hec_program_add(&program, op, NULL, 0);
    ps[half] = hec_test_end_ps(p, &program, _i ? &hec_law_max_min : &hec_law_alpha_beta, (hec_sim_options){0});
  }
  ck_assert_int_eq(ps[HEC_ALLREDUCE_SCATTER], ps[HEC_ALLREDUCE_GATHER]);
  ck_assert_int_le(llabs(2 * ps[HEC_ALLREDUCE_SCATTER] - ps[HEC_ALLREDUCE_WHOLE]), 2);
  ck_assert_int_gt(ps[HEC_ALLREDUCE_SCATTER], 0);
}
