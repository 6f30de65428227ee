/* FlexMoE: one round by hand, then what must hold on random problems. */
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/suite.h"

static int32_t copies_of(const hec_plan *plan, int32_t expert, const int32_t **ranks) {
  const uint8_t *kinds;
  int32_t n = hec_plan_copies(plan, 0, expert, ranks, &kinds);
  for (int32_t i = 0; i < n; i++)
    ck_assert_int_eq(kinds[i], HEC_COPY_RESIDENT);
  return n;
}

/* The hand cases are forward only: the estimate then is the busiest rank's load.
 * The references' small instance: ranks have 500 100 160 40 on 4 ranks with one more slot each (problem.slots = 3).
 *   expert 0 (400) expands to rank 3: 300 100 160 240      per replica 200
 *   expert 0 (200) expands to rank 1: 233 233 160 173      per replica 133
 *   expert 0 (133) expands to rank 2: 200 200 260 140      worse than 233: undone, ends */
START_TEST(expands_by_hand) {
  const uint32_t totals[8] = {400, 100, 60, 40, 120, 40, 20, 20};
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 8, 2, false);
  p->slots = 3;
  hec_load load = hec_test_even_load(&hec_test_arena, p, totals);
  hec_policy_run run = hec_policy_start(&hec_policy_flexmoe, p, &hec_test_arena);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  const int32_t *ranks;
  ck_assert(run.planned && run.plan.version == 1);
  ck_assert_int_eq(copies_of(&run.plan, 0, &ranks), 2);
  ck_assert(ranks[0] == 1 && ranks[1] == 3 && hec_plan_home(&run.plan, 0, 0) == 0);
  for (int32_t e = 1; e < 8; e++)
    ck_assert(copies_of(&run.plan, e, &ranks) == 0 && hec_plan_home(&run.plan, 0, e) == e / 2);
  hec_policy_stop(&run);
}
END_TEST

/* Two slots per rank, expert 0 everywhere; then the load moves to expert 3: first the free slot of rank 0, then the
 * slots that expert 0 gives up. */
START_TEST(shrinks_what_went_cold) {
  const uint32_t first[4] = {900, 10, 10, 10}, then[4] = {10, 10, 10, 900};
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 4, 1, false);
  p->slots = 2;
  p->period = 1;
  hec_load a = hec_test_even_load(&hec_test_arena, p, first), b = hec_test_even_load(&hec_test_arena, p, then);
  hec_policy_run run = hec_policy_start(&hec_policy_flexmoe, p, &hec_test_arena);
  const int32_t *ranks;
  hec_policy_observe(&run, &a);
  hec_policy_decide(&run, 1, 0);
  ck_assert_int_eq(copies_of(&run.plan, 0, &ranks), 3);
  for (int i = 0; i < 5; i++)
    hec_policy_observe(&run, &b);
  hec_policy_decide(&run, 2, 0);
  int32_t of_first = copies_of(&run.plan, 0, &ranks), of_last = copies_of(&run.plan, 3, &ranks);
  ck_assert_int_eq(of_first, 1); /* ranks 1 and 2 gave theirs; ranks 0 and 3 hold both */
  ck_assert_int_eq(of_last, 3);
  hec_policy_stop(&run);
}
END_TEST

/* Never above the slots, never worse than before on the load it saw, at most ten new replicas per layer and decision.
 */
START_TEST(improves_within_slots) {
  uint64_t seed = 71;
  int improved = 0;
  for (int round = 0; round < 150; round++) {
    hec_problem *p = hec_test_random_problem(&hec_test_arena, &seed);
    p->period = 1;
    hec_policy_run run = hec_policy_start(&hec_policy_flexmoe, p, &hec_test_arena);
    hec_plan before = hec_plan_new(&hec_test_arena, p, 1);
    int32_t slots = 3 * ((p->n_experts + p->ep - 1) / p->ep);
    for (int iter = 0; iter < 4; iter++) {
      hec_load load = hec_test_random_load(&hec_test_arena, p, &seed);
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
    hec_policy_stop(&run);
    hec_arena_free(&hec_test_arena);
  }
  ck_assert(improved > 50);
}
END_TEST

/* Both experts of rank 0 want a replica on rank 1. Without memory it has one slot to spare; with memory three times
 * EP's. */
START_TEST(memory_limits_slots) {
  const uint32_t totals[4] = {300, 200, 0, 0};
  const char *const clusters[] = {"1x2 nvlink=300G@2us nic=50G@5us flops=312T mem=1K",
                                  "1x2 nvlink=300G@2us nic=50G@5us flops=312T mem=1G"};
  for (int32_t i = 0; i < 2; i++) {
    hec_problem *p = hec_test_problem(&hec_test_arena, clusters[i], 2, 1, 4, 2, false);
    hec_load load = hec_test_even_load(&hec_test_arena, p, totals);
    hec_policy_run run = hec_policy_start(&hec_policy_flexmoe, p, &hec_test_arena);
    hec_policy_observe(&run, &load);
    hec_policy_decide(&run, 1, 0);
    ck_assert(hec_plan_holds(&run.plan, 0, 0, 1));
    ck_assert_int_eq(hec_plan_holds(&run.plan, 0, 1, 1), i);
    hec_policy_stop(&run);
  }
}
END_TEST

/* Nodes {0, 1} and {2, 3}; ranks hold 0 1 | 2 | 3 4 | 5, so ranks 1 and 3 have a free slot and 400 10 350 100. The copy
 * of expert 0 goes to the node without one, though rank 1 has less; another would not help rank 2, which is then
 * busiest. */
START_TEST(prefers_the_node_without_a_replica) {
  const uint32_t totals[6] = {400, 0, 10, 175, 175, 100};
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "2x2 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 6, 2, false);
  p->slots = 2;
  hec_load load = hec_test_even_load(&hec_test_arena, p, totals);
  hec_policy_run run = hec_policy_start(&hec_policy_flexmoe, p, &hec_test_arena);
  const int32_t *ranks;
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  ck_assert_int_eq(copies_of(&run.plan, 0, &ranks), 1);
  ck_assert_int_eq(ranks[0], 3);
  hec_policy_stop(&run);
}
END_TEST

/* All slots full: ranks hold 0 3 | 1 3 | 1 2 | 2 3. Expert 1 is the coldest but has one replica per node and keeps
 * them, since experts 2 and 3 can give: after three rounds expert 0 is everywhere, 2 on rank 3 only, 3 on rank 0 only.
 */
START_TEST(keeps_one_replica_per_node) {
  const uint32_t totals[4] = {400, 2, 20, 60};
  const int32_t home[4] = {0, 1, 2, 0};
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "2x2 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 4, 1, false);
  p->slots = 2;
  hec_load load = hec_test_even_load(&hec_test_arena, p, totals);
  hec_policy_run run = hec_policy_start(&hec_policy_flexmoe, p, &hec_test_arena);
  const int32_t *ranks;
  for (int32_t e = 0; e < 4; e++)
    hec_plan_set_home(&run.plan, 0, e, home[e]);
  hec_plan_add_copy(&run.plan, 0, 1, 2, HEC_COPY_RESIDENT);
  hec_plan_add_copy(&run.plan, 0, 2, 3, HEC_COPY_RESIDENT);
  hec_plan_add_copy(&run.plan, 0, 3, 1, HEC_COPY_RESIDENT);
  hec_plan_add_copy(&run.plan, 0, 3, 3, HEC_COPY_RESIDENT);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  ck_assert_int_eq(copies_of(&run.plan, 0, &ranks), 3);
  ck_assert(copies_of(&run.plan, 1, &ranks) == 1 && ranks[0] == 2 && hec_plan_home(&run.plan, 0, 1) == 1);
  ck_assert(copies_of(&run.plan, 2, &ranks) == 0 && hec_plan_home(&run.plan, 0, 2) == 3);
  ck_assert(copies_of(&run.plan, 3, &ranks) == 0 && hec_plan_home(&run.plan, 0, 3) == 0);
  hec_policy_stop(&run);
}
END_TEST

/* Training: a replica must earn its gradient all-reduce. Expert 0 with n assignments of 2 * 2 * 64 * 128 flops and 128
 * bytes takes n (3 * 32768 / 1e12 + 4 * 128 / 1e9) s without a replica, and with one half of it and 2 * 1/2 * 32768 /
 * 1e9 s: they meet at n = 107.4. On one node over the port, on nodes of one device over the NIC. */
START_TEST(replica_pays_for_its_allreduce) {
  const char *const clusters[] = {"1x2 nvlink=1G@2us nic=50G@5us flops=1T mem=40G eff=1",
                                  "2x1 nvlink=9G@2us nic=1G@5us flops=1T mem=40G eff=1"};
  for (uint32_t n = 107; n <= 108; n++)
    for (int i = 0; i < 2; i++) {
      const uint32_t totals[2] = {n, 0};
      hec_problem *p = hec_test_problem(&hec_test_arena, clusters[i], 2, 1, 2, 1, true);
      hec_load load = hec_test_even_load(&hec_test_arena, p, totals);
      hec_policy_run run = hec_policy_start(&hec_policy_flexmoe, p, &hec_test_arena);
      hec_policy_observe(&run, &load);
      hec_policy_observe(&run, &load); /* the mean counts, not the sum */
      hec_policy_decide(&run, 1, 0);
      ck_assert_int_eq(run.plan.copy_at[2], n == 108);
      hec_policy_stop(&run);
    }
}
END_TEST

/* What does not help is not done. */
START_TEST(no_load_no_replica) {
  hec_problem *p =
      hec_test_problem(&hec_test_arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4, 1, 8, 2, false);
  const uint32_t none[8] = {0};
  hec_load load = hec_test_even_load(&hec_test_arena, p, none);
  hec_policy_run run = hec_policy_start(&hec_policy_flexmoe, p, &hec_test_arena);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  ck_assert(run.planned && run.plan.version == 0 && run.plan.copy_at[8] == 0);
  hec_policy_stop(&run);
}
END_TEST

static const hec_test_suite suite = {.name = "policy_flexmoe"};
HEC_TESTS(suite, {expands_by_hand, 1}, {shrinks_what_went_cold, 1}, {improves_within_slots, 1},
          {memory_limits_slots, 1}, {prefers_the_node_without_a_replica, 1}, {keeps_one_replica_per_node, 1},
          {no_load_no_replica, 1}, {replica_pays_for_its_allreduce, 1})
