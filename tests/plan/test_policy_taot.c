/* TAOT: what its clones promise, the least weighted traffic, the hint. */
#include "runtime/plan/planners/flow_hint.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

static hec_policy_run planned(hec_problem *p, const hec_load *load) {
  hec_policy_run run = hec_policy_start(&hec_policy_taot, p, &arena);
  hec_policy_decide(&run, 0, 0);
  hec_policy_refine(&run, 0, load);
  hec_plan_check(&run.plan);
  return run;
}

static uint64_t moved(const hec_plan *plan, int32_t e, int32_t rank) {
  uint64_t n = 0;
  for (int32_t i = plan->quota_at[e]; i < plan->quota_at[e + 1]; i++)
    n += plan->quota[i].rank == rank ? plan->quota[i].tokens : 0;
  return n;
}

static uint64_t min(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* Of one expert in one group: no split has more tokens on their own rank, none has more on their own node. */
static void check_nearest(const hec_problem *p, const hec_plan *plan, const hec_load *load, int32_t e, int32_t first) {
  uint64_t stay = 0, near = 0, max_stay = 0, max_near = 0;
  for (int32_t i = plan->quota_at[e]; i < plan->quota_at[e + 1]; i++) {
    const hec_quota *q = &plan->quota[i];
    if (q->source < first || q->source >= first + p->ep)
      continue;
    stay += q->source == q->rank ? q->tokens : 0;
    near += hec_problem_node(p, q->source) == hec_problem_node(p, q->rank) ? q->tokens : 0;
  }
  for (int32_t r = first; r < first + p->ep;) {
    uint64_t here = 0, room = 0;
    int32_t end = hec_problem_node_end(p, hec_problem_node(p, r));
    for (; r < end && r < first + p->ep; r++) {
      here += hec_load_row(load, 0, r)[e];
      room += moved(plan, e, r);
      max_stay += min(hec_load_row(load, 0, r)[e], moved(plan, e, r));
    }
    max_near += min(here, room);
  }
  ck_assert(stay == max_stay && near == max_near);
}

/* Givers end at the cap or above, takers at the cap or below, none moves the wrong way; parts as near as they can be. */
HEC_TEST_LOOP(promises, 4) {
  uint64_t seed = 70 + (uint64_t)_i;
  int clones = 0;
  for (int round = 0; round < 100; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    hec_test_one_group(&arena, p);
    hec_load load = hec_test_random_load(&arena, p, &seed);
    HEC_SCOPED(hec_policy_run) ep = hec_policy_start(&hec_policy_ep, p, &arena), run = planned(p, &load);
    hec_routing before = hec_routing_new(&arena, p), after = hec_routing_new(&arena, p);
    hec_routing_make(&before, &hec_dispatch_group, p, &ep.plan, &load, 0);
    hec_routing_make(&after, run.policy->dispatch, p, &run.plan, &load, 0);
    for (int32_t first = 0; first < p->n_ranks; first += p->ep) {
      uint64_t all = 0;
      for (int32_t r = first; r < first + p->ep; r++)
        all += before.rank_tokens[r];
      uint64_t cap = (all + (uint64_t)p->ep - 1) / (uint64_t)p->ep;
      for (int32_t r = first; r < first + p->ep; r++) {
        uint64_t had = before.rank_tokens[r], has = after.rank_tokens[r];
        ck_assert(had > cap ? has <= had && has >= cap : has >= had && has <= cap);
      }
      for (int32_t e = 0; e < p->n_experts; e++)
        if (run.plan.quota_at[e] < run.plan.quota_at[e + 1]) {
          check_nearest(p, &run.plan, &load, e, first);
          clones++;
        }
    }
  }
  ck_assert_int_gt(clones, 100);
}

/* The hint against Sinkhorn's scaling with the whole matrix, and its margins. */
HEC_TEST(hint) {
  uint64_t seed = 9;
  for (int round = 0; round < 50; round++) {
    enum { RANKS = 12 };
    int32_t node[RANKS];
    int64_t give[RANKS], take[RANKS], given = 0, taken = 0;
    for (int32_t r = 0; r < RANKS; r++) {
      node[r] = r / (1 + round % 5);
      bool gives = r == 0 || (r > 1 && hec_test_below(&seed, 2));
      give[r] = gives ? 1 + (int64_t)hec_test_below(&seed, 100) : 0;
      take[r] = gives ? 0 : 1 + (int64_t)hec_test_below(&seed, 100);
      given += give[r];
      taken += take[r];
    }
    hec_flow_hint h = hec_flow_hint_new(&arena, RANKS, 50);
    h.node = node;
    hec_flow_hint_make(&h, give, take);
    double u[RANKS] = {0}, v[RANKS];
    for (int32_t r = 0; r < RANKS; r++)
      v[r] = take[r] > 0;
    for (int step = 0; step < 100; step++) {
      const double *from = step % 2 ? u : v;
      double to[RANKS];
      for (int32_t r = 0; r < RANKS; r++) {
        double sum = 0, wanted = step % 2 ? (double)take[r] * (double)given / (double)taken : (double)give[r];
        for (int32_t o = 0; o < RANKS; o++)
          sum += from[o] * (node[r] == node[o] ? 0.716531310573789 : 0.367879441171442);
        to[r] = wanted > 0 ? wanted / sum : 0;
      }
      for (int32_t r = 0; r < RANKS; r++)
        (step % 2 ? v : u)[r] = to[r];
    }
    for (int32_t b = 0; b < RANKS; b++) {
      double column = 0;
      for (int32_t a = 0; a < RANKS; a++) {
        double flow = u[a] * (node[a] == node[b] ? 0.716531310573789 : 0.367879441171442) * v[b];
        ck_assert_double_eq_tol(hec_flow_hint_of(&h, a, b), flow, 1e-9 * (1 + flow));
        column += flow;
      }
      ck_assert_double_eq_tol(column, (double)take[b] * (double)given / (double)taken, 1e-9 * (double)given);
    }
  }
}
