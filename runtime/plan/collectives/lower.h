/* What the rows of collectives share. Internal to this folder. */
#pragma once
#include "runtime/plan/collective.h"

/* Consecutive items that travel alike: one owner (of slice `slice`), the same receivers. */
typedef struct {
  int32_t first, end; /* items first .. end-1 */
  int32_t owner, slice;
  int64_t bytes; /* of all of them (their slice) */
  const int32_t *receiver;
  int32_t n_receivers;
} hec_sparse_run;

/* The run that starts at item `first`; a single item if `per_item`. */
hec_sparse_run hec_sparse_run_at(const hec_sparse *sparse, int32_t first, int32_t slice, bool per_item);

/* Receivers first .. end-1 of a run are those of one node. */
typedef struct {
  int32_t node, first, end;
} hec_node_run;
hec_node_run hec_node_run_at(const hec_problem *problem, const hec_sparse_run *run, int32_t first);

/* Where a run enters a node that is not the owner's. It is a position among the receivers of that node. It is the
 * first whose place in its node is at least the owner's place, otherwise the lowest. So experts of different owners
 * enter over different ports, and over the owner's own rail where there is one NIC per device. */
int32_t hec_collective_entry(const hec_problem *problem, const hec_sparse_run *run, hec_node_run node);

void hec_collective_begin(hec_collective_plan *plan, const hec_sparse *sparse, int32_t n_stages); /* parts: slices */
/* Appends (source -> destination), or the reverse for a scatter; nothing if they are equal or there are no bytes. */
static inline void hec_collective_add(hec_transfer_list *list, const hec_sparse *sparse, const hec_sparse_run *run,
                                      int32_t source, int32_t destination, bool scatter) {
  if (source == destination || run->bytes == 0)
    return;
  hec_transfer_list_add(list, (hec_transfer){.bytes = run->bytes,
                                             .source = scatter ? destination : source,
                                             .destination = scatter ? source : destination,
                                             .item = sparse->expert[run->first] * sparse->n_slices + run->slice,
                                             .after = -1});
}
/* Whole items on one path, or each slice on its own: the row without relays that others fall back to. */
void hec_collective_two_level_gather(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out);
/* Sorts every stage by (source, destination), merges pairs unless per_item, drops empty stages. O(transfers + ranks).
 */
void hec_collective_finish(hec_collective_plan *plan, int32_t n_ranks);

void hec_collective_two_level_scatter(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out);
