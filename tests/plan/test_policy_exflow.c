/* ExFlow: experts that follow each other share a rank, equally many on each; without transitions it is ep, and says so. */
#include "runtime/plan/planners/affinity.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static uint64_t *random_transitions(const hec_problem *p, uint64_t *seed) {
  size_t n = (size_t)(p->n_layers - 1) * (size_t)p->n_experts * (size_t)p->n_experts;
  uint64_t *count = HEC_NEW(&arena, uint64_t, n + 1);
  for (size_t i = 0; i < n; i++)
    count[i] = hec_test_below(seed, 4) ? 0 : hec_test_below(seed, 1000);
  return count;
}

static uint64_t kept_by(const hec_plan *plan, const hec_problem *p, bool nodes) {
  uint64_t kept = 0;
  for (int32_t l = 0; l + 1 < p->n_layers; l++)
    for (int32_t a = 0; a < p->n_experts; a++)
      for (int32_t b = 0; b < p->n_experts; b++) {
        int32_t from = hec_plan_home(plan, l, a), to = hec_plan_home(plan, l + 1, b);
        bool same = nodes ? hec_problem_node(p, from) == hec_problem_node(p, to) : from == to;
        kept += same ? p->transitions[((size_t)l * (size_t)p->n_experts + (size_t)a) * (size_t)p->n_experts + (size_t)b]
                     : 0;
      }
  return kept;
}

/* As many experts a rank and layer as ep has, in every group of ranks alike; one node: no less stays on a rank. */
HEC_TEST(keeps_counts_and_more_tokens) {
  uint64_t seed = 80;
  int better = 0;
  for (int round = 0; round < 60; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    p->transitions = random_transitions(p, &seed);
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_exflow, p, &arena);
    hec_plan contiguous = hec_plan_new(&arena, p, 1);
    hec_plan_set_contiguous(&contiguous, p);
    hec_plan_check(&run.plan);
    for (int32_t l = 0; l < p->n_layers; l++) {
      int32_t count[64] = {0};
      for (int32_t e = 0; e < p->n_experts; e++) {
        int32_t home = hec_plan_home(&run.plan, l, e);
        count[home]++;
        count[hec_plan_home(&contiguous, l, e)]--;
        for (int32_t group = 0; group < p->dp; group++)
          ck_assert(hec_plan_holds(&run.plan, l, e, group * p->ep + home));
      }
      for (int32_t r = 0; r < p->ep; r++)
        ck_assert_int_eq(count[r], 0);
    }
    bool one_node = hec_problem_node(p, p->ep - 1) == 0;
    uint64_t now = kept_by(&run.plan, p, !one_node), was = kept_by(&contiguous, p, !one_node);
    ck_assert_uint_ge(now, was);
    better += now > was;
    hec_load load = hec_test_random_load(&arena, p, &seed);
    uint64_t before = hec_plan_digest(&run.plan);
    for (int64_t iter = 0; iter < 3; iter++) {
      hec_policy_decide(&run, iter, 0);
      ck_assert(!run.planned && run.units == 0 && hec_plan_digest(&run.plan) == before);
      hec_policy_observe(&run, &load);
    }
  }
  ck_assert_int_gt(better, 20);
}

/* Two nodes of two ranks, pairs of experts that belong together across five layers: all stay on their rank. */
HEC_TEST(finds_planted_groups) {
  enum { LAYERS = 5, EXPERTS = 8 };
  static uint64_t transitions[LAYERS - 1][EXPERTS][EXPERTS];
  hec_problem *p =
      hec_test_problem(&arena, "2x2 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 4, LAYERS, EXPERTS, 1, false);
  for (int32_t l = 0; l + 1 < LAYERS; l++)
    for (int32_t a = 0; a < EXPERTS; a++)
      for (int32_t b = 0; b < EXPERTS; b++) /* group of expert e in layer l: (5 e + 3 l) mod 8 / 2 */
        transitions[l][a][b] = (5 * a + 3 * l) % 8 / 2 == (5 * b + 3 * (l + 1)) % 8 / 2 ? 10 : 0;
  p->transitions = &transitions[0][0][0];
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_exflow, p, &arena);
  ck_assert_uint_eq(kept_by(&run.plan, p, false), (LAYERS - 1) * EXPERTS * 2 * 10);
  ck_assert_ptr_nonnull(strstr(run.note, "100.0 % of the transitions stay on a rank (contiguous: "));
}

HEC_TEST(says_what_it_lacks) {
  uint64_t seed = 81;
  hec_problem *p = hec_test_random_problem(&arena, &seed);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_exflow, p, &arena);
  hec_plan contiguous = hec_plan_new(&arena, p, 1);
  hec_plan_set_contiguous(&contiguous, p);
  ck_assert(hec_plan_digest(&run.plan) == hec_plan_digest(&contiguous));
  ck_assert_ptr_nonnull(strstr(run.note, "as in ep: the trace has no transitions"));
}

/* Three layers of 4 experts on 2 parts: the best of all 6^3 placements, nearly always reached, never passed. */
HEC_TEST(compared_with_all_placements) {
  static const int32_t halves[6][4] = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 0},
                                       {1, 0, 0, 1}, {1, 0, 1, 0}, {1, 1, 0, 0}};
  uint64_t seed = 82, flow[2 * 16];
  int reached = 0;
  for (int round = 0; round < 200; round++) {
    hec_affinity f = hec_affinity_new(&arena, 3, 4, 2);
    uint64_t best = 0;
    for (int i = 0; i < 32; i++)
      flow[i] = hec_test_below(&seed, 100);
    f.flow = flow;
    for (int i = 0; i < 216; i++) {
      memcpy(f.part, halves[i % 6], sizeof halves[0]);
      memcpy(f.part + 4, halves[i / 6 % 6], sizeof halves[0]);
      memcpy(f.part + 8, halves[i / 36], sizeof halves[0]);
      uint64_t kept = hec_affinity_kept(&f);
      best = kept > best ? kept : best;
    }
    for (int i = 0; i < 12; i++)
      f.part[i] = i % 4 / 2;
    uint64_t start = hec_affinity_kept(&f);
    hec_affinity_make(&f);
    uint64_t kept = hec_affinity_kept(&f);
    ck_assert(kept >= start && kept <= best);
    for (int l = 0; l < 3; l++)
      ck_assert_int_eq(f.part[4 * l] + f.part[4 * l + 1] + f.part[4 * l + 2] + f.part[4 * l + 3], 2);
    reached += kept == best;
    hec_arena_free(&arena);
  }
  ck_assert_int_ge(reached, 100);
}
