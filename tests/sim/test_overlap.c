/* What hides and what does not (reference hecate.md 14). There is one guest in every layer. No token moves, there are
 * no fixed costs, and memory is infinitely fast. T: time of a layer's spAG, equal to its spRS. A: attention and gate.
 * C: the counts, on which the gate's window ends. Two ranks; every layer's expert 0 is copied from rank 0 to rank 1.
 *
 *   default              forward T beside A + C;  backward T beside 2 A
 *   re-materialisation   the same, and in backward T + T (spRS of l, spAG of l - 1) beside 2 A, for every layer but the
 *                        last, whose copies stay from forward to backward
 *
 * T <= A:             nothing is exposed, both take the same time
 * A < T <= 2 A:       exposed per layer T - A forward. With re-materialisation 2 T - 2 A more for each layer but one
 *                     (a layer in the middle: 3 (T - A), three times the default)
 * The shorter the attention, the smaller A: with the same T more is exposed, layer by layer.
 *
 * Schedule `laer`: T beside the experts X of the layer before (backward: beside 2 X), with re-materialisation or without.
 * Exposed are the first layer's gather, T - A - C, and the return that ends the backward, T. With T <= X nothing else. */
#include "runtime/plan/problem.h"
#include "runtime/program/lower.h"
#include "sim/simulate.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <stdio.h>

HEC_TEST_ARENA(arena)

enum { LAYERS = 5 };

typedef struct {
  int64_t total, gather, scatter, regathers, counts, window, experts; /* ps; regathers: how many */
  int64_t windows;                                                    /* sum over the layers */
  hec_breakdown parts;
} measured;

static measured run_with(const char *attention, const char *policy, const hec_schedule *schedule, double ratio) {
  hec_moe *moe = HEC_NEW(&arena, hec_moe, 1);
  hec_cluster *cluster = HEC_NEW(&arena, hec_cluster, 1);
  hec_problem *problem = HEC_NEW(&arena, hec_problem, 1);
  *moe = *hec_test_problem(&arena, "1x2 nvlink=1G flops=1T mem=400G", 2, LAYERS, 2, 1, true)->moe;
  moe->d_ffn = 6400;
  moe->seq_len = 64;
  moe->fused_attention = true;
  ck_assert_ptr_null(hec_attention_read(attention, &moe->attention, &moe->s2));
  double flops = 1e12, bytes = 4.0 * 64 * 6400; /* of an expert's parameters */
  double window_s = 1000 * (8.0 * 64 * 64 + 4.0 * 64 * 64 + 2.0 * 64 * 2) / flops;
  char line[200];
  (void)snprintf(line, sizeof line, "1x2 nvlink=%.17g flops=1T mem=400G eff=1 a=0s c=0s launch=0s plan=0s@0s tile=1",
                 bytes / (ratio * window_s));
  ck_ok(hec_cluster_parse_line(line, &arena, cluster));
  ck_ok(hec_problem_make(moe, cluster, true, 2, 1000, problem));
  problem->t = problem->m = 1;
  for (int32_t d = 0; d < 2; d++)
    cluster->devices[d].hbm_bandwidth = 1e30;
  hec_load load = hec_load_new(&arena, LAYERS, 2, 2);
  for (int32_t l = 0; l < LAYERS; l++) { /* every token is where its expert lives */
    hec_load_row(&load, l, 0)[0] = 1000;
    hec_load_row(&load, l, 1)[1] = 1000;
  }
  const hec_policy *row = hec_policy_find(policy);
  ck_assert_ptr_nonnull(row);
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(problem, row, schedule, NULL, &arena);
  hec_lower_iteration(low, 1, &load, 1, 1);
  const hec_program *program = hec_lowering_program(low);
  HEC_SCOPED(hec_timeline) t = hec_test_simulate(problem, program, &hec_law_alpha_beta, (hec_sim_options){0});
  measured m = {.total = hec_timeline_end_ps(&t)};
  for (size_t i = 0; i < program->n_ops; i++) {
    int64_t length = t.end_ps[2 * i] - t.begin_ps[2 * i];
    const hec_op *op = &program->ops[i];
    ck_assert(op->role != HEC_ROLE_DISPATCH && op->role != HEC_ROLE_CALIBRATE);
    m.gather = op->role == HEC_ROLE_GATHER ? length : m.gather;
    m.scatter = op->role == HEC_ROLE_SCATTER ? length : m.scatter;
    m.regathers += op->role == HEC_ROLE_REGATHER;
    m.experts = op->role == HEC_ROLE_EXPERTS && !op->backward ? length : m.experts;
    m.counts = op->role == HEC_ROLE_COUNTS ? length : m.counts;
    if ((op->role == HEC_ROLE_ATTENTION || op->role == HEC_ROLE_GATE) && !op->backward && op->layer == 0)
      m.window += length;
    if ((op->role == HEC_ROLE_ATTENTION || op->role == HEC_ROLE_GATE) && !op->backward)
      m.windows += length;
  }
  m.parts = hec_timeline_breakdown(&t, program);
  return m;
}

static measured run(const char *policy, const hec_schedule *schedule, double ratio) {
  return run_with("full", policy, schedule, ratio);
}

static const double within[] = {0.1, 0.5, 0.9, 0.999};
HEC_TEST_LOOP(hidden_costs_nothing, 4) {
  const hec_schedule *schedule = &hec_schedule_hecate;
  measured plain = run("hecate-published", schedule, within[_i]), again = run("hecate-rm", schedule, within[_i]);
  measured none = run("ep", schedule, within[_i]);
  ck_assert_int_eq(plain.regathers, 0);
  ck_assert_int_eq(again.regathers, LAYERS - 1);
  ck_assert_int_gt(plain.gather, 0);
  ck_assert_int_eq(plain.total, again.total);
  /* and materialisation itself costs nothing but the last layer of the backward, whose spRS ends after nothing: it
   * lies beside attention of layer 0 */
  ck_assert_int_eq(plain.total, none.total);
}

static const double beyond[] = {1.1, 1.5, 1.9};
HEC_TEST_LOOP(exposed_three_times, 3) {
  const hec_schedule *schedule = &hec_schedule_hecate;
  measured plain = run("hecate-published", schedule, beyond[_i]), again = run("hecate-rm", schedule, beyond[_i]);
  measured none = run("ep", schedule, beyond[_i]);
  ck_assert_int_eq(plain.gather, plain.scatter);
  int64_t forward = plain.gather - plain.window - plain.counts, backward = 2 * (plain.gather - plain.window);
  ck_assert_int_gt(forward, 0);
  int64_t exposed = plain.total - none.total, with = again.total - none.total, rounding = 4 * LAYERS;
  ck_assert_int_le(llabs(exposed - LAYERS * forward), rounding);
  ck_assert_int_le(llabs(with - LAYERS * forward - (LAYERS - 1) * backward), rounding);
  /* per layer, but for the counts and the one layer that stays: three times */
  ck_assert_int_le(llabs(with - exposed - 2 * exposed * (LAYERS - 1) / LAYERS), 2 * LAYERS * plain.counts + rounding);
}

static const double under_experts[] = {0.5, 1.5, 10, 30};
HEC_TEST_LOOP(experts_hide_more, 4) {
  double ratio = under_experts[_i];
  measured plain = run("hecate-published", &hec_schedule_laer, ratio),
           again = run("hecate-rm", &hec_schedule_laer, ratio);
  measured none = run("ep", &hec_schedule_laer, ratio), beside = run("hecate-published", &hec_schedule_hecate, ratio);
  ck_assert_int_eq(plain.regathers, 0);
  ck_assert_int_eq(again.regathers, LAYERS - 1);
  ck_assert_int_le(plain.gather, plain.experts);
  ck_assert_int_eq(plain.total, again.total);
  int64_t first = plain.gather - plain.window - plain.counts, rounding = 4 * LAYERS;
  int64_t exposed = (first > 0 ? first : 0) + plain.scatter;
  ck_assert_int_le(llabs(plain.total - none.total - exposed), rounding);
  bool sooner = plain.total < beside.total, expected = (ratio > 1);
  ck_assert_int_eq(sooner, expected);
}

/* 1.2 times full attention's window; below twice the shortest, so that the backward hides its spRS throughout. */
HEC_TEST(a_shorter_attention_hides_less) {
  static const char *const kinds[] = {"full", "causal", "s2:shards=4,local=4,block=4,dense=2",
                                      "s2:shards=4,local=4,block=4"};
  measured before = {0};
  for (int k = 0; k < 4; k++) {
    measured plain = run_with(kinds[k], "hecate-published", &hec_schedule_hecate, 1.2);
    measured none = run_with(kinds[k], "ep", &hec_schedule_hecate, 1.2);
    int64_t exposed = plain.total - none.total, expected = LAYERS * (plain.gather - plain.counts) - plain.windows;
    int64_t rounding = 4 * LAYERS;
    ck_assert_int_gt(expected, rounding);
    ck_assert_int_le(llabs(exposed - expected), rounding);
    ck_assert_int_le(llabs((int64_t)(1e12 * plain.parts.role_s[HEC_ROLE_GATHER]) - expected), rounding);
    ck_assert(plain.parts.role_s[HEC_ROLE_SCATTER] < 1e-12 * (double)rounding);
    ck_assert_int_le(llabs((int64_t)(1e12 * plain.parts.sparse_s) - LAYERS * (plain.gather + plain.scatter)), rounding);
    if (k > 0) {
      ck_assert_int_le(llabs(plain.gather - before.gather), 1); /* the same traffic */
      ck_assert_int_lt(plain.windows, before.windows);
      ck_assert(plain.parts.role_s[HEC_ROLE_GATHER] > before.parts.role_s[HEC_ROLE_GATHER]);
    }
    before = plain;
  }
}
