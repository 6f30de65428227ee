/* FasterMoE: the published model on the small instance of the references, and the policy around it. */
#include "runtime/plan/planners/shadow.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

static const uint32_t totals[8] = {400, 100, 60, 40, 120, 40, 20, 20};

/* h = 1024, alpha = 2, 2-byte data, 11.5 TFLOP/s, 6.25 GB/s; every source holds a quarter of each expert's counts * 64.
 */
HEC_TEST(small_instance) {
  const double h = 1024, alpha = 2, width = 2, flops = 11.5e12, link = 6.25e9;
  hec_shadow_cost cost = {.compute_s = 3 * 4 * alpha * h * h / flops,
                          .exchange_s = 4 * h * width / link,
                          .shadow_s = 2 * 2 * alpha * h * h * width / link};
  uint32_t load[32];
  for (int32_t s = 0; s < 4; s++)
    for (int32_t e = 0; e < 8; e++)
      load[s * 8 + e] = totals[e] / 4 * 64;
  hec_shadow shadow = hec_shadow_new(&arena, 4, 8);
  hec_shadow_choose(&shadow, &cost, load, (const int32_t[]){0, 0, 1, 1, 2, 2, 3, 3});
  ck_assert_int_eq(shadow.n_chosen, 2);
  ck_assert(shadow.chosen[0] == 0 && shadow.chosen[1] == 4);
  ck_assert_int_eq(shadow.n_predicted, 4);
  const double wanted[4] = {.112, .053, .046, .052};
  for (int i = 0; i < 4; i++)
    ck_assert_double_eq_tol(shadow.predicted[i], wanted[i], .0005);
}

/* Every prediction equals the formula evaluated from scratch with the first k experts shadowed. */
static double naive(const hec_shadow_cost *cost, const uint32_t *load, const int32_t *home, int32_t ranks,
                    int32_t experts, const bool *shadowed, int32_t n) {
  uint64_t computed = 0, received = 0;
  for (int32_t r = 0; r < ranks; r++) {
    uint64_t in = 0, own = 0;
    for (int32_t s = 0; s < ranks; s++)
      for (int32_t e = 0; e < experts; e++) {
        in += !shadowed[e] && home[e] == r ? load[s * experts + e] : 0;
        own += shadowed[e] && s == r ? load[s * experts + e] : 0;
      }
    computed = in + own > computed ? in + own : computed;
    received = in > received ? in : received;
  }
  return cost->compute_s * (double)computed + cost->exchange_s * (double)received + cost->shadow_s * n;
}

HEC_TEST(predictions_match_the_formula) {
  uint64_t seed = 3;
  for (int round = 0; round < 200; round++) {
    int32_t ranks = 1 + (int32_t)hec_test_below(&seed, 8), experts = ranks + (int32_t)hec_test_below(&seed, 8);
    int32_t home[16];
    uint32_t load[128];
    bool shadowed[16] = {false};
    for (int32_t i = 0; i < ranks * experts; i++)
      load[i] = (uint32_t)hec_test_below(&seed, 100) * (uint32_t)hec_test_below(&seed, 100);
    for (int32_t e = 0; e < experts; e++)
      home[e] = e * ranks / experts;
    hec_shadow_cost cost = {1 + hec_test_uniform(&seed), hec_test_uniform(&seed), 2000 * hec_test_uniform(&seed)};
    hec_shadow shadow = hec_shadow_new(&arena, ranks, experts);
    hec_shadow_choose(&shadow, &cost, load, home);
    for (int32_t k = 0; k <= shadow.n_chosen; k++) {
      ck_assert_double_eq(shadow.predicted[k], naive(&cost, load, home, ranks, experts, shadowed, k));
      if (k > 0)
        ck_assert(shadow.predicted[k] < shadow.predicted[k - 1]);
      if (k < shadow.n_chosen)
        shadowed[shadow.chosen[k]] = true;
    }
    ck_assert(shadow.n_chosen == experts || shadow.predicted[shadow.n_chosen + 1] >= shadow.predicted[shadow.n_chosen]);
    hec_arena_free(&arena);
  }
}

/* The policy shadows what the model says with the cluster's constants, worked out here from the one-line form. */
HEC_TEST(constants_of_the_cluster) {
  static const struct {
    const char *cluster;
    int32_t ranks;
    double share, whole;
  } cases[] = {
      {"1x4 nvlink=4G@2us nic=1G@5us flops=1T mem=40G eff=0.5", 4, 4e9, 4e9},
      {"4x4 nvlink=4G@2us nic=2G@5us flops=1T mem=40G eff=0.5", 4, 4e9, 4e9}, /* one node of four is used */
      {"4x4 nvlink=4G@2us nic=2G@5us flops=1T mem=40G eff=0.5", 16, 0.5e9, 2e9},
  };
  uint64_t seed = 13;
  int chosen = 0;
  for (int round = 0; round < 300; round++) {
    int32_t c = round % 3;
    double factor = round % 2 ? 3 : 1; /* training or forward only */
    hec_problem *p = hec_test_problem(&arena, cases[c].cluster, cases[c].ranks, 1, 16, 1, round % 2);
    hec_load load = hec_test_random_load(&arena, p, &seed);
    hec_shadow_cost cost = {.compute_s = factor * 2 * 2 * 64 * 128 / (1e12 * 0.5),
                            .exchange_s = (round % 2 ? 4 : 2) * 64 * 2 / cases[c].share,
                            .shadow_s = (round % 2 ? 2 : 1) * 2 * 64 * 128 * 2 / cases[c].whole};
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find("fastermoe"), p, &arena);
    hec_shadow shadow = hec_shadow_new(&arena, p->n_ranks, 16);
    hec_shadow_choose(&shadow, &cost, hec_load_row(&load, 0, 0), run.plan.home);
    hec_policy_refine(&run, 0, &load);
    ck_assert_int_eq(run.plan.copy_at[16], shadow.n_chosen * (p->n_ranks - 1));
    for (int32_t i = 0; i < shadow.n_chosen; i++, chosen++)
      for (int32_t r = 0; r < p->n_ranks; r++)
        ck_assert(hec_plan_holds(&run.plan, 0, shadow.chosen[i], r));
  }
  ck_assert_int_gt(chosen, 100);
}

/* No gain is no reason. */
HEC_TEST(ties_end_it) {
  const uint32_t load[8] = {0};
  const hec_shadow_cost cost = {1, 1, 0};
  hec_shadow shadow = hec_shadow_new(&arena, 2, 4);
  hec_shadow_choose(&shadow, &cost, load, (const int32_t[]){0, 0, 1, 1});
  ck_assert(shadow.n_chosen == 0 && shadow.n_predicted == 2);
}
