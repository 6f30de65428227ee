/* The message of a failure is kept per thread: libraries report through it without owning a stream. What it quotes of an
 * input is made plain here, once, for the terminal on which it ends. */
#include "runtime/base/status.h"

#include "runtime/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char last_error[1024];

hec_status hec_fail(hec_status code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  hec_make_plain(last_error);
  return code;
}

const char *hec_last_error(void) {
  return last_error;
}

void hec_assert_failed(const char *condition, const char *file, int line) {
  fprintf(stderr, "hecate: internal error: %s does not hold (%s:%d)\n", condition, file, line);
  abort();
}
