/* PB-OEPLB: whose swaps a budget buys, when it decides, and what it forgets. The swaps themselves: test_policy_goldens.c. */
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

static const uint32_t skewed[8] = {400, 100, 60, 40, 120, 40, 20, 20}, even[8] = {40, 40, 40, 40, 40, 40, 40, 40};

static hec_policy_run start(const char *text, int32_t layers) {
  hec_problem *p =
      hec_test_problem(&arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, layers, 8, 2, true);
  const hec_policy *policy = NULL;
  ck_assert_msg(hec_policy_read(text, NULL, "test", &arena, &policy) == HEC_OK, "%s", hec_last_error());
  return hec_policy_start(policy, p, &arena);
}

/* Layer 0 has 500 100 160 40 (2.5 times the mean), layer 1 has 400 200 100 100 (2.0). The first swap makes 2.1 of layer 0, so
 * that it is tried again, in vain. The next is layer 1's: expert 0 against expert 4 makes 1.75. */
HEC_TEST(worst_layer_first) {
  const int32_t homes[2][2][8] = {{{3, 0, 1, 1, 2, 2, 0, 3}, {0, 0, 1, 1, 2, 2, 3, 3}},
                                  {{3, 0, 1, 1, 2, 2, 0, 3}, {2, 0, 1, 1, 0, 2, 3, 3}}};
  const uint32_t flatter[8] = {300, 100, 100, 100, 50, 50, 50, 50};
  for (int k = 0; k < 2; k++) {
    HEC_SCOPED(hec_policy_run) run = start(k == 0 ? "pb-oeplb:swaps=1" : "pb-oeplb:swaps=2", 2);
    hec_load load = hec_load_new(&arena, 2, 4, 8);
    for (int32_t s = 0; s < 4; s++)
      for (int32_t e = 0; e < 8; e++) {
        hec_load_row(&load, 0, s)[e] = skewed[e];
        hec_load_row(&load, 1, s)[e] = flatter[e];
      }
    hec_policy_observe(&run, &load);
    hec_policy_decide(&run, 1, 0);
    for (int32_t layer = 0; layer < 2; layer++)
      for (int32_t e = 0; e < 8; e++)
        ck_assert_msg(hec_plan_home(&run.plan, layer, e) == homes[k][layer][e], "layer %d, expert %d", layer, e);
  }
}

/* The swap of the first decision changes the ratio. Then it stands: three such decisions double the window, up to the
 * longest. */
HEC_TEST(steady_load_is_looked_at_less) {
  const int64_t wanted[] = {1, 9, 17, 25, 33, 49, 65, 81, 97, 113};
  HEC_SCOPED(hec_policy_run) run = start("pb-oeplb:longest=16", 1);
  hec_load load = hec_test_even_load(&arena, run.problem, skewed);
  for (int64_t iter = 0, next = 0; iter < 115; iter++) {
    hec_policy_decide(&run, iter, 0);
    ck_assert_msg(run.planned == (iter == wanted[next]), "iteration %d", (int)iter);
    next += run.planned && next < 9;
    hec_policy_observe(&run, &load);
  }
  ck_assert_uint_eq(run.plan.version, 1);
}

/* Even loads, then others: the decision that sees it moves nothing and forgets, the next one swaps by the new loads alone. */
HEC_TEST(new_domain) {
  HEC_SCOPED(hec_policy_run) run = start("pb-oeplb", 1);
  hec_load before = hec_test_even_load(&arena, run.problem, even),
           after = hec_test_even_load(&arena, run.problem, skewed);
  for (int64_t iter = 0; iter < 26; iter++) {
    hec_policy_decide(&run, iter, 0);
    ck_assert(run.planned == (iter % 8 == 1));
    ck_assert_msg(run.plan.version == (iter == 25), "iteration %d", (int)iter);
    hec_policy_observe(&run, iter < 9 ? &before : &after);
  }
  ck_assert_int_eq(hec_plan_home(&run.plan, 0, 0), 3);
  ck_assert_int_eq(hec_plan_home(&run.plan, 0, 6), 0);
}
