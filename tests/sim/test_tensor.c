/* Tensor parallelism under the laws of the network: the bound is reached; an all-reduce among ranks of equal place alone,
 * closed form against flows. (That nothing is below its bound: test_bounds.c.) */
#include "models/link_cost.h"
#include "runtime/plan/bound/bound.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

/* There are no tokens for experts, and links inside nodes take no time. The bound is what `ideal` takes and the
 * exchanges of counts, which `ideal` has not. */
HEC_TEST_LOOP(reached, 24) {
  uint64_t seed = 50000 + (uint64_t)_i;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.no_overhead = true, .uniform = true});
  c->problem.n_ranks = 8;
  c->problem.train = true;
  hec_test_recluster(c, "2x4 nvlink=900P nic=1G flops=1T mem=40G hbm=900000000G a=0s c=0s launch=0s plan=0s@0s tile=1",
                     &arena);
  ck_ok(hec_problem_tensor(&c->problem, 1 << _i % 3));
  hec_load load = hec_load_new(&arena, c->problem.n_layers, 8, c->problem.n_experts);
  HEC_OPENED(hec_lowering) *low = hec_test_lower(&c->problem, "ideal", "ideal", &load, &arena);
  hec_bound *bound = hec_bound_new(&c->problem, &arena);
  hec_bound_begin(
      bound,
      (hec_bound_case){.class = HEC_BOUND_COPIES, .tokens_wait = true, .closed_form = true, .n_micro_batches = 1});
  hec_bound_add(bound, &load);
  double bound_s = hec_bound_end(bound).total_s;
  double counts_s = hec_link_cost_allgather(&c->cluster, 8, 4.0 * c->problem.n_experts);
  double s = hec_test_seconds(&c->problem, hec_lowering_program(low)) + c->problem.n_layers * counts_s;
  ck_assert_msg(s >= bound_s * (1 - 1e-6) && s <= bound_s * (1 + 1e-4), "%.12g s, bound %.12g s", s, bound_s);
}

/* Ports, NICs (one of a node to one of a device) of any rate: both laws have the busiest link, and the ring's latency. */
HEC_TEST_LOOP(equal_places_alone, 60) {
  uint64_t seed = 40000 + (uint64_t)_i;
  int nodes = 1 + (int)hec_test_below(&seed, 4), per_node = 1 << hec_test_below(&seed, 4);
  int nics = 1 << hec_test_below(&seed, (uint64_t)(per_node == 8 ? 4 : per_node == 4 ? 3 : per_node == 2 ? 2 : 1));
  char line[160];
  (void)snprintf(line, sizeof line, "%dx%d nvlink=%dG@%dus nic=%dG@%dus nics=%d flops=1T mem=40G", nodes, per_node,
                 1 + (int)hec_test_below(&seed, 300), (int)hec_test_below(&seed, 9), 1 + (int)hec_test_below(&seed, 60),
                 (int)hec_test_below(&seed, 20), nics);
  hec_problem *p = hec_test_problem(&arena, line, nodes * per_node, 1, 4, 1, true);
  for (int32_t stride = 1; stride <= per_node && stride < p->n_ranks; stride *= 2) {
    HEC_SCOPED(hec_program) program = {0};
    hec_program_clear(&program, p->n_ranks);
    hec_op op = hec_op_new(HEC_OP_ALLREDUCE, HEC_LANE_GRAD, HEC_ROLE_DENSE_REDUCE, 0);
    op.bytes = 1e6 * (double)(1 + hec_test_below(&seed, 1000));
    op.allreduce.stride = stride;
    (void)hec_program_add(&program, op, NULL, 0);
    double flows_s = 1e-12 * (double)hec_test_end_ps(p, &program, &hec_law_max_min, (hec_sim_options){0});
    double closed_s = hec_test_seconds(p, &program);
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
  }
}
