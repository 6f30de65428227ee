/* Algorithm 2, heterogeneous sharding: experts that will not be materialised (cold) decide the all-to-all. So they are
 * spread over nodes and ranks by load, layer after layer; the hot ones fill what is left.
 *
 *   slots[d] = floor or ceil of L * E / D, all layers pooled
 *   for layers by descending hottest cold expert (ties to the lower layer; no cold expert counts 0):
 *       node and rank loads = 0
 *       for cold experts, hottest first:  node with a free slot, smallest (load, free slots, id);
 *                                         rank of it with a free slot, smallest (load, free slots, id)
 *   for layers ascending, hot experts hottest first:  rank with the most free slots, lower id */
#include "runtime/plan/planners/fssdp.h"

#include <string.h>

/* Smaller load, then fewer free slots; -1, 0 or 1. */
static int compare(uint64_t load_a, int32_t free_a, uint64_t load_b, int32_t free_b) {
  if (load_a != load_b)
    return load_a < load_b ? -1 : 1;
  return free_a != free_b ? (free_a < free_b ? -1 : 1) : 0;
}

static int32_t best_node(const hec_fssdp *f) {
  int32_t best = -1;
  for (int32_t n = 0; n < f->problem->n_nodes; n++)
    if (f->free_node[n] > 0 &&
        (best < 0 || compare(f->node_load[n], f->free_node[n], f->node_load[best], f->free_node[best]) < 0))
      best = n;
  return best;
}

static int32_t best_rank_of(const hec_fssdp *f, int32_t node) {
  int32_t best = -1, end = hec_problem_node_end(f->problem, node);
  for (int32_t d = node * f->problem->cluster->devices_per_node; d < end; d++)
    if (f->free_slots[d] > 0 &&
        (best < 0 || compare(f->rank_load[d], f->free_slots[d], f->rank_load[best], f->free_slots[best]) < 0))
      best = d;
  return best;
}

static int32_t emptiest_rank(const hec_fssdp *f) {
  int32_t best = 0;
  for (int32_t d = 1; d < f->problem->n_ranks; d++)
    if (f->free_slots[d] > f->free_slots[best])
      best = d;
  return best;
}

static void take_slot(hec_fssdp *f, int32_t rank, uint64_t load) {
  int32_t node = hec_problem_node(f->problem, rank);
  HEC_ASSERT(f->free_slots[rank] > 0);
  f->free_slots[rank]--;
  f->free_node[node]--;
  f->rank_load[rank] += load;
  f->node_load[node] += load;
}

static void fill_slots(hec_fssdp *f) {
  int64_t rows = (int64_t)f->problem->n_layers * f->problem->n_experts;
  memset(f->free_node, 0, (size_t)f->problem->n_nodes * sizeof *f->free_node);
  for (int32_t d = 0; d < f->problem->n_ranks; d++) {
    f->free_slots[d] = (int32_t)(rows / f->problem->n_ranks + (d < rows % f->problem->n_ranks));
    f->free_node[hec_problem_node(f->problem, d)] += f->free_slots[d];
  }
}

/* The layer not yet done whose hottest cold expert is the hottest. */
static int32_t next_layer(const hec_fssdp *f, const uint64_t *load, const int32_t *order, const int32_t *t) {
  int32_t best = -1;
  uint64_t best_load = 0;
  for (int32_t l = 0; l < f->problem->n_layers; l++) {
    size_t row = (size_t)l * (size_t)f->problem->n_experts;
    uint64_t hottest = t[l] < f->problem->n_experts ? load[row + (size_t)order[row + (size_t)t[l]]] : 0;
    if (!f->layer_done[l] && (best < 0 || hottest > best_load)) {
      best = l;
      best_load = hottest;
    }
  }
  return best;
}

uint64_t hec_fssdp_shard(hec_fssdp *f, const uint64_t *load, const int32_t *order, const int32_t *t, int32_t *owner) {
  int32_t n_layers = f->problem->n_layers, n_experts = f->problem->n_experts;
  fill_slots(f);
  memset(f->layer_done, 0, (size_t)n_layers * sizeof *f->layer_done);
  for (int32_t done = 0; done < n_layers; done++) {
    int32_t l = next_layer(f, load, order, t);
    size_t row = (size_t)l * (size_t)n_experts;
    f->layer_done[l] = true;
    memset(f->node_load, 0, (size_t)f->problem->n_nodes * sizeof *f->node_load);
    memset(f->rank_load, 0, (size_t)f->problem->n_ranks * sizeof *f->rank_load);
    for (int32_t i = t[l]; i < n_experts; i++) {
      size_t e = row + (size_t)order[row + (size_t)i];
      owner[e] = best_rank_of(f, best_node(f));
      take_slot(f, owner[e], load[e]);
    }
  }
  for (int32_t l = 0; l < n_layers; l++)
    for (int32_t i = 0; i < t[l] && i < n_experts; i++) {
      size_t row = (size_t)l * (size_t)n_experts, e = row + (size_t)order[row + (size_t)i];
      owner[e] = emptiest_rank(f);
      take_slot(f, owner[e], load[e]);
    }
  return (uint64_t)n_layers * (uint64_t)n_experts *
         (uint64_t)(f->problem->n_nodes + f->problem->cluster->devices_per_node);
}
