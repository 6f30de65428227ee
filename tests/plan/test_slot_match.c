/* The assignment and the placement of packs against every permutation, and the two EPLB rows that move less at once.
 * The same balance as eplb, never more moves. One layer an iteration, the same in the end. */
#include "runtime/plan/planners/eplb_core.h"
#include "runtime/plan/planners/slot_match.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* Largest sum over all one-to-one assignments of rows from `row` on. */
static int64_t best_of(const int64_t *gain, int32_t n, int32_t row, uint32_t taken) {
  int64_t best = INT64_MIN;
  if (row == n)
    return 0;
  for (int32_t c = 0; c < n; c++)
    if (!(taken >> c & 1)) {
      int64_t sum = gain[row * n + c] + best_of(gain, n, row + 1, taken | 1u << c);
      best = sum > best ? sum : best;
    }
  return best;
}

HEC_TEST(assignments) {
  uint64_t seed = 43;
  for (int round = 0; round < 600; round++) {
    int32_t n = 1 + round % 7, column[7], seen = 0, range = round % 3 ? 4 : 100000;
    int64_t gain[49], sum = 0;
    for (int32_t i = 0; i < n * n; i++)
      gain[i] = (int64_t)hec_test_below(&seed, (uint64_t)range) - (round % 5 == 0 ? range / 2 : 0);
    hec_slot_match match = hec_slot_match_new(&arena, n, 1, n, 1, 1);
    int64_t found = hec_slot_match_assign(&match, gain, n, n, column);
    for (int32_t row = 0; row < n; row++) {
      ck_assert(column[row] >= 0 && column[row] < n && !(seen >> column[row] & 1));
      seen |= 1 << column[row];
      sum += gain[row * n + column[row]];
    }
    ck_assert(sum == found && found == best_of(gain, n, 0, 0));
    hec_arena_free(&arena);
  }
}

typedef struct {
  int32_t ranks, groups, per_node, experts, per_rank;
  const uint8_t *held;
} placing;

/* Experts that a rank must fetch, far ones weighing a little more: what the match makes as small as it can. */
static int64_t cost_of(const placing *p, const int32_t *slot) {
  int64_t cost = 0;
  for (int32_t r = 0; r < p->ranks; r++)
    for (int32_t e = 0; e < p->experts; e++) {
      bool wanted = false, near = false;
      for (int32_t c = 0; c < p->per_rank; c++)
        wanted |= slot[r * p->per_rank + c] == e;
      for (int32_t d = 0; d < p->ranks; d++)
        near |= d / p->per_node == r / p->per_node && p->held[d * p->experts + e];
      if (wanted && !p->held[r * p->experts + e])
        cost += p->ranks * p->per_rank + 1 + !near;
    }
  return cost;
}

/* The least cost over all ways to put the packs of `slot` on ranks, groups kept whole. */
static int64_t min_cost(const placing *p, const int32_t *slot, int32_t *trial, int32_t pack, uint32_t taken) {
  int32_t size = p->ranks / p->groups;
  int64_t best = INT64_MAX;
  if (pack == p->ranks)
    return cost_of(p, trial);
  for (int32_t r = 0; r < p->ranks; r++) {
    bool whole = true; /* the packs of my group that are placed already are in the same group of ranks */
    for (int32_t q = pack / size * size; q < pack; q++)
      for (int32_t d = 0; d < p->ranks; d++)
        whole &= trial[p->ranks * p->per_rank + d] != q || d / size == r / size;
    for (int32_t d = 0; d < p->ranks; d++) /* and nobody else's */
      whole &= d / size != r / size || !(taken >> d & 1) || trial[p->ranks * p->per_rank + d] / size == pack / size;
    if ((taken >> r & 1) || !whole)
      continue;
    memcpy(trial + r * p->per_rank, slot + pack * p->per_rank, (size_t)p->per_rank * sizeof *slot);
    trial[p->ranks * p->per_rank + r] = pack;
    int64_t cost = min_cost(p, slot, trial, pack + 1, taken | 1u << r);
    trial[p->ranks * p->per_rank + r] = -1;
    best = cost < best ? cost : best;
  }
  return best;
}

HEC_TEST(placements) {
  static const int32_t shapes[][3] = {{1, 1, 1}, {4, 1, 4}, {4, 2, 2}, {6, 2, 3}, {6, 3, 2}, {5, 1, 2}, {6, 1, 3}};
  uint64_t seed = 47;
  for (int round = 0; round < 350; round++) {
    const int32_t *shape = shapes[round % 7];
    placing p = {
        shape[0], shape[1], shape[2], 3 + (int32_t)hec_test_below(&seed, 9), 1 + (int32_t)hec_test_below(&seed, 3),
        NULL};
    uint8_t *held = HEC_NEW(&arena, uint8_t, p.ranks * p.experts);
    int32_t n_slots = p.ranks * p.per_rank, slot[18], before[18], trial[24];
    for (int32_t i = 0; i < p.ranks * p.experts; i++)
      held[i] = hec_test_below(&seed, 3) == 0;
    for (int32_t i = 0; i < n_slots; i++)
      before[i] = slot[i] = (int32_t)hec_test_below(&seed, (uint64_t)p.experts);
    p.held = held;
    memset(trial, -1, sizeof trial);
    hec_slot_match match = hec_slot_match_new(&arena, p.ranks, p.groups, p.per_node, p.experts, p.per_rank);
    (void)hec_slot_match_place(&match, held, slot);
    ck_assert_int_eq(cost_of(&p, slot), min_cost(&p, before, trial, 0, 0));
    hec_arena_free(&arena);
  }
}

static int64_t moved_bytes(const hec_problem *p, const hec_plan *from, const hec_plan *to) {
  int64_t *bytes = HEC_NEW(&arena, int64_t, p->n_ranks * p->n_ranks), sum = 0;
  hec_transfer_list list = {0};
  for (int32_t layer = 0; layer < p->n_layers; layer++)
    hec_plan_migration(from, to, p, layer, bytes, &list);
  for (size_t i = 0; i < list.n; i++)
    sum += list.data[i].bytes;
  free(list.data);
  return sum;
}

/* Replicas and their loads on the ranks, as sorted lists: the same for both, whatever rank has them. */
static void check_same_balance(const hec_problem *p, const hec_plan *a, const hec_plan *b, const hec_load *load) {
  const hec_plan *plans[2] = {a, b};
  uint64_t *loads[2];
  uint64_t total[40] = {0};
  for (int32_t layer = 0; layer < p->n_layers; layer++) {
    for (int32_t e = 0; e < p->n_experts; e++) {
      total[e] = 0;
      for (int32_t s = 0; s < p->n_ranks; s++)
        total[e] += hec_load_row(load, layer, s)[e];
    }
    for (int32_t k = 0; k < 2; k++) {
      loads[k] = HEC_NEW(&arena, uint64_t, p->n_ranks);
      for (int32_t e = 0; e < p->n_experts; e++) {
        int32_t holders[16 * 41], n = hec_plan_holders(plans[k], layer, e, holders);
        ck_assert_int_eq(n, 1 + hec_plan_copies(plans[1 - k], layer, e).n);
        for (int32_t i = 0; i < n; i++)
          loads[k][holders[i]] += 1000 * total[e] / (uint64_t)n;
      }
    }
    uint64_t max[2] = {0}, square[2] = {0};
    for (int32_t k = 0; k < 2; k++)
      for (int32_t r = 0; r < p->n_ranks; r++) {
        max[k] = loads[k][r] > max[k] ? loads[k][r] : max[k];
        square[k] += loads[k][r] * loads[k][r];
      }
    ck_assert(max[0] == max[1] && square[0] == square[1]);
  }
}

/* From any plan that eplb-match was in, eplb's own packs would have moved at least as much. */
HEC_TEST(eplb_match) {
  uint64_t seed = 53;
  int64_t match_bytes = 0, eplb_bytes = 0;
  for (int round = 0; round < 60; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    p->period = 1;
    HEC_SCOPED(hec_policy_run) match = hec_policy_start(hec_policy_find("eplb-match"), p, &arena);
    HEC_SCOPED(hec_policy_run) eplb = hec_policy_start(hec_policy_find("eplb"), p, &arena);
    hec_plan before = hec_plan_new(&arena, p, 1);
    for (int32_t iter = 0; iter < 3; iter++) {
      hec_load load = hec_test_random_load(&arena, p, &seed);
      hec_policy_observe(&match, &load);
      hec_policy_observe(&eplb, &load);
      hec_plan_assign(&before, &match.plan);
      hec_plan_assign(&eplb.plan, &match.plan); /* from the same plan */
      hec_policy_decide(&match, iter, 0);
      hec_policy_decide(&eplb, iter, 0);
      check_same_balance(p, &match.plan, &eplb.plan, &load);
      int64_t less = moved_bytes(p, &before, &match.plan), more = moved_bytes(p, &before, &eplb.plan);
      ck_assert_int_le(less, more);
      match_bytes += less;
      eplb_bytes += more;
    }
    hec_plan_assign(&before, &match.plan);
    hec_policy_decide(&match, 3, 0); /* the same window again */
    ck_assert(match.planned && moved_bytes(p, &before, &match.plan) == 0);
  }
  printf("moved: %.1f %% of what eplb moves\n", 100.0 * (double)match_bytes / (double)eplb_bytes);
  ck_assert(match_bytes * 10 < eplb_bytes * 9);
}

/* Two slots a rank, no replicas. Loads 40 30 10 20 give packs [0 2][1 3], with 160 200 140 80 more it is [1 3][0 2]. For
 * eplb all four experts move with their optimizer state, 32 + 192 KiB each, here none. */
HEC_TEST(packs_that_change_ranks_stay) {
  static const uint32_t loads[2][4] = {{40, 30, 10, 20}, {160, 200, 140, 80}};
  hec_problem *p = hec_test_problem(&arena, "1x2 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 2, 1, 4, 1, true);
  p->slots = 2;
  p->period = 1;
  for (int32_t k = 0; k < 2; k++) {
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find(k == 0 ? "eplb" : "eplb-match"), p, &arena);
    hec_plan before = hec_plan_new(&arena, p, 1);
    for (int32_t iter = 0; iter < 2; iter++) {
      hec_load load = hec_test_even_load(&arena, p, loads[iter]);
      hec_policy_observe(&run, &load);
      hec_plan_assign(&before, &run.plan);
      hec_policy_decide(&run, iter, 0);
    }
    ck_assert_int_eq(moved_bytes(p, &before, &run.plan), k == 0 ? 4 * (32 + 192) * 1024 : 0);
  }
}

/* One layer an iteration, in turn, at the first micro-batch; in the end what eplb has at once. */
HEC_TEST(eplb_online) {
  uint64_t seed = 59;
  for (int round = 0; round < 30; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    p->period = 50;
    HEC_SCOPED(hec_policy_run) online = hec_policy_start(hec_policy_find("eplb-online"), p, &arena);
    HEC_SCOPED(hec_policy_run) eplb = hec_policy_start(hec_policy_find("eplb"), p, &arena);
    hec_plan before = hec_plan_new(&arena, p, 1);
    hec_load load = hec_test_random_load(&arena, p, &seed);
    hec_policy_observe(&online, &load);
    hec_policy_observe(&eplb, &load);
    hec_policy_decide(&eplb, 0, 0);
    int64_t bulk = moved_bytes(p, &online.plan, &eplb.plan), sum = 0;
    for (int32_t iter = 0; iter < p->n_layers; iter++) {
      ck_assert(iter == 0 || p->n_layers == 1 || bulk == 0 || online.plan.version <= (uint64_t)iter);
      hec_plan_assign(&before, &online.plan);
      hec_policy_decide(&online, iter, 0);
      ck_assert(online.planned == (iter == 0));
      sum += moved_bytes(p, &before, &online.plan);
      for (int32_t layer = 0; layer < p->n_layers; layer++) { /* only one is touched */
        int64_t *bytes = HEC_NEW(&arena, int64_t, p->n_ranks * p->n_ranks);
        hec_transfer_list list = {0};
        hec_plan_migration(&before, &online.plan, p, layer, bytes, &list);
        ck_assert(layer == iter || list.n == 0);
        free(list.data);
      }
      uint64_t digest = hec_plan_digest(&online.plan);
      hec_policy_decide(&online, iter, 1); /* nothing between micro-batches */
      ck_assert(hec_plan_digest(&online.plan) == digest);
    }
    ck_assert(sum == bulk && hec_plan_digest(&online.plan) == hec_plan_digest(&eplb.plan));
    uint64_t version = online.plan.version;
    hec_policy_decide(&online, p->n_layers, 0);
    ck_assert(online.plan.version == version && !online.planned);
  }
}
