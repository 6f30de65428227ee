/* Two-level sparse collectives: an item enters each node once.
 *
 *   gather   stage 1   owner -> receivers of its own node; owner -> one receiver (the entry) of every other node
 *            stage 2   entry -> the other receivers of its node
 *   scatter  stage 1   the other holders of a node -> its entry, which adds them up
 *            stage 2   entries, and the holders of the owner's own node -> owner, which adds them up
 *
 * Which receiver is the entry: hec_collective_entry. Every slice of a sliced item (FSDP) goes
 * its own way, from its owner: it too enters each node once. O(slices * items * receivers). */
#include "runtime/plan/collectives/lower.h"
#include "runtime/plan/problem.h"

static void lower_node(const hec_problem *problem, const hec_sparse *sparse, const hec_sparse_run *run,
                       hec_node_run node, hec_collective_plan *out, bool scatter) {
  hec_transfer_list *outer = &out->stage[scatter ? 1 : 0], *inner = &out->stage[scatter ? 0 : 1];
  if (node.node == hec_problem_node(problem, run->owner)) {
    for (int32_t i = node.first; i < node.end; i++)
      hec_collective_add(outer, sparse, run, run->owner, run->receiver[i], scatter);
    return;
  }
  int32_t entry = run->receiver[hec_collective_entry(problem, run, node)];
  hec_collective_add(outer, sparse, run, run->owner, entry, scatter);
  for (int32_t i = node.first; i < node.end; i++)
    hec_collective_add(inner, sparse, run, entry, run->receiver[i], scatter);
}

static void lower(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out, bool scatter) {
  hec_collective_begin(out, sparse, 2);
  for (int32_t slice = 0; slice < sparse->n_slices; slice++)
    for (int32_t i = 0; i < sparse->n_items;) {
      hec_sparse_run run = hec_sparse_run_at(sparse, i, slice, out->per_item);
      for (int32_t j = 0; j < run.n_receivers;) {
        hec_node_run node = hec_node_run_at(problem, &run, j);
        lower_node(problem, sparse, &run, node, out, scatter);
        j = node.end;
      }
      i = run.end;
    }
  hec_collective_finish(out, problem->n_ranks);
}

void hec_collective_two_level_gather(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out) {
  lower(problem, sparse, out, false);
}

void hec_collective_two_level_scatter(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out) {
  lower(problem, sparse, out, true);
}

const hec_collective hec_collective_two_level = {
    .name = "two_level",
    .summary = "into each node once, then over the node",
    .source = "hierarchical broadcast, reference hecate.md 3.4",
    .n_stages = 2,
    .gather = hec_collective_two_level_gather,
    .scatter = hec_collective_two_level_scatter,
};
