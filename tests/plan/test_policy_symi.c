/* SYMI: what its rounding promises, and its slots. */
#include "runtime/plan/planners/popularity.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <math.h>

HEC_TEST_ARENA(arena)

/* Without load: evenly, the first experts one more. */
HEC_TEST(no_load) {
  const uint64_t load[5] = {0};
  int32_t count[5], slot[13];
  (void)hec_popularity_place(load, 5, 13, count, slot);
  for (int32_t e = 0; e < 5; e++)
    ck_assert_int_eq(count[e], e < 3 ? 3 : 2);
}

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
HEC_TEST(random_loads) {
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

/* Four times what every expert needs, unless memory or the option says otherwise. */
HEC_TEST(slots) {
  static const struct {
    int32_t experts, option, wanted;
    const char *memory;
  } cases[] = {{16, HEC_AUTO, 4, "40G"}, {64, HEC_AUTO, 16, "40G"}, {3, HEC_AUTO, 3, "40G"}, {64, 6, 6, "40G"},
               {64, 1, 4, "40G"},        {64, 99, 64, "40G"},       {64, HEC_AUTO, 4, "1M"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[100];
    (void)snprintf(line, sizeof line, "2x8 nvlink=300G@2us nic=50G@5us flops=1T mem=%s", cases[i].memory);
    hec_problem *p = hec_test_problem(&arena, line, 16, 2, cases[i].experts, 1, true);
    p->slots = cases[i].option;
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find("symi"), p, &arena);
    for (int32_t layer = 0; layer < 2; layer++)
      ck_assert_int_eq(run.plan.copy_at[layer * (cases[i].experts + 1) + cases[i].experts], 16 * cases[i].wanted);
  }
}
