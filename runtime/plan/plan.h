/* A plan is data: who keeps an expert, who holds a copy, who computes which tokens. One plan per micro-batch, all MoE
 * layers. Row = layer * n_experts + expert. Each layer has its own CSR block, so that a layer can be refined alone. */
#pragma once
#include "models/link_cost.h"
#include "runtime/base/arena.h"

typedef struct hec_problem hec_problem; /* problem.h */

/* Part j of n equal parts of an expert is its parameters floor(P j/n) .. floor(P (j+1)/n) - 1, so parts are whole
 * parameters and add up exactly. The one rule for slices (FSDP), pieces of a replica reduction and migration. */
static inline int64_t hec_part_begin(int64_t params, int32_t part, int32_t n_parts) {
  return params * part / n_parts;
}
/* Bytes of a part of `bytes`, where a parameter has bytes_per_param (not a whole number, or no divisor of `bytes`: cut at
 * any byte). */
static inline int64_t hec_part_bytes(int64_t bytes, double bytes_per_param, int32_t part, int32_t n_parts) {
  int64_t unit = (int64_t)bytes_per_param;
  if (unit < 1 || (double)unit != bytes_per_param || bytes % unit != 0)
    unit = 1;
  return (hec_part_begin(bytes / unit, part + 1, n_parts) - hec_part_begin(bytes / unit, part, n_parts)) * unit;
}

/* What a piece of expert data is: a part of the parameters, the gradient or the optimizer state of one expert. */
typedef enum { HEC_STATE_PARAM, HEC_STATE_GRAD, HEC_STATE_OPTIMIZER } hec_state;
typedef struct {
  int32_t layer, expert, part, n_parts;
  hec_state state;
} hec_parcel;

/* One parcel on its way; free `data` with free(). */
typedef struct {
  int32_t source, destination;
  hec_parcel parcel;
} hec_move;
typedef struct {
  hec_move *data;
  size_t n, capacity;
} hec_move_list;
static inline void hec_move_list_add(hec_move_list *list, hec_move move) {
  HEC_RESERVE(list->data, list->capacity, list->n + 1);
  list->data[list->n++] = move;
}
/* Ascending by (source, destination), then by what it is. */
void hec_move_list_sort(hec_move_list *list);

/* A growing list of transfers; free `data` with free(). */
typedef struct {
  hec_transfer *data;
  size_t n, capacity;
} hec_transfer_list;
static inline void hec_transfer_list_add(hec_transfer_list *list, hec_transfer transfer) {
  HEC_RESERVE(list->data, list->capacity, list->n + 1);
  list->data[list->n++] = transfer;
}

typedef enum {
  HEC_COPY_RESIDENT, /* kept between iterations with gradient and optimizer state; pays gradient all-reduce */
  HEC_COPY_GUEST,    /* gathered for this micro-batch, gradient returned to the home, freed after */
} hec_copy_kind;

/* `tokens` assignments of `source` are computed on `rank`. */
typedef struct {
  int32_t source, rank;
  uint32_t tokens;
} hec_quota;

typedef struct {
  int32_t n_layers, n_experts, n_ranks;
  /* Ranks of a group that tokens and guests stay inside, consecutive. It is all ranks, or those of an expert-parallel
   * group (problem.ep). Such a group has every expert: its keeper there is the home or a resident copy. */
  int32_t width;
  int32_t n_slices;      /* equal slices of an expert's parameters: 1 (EP, FSSDP) or n_ranks (FSDP) */
  int32_t *home;         /* [rows * n_slices] rank that keeps slice j */
  int32_t *opt_home;     /* [rows * n_slices] rank that keeps the optimizer state of slice j */
  int32_t *copy_at;      /* [n_layers * (n_experts + 1)] CSR offsets, relative to the layer's block */
  int32_t copy_capacity; /* entries of one layer's block */
  int32_t *copy_rank;    /* [n_layers * copy_capacity] ascending within a row; a rank may stand twice (two slots of one
                            expert on one rank, EPLB) and may be the home */
  uint8_t *copy_kind;    /* [n_layers * copy_capacity] hec_copy_kind */
  int32_t *quota_at;     /* NULL, or [n_layers * (n_experts + 1)] like copy_at; */
  int32_t quota_capacity;
  hec_quota *
      quota; /* [n_layers * quota_capacity] ascending by (source, rank) within a row; a source without any was not spread */
  int32_t slots;      /* memory reserved per rank and layer for homes and residents, in experts; 0: what is in use */
  bool rematerialise; /* guests are dropped after forward and gathered again in backward */
  uint64_t version;   /* raised by the policy whenever homes or resident copies change: something must migrate */
} hec_plan;

/* Everything on the arena; no copies; homes 0; one group of all ranks. copy_capacity = n_experts * n_ranks. No quotas. */
hec_plan hec_plan_new(hec_arena *arena, const hec_problem *problem, int32_t n_slices);
/* Same shapes; copies contents, version and width too; quotas only where `to` has room for them. */
void hec_plan_assign(hec_plan *to, const hec_plan *from);
void hec_plan_assign_layer(hec_plan *to, const hec_plan *from,
                           int32_t layer); /* homes, copies and quotas of one layer */
void hec_plan_set_home(hec_plan *plan, int32_t layer, int32_t expert, int32_t rank); /* n_slices == 1; optimizer too */
void hec_plan_clear_copies(hec_plan *plan, int32_t layer);
/* Keeps the row ascending; O(copies of the layer). */
void hec_plan_add_copy(hec_plan *plan, int32_t layer, int32_t expert, int32_t rank, hec_copy_kind kind);
/* A guest on every rank that does not hold the expert. */
void hec_plan_add_everywhere(hec_plan *plan, int32_t layer, int32_t expert);
/* Contiguous expert parallelism: expert e on rank floor(e * ep / n_experts) of group 0. For dp > 1 there is a resident
 * copy on the same rank of every other group. Sets every layer. */
void hec_plan_set_contiguous(hec_plan *plan, const hec_problem *problem);

static inline int32_t hec_plan_home(const hec_plan *plan, int32_t layer, int32_t expert) {
  return plan->home[((size_t)layer * (size_t)plan->n_experts + (size_t)expert) * (size_t)plan->n_slices];
}
/* The copies of a row. */
typedef struct {
  int32_t n;
  const int32_t *rank; /* [n] ascending */
  const uint8_t *kind; /* [n] */
} hec_copies;
static inline hec_copies hec_plan_copies(const hec_plan *plan, int32_t layer, int32_t expert) {
  const int32_t *at = plan->copy_at + (size_t)layer * (size_t)(plan->n_experts + 1) + expert;
  size_t block = (size_t)layer * (size_t)plan->copy_capacity + (size_t)at[0];
  return (hec_copies){at[1] - at[0], plan->copy_rank + block, plan->copy_kind + block};
}
/* Who keeps the expert for the group of `rank` (whole experts). The home if it is in the group, else the lowest
 * resident copy there, else the home. O(log copies of the row + copies in the group). */
int32_t hec_plan_keeper(const hec_plan *plan, int32_t layer, int32_t expert, int32_t rank);
bool hec_plan_holds(const hec_plan *plan, int32_t layer, int32_t expert, int32_t rank); /* home (n_slices 1) or copy */
/* Ranks that can compute the expert, ascending, slots counted (a rank may stand twice): home first merged in when
 * n_slices == 1. `out` has room for n_ranks + copies of the row. */
int32_t hec_plan_holders(const hec_plan *plan, int32_t layer, int32_t expert, int32_t *out);

/* Writes a layer from the plans of its groups: parts[g] is of ranks g * width .. + width - 1, counted from 0. Homes are the
 * first group's; the other groups' become resident copies. Quotas too, where the plans have them. O(copies + quotas). */
void hec_plan_join(hec_plan *plan, int32_t layer, const hec_plan *const *parts);

/* Aborts (HEC_ASSERT) unless: homes and copies are ranks, rows ascending, every expert can be computed somewhere. */
void hec_plan_check(const hec_plan *plan);
/* FNV-1a over every array, in order: equal plans, equal digests, on every machine. */
uint64_t hec_plan_digest(const hec_plan *plan);

/* What must move to get from plan `from` to plan `to` in one layer. It is every home slice and resident copy that `to`
 * has and `from` has not. Parameters and optimizer state come from the nearest rank that has them (same node first,
 * then the lower rank). When not training, parameters only. Summed per (source, destination), ascending, appended to
 * `out`; `bytes` is scratch [n_ranks * n_ranks], zero before and after. */
void hec_plan_migration(const hec_plan *from, const hec_plan *to, const hec_problem *problem, int32_t layer,
                        int64_t *bytes, hec_transfer_list *out);
/* The same, parcel by parcel, appended to `out` by expert, slice, parameters before optimizer state: for executors. */
void hec_plan_moves(const hec_plan *from, const hec_plan *to, const hec_problem *problem, int32_t layer,
                    hec_move_list *out);
