/* See suite.h. */
#include "tests/support/suite.h"

hec_arena hec_test_arena;

static void free_arena(void) {
  hec_arena_free(&hec_test_arena);
}

int hec_test_run_suite(Suite *suite, enum fork_status fork_status) {
  SRunner *runner = srunner_create(suite);
  srunner_set_fork_status(runner, fork_status);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed;
}

int hec_test_run(const hec_test_suite *suite, const hec_test *tests, int n_tests) {
  Suite *all = suite_create(suite->name);
  TCase *cases = tcase_create(suite->name);
  tcase_set_timeout(cases, suite->timeout_s > 0 ? suite->timeout_s : 60);
  if (suite->once)
    tcase_add_unchecked_fixture(cases, suite->once, NULL);
  tcase_add_checked_fixture(cases, suite->before, suite->after);
  tcase_add_checked_fixture(cases, NULL, free_arena);
  for (int i = 0; i < n_tests; i++)
    tcase_add_loop_test(cases, tests[i].test, 0, tests[i].n);
  suite_add_tcase(all, cases);
  return hec_test_run_suite(all, CK_FORK_GETENV) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
