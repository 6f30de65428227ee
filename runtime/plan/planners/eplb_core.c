/* EPLB (github.com/deepseek-ai/EPLB; reference policies.md 4.1), re-written:
 *
 *   pack(weights, P packs)  descending weight, each item into the lightest pack that is not full (first on ties), every
 *                           pack exactly n / P items; one item per pack: identity
 *   replicate(w, slots)     one slot each, every further slot to the expert with the largest w / count (first on ties)
 *   place                   1 groups of experts are packed onto nodes;
 *                           2 each node replicates its experts into its slots;
 *                           3 each node packs its slots, weight w / count, onto its ranks
 *
 * w / count is compared in whole numbers (cross-multiplied). Nothing here minimises what moves.
 * O(E log E + slots * (E + ranks) / nodes) per layer. */
#include "runtime/plan/planners/eplb_core.h"

#include "runtime/plan/planners/order.h"

hec_eplb hec_eplb_new(hec_arena *arena, int32_t n_experts, int32_t n_slots, int32_t n_groups, int32_t n_nodes,
                      int32_t n_ranks) {
  HEC_ASSERT(n_slots % n_ranks == 0 && n_ranks % n_nodes == 0 && n_groups % n_nodes == 0);
  HEC_ASSERT(n_experts % n_groups == 0 && n_slots >= n_experts);
  return (hec_eplb){
      .n_experts = n_experts,
      .n_slots = n_slots,
      .n_groups = n_groups,
      .n_nodes = n_nodes,
      .n_ranks = n_ranks,
      .slot = HEC_NEW(arena, int32_t, n_slots),
      .count = HEC_NEW(arena, int32_t, n_experts),
      .listed = HEC_NEW(arena, int32_t, n_experts),
      .replica = HEC_NEW(arena, int32_t, n_slots),
      .weight = HEC_NEW(arena, double, n_slots),
      .order = HEC_NEW(arena, int32_t, n_slots),
      .pack = HEC_NEW(arena, int32_t, n_slots),
      .pack_weight = HEC_NEW(arena, double, n_ranks),
      .n_packed = HEC_NEW(arena, int32_t, n_ranks),
  };
}

static int32_t lightest(const hec_eplb *eplb, int32_t n_packs, int32_t capacity) {
  int32_t best = -1;
  for (int32_t p = 0; p < n_packs; p++)
    if (eplb->n_packed[p] < capacity && (best < 0 || eplb->pack_weight[p] < eplb->pack_weight[best]))
      best = p;
  return best;
}

/* Packs items 0..n-1 of eplb->weight: item i goes to place eplb->pack[i], which is pack * (n / n_packs) + its turn
 * there. */
static void pack(hec_eplb *eplb, int32_t n, int32_t n_packs) {
  int32_t capacity = n / n_packs;
  if (capacity == 1) {
    for (int32_t i = 0; i < n; i++)
      eplb->pack[i] = i;
    return;
  }
  for (int32_t p = 0; p < n_packs; p++) {
    eplb->pack_weight[p] = 0;
    eplb->n_packed[p] = 0;
  }
  hec_order_descending(eplb->weight, n, eplb->order);
  for (int32_t k = 0; k < n; k++) {
    int32_t i = eplb->order[k], p = lightest(eplb, n_packs, capacity);
    eplb->pack[i] = p * capacity + eplb->n_packed[p]++;
    eplb->pack_weight[p] += eplb->weight[i];
  }
  eplb->units += (uint64_t)n * (uint64_t)n_packs;
}

/* Step 1: eplb->listed = experts node after node, groups in packing order, ascending within a group. */
static void list_by_node(hec_eplb *eplb, const uint64_t *load) {
  int32_t size = eplb->n_experts / eplb->n_groups;
  for (int32_t g = 0; g < eplb->n_groups; g++) {
    eplb->weight[g] = 0;
    for (int32_t i = 0; i < size; i++)
      eplb->weight[g] += (double)load[g * size + i];
  }
  pack(eplb, eplb->n_groups, eplb->n_nodes);
  for (int32_t g = 0; g < eplb->n_groups; g++)
    for (int32_t i = 0; i < size; i++)
      eplb->listed[eplb->pack[g] * size + i] = g * size + i;
}

/* Step 2: the n_slots replicas of `experts`: first each once, then by largest load per replica. */
static void replicate(hec_eplb *eplb, const uint64_t *load, const int32_t *experts, int32_t n, int32_t n_slots) {
  for (int32_t i = 0; i < n; i++) {
    eplb->replica[i] = experts[i];
    eplb->count[experts[i]] = 1;
  }
  for (int32_t s = n; s < n_slots; s++) {
    int32_t max = experts[0];
    for (int32_t i = 1; i < n; i++) {
      int32_t e = experts[i];
      if (load[e] * (uint64_t)eplb->count[max] > load[max] * (uint64_t)eplb->count[e])
        max = e;
    }
    eplb->replica[s] = max;
    eplb->count[max]++;
  }
  eplb->units += (uint64_t)(n_slots - n) * (uint64_t)n;
}

void hec_eplb_place(hec_eplb *eplb, const uint64_t *load) {
  int32_t n_slots = eplb->n_slots / eplb->n_nodes, n_experts = eplb->n_experts / eplb->n_nodes;
  eplb->units = 0;
  list_by_node(eplb, load);
  for (int32_t node = 0; node < eplb->n_nodes; node++) {
    replicate(eplb, load, eplb->listed + (ptrdiff_t)node * n_experts, n_experts, n_slots);
    for (int32_t i = 0; i < n_slots; i++)
      eplb->weight[i] = (double)load[eplb->replica[i]] / eplb->count[eplb->replica[i]];
    pack(eplb, n_slots, eplb->n_ranks / eplb->n_nodes);
    for (int32_t i = 0; i < n_slots; i++)
      eplb->slot[node * n_slots + eplb->pack[i]] = eplb->replica[i];
  }
}
