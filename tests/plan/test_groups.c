/* Expert-parallel groups: sizes that fit, parts of clusters, and what holds for every row of the policy table where there
 * are several groups:
 *
 *   a row works inside groups, or its row says that it places experts over all ranks
 *   inside groups: every group has every expert, every assignment is computed once, by a rank of its own group, guests come
 *   from who keeps the expert in their group, and the plan is that of each group alone */
#include "runtime/plan/collective.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

#define BOX "2x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G"

HEC_TEST(sizes) {
  hec_problem *p = hec_test_problem(&arena, BOX, 16, 1, 12, 1, true);
  static const int32_t fit[] = {1, 2, 4, 8}, bad[] = {-2, 3, 5, 6, 12, 16, 17};
  ck_assert(p->ep == 8 && p->dp == 2);
  for (size_t i = 0; i < sizeof fit / sizeof *fit; i++) {
    ck_ok(hec_problem_group(p, fit[i]));
    ck_assert(p->ep == fit[i] && p->ep * p->dp == 16);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    ck_refused(hec_problem_group(p, bad[i]), "16 ranks that is at most the 12 experts (1, 2, 4 or 8)");
    ck_assert(p->ep == 8);
  }
  ck_assert(hec_problem_group(p, 0) == HEC_OK && p->ep == 8);
  ck_ok(hec_problem_group(p, 4));
  ck_assert(hec_problem_shard(p, 2) == HEC_BAD_INPUT); /* 6 groups of sharding groups: two layouts in one */
  ck_assert(strstr(hec_last_error(), "`ep`") != NULL);
}

/* Links are the whole's: rates and latencies of every route, in whole nodes, inside one, and across borders of nodes. */
HEC_TEST(parts_of_clusters) {
  static const char *const lines[] = {
      "3x4 nvlink=300G@2us nic=50G@5us nics=2 flops=312T mem=40G",
      "4x8 nvlink=300G@2us nic=50G@5us nics=8 pxn=1 leaf=2 uplink=100G@1us flops=312T mem=40G",
      "6x1 nic=50G@5us flops=312T mem=40G"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    hec_cluster whole;
    ck_ok(hec_cluster_parse_line(lines[i], &arena, &whole));
    for (int32_t n = 1; n <= whole.n_devices; n++)
      for (int32_t first = 0; first + n <= whole.n_devices; first += n) {
        hec_cluster part = hec_cluster_part(&whole, first, n, &arena);
        ck_assert(part.n_devices == n && part.n_nodes * part.devices_per_node == n);
        ck_assert(n == 1 || hec_cluster_node_bandwidth(&part, false) > 0);
        for (int32_t s = 0; s < n; s++)
          for (int32_t d = 0; d < n; d++) {
            const int32_t *a, *b;
            int32_t length = hec_cluster_route(&whole, first + s, first + d, &a);
            ck_assert_int_eq(hec_cluster_route(&part, s, d, &b), length);
            ck_assert(hec_cluster_latency_ps(&part, s, d) == hec_cluster_latency_ps(&whole, first + s, first + d));
            for (int32_t k = 0; k < length; k++)
              ck_assert(part.links[b[k]].kind == whole.links[a[k]].kind &&
                        part.links[b[k]].bandwidth == whole.links[a[k]].bandwidth);
            if (hec_cluster_node(&part, s) == hec_cluster_node(&part, d))
              ck_assert_int_eq(hec_cluster_node(&whole, first + s), hec_cluster_node(&whole, first + d));
          }
      }
  }
}

/* A group's sources alone. */
static hec_load load_of_group(const hec_problem *p, const hec_load *load, int32_t group) {
  hec_load own = hec_load_new(&arena, p->n_layers, p->ep, p->n_experts);
  for (int32_t l = 0; l < p->n_layers; l++)
    for (int32_t s = 0; s < p->ep; s++)
      memcpy(hec_load_row(&own, l, s), hec_load_row(load, l, group * p->ep + s),
             (size_t)p->n_experts * sizeof *own.counts);
  return own;
}

static void step(hec_policy_run *run, hec_load *load, int64_t iter) {
  hec_policy_rewrite(run, load);
  hec_policy_decide(run, iter, 0);
  for (int32_t l = 0; l < run->problem->n_layers; l++)
    hec_policy_refine(run, l, load);
  hec_policy_observe(run, load);
}

static void check_guests(const hec_policy_run *run, hec_sparse *sparse, int32_t layer) {
  const hec_plan *plan = &run->plan;
  int32_t ep = run->problem->ep, guests = 0;
  hec_sparse_guests(sparse, plan, layer, HEC_GUESTS_ANY, NULL);
  for (int32_t i = 0; i < sparse->n_items; i++)
    for (int32_t k = sparse->receiver_at[i]; k < sparse->receiver_at[i + 1]; k++) {
      ck_assert_int_eq(sparse->receiver[k] / ep, sparse->owner[i] / ep);
      ck_assert(hec_plan_holds(plan, layer, sparse->expert[i], sparse->owner[i]));
      guests++;
    }
  for (int32_t e = 0; e < plan->n_experts; e++) {
    hec_copies copies = hec_plan_copies(plan, layer, e);
    for (int32_t i = 0; i < copies.n; i++)
      guests -= copies.kind[i] == HEC_COPY_GUEST;
    for (int32_t first = 0; first < plan->n_ranks; first += ep)
      ck_assert_int_eq(hec_plan_keeper(plan, layer, e, first) / ep, first / ep);
  }
  ck_assert_int_eq(guests, 0);
}

static void check_tokens(const hec_policy_run *run, hec_routing *routing, const hec_load *load, int32_t layer) {
  const hec_problem *p = run->problem;
  hec_routing_make(routing, run->policy->dispatch, p, &run->plan, load, layer);
  for (int32_t s = 0; s < p->n_ranks; s++) {
    uint64_t sent = 0, computed = 0;
    for (int32_t e = 0; e < p->n_experts; e++)
      sent += hec_load_row(load, layer, s)[e];
    for (int32_t d = 0; d < p->n_ranks; d++) {
      uint32_t n = routing->pair[s * p->n_ranks + d];
      computed += n;
      ck_assert_msg(n == 0 || s / p->ep == d / p->ep || run->policy->all_ranks, "%s: tokens leave their group",
                    run->policy->name);
    }
    ck_assert_uint_eq(sent, computed);
  }
}

static uint64_t largest_units(const hec_policy_run *runs, int32_t n) {
  uint64_t max = 0;
  for (int32_t g = 0; g < n; g++)
    max = runs[g].units > max ? runs[g].units : max;
  return max;
}

/* Each group alone, on a problem of its own, decides the same. */
static void check_alone(const hec_policy_run *run, const hec_policy_run *alone) {
  const hec_problem *p = run->problem;
  for (int32_t g = 0; g < p->dp; g++)
    for (int32_t l = 0; l < p->n_layers; l++)
      for (int32_t e = 0; e < p->n_experts; e++)
        for (int32_t r = 0; r < p->ep; r++)
          ck_assert_int_eq(hec_plan_holds(&run->plan, l, e, g * p->ep + r), hec_plan_holds(&alone[g].plan, l, e, r));
  ck_assert_uint_eq(run->units, largest_units(alone, p->dp));
}

static void drive(const hec_policy *policy, const hec_problem *p, uint64_t seed) {
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(policy, p, &arena);
  hec_policy_run *alone = HEC_NEW(&arena, hec_policy_run, p->dp);
  hec_routing routing = hec_routing_new(&arena, p);
  size_t rows = (size_t)p->n_experts * (size_t)p->n_ranks;
  hec_sparse sparse = {.expert = HEC_NEW(&arena, int32_t, rows),
                       .owner = HEC_NEW(&arena, int32_t, rows),
                       .receiver_at = HEC_NEW(&arena, int32_t, rows + 1),
                       .receiver = HEC_NEW(&arena, int32_t, rows)};
  bool inside = !policy->all_ranks;
  ck_assert_int_eq(run.plan.width, inside ? p->ep : p->n_ranks);
  for (int32_t g = 0; inside && g < p->dp; g++) {
    hec_problem *own = HEC_NEW(&arena, hec_problem, 1);
    *own = hec_problem_of_group(p, g, &arena);
    alone[g] = hec_policy_start(policy, own, &arena);
  }
  for (int64_t iter = 0; iter < 4; iter++) {
    hec_load load = hec_test_random_load(&arena, p, &seed);
    for (int32_t g = 0; inside && g < p->dp; g++) {
      hec_load own = load_of_group(p, &load, g);
      step(&alone[g], &own, iter);
    }
    step(&run, &load, iter);
    hec_plan_check(&run.plan);
    for (int32_t l = 0; l < p->n_layers; l++) {
      check_tokens(&run, &routing, &load, l);
      if (inside)
        check_guests(&run, &sparse, l);
    }
    if (inside)
      check_alone(&run, alone);
  }
  for (int32_t g = 0; inside && g < p->dp; g++)
    hec_policy_stop(&alone[g]);
}

HEC_TEST_TABLE(every_row, hec_policies) {
  const hec_policy *policy = hec_policies[_i];
  uint64_t seed = 77;
  int grouped = 0;
  for (int round = 0; round < 24; round++) {
    uint64_t loads = hec_test_random(&seed);
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    int32_t ep = 1 + (int32_t)hec_test_below(&seed, (uint64_t)p->ep);
    while (p->n_ranks % ep != 0)
      ep--;
    p->period = 1;
    ck_ok(hec_problem_group(p, ep));
    grouped += p->dp > 1;
    if (p->dp > 1)
      drive(policy, p, loads);
    hec_arena_free(&arena);
  }
  ck_assert_int_ge(grouped, 8);
}
