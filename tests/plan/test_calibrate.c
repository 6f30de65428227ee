/* The price of sets of experts against lowering them, the layer model against routing every token, and calibration
 * against trying every expert from nothing. */
#include "runtime/plan/dispatch/dispatch.h"
#include "runtime/plan/planners/calibrate.h"
#include "runtime/plan/planners/fssdp.h"
#include "runtime/plan/planners/rank_set.h"
#include "tests/plan/plan_cases.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

enum { RANKS_MAX = 32, EXPERTS_MAX = 16 };

/* From the experts' homes to the ranks of `to` [n_experts][n_ranks]. */
static double lowered_cost(hec_case *c, hec_link_cost *cost, const int32_t *home, bool to[EXPERTS_MAX][RANKS_MAX],
                           double bytes, bool scatter) {
  static hec_sparse_case s;
  hec_sparse_case_begin(&s, bytes);
  for (int32_t e = 0; e < c->problem.n_experts; e++)
    hec_sparse_case_add(&s, e, home[e], c->problem.n_ranks, to[e]);
  return hec_sparse_case_s(&s, cost, &c->problem, scatter);
}

/* The row told from patterns is the row that lowering and pricing all of them chooses. */
HEC_TEST(test_spread_choose) {
  uint64_t seed = 36;
  int32_t wins[3] = {0};
  for (int32_t k = 0; k < 200; k++) {
    double bytes = (double)hec_test_below(&seed, hec_test_below(&seed, 2) ? 50000000 : 50000);
    HEC_OPENED(hec_case) *c = hec_case_random(&seed, 1, 12, bytes);
    int32_t D = c->problem.n_ranks, n_items = 1 + (int32_t)hec_test_below(&seed, 12);
    static hec_sparse_case sparse;
    hec_sparse_case_begin(&sparse, bytes);
    for (int32_t i = 0; i < n_items; i++)
      hec_sparse_case_add(&sparse, i, (int32_t)hec_test_below(&seed, (uint64_t)D), D, NULL);
    hec_sparse s = sparse.sparse;
    hec_rank_links links = hec_rank_links_new(&c->arena, &c->problem);
    HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&c->cluster, &c->arena);
    for (int32_t scatter = 0; scatter < 2; scatter++) {
      hec_spread spread = hec_spread_new(&c->arena, &c->problem, &links, bytes, scatter);
      hec_spread_sum sum = hec_spread_sum_new(&c->arena, &spread);
      HEC_SCOPED(hec_collective_plan) out = {0}, scratch = {0};
      const hec_collective *row = hec_collective_choose(&cost, &c->problem, &s, scatter, NULL, &out, &scratch);
      ck_assert_ptr_eq(hec_spread_choose(&spread, &s, &sum), row);
      for (int32_t i = 0; i < 3; i++)
        wins[i] += row == hec_collectives[i];
      if (D > 1) { /* the last expert leaves a rank out: its pattern is no ready one */
        sparse.at[n_items]--;
        row = hec_collective_choose(&cost, &c->problem, &s, scatter, NULL, &out, &scratch);
        ck_assert_ptr_eq(hec_spread_choose(&spread, &s, &sum), row);
        sparse.at[n_items]++;
      }
    }
  }
  ck_assert(wins[0] > 0 && wins[1] > 0 && wins[2] > 0);
}

static const uint64_t *set_of(const int32_t *ranks, int32_t n) {
  static uint64_t set[(RANKS_MAX + 63) / 64];
  memset(set, 0, sizeof set);
  for (int32_t i = 0; i < n; i++)
    hec_rank_set_add(set, ranks[i]);
  return set;
}

HEC_TEST(test_spread_cost) {
  uint64_t seed = 31;
  for (int32_t k = 0; k < 150; k++) {
    int32_t E = 1 + (int32_t)hec_test_below(&seed, 12);
    double bytes = (double)hec_test_below(&seed, 30000000);
    HEC_OPENED(hec_case) *c = hec_case_random(&seed, 1, E, bytes);
    int32_t D = c->problem.n_ranks, home[EXPERTS_MAX];
    bool scatter = hec_test_below(&seed, 2) == 0;
    hec_rank_links links = hec_rank_links_new(&c->arena, &c->problem);
    hec_spread spread = hec_spread_new(&c->arena, &c->problem, &links, bytes, scatter);
    hec_spread_sum sum = hec_spread_sum_new(&c->arena, &spread);
    const hec_spread_sum nothing = hec_spread_sum_new(&c->arena, &spread);
    HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&c->cluster, &c->arena);
    static bool to[EXPERTS_MAX][RANKS_MAX];
    memset(to, 0, sizeof to);
    for (int32_t e = 0; e < E; e++) { /* one more expert at a time */
      int32_t receivers[RANKS_MAX], n = 0;
      home[e] = (int32_t)hec_test_below(&seed, (uint64_t)D);
      uint64_t chance = 1 + hec_test_below(&seed, 4);
      for (int32_t r = 0; r < D; r++)
        if (r != home[e] && (to[e][r] = hec_test_below(&seed, 4) < chance))
          receivers[n++] = r;
      hec_spread_pattern pattern =
          n == D - 1 ? spread.everywhere[home[e]] : hec_spread_item(&spread, home[e], set_of(receivers, n));
      double with_s = hec_spread_cost_with(&spread, &sum, &pattern);
      bool away = false;
      for (int32_t i = 0; i < n; i++)
        away = away || hec_problem_node(&c->problem, receivers[i]) != hec_problem_node(&c->problem, home[e]);
      ck_assert(scatter || !away || hec_spread_cost_out(&spread, &sum, home[e]) <= with_s);
      hec_spread_add(&spread, &sum, &pattern);
      ck_assert(with_s == hec_spread_cost(&spread, &sum));
      ck_assert(with_s == lowered_cost(c, &cost, home, to, bytes, scatter));
      if (n == D - 1)
        ck_assert(spread.everywhere_s[home[e]] == hec_spread_cost_with(&spread, &nothing, &pattern));
    }
  }
}

/* Patterns that are kept are those that are made anew, also when the memory for them was full. */
HEC_TEST(test_spread_memo) {
  uint64_t seed = 33;
  HEC_OPENED(hec_case) *c = hec_case_new("4x8 nvlink=300G@2us nic=50G@10us flops=312T mem=40G", 32, 1, 64, 5e6);
  hec_rank_links links = hec_rank_links_new(&c->arena, &c->problem);
  hec_spread kept = hec_spread_new(&c->arena, &c->problem, &links, 5e6, false);
  const hec_spread_sum nothing = hec_spread_sum_new(&c->arena, &kept);
  int32_t again = 0, forgotten = 0;
  for (int32_t k = 0; k < 6000; k++) {
    int32_t receivers[RANKS_MAX], n = 0, owner = (int32_t)hec_test_below(&seed, 32);
    uint64_t few = hec_test_below(&seed, 2); /* few different sets, or one that never comes again */
    for (int32_t r = 0; r < 32; r++)
      if (r != owner && (few ? r % 8 == (int32_t)(seed >> 61) : hec_test_below(&seed, 3) == 0))
        receivers[n++] = r;
    int32_t in_use = kept.memo.entries.n;
    hec_spread_pattern pattern = hec_spread_item(&kept, owner, set_of(receivers, n));
    again += kept.memo.entries.n == in_use;
    forgotten += kept.memo.entries.n < in_use;
    double kept_s = hec_spread_cost_with(&kept, &nothing, &pattern);
    hec_sparse sparse = {.n_items = 1,
                         .n_slices = 1,
                         .expert = (int32_t[]){0},
                         .owner = &owner,
                         .receiver_at = (int32_t[]){0, n},
                         .receiver = receivers,
                         .bytes = 5000000};
    HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&c->cluster, &c->arena);
    HEC_SCOPED(hec_collective_plan) out = {0}, scratch = {0};
    (void)hec_collective_choose(&cost, &c->problem, &sparse, false, NULL, &out, &scratch);
    ck_assert(kept_s == hec_collective_cost(&cost, &out));
  }
  ck_assert_msg(again > 500 && forgotten > 0, "%d %d", again, forgotten);
}

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

/* Routes without heads and tails, all middle, say the same. */
static void check_middles(hec_case *c, hec_layer_model model, int32_t expert, const int32_t *holders, int32_t n,
                          const double *part) {
  double *walked = HEC_NEW(&c->arena, double, model.n_cells);
  model.head = model.tail = HEC_NEW(&c->arena, hec_layer_way, 2 * (size_t)c->problem.n_ranks);
  model.middles = true;
  hec_layer_model_part(&model, expert, holders, n, walked);
  for (int32_t cell = 0; cell < model.n_cells; cell++)
    ck_assert(walked[cell] == part[cell]);
}

/* Any plan, and any plan that differs from it in one expert: the model's time is that of routing every token. */
HEC_TEST(test_layer_model) {
  uint64_t seed = 37;
  for (int32_t k = 0; k < 200; k++) {
    int32_t E = 1 + (int32_t)hec_test_below(&seed, 10);
    HEC_OPENED(hec_case) *c = hec_case_random(&seed, 2, E, 1000);
    hec_problem *p = &c->problem;
    p->train = hec_test_below(&seed, 2);
    p->expert.bytes_per_row = 77;
    hec_load load = hec_load_new(&c->arena, 2, p->n_ranks, E);
    for (int32_t s = 0; s < p->n_ranks; s++) /* few tokens: remainders matter */
      for (int32_t e = 0; e < E; e++)
        hec_load_row(&load, 1, s)[e] = (uint32_t)hec_test_below(&seed, 12);
    hec_plan plan = hec_plan_new(&c->arena, p, 1);
    int32_t changed = (int32_t)hec_test_below(&seed, (uint64_t)E), holders[2 * RANKS_MAX];
    for (int32_t e = 0; e < E; e++) {
      hec_plan_set_home(&plan, 1, e, (int32_t)hec_test_below(&seed, (uint64_t)p->n_ranks));
      uint64_t chance = e == changed ? 0 : hec_test_below(&seed, 5);
      for (int32_t r = 0; r < p->n_ranks; r++)
        if (r != hec_plan_home(&plan, 1, e) && hec_test_below(&seed, 4) < chance)
          hec_plan_add_copy(&plan, 1, e, r, HEC_COPY_GUEST);
    }
    hec_rank_links links = hec_rank_links_new(&c->arena, p);
    hec_layer_model model = hec_layer_model_new(&c->arena, p, &links);
    hec_routing routing = hec_routing_new(&c->arena, p);
    double *part = HEC_NEW(&c->arena, double, model.n_cells);
    hec_layer_model_set(&model, &plan, 1, hec_load_row(&load, 1, 0), holders);
    ck_assert(hec_layer_model_total(&model, hec_layer_model_time(&model)) ==
              plain_layer_s(c, &routing, &plan, 1, &load));
    for (int32_t r = 0; r < p->n_ranks; r++)
      if (r != hec_plan_home(&plan, 1, changed) && hec_test_below(&seed, 2))
        hec_plan_add_copy(&plan, 1, changed, r, HEC_COPY_GUEST);
    double with_s = plain_layer_s(c, &routing, &plan, 1, &load);
    int32_t n = hec_plan_holders(&plan, 1, changed, holders);
    hec_layer_model_busiest(&model);
    hec_layer_time min = hec_layer_model_min(&model, changed, 1 + k % HEC_LAYER_BUSIEST);
    hec_layer_time now = hec_layer_model_time(&model);
    int32_t movers[EXPERTS_MAX], n_movers = hec_layer_model_movers(&model, movers);
    for (int32_t e = 0, next = 0; e < p->n_experts; e++) {
      hec_layer_time without = hec_layer_model_min(&model, e, 1);
      bool moves = next < n_movers && movers[next] == e;
      next += moves;
      ck_assert(moves || (without.a2a_s == now.a2a_s && without.compute_s == now.compute_s));
    }
    hec_layer_model_part(&model, changed, holders, n, part);
    ck_assert(hec_layer_model_total(&model, hec_layer_model_time_with(&model, changed, part)) == with_s);
    ck_assert(hec_layer_model_total(&model, min) <= with_s);
    check_middles(c, model, changed, holders, n, part);
    if (n == p->n_ranks)
      ck_assert(hec_layer_model_total(&model, hec_layer_model_time_with(&model, changed, NULL)) == with_s);
    hec_layer_model_replace(&model, changed, n == p->n_ranks ? NULL : part);
    ck_assert(hec_layer_model_total(&model, hec_layer_model_time(&model)) == with_s);
  }
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
    hec_copies copies = hec_plan_copies(plan, x->layer, e);
    for (int32_t i = 0; i < copies.n; i++) {
      guests[e][copies.rank[i]] = true;
      added[e][copies.rank[i]] = !x->before[e][copies.rank[i]];
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
  int32_t E = 1 + (int32_t)hec_test_below(seed, 14);
  double bytes = (double)hec_test_below(seed, hec_test_below(seed, 2) ? 1000000 : 30000);
  HEC_OPENED(hec_case) *c = hec_case_random(seed, 2, E, bytes);
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
  hec_case_random_counts(seed, &load);
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
  return added;
}

/* 32 ranks with 4 experts each, few of them hot: how much of the layer's time is left after calibration with `some`. */
static double left_after_some(uint64_t *seed) {
  enum { RANKS = 32, EXPERTS = 128 };
  HEC_OPENED(hec_case) *c = hec_case_new("4x8 nvlink=300G@2us nic=12G@5us flops=150T mem=40G", RANKS, 1, EXPERTS, 1e7);
  hec_problem *p = &c->problem;
  p->bytes.token = 4096;
  p->expert.flops_per_row = 1e7;
  hec_load load = hec_load_new(&c->arena, 1, RANKS, EXPERTS);
  double weight[EXPERTS], sum = 0;
  for (int32_t e = 0; e < EXPERTS; e++)
    sum += weight[e] = exp(2 * hec_test_uniform(seed) + 2 * hec_test_uniform(seed) + 2 * hec_test_uniform(seed));
  for (int32_t r = 0; r < RANKS; r++)
    for (int32_t e = 0; e < EXPERTS; e++)
      hec_load_row(&load, 0, r)[e] = (uint32_t)(100000 * weight[e] / sum * (0.9 + 0.2 * hec_test_uniform(seed)));
  hec_plan plan = hec_plan_new(&c->arena, p, 1);
  for (int32_t e = 0; e < EXPERTS; e++)
    hec_plan_set_home(&plan, 0, e, e * RANKS / EXPERTS);
  hec_rank_links links = hec_rank_links_new(&c->arena, p);
  hec_spread gather = hec_spread_new(&c->arena, p, &links, p->bytes.expert_param, false);
  hec_spread scatter = hec_spread_new(&c->arena, p, &links, p->bytes.expert_grad, true);
  hec_calibrate calibrate = hec_calibrate_new(&c->arena, p, &links, &gather, &scatter, false);
  calibrate.some = true;
  int32_t holders[2 * RANKS];
  uint64_t units = 0;
  hec_layer_model_set(&calibrate.model, &plan, 0, hec_load_row(&load, 0, 0), holders);
  double before_s = hec_layer_model_total(&calibrate.model, hec_layer_model_time(&calibrate.model));
  (void)hec_calibrate_layer(&calibrate, &plan, 0, &load, EXPERTS, &units);
  hec_plan_check(&plan);
  hec_layer_model_set(&calibrate.model, &plan, 0, hec_load_row(&load, 0, 0), holders);
  return hec_layer_model_total(&calibrate.model, hec_layer_model_time(&calibrate.model)) / before_s;
}

/* The best expert of every step left 0.60 of the time: it sooner stands where no expert gains by itself. */
HEC_TEST(test_some_copies_go_on) {
  uint64_t seed = 7;
  double sum = 0;
  for (int32_t k = 0; k < 20; k++)
    sum += left_after_some(&seed);
  ck_assert_msg(sum / 20 < 0.5, "%.3f", sum / 20);
}

HEC_TEST(test_calibrate_equals_trying_everything) {
  uint64_t seed = 32;
  int32_t some = 0, several = 0, n_limited = 0;
  for (int32_t k = 0; k < 250; k++) {
    bool limited;
    int32_t added = calibrate_once(&seed, &limited);
    some += added > 0;
    several += added > 2;
    n_limited += limited;
  }
  ck_assert_msg(some > 50 && some < 225 && several > 15 && n_limited > 10, "%d %d %d", some, several, n_limited);
}
