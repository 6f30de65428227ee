/* Every policy under every schedule, executed by real ranks, against the dense reference. */
#include "tests/exec/replay_case.h"
#include "tests/support/check_main.h"
#include "tests/support/random_problem.h"

static hec_arena arena;
static void setup(void) {
  hec_math_open();
}
static void teardown(void) {
  hec_arena_free(&arena);
}

static void expect(hec_replay_case *c, hec_replay_launch launch) {
  if (hec_replay_all(c, launch) != HEC_OK)
    ck_abort_msg("%s\n%s", hec_last_error(), c->line);
}

START_TEST(random_mode) {
  uint64_t seed = 31 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){0}), (hec_replay_launch){.every_schedule = true});
}
END_TEST

START_TEST(exact_mode) {
  uint64_t seed = 5031 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.exact = true}),
         (hec_replay_launch){.every_schedule = true});
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("replay");
  TCase *c = tcase_create("replay");
  tcase_set_timeout(c, 120);
  tcase_add_unchecked_fixture(c, setup, NULL);
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_add_loop_test(c, random_mode, 0, HEC_TEST_CASES(40));
  tcase_add_loop_test(c, exact_mode, 0, HEC_TEST_CASES(40));
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
