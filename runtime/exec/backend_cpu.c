/* The ranks of this machine: forked processes or threads, started and supervised by hec_launch. Always there. */
#include "runtime/exec/backend.h"

static bool available(hec_text *why) {
  (void)why;
  return true;
}

static hec_status ranks(int32_t *n_ranks) {
  *n_ranks = 0;
  return HEC_OK;
}

static bool speaks(void) {
  return true; /* the supervisor: ranks return inside launch and never come here */
}

const hec_backend hec_backend_cpu = {
    .name = "cpu",
    .summary = "processes of this machine over shared memory",
    .available = available,
    .ranks = ranks,
    .transport = NULL,
    .link = NULL,
    .here = NULL,
    .per_host = NULL,
    .launch = hec_launch,
    .speaks = speaks,
    .abandon = NULL,
    .close = NULL,
};
