/* MicroMoE: the optimum by the density formula, its placement and where tokens go first. */
#include "runtime/plan/policy.h"
#include "tests/plan/density.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

static uint64_t tokens_on(const hec_plan *plan, int32_t e, int32_t source, int32_t rank) {
  uint64_t n = 0;
  for (int32_t i = plan->quota_at[e]; i < plan->quota_at[e + 1]; i++)
    if ((source < 0 || plan->quota[i].source == source) && plan->quota[i].rank == rank)
      n += plan->quota[i].tokens;
  return n;
}

HEC_TEST_LOOP(is_the_optimum, 4) {
  uint64_t seed = 600 + (uint64_t)_i;
  int split = 0;
  for (int round = 0; round < 60; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    p->slots = round % 3 == 0 ? HEC_AUTO : (int32_t)hec_test_below(&seed, 30);
    if (p->n_ranks > 12)
      continue;
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_micromoe, p, &arena);
    hec_routing routing = hec_routing_new(&arena, p);
    bool one_group = run.plan.copy_at[p->n_experts] == 0;
    for (int64_t iter = 0; iter < 3 && !one_group; iter++) {
      hec_load load = hec_test_random_load(&arena, p, &seed);
      hec_policy_decide(&run, iter, 0);
      hec_policy_refine(&run, 0, &load);
      hec_plan_check(&run.plan);
      hec_routing_make(&routing, run.policy->dispatch, p, &run.plan, &load, 0);
      uint64_t max = 0;
      for (int32_t r = 0; r < p->n_ranks; r++)
        max = routing.rank_tokens[r] > max ? routing.rank_tokens[r] : max;
      ck_assert_uint_eq(max, hec_test_densest(&run.plan, &load, 0, 0, p->n_ranks));
      for (int32_t e = 0; e < p->n_experts; e++)
        for (int32_t r = 0; r < p->n_ranks; r++) { /* a copy computes others' only when its own rank's are all here */
          uint64_t all = tokens_on(&run.plan, e, -1, r), own = tokens_on(&run.plan, e, r, r);
          uint64_t sent = hec_load_row(&load, 0, r)[e];
          ck_assert(!hec_plan_holds(&run.plan, 0, e, r) || own == (all < sent ? all : sent));
          split += all > 0;
        }
    }
  }
  ck_assert_int_gt(split, 500);
}

/* Every expert once in each group, every rank within its slots, and nothing ever moves. */
HEC_TEST(placement) {
  static const struct {
    int32_t ranks, experts, slots, groups;
  } cases[] = {{32, 64, HEC_AUTO, 2}, {64, 256, 16, 4}, {8, 4, HEC_AUTO, 4},
               {7, 14, HEC_AUTO, 1},  {6, 6, 6, 6},     {16, 40, HEC_AUTO, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int32_t ranks = cases[i].ranks, size = ranks / cases[i].groups;
    hec_problem *p = hec_test_problem(&arena, "8x8 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", ranks, 1,
                                      cases[i].experts, 1, true);
    p->slots = cases[i].slots;
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_micromoe, p, &arena);
    int32_t used[64] = {0};
    for (int32_t e = 0; e < p->n_experts; e++) {
      int32_t holders[64], n = hec_plan_holders(&run.plan, 0, e, holders);
      ck_assert_int_eq(n, cases[i].groups);
      for (int32_t k = 0; k < n; k++) {
        ck_assert_int_eq(holders[k] / size, k);
        used[holders[k]]++;
      }
    }
    for (int32_t r = 0; r < ranks; r++)
      ck_assert_int_le(used[r], run.plan.slots);
    ck_assert_int_eq(run.plan.slots, (p->n_experts + size - 1) / size);
  }
}
