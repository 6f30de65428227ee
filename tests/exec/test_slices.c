/* `joint` on ranks whose memory holds experts in slices only, or whole ones more slowly: it begins in slices, changes pairs
 * while it runs, and what it computes is right. */
#include "runtime/program/lower.h"
#include "tests/exec/replay_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ONCE(hec_math_open)
HEC_TEST_ARENA(arena)

static int32_t slices_of(const hec_problem *problem) {
  HEC_SCOPED(hec_arena) own = {0};
  HEC_OPENED(hec_lowering) *low =
      hec_lowering_new(problem, hec_policy_find("joint"), hec_schedule_find("joint"), NULL, &own);
  int32_t n = hec_lowering_run(low)->plan.n_slices;
  ck_assert(n == 1 || strstr(hec_lowering_note(low), "as "));
  return n;
}

/* The memory shrinks until slices are all that is left; less than they need is no case. */
static bool squeeze(hec_replay_case *c) {
  for (int32_t percent = 150; percent > 50; percent -= 2) {
    for (int32_t r = 0; r < c->cluster.n_devices; r++)
      c->cluster.devices[r].memory_bytes = percent * hec_problem_bytes_without_copies(&c->problem) / 100;
    if (slices_of(&c->problem) > 1)
      return true;
  }
  return false;
}

HEC_TEST(joint_begins_in_slices) {
  int32_t n = 0;
  for (uint64_t seed = 1; n < 4; seed++) {
    uint64_t next = seed;
    ck_assert_uint_lt(seed, 100);
    hec_replay_case *c = hec_replay_random(&arena, &next, (hec_replay_wish){.ranks = 4, .layers = 3, .steps = 4});
    if (c->problem.n_experts > 4 || !c->problem.train || !squeeze(c))
      continue;
    ck_assert_int_eq(slices_of(&c->problem), 4);
    hec_replay_expect(c, (hec_replay_launch){.policy = "joint", .schedule = "joint", .limit_s = 120});
    n++;
  }
}
