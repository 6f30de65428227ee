/* The bound of expert-sharding groups. Never above what any policy that runs with them takes, under any schedule and
 * either law. Nor above the best of every placement of small instances. And reached where nothing but what it counts
 * takes time. */
#include "runtime/plan/bound/bound.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static double bound_of(hec_bound *bound, const hec_load *loads, hec_bound_case options) {
  hec_bound_begin(bound, options);
  for (int32_t mb = 0; mb < options.n_micro_batches; mb++)
    hec_bound_add(bound, &loads[mb]);
  return hec_bound_end(bound).total_s;
}

/* What a policy with sharding groups takes under a schedule against the bound; returns their ratio. */
static double compare(const hec_test_case *c, hec_bound *bound, const hec_policy *policy, const hec_schedule *schedule,
                      const hec_law *law) {
  HEC_SCOPED(hec_arena) own = {0};
  const hec_load *given = c->loads;
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(&c->problem, policy, schedule, NULL, &own);
  hec_test_step step = {.c = c, .policy = policy, .schedule = schedule, .low = low, .loads = given};
  hec_load *loads = HEC_NEW(&own, hec_load, c->n_micro_batches);
  for (int32_t mb = 0; mb < c->n_micro_batches; mb++)
    loads[mb] = hec_test_actual_load(&step, mb, &own);
  hec_lower_iteration(low, 1, given, c->n_micro_batches, c->n_micro_batches);
  step.program = hec_lowering_program(low);
  int64_t rounding = (int64_t)step.program->n_ops; /* to a picosecond, each operation */
  double s = 1e-12 * (double)(hec_test_end_ps(&c->problem, step.program, law, (hec_sim_options){0}) + rounding);
  hec_bound_class class = hec_bound_class_of(policy, &c->problem);
  double bound_s = bound_of(bound, loads,
                            (hec_bound_case){.class = class,
                                             .tokens_wait = schedule->tokens_wait,
                                             .by_node = schedule->by_node,
                                             .closed_form = law == &hec_law_alpha_beta,
                                             .n_micro_batches = c->n_micro_batches});
  ck_assert_int_eq((int)class, HEC_BOUND_WHOLE);
  ck_assert_msg(s * (1 + 1e-9) >= bound_s, "%.9g s, bound %.9g s (%s, groups of %d, mp %d): %s", s, bound_s,
                hec_law_name(law), c->problem.esp, c->problem.mp, hec_test_step_name(&step));
  return bound_s / s;
}

/* The case with groups; false: it has none. Now and then the dense part is shared as well. */
static bool with_groups(hec_test_case *c, uint64_t *seed) {
  const hec_problem *p = &c->problem;
  int32_t per_node = c->cluster.devices_per_node;
  for (int32_t esp = hec_test_below(seed, 2) ? 4 : 2; esp > 1; esp /= 2) {
    if (p->n_ranks % esp != 0 || per_node % esp != 0 || c->moe.d_ffn % esp != 0 || p->n_ranks / esp > c->moe.n_experts)
      continue;
    ck_ok(hec_problem_shard(&c->problem, esp));
    if (hec_test_below(seed, 3) == 0)
      ck_ok(hec_problem_tensor(&c->problem, 2));
    return true;
  }
  return false;
}

static void run(uint64_t first, hec_test_wish wish, const hec_law *law) {
  int32_t n = 0;
  for (uint64_t i = 0; n == 0; i++) { /* the first case from here that can have groups */
    uint64_t seed = first + i;
    hec_test_case *c = hec_test_random_case(&arena, &seed, wish);
    if (!with_groups(c, &seed))
      continue;
    hec_bound *bound = hec_bound_new(&c->problem, &arena);
    for (int32_t p = 0; hec_policies[p]; p++)
      for (int32_t s = 0; hec_policies[p]->shards && hec_schedules[s]; s++)
        n += !hec_schedules[s]->bound && compare(c, bound, hec_policies[p], hec_schedules[s], law) > 0;
  }
}

HEC_TEST_LOOP(alpha_beta, hec_test_cases(160)) {
  run(1000 + 60 * (uint64_t)_i, (hec_test_wish){.no_overhead = _i % 2 == 0}, &hec_law_alpha_beta);
}
HEC_TEST_LOOP(max_min, hec_test_cases(64)) {
  run(9000 + 60 * (uint64_t)_i, (hec_test_wish){.no_overhead = _i % 2 == 0, .comm_share = _i % 5 == 0},
      &hec_law_max_min);
}

/* Homes as written here: group[e] of a placement. */
static int32_t group_of[8];
static void place(hec_policy_run *run) {
  hec_plan_set_contiguous(&run->plan, run->problem);
  for (int32_t l = 0; l < run->problem->n_layers; l++)
    for (int32_t e = 0; e < run->problem->n_experts; e++)
      hec_plan_set_home(&run->plan, l, e, group_of[e] * run->problem->esp);
}

static hec_policy anywhere(void) {
  hec_policy policy = hec_policy_ep;
  policy.name = "anywhere";
  policy.init = place;
  return policy;
}

/* Two or three groups of two or four ranks, up to five experts, links from nothing to everything: every placement. */
HEC_TEST_LOOP(every_placement, hec_test_cases(224)) {
  static const int shapes[][3] = {{1, 4, 2}, {2, 2, 2}, {3, 2, 2}, {1, 8, 4}, {2, 4, 4}, {2, 4, 2}, {1, 2, 2}};
  uint64_t seed = 70 + (uint64_t)_i;
  const int *shape = shapes[_i % 7];
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.no_overhead = true, .uniform = true});
  char line[200];
  (void)snprintf(line, sizeof line, "%dx%d nvlink=%dM nic=%dM flops=%dG mem=40G hbm=%dG a=0s c=0s launch=0s tile=1",
                 shape[0], shape[1], 10 << hec_test_below(&seed, 12), 10 << hec_test_below(&seed, 12),
                 1 << hec_test_below(&seed, 12), 1 << hec_test_below(&seed, 12));
  int32_t ranks = shape[0] * shape[1], groups = ranks / shape[2];
  c->moe.n_experts = groups + (int32_t)hec_test_below(&seed, (uint64_t)(6 - groups));
  c->moe.top_k = 1;
  c->moe.d_ffn = 128;
  c->moe.n_layers = c->moe.n_moe_layers = 1;
  c->problem.n_ranks = ranks;
  hec_test_recluster(c, line, &arena);
  ck_ok(hec_problem_shard(&c->problem, shape[2]));
  c->n_micro_batches = 1;
  hec_load load = hec_load_new(&arena, 1, ranks, c->moe.n_experts);
  for (int32_t i = 0; i < ranks * c->moe.n_experts; i++)
    load.counts[i] = (uint32_t)(hec_test_below(&seed, 4) ? hec_test_below(&seed, 400) : 0);
  c->loads = &load;
  hec_bound *bound = hec_bound_new(&c->problem, &arena);
  hec_policy policy = anywhere();
  const char *const schedules[] = {"serial", "deepspeed", "pipemoe", "fsmoe"};
  int32_t n = 1;
  for (int32_t e = 0; e < c->moe.n_experts; e++)
    n *= groups;
  double nearest = 0;
  for (int32_t code = 0; code < n; code++) {
    for (int32_t e = 0, rest = code; e < c->moe.n_experts; e++, rest /= groups)
      group_of[e] = rest % groups;
    for (int32_t s = code % 2; s < 4; s += 2) {
      const hec_law *law = (code / 2 + s) % 4 == 3 ? &hec_law_max_min : &hec_law_alpha_beta;
      double near = compare(c, bound, &policy, hec_schedule_find(schedules[s]), law);
      nearest = near > nearest ? near : nearest;
    }
  }
  ck_assert_msg(nearest > 0.2, "the best placement takes %.3g times the bound: %s", 1 / nearest, c->line);
}

/* As many groups as experts, everybody sends the same to each. The exchanges between groups, inside them, additions, permutes
 * and experts are all the bound counts, and all that there is. */
HEC_TEST_LOOP(reached, 12) {
  uint64_t seed = 3 + (uint64_t)_i;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.no_overhead = true, .uniform = true});
  int32_t esp = _i % 2 ? 4 : 2;
  char line[200];
  (void)snprintf(line, sizeof line, "1x%d nvlink=%dM flops=%dG mem=40G hbm=%dG a=0s c=0s launch=0s plan=0s@0s tile=1",
                 2 * esp, 100 << hec_test_below(&seed, 8), 100 << hec_test_below(&seed, 10),
                 20 << hec_test_below(&seed, 4));
  c->moe.n_experts = 2;
  c->moe.top_k = 1;
  c->moe.d_model = 512;
  c->moe.d_ffn = 2048;
  c->moe.n_shared_experts = 0; /* `serial` does not compute them beside the dispatch */
  c->moe.n_layers = c->moe.n_moe_layers;
  c->moe.tokens_per_rank = 4000;
  c->problem.n_ranks = 2 * esp;
  c->problem.tokens = 4000;
  hec_test_recluster(c, line, &arena);
  ck_ok(hec_problem_shard(&c->problem, esp));
  c->n_micro_batches = 1;
  hec_load load = hec_load_new(&arena, c->problem.n_layers, 2 * esp, 2);
  for (int32_t i = 0; i < c->problem.n_layers * 4 * esp; i++)
    load.counts[i] = 2000;
  c->loads = &load;
  hec_bound *bound = hec_bound_new(&c->problem, &arena);
  double near = compare(c, bound, hec_policy_find("ep"), hec_schedule_find("serial"), &hec_law_alpha_beta);
  ck_assert_msg(near >= 0.998 && near <= 1, "bound over time %.6g: %s", near, c->line);
}

/* All tokens to one expert, whose group is in one node with all sources: by hand, forward. */
HEC_TEST(one_hot_expert) {
  hec_problem *p = hec_test_problem(
      &arena, "1x4 nvlink=20G flops=10T eff=1 mem=40G hbm=1000000G a=0s c=0s launch=0s tile=1", 4, 1, 4, 1, false);
  ck_ok(hec_problem_shard(p, 2));
  hec_load load = hec_load_new(&arena, 1, 4, 4), none = hec_load_new(&arena, 1, 4, 4);
  for (int32_t s = 0; s < 4; s++)
    hec_load_row(&load, 0, s)[2] = 3000;
  hec_bound *bound = hec_bound_new(p, &arena);
  hec_bound_case options = {.class = HEC_BOUND_WHOLE, .tokens_wait = true, .closed_form = true, .n_micro_batches = 1};
  double more = bound_of(bound, &load, options) - bound_of(bound, &none, options);
  /* each rank of the group takes 3000 rows in, then the 6000 that arrived at the other; computes 12000 halves; gives back */
  double row_s = 128 / 20e9, wanted = 3000 * row_s + 6000 * row_s + 12000 * 2.0 * 2 * 64 * 64 / 10e12 + 6000 * row_s;
  ck_assert_double_eq_tol(more, wanted, 1e-3 * wanted);
}
