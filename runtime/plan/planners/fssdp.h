/* FSSDP (Hecate, arXiv 2502.02581) decides which experts are copied where before the gate (Algorithm 1, sparse
 * materialisation), and who owns them (Algorithm 2, heterogeneous sharding). Two numbers bound the copies: t experts of
 * a layer can be gathered under the attention, and m copies fit on a rank.
 * Every gap and tie of the paper is filled as reference hecate.md 4.3, 7 and 14 say. */
#pragma once
#include "runtime/plan/planners/spread_cost.h"
#include "runtime/plan/problem.h"

/* Scratch of the algorithms for one problem; nothing is allocated after new. */
typedef struct {
  const hec_problem *problem;
  int32_t *ranks;      /* [n_ranks] 0, 1, 2, ... */
  int32_t *node_of;    /* [n_ranks] */
  int32_t *slots;      /* [n_experts] copies that an expert is to get (n[e]) */
  int32_t *copies;     /* [n_experts * n_ranks] ranks of the copies placed, per member of the hot set */
  int32_t *n_copies;   /* [n_experts] */
  int32_t *place_of;   /* [n_experts] position in the hot set, -1: not in it */
  int32_t *open;       /* [n_experts] members of the hot set that may get more copies */
  uint64_t *rank_key;  /* [n_ranks] how good a place for the next copy */
  uint64_t *node_key;  /* [n_nodes] likewise, of its best rank */
  int32_t *free_slots; /* [n_ranks] */
  int32_t *free_node;  /* [n_nodes] sum of them */
  bool *rank_holds;    /* [n_ranks] of the expert at hand */
  bool *node_holds;    /* [n_nodes] likewise */
  uint64_t *rank_load; /* [n_ranks] */
  uint64_t *node_load; /* [n_nodes] */
  bool *layer_done;    /* [n_layers] */
} hec_fssdp;

hec_fssdp hec_fssdp_new(hec_arena *arena, const hec_problem *problem);

/* Sorts the permutation `order` of 0..n-1 by descending load, ties to the lower expert. Insertion sort: O(n +
 * inversions), so an order that was right an iteration ago is cheap to put right. Returns the number of moves. */
uint64_t hec_fssdp_order(const uint64_t *load, int32_t n, int32_t *order);

/* Guests per rank and layer that fit in memory: floor((device bytes - bytes without copies) / (parameter
 * bytes * K + gradient bytes)). K is the number of MoE layers, or 1 if copies are re-materialised or there is no
 * backward. The smallest device counts. The result is between 0 and n_experts. problem->m overrides. */
int32_t hec_fssdp_memory_capacity(const hec_problem *problem, bool rematerialise);
/* The same for schedules that have parameters and gradients of so many layers' guests in memory at once. */
int32_t hec_fssdp_room(const hec_problem *problem, int32_t param_layers, int32_t grad_layers);

/* Overlap degree: the largest k <= n_experts such that gathering the experts order[0..k) from their homes to all ranks
 * takes at most the layer's window. The price never falls as k grows, so the search walks from `start` (the last
 * answer), down or up. problem->t overrides, or asks for the paper's floor(window * nominal node bandwidth / expert
 * bytes). `sum` is scratch. Added to *steps: the patterns that the plain search adds or prices, which goes up expert by
 * expert, from nothing if `start` is too large. */
typedef struct {
  const int32_t *order, *home; /* [n_experts] */
  int32_t layer, start;
} hec_overlap_case;
int32_t hec_fssdp_overlap_degree(hec_spread *gather, hec_spread_sum *sum, const hec_overlap_case *of, uint64_t *steps);

/* Algorithm 1: replaces the copies of the layer by guests of the t hottest experts, at most m on a rank.
 * t <= m: everywhere. Else n_ranks * m slots are shared out by load. Each copy goes to a node that does not hold the
 * expert yet, with the most free slots. Returns its inner steps. O(copies placed * (nodes + ranks of a node)). */
uint64_t hec_fssdp_materialise(hec_fssdp *fssdp, hec_plan *plan, int32_t layer, const uint64_t *load,
                               const int32_t *order, int32_t t, int32_t m);

/* Algorithm 2: owner[layer * n_experts + expert] from load and order (both [n_layers * n_experts]) and t[n_layers].
 * Every rank owns floor or ceil of n_layers * n_experts / n_ranks experts (the first ranks one more). Returns its inner
 * steps. O(n_layers * (n_layers + n_experts * (nodes + ranks))). */
uint64_t hec_fssdp_shard(hec_fssdp *fssdp, const uint64_t *load, const int32_t *order, const int32_t *t,
                         int32_t *owner);

/* Even sharding to start from: expert e on rank floor(e * n_ranks / n_experts). With more ranks than experts the next
 * layer begins one rank further, so that the owners of different layers spread. */
static inline int32_t hec_fssdp_even_owner(const hec_problem *problem, int32_t layer, int32_t expert) {
  int32_t rank = (int32_t)((int64_t)expert * problem->n_ranks / problem->n_experts);
  return problem->n_ranks > problem->n_experts ? (rank + layer) % problem->n_ranks : rank;
}
