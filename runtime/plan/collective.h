/* Sparse collectives: SparseAllGather (spAG) and SparseReduceScatter (spRS) of experts, written once. A collective is a
 * way to turn "these experts go from their owners to these ranks" into exchanges of point-to-point transfers. It stands
 * on floor 1, not with the lowering, because policies price their choices with the same rows (t of FSSDP). Semantics:
 * reference hecate.md section 3. */
#pragma once
#include "runtime/plan/plan.h"

/* What one spAG moves (spRS moves it back): items ascending by expert, and of an expert one per group (plan.width);
 * receivers ascending, without the owner. */
typedef struct {
  int32_t n_items, n_slices;
  int32_t *expert;        /* [n_items] */
  int32_t *owner;         /* [n_items * n_slices] rank of slice j (hec_part_begin says what is in it) */
  int32_t *receiver_at;   /* [n_items + 1] */
  int32_t *receiver;      /* CSR: ranks that must hold the whole item */
  int64_t bytes;          /* of one whole item */
  double bytes_per_param; /* where slices may be cut; 0: anywhere */
  bool relays;            /* a rank may pass on parts of items that it does not hold: rows with `relays` may serve it */
  int32_t width;          /* relays: ranks of a group (plan.width), which pass on parts of its items alone; 0: all */
} hec_sparse;

/* Which guests: all, or those whose mark[expert * n_ranks + rank] is set, or is not. */
typedef enum { HEC_GUESTS_ANY, HEC_GUESTS_MARKED, HEC_GUESTS_UNMARKED } hec_guest_choice;
/* The guests of a layer, each from who keeps the expert in its group. Fills items, owners and receivers, of which there
 * is room for all (experts * groups, times slices; experts * ranks). `mark` may be NULL for any. */
void hec_sparse_guests(hec_sparse *sparse, const hec_plan *plan, int32_t layer, hec_guest_choice choice,
                       const uint8_t *mark);

enum { HEC_COLLECTIVE_STAGES_MAX = 4 };

/* One way: `stages` exchanges, none empty, run one after the other. A scatter's stage delivers into staging slots and
 * is followed by a local reduction at its destinations. Transfers stand ascending by (source, destination), those of a
 * pair merged (item -1). In a chunked chain they stand by item, each behind the one it forwards (after < own index).
 *
 * An item travels in n_parts parts (hec_part_begin): its slices, or what the row cuts it into. A rank may pass on a
 * part of an item without holding it. Then it is in `relayed` of the stage that brings the part there, whether
 * transfers are merged or not.
 *
 * Without relays a whole item leaves its owner whole: where receivers are on other nodes, the first stage of a gather
 * has a transfer of all of it from its owner to one of them. Planners bound prices by that.
 * Zero-initialise; free with hec_collective_plan_free. */
typedef struct {
  bool per_item;              /* set by the caller: never merge; item = expert * n_parts + part (executors) */
  int32_t n_stages, n_chunks; /* n_chunks > 1: pipelined chains (hec_transfer.after) */
  int32_t n_parts;
  hec_transfer_list stage[HEC_COLLECTIVE_STAGES_MAX];   /* owned by the caller, reused */
  hec_transfer_list relayed[HEC_COLLECTIVE_STAGES_MAX]; /* likewise; source = destination = the rank, item = the part */
} hec_collective_plan;

typedef struct {
  const char *name, *summary, *source;
  int32_t n_stages; /* at most */
  bool whole;       /* gathers slices of items as the row `direct` does, and so is never cheaper there */
  bool
      relays; /* ranks pass on parts that they do not hold; taken where asked for, or by policies that say so (policy.h) */
  void (*gather)(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out);
  void (*scatter)(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out);
} hec_collective;

/* Rows, in order: earlier wins ties. */
#define HEC_COLLECTIVE_LIST(X) X(direct) X(two_level) X(chain) X(parts)
#define HEC_COLLECTIVE_DECLARE(name) extern const hec_collective hec_collective_##name;
HEC_COLLECTIVE_LIST(HEC_COLLECTIVE_DECLARE)
extern const hec_collective *const hec_collectives[]; /* NULL-terminated */

void hec_collective_plan_free(hec_collective_plan *plan);
const hec_collective *hec_collective_find(const char *name); /* NULL when unknown */

double hec_collective_cost(hec_link_cost *cost, const hec_collective_plan *plan); /* sum of its stages, seconds */

/* Lowers with every row (or only `forced` if not NULL) and leaves the cheapest in `out`; returns its row.
 * `scratch` is a second plan, reused (its contents may be swapped with those of `out`). Nothing to move: no stages, the
 * first row (or `forced`). O(rows of the table * (transfers + ranks)). */
const hec_collective *hec_collective_choose(hec_link_cost *cost, const hec_problem *problem, const hec_sparse *sparse,
                                            bool scatter, const hec_collective *forced, hec_collective_plan *out,
                                            hec_collective_plan *scratch);
