/* Direct sparse collectives: every owner sends to every receiver, every receiver returns to every owner. One stage;
 * this is what one group of NCCL sends and receives does. The only row that splits items into slices (FSDP). Bytes into
 * a receiver: those of its items; out of an owner: items times receivers. O(items * receivers). */
#include "runtime/plan/collectives/lower.h"
#include "runtime/plan/problem.h"

static void lower(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out, bool scatter) {
  hec_collective_begin(out, sparse, 1);
  for (int32_t slice = 0; slice < sparse->n_slices; slice++)
    for (int32_t i = 0; i < sparse->n_items;) {
      hec_sparse_run run = hec_sparse_run_at(sparse, i, slice, out->per_item);
      for (int32_t j = 0; j < run.n_receivers; j++)
        hec_collective_add(&out->stage[0], sparse, &run, run.owner, run.receiver[j], scatter);
      i = run.end;
    }
  hec_collective_finish(out, problem->n_ranks);
}

static void gather(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out) {
  lower(problem, sparse, out, false);
}

static void scatter(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out) {
  lower(problem, sparse, out, true);
}

const hec_collective hec_collective_direct = {
    .name = "direct",
    .summary = "owner to each holder and back",
    .source = "grouped point-to-point, Hecate, arXiv 2502.02581, section on implementation",
    .n_stages = 1,
    .gather = gather,
    .scatter = scatter,
};
