/* A test program as a table: what surrounds every test, then the tests and how often each of them runs.
 *
 *   static const hec_test_suite suite = {.name = "store", .timeout_s = 60, .once = hec_math_open};
 *   HEC_TESTS(suite, {slots_come_and_go, 10}, {nothing_is_left, 1})
 */
#ifndef HEC_TESTS_SUPPORT_SUITE_H
#define HEC_TESTS_SUPPORT_SUITE_H
#include "runtime/base/arena.h"
#include "tests/support/check_main.h"

typedef struct {
  const char *name;
  int timeout_s;        /* of a test; 0: 60 */
  void (*once)(void);   /* before all tests, in the process that forks them */
  void (*before)(void); /* each test, in its own process, as all below */
  void (*after)(void);
} hec_test_suite;

typedef struct {
  const TTest *test;
  int n; /* runs, _i = 0 to n - 1 */
} hec_test;

/* For whatever a test makes; freed after it. */
extern hec_arena hec_test_arena;

/* An exit code. */
int hec_test_run(const hec_test_suite *suite, const hec_test *tests, int n_tests);
int hec_test_run_suite(Suite *suite, enum fork_status fork_status); /* of Check's own; the number of failures */

#define HEC_TESTS(suite, ...)                                                                                          \
  int main(void) {                                                                                                     \
    const hec_test tests[] = {__VA_ARGS__};                                                                            \
    return hec_test_run(&(suite), tests, (int)(sizeof tests / sizeof *tests));                                         \
  }

#endif
