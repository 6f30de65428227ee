/* LPLB: the optimum of its programme by the density formula, its placement and its tokens. */
#include "runtime/plan/planners/replica_graph.h"
#include "runtime/plan/policy.h"
#include "tests/plan/density.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

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

HEC_TEST_LOOP(is_the_optimum, 4) {
  uint64_t seed = 500 + (uint64_t)_i;
  int split = 0;
  for (int round = 0; round < 60; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    p->period = 1;
    p->slots = round % 3 == 0 ? HEC_AUTO : (int32_t)hec_test_below(&seed, 8);
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_lplb, p, &arena);
    hec_routing routing = hec_routing_new(&arena, p);
    for (int64_t iter = 0; iter < 3 && p->ep <= 10; iter++) {
      hec_load load = hec_test_random_load(&arena, p, &seed);
      hec_policy_decide(&run, iter, 0);
      hec_policy_refine(&run, 0, &load);
      hec_plan_check(&run.plan);
      hec_routing_make(&routing, run.policy->dispatch, p, &run.plan, &load, 0);
      for (int32_t group = 0; group < p->dp; group++) {
        uint64_t max = 0;
        for (int32_t r = group * p->ep; r < (group + 1) * p->ep; r++)
          max = routing.rank_tokens[r] > max ? routing.rank_tokens[r] : max;
        ck_assert_uint_eq(max, hec_test_densest(&run.plan, &load, 0, group * p->ep, p->ep));
      }
      for (int32_t e = 0; e < p->n_experts; e++)
        for (int32_t i = run.plan.quota_at[e]; i < run.plan.quota_at[e + 1]; i++, split++) {
          const hec_quota *q = &run.plan.quota[i];
          ck_assert_int_eq(q->source / p->ep, q->rank / p->ep);
          check_proportion(p, &run.plan, &load, e, q->source, q->tokens, q->rank);
        }
      hec_policy_observe(&run, &load);
    }
  }
  ck_assert_int_gt(split, 1000);
}

/* Each rank's hottest experts have their replicas where the published cube has them. */
HEC_TEST(cube) {
  hec_problem *p = hec_test_problem(&arena, "1x8 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 8, 1, 32, 2, true);
  int32_t from[2 * 8], n;
  ck_assert_ptr_eq(hec_replica_graph_of(8, 8, from, &n), &hec_replica_graph_cube);
  uint64_t seed = 8;
  hec_load load = hec_test_random_load(&arena, p, &seed);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_lplb, p, &arena);
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
}
