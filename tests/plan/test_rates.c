/* What planners take tokens to cost: the network's rates; with a dispatcher those of its kernels. And that a plan follows. */
#include "runtime/plan/rates.h"

#include "models/gpu.h"
#include "models/training/dispatcher.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/rank_links.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

enum { EXPERTS = 16, RANKS = 16 };

static hec_problem *problem(int32_t top_k, const hec_dispatcher *by, double shorter) {
  hec_problem *p = hec_test_problem(&arena, "2x8 gpu=h100 nics=8", RANKS, 1, EXPERTS, top_k, true);
  hec_gpu *gpu = HEC_NEW(&arena, hec_gpu, 1);
  ck_assert_int_eq(hec_gpu_load("h100", &arena, gpu), HEC_OK);
  p->tokens = 4096;
  p->bytes.token = 14336;
  if (by)
    p->dispatch = (hec_problem_dispatch){.by = by, .gpu = gpu, .sms = 24, .row = p->bytes.token * shorter};
  return p;
}

HEC_TEST(of_rows_that_travel_as_they_are) {
  hec_rates none = hec_rates_of(problem(2, NULL, 1)), shorter = hec_rates_of(problem(2, &hec_dispatcher_alltoall, 0.5));
  ck_assert(none.token_port == none.port && none.token_node == none.node && none.token_rank == none.rank);
  ck_assert_double_eq_tol(shorter.token_rank / none.rank, 4.0 / 3, 1e-12); /* half the bytes one way */
  ck_assert(shorter.rank == none.rank);
  hec_rates all = hec_rates_of(problem(2, &hec_dispatcher_allgather, 1));
  ck_assert(all.token_rank > 1e6 * none.rank); /* no plan changes what travels */
}

/* Seconds of HybridEP worked out here: NVLink and NIC, each alone. 8 of 16 experts, on 2 nodes of 8. */
HEC_TEST(of_kernels_by_hand) {
  const hec_problem *p = problem(8, &hec_dispatcher_hybridep, 1);
  const hec_gpu_sheet *sheet = &p->dispatch.gpu->sheet;
  double missed = 1;
  for (int i = 0; i < 8; i++)
    missed *= (8.0 - i) / (16 - i);
  double nic_s = 0.5 * 2 * (1 - missed) * 14336 / (0.86 * sheet->nic_bandwidth); /* half of the nodes are another one */
  double nvlink_s = 8 * 7.0 / 8 * 14336 / (hec_assumed_nvlink * sheet->nvlink_bandwidth);
  hec_rates rates = hec_rates_of(p);
  ck_assert_double_eq_tol(rates.token_port * nvlink_s / (8 * 14336), 1, 1e-9);
  ck_assert_double_eq_tol(rates.token_rank * nic_s / (4 * 14336), 1, 1e-9); /* half of 8 assignments for one row */
  ck_assert_double_eq_tol(rates.token_node, 8 * rates.token_rank, 1);
}

HEC_TEST(links_of_planners_follow) {
  const hec_problem *p = problem(8, &hec_dispatcher_deepep, 1);
  hec_rates rates = hec_rates_of(p);
  hec_rank_links links = hec_rank_links_new(&arena, p), plain = hec_rank_links_new(&arena, problem(8, NULL, 1));
  const int32_t *route;
  int32_t n = hec_rank_links_route(&links, 0, RANKS - 1, &route), faster = 0;
  for (int32_t i = 0; i < n; i++) {
    ck_assert(plain.token[route[i]] == plain.bandwidth[route[i]] &&
              links.bandwidth[route[i]] == plain.bandwidth[route[i]]);
    faster += links.token[route[i]] == links.bandwidth[route[i]] * (rates.token_rank / rates.rank);
  }
  ck_assert_int_ge(faster, 2); /* a NIC out and one in */
}

/* An expert that every token chooses. Its rows are worth a copy on every rank where each is sent by itself. A dispatcher sends
 * a token once for all its experts of a node, so they are not. */
HEC_TEST(a_plan_follows) {
  const hec_dispatcher *const by[] = {NULL, &hec_dispatcher_deepep};
  for (int k = 0; k < 2; k++) {
    hec_problem *p = problem(8, by[k], 0.5);
    uint32_t totals[EXPERTS];
    p->bytes.expert_param = 4e9;
    for (int32_t e = 0; e < EXPERTS; e++)
      totals[e] = e ? (uint32_t)(RANKS * 4096 * 7 / (EXPERTS - 1)) : RANKS * 4096;
    hec_load load = hec_test_even_load(&arena, p, totals);
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find("fastermoe"), p, &arena);
    hec_policy_refine(&run, 0, &load);
    ck_assert_int_eq(run.plan.copy_at[EXPERTS], k == 0 ? RANKS - 1 : 0);
  }
}
