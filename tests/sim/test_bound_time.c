/* No policy of the table, under any schedule it allows and either network law,
 * is faster than the bound of its class; and the bound is reached where nothing
 * but what it counts takes time. */
#include "runtime/plan/bound/bound.h"
#include "tests/support/check_main.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"

#include <string.h>

static hec_arena arena;
static void teardown(void) {
  hec_arena_free(&arena);
}

static int64_t time_of(const hec_problem *problem, const hec_program *program, const hec_law *law) {
  hec_arena own = {0};
  hec_sim *sim = hec_sim_new(problem, law, &own);
  hec_timeline timeline = {0};
  hec_sim_run(sim, program, (hec_sim_options){0}, &timeline);
  int64_t end = hec_timeline_end_ps(&timeline);
  hec_timeline_free(&timeline);
  hec_sim_free(sim);
  hec_arena_free(&own);
  return end;
}

typedef struct {
  const hec_law *law;
  hec_bound *bound;
  double nearest; /* bound over time */
} context;

static hec_bound_time bound_of(const hec_test_step *step, const context *c, hec_bound_class class) {
  hec_bound *bound = c->bound;
  hec_arena own = {0};
  hec_bound_begin(bound, (hec_bound_case){.class = class,
                                          .tokens_wait = step->schedule->tokens_wait,
                                          .by_node = step->schedule->by_node,
                                          .closed_form = c->law == &hec_law_alpha_beta,
                                          .n_micro_batches = step->c->n_micro_batches});
  for (int32_t mb = 0; mb < step->c->n_micro_batches; mb++) {
    hec_load load = hec_test_actual_load(step, mb, &own);
    hec_bound_add(bound, &load);
  }
  hec_arena_free(&own);
  return hec_bound_end(bound);
}

static void visit(const hec_test_step *step, void *given) {
  context *c = given;
  if (step->schedule->bound)
    return;
  hec_bound_class class = hec_bound_class_of(step->policy, &step->c->problem);
  hec_bound_time bound = bound_of(step, c, class);
  /* that every duration is rounded on its own is in the bound */
  double s = (double)time_of(&step->c->problem, step->program, c->law) * 1e-12;
  ck_assert_msg(s * (1 + 1e-12) >= bound.total_s,
                "%.9g s, bound %.9g s (%s; chain %.9g, tokens %.9g, moved %.9g; %s): %s", s, bound.total_s,
                hec_bound_class_name[class], bound.chain_s, bound.token_s, bound.moved_s, hec_law_name(c->law),
                hec_test_step_name(step));
  c->nearest = bound.total_s / s > c->nearest ? bound.total_s / s : c->nearest;
  if (class != HEC_BOUND_WHOLE) /* what may do less is bounded by more, but for
                                   bytes that only copies move */
    return;
  ck_assert(bound.chain_s >= bound_of(step, c, HEC_BOUND_COPIES).chain_s * (1 - 1e-12));
}

static void run(uint64_t seed, hec_test_wish wish, const hec_law *law, const char *schedule) {
  hec_test_case *c = hec_test_random_case(&arena, &seed, wish);
  c->only_schedule = schedule;
  context own = {.law = law, .bound = hec_bound_new(&c->problem, &arena)};
  hec_test_each(c, false, visit, &own);
  ck_assert(own.nearest > 0);
}

START_TEST(serial_alpha_beta) {
  run(1000 + (uint64_t)_i, (hec_test_wish){0}, &hec_law_alpha_beta, "serial");
}
END_TEST
START_TEST(without_overhead) { /* nothing hides behind fixed costs */
  run(2000 + (uint64_t)_i, (hec_test_wish){.no_overhead = true}, &hec_law_alpha_beta, NULL);
}
END_TEST
START_TEST(with_heavy_state) { /* what moves counts, and the optimizer */
  run(3000 + (uint64_t)_i, (hec_test_wish){.no_overhead = true, .heavy_state = true}, &hec_law_alpha_beta, NULL);
}
END_TEST
START_TEST(max_min) {
  run(4000 + (uint64_t)_i, (hec_test_wish){.no_overhead = _i % 2 == 0}, &hec_law_max_min, NULL);
}
END_TEST
START_TEST(with_comm_share) {
  run(5000 + (uint64_t)_i, (hec_test_wish){.no_overhead = _i % 2 == 0, .comm_share = true}, &hec_law_alpha_beta, NULL);
}
END_TEST

/* Networks so slow that only bytes count. */
START_TEST(slow_network) {
  uint64_t seed = 6000 + (uint64_t)_i;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.no_overhead = true});
  static const char *const lines[] = {"1x8 nvlink=10M flops=300T mem=40G hbm=900000G",
                                      "2x4 nvlink=10M nic=10M flops=300T mem=40G hbm=900000G",
                                      "4x2 nvlink=1G nic=1M flops=300T mem=40G hbm=900000G",
                                      "2x4 nvlink=1G nic=1M nics=4 flops=300T mem=40G hbm=900000G",
                                      "2x4 nvlink=1G nic=1M nics=4 pxn=1 flops=300T mem=40G hbm=900000G",
                                      ("4x2 nvlink=3M nic=1M through=1 leaf=2 uplink=1M flops=300T mem=40G "
                                       "hbm=900000G")};
  c->problem.n_ranks = c->problem.n_ranks > 8 ? 8 : c->problem.n_ranks;
  hec_test_recluster(c, lines[_i % 6], &arena);
  for (int32_t i = 0; i < c->n_iterations * c->n_micro_batches; i++)
    c->loads[i] = hec_test_random_load(&arena, &c->problem, &seed);
  context own = {.law = _i % 4 == 3 ? &hec_law_max_min : &hec_law_alpha_beta,
                 .bound = hec_bound_new(&c->problem, &arena)};
  hec_test_each(c, false, visit, &own);
}
END_TEST

/* Two ranks, two experts, every source sends the same to each: everything that
 * takes time is what the bound counts. */
START_TEST(reached) {
  hec_test_case c = {.n_iterations = 1, .n_micro_batches = 1};
  uint64_t seed = 7000 + (uint64_t)_i;
  c.moe = (hec_moe){.name = "even",
                    .n_layers = 2,
                    .n_moe_layers = 2,
                    .d_model = 256,
                    .d_ffn = 1024,
                    .d_ffn_dense = 1024,
                    .n_ffn_matrices = 2 + _i % 2,
                    .n_experts = 2,
                    .top_k = 1,
                    .n_heads = 4,
                    .n_kv_heads = 4,
                    .d_head = 64,
                    .seq_len = 64,
                    .tokens_per_rank = 2000,
                    .micro_batches = 1,
                    .dtype_bytes = 2,
                    .grad_bytes = 2,
                    .optimizer_bytes = 12,
                    .attention = _i % 4 == 1 ? HEC_ATTENTION_S2 : HEC_ATTENTION_FULL,
                    .s2 = {.shards = 4, .local = 8, .block = 8, .dense = 2}, /* one layer of the two */
                    .fused_attention = true,
                    .recompute = _i % 3 == 0,
                    .nonmoe_scale = 1};
  (void)snprintf(c.line, sizeof c.line,
                 "1x2 nvlink=%dG flops=%dT mem=40G hbm=1000000G a=0s c=0s "
                 "launch=0s plan=0s@0s tile=1",
                 1 + (int)hec_test_below(&seed, 200), 1 + (int)hec_test_below(&seed, 100));
  ck_assert_msg(hec_cluster_parse_line(c.line, &arena, &c.cluster) == HEC_OK, "%s", hec_last_error());
  ck_assert(hec_problem_make(&c.moe, &c.cluster, _i % 4 != 0, 2, 2000, &c.problem) == HEC_OK);
  hec_load load = hec_load_new(&arena, 2, 2, 2);
  for (int i = 0; i < 8; i++)
    load.counts[i] = 1000;
  hec_lowering *low = hec_lowering_new(&c.problem, &hec_policy_ep, &hec_schedule_serial, NULL, &arena);
  hec_lower_iteration(low, 1, &load, 1, 1);
  hec_bound *bound = hec_bound_new(&c.problem, &arena);
  hec_bound_begin(bound, (hec_bound_case){HEC_BOUND_WHOLE, true, true, 1, false});
  hec_bound_add(bound, &load);
  double total_s = hec_bound_end(bound).total_s;
  double s = (double)time_of(&c.problem, hec_lowering_program(low), &hec_law_alpha_beta) * 1e-12;
  ck_assert_msg(total_s <= s && total_s >= 0.999 * s, "%.9g s, bound %.9g s: %s", s, total_s, c.line);
  hec_lowering_free(low);
}
END_TEST

/* All tokens of all ranks to one expert: whoever computes it is the bound, and
 * its tokens come in first. */
START_TEST(one_hot_expert) {
  hec_test_case c = {.n_iterations = 1, .n_micro_batches = 1};
  uint64_t seed = 31;
  c.moe = hec_test_random_case(&arena, &seed, (hec_test_wish){0})->moe;
  c.moe.n_layers = c.moe.n_moe_layers = 1;
  c.moe.n_experts = 4;
  c.moe.top_k = 1;
  c.moe.d_model = c.moe.d_ffn = 512;
  c.moe.n_shared_experts = c.moe.vocabulary = 0;
  ck_assert(hec_cluster_parse_line("1x4 nvlink=20G flops=10T mem=40G "
                                   "hbm=1000000G a=0s c=0s launch=0s tile=1",
                                   &arena, &c.cluster) == HEC_OK);
  ck_assert(hec_problem_make(&c.moe, &c.cluster, false, 4, 3000, &c.problem) == HEC_OK);
  hec_load load = hec_load_new(&arena, 1, 4, 4);
  for (int s = 0; s < 4; s++)
    hec_load_row(&load, 0, s)[2] = 3000;
  hec_bound *bound = hec_bound_new(&c.problem, &arena);
  double flops_s = c.cluster.devices[0].flops * c.cluster.devices[0].flops_efficiency;
  double seconds[2];
  for (hec_bound_class class = 0; class < 2; class ++) {
    hec_bound_begin(bound, (hec_bound_case){class, true, true, 1, false});
    hec_bound_add(bound, &load);
    seconds[class] = hec_bound_end(bound).total_s;
  }
  double row_s = c.problem.expert.flops_per_row / flops_s, in_s = 9000.0 * 1024 / 20e9;
  ck_assert_double_eq_tol(seconds[HEC_BOUND_WHOLE] - seconds[HEC_BOUND_COPIES], 9000 * row_s + in_s,
                          1e-3 * seconds[HEC_BOUND_WHOLE]);
}
END_TEST

/* By hand: two ranks, two experts, both busy with both. A copy costs its gradient (returned over one of two lanes) and,
 * where experts lie in slices, half of each expert's bytes on the way. */
START_TEST(what_must_move) {
  hec_moe moe = hec_test_random_case(&arena, &(uint64_t){77}, (hec_test_wish){0})->moe;
  moe.n_layers = moe.n_moe_layers = 1;
  moe.n_experts = 2;
  moe.top_k = 1;
  moe.d_model = 64;
  moe.d_ffn = 128;
  moe.grad_bytes = 4;
  hec_cluster cluster;
  ck_assert(hec_cluster_parse_line("1x2 nvlink=2G flops=10T mem=40G", &arena, &cluster) == HEC_OK);
  double params = hec_moe_expert_params(&moe);
  for (int train = 0; train < 2; train++)
    for (int few = 0; few < 2; few++) {
      hec_problem problem;
      ck_assert(hec_problem_make(&moe, &cluster, train == 1, 2, 3000, &problem) == HEC_OK);
      hec_load load = hec_load_new(&arena, 1, 2, 2);
      for (int i = 0; i < 4; i++)
        load.counts[i] = few ? (i == 0 || i == 3 ? 1000 : 3) : 1500;
      hec_bound *bound = hec_bound_new(&problem, &arena);
      double moved_s[HEC_N_BOUND_CLASSES];
      for (hec_bound_class class = 0; class < HEC_N_BOUND_CLASSES; class ++) {
        hec_bound_begin(bound, (hec_bound_case){class, true, true, 1, false});
        hec_bound_add(bound, &load);
        moved_s[class] = hec_bound_end(bound).moved_s;
      }
      double row = 128, rate = 2 * 2e9; /* both ranks */
      double copy = few ? 2 * 3 * row : params * 4;
      ck_assert_double_eq(moved_s[HEC_BOUND_WHOLE], 0);
      ck_assert_double_eq_tol(moved_s[HEC_BOUND_COPIES], train ? 2 * copy / 2 / rate : 0, 1e-15);
      /* slices of a half, less a parameter that cannot be cut: both experts once, and the other rank's choice */
      double half = 0.5 - 1 / params, bytes = train ? 4 : 2,
             others = few ? (train ? 2 : 1) * 3 * row : half * params * bytes;
      double once = 2 * half * params * bytes, with_others = ((train ? once : 0) + 2 * others) / 2;
      ck_assert_double_eq_tol(moved_s[HEC_BOUND_SHARDED], (once > with_others ? once : with_others) / rate, 1e-12);
    }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("bound_time");
  TCase *c = tcase_create("bound_time");
  tcase_set_timeout(c, 240);
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_add_loop_test(c, serial_alpha_beta, 0, hec_test_cases(120));
  tcase_add_loop_test(c, without_overhead, 0, hec_test_cases(120));
  tcase_add_loop_test(c, with_heavy_state, 0, hec_test_cases(40));
  tcase_add_loop_test(c, max_min, 0, hec_test_cases(24));
  tcase_add_loop_test(c, with_comm_share, 0, hec_test_cases(24));
  tcase_add_loop_test(c, slow_network, 0, hec_test_cases(96));
  tcase_add_loop_test(c, reached, 0, 12);
  tcase_add_test(c, one_hot_expert);
  tcase_add_test(c, what_must_move);
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
