/* The rows that HEC_TEST makes before main, and those of a file as one Check suite, named after it. */
#include "tests/support/checks.h"

#include <string.h>

/* Of a test that hangs: beyond what the slowest takes on a busy machine, also with sanitizers. */
enum { LIMIT_S = 300 };

static hec_test_row *first, **last = &first;

void hec_test_add(hec_test_row *row) {
  *last = row;
  last = &row->next;
}

int hec_test_run_suite(Suite *suite, enum fork_status fork_status) {
  SRunner *runner = srunner_create(suite);
  srunner_set_fork_status(runner, fork_status);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed;
}

/* FOLDER.NAME of .../FOLDER/test_NAME.c, as CMake calls it. */
static const char *name_of(const char *file) {
  static char name[100];
  const char *base = strrchr(file, '/'), *folder = base;
  HEC_ASSERT(base);
  while (folder > file && folder[-1] != '/')
    folder--;
  int n = snprintf(name, sizeof name, "%.*s.%s", (int)(base - folder), folder, base + strlen("/test_"));
  HEC_ASSERT(n > 2 && n < (int)sizeof name);
  name[n - 2] = '\0'; /* .c */
  return name;
}

static void add(TCase *tests, const hec_test_row *row) {
  if (row->test)
    tcase_add_loop_test_raise_signal(tests, row->test, row->signal, 0, row->n);
  if (row->once)
    tcase_add_unchecked_fixture(tests, row->once, NULL);
  if (row->setup || row->teardown)
    tcase_add_checked_fixture(tests, row->setup, row->teardown);
}

/* What keeps the tests of the file from running; NULL: nothing. */
static const char *lacked(const char *file) {
  const char *why = NULL;
  for (hec_test_row *row = first; row && !why; row = row->next)
    if (strcmp(row->file, file) == 0 && row->lacks)
      why = row->lacks();
  return why;
}

int hec_test_run_file(const char *file) {
  const char *name = name_of(file), *why = lacked(file);
  if (why) {
    hec_test_skip(name, why);
    return 77;
  }
  Suite *suite = suite_create(name);
  TCase *tests = tcase_create("tests");
  tcase_set_timeout(tests, LIMIT_S);
  for (hec_test_row *row = first; row; row = row->next)
    if (strcmp(row->file, file) == 0)
      add(tests, row);
  suite_add_tcase(suite, tests);
  return hec_test_run_suite(suite, CK_FORK_GETENV) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
