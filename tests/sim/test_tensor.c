/* Tensor parallelism under the laws of the network: nothing is below its bound, nor below `ideal`; an all-reduce among ranks
 * of equal place alone, closed form against flows. */
#include "models/link_cost.h"
#include "runtime/plan/bound/bound.h"
#include "tests/support/check_main.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"

#include <stdlib.h>
#include <string.h>

static hec_arena arena;
static void teardown(void) {
  hec_arena_free(&arena);
}

static int64_t time_of(const hec_problem *problem, const hec_program *program, const hec_law *law) {
  hec_arena own = {0};
  hec_sim *sim = hec_sim_new(problem, law, &own);
  hec_timeline timeline = {0};
  hec_sim_run(sim, program, (hec_sim_options){0}, &timeline);
  hec_timeline_check(&timeline, program);
  int64_t end = hec_timeline_end_ps(&timeline);
  hec_timeline_free(&timeline);
  hec_sim_free(sim);
  hec_arena_free(&own);
  return end;
}

static bool widen(hec_test_case *c) {
  for (int32_t mp = 4; mp > 1; mp /= 2)
    if (c->problem.n_ranks % mp == 0 && c->cluster.devices_per_node % mp == 0)
      return hec_problem_tensor(&c->problem, mp) == HEC_OK;
  return false;
}

typedef struct {
  const hec_law *law;
  hec_bound *bound;
  bool fill, uniform;
  int64_t ideal_ps[16];
  int32_t n;
} context;

static void visit(const hec_test_step *step, void *given) {
  context *c = given;
  bool ideal = strcmp(step->policy->name, "ideal") == 0;
  if (c->fill != ideal)
    return;
  int64_t ps = time_of(&step->c->problem, step->program, c->law) + (int64_t)step->program->n_ops;
  if (ideal) {
    c->ideal_ps[step->iteration] = ps - (int64_t)step->program->n_ops;
    return;
  }
  if (c->uniform && !step->policy->drops)
    ck_assert_msg(ps >= c->ideal_ps[step->iteration], "%lld ps, ideal %lld ps: %s", (long long)ps,
                  (long long)c->ideal_ps[step->iteration], hec_test_step_name(step));
  hec_arena own = {0};
  hec_bound_begin(c->bound, (hec_bound_case){.class = hec_bound_class_of(step->policy, &step->c->problem),
                                             .tokens_wait = step->schedule->tokens_wait,
                                             .by_node = step->schedule->by_node,
                                             .closed_form = c->law == &hec_law_alpha_beta,
                                             .n_micro_batches = step->c->n_micro_batches});
  for (int32_t mb = 0; mb < step->c->n_micro_batches; mb++) {
    hec_load load = hec_test_actual_load(step, mb, &own);
    hec_bound_add(c->bound, &load);
  }
  hec_arena_free(&own);
  double bound_s = hec_bound_end(c->bound).total_s;
  ck_assert_msg((double)ps * 1e-12 * (1 + 1e-9) >= bound_s, "%.9g s, bound %.9g s (%s): %s", (double)ps * 1e-12,
                bound_s, hec_law_name(c->law), hec_test_step_name(step));
  c->n++;
}

static void run(uint64_t first, hec_test_wish wish, const hec_law *law) {
  context own = {.law = law, .uniform = wish.uniform};
  for (uint64_t i = 0; own.n == 0; i++) { /* the first case from here that has groups */
    uint64_t seed = first + i;
    hec_test_case *c = hec_test_random_case(&arena, &seed, wish);
    if (!widen(c))
      continue;
    own.bound = hec_bound_new(&c->problem, &arena);
    own.fill = true;
    c->only_policy = "ideal";
    hec_test_each(c, false, visit, &own);
    own.fill = false;
    c->only_policy = NULL;
    hec_test_each(c, false, visit, &own);
  }
}

START_TEST(alpha_beta) {
  run(20000 + 40 * (uint64_t)_i, (hec_test_wish){.uniform = _i % 2 == 0, .no_overhead = _i % 3 == 0},
      &hec_law_alpha_beta);
}
END_TEST
START_TEST(max_min) {
  run(30000 + 40 * (uint64_t)_i, (hec_test_wish){.uniform = _i % 2 == 0, .no_overhead = _i % 3 == 0}, &hec_law_max_min);
}
END_TEST

/* Without tokens for experts and with links inside nodes that take no time, the bound is what `ideal` takes. */
START_TEST(reached) {
  uint64_t seed = 50000 + (uint64_t)_i;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.no_overhead = true, .uniform = true});
  c->problem.n_ranks = 8;
  c->problem.train = true;
  hec_test_recluster(c, "2x4 nvlink=900P nic=1G flops=1T mem=40G hbm=900000000G a=0s c=0s launch=0s plan=0s@0s tile=1",
                     &arena);
  ck_assert(hec_problem_tensor(&c->problem, 1 << _i % 3) == HEC_OK);
  hec_load load = hec_load_new(&arena, c->problem.n_layers, 8, c->problem.n_experts);
  hec_lowering *low = hec_lowering_new(&c->problem, hec_policy_find("ideal"), hec_schedule_find("ideal"), NULL, &arena);
  hec_lower_iteration(low, 1, &load, 1, 1);
  hec_bound *bound = hec_bound_new(&c->problem, &arena);
  hec_bound_begin(
      bound,
      (hec_bound_case){.class = HEC_BOUND_COPIES, .tokens_wait = true, .closed_form = true, .n_micro_batches = 1});
  hec_bound_add(bound, &load);
  double bound_s = hec_bound_end(bound).total_s;
  double s = (double)time_of(&c->problem, hec_lowering_program(low), &hec_law_alpha_beta) * 1e-12;
  ck_assert_msg(s >= bound_s * (1 - 1e-6) && s <= bound_s * (1 + 1e-4), "%.12g s, bound %.12g s", s, bound_s);
  hec_lowering_free(low);
}
END_TEST

/* Ports, NICs (one of a node to one of a device) of any rate: both laws have the busiest link, and the ring's latency. */
START_TEST(equal_places_alone) {
  uint64_t seed = 40000 + (uint64_t)_i;
  int nodes = 1 + (int)hec_test_below(&seed, 4), per_node = 1 << hec_test_below(&seed, 4);
  int nics = 1 << hec_test_below(&seed, (uint64_t)(per_node == 8 ? 4 : per_node == 4 ? 3 : per_node == 2 ? 2 : 1));
  char line[160];
  (void)snprintf(line, sizeof line, "%dx%d nvlink=%dG@%dus nic=%dG@%dus nics=%d flops=1T mem=40G", nodes, per_node,
                 1 + (int)hec_test_below(&seed, 300), (int)hec_test_below(&seed, 9), 1 + (int)hec_test_below(&seed, 60),
                 (int)hec_test_below(&seed, 20), nics);
  hec_problem *p = hec_test_problem(&arena, line, nodes * per_node, 1, 4, 1, true);
  for (int32_t stride = 1; stride <= per_node && stride < p->n_ranks; stride *= 2) {
    hec_program program = {0};
    hec_program_clear(&program, p->n_ranks);
    hec_op op = hec_op_new(HEC_OP_ALLREDUCE, HEC_LANE_GRAD, HEC_ROLE_DENSE_REDUCE, 0);
    op.bytes = 1e6 * (double)(1 + hec_test_below(&seed, 1000));
    op.allreduce.stride = stride;
    (void)hec_program_add(&program, op, NULL, 0);
    double flows_s = (double)time_of(p, &program, &hec_law_max_min) * 1e-12;
    double closed_s = (double)time_of(p, &program, &hec_law_alpha_beta) * 1e-12;
    ck_assert_double_eq_tol(closed_s, hec_link_cost_allreduce_strided(p->cluster, p->n_ranks, stride, op.bytes), 1e-11);
    double n = p->n_ranks / stride, bytes = 2 * (n - 1) / n * op.bytes, nic = 0, port = 0; /* again, from the words */
    for (int32_t l = 0; l < p->cluster->n_links; l++) {
      const hec_link *link = &p->cluster->links[l];
      nic = link->kind == HEC_LINK_NIC_OUT ? link->bandwidth : nic;
      port = link->kind == HEC_LINK_PORT_OUT ? link->bandwidth : port;
    }
    double busiest_s = nodes > 1 ? stride * bytes / nics / nic : 0;
    bool inside = nodes == 1 || (nics == 1 && per_node > stride); /* several rings leave a node by several ports */
    if (inside && bytes / port > busiest_s)
      busiest_s = bytes / port;
    ck_assert_msg(flows_s >= busiest_s * (1 - 1e-9), "%s, stride %d: %.9g s below %.9g s", line, stride, flows_s,
                  busiest_s);
    ck_assert_msg(closed_s >= busiest_s * (1 - 1e-9), "%s, stride %d: closed form %.9g s", line, stride, closed_s);
    if (nics == 1) /* several rings share a port less than the closed form has it */
      ck_assert_msg(flows_s <= closed_s * (1 + 1e-9) + 1e-11, "%s, stride %d: flows %.9g s, closed form %.9g s", line,
                    stride, flows_s, closed_s);
    hec_program_free(&program);
  }
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("tensor parallelism, simulated");
  TCase *cases = tcase_create("all");
  tcase_set_timeout(cases, 240);
  tcase_add_checked_fixture(cases, NULL, teardown);
  tcase_add_loop_test(cases, alpha_beta, 0, hec_test_cases(48));
  tcase_add_loop_test(cases, max_min, 0, hec_test_cases(16));
  tcase_add_loop_test(cases, reached, 0, 24);
  tcase_add_loop_test(cases, equal_places_alone, 0, 60);
  suite_add_tcase(suite, cases);
  return suite;
}

HEC_TEST_MAIN(make_suite)
