/* Which rank takes over which pack of experts, so that as little as possible moves. EPLB's placement says what goes
 * together, not where (reference policies.md 4.1, issue 25 of EPLB). */
#pragma once
#include "runtime/plan/planners/assignment.h"

#include <stdint.h>

typedef struct {
  int32_t n_ranks, n_groups, per_node, n_experts, per_rank; /* per_rank: slots; groups of ranks keep packs together */
  int64_t *gain;                                            /* [n_ranks * n_ranks] of pack p on rank r */
  int64_t *group_gain;   /* [n_groups * n_groups] of the packs of group a on the ranks of group b */
  int32_t *inside;       /* [n_groups * n_ranks] for that pair: rank, from the group's first, of each pack */
  int32_t *group_of;     /* [n_groups] group of ranks that takes the packs of group a */
  int32_t *slot;         /* scratch [n_ranks * per_rank] */
  uint8_t *near;         /* scratch [nodes * n_experts] a rank of the node holds it */
  hec_assignment assign; /* scratch */
} hec_slot_match;

/* Ranks in n_groups equal runs (EPLB's nodes; 1: any pack may go to any rank); per_node ranks share a node. */
hec_slot_match hec_slot_match_new(hec_arena *arena, int32_t n_ranks, int32_t n_groups, int32_t per_node,
                                  int32_t n_experts, int32_t per_rank);

/* slot[n_ranks * per_rank]: expert in slot i of rank i / per_rank. Whole groups of packs, and packs within them, change
 * ranks so that as many experts as possible find the rank that holds them already (held[n_ranks][n_experts]). Of such
 * ways, it takes one in which as many of the others as possible find a rank of their node. Optimal.
 * O(groups^2 * (ranks / groups)^3 + groups^3 + ranks^2 * per_rank^2); returns its inner steps. */
uint64_t hec_slot_match_place(hec_slot_match *match, const uint8_t *held, int32_t *slot);

/* The one-to-one assignment of n rows to n columns with the largest sum of gain[row * stride + column]:
 * column_of[row]. Returns the sum. O(n^3). */
int64_t hec_slot_match_assign(hec_slot_match *match, const int64_t *gain, int32_t n, int32_t stride,
                              int32_t *column_of);
