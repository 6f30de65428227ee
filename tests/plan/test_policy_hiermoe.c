/* HierMoE's swaps: nodes before ranks where the network is slow, and no swap left that pays. */
#include "runtime/plan/policy.h"
#include "runtime/plan/rates.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)

static hec_policy_run decided(hec_problem *p, const hec_load *load) {
  hec_policy_run run = hec_policy_start(&hec_policy_hiermoe, p, &arena);
  hec_policy_observe(&run, load);
  hec_policy_decide(&run, 0, 0);
  hec_plan_check(&run.plan);
  return run;
}

/* Two hot ranks on one node. With a slow network a swap across nodes is best; on one node any other rank is as good. */
HEC_TEST(nodes_count) {
  static const uint32_t totals[8] = {60, 40, 50, 40, 10, 20, 10, 20};
  hec_problem *p = hec_test_problem(&arena, "2x2 nvlink=300G@2us nic=1G@5us flops=1000T mem=40G", 4, 1, 8, 2, true);
  hec_load load = hec_test_even_load(&arena, p, totals);
  HEC_SCOPED(hec_policy_run) run = decided(p, &load);
  uint64_t node = 0;
  for (int32_t e = 0; e < 8; e++)
    node += hec_plan_home(&run.plan, 0, e) < 2 ? totals[e] : 0;
  ck_assert(node >= 120 && node <= 130); /* of 250, 190 before */
}

/* The model from scratch: over all ranks and nodes. */
static double model(const hec_problem *p, const uint64_t *load, const int32_t *home) {
  hec_rates rates = hec_rates_of(p);
  uint64_t rank[16] = {0}, node[16] = {0}, max_rank = 0, max_node = 0;
  for (int32_t e = 0; e < p->n_experts; e++)
    for (int32_t group = 0; group < p->dp; group++) {
      rank[group * p->ep + home[e]] += load[e];
      node[hec_problem_node(p, group * p->ep + home[e])] += load[e];
    }
  for (int32_t r = 0; r < 16; r++) {
    max_rank = rank[r] > max_rank ? rank[r] : max_rank;
    max_node = node[r] > max_node ? node[r] : max_node;
  }
  double rows = (p->train ? 4 : 2) * p->bytes.token;
  double total = 0;
  for (int32_t r = 0; r < 16; r++)
    total += (double)rank[r];
  double once = total > 0 ? total / p->top_k * (1 - pow(1 - (double)max_node / total, p->top_k)) : 0;
  return ((p->train ? 3 : 1) * rates.assignment_s + rows / rates.port) * (double)max_rank +
         rows * (p->n_nodes - 1) / p->n_nodes / rates.node * once;
}

/* Never worse, every rank keeps its number of experts, and no pair of the busiest rank's is left that pays. */
HEC_TEST_LOOP(no_swap_left, 4) {
  uint64_t seed = 40 + (uint64_t)_i;
  int swapped = 0;
  for (int round = 0; round < 100; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    hec_test_one_group(&arena, p);
    hec_load load = hec_test_random_load(&arena, p, &seed);
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_hiermoe, p, &arena);
    int32_t before[40], home[40], count[16] = {0};
    uint64_t sum[40], rank[16] = {0};
    memcpy(before, run.plan.home, (size_t)p->n_experts * sizeof *before);
    hec_policy_observe(&run, &load);
    hec_policy_decide(&run, 0, 0);
    memcpy(home, run.plan.home, (size_t)p->n_experts * sizeof *home);
    hec_history_sum(&run.history, 0, 1, sum);
    for (int32_t e = 0; e < p->n_experts; e++) {
      count[before[e]]++;
      count[home[e]]--;
      rank[home[e]] += sum[e];
      swapped += home[e] != before[e];
    }
    int32_t hot = 0;
    for (int32_t r = 0; r < p->ep; r++) {
      ck_assert_int_eq(count[r], 0);
      hot = rank[r] > rank[hot] ? r : hot;
    }
    double now = model(p, sum, home);
    ck_assert(now <= model(p, sum, before));
    for (int32_t a = 0; a < p->n_experts; a++)
      for (int32_t b = 0; b < p->n_experts; b++) {
        if (home[a] != hot || home[b] == hot || sum[b] >= sum[a])
          continue;
        int32_t there = home[b];
        home[b] = home[a];
        home[a] = there;
        ck_assert(model(p, sum, home) >= now * (1 - 1e-12));
        home[a] = home[b];
        home[b] = there;
      }
  }
  ck_assert_int_gt(swapped, 50);
}
