/* EPLB: the published README example, the small instance of the references, and the policy around the placement. */
#include "runtime/plan/planners/eplb_core.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)

static hec_eplb place(const uint64_t *load, int32_t n_experts, int32_t n_slots, int32_t groups, int32_t nodes,
                      int32_t ranks) {
  hec_eplb eplb = hec_eplb_new(&arena, n_experts, n_slots, groups, nodes, ranks);
  hec_eplb_place(&eplb, load);
  return eplb;
}

static void expect_slots(const hec_eplb *eplb, const int32_t *slots) {
  for (int32_t i = 0; i < eplb->n_slots; i++)
    ck_assert_msg(eplb->slot[i] == slots[i], "slot %d holds %d, expected %d", i, eplb->slot[i], slots[i]);
}

static void expect_loads(const hec_eplb *eplb, const uint64_t *load, const double *wanted) {
  int32_t per_rank = eplb->n_slots / eplb->n_ranks;
  for (int32_t r = 0; r < eplb->n_ranks; r++) {
    double sum = 0;
    for (int32_t i = r * per_rank; i < (r + 1) * per_rank; i++)
      sum += (double)load[eplb->slot[i]] / eplb->count[eplb->slot[i]];
    ck_assert_double_eq_tol(sum, wanted[r], 0.05);
  }
}

/* The example of EPLB's README: 12 experts, 16 slots, 4 groups, 2 nodes, 8 GPUs. */
HEC_TEST(readme_example) {
  const uint64_t load[2][12] = {{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
                                {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
  const int32_t slots[2][16] = {{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
                                {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}};
  const double loads[2][8] = {{121.5, 86.5, 125, 113, 147.5, 131.5, 156, 152},
                              {173, 179.5, 120.5, 172, 123, 152, 118.5, 117.5}};
  for (int layer = 0; layer < 2; layer++) {
    hec_eplb eplb = place(load[layer], 12, 16, 4, 2, 8);
    expect_slots(&eplb, slots[layer]);
    expect_loads(&eplb, load[layer], loads[layer]);
  }
}

static const uint64_t small[8] = {400, 100, 60, 40, 120, 40, 20, 20};

HEC_TEST(small_global) {
  hec_eplb eplb = place(small, 8, 12, 1, 1, 4);
  expect_slots(&eplb, (const int32_t[]){0, 0, 7, 1, 2, 3, 0, 4, 5, 0, 4, 6});
  expect_loads(&eplb, small, (const double[]){220, 200, 200, 180});
}

HEC_TEST(small_hierarchical) {
  hec_eplb eplb = place(small, 8, 12, 4, 2, 4);
  expect_slots(&eplb, (const int32_t[]){0, 0, 7, 0, 1, 6, 2, 3, 4, 4, 5, 4});
  expect_loads(&eplb, small, (const double[]){286.7, 253.3, 140, 120});
}

/* Any load: slots add up, counts are right, no slot is left, hierarchical keeps each expert on one node. */
HEC_TEST(random_placements) {
  uint64_t seed = 11;
  for (int round = 0; round < 300; round++) {
    int32_t nodes = 1 + (int32_t)hec_test_below(&seed, 3), ranks = nodes * (1 + (int32_t)hec_test_below(&seed, 4));
    int32_t experts = nodes * (1 + (int32_t)hec_test_below(&seed, 9));
    int32_t per_rank = (experts + ranks - 1) / ranks + (int32_t)hec_test_below(&seed, 3);
    uint64_t load[32];
    for (int32_t e = 0; e < experts; e++)
      load[e] = hec_test_below(&seed, 4) ? hec_test_below(&seed, 1000) : 0;
    hec_eplb eplb = place(load, experts, per_rank * ranks, nodes, nodes, ranks);
    int32_t seen[32] = {0}, node_of[32];
    for (int32_t i = 0; i < eplb.n_slots; i++) {
      int32_t e = eplb.slot[i], node = i / (eplb.n_slots / nodes);
      ck_assert(e >= 0 && e < experts && (seen[e] == 0 || node_of[e] == node));
      seen[e]++;
      node_of[e] = node;
    }
    for (int32_t e = 0; e < experts; e++)
      ck_assert(seen[e] >= 1 && seen[e] == eplb.count[e]);
    hec_arena_free(&arena);
  }
}

/* One redundant slot per rank; hierarchical when nodes divide the experts: replicas stay on the expert's node. */
HEC_TEST(policy_hierarchical) {
  uint64_t seed = 5;
  hec_problem *problem =
      hec_test_problem(&arena, "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 8, 2, 16, 2, true);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_eplb, problem, &arena);
  hec_load load = hec_test_random_load(&arena, problem, &seed);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  for (int32_t layer = 0; layer < 2; layer++) {
    ck_assert_int_eq(run.plan.copy_at[layer * 17 + 16] + 16, 8 * 3);
    for (int32_t e = 0; e < 16; e++) {
      hec_copies copies = hec_plan_copies(&run.plan, layer, e);
      for (int32_t i = 0; i < copies.n; i++)
        ck_assert_int_eq(copies.rank[i] / 4, hec_plan_home(&run.plan, layer, e) / 4);
    }
  }
}

/* Both hot experts start on node 0. With 8 groups (of two) on two nodes one of them moves to the other. The holders
 * are those of the core with 8 groups. */
HEC_TEST(policy_packs_groups_onto_nodes) {
  const uint32_t totals[16] = {800, 8, 8, 8, 800, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
  hec_problem *problem =
      hec_test_problem(&arena, "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 8, 1, 16, 2, true);
  hec_load load = hec_test_even_load(&arena, problem, totals);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_eplb, problem, &arena);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  ck_assert(hec_plan_home(&run.plan, 0, 0) / 4 != hec_plan_home(&run.plan, 0, 4) / 4);
  uint64_t wide[16];
  for (int32_t e = 0; e < 16; e++)
    wide[e] = totals[e];
  hec_eplb eplb = place(wide, 16, 24, 8, 2, 8);
  for (int32_t i = 0; i < 24; i++)
    ck_assert(hec_plan_holds(&run.plan, 0, eplb.slot[i], i / 3));
}
