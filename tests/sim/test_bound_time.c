/* The bound by hand, and reached where nothing but what it counts takes time. (That nothing is below it: test_bounds.c.) */
#include "runtime/plan/bound/bound.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* Two ranks, two experts, every source sends the same to each: everything that takes time is what the bound counts. */
HEC_TEST_LOOP(reached, 12) {
  hec_test_case c = {.n_iterations = 1, .n_micro_batches = 1};
  uint64_t seed = 7000 + (uint64_t)_i;
  c.moe = *hec_test_problem(&arena, "1x2 nvlink=1G flops=1T mem=40G", 2, 2, 2, 1, true)->moe;
  c.moe.d_model = 256;
  c.moe.d_ffn = c.moe.d_ffn_dense = 1024;
  c.moe.n_ffn_matrices = 2 + _i % 2;
  c.moe.d_head = c.moe.seq_len = 64;
  c.moe.tokens_per_rank = 2000;
  c.moe.attention = _i % 4 == 1 ? HEC_ATTENTION_S2 : HEC_ATTENTION_FULL;
  c.moe.s2 = (hec_s2){.shards = 4, .local = 8, .block = 8, .dense = 2}; /* one layer of the two */
  c.moe.fused_attention = true;
  c.moe.vocabulary = 300 * (_i % 2);
  c.moe.recompute = _i % 3 == 0;
  (void)snprintf(c.line, sizeof c.line,
                 "1x2 nvlink=%dG flops=%dT mem=40G hbm=1000000G a=0s c=0s "
                 "launch=0s plan=0s@0s tile=1",
                 1 + (int)hec_test_below(&seed, 200), 1 + (int)hec_test_below(&seed, 100));
  ck_ok(hec_cluster_parse_line(c.line, &arena, &c.cluster));
  ck_ok(hec_problem_make(&c.moe, &c.cluster, _i % 4 != 0, 2, 2000, &c.problem));
  hec_load load = hec_load_new(&arena, 2, 2, 2);
  for (int i = 0; i < 8; i++)
    load.counts[i] = 1000;
  c.problem.head_late = _i / 2 % 2 == 0;
  HEC_OPENED(hec_lowering) *low = hec_test_lower(&c.problem, "ep", "serial", &load, &arena);
  hec_bound *bound = hec_bound_new(&c.problem, &arena);
  hec_bound_begin(bound, (hec_bound_case){HEC_BOUND_WHOLE, true, true, 1, false});
  hec_bound_add(bound, &load);
  double total_s = hec_bound_end(bound).total_s;
  double s = hec_test_seconds(&c.problem, hec_lowering_program(low));
  ck_assert_msg(total_s <= s && total_s >= 0.999 * s, "%.9g s, bound %.9g s: %s", s, total_s, c.line);
}

/* Two nodes of one rank, each of two experts wanted alike, and copies whose gradients take far longer than tokens. Whatever the
 * policy, half of the tokens travel. With cheap copies nothing has to. */
HEC_TEST_LOOP(tokens_or_copies, 2) {
  hec_test_case c = {.n_iterations = 1, .n_micro_batches = 1};
  bool dear = _i == 0;
  c.moe = *hec_test_problem(&arena, "2x1 nvlink=1G nic=1G flops=1T mem=40G", 2, 2, 2, 1, true)->moe;
  c.moe.d_model = 256;
  c.moe.d_ffn = c.moe.d_ffn_dense = dear ? 65536 : 16;
  c.moe.n_ffn_matrices = 2;
  c.moe.d_head = c.moe.seq_len = 64;
  c.moe.tokens_per_rank = 2000;
  ck_ok(hec_cluster_parse_line("2x1 nvlink=1000G nic=1G flops=100T mem=40G hbm=1000000G a=0s c=0s launch=0s plan=0s@0s "
                               "tile=1",
                               &arena, &c.cluster));
  ck_ok(hec_problem_make(&c.moe, &c.cluster, true, 2, 2000, &c.problem));
  hec_load load = hec_load_new(&arena, 2, 2, 2);
  for (int i = 0; i < 8; i++)
    load.counts[i] = 1000;
  HEC_OPENED(hec_lowering) *low = hec_test_lower(&c.problem, "ep", "serial", &load, &arena);
  hec_bound *bound = hec_bound_new(&c.problem, &arena);
  hec_bound_begin(bound, (hec_bound_case){HEC_BOUND_COPIES, true, true, 1, false});
  hec_bound_add(bound, &load);
  hec_bound_time time = hec_bound_end(bound);
  double s = hec_test_seconds(&c.problem, hec_lowering_program(low));
  double tokens_s = 2 * 4 * 1000 * c.problem.bytes.token / 1e9; /* two layers, four exchanges */
  double reduce_s = 2 * hec_link_cost_allreduce(&c.cluster, 2, hec_problem_gradients(&c.problem, 0)) +
                    hec_link_cost_allreduce(&c.cluster, 2, hec_problem_gradients(&c.problem, -1));
  ck_assert_msg(time.total_s <= s, "%.9g s, bound %.9g s", s, time.total_s);
  if (dear) /* but for reductions that other work hides, all the time there is */
    ck_assert_msg(time.served_s >= time.chain_s + 0.9 * tokens_s && time.total_s >= 0.9 * (s - reduce_s),
                  "%.9g s, bound %.9g s, chain %.9g s, tokens %.9g s", s, time.total_s, time.chain_s, tokens_s);
  else
    ck_assert_msg(time.served_s < time.chain_s + 0.2 * tokens_s + reduce_s,
                  "served %.9g s, chain %.9g s, tokens %.9g s", time.served_s, time.chain_s, tokens_s);
}

/* All tokens of all ranks to one expert: whoever computes it is the bound, and its tokens come in first. */
HEC_TEST(one_hot_expert) {
  hec_test_case c = {.n_iterations = 1, .n_micro_batches = 1};
  uint64_t seed = 31;
  c.moe = hec_test_random_case(&arena, &seed, (hec_test_wish){0})->moe;
  c.moe.n_layers = c.moe.n_moe_layers = 1;
  c.moe.n_experts = 4;
  c.moe.top_k = 1;
  c.moe.d_model = c.moe.d_ffn = 512;
  c.moe.n_shared_experts = c.moe.vocabulary = 0;
  ck_ok(hec_cluster_parse_line("1x4 nvlink=20G flops=10T mem=40G "
                               "hbm=1000000G a=0s c=0s launch=0s tile=1",
                               &arena, &c.cluster));
  ck_ok(hec_problem_make(&c.moe, &c.cluster, false, 4, 3000, &c.problem));
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

/* By hand: two ranks, two experts, both busy with both. A copy costs its gradient (returned over one of two lanes) and,
 * where experts lie in slices, half of each expert's bytes on the way. */
HEC_TEST(what_must_move) {
  hec_moe moe = hec_test_random_case(&arena, &(uint64_t){77}, (hec_test_wish){0})->moe;
  moe.n_layers = moe.n_moe_layers = 1;
  moe.n_experts = 2;
  moe.top_k = 1;
  moe.d_model = 64;
  moe.d_ffn = 128;
  moe.grad_bytes = 4;
  hec_cluster cluster;
  ck_ok(hec_cluster_parse_line("1x2 nvlink=2G flops=10T mem=40G", &arena, &cluster));
  double params = hec_moe_expert_params(&moe);
  for (int train = 0; train < 2; train++)
    for (int few = 0; few < 2; few++) {
      hec_problem problem;
      ck_ok(hec_problem_make(&moe, &cluster, train == 1, 2, 3000, &problem));
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
