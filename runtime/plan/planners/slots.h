/* From experts in slots of ranks to homes and resident copies: what EPLB, FlashLB and CRAFT have in common behind their
 * placements. */
#pragma once
#include "runtime/plan/policy.h"

typedef struct {
  int32_t n_experts, n_ranks;
  int32_t *at, *filled; /* [n_experts + 1], [n_experts] CSR of the slots' ranks by expert */
  int32_t *rank;        /* [n_ranks * slots per rank] */
} hec_slots;

/* Slots of a rank and layer: what was asked for, else what expert parallelism needs and own[redundant] more. */
int32_t hec_slots_per_rank(const hec_policy_run *run, int32_t redundant);
hec_slots hec_slots_new(hec_arena *arena, int32_t n_experts, int32_t n_ranks, int32_t per_rank);
/* Writes a layer: slot i, of rank i / per_rank, holds expert slot[i] (-1: none). The home is the present one if it
 * still has a slot of the expert, otherwise the rank of its first slot. Every other slot is a resident copy. */
void hec_slots_write(hec_slots *slots, hec_plan *plan, int32_t layer, const int32_t *slot, int32_t per_rank);
