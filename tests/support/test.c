/* The rows that HEC_TEST makes before main, and those of a file as one Check suite, named after it. */
#include "tests/support/checks.h"
#include "tests/support/suite.h"

#include <string.h>

/* Of a test that hangs: beyond what the slowest takes on a busy machine, also with sanitizers. */
enum { LIMIT_S = 240 };

static hec_test_row *first, **last = &first;

void hec_test_add(hec_test_row *row) {
  *last = row;
  last = &row->next;
}

int hec_test_run_file(const char *file) {
  const char *name = strrchr(file, '/');
  Suite *suite = suite_create(name ? name + 1 : file);
  TCase *tests = tcase_create("tests");
  tcase_set_timeout(tests, LIMIT_S);
  for (hec_test_row *row = first; row; row = row->next)
    if (strcmp(row->file, file) == 0) {
      if (row->test)
        tcase_add_loop_test_raise_signal(tests, row->test, row->signal, 0, row->n);
      else
        tcase_add_checked_fixture(tests, row->setup, row->teardown);
    }
  suite_add_tcase(suite, tests);
  return hec_test_run_suite(suite, CK_FORK_GETENV) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
