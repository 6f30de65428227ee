/* EPLB's placement of replicated experts on slots: a pure function from loads to slots. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

/* One layer's placement, with its workspace. Divisibility: n_slots by n_ranks, n_ranks and n_groups and n_slots by
 * n_nodes, n_experts by n_groups; n_slots >= n_experts. */
typedef struct {
  int32_t n_experts, n_slots, n_groups, n_nodes, n_ranks;
  int32_t *slot;         /* [n_slots] result: expert in slot i of rank i / (n_slots / n_ranks), in packing order */
  int32_t *count;        /* [n_experts] result: slots of the expert */
  int32_t *listed;       /* scratch [n_experts] experts in the order of their nodes */
  int32_t *replica;      /* scratch [n_slots] */
  double *weight;        /* scratch [n_slots] */
  int32_t *order, *pack; /* scratch [n_slots] */
  double *pack_weight;   /* scratch [n_ranks] or more */
  int32_t *n_packed;     /* scratch, likewise */
  uint64_t units;        /* inner steps of the last placement */
} hec_eplb;

/* n_groups == n_nodes == 1: the global form. */
hec_eplb hec_eplb_new(hec_arena *arena, int32_t n_experts, int32_t n_slots, int32_t n_groups, int32_t n_nodes,
                      int32_t n_ranks);
void hec_eplb_place(hec_eplb *eplb, const uint64_t *load);
