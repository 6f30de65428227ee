/* Dispatch: which holder of an expert computes the assignments of a source. Integers only; every assignment exactly
 * once. */
#pragma once
#include "models/load.h"
#include "runtime/plan/plan.h"

typedef struct {
  const hec_problem *problem;
  const hec_plan *plan;
  int32_t layer, expert;
  const int32_t *holders; /* [n_holders] ascending, slots counted */
  int32_t n_holders;
} hec_dispatch_row;

/* One rule: tokens[j] (zeroed by the caller) = assignments of `source` that holders[j] computes; they sum to n. Not
 * called for n == 0 or a single holder. */
typedef struct {
  const char *name, *summary, *source;
  bool own_first;    /* a source that holds the expert keeps all its assignments: routing need not ask */
  bool own_unspread; /* so does one of an expert without quotas */
  void (*split)(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens);
  /* What of it one rank gets, where that is quicker to say than the split. False: the split says it. NULL: never. Of one
   * row, sources ascend; *at: where the last one was found, 0 before the first. */
  bool (*part)(const hec_dispatch_row *row, int32_t source, int32_t rank, int32_t *at, uint32_t *tokens);
} hec_dispatch;

#define HEC_DISPATCH_LIST(X)                                                                                           \
  X(local_first) /* own rank, else own node, else anywhere, even (Hecate) */                                           \
  X(node_even)   /* own node, else anywhere, even (LAER) */                                                            \
  X(round_robin) /* even over all slots, starting at the source's turn (EPLB users) */                                 \
  X(group)       /* own rank, else own expert-parallel group, even (EP with expert-data parallelism) */                \
  X(home)        /* own rank, else the home (Pro-Prophet) */                                                           \
  X(quota)       /* the plan's quotas; an expert without any: as group */
#define HEC_DISPATCH_DECLARE(name) extern const hec_dispatch hec_dispatch_##name;
HEC_DISPATCH_LIST(HEC_DISPATCH_DECLARE)
const hec_dispatch *hec_dispatch_find(const char *name); /* NULL when unknown */

/* First holder whose rank is at least `rank`, for rules and routing; O(log holders). */
static inline int32_t hec_dispatch_lower(const hec_dispatch_row *row, int32_t rank) {
  int32_t begin = 0, end = row->n_holders;
  while (begin < end) {
    int32_t middle = (begin + end) / 2;
    if (row->holders[middle] < rank)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/* Even split of n over `count` candidates: candidate p gets floor(n/count) + (((p - turn) mod count) < n mod count). */
static inline uint32_t hec_even_share(uint32_t n, int32_t count, int32_t p, int32_t turn) {
  uint32_t q = n / (uint32_t)count, r = n % (uint32_t)count;
  int32_t place = (p - turn) % count;
  return q + ((uint32_t)(place < 0 ? place + count : place) < r);
}

/* Where the assignments of one layer are computed. */
typedef struct {
  int32_t n_ranks, n_experts;
  uint32_t *pair;        /* [n_ranks * n_ranks] assignments of source s computed on rank d at s * n_ranks + d */
  uint64_t *rank_tokens; /* [n_ranks] assignments computed on rank d */
  int32_t *expert_at;    /* [n_ranks + 1] CSR: experts with assignments on rank d, ascending */
  int32_t *expert;       /* [..], one entry of slack */
  uint32_t *tokens;      /* [..], likewise: assignments of that expert on that rank */
  uint32_t *cell;        /* scratch [n_ranks * n_experts], zero between uses */
  int32_t *single_at;    /* scratch [n_ranks + 1] CSR: experts held by that rank only */
  int32_t *single;       /* scratch [n_experts]; those with several holders follow the last rank's */
  int32_t *single_rank;  /* scratch [n_experts] the only holder of single[i] */
  bool *stays;           /* scratch [n_experts] every rank holds it and keeps its own assignments */
  uint32_t *total;       /* scratch [n_experts] */
  int32_t *holder_at;    /* scratch [n_experts + 1] CSR: holders of each expert of the layer */
  int32_t *holders;      /* scratch [n_experts * (n_ranks + 1)] */
  uint32_t *share;       /* scratch, as long, zero between uses */
} hec_routing;

hec_routing hec_routing_new(hec_arena *arena, const hec_problem *problem);
/* load: [..][n_ranks][n_experts], its row `layer`. O(ranks * experts + splits). */
void hec_routing_make(hec_routing *routing, const hec_dispatch *rule, const hec_problem *problem, const hec_plan *plan,
                      const hec_load *load, int32_t layer);
/* The same for one (source, expert): ranks and tokens of each part, ascending; returns their number. For the runtime.
 */
int32_t hec_routing_split(hec_routing *routing, const hec_dispatch *rule, const hec_problem *problem,
                          const hec_plan *plan, const hec_load *load, int32_t layer, int32_t source, int32_t expert,
                          int32_t *ranks, uint32_t *tokens);
/* The same for the layer of the last hec_routing_make: its holders are still listed. */
int32_t hec_routing_split_again(hec_routing *routing, const hec_dispatch *rule, const hec_problem *problem,
                                const hec_plan *plan, const hec_load *load, int32_t layer, int32_t source,
                                int32_t expert, int32_t *ranks, uint32_t *tokens);
/* The same for all experts of one layer; counts [n_ranks][n_experts].
 *   hold     lists the holders; before the others, and again when the layer's copies changed
 *   send     tokens[expert * n_ranks + rank] of one source, zeroed by the caller
 *   receive  tokens[source * n_experts + expert] of one rank, zeroed by the caller */
void hec_routing_hold(hec_routing *routing, const hec_plan *plan, int32_t layer);
void hec_routing_send(hec_routing *routing, const hec_dispatch *rule, const hec_problem *problem, const hec_plan *plan,
                      int32_t layer, const uint32_t *counts, int32_t source, uint32_t *tokens);
void hec_routing_receive(hec_routing *routing, const hec_dispatch *rule, const hec_problem *problem,
                         const hec_plan *plan, int32_t layer, const uint32_t *counts, int32_t rank, uint32_t *tokens);
/* Where experts are in shards (problem.esp > 1), after hec_routing_make: the homes' rows become what each rank does.
 * pair: to the rank of the group that has the source's index in its own. rank_tokens and experts: of every rank of a
 * group what the group computes, since each computes its shard over all of it. O(ranks * (groups + experts)).
 * hec_routing_split gives that rank by itself. */
void hec_routing_shard(hec_routing *routing, const hec_problem *problem);

double hec_routing_overload(const hec_routing *routing); /* busiest rank over mean; 1 when there are no tokens */
