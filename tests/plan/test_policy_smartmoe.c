/* SmartMoE: its clock and its window. */
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

static const uint32_t totals[8] = {400, 100, 60, 40, 120, 40, 20, 20};
static const int32_t golden[8] = {0, 1, 3, 3, 2, 1, 2, 0};

/* Due at the first record it sees, then every period of `iter`; a second decision on the same load changes nothing. */
HEC_TEST(clock_of_decisions) {
  hec_problem *p = hec_test_problem(&arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 8, 2, true);
  hec_load load = hec_test_even_load(&arena, p, totals);
  hec_policy_run run = hec_policy_start(&hec_policy_smartmoe, p, &arena);
  hec_policy_decide(&run, 1, 0);
  ck_assert(!run.planned); /* no history */
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 11, 1);
  ck_assert(!run.planned); /* not the first micro-batch */
  hec_policy_decide(&run, 21, 0);
  ck_assert(run.planned);
  hec_policy_decide(&run, 45, 0);
  ck_assert(!run.planned && run.units == 0);
  hec_policy_decide(&run, 46, 0);
  ck_assert(run.planned && run.units > 0 && run.plan.version == 1);
  hec_policy_stop(&run);
  p->period = 3;
  run = hec_policy_start(&hec_policy_smartmoe, p, &arena);
  hec_policy_observe(&run, &load);
  int planned = 0;
  for (int64_t iter = 0; iter < 10; iter++) {
    hec_policy_decide(&run, iter, 0);
    planned += run.planned;
  }
  ck_assert_int_eq(planned, 4); /* 0 3 6 9 */
  hec_policy_stop(&run);
  p->period = 0; /* never */
  run = hec_policy_start(&hec_policy_smartmoe, p, &arena);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  ck_assert(!run.planned);
  hec_policy_stop(&run);
}

/* Only the last two records count. */
HEC_TEST(window_of_two) {
  hec_problem *p = hec_test_problem(&arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 8, 2, true);
  const uint32_t other[8] = {0, 0, 0, 0, 0, 0, 900, 900};
  hec_load now = hec_test_even_load(&arena, p, totals), old = hec_test_even_load(&arena, p, other);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_smartmoe, p, &arena);
  hec_policy_observe(&run, &old);
  hec_policy_observe(&run, &now);
  hec_policy_observe(&run, &now);
  hec_policy_decide(&run, 1, 0);
  for (int32_t e = 0; e < 8; e++)
    ck_assert_int_eq(hec_plan_home(&run.plan, 0, e), golden[e]);
}

/* A frozen map waits for its profile, is made once, and does not follow the load. */
HEC_TEST(frozen_map) {
  hec_problem *p = hec_test_problem(&arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 8, 2, true);
  const uint32_t other[8] = {0, 0, 0, 0, 0, 0, 900, 900};
  hec_load profile = hec_test_even_load(&arena, p, totals), later = hec_test_even_load(&arena, p, other);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_dataforest_remap, p, &arena);
  int64_t iter = 0;
  for (; iter < hec_policy_dataforest_remap.window; iter++) {
    hec_policy_decide(&run, iter, 0);
    ck_assert(!run.planned && run.plan.version == 0);
    hec_policy_observe(&run, &profile);
  }
  hec_policy_decide(&run, iter++, 0);
  ck_assert(run.planned && run.plan.version == 1);
  uint64_t frozen = hec_plan_digest(&run.plan);
  for (; iter < 500; iter++) {
    hec_policy_observe(&run, &later);
    hec_policy_decide(&run, iter, 0);
    ck_assert(!run.planned && run.units == 0);
  }
  ck_assert_uint_eq(hec_plan_digest(&run.plan), frozen);
}
