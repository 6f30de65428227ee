/* Whose assignments go where, by each rule: against plain forms, on random problems; slots from the command line. */
#include "tests/plan/spill_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static const char box[] = "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

static const char *const policies[] = {"llep", "moonep", "ultraep", "echo", "harmoeny"};
enum { N_POLICIES = 5 };

/* Tokens of (source, expert) computed on `rank`, from the quotas; without any, at home. */
static uint64_t quota_of(const hec_spill_case *c, int32_t source, int32_t expert, int32_t rank) {
  const hec_plan *plan = &c->run.plan;
  uint64_t n = 0;
  if (plan->quota_at[expert] == plan->quota_at[expert + 1])
    return rank == hec_spill_case_home(c, expert) ? hec_load_row(&c->load, 0, source)[expert] : 0;
  for (int32_t i = plan->quota_at[expert]; i < plan->quota_at[expert + 1]; i++) {
    ck_assert_uint_gt(plan->quota[i].tokens, 0);
    n += plan->quota[i].source == source && plan->quota[i].rank == rank ? plan->quota[i].tokens : 0;
  }
  return n;
}

/* Hosts of the expert in the order of its ranges: home first, then moves; or by rank. */
static int32_t list_hosts(const hec_spill_case *c, int32_t e, bool by_rank, int32_t *host) {
  int32_t n = 0;
  for (int32_t r = 0; by_rank && r < c->problem->n_ranks; r++)
    if (hec_plan_holds(&c->run.plan, 0, e, r))
      host[n++] = r;
  if (by_rank)
    return n;
  host[n++] = hec_spill_case_home(c, e);
  for (int32_t i = 0; i < c->spill->n_moves; i++)
    if (c->spill->moves[i].expert == e)
      host[n++] = c->spill->moves[i].rank;
  return n;
}

/* Assignment by assignment in the order of sources. */
static void check_ranges(const hec_spill_case *c, int32_t e, bool by_rank) {
  int32_t host[HEC_SPILL_RANKS], n = list_hosts(c, e, by_rank, host), at = 0;
  uint64_t taken = 0;
  for (int32_t s = 0; s < c->problem->n_ranks; s++) {
    uint64_t to[HEC_SPILL_RANKS] = {0};
    for (uint32_t i = 0; i < hec_load_row(&c->load, 0, s)[e]; i++, taken++) {
      while (taken == c->computed[host[at] * c->problem->n_experts + e]) {
        taken = 0;
        at++;
      }
      to[at]++;
    }
    for (int32_t h = 0; h < n; h++)
      ck_assert_uint_eq(quota_of(c, s, e, host[h]), to[h]);
  }
}

/* Sums are checked by routing; here: near the exact proportion, for the assignments that no source served itself. */
static void check_proportion(const hec_spill_case *c, int32_t e, bool own_first) {
  int32_t ranks = c->problem->n_ranks, host[HEC_SPILL_RANKS], n = list_hosts(c, e, true, host);
  double left[HEC_SPILL_RANKS], rest[HEC_SPILL_RANKS], own[HEC_SPILL_RANKS] = {0}, all = 0;
  for (int32_t s = 0; s < ranks; s++)
    rest[s] = hec_load_row(&c->load, 0, s)[e];
  for (int32_t h = 0; h < n; h++) {
    int32_t s = host[h];
    left[h] = (double)c->computed[s * c->problem->n_experts + e];
    own[h] = own_first ? rest[s] < left[h] ? rest[s] : left[h] : 0;
    rest[s] -= own[h];
    left[h] -= own[h];
    all += left[h];
  }
  for (int32_t s = 0; s < ranks; s++)
    for (int32_t h = 0; h < n; h++) {
      double exact = all > 0 ? rest[s] * left[h] / all : 0, is = (double)quota_of(c, s, e, host[h]);
      ck_assert_double_le(is - (host[h] == s ? own[h] : 0) - exact, n);
      ck_assert_double_ge(is - (host[h] == s ? own[h] : 0) - exact, -n);
    }
}

/* The first guest takes whole sources, largest first, and part of one more at most. */
static void check_largest(const hec_spill_case *c, int32_t e) {
  int32_t host[HEC_SPILL_RANKS], parts = 0;
  if (list_hosts(c, e, false, host) < 2)
    return;
  uint64_t smallest_taken = UINT64_MAX, largest_left = 0;
  for (int32_t s = 0; s < c->problem->n_ranks; s++) {
    uint64_t n = hec_load_row(&c->load, 0, s)[e], given = quota_of(c, s, e, host[1]);
    parts += given > 0 && given < n;
    smallest_taken = given > 0 && n < smallest_taken ? n : smallest_taken;
    largest_left = given == 0 && n > largest_left ? n : largest_left;
  }
  ck_assert_int_le(parts, 1);
  ck_assert_uint_ge(smallest_taken, largest_left);
}

static void check_expert(const hec_spill_case *c, int32_t e) {
  switch (c->spill->options.split) {
  case HEC_SPLIT_IN_ORDER:
  case HEC_SPLIT_BY_RANK:
    check_ranges(c, e, c->spill->options.split == HEC_SPLIT_BY_RANK);
    break;
  case HEC_SPLIT_PROPORTIONAL:
  case HEC_SPLIT_OWN_FIRST:
    check_proportion(c, e, c->spill->options.split == HEC_SPLIT_OWN_FIRST);
    break;
  case HEC_SPLIT_LARGEST_FIRST:
    check_largest(c, e);
    break;
  case HEC_SPLIT_NEAREST: /* test_policy_taot.c */
    break;
  }
}

HEC_TEST_LOOP(sources_of_hosts, N_POLICIES) {
  uint64_t seed = 51 + (uint64_t)_i;
  int quotas = 0;
  for (int round = 0; round < 300; round++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_random(&arena, policies[_i], 60, &seed);
    c.spill->options.min = 1 + hec_test_below(&seed, 20);
    hec_spill_case_plan(&c);
    for (int32_t e = 0; e < c.problem->n_experts; e++)
      check_expert(&c, e);
    quotas += c.run.plan.quota_at[c.problem->n_experts] > 0;
  }
  ck_assert_int_gt(quotas, 100);
}

/* Counts whose products have more than 62 bits, and fewer. */
HEC_TEST(large_counts) {
  static const char *const proportional[] = {"echo", "ultraep"};
  for (int32_t i = 0; i < 2; i++)
    for (uint64_t base = (uint64_t)1 << 27; base < (uint64_t)1 << 32; base *= 2) {
      uint64_t seed = base;
      HEC_SCOPED(hec_spill_case) c = hec_spill_case_new(&arena, proportional[i], box, 4, 8);
      bool fits = base < (uint64_t)1 << 30; /* for all sources together; else only the first sends many */
      for (int32_t s = 0; s < 4; s++)
        hec_load_row(&c.load, 0, s)[3] = (uint32_t)((fits || s == 0 ? base : base / 4) + hec_test_below(&seed, 1000));
      hec_spill_case_plan(&c);
      ck_assert_int_gt(c.spill->n_moves, 0);
      check_expert(&c, 3);
    }
}

/* Nothing to do: one rank, no tokens, or balance; nothing is copied. */
HEC_TEST(idle) {
  static const uint32_t none[8] = {0}, even[8] = {10, 20, 15, 15, 30, 0, 0, 30};
  for (int32_t i = 0; i < 3 * N_POLICIES; i++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_new(&arena, policies[i / 3], box, i % 3 == 0 ? 1 : 4, 8);
    c.load = hec_test_even_load(&arena, c.problem, i % 3 == 1 ? none : even);
    hec_spill_case_plan(&c);
    ck_assert_int_eq(c.spill->n_moves, 0);
  }
}

/* The small instance of the references (policies.md 6.2), a quarter of each expert's tokens from each of four sources.
 * There are guests of expert 0 alone: 160 of its tokens on rank 3, 100 on rank 1 and 40 on rank 2. So all ranks
 * compute 200. The options are those under which a planner reaches that. */
HEC_TEST_LOOP(small_instance, N_POLICIES) {
  static const uint32_t totals[8] = {400, 100, 60, 40, 120, 40, 20, 20};
  static const uint64_t of_expert_0[4] = {100, 100, 40, 160};
  HEC_SCOPED(hec_spill_case) c = hec_spill_case_new(&arena, policies[_i], box, 4, 8);
  c.spill->options.min = c.spill->options.min > 10 ? 10 : c.spill->options.min;
  c.spill->options.slots = 1;
  if (strcmp(policies[_i], "ultraep") == 0)
    c.spill->options.tries = 0; /* no tries above the mean */
  c.load = hec_test_even_load(&arena, c.problem, totals);
  hec_spill_case_plan(&c);
  ck_assert_int_eq(c.spill->n_moves, 3);
  for (int32_t r = 0; r < 4; r++) {
    ck_assert_uint_eq(c.rank[r], 200);
    ck_assert_uint_eq(c.computed[r * 8], of_expert_0[r]);
    ck_assert_int_eq(hec_spill_case_guests(&c, r), r > 0);
  }
}

/* Guests go before the next gate, and a layer's plan leaves the others alone. */
HEC_TEST(layers_and_micro_batches) {
  for (int32_t i = 0; i < N_POLICIES; i++) {
    hec_problem *p = hec_test_problem(&arena, box, 4, 3, 8, 1, true);
    static const uint32_t totals[8] = {40000, 10000, 6000, 4000, 12000, 4000, 2000, 2000};
    hec_load one = hec_test_even_load(&arena, p, totals), load = hec_load_new(&arena, 3, 4, 8);
    for (int32_t s = 0; s < 4; s++)
      for (int32_t e = 0; e < 8; e++)
        hec_load_row(&load, 1, s)[e] = hec_load_row(&one, 0, s)[e];
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find(policies[i]), p, &arena);
    uint64_t before = hec_plan_digest(&run.plan);
    hec_policy_decide(&run, 0, 0);
    hec_policy_refine(&run, 1, &load);
    ck_assert(run.plan.copy_at[8] == 0 && run.plan.copy_at[9 + 8] > 0 && run.plan.copy_at[18 + 8] == 0);
    ck_assert(hec_plan_digest(&run.plan) != before);
    hec_policy_decide(&run, 0, 1);
    ck_assert(hec_plan_digest(&run.plan) == before);
  }
}

HEC_TEST(slots_of_the_problem) {
  hec_problem *p = hec_test_problem(&arena, box, 4, 1, 10, 1, true);
  const hec_policy policy = {.own = {9, 2}};
  const hec_policy_run run = {.policy = &policy, .problem = p};
  ck_assert_int_eq(hec_spill_slots(&run, 1), 2);
  p->slots = 5;
  ck_assert_int_eq(hec_spill_slots(&run, 1), 2); /* beside three homes at most */
  p->slots = 1;
  ck_assert_int_eq(hec_spill_slots(&run, 1), 0);
}
