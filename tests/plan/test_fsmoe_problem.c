/* What FSMoE's planner sees of a problem, by hand on small clusters, and its decision against every degree. */
#include "models/link_cost.h"
#include "runtime/plan/planners/fsmoe_problem.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <math.h>

HEC_TEST_ARENA(arena)

/* No start-up, no tiles, endless memory rate: every line goes through 0 and has a hand-made slope. */
#define PLAIN " flops=1T eff=1 mem=40G hbm=1000000T a=0s c=0s launch=0s tile=1"

static double at_one(hec_fsmoe_op op) {
  return hec_fsmoe_chunk(op, 1);
}

HEC_TEST(plain_by_hand) {
  /* 2 nodes of 2; 256 tokens, top-2, rows of 128 bytes (d_model 64, bf16). */
  hec_problem *p = hec_test_problem(&arena, "2x2 nvlink=10G nic=1G" PLAIN, 4, 3, 8, 2, true);
  double rows = 256 * 2, bytes = rows * 128;
  ck_assert_double_eq(p->bytes.token, 128);
  hec_fsmoe_view view = hec_fsmoe_view_of(p, &arena);
  /* A quarter to each rank; a node's NIC has two ranks' two quarters. */
  ck_assert_double_eq_tol(at_one(view.forward.a2a), bytes / 4 * 4 / 1e9, 1e-12);
  ck_assert_double_eq_tol(view.forward.a2a.start, 0, 1e-9);
  ck_assert(at_one(view.forward.gather) == 0 && at_one(view.forward.scatter) == 0);
  ck_assert_double_eq_tol(at_one(view.forward.experts), rows * p->expert.flops_per_row / 1e12, 1e-9);
  ck_assert_double_eq_tol(at_one(view.backward.experts), 2 * rows * p->expert.flops_per_row / 1e12, 1e-9);
  ck_assert(at_one(view.backward.a2a) == at_one(view.forward.a2a));
  ck_assert_double_eq(view.gradient, hec_moe_block_params(p->moe) * p->moe->grad_bytes);
  ck_assert_double_eq_tol(view.reduce.start + view.reduce.per_unit * view.gradient,
                          hec_link_cost_allreduce(p->cluster, 4, view.gradient), 1e-12);
  /* Groups of a node: half of the rows to the like in the other node, then all that arrived at the neighbour. The experts'
   * products cut in two, over twice the rows. */
  double whole_s = at_one(view.forward.experts);
  ck_ok(hec_problem_shard(p, 2));
  view = hec_fsmoe_view_of(p, &arena);
  ck_assert_double_eq_tol(at_one(view.forward.a2a), bytes / 2 * 2 / 1e9, 1e-12);
  ck_assert_double_eq_tol(at_one(view.forward.gather), bytes / 10e9, 1e-12);
  ck_assert_double_ge(at_one(view.forward.scatter), at_one(view.forward.gather));
  ck_assert_double_eq_tol(at_one(view.forward.experts), whole_s, 1e-9);
  ck_assert_uint_eq(arena.used_bytes > 0, 1); /* the problem alone */
}

/* Tensor parallelism: gradients in two parts, each with its all-reduce, and two exchanges of a rank's rows in the dense part. */
HEC_TEST(tensor_by_hand) {
  hec_problem *p = hec_test_problem(&arena, "2x2 nvlink=10G nic=1G" PLAIN, 4, 3, 8, 2, true);
  hec_fsmoe_view whole = hec_fsmoe_view_of(p, &arena);
  ck_assert(whole.tensor_s == 0);
  ck_ok(hec_problem_tensor(p, 2));
  hec_fsmoe_view view = hec_fsmoe_view_of(p, &arena);
  double attention = 4 * 64 * 64, rest = 2 * 64 + 64 * 8, bytes = p->moe->grad_bytes;
  ck_assert_double_eq(view.gradient, bytes * (attention / 2 + rest));
  /* the NIC of a node carries both places' rings of 2 ranks, then one ring of 4 */
  ck_assert_double_eq_tol(view.reduce.start + view.reduce.per_unit * view.gradient,
                          (2 * attention / 2 + 1.5 * rest) * bytes / 1e9, 1e-12);
  ck_assert_double_eq_tol(view.tensor_s, 2 * 256 * 128 / 10e9, 1e-9);
  ck_assert_double_eq_tol(view.dense_s, whole.dense_s, 1e-9);
  ck_assert_double_eq_tol(at_one(view.forward.a2a), at_one(whole.forward.a2a), 1e-12);
  ck_assert_double_eq_tol(at_one(view.backward.experts), at_one(whole.backward.experts), 1e-12);
}

HEC_TEST(one_rank_reduces_nothing) {
  hec_problem *p = hec_test_problem(&arena, "1x1 nvlink=10G" PLAIN, 1, 2, 4, 2, true);
  hec_fsmoe_view view = hec_fsmoe_view_of(p, &arena);
  ck_assert(view.gradient == 0 && at_one(view.forward.a2a) == 0 && view.dense_s > 0);
  hec_fsmoe_decision d = hec_fsmoe_decide(p, false, &arena);
  ck_assert_int_eq(d.degree, 1);
  for (int v = 0; v < 2; v++)
    ck_assert(d.slots[v].beside_moe == 0 && d.slots[v].beside_dense == 0);
}

HEC_TEST_LOOP(decision_is_the_best_degree, 40) {
  uint64_t seed = 800 + (uint64_t)_i;
  char line[200];
  (void)snprintf(line, sizeof line, "2x4 nvlink=%dG@%dus nic=%dG@%dus flops=%dT mem=40G tile=%d",
                 20 + (int)hec_test_below(&seed, 300), (int)hec_test_below(&seed, 9),
                 1 + (int)hec_test_below(&seed, 50), (int)hec_test_below(&seed, 50), 1 + (int)hec_test_below(&seed, 60),
                 1 + (int)hec_test_below(&seed, 64));
  int32_t n = 1 + (int32_t)hec_test_below(&seed, 5), esp = 1 << hec_test_below(&seed, 3);
  hec_problem *p = hec_test_problem(&arena, line, 8, n, 8, 2, _i % 4 != 3);
  ck_ok(hec_problem_shard(p, esp));
  for (int folded = 0; folded < 2; folded++) {
    hec_fsmoe_view view = hec_fsmoe_view_of(p, &arena);
    hec_fsmoe_layer there = folded ? hec_fsmoe_folded(&view.forward) : view.forward;
    hec_fsmoe_layer back = folded ? hec_fsmoe_folded(&view.backward) : view.backward;
    hec_fsmoe_decision d = hec_fsmoe_decide(p, folded, &arena);
    double tail = view.reduce.start + n * view.gradient * view.reduce.per_unit, placed = 0, own = 0;
    for (int32_t r = 1; r <= 8; r *= 2) { /* no degree with all gradients at the end is better */
      double s = n * hec_fsmoe_case_time(&there, r, 0, hec_fsmoe_case_of(&there, r, 0));
      if (p->train)
        s += n * hec_fsmoe_case_time(&back, r, 0, hec_fsmoe_case_of(&back, r, 0)) + tail;
      ck_assert_double_le(d.time_s, s * (1 + 1e-9));
    }
    own = n * hec_fsmoe_case_time(&there, d.degree, 0, hec_fsmoe_case_of(&there, d.degree, 0));
    ck_assert(d.degree == 1 || d.degree == 2 || d.degree == 4 || d.degree == 8);
    ck_assert((d.slots != NULL) == p->train);
    for (int32_t v = 0; p->train && v < n; v++) {
      ck_assert_int_eq(d.slots[v].moe.degree, d.degree);
      ck_assert_double_le(placed += d.slots[v].beside_moe + d.slots[v].beside_dense, v * view.gradient * (1 + 1e-9));
      own += d.slots[v].moe.time;
    }
    double rest = n * view.gradient - placed;
    if (p->train && rest > 1e-6 * view.gradient)
      own += view.reduce.start + rest * view.reduce.per_unit;
    ck_assert_double_eq_tol(own, d.time_s, 1e-6 * d.time_s);
  }
}

/* With a degree of each direction's own, gradients divided as freely. */
static double apart_s(const hec_problem *p) {
  hec_arena_mark mark = hec_arena_save(&arena);
  hec_fsmoe_view view = hec_fsmoe_view_of(p, &arena);
  int32_t n = p->n_layers;
  hec_fsmoe_part *parts = HEC_NEW(&arena, hec_fsmoe_part, n);
  hec_fsmoe_slot *slots = HEC_NEW(&arena, hec_fsmoe_slot, n);
  for (int32_t v = 0; v < n; v++)
    parts[v] = (hec_fsmoe_part){view.backward, view.dense_s + view.tensor_s, view.gradient};
  double s = n * hec_fsmoe_best(&view.forward, 0, HEC_FSMOE_DEGREE_MAX).time;
  s += hec_fsmoe_divide(parts, n, view.reduce, (hec_fsmoe_options){0}, &arena, slots).time;
  hec_arena_rewind(&arena, mark);
  return s;
}

/* What one degree for both directions costs on five clusters and models of the presets, by the planner's closed form
 * (runtime/program/fsmoe.c says so). */
HEC_TEST(one_degree_costs_little) {
  static const char *const clusters[] = {
      "4x8 nvlink=150G@3us nvlink_eff=0.8 nic=12.5G@10us nic_eff=0.9 flops=125T eff=0.32 hbm=765G mem=32G",
      "4x8 nvlink=300G@2us nvlink_eff=0.72 nic=50G@10us nic_eff=0.89 flops=312T eff=0.32 hbm=1321.75G mem=40G",
      "8x8 nvlink=450G@2us nvlink_eff=0.8 nic=50G@5us nic_eff=0.9 nics=8 pxn=1 flops=989T eff=0.6 hbm=2847.5G mem=80G",
      ("8x8 nvlink=200G@2us nvlink_eff=0.8 nic=50G@5us nic_eff=0.9 nics=8 pxn=1 sm=0.1515 flops=989T eff=0.6 "
       "hbm=2847.5G mem=80G"),
      "1x8 nvlink=31.5G@5us nvlink_eff=0.8 flops=312T eff=0.5 hbm=1644.75G mem=80G"};
  static const char *const models[] = {"gpt-moe-s", "gpt2-xl-moe", "mixtral-8x7b", "olmoe", "qwen3-30b-a3b"};
  static const int32_t tokens[] = {512, 4096, 16384};
  double sum = 0, max = 0;
  int32_t n = 0, n_other = 0;
  for (int i = 0; i < 5 * 5 * 3 * 3; i++) {
    hec_moe moe;
    hec_cluster cluster;
    hec_problem p;
    HEC_SCOPED(hec_arena) own = {0};
    ck_ok(hec_cluster_load(clusters[i % 5], &own, &cluster));
    ck_ok(hec_moe_load(models[i / 5 % 5], &moe));
    int32_t ranks = cluster.n_devices < 32 ? cluster.n_devices : 32, esp = i / 75 == 0 ? 1 : i / 75 == 1 ? 2 : 8;
    ck_ok(hec_problem_make(&moe, &cluster, true, ranks, tokens[i / 25 % 3], &p));
    if (ranks % esp == 0 && ranks / esp <= moe.n_experts && hec_problem_shard(&p, esp) == HEC_OK) {
      double apart = apart_s(&p), one = hec_fsmoe_decide(&p, false, &arena).time_s;
      ck_assert_double_ge(one, apart * (1 - 1e-9));
      sum += one / apart - 1;
      max = one / apart - 1 > max ? one / apart - 1 : max;
      n_other += one > apart * (1 + 1e-6);
      n++;
    }
  }
  ck_assert_int_eq(n, 177);
  ck_assert_int_eq(n_other, 42);
  ck_assert_double_eq_tol(sum / n, 0.0024, 5e-5);
  ck_assert_double_eq_tol(max, 0.0388, 5e-5);
}
