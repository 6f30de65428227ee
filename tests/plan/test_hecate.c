/* The rows of Hecate at work: the price of sets of experts against lowering them, calibration against trying every
 * expert from nothing, and what must hold for every decision on random problems. */
#include "runtime/plan/calibrate.h"
#include "runtime/plan/fssdp.h"
#include "runtime/plan/fssdp_policy.h"
#include "tests/plan/plan_cases.h"

#include <string.h>
#include <time.h>

enum { RANKS_MAX = 32, EXPERTS_MAX = 64 };

static const hec_policy *const rows[] = {&hec_policy_hecate, &hec_policy_hecate_rm, &hec_policy_hecate_nosharding,
                                         &hec_policy_hecate_nomaterialisation};

/* Skewed counts: a few hot experts, different by source now and then; sometimes none at all. */
static void random_counts(uint64_t *seed, hec_load *load) {
  for (int32_t l = 0; l < load->n_layers; l++) {
    uint64_t heat[EXPERTS_MAX], scale = hec_test_below(seed, 10) == 0 ? 0 : 1 + hec_test_below(seed, 400);
    for (int32_t e = 0; e < load->n_experts; e++)
      heat[e] = hec_test_below(seed, 5) == 0 ? 40 : hec_test_below(seed, 4);
    for (int32_t s = 0; s < load->n_sources; s++)
      for (int32_t e = 0; e < load->n_experts; e++)
        hec_load_row(load, l, s)[e] = (uint32_t)(heat[e] * scale + hec_test_below(seed, 1 + scale));
  }
}

/* ---- prices ---- */

/* The experts whose set bit says so: from their homes to the ranks of `to` [n_experts][n_ranks]. */
static double lowered_cost(hec_case *c, hec_link_cost *cost, const int32_t *home, bool to[EXPERTS_MAX][RANKS_MAX],
                           double bytes, bool scatter) {
  static int32_t expert[EXPERTS_MAX], owner[EXPERTS_MAX], at[EXPERTS_MAX + 1], receiver[EXPERTS_MAX * RANKS_MAX];
  int32_t n = 0, n_receivers = 0;
  for (int32_t e = 0; e < c->problem.n_experts; e++) {
    int32_t begin = n_receivers;
    for (int32_t r = 0; r < c->problem.n_ranks; r++)
      if (to[e][r] && r != home[e])
        receiver[n_receivers++] = r;
    if (n_receivers == begin)
      continue;
    expert[n] = e;
    owner[n] = home[e];
    at[n++] = begin;
  }
  at[n] = n_receivers;
  hec_sparse sparse = {.n_items = n,
                       .n_slices = 1,
                       .expert = expert,
                       .owner = owner,
                       .receiver_at = at,
                       .receiver = receiver,
                       .bytes = (int64_t)bytes};
  hec_collective_plan out = {0}, scratch = {0};
  (void)hec_collective_choose(cost, &c->problem, &sparse, scatter, NULL, &out, &scratch);
  double seconds = hec_collective_cost(cost, &out);
  hec_collective_plan_free(&out);
  hec_collective_plan_free(&scratch);
  return seconds;
}

START_TEST(test_spread_cost) {
  uint64_t seed = 31;
  for (int32_t k = 0; k < 300; k++) {
    int32_t n_devices, E = 1 + (int32_t)hec_test_below(&seed, 12);
    const char *line = hec_case_random_line(&seed, &n_devices);
    double bytes = (double)hec_test_below(&seed, 30000000);
    hec_case *c = hec_case_new(line, 1 + (int32_t)hec_test_below(&seed, (uint64_t)n_devices), 1, E, bytes);
    int32_t D = c->problem.n_ranks, home[EXPERTS_MAX];
    bool scatter = hec_test_below(&seed, 2) == 0;
    hec_rank_links links = hec_rank_links_new(&c->arena, &c->problem);
    hec_spread spread = hec_spread_new(&c->arena, &c->problem, &links, bytes, scatter);
    hec_spread_sum sum = hec_spread_sum_new(&c->arena, &spread), item = hec_spread_sum_new(&c->arena, &spread);
    hec_link_cost cost = hec_link_cost_new(&c->cluster, &c->arena);
    static bool to[EXPERTS_MAX][RANKS_MAX];
    memset(to, 0, sizeof to);
    for (int32_t e = 0; e < E; e++) { /* one more expert at a time */
      int32_t receivers[RANKS_MAX], n = 0;
      home[e] = (int32_t)hec_test_below(&seed, (uint64_t)D);
      uint64_t chance = 1 + hec_test_below(&seed, 4);
      for (int32_t r = 0; r < D; r++)
        if (r != home[e] && (to[e][r] = hec_test_below(&seed, 4) < chance))
          receivers[n++] = r;
      hec_spread_item(&spread, home[e], receivers, n, &item);
      hec_spread_sum pattern = n == D - 1 ? hec_spread_everywhere(&spread, home[e]) : item;
      double with_s = hec_spread_cost_with(&spread, &sum, &pattern);
      hec_spread_add(&spread, &sum, &item);
      ck_assert(with_s == hec_spread_cost(&spread, &sum));
      ck_assert(with_s == lowered_cost(c, &cost, home, to, bytes, scatter));
      if (n == D - 1)
        ck_assert(spread.everywhere_s[home[e]] == hec_spread_cost(&spread, &pattern));
    }
    hec_link_cost_free(&cost);
    hec_case_free(c);
  }
}
END_TEST

/* ---- calibration ---- */

/* The layer's time by routing every token with the dispatch rule and adding up links and ranks. */
static double plain_layer_s(hec_case *c, hec_routing *routing, const hec_plan *plan, int32_t layer,
                            const hec_load *load) {
  const hec_problem *p = &c->problem;
  hec_routing_make(routing, &hec_dispatch_local_first, p, plan, load, layer);
  static double tokens[4096];
  memset(tokens, 0, sizeof tokens);
  double a2a_s = 0, compute_s = 0;
  for (int32_t s = 0; s < p->n_ranks; s++)
    for (int32_t d = 0; d < p->n_ranks; d++) {
      const int32_t *route;
      int32_t n = s == d ? 0 : hec_cluster_route(&c->cluster, s, d, &route);
      for (int32_t i = 0; i < n; i++)
        tokens[route[i]] += routing->pair[s * p->n_ranks + d];
    }
  for (int32_t l = 0; l < c->cluster.n_links; l++) {
    double link_s = tokens[l] * (p->bytes.token / c->cluster.links[l].bandwidth);
    a2a_s = link_s > a2a_s ? link_s : a2a_s;
  }
  for (int32_t r = 0; r < p->n_ranks; r++) {
    const hec_device *d = &c->cluster.devices[r];
    double row_s = p->expert.flops_per_row / (d->flops * d->flops_efficiency * d->speed) +
                   p->expert.bytes_per_row / d->hbm_bandwidth;
    double rank_s = (double)routing->rank_tokens[r] * row_s;
    compute_s = rank_s > compute_s ? rank_s : compute_s;
  }
  return p->train ? 4 * a2a_s + 3 * compute_s : 2 * a2a_s + compute_s;
}

typedef struct {
  hec_case *c;
  hec_link_cost cost;
  hec_routing routing;
  const hec_load *load;
  int32_t layer;
  bool rematerialise;
  int32_t home[EXPERTS_MAX];
  bool before[EXPERTS_MAX][RANKS_MAX]; /* guests before calibration */
} plain;

static double plain_exposed_s(plain *x, bool guests[EXPERTS_MAX][RANKS_MAX]) {
  const hec_problem *p = &x->c->problem;
  if (!p->train)
    return 0;
  double s = lowered_cost(x->c, &x->cost, x->home, guests, p->bytes.expert_grad, true);
  if (x->rematerialise)
    s += lowered_cost(x->c, &x->cost, x->home, guests, p->bytes.expert_param, false);
  return s - 2 * p->window_s > 0 ? s - 2 * p->window_s : 0;
}

/* T(Q) of calibrate.h for the guests of `plan`, from nothing. */
static double plain_objective_s(plain *x, const hec_plan *plan) {
  static bool guests[EXPERTS_MAX][RANKS_MAX], added[EXPERTS_MAX][RANKS_MAX];
  memset(guests, 0, sizeof guests);
  memset(added, 0, sizeof added);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    const int32_t *ranks;
    const uint8_t *kinds;
    int32_t n = hec_plan_copies(plan, x->layer, e, &ranks, &kinds);
    for (int32_t i = 0; i < n; i++) {
      guests[e][ranks[i]] = true;
      added[e][ranks[i]] = !x->before[e][ranks[i]];
    }
  }
  double gather_s = lowered_cost(x->c, &x->cost, x->home, added, x->c->problem.bytes.expert_param, false);
  double growth_s = plain_exposed_s(x, guests) - plain_exposed_s(x, x->before);
  return plain_layer_s(x->c, &x->routing, plan, x->layer, x->load) + (gather_s + growth_s);
}

/* Every step tries every expert on a copy of the plan. Returns the number of experts added. */
static int32_t plain_calibrate(plain *x, hec_plan *plan, hec_plan *trial, hec_plan *best_plan, int32_t m) {
  int32_t steps = 0, D = plan->n_ranks;
  memset(x->before, 0, sizeof x->before);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    x->home[e] = hec_plan_home(plan, x->layer, e);
    for (int32_t r = 0; r < D; r++)
      x->before[e][r] = r != x->home[e] && hec_plan_holds(plan, x->layer, e, r);
  }
  for (;; steps++) {
    double now_s = plain_objective_s(x, plan), best = 0;
    int32_t guests[RANKS_MAX] = {0};
    bool found = false;
    for (int32_t e = 0; e < plan->n_experts; e++)
      for (int32_t r = 0; r < D; r++)
        guests[r] += r != x->home[e] && hec_plan_holds(plan, x->layer, e, r);
    for (int32_t e = 0; e < plan->n_experts; e++) {
      int32_t n = 0;
      hec_plan_assign(trial, plan);
      for (int32_t r = 0; r < D; r++)
        if (!hec_plan_holds(plan, x->layer, e, r) && guests[r] < m) {
          hec_plan_add_copy(trial, x->layer, e, r, HEC_COPY_GUEST);
          n++;
        }
      if (n == 0)
        continue;
      double bytes = (double)(int64_t)x->c->problem.bytes.expert_param;
      double score = (now_s - plain_objective_s(x, trial)) / (n * (bytes > 1 ? bytes : 1));
      if (score > best) {
        best = score;
        found = true;
        hec_plan_assign(best_plan, trial);
      }
    }
    if (!found)
      return steps;
    hec_plan_assign(plan, best_plan);
  }
}

/* One random problem; returns the number of experts added, and in *limited whether some rank was full at the end. */
static int32_t calibrate_once(uint64_t *seed, bool *limited) {
  int32_t n_devices, E = 1 + (int32_t)hec_test_below(seed, 14);
  const char *line = hec_case_random_line(seed, &n_devices);
  double bytes = (double)hec_test_below(seed, hec_test_below(seed, 2) ? 1000000 : 30000);
  hec_case *c = hec_case_new(line, 1 + (int32_t)hec_test_below(seed, (uint64_t)n_devices), 2, E, bytes);
  hec_problem *p = &c->problem;
  p->train = hec_test_below(seed, 3) > 0;
  p->bytes.token = (double)(1 + hec_test_below(seed, 3000));
  p->expert.flops_per_row = (double)hec_test_below(seed, 3) * 1e7;
  p->expert.bytes_per_row = (double)hec_test_below(seed, 100);
  p->window_s = hec_test_uniform(seed) * 2e-4;
  for (int32_t r = 0; r < p->n_ranks; r++)
    c->cluster.devices[r].speed = hec_test_below(seed, 5) == 0 ? 0.7 : 1;
  bool rematerialise = hec_test_below(seed, 3) == 0;
  hec_load load = hec_load_new(&c->arena, 2, p->n_ranks, E);
  random_counts(seed, &load);
  hec_plan fast = hec_plan_new(&c->arena, p, 1), slow = hec_plan_new(&c->arena, p, 1);
  hec_plan trial = hec_plan_new(&c->arena, p, 1), best = hec_plan_new(&c->arena, p, 1);
  for (int32_t row = 0; row < 2 * E; row++)
    hec_plan_set_home(&fast, row / E, row % E, (int32_t)hec_test_below(seed, (uint64_t)p->n_ranks));
  int32_t t = (int32_t)hec_test_below(seed, (uint64_t)E + 1), m = (int32_t)hec_test_below(seed, (uint64_t)E + 1);
  uint64_t F[EXPERTS_MAX], units = 0;
  int32_t order[EXPERTS_MAX];
  for (int32_t e = 0; e < E; e++) {
    F[e] = hec_test_below(seed, 100);
    order[e] = e;
  }
  (void)hec_fssdp_order(F, E, order);
  hec_fssdp fssdp = hec_fssdp_new(&c->arena, p);
  (void)hec_fssdp_materialise(&fssdp, &fast, 1, F, order, t,
                              hec_test_below(seed, 2) ? m : (int32_t)hec_test_below(seed, (uint64_t)m + 1));
  hec_plan_assign(&slow, &fast);
  hec_rank_links links = hec_rank_links_new(&c->arena, p);
  hec_spread gather = hec_spread_new(&c->arena, p, &links, p->bytes.expert_param, false);
  hec_spread scatter = hec_spread_new(&c->arena, p, &links, p->bytes.expert_grad, true);
  hec_calibrate calibrate = hec_calibrate_new(&c->arena, p, &links, &gather, p->train ? &scatter : NULL, rematerialise);
  static plain x;
  x = (plain){.c = c,
              .cost = hec_link_cost_new(&c->cluster, &c->arena),
              .routing = hec_routing_new(&c->arena, p),
              .load = &load,
              .layer = 1,
              .rematerialise = rematerialise};
  int32_t added = hec_calibrate_layer(&calibrate, &fast, 1, &load, m, &units);
  ck_assert_int_eq(plain_calibrate(&x, &slow, &trial, &best, m), added);
  ck_assert_uint_eq(hec_plan_digest(&fast), hec_plan_digest(&slow));
  hec_plan_check(&fast);
  int32_t full = 0;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    int32_t n = 0;
    for (int32_t e = 0; e < E; e++)
      n += r != hec_plan_home(&fast, 1, e) && hec_plan_holds(&fast, 1, e, r);
    ck_assert_int_le(n, m);
    full += n == m;
  }
  *limited = added > 0 && full > 0 && full < p->n_ranks;
  hec_link_cost_free(&x.cost);
  hec_case_free(c);
  return added;
}

START_TEST(test_calibrate_equals_trying_everything) {
  uint64_t seed = 32;
  int32_t some = 0, several = 0, n_limited = 0;
  for (int32_t k = 0; k < 500; k++) {
    bool limited;
    int32_t added = calibrate_once(&seed, &limited);
    some += added > 0;
    several += added > 2;
    n_limited += limited;
  }
  ck_assert_msg(some > 100 && some < 450 && several > 30 && n_limited > 20, "%d %d %d", some, several, n_limited);
}
END_TEST

/* ---- rows ---- */

static int32_t copies_on(const hec_plan *plan, int32_t layer, int32_t rank, int32_t *distinct) {
  int32_t n = 0;
  *distinct = 0;
  for (int32_t e = 0; e < plan->n_experts; e++) {
    const int32_t *ranks;
    const uint8_t *kinds;
    int32_t copies = hec_plan_copies(plan, layer, e, &ranks, &kinds);
    *distinct += copies > 0;
    for (int32_t i = 0; i < copies; i++) {
      ck_assert(kinds[i] == HEC_COPY_GUEST && ranks[i] != hec_plan_home(plan, layer, e));
      n += ranks[i] == rank;
    }
  }
  return n;
}

static void check_copies(const hec_policy_run *run, bool before_gate) {
  hec_plan_check(&run->plan);
  for (int32_t l = 0; l < run->plan.n_layers; l++)
    for (int32_t r = 0; r < run->plan.n_ranks; r++) {
      int32_t distinct, n = copies_on(&run->plan, l, r, &distinct);
      ck_assert(run->t[l] >= 0 && run->t[l] <= run->plan.n_experts);
      ck_assert(run->m[l] >= 0 && run->m[l] <= run->plan.n_experts);
      ck_assert_int_le(n, run->m[l]);
      if (before_gate) {
        ck_assert_int_le(distinct, run->t[l]);
        ck_assert_int_le(n, run->t[l]);
      }
    }
}

static bool contains(const hec_plan *plan, const hec_plan *before, int32_t layer) {
  for (int32_t e = 0; e < plan->n_experts; e++)
    for (int32_t r = 0; r < plan->n_ranks; r++)
      if (hec_plan_holds(before, layer, e, r) && !hec_plan_holds(plan, layer, e, r))
        return false;
  return true;
}

static void check_even_memory(const hec_plan *plan) {
  int32_t owned[RANKS_MAX] = {0}, rows_of_all = plan->n_layers * plan->n_experts;
  for (int32_t row = 0; row < rows_of_all; row++) {
    ck_assert_int_eq(plan->home[row], plan->opt_home[row]);
    owned[plan->home[row]]++;
  }
  for (int32_t r = 0; r < plan->n_ranks; r++)
    ck_assert(owned[r] == rows_of_all / plan->n_ranks || owned[r] == (rows_of_all + plan->n_ranks - 1) / plan->n_ranks);
}

/* Plays 8 records; returns the digest of all plans. */
static uint64_t play(const hec_policy *policy, hec_case *c, uint64_t seed, bool check) {
  hec_arena arena = {0};
  hec_policy_run run = hec_policy_start(policy, &c->problem, &arena);
  hec_plan before = hec_plan_new(&arena, &c->problem, 1);
  hec_load load = hec_load_new(&arena, c->problem.n_layers, c->problem.n_ranks, c->problem.n_experts);
  uint64_t digest = 0, moved = 0;
  for (int64_t iter = 0; iter < 8; iter++) {
    random_counts(&seed, &load);
    uint64_t version = run.plan.version;
    hec_plan_assign(&before, &run.plan);
    size_t used = arena.used_bytes;
    hec_policy_decide(&run, iter, 0);
    moved += run.plan.version != version;
    size_t homes = (size_t)run.plan.n_layers * (size_t)run.plan.n_experts * sizeof *run.plan.home;
    ck_assert_int_eq(run.plan.version != version, memcmp(before.home, run.plan.home, homes) != 0);
    if (check)
      check_copies(&run, true);
    if (run.plan.version != version)
      check_even_memory(&run.plan);
    digest = digest * 31 + hec_plan_digest(&run.plan);
    for (int32_t l = 0; l < run.plan.n_layers; l++) {
      hec_plan_assign(&before, &run.plan);
      hec_policy_refine(&run, l, &load);
      ck_assert(contains(&run.plan, &before, l));
    }
    ck_assert_uint_eq(arena.used_bytes, used);
    if (check)
      check_copies(&run, false);
    digest = digest * 31 + hec_plan_digest(&run.plan);
    hec_history_push(&run.history, &load);
  }
  if (!policy->period)
    ck_assert_uint_eq(moved, 0);
  hec_policy_stop(&run);
  hec_arena_free(&arena);
  return digest;
}

START_TEST(test_rows_on_random_problems) {
  uint64_t seed = 33;
  static const int32_t overrides[] = {HEC_AUTO, HEC_AUTO, HEC_T_PAPER, 0, 1, 3, 1000};
  for (int32_t k = 0; k < 150; k++) {
    int32_t n_devices, L = 1 + (int32_t)hec_test_below(&seed, 4), E = 1 + (int32_t)hec_test_below(&seed, 20);
    E = hec_test_below(&seed, 8) == 0 ? 1 : E;
    const char *line = hec_case_random_line(&seed, &n_devices);
    int32_t n_ranks = hec_test_below(&seed, 8) == 0 ? 1 : 1 + (int32_t)hec_test_below(&seed, (uint64_t)n_devices);
    hec_case *c = hec_case_new(line, n_ranks, L, E, (double)hec_test_below(&seed, 2000000000) / 100);
    hec_problem *p = &c->problem;
    p->train = hec_test_below(&seed, 3) > 0;
    p->t = overrides[hec_test_below(&seed, 7)];
    p->m = overrides[hec_test_below(&seed, 7)];
    p->m = p->m == HEC_T_PAPER ? HEC_AUTO : p->m;
    p->period = 3;
    for (int32_t r = 0; r < 4; r++)
      ck_assert_uint_eq(play(rows[r], c, seed, true), play(rows[r], c, seed, true));
    hec_case_free(c);
  }
}
END_TEST

/* Nothing known: the hot set is the lowest ids. Homes stay even until a period has passed, then move once. */
START_TEST(test_schedule_of_decisions) {
  hec_case *c = hec_case_new("2x2 nvlink=100G@1us nic=10G@5us flops=100T mem=40G", 4, 2, 8, 1000);
  c->problem.t = 2;
  c->problem.m = 4;
  hec_arena arena = {0};
  hec_policy_run run = hec_policy_start(&hec_policy_hecate, &c->problem, &arena);
  ck_assert_int_eq(hec_policy_hecate.period, 100);
  hec_policy_decide(&run, 50, 0);
  ck_assert(run.planned && run.units > 0);
  for (int32_t l = 0; l < 2; l++)
    for (int32_t e = 0; e < 8; e++) {
      ck_assert_int_eq(hec_plan_home(&run.plan, l, e), e / 2);
      for (int32_t r = 0; r < 4; r++)
        ck_assert_int_eq(hec_plan_holds(&run.plan, l, e, r), e < 2 || r == e / 2);
    }
  hec_load load = hec_load_new(&arena, 2, 4, 8); /* the later the hotter, and two of equal heat */
  for (int32_t l = 0; l < 2; l++)
    for (int32_t s = 0; s < 4; s++)
      for (int32_t e = 0; e < 8; e++)
        hec_load_row(&load, l, s)[e] = (uint32_t)(10 * (e < 6 ? e : 6));
  hec_history_push(&run.history, &load);
  hec_policy_decide(&run, 149, 0);
  ck_assert_uint_eq(run.plan.version, 0);
  for (int32_t e = 0; e < 8; e++)
    ck_assert_int_eq(hec_plan_holds(&run.plan, 0, e, 3 - e / 4 * 3), e >= 6 || (e / 2 == 3 - e / 4 * 3));
  hec_policy_decide(&run, 150, 1); /* not in a later micro-batch */
  ck_assert_uint_eq(run.plan.version, 0);
  hec_policy_decide(&run, 150, 0);
  ck_assert_uint_eq(run.plan.version, 1);
  check_even_memory(&run.plan);
  hec_policy_decide(&run, 250, 0); /* same loads, same plan: nothing moves */
  ck_assert_uint_eq(run.plan.version, 1);
  hec_policy_stop(&run);

  run = hec_policy_start(&hec_policy_hecate, &c->problem, &arena); /* asked for: at once */
  hec_history_push(&run.history, &load);
  hec_fssdp_policy_reshard(&run);
  hec_policy_decide(&run, 1, 0);
  ck_assert_uint_eq(run.plan.version, 1);
  hec_policy_decide(&run, 2, 0);
  ck_assert_uint_eq(run.plan.version, 1);
  hec_policy_stop(&run);

  run = hec_policy_start(&hec_policy_hecate_nomaterialisation, &c->problem, &arena);
  hec_policy_decide(&run, 0, 0);
  ck_assert(!run.planned && run.units == 0);
  hec_history_push(&run.history, &load);
  hec_policy_decide(&run, 100, 0);
  ck_assert(run.planned && run.plan.version == 1 && run.t[0] == 2);
  ck_assert(!hec_policy_hecate_nomaterialisation.refine);
  hec_policy_stop(&run);
  hec_arena_free(&arena);
  hec_case_free(c);
}
END_TEST

/* Re-materialisation needs memory for one layer's copies only. */
START_TEST(test_rematerialisation_raises_m) {
  hec_case *c = hec_case_new("1x4 nvlink=100G@1us nic=10G@5us flops=100T mem=1000", 4, 5, 8, 10);
  c->problem.tokens = 0;
  hec_arena arena = {0};
  for (int32_t k = 0; k < 4; k++) {
    hec_policy_run run = hec_policy_start(rows[k], &c->problem, &arena);
    ck_assert_int_eq(run.plan.rematerialise, k == 1);
    ck_assert_int_eq(run.m[4], k == 3 ? 0 : k == 1 ? 8 : 3);
    hec_policy_stop(&run);
  }
  hec_arena_free(&arena);
  hec_case_free(c);
}
END_TEST

START_TEST(test_no_allocation_after_start) {
  hec_case *c = hec_case_new("4x4 nvlink=100G@1us nic=10G@5us flops=100T mem=40G", 16, 3, 32, 1e5);
  c->problem.period = 2;
  c->problem.m = 6;
  hec_arena arena = {0};
  hec_policy_run run = hec_policy_start(&hec_policy_hecate_rm, &c->problem, &arena);
  hec_load load = hec_load_new(&arena, 3, 16, 32);
  uint64_t seed = 34;
  hec_fail_allocation(1); /* from here on an allocation ends the program */
  for (int64_t iter = 0; iter < 20; iter++) {
    random_counts(&seed, &load);
    hec_policy_decide(&run, iter, 0);
    for (int32_t l = 0; l < 3; l++)
      hec_policy_refine(&run, l, &load);
    hec_history_push(&run.history, &load);
  }
  hec_fail_allocation(0);
  hec_policy_stop(&run);
  hec_arena_free(&arena);
  hec_case_free(c);
}
END_TEST

static double now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Not a test of speed (machines differ), only its print-out: 12 layers, 64 experts, 32 ranks, GPT-MoE-S on cluster B.
 */
START_TEST(test_print_planning_time) {
  hec_arena arena = {0};
  hec_cluster cluster;
  hec_moe moe;
  hec_problem problem;
  ck_assert_msg(hec_cluster_load("p4d-4x8", &arena, &cluster) == HEC_OK, "%s", hec_last_error());
  ck_assert_msg(hec_moe_load("gpt-moe-s", &moe) == HEC_OK, "%s", hec_last_error());
  ck_assert_msg(hec_problem_make(&moe, &cluster, true, 32, 8192, &problem) == HEC_OK, "%s", hec_last_error());
  for (int32_t m = 0; m < 3; m++) {
    static const int32_t limit[] = {HEC_AUTO, 4, 30};
    problem.m = limit[m];
    hec_policy_run run = hec_policy_start(&hec_policy_hecate, &problem, &arena);
    hec_load load[16];
    uint64_t seed = 35, decide_units = 0, refine_units = 0;
    double decide_ns = 0, refine_ns = 0;
    int64_t n = 0, added = 0;
    double heat[12][64];
    for (int32_t l = 0; l < 12; l++)
      for (int32_t e = 0; e < 64; e++)
        heat[l][e] = 1 / (hec_test_uniform(&seed) + 0.02);
    for (int32_t k = 0; k < 16; k++) { /* drifting heat */
      load[k] = hec_load_new(&arena, 12, 32, 64);
      for (int32_t l = 0; l < 12; l++) {
        double sum = 0;
        for (int32_t e = 0; e < 64; e++)
          sum += heat[l][e] *= 0.8 + 0.4 * hec_test_uniform(&seed);
        for (int32_t s = 0; s < 32; s++)
          for (int32_t e = 0; e < 64; e++)
            hec_load_row(&load[k], l, s)[e] =
                (uint32_t)(16384 * heat[l][e] / sum * (0.7 + 0.6 * hec_test_uniform(&seed)));
      }
    }
    for (int64_t iter = 0; iter < 320; iter++) {
      int64_t k = iter % 32 < 16 ? iter % 16 : 15 - iter % 16; /* there and back: no jump at the end */
      double begin = now_ns();
      hec_policy_decide(&run, iter, 0);
      double middle = now_ns();
      decide_units += run.units;
      int32_t before = run.plan.copy_at[64];
      for (int32_t l = 0; l < 12; l++) {
        hec_policy_refine(&run, l, &load[k]);
        refine_units += run.units;
      }
      double end = now_ns();
      added += run.plan.copy_at[64] - before;
      decide_ns += middle - begin;
      refine_ns += end - middle;
      n++;
      hec_history_push(&run.history, &load[k]);
    }
    printf("hecate, 12 layers x 64 experts x 32 ranks, t %d, m %d: decide %.0f ns (%.0f units), refine %.0f ns a layer "
           "(%.0f units), "
           "%.1f copies added in layer 0\n",
           run.t[0], run.m[0], decide_ns / (double)n, (double)decide_units / (double)n, refine_ns / (double)n / 12,
           (double)refine_units / (double)n / 12, (double)added / (double)n);
    hec_policy_stop(&run);
  }
  hec_arena_free(&arena);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("plan.hecate");
  TCase *cases = tcase_create("hecate");
  tcase_set_timeout(cases, 60);
  tcase_add_test(cases, test_spread_cost);
  tcase_add_test(cases, test_calibrate_equals_trying_everything);
  tcase_add_test(cases, test_rows_on_random_problems);
  tcase_add_test(cases, test_schedule_of_decisions);
  tcase_add_test(cases, test_rematerialisation_raises_m);
  tcase_add_test(cases, test_no_allocation_after_start);
  suite_add_tcase(suite, cases);
  TCase *timing = tcase_create("timing");
  tcase_add_test(timing, test_print_planning_time);
  suite_add_tcase(suite, timing);
  return suite;
}

HEC_TEST_MAIN(make_suite)
