/* Pro-Prophet: a search worked out by hand, the model from scratch, what the search promises, and the policy around
 * it. */
#include "runtime/plan/planners/partial_shadow.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <math.h>

HEC_TEST_ARENA(arena)

static const uint32_t totals[8] = {400, 100, 60, 40, 120, 40, 20, 20};
static const int32_t homes[8] = {0, 0, 1, 1, 2, 2, 3, 3};

/* H 500 100 160 40, R 375 75 120 30: 3000 s. Expert 0 everywhere: H 200 200 260 140, R 75 75 120 30, 150 s of transfers
 * hidden: 1260. Then rank 2 and expert 4: H 230 230 170 170, R 75 75 30 30, 300 - 230 s of transfers show: 1060. Then
 * rank 0 again: the end. With rank 3 left out, rank 0 keeps 300 and it ends at 1600 s. */
HEC_TEST(by_hand) {
  uint64_t sent[32];
  for (int32_t i = 0; i < 32; i++)
    sent[i] = totals[i % 8] / 4;
  hec_partial_cost cost = {.exchange_s = 1, .compute_s = 1, .transfer_s = 50, .gradient_s = 50, .train = true};
  hec_partial_shadow shadow = hec_partial_shadow_new(&arena, 4, 8);
  hec_partial_shadow_choose(&shadow, &cost, sent, homes, 8);
  ck_assert(shadow.n_chosen == 2 && shadow.n_receivers == 3 && shadow.chosen[0] == 0 && shadow.chosen[1] == 4);
  const double wanted[3] = {3000, 1260, 1060};
  const uint64_t computed[4] = {230, 230, 170, 170}, received[4] = {75, 75, 30, 30};
  const int32_t receiver[2][3] = {{1, 2, 3}, {0, 1, 3}};
  for (int32_t k = 0; k < 3; k++)
    ck_assert_double_eq(shadow.predicted[k], wanted[k]);
  for (int32_t r = 0; r < 4; r++)
    ck_assert(shadow.computed[r] == computed[r] && shadow.received[r] == received[r]);
  for (int32_t k = 0; k < 2; k++)
    for (int32_t i = 0; i < 3; i++)
      ck_assert_int_eq(shadow.receiver[k * 4 + i], receiver[k][i]);
  hec_partial_shadow_choose(&shadow, &cost, sent, homes, 1); /* memory for one */
  ck_assert(shadow.n_chosen == 1 && shadow.predicted[1] == 1260);
  cost.gradient_s = 300; /* 900 - 520 s of gradients show: 1640; to two ranks 600 - 600: 1600; to one 1900 */
  hec_partial_shadow_choose(&shadow, &cost, sent, homes, 1);
  ck_assert(shadow.n_chosen == 1 && shadow.n_receivers == 2 && shadow.predicted[1] == 1600);
  ck_assert(shadow.receiver[0] == 1 && shadow.receiver[1] == 2);
  cost.window_s = 200; /* hides it again */
  hec_partial_shadow_choose(&shadow, &cost, sent, homes, 1);
  ck_assert(shadow.n_receivers == 3 && shadow.predicted[1] == 1260);
  cost.train = false; /* 2 * 120 + 260 */
  hec_partial_shadow_choose(&shadow, &cost, sent, homes, 1);
  ck_assert(shadow.n_receivers == 3 && shadow.predicted[0] == 1250 && shadow.predicted[1] == 500);
}

/* H and R assignment by assignment, then the formula. */
static double naive(const hec_partial_cost *cost, const uint64_t *sent, const int32_t *home, int32_t ranks,
                    int32_t experts, const bool *copy, int32_t n_copies) {
  double max_h = 0, max_r = 0;
  for (int32_t r = 0; r < ranks; r++) {
    double h = 0, in = 0;
    for (int32_t s = 0; s < ranks; s++)
      for (int32_t e = 0; e < experts; e++) {
        int32_t at = copy[e * ranks + s] ? s : home[e];
        h += at == r ? (double)sent[s * experts + e] : 0;
        in += at == r && s != r ? (double)sent[s * experts + e] : 0;
      }
    max_h = h > max_h ? h : max_h;
    max_r = in > max_r ? in : max_r;
  }
  double fec = cost->compute_s * max_h;
  if (!cost->train)
    return 2 * cost->exchange_s * max_r + fec + fmax(0, cost->transfer_s * n_copies - fec - cost->window_s);
  return 4 * cost->exchange_s * max_r + 3 * fec + fmax(0, cost->transfer_s * n_copies - fec - cost->window_s) +
         fmax(0, cost->gradient_s * n_copies - 2 * fec - 2 * cost->window_s);
}

HEC_TEST(random_choices) {
  uint64_t seed = 29;
  int n_some = 0, n_partial = 0;
  for (int round = 0; round < 400; round++) {
    int32_t ranks = 1 + (int32_t)hec_test_below(&seed, 8), experts = ranks + (int32_t)hec_test_below(&seed, 9);
    int32_t home[16], max = (int32_t)hec_test_below(&seed, 10);
    uint64_t sent[8 * 16];
    for (int32_t i = 0; i < ranks * experts; i++)
      sent[i] = hec_test_below(&seed, 3) ? hec_test_below(&seed, i % experts < 2 ? 900 : 60) : 0;
    for (int32_t e = 0; e < experts; e++)
      home[e] = e * ranks / experts;
    hec_partial_cost cost = {hec_test_uniform(&seed),       hec_test_uniform(&seed),      200 * hec_test_uniform(&seed),
                             200 * hec_test_uniform(&seed), 50 * hec_test_uniform(&seed), round % 2 == 0};
    hec_partial_shadow shadow = hec_partial_shadow_new(&arena, ranks, experts);
    hec_partial_shadow_choose(&shadow, &cost, sent, home, max);
    ck_assert(shadow.n_chosen <= max && shadow.n_chosen <= experts);
    bool copy[16 * 8] = {false};
    for (int32_t k = 0;; k++) {
      ck_assert_double_eq_tol(shadow.predicted[k],
                              naive(&cost, sent, home, ranks, experts, copy, k * shadow.n_receivers), 1e-9);
      ck_assert(shadow.predicted[shadow.n_chosen] <=
                shadow.predicted[k]); /* the best prefix, so never worse than none */
      if (k == shadow.n_chosen)
        break;
      int32_t e = shadow.chosen[k];
      uint64_t min = UINT64_MAX, excluded = 0;
      for (int32_t i = 0; i < shadow.n_receivers; i++) {
        int32_t r = shadow.receiver[k * ranks + i];
        ck_assert(r != home[e] && !copy[e * ranks + r]); /* the keeper needs none, and nobody two */
        copy[e * ranks + r] = true;
        min = sent[r * experts + e] < min ? sent[r * experts + e] : min;
      }
      for (int32_t r = 0; r < ranks; r++)
        if (!copy[e * ranks + r] && r != home[e] && sent[r * experts + e] > excluded)
          excluded = sent[r * experts + e];
      ck_assert(excluded <= min); /* those left out have the fewest */
    }
    n_some += shadow.n_chosen > 0;
    n_partial += shadow.n_chosen > 0 && shadow.n_receivers < ranks - 1;
    hec_arena_free(&arena);
  }
  ck_assert(n_some > 100 && n_partial > 20);
}

/* The policy computes with the cluster's constants, worked out here from the one-line form, and never plans what it
 * predicts to be slower. */
HEC_TEST(constants_of_the_cluster) {
  static const struct {
    const char *cluster;
    int32_t ranks;
    double share;
  } cases[] = {{"1x4 nvlink=4G@2us nic=1G@5us flops=1T mem=40G eff=0.5", 4, 4e9},
               {"4x4 nvlink=4G@2us nic=2G@5us flops=1T mem=40G eff=0.5", 16, 0.5e9}};
  uint64_t seed = 31;
  int chosen = 0;
  for (int round = 0; round < 100; round++) {
    int32_t c = round % 2;
    bool train = round % 3 > 0;
    hec_problem *p = hec_test_problem(&arena, cases[c].cluster, cases[c].ranks, 1, 16, 1, train);
    hec_load load = hec_test_random_load(&arena, p, &seed);
    double expert = 2 * 64 * 128 * 2;
    hec_partial_cost cost = {.exchange_s = 64 * 2 / cases[c].share,
                             .compute_s = 2 * 2 * 64 * 128 / (1e12 * 0.5),
                             .transfer_s = expert / (p->n_ranks * cases[c].share),
                             .gradient_s = (train ? expert : 0) / (p->n_ranks * cases[c].share),
                             .window_s = p->window_s,
                             .train = train};
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find("prophet"), p, &arena);
    hec_partial_shadow shadow = hec_partial_shadow_new(&arena, p->n_ranks, 16);
    uint64_t *sent = HEC_NEW(&arena, uint64_t, p->n_ranks * 16);
    hec_policy_observe(&run, &load);
    hec_policy_decide(&run, 0, 0);
    hec_history_sum_sources(&run.history, 0, 1, sent);
    hec_partial_shadow_choose(&shadow, &cost, sent, run.plan.home, 16);
    ck_assert_int_eq(run.plan.copy_at[16], shadow.n_chosen * shadow.n_receivers);
    for (int32_t k = 0; k < shadow.n_chosen; k++, chosen++)
      for (int32_t i = 0; i < shadow.n_receivers; i++)
        ck_assert(hec_plan_holds(&run.plan, 0, shadow.chosen[k], shadow.receiver[k * p->n_ranks + i]));
  }
  ck_assert_int_gt(chosen, 30);
}
