/* Expert parallelism with a capacity (GShard, arXiv 2006.16668; DeepSpeed-MoE, arXiv 2201.05596, deepspeed/moe/
 * sharded_moe.py; reference policies.md 3.1): the placement of `ep`, and of what a source sends to an expert
 *
 *   c = max(ceil(tokens * k * factor / E), 8)
 *
 * assignments are kept, the rest is dropped: computed nowhere, missing in the layer's result. The factor is the model's
 * capacity_factor, DeepSpeed's default 1 where the model says dropless; k in the formula as there (twice the factor for
 * top-2). It buys time with quality, so it is never the fastest row and is not held to `ideal`; what it drops is reported
 * beside it. DeepSpeed pads short experts to c rows: not here, rows are those that are kept (a program has no rows
 * without an assignment), so its exchange is up to c E / (tokens k) times as large. O(R E) per layer. */
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

enum { CAPACITY_LEAST = 8 };

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  double factor = problem->moe->capacity_factor > 0 ? problem->moe->capacity_factor : 1;
  double exact = (double)problem->tokens * problem->top_k * factor / problem->n_experts;
  uint32_t *capacity = HEC_NEW(run->arena, uint32_t, 1);
  *capacity = exact < (double)UINT32_MAX ? (uint32_t)exact : UINT32_MAX;
  *capacity += (double)*capacity < exact && *capacity < UINT32_MAX;
  *capacity = *capacity < CAPACITY_LEAST ? CAPACITY_LEAST : *capacity;
  run->state = capacity;
  hec_plan_set_contiguous(&run->plan, problem);
}

static void rewrite(hec_policy_run *run, hec_load *load) {
  const uint32_t capacity = *(const uint32_t *)run->state;
  size_t cells = hec_load_cells(load);
  for (size_t i = 0; i < cells; i++) {
    uint32_t n = load->counts[i];
    run->n_offered += n;
    run->n_dropped += n > capacity ? n - capacity : 0;
    load->counts[i] = n > capacity ? capacity : n;
  }
}

const hec_policy hec_policy_ep_capacity = {
    .name = "ep-capacity",
    .summary = "ep with a capacity per source and expert; what exceeds it is dropped",
    .source = "GShard, arXiv 2006.16668; DeepSpeed-MoE, arXiv 2201.05596",
    .known = HEC_KNOWN_STATIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_group,
    .window = 1,
    .init = init,
    .rewrite = rewrite,
    .reference = true,
    .drops = true,
};
