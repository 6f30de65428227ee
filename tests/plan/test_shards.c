/* Expert-sharding groups: the problem's dimensions, homes of groups, and where rows go and are computed, against the
 * definition in runtime/plan/problem.h. */
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static const char *const box = "3x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

HEC_TEST(dimensions) {
  hec_problem *whole = hec_test_problem(&arena, box, 12, 2, 16, 2, true);
  for (int32_t esp = 1; esp <= 4; esp *= 2) {
    hec_problem p = *whole;
    ck_ok(hec_problem_shard(&p, esp));
    ck_assert_int_eq(p.esp, esp);
    ck_assert_int_eq(p.dp * p.ep * p.esp, 12);
    ck_assert_double_eq(p.expert.flops_per_row * esp, whole->expert.flops_per_row);
    ck_assert_double_eq(p.expert.weight_bytes * esp, whole->expert.weight_bytes);
    ck_assert_double_eq(p.bytes.expert_param, whole->bytes.expert_param);
    if (esp > 1) /* the input is whole, what is inside is cut */
      ck_assert(p.bytes.expert_row < whole->bytes.expert_row && p.bytes.expert_row > whole->bytes.token);
    hec_arena_mark mark = hec_arena_save(&arena);
    hec_policy_run run = hec_policy_start(hec_policy_find("ep"), &p, &arena);
    for (int32_t e = 0; e < 16; e++)
      ck_assert_int_eq(hec_plan_home(&run.plan, 1, e), e * p.ep / 16 * esp);
    hec_policy_stop(&run);
    hec_arena_rewind(&arena, mark);
  }
}

HEC_TEST(what_cannot_be) {
  hec_problem *p = hec_test_problem(&arena, box, 12, 1, 5, 2, true);
  const struct {
    int32_t esp;
    const char *words;
  } bad[] = {{0, "found 0"},   {3, "found 3"},
             {5, "found 5"},   {8, "found 8"},
             {12, "found 12"}, {2, "at most as many groups as the 5 experts, found 6 groups of 2 ranks"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    hec_problem copy = *p;
    ck_refused(hec_problem_shard(&copy, bad[i].esp), bad[i].words);
    ck_assert_int_eq(copy.esp, 1);
  }
  ck_ok(hec_problem_shard(p, 4));
  for (int32_t i = 0; hec_policies[i]; i++) {
    bool suits = hec_policy_suits(hec_policies[i], p) == HEC_OK;
    ck_assert(suits == hec_policies[i]->shards);
    if (!suits)
      ck_assert_ptr_nonnull(strstr(hec_last_error(), "(ep, ep-balanced)"));
    else
      ck_assert(hec_policies[i]->known == HEC_KNOWN_STATIC && hec_policies[i]->dispatch == &hec_dispatch_group);
  }
}

HEC_TEST_LOOP(rows_by_definition, 60) {
  uint64_t seed = 70 + (uint64_t)_i;
  int32_t ranks = 4 * (1 + (int32_t)hec_test_below(&seed, 3)), esp = 1 << hec_test_below(&seed, 3);
  int32_t experts = ranks / esp + (int32_t)hec_test_below(&seed, 9);
  hec_problem *p = hec_test_problem(&arena, box, ranks, 1, experts, 1, true);
  hec_load load = hec_test_random_load(&arena, p, &seed);
  ck_ok(hec_problem_shard(p, esp));
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find("ep"), p, &arena);
  hec_routing routing = hec_routing_new(&arena, p);
  hec_routing_make(&routing, run.policy->dispatch, p, &run.plan, &load, 0);
  hec_routing_shard(&routing, p);
  uint64_t pair[12][12] = {{0}}, computed[12][32] = {{0}};
  for (int32_t s = 0; s < ranks; s++)
    for (int32_t e = 0; e < experts; e++) {
      uint32_t n = hec_load_row(&load, 0, s)[e];
      int32_t first = hec_plan_home(&run.plan, 0, e), rank = -1;
      uint32_t tokens = 0;
      pair[s][first + s % esp] += n;
      for (int32_t r = first; r < first + esp; r++)
        computed[r][e] += n;
      int32_t parts = hec_routing_split(&routing, run.policy->dispatch, p, &run.plan, &load, 0, s, e, &rank, &tokens);
      ck_assert_int_eq(parts, n > 0);
      ck_assert(n == 0 || (rank == first + s % esp && tokens == n));
    }
  uint64_t max = 0, all = 0;
  for (int32_t r = 0; r < ranks; r++) {
    uint64_t sum = 0;
    for (int32_t s = 0; s < ranks; s++)
      ck_assert_uint_eq(routing.pair[s * ranks + r], pair[s][r]);
    int32_t i = routing.expert_at[r];
    for (int32_t e = 0; e < experts; e++) {
      sum += computed[r][e];
      if (computed[r][e] == 0)
        continue;
      ck_assert(i < routing.expert_at[r + 1] && routing.expert[i] == e && routing.tokens[i] == computed[r][e]);
      i++;
    }
    ck_assert_int_eq(i, routing.expert_at[r + 1]);
    ck_assert_uint_eq(routing.rank_tokens[r], sum);
    max = sum > max ? sum : max;
    all += sum;
  }
  if (all > 0)
    ck_assert_double_eq_tol(hec_routing_overload(&routing), (double)max * ranks / (double)all, 1e-12);
}
