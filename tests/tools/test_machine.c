/* What the machine says of its free memory, in files like /proc/meminfo. */
#include "runtime/base/text.h"
#include "tests/support/check_main.h"
#include "tools/common/machine.h"

#include <string.h>
#include <unistd.h>

static double free_by(const char *text) {
  char path[64];
  (void)snprintf(path, sizeof path, "/tmp/hecate-meminfo-%ld", (long)getpid());
  if (hec_write_file(path, text, strlen(text)) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  double bytes = hec_machine_memory_free(path);
  (void)unlink(path);
  return bytes;
}

START_TEST(free_memory) {
  double all = hec_machine_memory();
  ck_assert(all > 0);
  ck_assert(free_by("MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:      3000 kB\nSwapFree: 7 kB\n") == 3000 * 1024.0);
  ck_assert(free_by("MemAvailable: 0 kB\n") == 0);
  ck_assert(free_by("MemTotal:  9 kB\nMemFree:  1 kB\n") == all); /* an old kernel */
  ck_assert(free_by("MemAvailable: none\n") == all);
  ck_assert(free_by("MemAvailable: 1e30 kB\n") == all);
  ck_assert(hec_machine_memory_free("no/such/file") == all);
  double here = hec_machine_memory_free("/proc/meminfo");
  ck_assert(here > 0 && here <= all);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("tools.machine");
  TCase *tests = tcase_create("machine");
  tcase_add_test(tests, free_memory);
  suite_add_tcase(suite, tests);
  return suite;
}
HEC_TEST_MAIN(make_suite)
