/* Algorithm 1 (memory-limited branch), D ranks, hot set H of the t largest loads F, tot = D * m slots:
 *
 *   n[e] = min(floor(tot * F[e] / sum over H of F), D - 1)
 *   while slots are left and some n[e] < D - 1:   n[e*] += 1 for the largest F[e] / (n[e] + 1), tie to the lower id
 *   for e in H, hottest first, n[e] times:        to a rank d with a free slot and without e; the one with the
 *                                                 smallest (its node holds e, -free slots of the node, -free slots of
 *                                                 d, d)
 *
 * Loads are integer sums over the window and products have 128 bits, so quotas and ties are exact. A slot that no
 * expert can take stays empty. The choice of d looks at nodes first and only inside nodes that are not worse than the
 * best. */
#include "runtime/plan/planners/fssdp.h"

#include "runtime/base/heap.h"

#include <string.h>

__extension__ typedef unsigned __int128 uint128;

/* The rule at the top as one number, the larger the better. It has a rank's free slots and its id. In front of them,
 * for the best rank of a node, are the node's free slots and whether it is without the expert. 0: cannot take a copy.
 */
enum { ID_BITS = 13, FREE_BITS = 17, NODE_FREE_BITS = 29, FREE_MAX = 1 << 16 };
_Static_assert(HEC_DEVICES_MAX < (1 << ID_BITS) - 1 && FREE_MAX < 1 << FREE_BITS &&
                   (int64_t)FREE_MAX * HEC_DEVICES_MAX < (int64_t)1 << NODE_FREE_BITS &&
                   ID_BITS + FREE_BITS + NODE_FREE_BITS < 64,
               "a key holds every rank, every number of free slots of a rank and of a node, and one bit more");
static const uint64_t id_mask = ((uint64_t)1 << ID_BITS) - 1;

hec_fssdp hec_fssdp_new(hec_arena *arena, const hec_problem *problem) {
  size_t ranks = (size_t)problem->n_ranks, experts = (size_t)problem->n_experts, nodes = (size_t)problem->n_nodes;
  HEC_ASSERT(problem->n_ranks <= HEC_DEVICES_MAX && problem->n_experts <= FREE_MAX); /* what a key can hold */
  hec_fssdp fssdp = {
      .problem = problem,
      .ranks = HEC_NEW(arena, int32_t, ranks),
      .node_of = HEC_NEW(arena, int32_t, ranks),
      .slots = HEC_NEW(arena, int32_t, experts),
      .copies = HEC_NEW(arena, int32_t, experts * ranks + 1),
      .n_copies = HEC_NEW(arena, int32_t, experts),
      .place_of = HEC_NEW(arena, int32_t, experts),
      .open = HEC_NEW(arena, int32_t, experts),
      .rank_key = HEC_NEW(arena, uint64_t, ranks),
      .node_key = HEC_NEW(arena, uint64_t, nodes),
      .free_slots = HEC_NEW(arena, int32_t, ranks),
      .free_node = HEC_NEW(arena, int32_t, nodes),
      .rank_holds = HEC_NEW(arena, bool, ranks),
      .node_holds = HEC_NEW(arena, bool, nodes),
      .rank_load = HEC_NEW(arena, uint64_t, ranks),
      .node_load = HEC_NEW(arena, uint64_t, nodes),
      .layer_done = HEC_NEW(arena, bool, problem->n_layers),
  };
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    fssdp.ranks[r] = r;
    fssdp.node_of[r] = hec_problem_node(problem, r);
  }
  return fssdp;
}

uint64_t hec_fssdp_order(const uint64_t *load, int32_t n, int32_t *order) {
  uint64_t moves = 0;
  for (int32_t i = 1; i < n; i++) {
    int32_t e = order[i], at = i;
    while (at > 0 && (load[order[at - 1]] < load[e] || (load[order[at - 1]] == load[e] && order[at - 1] > e))) {
      order[at] = order[at - 1];
      at--;
    }
    order[at] = e;
    moves += (uint64_t)(i - at) + 1;
  }
  return moves;
}

int32_t hec_fssdp_room(const hec_problem *problem, int32_t param_layers, int32_t grad_layers) {
  int32_t max = problem->n_experts;
  if (problem->m != HEC_AUTO)
    return problem->m < max ? problem->m : max;
  double device = problem->cluster->devices[0].memory_bytes;
  for (int32_t r = 1; r < problem->n_ranks; r++)
    if (problem->cluster->devices[r].memory_bytes < device)
      device = problem->cluster->devices[r].memory_bytes;
  double left = device - hec_problem_bytes_without_copies(problem);
  double copy = problem->bytes.expert_param * param_layers;
  copy += problem->train ? problem->bytes.expert_grad * grad_layers : 0;
  if (left <= 0)
    return 0;
  return left >= (double)max * copy ? max : (int32_t)(left / copy);
}

int32_t hec_fssdp_memory_capacity(const hec_problem *problem, bool rematerialise) {
  bool one = rematerialise || !problem->train; /* without backward nothing is kept */
  return hec_fssdp_room(problem, one ? 1 : problem->n_layers, 1);
}

static int32_t paper_degree(const hec_problem *problem, double window_s) {
  double bytes = window_s * hec_cluster_node_bandwidth(problem->cluster, true), max = problem->n_experts;
  if (bytes >= max * problem->bytes.expert_param)
    return problem->n_experts;
  return bytes > 0 ? (int32_t)(bytes / problem->bytes.expert_param) : 0;
}

int32_t hec_fssdp_overlap_degree(hec_spread *gather, hec_spread_sum *sum, const hec_overlap_case *of, uint64_t *steps) {
  const hec_problem *problem = gather->problem;
  int32_t max = problem->n_experts, t = of->start < max ? of->start : max;
  double window_s = hec_problem_window_s(problem, of->layer);
  if (problem->t == HEC_T_PAPER)
    return paper_degree(problem, window_s);
  if (problem->t != HEC_AUTO)
    return problem->t < max ? problem->t : max;
  *steps += (uint64_t)t + 1;
  int32_t first = t, from = t; /* from: where a search that only goes up would begin */
  while (t > 0 && !hec_spread_fits(gather, of->order, of->home, t, window_s, sum)) {
    from = 0;
    t--;
  }
  while (from == first && t < max && hec_spread_fits(gather, of->order, of->home, t + 1, window_s, sum))
    t++;
  *steps += 2 * (uint64_t)(t - from + (t < max));
  return t;
}

typedef struct {
  const uint64_t *load;
  const int32_t *order, *slots;
} hot_set;

/* True when a has more load per copy (its next one counted) than b; ties to the lower expert. */
static bool more_per_copy(const void *keys, int32_t a, int32_t b) {
  const hot_set *of = keys;
  uint128 mine = (uint128)of->load[of->order[a]] * (uint128)(of->slots[b] + 1);
  uint128 other = (uint128)of->load[of->order[b]] * (uint128)(of->slots[a] + 1);
  return mine > other || (mine == other && of->order[a] < of->order[b]);
}

/* Fills slots[0..t) for the hot set order[0..t); D * m slots in all. Returns its steps. */
static uint64_t assign_slots(hec_fssdp *fssdp, const uint64_t *load, const int32_t *order, int32_t t, int32_t m) {
  int64_t left = (int64_t)fssdp->problem->n_ranks * m, total = left;
  int32_t max = fssdp->problem->n_ranks - 1, n_open = 0;
  uint64_t sum = 0, steps = 2 * (uint64_t)t;
  for (int32_t i = 0; i < t; i++)
    sum += load[order[i]];
  for (int32_t i = 0; i < t; i++) {
    uint128 quota = sum > 0 ? (uint128)load[order[i]] * (uint128)total / sum : 0;
    fssdp->slots[i] = quota < (uint128)max ? (int32_t)quota : max;
    left -= fssdp->slots[i];
    if (fssdp->slots[i] < max)
      fssdp->open[n_open++] = i;
  }
  const hot_set hot = {load, order, fssdp->slots};
  hec_heap_make(fssdp->open, n_open, more_per_copy, &hot);
  for (; left > 0 && n_open > 0; left--) {
    if (++fssdp->slots[fssdp->open[0]] == max)
      fssdp->open[0] = fssdp->open[--n_open];
    hec_heap_sink(fssdp->open, n_open, 0, more_per_copy, &hot);
    steps += 8;
  }
  return steps;
}

static uint64_t rank_key(const hec_fssdp *fssdp, int32_t rank) {
  return fssdp->free_slots[rank] > 0 ? (uint64_t)fssdp->free_slots[rank] << ID_BITS | (id_mask - (uint64_t)rank) : 0;
}

static void set_node_key(hec_fssdp *fssdp, int32_t node) {
  int32_t end = hec_problem_node_end(fssdp->problem, node);
  uint64_t best = 0;
  for (int32_t d = node * fssdp->problem->cluster->devices_per_node; d < end; d++)
    best = fssdp->rank_key[d] > best ? fssdp->rank_key[d] : best;
  uint64_t without = fssdp->node_holds[node] ? 0 : 1;
  best |= without << (ID_BITS + FREE_BITS + NODE_FREE_BITS) | (uint64_t)fssdp->free_node[node] << (ID_BITS + FREE_BITS);
  fssdp->node_key[node] = (best & id_mask) != 0 ? best : 0; /* ids are below the mask, so a rank's low bits are not 0 */
}

/* The rank for the next copy; -1 if none can take it. */
static int32_t best_rank(const hec_fssdp *fssdp) {
  uint64_t best = 0;
  for (int32_t n = 0; n < fssdp->problem->n_nodes; n++)
    best = fssdp->node_key[n] > best ? fssdp->node_key[n] : best;
  return best > 0 ? (int32_t)(id_mask - (best & id_mask)) : -1;
}

static void give_copy(hec_fssdp *fssdp, int32_t rank) {
  int32_t node = fssdp->node_of[rank];
  fssdp->rank_holds[rank] = fssdp->node_holds[node] = true;
  fssdp->rank_key[rank] = 0;
  fssdp->free_slots[rank]--;
  fssdp->free_node[node]--;
}

/* Gives `slots` copies of the expert of rank `home`. When no more ranks than that can take one, order does not matter.
 */
static uint64_t give_copies(hec_fssdp *fssdp, int32_t slots, int32_t home) {
  int32_t n_ranks = fssdp->problem->n_ranks, n_nodes = fssdp->problem->n_nodes, can_take = 0;
  for (int32_t d = 0; d < n_ranks; d++) {
    fssdp->rank_key[d] = d == home ? 0 : rank_key(fssdp, d);
    can_take += fssdp->rank_key[d] > 0;
  }
  if (can_take <= slots) {
    for (int32_t d = 0; d < n_ranks; d++)
      if (fssdp->rank_key[d] > 0)
        give_copy(fssdp, d);
    return (uint64_t)n_ranks;
  }
  for (int32_t n = 0; n < n_nodes; n++)
    set_node_key(fssdp, n);
  for (int32_t k = 0; k < slots; k++) {
    int32_t rank = best_rank(fssdp);
    give_copy(fssdp, rank);
    set_node_key(fssdp, fssdp->node_of[rank]);
  }
  return (uint64_t)n_ranks + (uint64_t)slots * (uint64_t)(n_nodes + fssdp->problem->cluster->devices_per_node);
}

/* Places slots[i] copies of the i-th hottest expert, whose owner is `home`; its ranks ascending in copies. */
static uint64_t place_expert(hec_fssdp *fssdp, int32_t i, int32_t home) {
  int32_t n_ranks = fssdp->problem->n_ranks, n_nodes = fssdp->problem->n_nodes, n = 0;
  int32_t *ranks = fssdp->copies + (size_t)i * (size_t)n_ranks;
  memset(fssdp->rank_holds, 0, (size_t)n_ranks * sizeof *fssdp->rank_holds);
  memset(fssdp->node_holds, 0, (size_t)n_nodes * sizeof *fssdp->node_holds);
  fssdp->node_holds[fssdp->node_of[home]] = true;
  uint64_t steps = give_copies(fssdp, fssdp->slots[i], home);
  for (int32_t d = 0; d < n_ranks; d++) {
    ranks[n] = d;
    n += fssdp->rank_holds[d];
  }
  fssdp->n_copies[i] = n;
  return steps;
}

/* The memory-limited branch: fills copies and n_copies of the hot set. */
static uint64_t share_out(hec_fssdp *fssdp, const hec_plan *plan, int32_t layer, const uint64_t *load,
                          const int32_t *order, int32_t t, int32_t m) {
  const hec_problem *problem = fssdp->problem;
  for (int32_t r = 0; r < problem->n_ranks; r++)
    fssdp->free_slots[r] = m;
  for (int32_t n = 0; n < problem->n_nodes; n++)
    fssdp->free_node[n] = m * (hec_problem_node_end(problem, n) - n * problem->cluster->devices_per_node);
  uint64_t steps = assign_slots(fssdp, load, order, t, m);
  for (int32_t i = 0; i < t; i++)
    steps += place_expert(fssdp, i, hec_plan_home(plan, layer, order[i]));
  return steps;
}

/* Appends the guests of one expert to the layer's block at `at`; returns the new end. */
static int32_t write_guests(hec_plan *plan, int32_t layer, int32_t at, const int32_t *ranks, int32_t n) {
  size_t block = (size_t)layer * (size_t)plan->copy_capacity + (size_t)at;
  if (n > 0)
    memcpy(plan->copy_rank + block, ranks, (size_t)n * sizeof *ranks);
  memset(plan->copy_kind + block, HEC_COPY_GUEST, (size_t)n);
  return at + n;
}

uint64_t hec_fssdp_materialise(hec_fssdp *fssdp, hec_plan *plan, int32_t layer, const uint64_t *load,
                               const int32_t *order, int32_t t, int32_t m) {
  int32_t n_ranks = plan->n_ranks, n_experts = plan->n_experts;
  t = t < n_experts ? t : n_experts;
  m = m < t ? m : t;
  bool everywhere = t <= m;
  uint64_t steps = everywhere ? 0 : share_out(fssdp, plan, layer, load, order, t, m);
  for (int32_t e = 0; e < n_experts; e++)
    fssdp->place_of[e] = -1;
  for (int32_t i = 0; i < t; i++)
    fssdp->place_of[order[i]] = i;
  int32_t *copy_at = plan->copy_at + (size_t)layer * (size_t)(n_experts + 1), at = 0;
  copy_at[0] = 0;
  for (int32_t e = 0; e < n_experts; e++) {
    int32_t place = fssdp->place_of[e];
    if (place >= 0 && everywhere) {
      int32_t home = hec_plan_home(plan, layer, e);
      at = write_guests(plan, layer, at, fssdp->ranks, home);
      at = write_guests(plan, layer, at, fssdp->ranks + home + 1, n_ranks - home - 1);
    } else if (place >= 0) {
      at = write_guests(plan, layer, at, fssdp->copies + (size_t)place * (size_t)n_ranks, fssdp->n_copies[place]);
    }
    copy_at[e + 1] = at;
  }
  return steps + (uint64_t)n_experts + (uint64_t)at;
}
