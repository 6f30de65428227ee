/* FlashLB: the example of its pull request, and which layers it touches. */
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <math.h>

HEC_TEST_ARENA(arena)

/* As the text of vllm-ascend PR 3042 has it: 8 experts, 8 devices with 2 slots each. */
static const uint32_t published[8] = {600, 560, 120, 120, 20, 10, 10, 10};

static double fullest(const hec_policy_run *run, const uint32_t *totals) {
  double load[8] = {0}, max = 0;
  for (int32_t e = 0; e < 8; e++) {
    int32_t holders[24], n = hec_plan_holders(&run->plan, 0, e, holders);
    for (int32_t i = 0; i < n; i++)
      load[holders[i]] += (double)totals[e] / n;
  }
  for (int r = 0; r < 8; r++)
    max = load[r] > max ? load[r] : max;
  return max;
}

HEC_TEST(published_example) {
  hec_problem *p = hec_test_problem(&arena, "1x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 8, 1, 8, 2, true);
  hec_load load = hec_test_even_load(&arena, p, published);
  const hec_policy *rows[] = {&hec_policy_eplb_global, &hec_policy_flashlb};
  const double wanted[] = {232, 205};
  for (int k = 0; k < 2; k++) {
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(rows[k], p, &arena);
    hec_policy_observe(&run, &load);
    hec_policy_decide(&run, 1, 0);
    ck_assert_msg(fabs(fullest(&run, published) - wanted[k]) < 0.5, "%s: %.2f", rows[k]->name,
                  fullest(&run, published));
  }
}

/* Layer 0 has nothing to gain; of the others the one that gains most is placed first. The next decision on the same load finds
 * nothing; a layer that is as good as when it was placed is not looked at. */
HEC_TEST(layers_that_gain) {
  static const uint32_t totals[3][8] = {
      {90, 90, 90, 90, 90, 90, 90, 90}, {200, 100, 100, 100, 100, 100, 100, 100}, {600, 560, 120, 120, 20, 10, 10, 10}};
  const char *texts[] = {"flashlb", "flashlb:layers=1", "flashlb:threshold=1.1"};
  const bool placed[3][3] = {{false, true, true}, {false, false, true}, {false, true, true}};
  for (int k = 0; k < 3; k++) {
    hec_problem *p = hec_test_problem(&arena, "1x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 8, 3, 8, 2, true);
    const hec_policy *policy = NULL;
    ck_assert_int_eq(hec_policy_read(texts[k], NULL, "test", &arena, &policy), HEC_OK);
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(policy, p, &arena);
    hec_load load = hec_load_new(&arena, 3, 8, 8);
    for (int32_t layer = 0; layer < 3; layer++)
      for (int32_t s = 0; s < 8; s++)
        for (int32_t e = 0; e < 8; e++)
          hec_load_row(&load, layer, s)[e] = totals[layer][e];
    hec_policy_observe(&run, &load);
    hec_policy_decide(&run, 1, 0);
    for (int32_t layer = 0; layer < 3; layer++)
      ck_assert_msg((hec_plan_copies(&run.plan, layer, 0).n > 0) == placed[k][layer], "%s, layer %d", texts[k], layer);
    uint64_t digest = hec_plan_digest(&run.plan), units = run.units;
    hec_policy_decide(&run, 101, 0);
    ck_assert(run.planned && (k == 1 || hec_plan_digest(&run.plan) == digest));
    ck_assert(k != 2 || run.units < units);
  }
}
