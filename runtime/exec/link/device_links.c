/* The table of links, and the wait that they share. */
#include "runtime/exec/link/device_link.h"

#include <time.h>

const hec_device_link *const hec_device_links[] = {&hec_device_link_local, &hec_device_link_nccl, NULL};

enum { LOOK_NS = 20 * 1000 };

hec_status hec_device_wait(hec_rank *rank, const char *what) {
  hec_processor *on = rank->processor;
  const hec_event *event = on->streams->mark(on);
  int64_t until_ns = hec_clock_ns() + rank->limit_ns;
  while (!on->streams->reached(on, event)) {
    HEC_TRY(hec_rank_check(rank));
    if (rank->link->check)
      HEC_TRY(rank->link->check(rank));
    if (hec_clock_ns() >= until_ns)
      return hec_rank_fail(rank, "waited %.3g s for %s", (double)rank->limit_ns * 1e-9, what);
    (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
  }
  const char *error = on->streams->error(on);
  return error ? hec_rank_fail(rank, "the device failed: %s", error) : HEC_OK;
}
