/* LAER-MoE: the planner against a plain count of its own formula, and the policy
 * around it. */
#include "runtime/plan/collective.h"
#include "runtime/plan/planners/replica_layout.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static void expect_row(const int32_t *got, const int32_t *wanted, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    ck_assert_msg(got[i] == wanted[i], "place %d has %d, expected %d", i, got[i], wanted[i]);
}

/* The score from scratch, one assignment's share at a time. */
static double naive_score(const hec_replica_layout *layout, const hec_replica_cost *cost, const uint64_t *sent) {
  double rank_load[64] = {0}, exchanged = 0, busiest = 0;
  int32_t n_slots = layout->n_ranks * layout->capacity;
  for (int32_t s = 0; s < layout->n_ranks; s++)
    for (int32_t e = 0; e < layout->n_experts; e++) {
      int32_t near = 0, all = 0, node = s / layout->per_node;
      for (int32_t i = 0; i < n_slots; i++)
        if (layout->slot[i] == e) {
          near += i / layout->capacity / layout->per_node == node;
          all++;
        }
      for (int32_t i = 0; i < n_slots; i++) {
        int32_t rank = i / layout->capacity;
        if (layout->slot[i] != e || (near > 0 && rank / layout->per_node != node))
          continue;
        double share = (double)sent[s * layout->n_experts + e] / (near > 0 ? near : all);
        rank_load[rank] += share;
        exchanged += rank == s ? 0 : share * (near > 0 ? cost->node_s : cost->network_s);
      }
    }
  for (int32_t r = 0; r < layout->n_ranks; r++)
    busiest = rank_load[r] > busiest ? rank_load[r] : busiest;
  return exchanged + cost->compute_s * busiest;
}

/* Slots hold every expert, as often as it is counted; nodes share replicas while they have room. */
static void check_layout(const hec_replica_layout *layout) {
  int32_t seen[64] = {0}, n_slots = layout->n_ranks * layout->capacity, empty = 0;
  for (int32_t i = 0; i < n_slots; i++) {
    ck_assert(layout->slot[i] >= -1 && layout->slot[i] < layout->n_experts);
    if (layout->slot[i] >= 0)
      seen[layout->slot[i]]++;
    else
      empty++;
  }
  for (int32_t e = 0; e < layout->n_experts; e++)
    ck_assert(seen[e] >= 1 && seen[e] == layout->count[e]);
  ck_assert_int_lt(empty, layout->n_nodes > 1 ? layout->n_nodes : 1);
}

HEC_TEST(random_layouts) {
  uint64_t seed = 17;
  int even_won = 0, proportional_won = 0;
  for (int round = 0; round < 400; round++) {
    int32_t per_node = 1 + (int32_t)hec_test_below(&seed, 4), ranks = 1 + (int32_t)hec_test_below(&seed, 12);
    int32_t experts = 1 + (int32_t)hec_test_below(&seed, 24), min = (experts + ranks - 1) / ranks;
    int32_t capacity = min + (int32_t)hec_test_below(&seed, 4);
    capacity = capacity < experts ? capacity : experts;
    hec_replica_cost cost = {hec_test_uniform(&seed), 3 * hec_test_uniform(&seed), 10 * hec_test_uniform(&seed)};
    uint64_t sent[12 * 24];
    for (int32_t i = 0; i < ranks * experts; i++)
      sent[i] = hec_test_below(&seed, 3) ? hec_test_below(&seed, 1 + (i % experts == 0 ? 900 : 50)) : 0;
    hec_replica_layout layout = hec_replica_layout_new(&arena, ranks, per_node, experts, capacity);
    hec_replica_layout_choose(&layout, &cost, sent);
    check_layout(&layout);
    double seconds = naive_score(&layout, &cost, sent);
    ck_assert_double_eq_tol(layout.seconds, seconds, 1e-9 * (1 + seconds));
    if (ranks * capacity % experts == 0) { /* never worse than even counts placed the same way */
      double chosen = layout.seconds;
      bool even = true;
      for (int32_t e = 0; e < experts; e++)
        even &= layout.count[e] == ranks * capacity / experts;
      even_won += even;
      proportional_won += !even;
      uint64_t units = layout.units;
      hec_replica_layout_choose(&layout, &cost, sent);
      ck_assert(layout.seconds == chosen && layout.units == units); /* nothing is remembered */
    }
    hec_arena_free(&arena);
  }
  ck_assert(even_won > 10 && proportional_won > 10);
}

/* All load on one expert. It gets a slot per node, then one more on each node at a time, and is out when that many are
 * not left. Begins with one slot per expert, or with one per node where all fit. */
HEC_TEST(one_hot_expert) {
  static const struct { int32_t experts, wanted[8]; } cases[] = {{8, {2, 1, 4, 1, 1, 1, 1, 1}}, {5, {2, 2, 4, 2, 2}}};
  for (int32_t i = 0; i < 2; i++) {
    int32_t experts = cases[i].experts;
    uint64_t sent[4 * 8] = {0};
    for (int32_t s = 0; s < 4; s++)
      sent[s * experts + 2] = 1000;
    hec_replica_layout layout = hec_replica_layout_new(&arena, 4, 2, experts, 3);
    hec_replica_layout_choose(&layout, &(hec_replica_cost){1, 2, 3}, sent);
    expect_row(layout.count, cases[i].wanted, experts);
  }
}

/* Whatever the plan, a rank whose slots hold C different experts sends and receives C P (N-1)/N bytes. */
HEC_TEST(traffic_is_the_same_for_any_plan) {
  enum { RANKS = 8, EXPERTS = 16, SLOTS = 3 };
  uint64_t seed = 61;
  hec_problem *p =
      hec_test_problem(&arena, "2x4 nvlink=300G@2us nic=50G@5us flops=1G mem=40G", RANKS, 1, EXPERTS, 2, true);
  p->slots = SLOTS;
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find("laer"), p, &arena);
  HEC_SCOPED(hec_collective_plan) gather = {0};
  int32_t expert[EXPERTS], owner[EXPERTS * RANKS], receiver_at[EXPERTS + 1], receiver[RANKS * SLOTS];
  int64_t bytes = (int64_t)p->bytes.expert_param;
  for (int32_t turn = 0; turn < 50; turn++) {
    hec_sparse sparse = {.n_slices = RANKS,
                         .expert = expert,
                         .owner = owner,
                         .receiver_at = receiver_at,
                         .receiver = receiver,
                         .bytes = bytes};
    int32_t n = 0, distinct[RANKS] = {0}, others[RANKS] = {0};
    receiver_at[0] = 0;
    for (int32_t e = 0; e < EXPERTS; e++) {
      hec_copies copies = hec_plan_copies(&run.plan, 0, e);
      for (int32_t i = 0; i < copies.n; i++)
        if (i == 0 || copies.rank[i - 1] != copies.rank[i]) {
          distinct[copies.rank[i]]++;
          receiver[n++] = copies.rank[i];
        }
      expert[e] = e;
      receiver_at[++sparse.n_items] = n;
      for (int32_t j = 0; j < RANKS; j++)
        owner[e * RANKS + j] = run.plan.home[e * RANKS + j];
    }
    hec_collective_direct.gather(p, &sparse, &gather);
    int64_t in[RANKS] = {0}, out[RANKS] = {0};
    for (size_t i = 0; i < gather.stage[0].n; i++) {
      in[gather.stage[0].data[i].destination] += gather.stage[0].data[i].bytes;
      out[gather.stage[0].data[i].source] += gather.stage[0].data[i].bytes;
    }
    for (int32_t r = 0; r < RANKS; r++)
      for (int32_t d = 0; d < RANKS; d++)
        others[r] += d == r ? 0 : distinct[d];
    for (int32_t r = 0; r < RANKS; r++)
      ck_assert(in[r] == distinct[r] * bytes / RANKS * (RANKS - 1) && out[r] == others[r] * bytes / RANKS);
    hec_load load = hec_test_random_load(&arena, p, &seed);
    hec_policy_observe(&run, &load);
    hec_policy_decide(&run, turn, 0);
  }
}

/* Slots follow top-k and what every expert needs, memory and the option; a rank never has more. */
HEC_TEST(slots) {
  static const struct {
    int32_t experts, top_k, option, wanted;
    const char *memory;
  } cases[] = {{8, 2, HEC_AUTO, 3, "40G"}, {8, 4, HEC_AUTO, 4, "40G"}, {8, 1, 5, 5, "40G"},
               {8, 1, 1, 2, "40G"},        {8, 1, 99, 8, "40G"},       {9, 1, HEC_AUTO, 4, "40G"},
               {2, 2, HEC_AUTO, 2, "40G"}, {8, 4, HEC_AUTO, 2, "1M"}};
  uint64_t seed = 5;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[100];
    (void)snprintf(line, sizeof line, "2x2 nvlink=300G@2us nic=50G@5us flops=1T mem=%s", cases[i].memory);
    hec_problem *p = hec_test_problem(&arena, line, 4, 2, cases[i].experts, cases[i].top_k, true);
    p->slots = cases[i].option;
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find("laer"), p, &arena);
    for (int32_t turn = 0; turn < 3; turn++) {
      for (int32_t layer = 0; layer < 2; layer++) {
        int32_t used[4] = {0}, max = 0;
        for (int32_t e = 0; e < p->n_experts; e++) {
          hec_copies copies = hec_plan_copies(&run.plan, layer, e);
          for (int32_t k = 0; k < copies.n; k++)
            used[copies.rank[k]]++;
        }
        for (int32_t r = 0; r < 4; r++)
          max = used[r] > max ? used[r] : max;
        ck_assert_msg(max == cases[i].wanted, "case %zu: %d slots", i, max);
      }
      hec_load load = hec_test_random_load(&arena, p, &seed);
      hec_policy_observe(&run, &load);
      hec_policy_decide(&run, turn, 0);
      hec_plan_check(&run.plan);
    }
  }
}
