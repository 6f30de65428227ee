/* Plans by a spilling policy, checked for what holds for all of them. Homes and residents untouched, guests that
 * compute something, moves and quotas that say the same. */
#include "tests/plan/spill_case.h"

#include "tests/support/check_main.h"
#include "tests/support/problem_case.h"

#include <stdio.h>

hec_spill_case hec_spill_case_new(hec_arena *arena, const char *policy, const char *cluster, int32_t ranks,
                                  int32_t experts) {
  hec_spill_case c = {.arena = arena, .problem = hec_test_problem(arena, cluster, ranks, 1, experts, 1, true)};
  hec_test_one_group(arena, c.problem);
  ranks = c.problem->n_ranks;
  c.load = hec_load_new(arena, 1, ranks, experts);
  c.run = hec_policy_start(hec_policy_find(policy), c.problem, arena);
  c.spill = c.run.state;
  c.total = HEC_NEW(arena, uint64_t, experts);
  c.computed = HEC_NEW(arena, uint64_t, ranks * experts);
  c.rank = HEC_NEW(arena, uint64_t, ranks);
  return c;
}

hec_spill_case hec_spill_case_random(hec_arena *arena, const char *policy, uint64_t max, uint64_t *seed) {
  char line[80];
  int32_t per_node = 1 + (int32_t)hec_test_below(seed, 8), ranks = 1 + (int32_t)hec_test_below(seed, 16);
  (void)snprintf(line, sizeof line, "%dx%d nvlink=300G@2us nic=50G@5us flops=312T mem=40G",
                 (ranks + per_node - 1) / per_node, per_node);
  hec_spill_case c = hec_spill_case_new(arena, policy, line, ranks, 1 + (int32_t)hec_test_below(seed, 40));
  hec_spill_case_fill(&c, 1 + hec_test_below(seed, max), seed);
  return c;
}

void hec_spill_case_fill(hec_spill_case *c, uint64_t max, uint64_t *seed) {
  int32_t ranks = c->problem->n_ranks, experts = c->problem->n_experts;
  uint64_t kind = hec_test_below(seed, 8), hot = hec_test_below(seed, (uint64_t)experts);
  uint64_t hot_ranks = 1 + hec_test_below(seed, (uint64_t)c->problem->ep);
  for (int32_t s = 0; s < ranks; s++)
    for (int32_t e = 0; e < experts; e++) {
      uint64_t n = hec_test_below(seed, max) / (1 + hec_test_below(seed, 6));
      if (kind == 0 || (kind == 1 && e != (int32_t)hot) || (kind == 2 && s % 3 == 1) || (kind == 3 && e % 4 != 0))
        n = 0;
      if (kind == 4 && e == (int32_t)hot)
        n = 20 * max;
      if (kind >= 6 && hec_spill_case_home(c, e) >= (int32_t)hot_ranks)
        n = kind == 6 ? 0 : n / 50;
      hec_load_row(&c->load, 0, s)[e] = (uint32_t)n;
    }
}

int32_t hec_spill_case_home(const hec_spill_case *c, int32_t expert) {
  return (int32_t)((int64_t)expert * c->problem->ep / c->problem->n_experts);
}

int32_t hec_spill_case_guests(const hec_spill_case *c, int32_t rank) {
  int32_t n = 0;
  for (int32_t e = 0; e < c->problem->n_experts; e++) {
    hec_copies copies = hec_plan_copies(&c->run.plan, 0, e);
    for (int32_t i = 0; i < copies.n; i++)
      n += copies.rank[i] == rank && copies.kind[i] == HEC_COPY_GUEST;
  }
  return n;
}

/* Homes are where they were, copies are guests elsewhere, each with something to do. */
static void check_copies(const hec_spill_case *c) {
  int32_t experts = c->problem->n_experts;
  for (int32_t e = 0; e < experts; e++) {
    hec_copies held = hec_plan_copies(&c->run.plan, 0, e);
    int32_t home = hec_spill_case_home(c, e);
    ck_assert_int_eq(hec_plan_home(&c->run.plan, 0, e), home);
    for (int32_t i = 0; i < held.n; i++) {
      ck_assert(i == 0 || held.rank[i - 1] < held.rank[i]);
      ck_assert(held.rank[i] != home && held.kind[i] == HEC_COPY_GUEST && c->computed[held.rank[i] * experts + e] > 0);
    }
  }
}

/* Moves and quotas say the same. */
static void check_moves(const hec_spill_case *c) {
  int32_t ranks = c->problem->n_ranks, experts = c->problem->n_experts;
  uint64_t moved = 0, away = 0;
  for (int32_t i = 0; i < c->spill->n_moves; i++) {
    const hec_spill_move *move = &c->spill->moves[i];
    ck_assert_uint_eq(c->computed[move->rank * experts + move->expert], move->tokens);
    moved += move->tokens;
  }
  for (int32_t r = 0; r < ranks; r++)
    for (int32_t e = 0; e < experts; e++)
      away += r != hec_spill_case_home(c, e) ? c->computed[r * experts + e] : 0;
  ck_assert_uint_eq(moved, away);
}

void hec_spill_case_plan(hec_spill_case *c) {
  HEC_SCOPED(hec_arena) own = {0};
  const hec_problem *p = c->problem;
  hec_routing routing = hec_routing_new(&own, p);
  hec_policy_decide(&c->run, 0, 0);
  ck_assert_int_eq(c->run.plan.copy_at[p->n_experts], 0);
  hec_policy_refine(&c->run, 0, &c->load);
  ck_assert(c->run.planned && c->run.units > 0 && c->run.plan.version == 0);
  hec_plan_check(&c->run.plan);
  hec_routing_make(&routing, c->run.policy->dispatch, p, &c->run.plan, &c->load, 0);
  for (int32_t e = 0; e < p->n_experts; e++) {
    c->total[e] = 0;
    for (int32_t s = 0; s < p->n_ranks; s++)
      c->total[e] += hec_load_row(&c->load, 0, s)[e];
  }
  for (int32_t r = 0; r < p->n_ranks; r++) {
    c->rank[r] = routing.rank_tokens[r];
    for (int32_t e = 0; e < p->n_experts; e++)
      c->computed[r * p->n_experts + e] = 0;
    for (int32_t i = routing.expert_at[r]; i < routing.expert_at[r + 1]; i++)
      c->computed[r * p->n_experts + routing.expert[i]] = routing.tokens[i];
  }
  check_copies(c);
  check_moves(c);
}

hec_spill_oracle hec_spill_oracle_new(const hec_spill_case *c, int32_t first, int32_t n) {
  int32_t experts = c->problem->n_experts;
  hec_spill_oracle o = {.n = n, .n_experts = experts};
  ck_assert(n <= HEC_SPILL_RANKS && experts <= HEC_SPILL_EXPERTS);
  for (int32_t e = 0; e < experts; e++) {
    int32_t home = hec_spill_case_home(c, e) - first;
    o.home[e] = home >= 0 && home < n ? home : -1;
    if (o.home[e] < 0)
      continue;
    o.total[e] = (int64_t)c->total[e];
    o.load[home] += o.total[e];
    o.all += o.total[e];
  }
  return o;
}

void hec_spill_oracle_compare(const hec_spill_oracle *o, const hec_spill_case *c, int32_t first) {
  for (int32_t e = 0; e < o->n_experts; e++)
    for (int32_t r = 0; r < o->n; r++)
      if (r != o->home[e])
        ck_assert_int_eq(o->moved[e][r], (int64_t)c->computed[(first + r) * o->n_experts + e]);
}

void hec_spill_case_stop(hec_spill_case *c) {
  hec_policy_stop(&c->run);
  hec_arena_free(c->arena);
}
