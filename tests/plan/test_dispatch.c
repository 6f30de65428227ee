/* Dispatch rules by hand (the golden loads of the references: test_fssdp.c), and routing against a count from scratch. */
#include "runtime/plan/dispatch/dispatch.h"
#include "runtime/plan/history.h"
#include "runtime/plan/quota.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static const char *const box = "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

/* One source, one expert held by the ranks in the list: parts of 7 assignments. */
typedef struct {
  const char *rule;
  int32_t source, holders[4], wanted[8]; /* holders end with -1; the first is the home */
} split_case;

HEC_TEST(rules_by_hand) {
  static const split_case cases[] = {
      {"local_first", 2, {0, 2, 6, -1}, {0, 0, 7}},                   /* own rank */
      {"local_first", 1, {0, 2, 6, -1}, {3, 0, 4}},                   /* own node, turn 1: rank 2 gets the odd one */
      {"local_first", 3, {5, 6, 7, -1}, {[5] = 3, [6] = 2, [7] = 2}}, /* anywhere, turn 3 mod 3 = 0 */
      {"local_first", 4, {0, 1, 2, -1}, {2, 3, 2}},                   /* turn 4 mod 3 = 1 */
      {"node_even", 2, {0, 2, 6, -1}, {4, 0, 3}},                     /* no preference for itself */
      {"node_even", 7, {0, 2, 3, -1}, {2, 0, 3, 2}},                  /* anywhere, turn 7 mod 3 = 1 */
      {"round_robin", 0, {0, 2, 6, -1}, {3, 0, 2, 0, 0, 0, 2}},
      {"round_robin", 5, {0, 2, 6, -1}, {2, 0, 2, 0, 0, 0, 3}},
      {"round_robin", 1, {0, 0, 6, -1}, {5, 0, 0, 0, 0, 0, 2}}, /* two slots on rank 0: slots 2 3 2 */
      {"group", 1, {0, 2, -1, 0}, {3, 0, 4}},                   /* 8 experts: one group of 8; turn 1 mod 2 = 1 */
      {"group", 2, {0, 2, -1, 0}, {0, 0, 7}},
      {"home", 2, {0, 2, 6, -1}, {0, 0, 7}}, /* own rank */
      {"home", 3, {0, 2, 6, -1}, {7}},       /* copies serve their own rank only */
      {"home", 7, {5, 5, 6, -1}, {[5] = 7}}, /* a second slot changes nothing */
  };
  hec_problem *p = hec_test_problem(&arena, box, 8, 1, 8, 1, true);
  const uint32_t totals[8] = {56}; /* 7 from each source */
  hec_load load = hec_test_even_load(&arena, p, totals);
  hec_routing routing = hec_routing_new(&arena, p);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const split_case *c = &cases[i];
    hec_plan plan = hec_plan_new(&arena, p, 1);
    hec_plan_set_home(&plan, 0, 0, c->holders[0]);
    for (int32_t k = 1; c->holders[k] >= 0; k++)
      hec_plan_add_copy(&plan, 0, 0, c->holders[k], HEC_COPY_GUEST);
    int32_t ranks[8];
    uint32_t tokens[8];
    int32_t n =
        hec_routing_split(&routing, hec_dispatch_find(c->rule), p, &plan, &load, 0, c->source, 0, ranks, tokens);
    int32_t got[8] = {0};
    for (int32_t k = 0; k < n; k++) {
      ck_assert(tokens[k] > 0 && (k == 0 || ranks[k - 1] < ranks[k]));
      got[ranks[k]] = (int32_t)tokens[k];
    }
    for (int32_t r = 0; r < 8; r++)
      ck_assert_msg(got[r] == c->wanted[r], "case %d, rank %d: %d instead of %d", (int)i, r, got[r], c->wanted[r]);
  }
}

static const hec_dispatch *const rules_of_groups[] = {&hec_dispatch_group, &hec_dispatch_home};

/* Two groups of four: tokens stay in the group of their source. */
HEC_TEST_LOOP(group_stays_in_its_group, 2) {
  hec_problem *p = hec_test_problem(&arena, box, 8, 1, 4, 1, true);
  ck_assert_int_eq(p->ep, 4);
  const uint32_t totals[4] = {80, 40, 24, 8};
  hec_load load = hec_test_even_load(&arena, p, totals);
  hec_plan plan = hec_plan_new(&arena, p, 1);
  hec_routing routing = hec_routing_new(&arena, p);
  hec_plan_set_contiguous(&plan, p);
  plan.width = p->ep;
  hec_routing_make(&routing, rules_of_groups[_i], p, &plan, &load, 0);
  const uint64_t wanted[8] = {40, 20, 12, 4, 40, 20, 12, 4};
  for (int32_t r = 0; r < 8; r++)
    ck_assert_uint_eq(routing.rank_tokens[r], wanted[r]);
  for (int32_t s = 0; s < 8; s++)
    for (int32_t d = 0; d < 8; d++)
      ck_assert(s / 4 == d / 4 || routing.pair[s * 8 + d] == 0);
}

HEC_TEST(quotas_are_followed) {
  hec_problem *p = hec_test_problem(&arena, box, 4, 1, 4, 1, true);
  const uint32_t totals[4] = {40, 0, 4, 0};
  hec_load load = hec_test_even_load(&arena, p, totals);
  hec_plan plan = hec_plan_new(&arena, p, 1);
  hec_plan_set_contiguous(&plan, p);
  hec_plan_add_copy(&plan, 0, 0, 3, HEC_COPY_GUEST);
  hec_quota quota[] = {{0, 0, 1}, {0, 3, 9}, {1, 3, 10}, {2, 0, 10}, {3, 0, 4}, {3, 3, 6}};
  int32_t at[5] = {0, 6, 6, 6, 6};
  plan.quota = quota;
  plan.quota_at = at;
  plan.quota_capacity = 6;
  hec_plan_check(&plan);
  hec_routing routing = hec_routing_new(&arena, p);
  hec_routing_make(&routing, &hec_dispatch_quota, p, &plan, &load, 0);
  ck_assert(routing.pair[0] == 1 && routing.pair[3] == 9 && routing.pair[4 + 3] == 10 && routing.pair[8] == 10);
  ck_assert(routing.rank_tokens[0] == 15 && routing.rank_tokens[3] == 25 && routing.rank_tokens[2] == 4);
  uint64_t digest = hec_plan_digest(&plan);
  quota[1].tokens = 8;
  ck_assert(hec_plan_digest(&plan) != digest);
  hec_plan other = hec_plan_new(&arena, p, 1); /* no room for quotas: the rest is taken */
  hec_plan_assign(&other, &plan);
  ck_assert(!other.quota_at && hec_plan_holds(&other, 0, 0, 3));
}

/* Two groups of two ranks: the expert without quotas is computed in its source's group, as under `group`. */
HEC_TEST(no_quotas_no_spread) {
  hec_problem *p = hec_test_problem(&arena, box, 4, 1, 2, 1, true);
  const uint32_t totals[2] = {40, 8};
  hec_load load = hec_test_even_load(&arena, p, totals);
  hec_plan plan = hec_plan_new(&arena, p, 1);
  hec_plan_set_contiguous(&plan, p);
  ck_assert_int_eq(p->dp, 2);
  hec_quota quota[] = {{0, 1, 2}, {1, 1, 2}, {2, 3, 2}, {3, 1, 2}};
  int32_t at[3] = {0, 0, 4};
  plan.quota = quota;
  plan.quota_at = at;
  plan.quota_capacity = 4;
  hec_plan_check(&plan);
  hec_routing routing = hec_routing_new(&arena, p);
  hec_routing_make(&routing, &hec_dispatch_quota, p, &plan, &load, 0);
  ck_assert(routing.rank_tokens[0] == 20 && routing.rank_tokens[2] == 20); /* expert 0 */
  ck_assert(routing.rank_tokens[1] == 6 && routing.rank_tokens[3] == 2);
}

/* Written in order, experts without quotas left out; copied where there is room, dropped all at once. */
HEC_TEST(quotas_in_order) {
  hec_problem *p = hec_test_problem(&arena, box, 4, 2, 4, 1, true);
  const uint32_t totals[4] = {40, 8, 4, 12};
  hec_load load = hec_test_even_load(&arena, p, totals), both = hec_load_new(&arena, 2, 4, 4);
  memcpy(hec_load_row(&both, 1, 0), load.counts, 16 * sizeof *load.counts);
  hec_plan plan = hec_plan_new(&arena, p, 1), twin = hec_plan_new(&arena, p, 1);
  hec_plan_set_contiguous(&plan, p);
  hec_quota_reserve(&plan, &arena, 6);
  hec_quota_reserve(&twin, &arena, 6);
  hec_plan_add_copy(&plan, 1, 0, 3, HEC_COPY_GUEST);
  hec_plan_add_copy(&plan, 1, 3, 0, HEC_COPY_GUEST);
  hec_quota_writer writer = hec_quota_begin(&plan, 1);
  hec_quota_add(&writer, 0, (hec_quota){0, 0, 10});
  hec_quota_add(&writer, 0, (hec_quota){1, 0, 4});
  hec_quota_add(&writer, 0, (hec_quota){1, 3, 6});
  hec_quota_add(&writer, 0, (hec_quota){2, 3, 10});
  hec_quota_add(&writer, 0, (hec_quota){3, 0, 10});
  hec_quota_add(&writer, 1, (hec_quota){1, 3, 0});
  hec_quota_end(&writer);
  hec_plan_check(&plan);
  const int32_t wanted[5] = {0, 5, 5, 5, 5};
  ck_assert_int_eq(memcmp(plan.quota_at + 5, wanted, sizeof wanted), 0);
  hec_routing routing = hec_routing_new(&arena, p);
  hec_routing_make(&routing, &hec_dispatch_quota, p, &plan, &both, 1);
  /* by source: expert 0 as quotas say, expert 3 as 3 0, 1 2, 2 1, 0 3 on ranks 0 and 3 */
  ck_assert(routing.rank_tokens[0] == 10 + 4 + 10 + 3 + 1 + 2 && routing.rank_tokens[3] == 6 + 10 + 2 + 1 + 3);
  hec_plan_assign(&twin, &plan);
  ck_assert(hec_plan_digest(&twin) == hec_plan_digest(&plan));
  hec_quota_clear(&plan);
  hec_plan_check(&plan);
  ck_assert(hec_plan_digest(&twin) != hec_plan_digest(&plan));
}

static const hec_dispatch *const rules[] = {&hec_dispatch_local_first, &hec_dispatch_node_even,
                                            &hec_dispatch_round_robin, &hec_dispatch_group, &hec_dispatch_home};

/* Routing equals its own splits added up, every part on a holder, and every assignment exactly once. */
HEC_TEST(routing_adds_up) {
  uint64_t seed = 41;
  for (int round = 0; round < 200; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    hec_plan plan = hec_plan_new(&arena, p, 1);
    int32_t n = p->n_ranks, experts = p->n_experts;
    hec_plan_set_contiguous(&plan, p);
    for (int32_t e = 0; e < experts; e++)
      for (int32_t r = 0; r < n && plan.copy_at[experts] < plan.copy_capacity; r++)
        if (hec_test_below(&seed, 3) == 0)
          hec_plan_add_copy(&plan, 0, e, r, HEC_COPY_GUEST);
    hec_load load = hec_test_random_load(&arena, p, &seed);
    hec_routing routing = hec_routing_new(&arena, p);
    const hec_dispatch *rule = rules[round % 5];
    hec_routing_make(&routing, rule, p, &plan, &load, 0);
    uint32_t *pair = HEC_NEW(&arena, uint32_t, n * n), *cell = HEC_NEW(&arena, uint32_t, n * experts);
    int32_t *ranks = HEC_NEW(&arena, int32_t, n + plan.copy_capacity);
    uint32_t *tokens = HEC_NEW(&arena, uint32_t, n + plan.copy_capacity);
    hec_routing other = hec_routing_new(&arena, p);
    for (int32_t s = 0; s < n; s++)
      for (int32_t e = 0; e < experts; e++) {
        uint64_t sum = 0;
        int32_t parts = hec_routing_split(&other, rule, p, &plan, &load, 0, s, e, ranks, tokens);
        for (int32_t k = 0; k < parts; k++) {
          ck_assert(hec_plan_holds(&plan, 0, e, ranks[k]));
          sum += tokens[k];
          pair[s * n + ranks[k]] += tokens[k];
          cell[ranks[k] * experts + e] += tokens[k];
        }
        ck_assert_uint_eq(sum, hec_load_row(&load, 0, s)[e]);
      }
    ck_assert_int_eq(memcmp(pair, routing.pair, (size_t)(n * n) * sizeof *pair), 0);
    for (int32_t d = 0; d < n; d++) {
      uint64_t all = 0;
      for (int32_t i = routing.expert_at[d]; i < routing.expert_at[d + 1]; i++) {
        ck_assert(i == routing.expert_at[d] || routing.expert[i - 1] < routing.expert[i]);
        ck_assert(routing.tokens[i] > 0 && routing.tokens[i] == cell[d * experts + routing.expert[i]]);
        cell[d * experts + routing.expert[i]] = 0;
        all += routing.tokens[i];
      }
      ck_assert_uint_eq(all, routing.rank_tokens[d]);
    }
    for (int32_t i = 0; i < n * experts; i++)
      ck_assert(cell[i] == 0 && routing.cell[i] == 0);
    hec_arena_free(&arena);
  }
}

/* No more than one of difference, and over all turns everyone gets the same. */
HEC_TEST(even_share) {
  for (int32_t count = 1; count < 9; count++)
    for (uint32_t n = 0; n < 30; n++) {
      uint32_t over_turns[9] = {0};
      for (int32_t turn = 0; turn < count; turn++) {
        uint32_t sum = 0;
        for (int32_t p = 0; p < count; p++) {
          uint32_t share = hec_even_share(n, count, p, turn);
          ck_assert(share == n / (uint32_t)count || share == n / (uint32_t)count + 1);
          sum += share;
          over_turns[p] += share;
        }
        ck_assert_uint_eq(sum, n);
      }
      for (int32_t p = 0; p < count; p++)
        ck_assert_uint_eq(over_turns[p], n);
    }
}

HEC_TEST(names) {
  const char *const known[] = {"local_first", "node_even", "round_robin", "group", "home", "quota"};
  for (size_t i = 0; i < 5; i++)
    ck_assert_str_eq(hec_dispatch_find(known[i])->name, known[i]);
  ck_assert_ptr_null(hec_dispatch_find("nearest"));
  hec_problem *p = hec_test_problem(&arena, box, 4, 1, 4, 1, true);
  hec_routing routing = hec_routing_new(&arena, p);
  ck_assert_double_eq(hec_routing_overload(&routing), 1.0); /* no tokens */
}

/* The ring keeps the last records, newest first. */
HEC_TEST(history_ring) {
  hec_history h = hec_history_new(&arena, 3, 2, 3);
  uint64_t sum[3] = {9, 9, 9};
  hec_history_sum(&h, 1, 3, sum);
  ck_assert(hec_history_length(&h) == 0 && sum[0] == 0 && sum[1] == 0 && sum[2] == 0);
  for (uint32_t k = 1; k <= 5; k++) {
    hec_load load = hec_load_new(&arena, 2, 2, 3);
    hec_load_row(&load, 1, 0)[0] = k;
    hec_load_row(&load, 1, 1)[0] = 100 * k;
    hec_load_row(&load, 0, 1)[2] = UINT32_MAX;
    hec_load_row(&load, 0, 0)[2] = UINT32_MAX;
    hec_history_push(&h, &load);
  }
  ck_assert(hec_history_length(&h) == 3 && h.n_seen == 5);
  for (int32_t age = 0; age < 3; age++)
    ck_assert_uint_eq(hec_history_row(&h, age, 1)[0], 101 * (uint64_t)(5 - age));
  hec_history_sum(&h, 1, 2, sum);
  ck_assert(sum[0] == 101 * 9 && sum[1] == 0);
  hec_history_sum(&h, 0, 99, sum);
  ck_assert_uint_eq(sum[2], 6 * (uint64_t)UINT32_MAX);
}

/* By source, only where asked for. */
HEC_TEST(history_by_source) {
  uint64_t seed = 71, sum[2 * 3], wanted[2 * 3];
  hec_history h = hec_history_new(&arena, 3, 2, 3);
  hec_history_keep_sources(&arena, &h, 2);
  hec_history_sum_sources(&h, 1, 3, sum);
  ck_assert_uint_eq(sum[5], 0);
  hec_load load[7];
  for (int32_t k = 0; k < 7; k++) {
    load[k] = hec_load_new(&arena, 2, 2, 3);
    for (int32_t i = 0; i < 2 * 2 * 3; i++)
      load[k].counts[i] = (uint32_t)hec_test_below(&seed, UINT32_MAX);
    hec_history_push(&h, &load[k]);
    for (int32_t window = 1; window <= 4; window++) {
      memset(wanted, 0, sizeof wanted);
      for (int32_t age = 0; age <= k && age < window && age < 3; age++)
        for (int32_t i = 0; i < 6; i++)
          wanted[i] += hec_load_row(&load[k - age], 1, 0)[i];
      hec_history_sum_sources(&h, 1, window, sum);
      ck_assert_int_eq(memcmp(sum, wanted, sizeof sum), 0);
    }
  }
}
