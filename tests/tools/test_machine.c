/* What the machine says of its free memory, in files like /proc/meminfo; and what does not fit in it. */
#include "runtime/base/temporary.h"
#include "runtime/base/text.h"
#include "runtime/plan/problem.h"
#include "tests/support/test.h"
#include "tools/front/machine.h"

#include <string.h>
#include <unistd.h>

static double free_by(const char *text) {
  char path[64];
  (void)snprintf(path, sizeof path, "/tmp/hecate-meminfo-%ld", (long)getpid());
  ck_ok(hec_write_file(path, text, strlen(text)));
  double bytes = hec_machine_memory_free(path);
  (void)unlink(path);
  return bytes;
}

HEC_TEST(free_memory) {
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

/* 0.6 of it is taken by one rank that holds everything; the dense reference takes as much. */
HEC_TEST(memory_of_a_run) {
  hec_moe moe = {.n_experts = 1};
  hec_problem p = {.moe = &moe, .n_layers = 1, .n_experts = 1, .n_ranks = 1, .mp = 1, .train = true};
  p.bytes.expert_param = p.bytes.expert_grad = 0.15 * hec_machine_memory();
  p.bytes.expert_optimizer = 0.3 * hec_machine_memory();
  ck_ok(hec_machine_check_memory(&p, 1, false));
  ck_ok(hec_machine_check_memory(&p, 0, true));
  ck_refused(hec_machine_check_memory(&p, 2, false), "the ranks need at least");
  ck_refused(hec_machine_check_memory(&p, 1, true), "--check: the dense reference and the ranks need at least");
  p.train = false; /* parameters alone */
  ck_ok(hec_machine_check_memory(&p, 1, true));
}
