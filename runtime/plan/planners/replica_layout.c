/* LAER-MoE's planner, as its code does it (reference hecate.md 10.3), N ranks of C slots, E experts:
 *
 *   candidates    "even"          C N / E replicas each, where that is whole
 *                 "proportional"  begin with one replica each, or one per node if all fit. Then the expert with the
 *                                 largest load per replica gets one more. Once it has one per node, it gets one more
 *                                 per node. An expert that would need more slots than are left is out
 *   place         replicas by descending load per replica, each on the least loaded rank with a free slot. It is among
 *                 the nodes with the fewest replicas of the expert (among all nodes if those are full)
 *   score         sum over sources of communication + busiest rank's computation, tokens going evenly to the replicas
 *                 of their own node, else to all
 *
 * and the candidate of the smaller score. Random changes of the counts are in the published code, but its runtime asks
 * for none of them, and none are made here. Ties go to the lower expert and rank; shares are real numbers, as in the
 * published evaluation. Slots may stay empty when no expert can take the last few. */
#include "runtime/plan/planners/replica_layout.h"

#include "runtime/base/heap.h"
#include "runtime/base/status.h"
#include "runtime/plan/planners/order.h"

#include <stdbool.h>
#include <string.h>

hec_replica_layout hec_replica_layout_new(hec_arena *arena, int32_t n_ranks, int32_t per_node, int32_t n_experts,
                                          int32_t capacity) {
  HEC_ASSERT(per_node >= 1 && capacity <= n_experts && (int64_t)n_ranks * capacity >= n_experts);
  int32_t n_nodes = (n_ranks + per_node - 1) / per_node;
  size_t slots = (size_t)n_ranks * (size_t)capacity, cells = (size_t)n_nodes * (size_t)n_experts;
  return (hec_replica_layout){
      .n_ranks = n_ranks,
      .per_node = per_node,
      .n_nodes = n_nodes,
      .n_experts = n_experts,
      .capacity = capacity,
      .slot = HEC_NEW(arena, int32_t, slots),
      .count = HEC_NEW(arena, int32_t, n_experts),
      .try_slot = HEC_NEW(arena, int32_t, slots),
      .try_count = HEC_NEW(arena, int32_t, n_experts),
      .load = HEC_NEW(arena, uint64_t, n_experts),
      .key = HEC_NEW(arena, double, n_experts),
      .order = HEC_NEW(arena, int32_t, n_experts),
      .n_used = HEC_NEW(arena, int32_t, n_ranks),
      .rank_load = HEC_NEW(arena, double, n_ranks),
      .node_rank = HEC_NEW(arena, int32_t, n_nodes),
      .on_node = HEC_NEW(arena, int32_t, cells),
      .share = HEC_NEW(arena, double, cells),
      .anywhere = HEC_NEW(arena, double, n_experts),
  };
}

/* The heap of experts whose root is to get the next replica. */
static bool before(const void *keys, int32_t a, int32_t b) {
  const double *key = keys;
  return key[a] != key[b] ? key[a] > key[b] : a < b;
}

static void count_proportional(hec_replica_layout *layout) {
  int32_t n_experts = layout->n_experts, nodes = layout->n_nodes, slots = layout->n_ranks * layout->capacity;
  int32_t first = (int64_t)nodes * n_experts <= slots ? nodes : 1, n = n_experts;
  int32_t left = slots - first * n_experts, *count = layout->try_count, *heap = layout->order;
  for (int32_t e = 0; e < n_experts; e++) {
    count[e] = first;
    layout->key[e] = (double)layout->load[e] / first;
    heap[e] = e;
  }
  hec_heap_make(heap, n, before, layout->key);
  while (left > 0 && n > 0) {
    int32_t e = heap[0], more = count[e] >= nodes ? nodes : 1;
    layout->units++;
    if (more > left) {
      heap[0] = heap[--n];
    } else {
      count[e] += more;
      left -= more;
      layout->key[e] = (double)layout->load[e] / count[e];
    }
    hec_heap_sink(heap, n, 0, before, layout->key);
  }
}

/* The node's least loaded rank with a free slot, the lower of equals; -1: none. */
static int32_t rank_of(const hec_replica_layout *layout, int32_t node) {
  int32_t best = -1, end = (node + 1) * layout->per_node;
  for (int32_t r = node * layout->per_node; r < end && r < layout->n_ranks; r++)
    if (layout->n_used[r] < layout->capacity && (best < 0 || layout->rank_load[r] < layout->rank_load[best]))
      best = r;
  return best;
}

static bool is_emptier(const hec_replica_layout *layout, int32_t rank, int32_t than) {
  return rank >= 0 && (than < 0 || layout->rank_load[rank] < layout->rank_load[than]);
}

/* The least loaded rank with a free slot of a node with the fewest replicas of the expert; of any node if they have
 * none. */
static int32_t place_of(const hec_replica_layout *layout, int32_t expert) {
  const int32_t *on_node = layout->on_node;
  int32_t fewest = on_node[expert], best = -1, other = -1;
  for (int32_t node = 1; node < layout->n_nodes; node++)
    if (on_node[node * layout->n_experts + expert] < fewest)
      fewest = on_node[node * layout->n_experts + expert];
  for (int32_t node = 0; node < layout->n_nodes; node++) {
    int32_t rank = layout->node_rank[node];
    if (is_emptier(layout, rank, other))
      other = rank;
    if (on_node[node * layout->n_experts + expert] == fewest && is_emptier(layout, rank, best))
      best = rank;
  }
  return best >= 0 ? best : other;
}

/* try_count becomes try_slot. */
static void place(hec_replica_layout *layout) {
  int32_t n_experts = layout->n_experts, slots = layout->n_ranks * layout->capacity;
  memset(layout->n_used, 0, (size_t)layout->n_ranks * sizeof *layout->n_used);
  memset(layout->on_node, 0, (size_t)layout->n_nodes * (size_t)n_experts * sizeof *layout->on_node);
  for (int32_t r = 0; r < layout->n_ranks; r++)
    layout->rank_load[r] = 0;
  for (int32_t node = 0; node < layout->n_nodes; node++)
    layout->node_rank[node] = rank_of(layout, node);
  for (int32_t i = 0; i < slots; i++)
    layout->try_slot[i] = -1;
  for (int32_t e = 0; e < n_experts; e++)
    layout->key[e] = (double)layout->load[e] / layout->try_count[e];
  hec_order_descending(layout->key, n_experts, layout->order);
  for (int32_t i = 0; i < n_experts; i++) {
    int32_t e = layout->order[i];
    for (int32_t k = 0; k < layout->try_count[e]; k++) {
      int32_t rank = place_of(layout, e);
      layout->try_slot[rank * layout->capacity + layout->n_used[rank]++] = e;
      layout->rank_load[rank] += layout->key[e];
      int32_t node = rank / layout->per_node;
      layout->on_node[node * n_experts + e]++;
      layout->node_rank[node] = rank_of(layout, node);
    }
  }
  layout->units += (uint64_t)slots * (uint64_t)(layout->n_nodes + layout->per_node);
}

/* Replicas of each expert on one rank take off what stays there: the remote assignments of the sources of its node.
 * Fills share and anywhere; returns the sources' communication. */
static double communication(hec_replica_layout *layout, const hec_replica_cost *cost, const uint64_t *sent) {
  int32_t n_experts = layout->n_experts;
  double near = 0, far = 0;
  for (int32_t e = 0; e < n_experts; e++)
    layout->anywhere[e] = 0;
  for (int32_t node = 0; node < layout->n_nodes; node++) {
    int32_t begin = node * layout->per_node, end = begin + layout->per_node;
    const int32_t *replicas = layout->on_node + (size_t)node * (size_t)n_experts;
    double *share = layout->share + (size_t)node * (size_t)n_experts;
    for (int32_t e = 0; e < n_experts; e++)
      share[e] = 0;
    for (int32_t r = begin; r < end && r < layout->n_ranks; r++)
      for (int32_t e = 0; e < n_experts; e++)
        share[e] += (double)sent[(size_t)r * (size_t)n_experts + (size_t)e];
    for (int32_t e = 0; e < n_experts; e++) {
      if (replicas[e] > 0) {
        near += share[e];
        share[e] /= replicas[e];
      } else {
        far += share[e];
        layout->anywhere[e] += share[e] / layout->try_count[e];
        share[e] = 0;
      }
    }
  }
  for (int32_t r = 0; r < layout->n_ranks; r++) /* a source's own replicas */
    for (int32_t c = 0; c < layout->n_used[r]; c++) {
      int32_t e = layout->try_slot[r * layout->capacity + c];
      int32_t here = layout->on_node[r / layout->per_node * n_experts + e];
      near -= (double)sent[(size_t)r * (size_t)n_experts + (size_t)e] / here;
    }
  layout->units += (uint64_t)layout->n_ranks * (uint64_t)n_experts;
  return near * cost->node_s + far * cost->network_s;
}

static double score(hec_replica_layout *layout, const hec_replica_cost *cost, const uint64_t *sent) {
  double busiest = 0, exchanged = communication(layout, cost, sent);
  for (int32_t r = 0; r < layout->n_ranks; r++) {
    const double *share = layout->share + (size_t)(r / layout->per_node) * (size_t)layout->n_experts;
    double computed = 0;
    for (int32_t c = 0; c < layout->n_used[r]; c++) {
      int32_t e = layout->try_slot[r * layout->capacity + c];
      computed += share[e] + layout->anywhere[e];
    }
    busiest = computed > busiest ? computed : busiest;
  }
  return exchanged + cost->compute_s * busiest;
}

/* What was tried becomes the result. */
static void take(hec_replica_layout *layout, double seconds) {
  int32_t *slot = layout->slot, *count = layout->count;
  layout->slot = layout->try_slot;
  layout->count = layout->try_count;
  layout->try_slot = slot;
  layout->try_count = count;
  layout->seconds = seconds;
}

static void count_even(hec_replica_layout *layout) {
  int32_t slots = layout->n_ranks * layout->capacity;
  for (int32_t e = 0; e < layout->n_experts; e++)
    layout->try_count[e] = slots / layout->n_experts + (e < slots % layout->n_experts);
}

void hec_replica_layout_even(hec_replica_layout *layout) {
  layout->units = 0;
  memset(layout->load, 0, (size_t)layout->n_experts * sizeof *layout->load);
  count_even(layout);
  place(layout);
  take(layout, 0);
}

void hec_replica_layout_choose(hec_replica_layout *layout, const hec_replica_cost *cost, const uint64_t *sent) {
  int32_t n_experts = layout->n_experts;
  uint64_t all = 0;
  memset(layout->load, 0, (size_t)n_experts * sizeof *layout->load);
  for (int32_t s = 0; s < layout->n_ranks; s++)
    for (int32_t e = 0; e < n_experts; e++)
      layout->load[e] += sent[(size_t)s * (size_t)n_experts + (size_t)e];
  for (int32_t e = 0; e < n_experts; e++)
    all += layout->load[e];
  if (all == 0) {
    hec_replica_layout_even(layout);
    return;
  }
  layout->units = (uint64_t)layout->n_ranks * (uint64_t)n_experts;
  bool even = layout->n_ranks * layout->capacity % n_experts == 0;
  if (even) {
    count_even(layout);
    place(layout);
    take(layout, score(layout, cost, sent));
  }
  count_proportional(layout);
  place(layout);
  double seconds = score(layout, cost, sent);
  if (!even || seconds < layout->seconds)
    take(layout, seconds);
}
