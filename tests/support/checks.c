/* What the checks say when they fail, JSON without escapes, and memory that runs out. */
#include "tests/support/checks.h"

#include "runtime/base/arena.h"

#include <setjmp.h>
#include <string.h>
#include <unistd.h>

void hec_test_refused(hec_status status, const char *call, const char *words) {
  ck_assert_msg(status == HEC_BAD_INPUT, "accepted: %s", call);
  ck_assert_msg(strstr(hec_last_error(), words) != NULL, "expected \"%s\" in \"%s\": %s", words, hec_last_error(),
                call);
}

const char *hec_test_quoted(const char *text) {
  static char kept[8][4096];
  static int turn;
  if (!strchr(text, '`'))
    return text;
  turn = (turn + 1) % 8;
  ck_assert_uint_lt(strlen(text), sizeof kept[0]);
  size_t n = 0;
  for (; text[n]; n++)
    kept[turn][n] = text[n] == '`' ? '"' : text[n];
  kept[turn][n] = '\0';
  return kept[turn];
}

void ck_near(double found, double expected) {
  double scale = expected > 0 ? expected : 1;
  ck_assert_msg(found - expected <= 1e-12 * scale && expected - found <= 1e-12 * scale, "expected %.17g, found %.17g",
                expected, found);
}

static jmp_buf out_of_memory;

static void leave(size_t bytes, void *context) {
  (void)bytes;
  (void)context;
  longjmp(out_of_memory, 1);
}

void hec_test_no_memory(hec_status (*run)(uint64_t k)) {
  hec_set_no_memory_handler(leave, NULL);
  for (volatile uint64_t k = 1; k < 100000; k += 1 + k / 40) {
    hec_fail_allocation(k);
    if (setjmp(out_of_memory) == 0) {
      hec_status status = run(k);
      hec_fail_allocation(0);
      ck_ok(status);
      ck_assert_uint_gt(k, 50);
      _exit(0);
    }
    hec_fail_allocation(0);
  }
  ck_abort_msg("never enough memory");
}
