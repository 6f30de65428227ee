/* gain(p, r) = (slots + 1) * |experts of pack p that r holds| + |others of p that r's node holds|
 *
 * Fewer moves come first, then moves inside a node. Where packs of a group must stay together, the best inside each
 * pair of groups is a gain of its own. Groups are assigned by these: optimal over all permutations that keep groups
 * whole. An expert twice in a pack counts once: it moves once. */
#include "runtime/plan/planners/slot_match.h"

#include "runtime/base/status.h"

#include <stdbool.h>
#include <string.h>

hec_slot_match hec_slot_match_new(hec_arena *arena, int32_t n_ranks, int32_t n_groups, int32_t per_node,
                                  int32_t n_experts, int32_t per_rank) {
  HEC_ASSERT(n_ranks % n_groups == 0 && per_node >= 1);
  size_t ranks = (size_t)n_ranks, groups = (size_t)n_groups;
  return (hec_slot_match){
      .n_ranks = n_ranks,
      .n_groups = n_groups,
      .per_node = per_node,
      .n_experts = n_experts,
      .per_rank = per_rank,
      .gain = HEC_NEW(arena, int64_t, ranks * ranks),
      .group_gain = HEC_NEW(arena, int64_t, groups * groups),
      .inside = HEC_NEW(arena, int32_t, groups * ranks),
      .group_of = HEC_NEW(arena, int32_t, groups),
      .slot = HEC_NEW(arena, int32_t, ranks * (size_t)per_rank),
      .near = HEC_NEW(arena, uint8_t, (ranks + (size_t)per_node - 1) / (size_t)per_node * (size_t)n_experts),
      .assign = hec_assignment_new(arena, n_ranks),
  };
}

int64_t hec_slot_match_assign(hec_slot_match *match, const int64_t *gain, int32_t n, int32_t stride,
                              int32_t *column_of) {
  hec_assignment *a = &match->assign;
  HEC_ASSERT(n <= match->n_ranks);
  a->n = n;
  for (int32_t row = 0; row < n; row++)
    for (int32_t c = 0; c < n; c++)
      a->cost[row * n + c] = (double)-gain[(size_t)row * (size_t)stride + (size_t)c];
  double sum = hec_assignment_make(a);
  memcpy(column_of, a->column, (size_t)n * sizeof *column_of);
  return (int64_t)-sum;
}

static void mark_near(hec_slot_match *match, const uint8_t *held) {
  int32_t n_nodes = (match->n_ranks + match->per_node - 1) / match->per_node;
  memset(match->near, 0, (size_t)n_nodes * (size_t)match->n_experts);
  for (int32_t r = 0; r < match->n_ranks; r++) {
    uint8_t *near = match->near + (size_t)(r / match->per_node) * (size_t)match->n_experts;
    const uint8_t *own = held + (size_t)r * (size_t)match->n_experts;
    for (int32_t e = 0; e < match->n_experts; e++)
      near[e] |= own[e];
  }
}

static int64_t gain_of(const hec_slot_match *match, const uint8_t *held, const int32_t *pack, int32_t rank) {
  const uint8_t *own = held + (size_t)rank * (size_t)match->n_experts;
  const uint8_t *near = match->near + (size_t)(rank / match->per_node) * (size_t)match->n_experts;
  int64_t stays = 0, close = 0;
  for (int32_t i = 0; i < match->per_rank; i++) {
    bool again = false;
    for (int32_t k = 0; k < i; k++)
      again |= pack[k] == pack[i];
    stays += !again && own[pack[i]];
    close += !again && !own[pack[i]] && near[pack[i]];
  }
  return stays * ((int64_t)match->n_ranks * match->per_rank + 1) + close;
}

uint64_t hec_slot_match_place(hec_slot_match *match, const uint8_t *held, int32_t *slot) {
  int32_t n_ranks = match->n_ranks, groups = match->n_groups, size = n_ranks / groups, per_rank = match->per_rank;
  mark_near(match, held);
  for (int32_t p = 0; p < n_ranks; p++)
    for (int32_t r = 0; r < n_ranks; r++)
      match->gain[(size_t)p * (size_t)n_ranks + (size_t)r] = gain_of(match, held, slot + (ptrdiff_t)p * per_rank, r);
  for (int32_t a = 0; a < groups; a++)
    for (int32_t b = 0; b < groups; b++) {
      int32_t *inside = match->inside + (size_t)(a * groups + b) * (size_t)size;
      const int64_t *gain = match->gain + (size_t)(a * size) * (size_t)n_ranks + (size_t)(b * size);
      match->group_gain[a * groups + b] = hec_slot_match_assign(match, gain, size, n_ranks, inside);
    }
  (void)hec_slot_match_assign(match, match->group_gain, groups, groups, match->group_of);
  memcpy(match->slot, slot, (size_t)n_ranks * (size_t)per_rank * sizeof *slot);
  for (int32_t p = 0; p < n_ranks; p++) {
    int32_t a = p / size, b = match->group_of[a];
    int32_t rank = b * size + match->inside[(size_t)(a * groups + b) * (size_t)size + (size_t)(p % size)];
    memcpy(slot + (ptrdiff_t)rank * per_rank, match->slot + (ptrdiff_t)p * per_rank, (size_t)per_rank * sizeof *slot);
  }
  uint64_t ranks = (uint64_t)n_ranks, inner = (uint64_t)size;
  return ranks * ranks * (uint64_t)per_rank + (uint64_t)groups * (uint64_t)groups * (inner * inner * inner) +
         (uint64_t)groups * (uint64_t)groups * (uint64_t)groups;
}
