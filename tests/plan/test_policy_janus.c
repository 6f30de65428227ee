/* Janus: its criterion against bytes counted one by one, and what it plans on either side of it. */
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

/* Bytes of a forward between machines (between ranks where a group lies inside one). Every rank sends as much to
 * every rank of its group, out and back. And when every machine fetches every expert that it has not. Times
 * ranks * experts, to stay whole. */
static void count(const hec_problem *p, double *tokens, double *weights) {
  int32_t ep = p->ep, per_node = p->cluster->devices_per_node, unit = ep > per_node ? per_node : 1;
  *tokens = *weights = 0;
  for (int32_t s = 0; s < ep; s++)
    for (int32_t d = 0; d < ep; d++)
      *tokens += s / unit != d / unit ? 2.0 * p->tokens * p->top_k / ep * p->bytes.token : 0;
  for (int32_t machine = 0; machine * unit < ep; machine++)
    for (int32_t d = 0; d < ep; d++)
      *weights += d / unit != machine ? (double)p->n_experts / ep * p->bytes.expert_param : 0;
}

HEC_TEST(criterion) {
  static const struct {
    const char *cluster;
    int32_t ranks, experts;
  } cases[] = {{"2x4 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 8, 16},
               {"2x4 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 4, 16},
               {"2x4 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 8, 4}, /* two groups, each in a node */
               {"4x4 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 16, 8},
               {"8x1 nvlink=300G@2us nic=50G@5us flops=1T mem=40G", 8, 8}};
  int fetching = 0, sending = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int32_t tokens = 10; tokens < 2500; tokens += 17) {
      hec_problem *p = hec_test_problem(&arena, cases[i].cluster, cases[i].ranks, 2, cases[i].experts, 2, true);
      p->tokens = tokens;
      double sent, fetched;
      count(p, &sent, &fetched);
      HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find("janus"), p, &arena);
      int32_t n_copies = run.plan.copy_at[cases[i].experts];
      if (sent > fetched * 1.001)
        ck_assert_int_eq(n_copies, cases[i].experts * (cases[i].ranks - 1));
      if (sent < fetched * 0.999)
        ck_assert_int_eq(n_copies, cases[i].experts * (p->dp - 1));
      fetching += sent > fetched;
      sending += sent < fetched;
    }
  ck_assert(fetching > 100 && sending > 100);
}

/* Every rank computes its own tokens; guests are kept if they fit; homes are those of expert parallelism. */
HEC_TEST(fetching) {
  static const char *const clusters[] = {"2x4 nvlink=300G@2us nic=50G@5us flops=1T mem=40G",
                                         "2x4 nvlink=300G@2us nic=50G@5us flops=1T mem=1M"};
  for (int32_t i = 0; i < 2; i++) {
    hec_problem *p = hec_test_problem(&arena, clusters[i], 8, 1, 16, 2, true);
    p->tokens = 1 << 20;
    uint64_t seed = 37;
    hec_load load = hec_test_random_load(&arena, p, &seed);
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find("janus"), p, &arena);
    ck_assert(run.plan.rematerialise == (i == 1));
    hec_routing routing = hec_routing_new(&arena, p);
    hec_routing_make(&routing, run.policy->dispatch, p, &run.plan, &load, 0);
    for (int32_t s = 0; s < 8; s++)
      for (int32_t d = 0; d < 8; d++)
        ck_assert(s == d || routing.pair[s * 8 + d] == 0);
    for (int32_t e = 0; e < 16; e++)
      ck_assert_int_eq(hec_plan_home(&run.plan, 0, e), e / 2);
  }
}
