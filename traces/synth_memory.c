/* See synth_memory.h. */
#include "traces/synth_memory.h"

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <gsl/gsl_errno.h>

static void tolerate(const char *reason, const char *file, int line, int code) {
  (void)reason, (void)file, (void)line;
  if (code == GSL_ENOMEM)
    hec_no_memory(0);
}

static void refuse(const char *reason, const char *file, int line, int code) {
  tolerate(reason, file, line, code);
  hec_assert_failed(reason, file, line);
}

void hec_gsl_watch_memory(bool tolerant) {
  (void)gsl_set_error_handler(tolerant ? tolerate : refuse);
}
