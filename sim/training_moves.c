/* See training_moves.h. */
#include "sim/training_moves.h"

#include "models/link_cost.h"
#include "runtime/plan/problem.h"

#include <stdlib.h>
#include <string.h>

hec_training_moves hec_training_moves_new(const hec_policy_run *run, hec_arena *arena) {
  const hec_problem *p = run->problem;
  size_t ranks = (size_t)p->n_ranks, experts = (size_t)p->n_experts, slices = (size_t)run->plan.n_slices;
  size_t items = experts * (ranks / (size_t)run->plan.width);
  hec_training_moves moves = {.sparse = {.expert = HEC_NEW(arena, int32_t, items),
                                         .owner = HEC_NEW(arena, int32_t, items * slices),
                                         .receiver_at = HEC_NEW(arena, int32_t, items + 1),
                                         .receiver = HEC_NEW(arena, int32_t, experts * ranks)},
                              .before = hec_plan_new(arena, p, run->plan.n_slices),
                              .bytes = HEC_NEW(arena, int64_t, ranks * ranks)};
  hec_plan_assign(&moves.before, &run->plan);
  return moves;
}

void hec_training_moves_free(hec_training_moves *moves) {
  hec_collective_plan_free(&moves->plan);
  hec_collective_plan_free(&moves->other);
  free(moves->list.data);
}

/* Experts in slices come from every rank: as an all-gather of as many as the rank with most guests takes. */
static double sliced_s(hec_training_moves *moves, const hec_problem *p, double bytes) {
  const hec_sparse *sparse = &moves->sparse;
  int64_t max = 0;
  memset(moves->bytes, 0, (size_t)p->n_ranks * sizeof *moves->bytes);
  for (int32_t i = 0; i < sparse->receiver_at[sparse->n_items]; i++) {
    int64_t n = ++moves->bytes[sparse->receiver[i]];
    max = n > max ? n : max;
  }
  memset(moves->bytes, 0, (size_t)p->n_ranks * sizeof *moves->bytes);
  return hec_link_cost_allgather(p->cluster, p->n_ranks, bytes * (double)max / (double)p->n_ranks);
}

double hec_training_gather_s(hec_training_moves *moves, hec_policy_run *run, int32_t layer, bool scatter) {
  const hec_problem *p = run->problem;
  double bytes = scatter ? p->bytes.expert_grad : p->bytes.expert_param;
  hec_sparse_guests(&moves->sparse, &run->plan, layer, HEC_GUESTS_ANY, NULL);
  if (moves->sparse.n_items == 0)
    return 0;
  if (run->plan.n_slices > 1)
    return sliced_s(moves, p, bytes);
  moves->sparse.bytes = (int64_t)bytes;
  moves->sparse.bytes_per_param = bytes / hec_moe_expert_params(p->moe);
  (void)hec_collective_choose(&run->link, p, &moves->sparse, scatter, NULL, &moves->plan, &moves->other);
  return hec_collective_cost(&run->link, &moves->plan);
}

double hec_training_migration_s(hec_training_moves *moves, hec_policy_run *run) {
  double s = 0;
  if (run->plan.version == moves->before.version)
    return 0;
  for (int32_t l = 0; l < run->plan.n_layers; l++) {
    moves->list.n = 0;
    hec_plan_migration(&moves->before, &run->plan, run->problem, l, moves->bytes, &moves->list);
    s += hec_link_cost_exchange(&run->link, moves->list.data, (int32_t)moves->list.n, false, 1);
  }
  hec_plan_assign(&moves->before, &run->plan);
  return s;
}
