/* FlexMoE: what goes and what stays by hand, and what must hold on random problems; forward only, where the estimate is the
 * busiest rank's load. */
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

static int32_t copies_of(const hec_plan *plan, int32_t expert) {
  hec_copies copies = hec_plan_copies(plan, 0, expert);
  for (int32_t i = 0; i < copies.n; i++)
    ck_assert_int_eq(copies.kind[i], HEC_COPY_RESIDENT);
  return copies.n;
}

/* Two slots per rank, expert 0 everywhere. Then the load moves to expert 3: first the free slot of rank 0, then the
 * slots that expert 0 gives up. */
HEC_TEST(shrinks_what_went_cold) {
  const uint32_t first[4] = {900, 10, 10, 10}, then[4] = {10, 10, 10, 900};
  hec_problem *p = hec_test_problem(&arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 4, 1, false);
  p->slots = 2;
  p->period = 1;
  hec_load a = hec_test_even_load(&arena, p, first), b = hec_test_even_load(&arena, p, then);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_flexmoe, p, &arena);
  hec_policy_observe(&run, &a);
  hec_policy_decide(&run, 1, 0);
  ck_assert_int_eq(copies_of(&run.plan, 0), 3);
  for (int i = 0; i < 5; i++)
    hec_policy_observe(&run, &b);
  hec_policy_decide(&run, 2, 0);
  int32_t of_first = copies_of(&run.plan, 0), of_last = copies_of(&run.plan, 3);
  ck_assert_int_eq(of_first, 1); /* ranks 1 and 2 gave theirs; ranks 0 and 3 hold both */
  ck_assert_int_eq(of_last, 3);
}

/* Never above the slots, never worse than before on the load it saw, at most ten new replicas per layer and decision.
 */
HEC_TEST(improves_within_slots) {
  uint64_t seed = 71;
  int improved = 0;
  for (int round = 0; round < 150; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    p->period = 1;
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_flexmoe, p, &arena);
    hec_plan before = hec_plan_new(&arena, p, 1);
    int32_t slots = 3 * ((p->n_experts + p->ep - 1) / p->ep);
    for (int iter = 0; iter < 4; iter++) {
      hec_load load = hec_test_random_load(&arena, p, &seed);
      hec_plan_assign(&before, &run.plan);
      hec_policy_observe(&run, &load);
      hec_policy_decide(&run, iter, 0);
      hec_plan_check(&run.plan);
      improved += run.plan.version > before.version;
      ck_assert((hec_plan_digest(&run.plan) != hec_plan_digest(&before)) == (run.plan.version > before.version));
      for (int32_t layer = 0; layer < p->n_layers; layer++) {
        int32_t fresh = 0;
        for (int32_t r = 0; r < p->n_ranks; r++) {
          int32_t used = 0;
          for (int32_t e = 0; e < p->n_experts; e++) {
            bool now = hec_plan_holds(&run.plan, layer, e, r);
            used += now;
            fresh += now && !hec_plan_holds(&before, layer, e, r);
          }
          ck_assert_int_le(used, slots);
        }
        ck_assert_int_le(fresh, 10);
      }
    }
  }
  ck_assert(improved > 50);
}

/* All slots full: ranks hold 0 3 | 1 3 | 1 2 | 2 3. Expert 1 is the coldest but has one replica per node and keeps
 * them, since experts 2 and 3 can give: after three rounds expert 0 is everywhere, 2 on rank 3 only, 3 on rank 0 only.
 */
HEC_TEST(keeps_one_replica_per_node) {
  const uint32_t totals[4] = {400, 2, 20, 60};
  const int32_t home[4] = {0, 1, 2, 0};
  hec_problem *p = hec_test_problem(&arena, "2x2 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 4, 1, false);
  p->slots = 2;
  hec_load load = hec_test_even_load(&arena, p, totals);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_flexmoe, p, &arena);
  for (int32_t e = 0; e < 4; e++)
    hec_plan_set_home(&run.plan, 0, e, home[e]);
  hec_plan_add_copy(&run.plan, 0, 1, 2, HEC_COPY_RESIDENT);
  hec_plan_add_copy(&run.plan, 0, 2, 3, HEC_COPY_RESIDENT);
  hec_plan_add_copy(&run.plan, 0, 3, 1, HEC_COPY_RESIDENT);
  hec_plan_add_copy(&run.plan, 0, 3, 3, HEC_COPY_RESIDENT);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  ck_assert_int_eq(copies_of(&run.plan, 0), 3);
  ck_assert(copies_of(&run.plan, 1) == 1 && hec_plan_copies(&run.plan, 0, 1).rank[0] == 2 &&
            hec_plan_home(&run.plan, 0, 1) == 1);
  ck_assert(copies_of(&run.plan, 2) == 0 && hec_plan_home(&run.plan, 0, 2) == 3);
  ck_assert(copies_of(&run.plan, 3) == 0 && hec_plan_home(&run.plan, 0, 3) == 0);
}
