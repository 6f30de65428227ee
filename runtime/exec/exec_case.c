/* The problem counts no bytes of state: programs built on it have no holds for it. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "runtime/exec/exec_case.h"

#include "runtime/plan/problem.h"

#include <stdio.h>
#include <sys/mman.h>

hec_status hec_exec_case_make(int32_t n_ranks, hec_arena *arena, hec_exec_case *c) {
  char line[160];
  (void)snprintf(line, sizeof line, "1x%d nvlink=10G@1us nic=10G@1us flops=100G mem=64G", n_ranks);
  HEC_TRY(hec_cluster_load(line, arena, &c->cluster));
  HEC_TRY(hec_moe_load("tiny", &c->moe));
  c->moe.n_layers = c->moe.n_moe_layers = 1;
  c->moe.n_experts = n_ranks;
  c->moe.top_k = 1;
  HEC_TRY(hec_problem_make(&c->moe, &c->cluster, true, n_ranks, c->moe.tokens_per_rank, &c->problem));
  c->problem.bytes = (hec_memory_cost){0};
  c->plan = hec_plan_new(arena, &c->problem, 1);
  hec_plan_set_contiguous(&c->plan, &c->problem);
  return HEC_OK;
}

void *hec_exec_case_share(size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  HEC_ASSERT(at != MAP_FAILED);
  return at;
}

hec_op hec_exec_case_op(hec_op_kind kind, hec_lane lane, hec_role role) {
  hec_op op = hec_op_new(kind, lane, role, 0);
  op.own_at = op.cell_at = -1;
  return op;
}
