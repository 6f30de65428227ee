/* LPLB: a small instance by hand, the optimum of its programme by the density formula, its placement and its tokens. */
#include "runtime/plan/planners/replica_graph.h"
#include "runtime/plan/policy.h"
#include "tests/plan/density.h"
#include "tests/support/problem_case.h"
#include "tests/support/suite.h"

#include <string.h>

static const uint32_t totals[8] = {400, 100, 60, 40, 120, 40, 20, 20};

static void expect_loads(hec_policy_run *run, const hec_problem *p, const hec_load *load, const uint64_t *wanted) {
  hec_policy_decide(run, 0, 0);
  hec_policy_refine(run, 0, load);
  ck_assert(run->planned && run->units > 0);
  hec_plan_check(&run->plan);
  hec_routing routing = hec_routing_new(&hec_test_arena, p);
  hec_routing_make(&routing, run->policy->dispatch, p, &run->plan, load, 0);
  for (int32_t r = 0; r < p->n_ranks; r++)
    ck_assert_uint_eq(routing.rank_tokens[r], wanted[r]);
}

/* Four ranks are a ring, experts 0, 2, 4, 6 replicated on the next rank. Ranks 0 and 1 alone hold 0, 1 and 3: 540, so
 * 270 each, and the others are as even as they can be. Then experts are packed by load, and ranks 0 and 1 alone hold 0, 6
 * and 7: 440. */
START_TEST(small_instance) {
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "1x4 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 4, 1, 8, 2, true);
  hec_load load = hec_test_even_load(&hec_test_arena, p, totals);
  hec_policy_run run = hec_policy_start(&hec_policy_lplb, p, &hec_test_arena);
  ck_assert(hec_plan_holds(&run.plan, 0, 0, 1) && hec_plan_holds(&run.plan, 0, 6, 0) && run.plan.slots == 3);
  expect_loads(&run, p, &load, (const uint64_t[]){270, 270, 200, 60});
  const int32_t *ranks;
  const uint8_t *kinds;
  ck_assert(hec_plan_copies(&run.plan, 0, 0, &ranks, &kinds) == 1 && kinds[0] == HEC_COPY_RESIDENT);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  ck_assert(run.plan.version == 1 && run.plan.quota_at[8] == 0);
  /* EPLB: 0 -> rank 0, 4 -> 1, 1 -> 2, 2 -> 3; then 3 -> 3 (60), 5 -> 2 (100), 6 -> 1 (120), 7 -> 0 (400) */
  const int32_t home[8] = {0, 2, 3, 3, 1, 2, 1, 0};
  for (int32_t e = 0; e < 8; e++)
    ck_assert_int_eq(hec_plan_home(&run.plan, 0, e), home[e]);
  ck_assert(hec_plan_holds(&run.plan, 0, 0, 1) && hec_plan_holds(&run.plan, 0, 4, 2) &&
            hec_plan_holds(&run.plan, 0, 1, 3) && hec_plan_holds(&run.plan, 0, 2, 0));
  uint64_t most = 0;
  hec_policy_refine(&run, 0, &load);
  hec_routing routing = hec_routing_new(&hec_test_arena, p);
  hec_routing_make(&routing, run.policy->dispatch, p, &run.plan, &load, 0);
  for (int32_t r = 0; r < 4; r++)
    most = routing.rank_tokens[r] > most ? routing.rank_tokens[r] : most;
  ck_assert_uint_eq(most, 220);
  hec_policy_stop(&run);
}
END_TEST

/* A source's share of a split expert is the group's, to less than one token. */
static void check_proportion(const hec_problem *p, const hec_plan *plan, const hec_load *load, int32_t e, int32_t s,
                             uint64_t n_here, int32_t rank) {
  uint64_t total = 0, here = 0;
  const int32_t *at = plan->quota_at + e;
  for (int32_t i = s / p->ep * p->ep; i < (s / p->ep + 1) * p->ep; i++)
    total += hec_load_row(load, 0, i)[e];
  for (int32_t i = at[0]; i < at[1]; i++)
    here += plan->quota[i].rank == rank ? plan->quota[i].tokens : 0;
  uint64_t n = hec_load_row(load, 0, s)[e], exact = n * here;
  ck_assert(n_here * total < exact + total && n_here * total + total > exact);
}

START_TEST(is_the_optimum) {
  uint64_t seed = 500 + (uint64_t)_i;
  int split = 0;
  for (int round = 0; round < 60; round++) {
    hec_problem *p = hec_test_random_problem(&hec_test_arena, &seed);
    p->period = 1;
    p->slots = round % 3 == 0 ? HEC_AUTO : (int32_t)hec_test_below(&seed, 8);
    hec_policy_run run = hec_policy_start(&hec_policy_lplb, p, &hec_test_arena);
    hec_routing routing = hec_routing_new(&hec_test_arena, p);
    for (int64_t iter = 0; iter < 3 && p->ep <= 10; iter++) {
      hec_load load = hec_test_random_load(&hec_test_arena, p, &seed);
      hec_policy_decide(&run, iter, 0);
      hec_policy_refine(&run, 0, &load);
      hec_plan_check(&run.plan);
      hec_routing_make(&routing, run.policy->dispatch, p, &run.plan, &load, 0);
      for (int32_t group = 0; group < p->dp; group++) {
        uint64_t most = 0;
        for (int32_t r = group * p->ep; r < (group + 1) * p->ep; r++)
          most = routing.rank_tokens[r] > most ? routing.rank_tokens[r] : most;
        ck_assert_uint_eq(most, hec_test_densest(&run.plan, &load, 0, group * p->ep, p->ep));
      }
      for (int32_t e = 0; e < p->n_experts; e++)
        for (int32_t i = run.plan.quota_at[e]; i < run.plan.quota_at[e + 1]; i++, split++) {
          const hec_quota *q = &run.plan.quota[i];
          ck_assert_int_eq(q->source / p->ep, q->rank / p->ep);
          check_proportion(p, &run.plan, &load, e, q->source, q->tokens, q->rank);
        }
      hec_policy_observe(&run, &load);
    }
    hec_policy_stop(&run);
    hec_arena_free(&hec_test_arena);
  }
  ck_assert_int_gt(split, 1000);
}
END_TEST

/* Each rank's hottest experts have their replicas where the published cube has them. */
START_TEST(cube) {
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "1x8 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 8, 1, 32, 2, true);
  int32_t from[2 * 8], n;
  ck_assert_ptr_eq(hec_replica_graph_of(8, 8, from, &n), &hec_replica_graph_cube);
  uint64_t seed = 8;
  hec_load load = hec_test_random_load(&hec_test_arena, p, &seed);
  hec_policy_run run = hec_policy_start(&hec_policy_lplb, p, &hec_test_arena);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 0, 0);
  uint64_t sum[32];
  hec_history_sum(&run.history, 0, 1, sum);
  for (int32_t e = 0; e < 32; e++) {
    int32_t home = hec_plan_home(&run.plan, 0, e), hotter = 0;
    for (int32_t o = 0; o < 32; o++)
      hotter += hec_plan_home(&run.plan, 0, o) == home && (sum[o] > sum[e] || (sum[o] == sum[e] && o < e));
    for (int32_t r = 0; r < 8; r++)
      if (r != home)
        ck_assert_int_eq(hec_plan_holds(&run.plan, 0, e, r), hotter < 2 && from[hotter * 8 + r] == home);
  }
  hec_policy_stop(&run);
}
END_TEST

static const hec_test_suite suite = {.name = "policy_lplb"};
HEC_TESTS(suite, {small_instance, 1}, {is_the_optimum, 4}, {cube, 1})
