/* SYMI: the small instance of the references, what its rounding promises, and the policy around it. */
#include "runtime/plan/planners/popularity.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/suite.h"

#include <math.h>

static const uint32_t totals[8] = {400, 100, 60, 40, 120, 40, 20, 20};

/* Four ranks, three slots each (reference policies.md 6.2). */
START_TEST(small_instance) {
  uint64_t load[8];
  int32_t count[8], slot[12];
  const int32_t counts[8] = {5, 1, 1, 1, 1, 1, 1, 1}, slots[12] = {0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7};
  for (int32_t e = 0; e < 8; e++)
    load[e] = totals[e];
  (void)hec_popularity_place(load, 8, 12, count, slot);
  for (int32_t e = 0; e < 8; e++)
    ck_assert_int_eq(count[e], counts[e]);
  for (int32_t i = 0; i < 12; i++)
    ck_assert_int_eq(slot[i], slots[i]);
}
END_TEST

/* Without load: evenly, the first experts one more. */
START_TEST(no_load) {
  const uint64_t load[5] = {0};
  int32_t count[5], slot[13];
  (void)hec_popularity_place(load, 5, 13, count, slot);
  for (int32_t e = 0; e < 5; e++)
    ck_assert_int_eq(count[e], e < 3 ? 3 : 2);
}
END_TEST

/* The reference's text, in doubles, one slot after the other. */
static void naive(const uint64_t *load, int32_t n, int32_t slots, int32_t *count) {
  double goal[32], all = 0;
  int32_t sum = 0;
  for (int32_t e = 0; e < n; e++)
    all += (double)load[e];
  for (int32_t e = 0; e < n; e++) {
    goal[e] = (double)load[e] * slots / all;
    count[e] = floor(goal[e]) > 1 ? (int32_t)floor(goal[e]) : 1;
    sum += count[e];
  }
  while (sum != slots) {
    int32_t best = -1;
    for (int32_t e = 0; e < n; e++) {
      double here = count[e] - goal[e];
      if (sum > slots && count[e] > 1 && (best < 0 || here > count[best] - goal[best] + 1e-9))
        best = e;
      if (sum < slots && (best < 0 || here < count[best] - goal[best] - 1e-9))
        best = e;
    }
    count[best] += sum > slots ? -1 : 1;
    sum += sum > slots ? -1 : 1;
  }
}

/* Every expert once at least, all slots used, contiguous, never more than goal + 1 where a goal is above 1. */
START_TEST(random_loads) {
  uint64_t seed = 23;
  for (int round = 0; round < 500; round++) {
    int32_t n = 1 + (int32_t)hec_test_below(&seed, 32), slots = n + (int32_t)hec_test_below(&seed, 60);
    uint64_t load[32], all = 0;
    int32_t count[32], wanted[32], slot[92], sum = 0;
    for (int32_t e = 0; e < n; e++)
      all += load[e] = hec_test_below(&seed, 3) ? hec_test_below(&seed, 1 + (e % 7 ? 100 : 9000)) : 0;
    load[0] += all == 0;
    all += all == 0;
    (void)hec_popularity_place(load, n, slots, count, slot);
    naive(load, n, slots, wanted);
    for (int32_t e = 0, i = 0; e < n; e++) {
      ck_assert_int_eq(count[e], wanted[e]);
      double goal = (double)load[e] * slots / (double)all;
      ck_assert(count[e] >= 1 && (count[e] == 1 || count[e] < goal + 1 + 1e-9));
      sum += count[e];
      for (int32_t k = 0; k < count[e]; k++)
        ck_assert_int_eq(slot[i++], e);
    }
    ck_assert_int_eq(sum, slots);
  }
}
END_TEST

/* Placed at the first micro-batch only; guests twice on a rank count twice for the tokens; state never moves. */
START_TEST(policy) {
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "2x2 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 4, 1, 8, 2, true);
  p->slots = 3;
  hec_load load = hec_test_even_load(&hec_test_arena, p, totals);
  hec_policy_run run = hec_policy_start(hec_policy_find("symi"), p, &hec_test_arena);
  uint64_t even = hec_plan_digest(&run.plan);
  ck_assert(run.plan.n_slices == 4 && !run.plan.rematerialise && run.plan.copy_at[8] == 12 && run.units == 0);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 0, 1);
  ck_assert(!run.planned && hec_plan_digest(&run.plan) == even);
  hec_policy_decide(&run, 1, 0);
  ck_assert(run.planned && run.units > 0 && run.plan.version == 0);
  const int32_t rank_of_slot[12] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3};
  const int32_t *ranks;
  const uint8_t *kinds;
  for (int32_t e = 0, i = 0; e < 8; e++) {
    int32_t n = hec_plan_copies(&run.plan, 0, e, &ranks, &kinds);
    ck_assert_int_eq(n, e == 0 ? 5 : 1);
    for (int32_t k = 0; k < n; k++, i++)
      ck_assert(ranks[k] == rank_of_slot[i] && kinds[k] == HEC_COPY_GUEST);
    for (int32_t j = 0; j < 4; j++)
      ck_assert(run.plan.home[e * 4 + j] == j && run.plan.opt_home[e * 4 + j] == j);
  }
  hec_routing routing = hec_routing_new(&hec_test_arena, p);
  hec_routing_make(&routing, run.policy->dispatch, p, &run.plan, &load, 0);
  const uint64_t wanted[4] = {240, 260, 220, 80};
  for (int32_t r = 0; r < 4; r++)
    ck_assert_uint_eq(routing.rank_tokens[r], wanted[r]);
  hec_policy_stop(&run);
}
END_TEST

/* Four times what every expert needs, unless memory or the option says otherwise. */
START_TEST(slots) {
  static const struct {
    int32_t experts, option, wanted;
    const char *memory;
  } cases[] = {{16, HEC_AUTO, 4, "40G"}, {64, HEC_AUTO, 16, "40G"}, {3, HEC_AUTO, 3, "40G"}, {64, 6, 6, "40G"},
               {64, 1, 4, "40G"},        {64, 99, 64, "40G"},       {64, HEC_AUTO, 4, "1M"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[100];
    (void)snprintf(line, sizeof line, "2x8 nvlink=300G@2us nic=50G@5us flops=1T mem=%s", cases[i].memory);
    hec_problem *p = hec_test_problem(&hec_test_arena, line, 16, 2, cases[i].experts, 1, true);
    p->slots = cases[i].option;
    hec_policy_run run = hec_policy_start(hec_policy_find("symi"), p, &hec_test_arena);
    for (int32_t layer = 0; layer < 2; layer++)
      ck_assert_int_eq(run.plan.copy_at[layer * (cases[i].experts + 1) + cases[i].experts], 16 * cases[i].wanted);
    hec_policy_stop(&run);
    hec_arena_free(&hec_test_arena);
  }
}
END_TEST

static const hec_test_suite suite = {.name = "policy_symi"};
HEC_TESTS(suite, {small_instance, 1}, {no_load, 1}, {random_loads, 1}, {policy, 1}, {slots, 1})
