/* The rows of Hecate at work: what must hold for every decision on random problems, when shards move, and how long
 * planning takes (printed). */
#include "runtime/plan/planners/fssdp.h"
#include "runtime/plan/policy.h"
#include "tests/plan/plan_cases.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

enum { RANKS_MAX = 32 };

static const hec_policy *const rows[] = {&hec_policy_hecate_published, &hec_policy_hecate_rm,
                                         &hec_policy_hecate_nosharding, &hec_policy_hecate_nomaterialisation,
                                         &hec_policy_hecate};

static int32_t copies_on(const hec_plan *plan, int32_t layer, int32_t rank, int32_t *distinct) {
  int32_t n = 0;
  *distinct = 0;
  for (int32_t e = 0; e < plan->n_experts; e++) {
    hec_copies copies = hec_plan_copies(plan, layer, e);
    *distinct += copies.n > 0;
    for (int32_t i = 0; i < copies.n; i++) {
      ck_assert(copies.kind[i] == HEC_COPY_GUEST && copies.rank[i] != hec_plan_home(plan, layer, e));
      n += copies.rank[i] == rank;
    }
  }
  return n;
}

static void check_copies(const hec_policy_run *run, bool before_gate) {
  hec_plan_check(&run->plan);
  for (int32_t l = 0; l < run->plan.n_layers; l++)
    for (int32_t r = 0; r < run->plan.n_ranks; r++) {
      int32_t distinct, n = copies_on(&run->plan, l, r, &distinct);
      ck_assert(run->t[l] >= 0 && run->t[l] <= run->plan.n_experts);
      ck_assert(run->m[l] >= 0 && run->m[l] <= run->plan.n_experts);
      ck_assert_int_le(n, run->m[l]);
      if (before_gate) {
        ck_assert_int_le(distinct, run->t[l]);
        ck_assert_int_le(n, run->t[l]);
      }
    }
}

static bool contains(const hec_plan *plan, const hec_plan *before, int32_t layer) {
  for (int32_t e = 0; e < plan->n_experts; e++)
    for (int32_t r = 0; r < plan->n_ranks; r++)
      if (hec_plan_holds(before, layer, e, r) && !hec_plan_holds(plan, layer, e, r))
        return false;
  return true;
}

static void check_even_memory(const hec_plan *plan) {
  int32_t owned[RANKS_MAX] = {0}, rows_of_all = plan->n_layers * plan->n_experts;
  for (int32_t row = 0; row < rows_of_all; row++) {
    ck_assert_int_eq(plan->home[row], plan->opt_home[row]);
    owned[plan->home[row]]++;
  }
  for (int32_t r = 0; r < plan->n_ranks; r++)
    ck_assert(owned[r] == rows_of_all / plan->n_ranks || owned[r] == (rows_of_all + plan->n_ranks - 1) / plan->n_ranks);
}

/* t as found from nothing, whatever the run remembers. */
static void check_overlap(const hec_policy_run *run, hec_spread *gather, hec_spread_sum *sum) {
  int32_t n_experts = run->plan.n_experts, order[64];
  uint64_t load[64], steps = 0;
  for (int32_t l = 0; l < run->plan.n_layers; l++) {
    hec_history_sum(&run->history, l, 5, load);
    for (int32_t e = 0; e < n_experts; e++)
      order[e] = e;
    (void)hec_fssdp_order(load, n_experts, order);
    hec_overlap_case of = {order, run->plan.home + l * n_experts, l, 0};
    ck_assert_int_eq(run->t[l], hec_fssdp_overlap_degree(gather, sum, &of, &steps));
  }
}

/* Plays 8 records; returns the digest of all plans. */
static uint64_t play(const hec_policy *policy, hec_case *c, uint64_t seed, bool check) {
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(policy, &c->problem, &arena);
  hec_plan before = hec_plan_new(&arena, &c->problem, 1);
  hec_load load = hec_load_new(&arena, c->problem.n_layers, c->problem.n_ranks, c->problem.n_experts);
  hec_rank_links links = hec_rank_links_new(&arena, &c->problem);
  hec_spread gather = hec_spread_new(&arena, &c->problem, &links, c->problem.bytes.expert_param, false);
  hec_spread_sum sum = hec_spread_sum_new(&arena, &gather);
  uint64_t digest = 0, moved = 0;
  for (int64_t iter = 0; iter < 8; iter++) {
    hec_case_random_counts(&seed, &load);
    uint64_t version = run.plan.version;
    hec_plan_assign(&before, &run.plan);
    size_t used = arena.used_bytes;
    hec_policy_decide(&run, iter, 0);
    moved += run.plan.version != version;
    size_t homes = (size_t)run.plan.n_layers * (size_t)run.plan.n_experts * sizeof *run.plan.home;
    ck_assert_int_eq(run.plan.version != version, memcmp(before.home, run.plan.home, homes) != 0);
    if (check)
      check_copies(&run, true);
    if (run.planned && policy->known == HEC_KNOWN_LAST)
      check_overlap(&run, &gather, &sum);
    if (run.plan.version != version)
      check_even_memory(&run.plan);
    digest = digest * 31 + hec_plan_digest(&run.plan);
    for (int32_t l = 0; l < run.plan.n_layers; l++) {
      hec_plan_assign(&before, &run.plan);
      hec_policy_refine(&run, l, &load);
      ck_assert(contains(&run.plan, &before, l));
    }
    ck_assert_uint_eq(arena.used_bytes, used);
    if (check)
      check_copies(&run, false);
    digest = digest * 31 + hec_plan_digest(&run.plan);
    hec_policy_observe(&run, &load);
  }
  if (!policy->period)
    ck_assert_uint_eq(moved, 0);
  return digest;
}

HEC_TEST(test_rows_on_random_problems) {
  uint64_t seed = 33;
  static const int32_t overrides[] = {HEC_AUTO, HEC_AUTO, HEC_T_PAPER, 0, 1, 3, 1000};
  for (int32_t k = 0; k < 60; k++) {
    int32_t n_devices, L = 1 + (int32_t)hec_test_below(&seed, 4), E = 1 + (int32_t)hec_test_below(&seed, 20);
    E = hec_test_below(&seed, 8) == 0 ? 1 : E;
    const char *line = hec_case_random_line(&seed, &n_devices);
    int32_t n_ranks = hec_test_below(&seed, 8) == 0 ? 1 : 1 + (int32_t)hec_test_below(&seed, (uint64_t)n_devices);
    HEC_OPENED(hec_case) *c = hec_case_new(line, n_ranks, L, E, (double)hec_test_below(&seed, 2000000000) / 100);
    c->problem.window_s = hec_test_uniform(&seed) * 2e-3;
    hec_problem *p = &c->problem;
    hec_test_one_group(&c->arena, p);
    p->train = hec_test_below(&seed, 3) > 0;
    p->t = overrides[hec_test_below(&seed, 7)];
    p->m = overrides[hec_test_below(&seed, 7)];
    p->m = p->m == HEC_T_PAPER ? HEC_AUTO : p->m;
    p->period = 3;
    for (int32_t r = 0; r < 5; r++)
      ck_assert_uint_eq(play(rows[r], c, seed, true), play(rows[r], c, seed, true));
  }
}

/* Nothing known: the hot set is the lowest ids. Homes stay even until a period has passed, then move once. */
HEC_TEST(test_schedule_of_decisions) {
  HEC_OPENED(hec_case) *c = hec_case_new("2x2 nvlink=100G@1us nic=10G@5us flops=100T mem=40G", 4, 2, 8, 1000);
  c->problem.t = 2;
  c->problem.m = 4;
  HEC_SCOPED(hec_arena) arena = {0};
  hec_policy_run run = hec_policy_start(&hec_policy_hecate_published, &c->problem, &arena);
  ck_assert_int_eq(hec_policy_hecate.period, 100);
  hec_policy_decide(&run, 50, 0);
  ck_assert(run.planned && run.units > 0);
  for (int32_t l = 0; l < 2; l++)
    for (int32_t e = 0; e < 8; e++) {
      ck_assert_int_eq(hec_plan_home(&run.plan, l, e), e / 2);
      for (int32_t r = 0; r < 4; r++)
        ck_assert_int_eq(hec_plan_holds(&run.plan, l, e, r), e < 2 || r == e / 2);
    }
  hec_load load = hec_load_new(&arena, 2, 4, 8); /* the later the hotter, and two of equal heat */
  for (int32_t l = 0; l < 2; l++)
    for (int32_t s = 0; s < 4; s++)
      for (int32_t e = 0; e < 8; e++)
        hec_load_row(&load, l, s)[e] = (uint32_t)(10 * (e < 6 ? e : 6));
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 149, 0);
  ck_assert_uint_eq(run.plan.version, 0);
  for (int32_t e = 0; e < 8; e++)
    ck_assert_int_eq(hec_plan_holds(&run.plan, 0, e, 3 - e / 4 * 3), e >= 6 || (e / 2 == 3 - e / 4 * 3));
  hec_policy_decide(&run, 150, 1); /* not in a later micro-batch */
  ck_assert_uint_eq(run.plan.version, 0);
  hec_policy_decide(&run, 150, 0);
  ck_assert_uint_eq(run.plan.version, 1);
  check_even_memory(&run.plan);
  hec_policy_decide(&run, 250, 0); /* same loads, same plan: nothing moves */
  ck_assert_uint_eq(run.plan.version, 1);
  hec_policy_stop(&run);

  run = hec_policy_start(&hec_policy_hecate_published, &c->problem, &arena); /* asked for: at once */
  hec_policy_observe(&run, &load);
  hec_policy_reshard(&run);
  hec_policy_decide(&run, 1, 0);
  ck_assert_uint_eq(run.plan.version, 1);
  hec_policy_decide(&run, 2, 0);
  ck_assert_uint_eq(run.plan.version, 1);
  hec_policy_stop(&run);

  run = hec_policy_start(&hec_policy_hecate_nomaterialisation, &c->problem, &arena);
  hec_policy_decide(&run, 0, 0);
  ck_assert(!run.planned && run.units == 0);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 100, 0);
  ck_assert(run.planned && run.plan.version == 1 && run.t[0] == 2);
  ck_assert(!hec_policy_hecate_nomaterialisation.refine);
  hec_policy_stop(&run);
}

/* Re-materialisation needs memory for one layer's copies only. */
HEC_TEST(test_rematerialisation_raises_m) {
  HEC_OPENED(hec_case) *c = hec_case_new("1x4 nvlink=100G@1us nic=10G@5us flops=100T mem=1000", 4, 5, 8, 10);
  c->problem.tokens = 0;
  HEC_SCOPED(hec_arena) arena = {0};
  for (int32_t k = 0; k < 5; k++) {
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(rows[k], &c->problem, &arena);
    ck_assert_int_eq(run.plan.rematerialise, k == 1);
    ck_assert_int_eq(run.m[4], k == 3 ? 0 : k == 1 ? 8 : 3);
  }
}

HEC_TEST_LOOP(test_no_allocation_after_start, 2) {
  HEC_OPENED(hec_case) *c = hec_case_new("4x4 nvlink=100G@1us nic=10G@5us flops=100T mem=40G", 16, 3, 32, 1e5);
  c->problem.period = 2;
  c->problem.m = 6;
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_policy_run) run =
      hec_policy_start(_i ? &hec_policy_hecate : &hec_policy_hecate_rm, &c->problem, &arena);
  hec_load load = hec_load_new(&arena, 3, 16, 32);
  uint64_t seed = 34;
  hec_fail_allocation(1); /* from here on an allocation ends the program */
  for (int64_t iter = 0; iter < 20; iter++) {
    hec_case_random_counts(&seed, &load);
    hec_policy_decide(&run, iter, 0);
    for (int32_t l = 0; l < 3; l++)
      hec_policy_refine(&run, l, &load);
    hec_policy_observe(&run, &load);
  }
  hec_fail_allocation(0);
}
