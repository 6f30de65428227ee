/* MoETuner: it places once and well, and with transitions keeps tokens where they are. */
#include "runtime/plan/cbc/cbc.h"
#include "runtime/plan/planners/partition.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* Loads 500 100 160 40: an expert of 400 has a rank with the least beside it; the others share 380 of three ranks. */
HEC_TEST(places_once) {
  static const uint32_t totals[8] = {400, 100, 60, 40, 120, 40, 20, 20};
  hec_problem *p = hec_test_problem(&arena, "1x4 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 4, 1, 8, 2, true);
  hec_load load = hec_test_even_load(&arena, p, totals);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_moetuner, p, &arena);
  uint64_t before = hec_plan_digest(&run.plan);
  for (int64_t iter = 0; iter < 30; iter++) {
    hec_policy_decide(&run, iter, 0);
    ck_assert((strstr(run.note, "the profile of 10 records was not complete") != NULL) == (iter < 10));
    ck_assert(run.planned == (iter == 10) && (hec_plan_digest(&run.plan) == before) == (iter < 10));
    ck_assert_uint_eq(run.plan.version, iter >= 10);
    hec_policy_observe(&run, &load);
  }
  hec_plan_check(&run.plan);
  ck_assert_ptr_nonnull(strstr(run.note, "no transitions between layers: the second problem is skipped"));
  ck_assert_ptr_nonnull(strstr(run.note, "heuristics alone: no solver here"));
  uint64_t sum[4] = {0};
  for (int32_t e = 0; e < 8; e++)
    sum[hec_plan_home(&run.plan, 0, e)] += totals[e];
  ck_assert(sum[hec_plan_home(&run.plan, 0, 0)] == 420);
  for (int32_t r = 0; r < 4; r++)
    ck_assert(sum[r] >= 100);
}

/* Homes of every layer are the partition's groups. */
HEC_TEST(equals_the_partition) {
  uint64_t seed = 64;
  for (int round = 0; round < 60; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    hec_test_one_group(&arena, p);
    p->period = 1;
    hec_load load = hec_test_random_load(&arena, p, &seed);
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_moetuner, p, &arena);
    hec_policy_observe(&run, &load);
    hec_policy_decide(&run, 0, 0);
    hec_plan_check(&run.plan);
    hec_partition partition = hec_partition_new(&arena, p->n_experts, p->ep);
    uint64_t sum[40];
    for (int32_t l = 0; l < p->n_layers; l++) {
      hec_history_sum(&run.history, l, 1, sum);
      hec_partition_make(&partition, sum);
      for (int32_t e = 0; e < p->n_experts; e++)
        ck_assert_int_eq(hec_plan_home(&run.plan, l, e), partition.part[e]);
    }
  }
}

/* Equal loads; expert e of a layer hands its tokens to expert (3 e + l) mod 8 of the next: nothing needs to cross. */
HEC_TEST(follows_transitions) {
  enum { LAYERS = 5, EXPERTS = 8 };
  static uint64_t transitions[LAYERS - 1][EXPERTS][EXPERTS];
  hec_problem *p =
      hec_test_problem(&arena, "2x4 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 8, LAYERS, EXPERTS, 1, true);
  for (int32_t l = 0; l + 1 < LAYERS; l++)
    for (int32_t e = 0; e < EXPERTS; e++)
      transitions[l][e][(3 * e + l) % EXPERTS] = 10;
  p->transitions = &transitions[0][0][0];
  p->period = 1;
  hec_load load = hec_load_new(&arena, LAYERS, 8, EXPERTS);
  for (size_t i = 0; i < hec_load_cells(&load); i++)
    load.counts[i] = 4;
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_moetuner, p, &arena);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 0, 0);
  for (int32_t l = 0; l + 1 < LAYERS; l++)
    for (int32_t e = 0; e < EXPERTS; e++)
      ck_assert_int_eq(hec_plan_home(&run.plan, l, e), hec_plan_home(&run.plan, l + 1, (3 * e + l) % EXPERTS));
  ck_assert_ptr_nonnull(strstr(run.note, "; ranks: proven best, slowest pairs 0 ms a micro-batch, bound 0 ms"));
}

/* With a solver loads are no less equal, chains no slower, and the row says how good both are. */
HEC_TEST(solver_is_no_worse) {
  const hec_solver *solver = hec_solver_ready(hec_solver_cbc());
  uint64_t seed = 65;
  int better = 0;
  if (!solver)
    hec_test_skip("moetuner.solver_is_no_worse", "no CBC on this machine (Debian: coinor-libcbc3)");
  for (int round = 0; solver && round < 5; round++) {
    hec_problem *p = hec_test_problem(&arena, "2x2 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 4, 8, 16, 2, false);
    uint64_t deviation[2] = {0}, *transitions = HEC_NEW(&arena, uint64_t, 7 * 256);
    for (int i = 0; i < 7 * 256; i++)
      transitions[i] = hec_test_below(&seed, 1000);
    p->transitions = transitions;
    p->period = 1;
    hec_load load = hec_test_random_load(&arena, p, &seed);
    for (int with = 0; with < 2; with++) {
      p->solver = with ? solver : NULL;
      HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_moetuner, p, &arena);
      hec_policy_observe(&run, &load);
      hec_policy_decide(&run, 0, 0);
      hec_plan_check(&run.plan);
      for (int32_t l = 0; l < 8; l++) {
        uint64_t sum[4] = {0}, own[16], total = 0;
        hec_history_sum(&run.history, l, 1, own);
        for (int32_t e = 0; e < 16; e++) {
          sum[hec_plan_home(&run.plan, l, e)] += own[e];
          total += own[e];
        }
        for (int32_t r = 0; r < 4; r++)
          deviation[with] += 4 * sum[r] > total ? 4 * sum[r] - total : total - 4 * sum[r];
      }
      ck_assert(!with || strstr(run.note, "groups: proven best in 8 of 8 layers, bettered by CBC in "));
      ck_assert(!with || strstr(run.note, "; ranks: proven best"));
      ck_assert(with || strstr(run.note, "(heuristics alone: no solver here)"));
    }
    ck_assert_uint_le(deviation[1], deviation[0]);
    better += deviation[1] < deviation[0];
  }
  ck_assert(!solver || better > 0);
}

/* The counts of a recording say how tokens go, its length does not: the note's seconds are of this run's micro-batch. */
HEC_TEST(seconds_are_of_a_micro_batch) {
  char note[3][HEC_NOTE_BYTES];
  for (int k = 0; k < 3; k++) {
    static uint64_t transitions[1 * 16 * 16];
    hec_problem *p = hec_test_problem(&arena, "2x2 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 4, 2, 16, 2, false);
    uint64_t seed = 67;
    for (size_t i = 0; i < 256; i++)
      transitions[i] = (1 + hec_test_below(&seed, 50)) * (k == 1 ? 1000 : 1);
    p->transitions = transitions;
    p->period = 1;
    p->tokens *= k == 2 ? 10 : 1;
    hec_load load = hec_test_random_load(&arena, p, &seed);
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_moetuner, p, &arena);
    hec_policy_observe(&run, &load);
    hec_policy_decide(&run, 0, 0);
    memcpy(note[k], run.note, sizeof run.note);
  }
  const char *at[3];
  double seconds[3];
  for (int k = 0; k < 3; k++) {
    at[k] = strstr(note[k], "slowest pairs ");
    ck_assert_msg(at[k] != NULL, "%s", note[k]);
    seconds[k] = strtod(at[k] + strlen("slowest pairs "), NULL);
  }
  ck_assert(seconds[0] > 0);
  ck_assert_str_eq(at[0], at[1]);
  ck_assert_double_eq_tol(seconds[2], 10 * seconds[0], 1e-3 * seconds[2]);
}

static bool never(void) {
  return false;
}

/* A solver that is not on this machine is none. */
HEC_TEST(absent_solver_is_none) {
  static const hec_solver absent = {"absent", NULL, never};
  hec_problem *p = hec_test_problem(&arena, "2x2 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 4, 2, 16, 2, false);
  uint64_t seed = 66;
  p->period = 1;
  p->solver = &absent;
  hec_load load = hec_test_random_load(&arena, p, &seed);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_moetuner, p, &arena);
  hec_policy_observe(&run, &load);
  hec_policy_decide(&run, 0, 0);
  ck_assert(run.planned && strstr(run.note, "(heuristics alone: no solver here)"));
}

/* A problem made again, for another cluster or fewer layers, plans alike: what was chosen goes with it. */
HEC_TEST(choices_go_along) {
  static const uint64_t transitions[3 * 64] = {1};
  static const hec_solver solver = {"none", NULL, NULL};
  static const char box[] = "1x4 nvlink=300G@2us nic=50G@5us flops=1T mem=40G";
  hec_problem *p = hec_test_problem(&arena, box, 4, 4, 8, 2, true),
              *two = hec_test_problem(&arena, box, 4, 2, 8, 2, true);
  hec_problem *one = hec_test_problem(&arena, box, 4, 1, 8, 2, true),
              *more = hec_test_problem(&arena, box, 4, 5, 8, 2, true);
  hec_problem *other = hec_test_problem(&arena, box, 4, 4, 16, 2, true);
  p->transitions = transitions;
  p->solver = &solver;
  p->t = 3;
  p->m = 4;
  p->period = 5;
  p->slots = 6;
  hec_problem *all[] = {two, one, more, other};
  for (int i = 0; i < 4; i++) {
    hec_problem_choose_as(all[i], p);
    ck_assert(all[i]->t == 3 && all[i]->m == 4 && all[i]->period == 5 && all[i]->slots == 6);
    ck_assert(all[i]->solver == &solver && all[i]->transitions == (i == 0 ? transitions : NULL));
  }
}
