/* CRAFT: to which layers replicas go, against all ways to share the budget out. */
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <math.h>

HEC_TEST_ARENA(arena)

enum { LAYERS = 3, RANKS = 4, EXPERTS = 8, CHOICES = 5 };

static hec_policy_run plan(const char *text, uint32_t totals[LAYERS][EXPERTS], int32_t layers) {
  hec_problem *p =
      hec_test_problem(&arena, "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", RANKS, layers, EXPERTS, 2, true);
  const hec_policy *policy = NULL;
  ck_assert_msg(hec_policy_read(text, NULL, "test", &arena, &policy) == HEC_OK, "%s", hec_last_error());
  hec_policy_run run = hec_policy_start(policy, p, &arena);
  hec_load load = hec_load_new(&arena, layers, RANKS, EXPERTS);
  for (int32_t layer = 0; layer < layers; layer++)
    for (int32_t s = 0; s < RANKS; s++)
      for (int32_t e = 0; e < EXPERTS; e++)
        hec_load_row(&load, layer, s)[e] = totals[layer][e];
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 1, 0);
  return run;
}

static int32_t replicas(const hec_policy_run *run, int32_t layer) {
  return run->plan.copy_at[layer * (EXPERTS + 1) + EXPERTS];
}

/* Mean over fullest rank, as the plan stands. */
static double balance(const hec_policy_run *run, int32_t layer, const uint32_t *totals) {
  double load[RANKS] = {0}, max = 0, all = 0;
  for (int32_t e = 0; e < EXPERTS; e++) {
    int32_t holders[EXPERTS * RANKS], n = hec_plan_holders(&run->plan, layer, e, holders);
    for (int32_t i = 0; i < n; i++)
      load[holders[i]] += (double)totals[e] / n;
    all += totals[e];
  }
  for (int32_t r = 0; r < RANKS; r++)
    max = load[r] > max ? load[r] : max;
  return all / RANKS / max;
}

/* What one layer is worth with up to n replicas: a run of its own with that budget, so that no two layers share one. */
static double alone(const uint32_t *totals, int32_t n) {
  char text[64];
  uint32_t own[LAYERS][EXPERTS];
  (void)snprintf(text, sizeof text, "craft:redundant=%g", (double)n / RANKS);
  for (int32_t e = 0; e < EXPERTS; e++)
    own[0][e] = totals[e];
  HEC_SCOPED(hec_policy_run) run = plan(text, own, 1);
  double value = balance(&run, 0, totals);
  ck_assert_int_le(replicas(&run, 0), n);
  return value;
}

HEC_TEST(budget_is_shared_out_best) {
  uint64_t seed = 5;
  bool differs = false;
  for (int round = 0; round < 40; round++) {
    uint32_t totals[LAYERS][EXPERTS];
    double value[LAYERS][CHOICES];
    for (int32_t layer = 0; layer < LAYERS; layer++) {
      for (int32_t e = 0; e < EXPERTS; e++)
        totals[layer][e] = 1 + (uint32_t)hec_test_below(&seed, e < 2 ? 600 : 100);
      for (int32_t n = 0; n < CHOICES; n++)
        value[layer][n] = alone(totals[layer], n);
    }
    int32_t budget = 1 + (int32_t)hec_test_below(&seed, 6);
    double best = 0;
    for (int32_t i = 0; i < CHOICES; i++)
      for (int32_t j = 0; j < CHOICES; j++)
        for (int32_t k = 0; k < CHOICES && i + j + k <= budget; k++)
          best = fmax(best, value[0][i] + value[1][j] + value[2][k]);
    char text[64];
    (void)snprintf(text, sizeof text, "craft:redundant=%.4f", (budget + 0.01) / (RANKS * LAYERS));
    HEC_SCOPED(hec_policy_run) run = plan(text, totals, LAYERS);
    double sum = 0;
    int32_t used = 0;
    for (int32_t layer = 0; layer < LAYERS; layer++) {
      sum += balance(&run, layer, totals[layer]);
      used += replicas(&run, layer);
    }
    differs |= replicas(&run, 0) != replicas(&run, 1);
    ck_assert_int_le(used, budget);
    ck_assert_double_eq_tol(sum, best, 1e-9);
  }
  ck_assert(differs);
}
