/* SmartMoE: the small instance of the references, its clock, its mirror groups. */
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/suite.h"

static const uint32_t totals[8] = {400, 100, 60, 40, 120, 40, 20, 20};
static const int32_t golden[8] = {0, 1, 3, 3, 2, 1, 2, 0};

START_TEST(small_instance) {
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 8, 2, true);
  hec_load load = hec_test_even_load(&hec_test_arena, p, totals);
  hec_policy_run run = hec_policy_start(&hec_policy_smartmoe, p, &hec_test_arena);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  ck_assert(run.planned && run.plan.version == 1);
  for (int32_t e = 0; e < 8; e++)
    ck_assert_int_eq(hec_plan_home(&run.plan, 0, e), golden[e]);
  hec_routing routing = hec_routing_new(&hec_test_arena, p);
  hec_routing_make(&routing, run.policy->dispatch, p, &run.plan, &load, 0);
  const uint64_t wanted[4] = {420, 140, 140, 100};
  for (int32_t r = 0; r < 4; r++)
    ck_assert_uint_eq(routing.rank_tokens[r], wanted[r]);
  hec_policy_stop(&run);
}
END_TEST

/* Due at the first record it sees, then every period of `iter`; a second decision on the same load changes nothing. */
START_TEST(clock_of_decisions) {
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 8, 2, true);
  hec_load load = hec_test_even_load(&hec_test_arena, p, totals);
  hec_policy_run run = hec_policy_start(&hec_policy_smartmoe, p, &hec_test_arena);
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
  run = hec_policy_start(&hec_policy_smartmoe, p, &hec_test_arena);
  hec_policy_observe(&run, &load);
  int planned = 0;
  for (int64_t iter = 0; iter < 10; iter++) {
    hec_policy_decide(&run, iter, 0);
    planned += run.planned;
  }
  ck_assert_int_eq(planned, 4); /* 0 3 6 9 */
  hec_policy_stop(&run);
  p->period = 0; /* never */
  run = hec_policy_start(&hec_policy_smartmoe, p, &hec_test_arena);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  ck_assert(!run.planned);
  hec_policy_stop(&run);
}
END_TEST

/* Only the last two records count. */
START_TEST(window_of_two) {
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 8, 2, true);
  const uint32_t other[8] = {0, 0, 0, 0, 0, 0, 900, 900};
  hec_load now = hec_test_even_load(&hec_test_arena, p, totals), old = hec_test_even_load(&hec_test_arena, p, other);
  hec_policy_run run = hec_policy_start(&hec_policy_smartmoe, p, &hec_test_arena);
  hec_policy_observe(&run, &old);
  hec_policy_observe(&run, &now);
  hec_policy_observe(&run, &now);
  hec_policy_decide(&run, 1, 0);
  for (int32_t e = 0; e < 8; e++)
    ck_assert_int_eq(hec_plan_home(&run.plan, 0, e), golden[e]);
  hec_policy_stop(&run);
}
END_TEST

/* A placement that is no better stays, bit for bit. */
START_TEST(keeps_what_is_as_good) {
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 8, 2, true);
  const uint32_t flat[8] = {40, 40, 40, 40, 40, 40, 40, 40}, single[8] = {800};
  const uint32_t *const loads[] = {flat, single};
  for (int i = 0; i < 2; i++) {
    hec_load load = hec_test_even_load(&hec_test_arena, p, loads[i]);
    hec_policy_run run = hec_policy_start(&hec_policy_smartmoe, p, &hec_test_arena);
    uint64_t digest = hec_plan_digest(&run.plan);
    hec_policy_observe(&run, &load);
    hec_policy_decide(&run, 1, 0);
    ck_assert(run.planned && run.plan.version == 0 && hec_plan_digest(&run.plan) == digest);
    hec_policy_stop(&run);
  }
}
END_TEST

/* Two groups of four: the second mirrors the first. */
START_TEST(groups_mirror) {
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 8, 1, 4, 1, true);
  const uint32_t flat[4] = {10, 20, 30, 40};
  hec_load load = hec_test_even_load(&hec_test_arena, p, flat);
  hec_policy_run run = hec_policy_start(&hec_policy_smartmoe, p, &hec_test_arena);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  for (int32_t e = 0; e < 4; e++) {
    const int32_t *ranks;
    const uint8_t *kinds;
    ck_assert_int_eq(hec_plan_copies(&run.plan, 0, e, &ranks, &kinds), 1);
    ck_assert_int_eq(ranks[0], hec_plan_home(&run.plan, 0, e) + 4);
  }
  hec_policy_stop(&run);
}
END_TEST

static const hec_test_suite suite = {.name = "policy_smartmoe"};
HEC_TESTS(suite, {small_instance, 1}, {clock_of_decisions, 1}, {window_of_two, 1}, {keeps_what_is_as_good, 1},
          {groups_mirror, 1})
