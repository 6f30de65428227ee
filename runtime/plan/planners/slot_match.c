/* gain(p, r) = (slots + 1) * |experts of pack p that r holds| + |others of p that r's node holds|
 *
 * Fewer moves come first, then moves inside a node. The best one-to-one assignment of packs to ranks is found by
 * shortest augmenting paths (the Hungarian method with potentials; Kuhn 1955, Jonker and Volgenant 1987): rows enter
 * one by one, potentials keep u[row] + v[column] <= -gain with equality on the matching. Where packs of a group must
 * stay together, the best inside each pair of groups is a gain of its own, and groups are assigned by these: optimal
 * over all permutations that keep groups whole. An expert twice in a pack counts once: it moves once. */
#include "runtime/plan/planners/slot_match.h"

#include "runtime/base/status.h"

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
      .potential = HEC_NEW(arena, int64_t, 3 * (ranks + 1)),
      .partner = HEC_NEW(arena, int32_t, 2 * (ranks + 1)),
      .seen = HEC_NEW(arena, bool, ranks + 1),
  };
}

/* Rows and columns count from 1; 0 stands for "none yet". */
typedef struct {
  const int64_t *gain;
  int32_t n, stride;
  int64_t *u, *v, *slack; /* potentials of rows and columns; the least reduced cost of a column seen from the tree */
  int32_t *row_of, *from; /* matched row of a column; the column before it on the path */
  bool *seen;             /* column is in the tree */
} assignment;

static int64_t reduced_cost(const assignment *a, int32_t row, int32_t column) {
  return -a->gain[(size_t)(row - 1) * (size_t)a->stride + (size_t)(column - 1)] - a->u[row] - a->v[column];
}

/* Adds the column of least slack to the tree that ends in `column`; returns it. */
static int32_t grow(assignment *a, int32_t column) {
  int32_t row = a->row_of[column], next = 0;
  a->seen[column] = true;
  for (int32_t c = 1; c <= a->n; c++) {
    if (a->seen[c])
      continue;
    int64_t cost = reduced_cost(a, row, c);
    if (cost < a->slack[c]) {
      a->slack[c] = cost;
      a->from[c] = column;
    }
    if (next == 0 || a->slack[c] < a->slack[next])
      next = c;
  }
  int64_t step = a->slack[next];
  for (int32_t c = 0; c <= a->n; c++) {
    if (a->seen[c]) {
      a->u[a->row_of[c]] += step;
      a->v[c] -= step;
    } else {
      a->slack[c] -= step;
    }
  }
  return next;
}

static void enter_row(assignment *a, int32_t row) {
  int32_t column = 0;
  a->row_of[0] = row;
  for (int32_t c = 0; c <= a->n; c++) {
    a->slack[c] = INT64_MAX / 4;
    a->seen[c] = false;
  }
  do
    column = grow(a, column);
  while (a->row_of[column] != 0);
  for (; column != 0; column = a->from[column])
    a->row_of[column] = a->row_of[a->from[column]];
}

int64_t hec_slot_match_assign(hec_slot_match *match, const int64_t *gain, int32_t n, int32_t stride,
                              int32_t *column_of) {
  size_t width = (size_t)match->n_ranks + 1;
  HEC_ASSERT(n <= match->n_ranks);
  memset(match->potential, 0, 3 * width * sizeof *match->potential);
  memset(match->partner, 0, 2 * width * sizeof *match->partner);
  assignment a = {.gain = gain,
                  .n = n,
                  .stride = stride,
                  .u = match->potential,
                  .v = match->potential + width,
                  .slack = match->potential + 2 * width,
                  .row_of = match->partner,
                  .from = match->partner + width,
                  .seen = match->seen};
  for (int32_t row = 1; row <= n; row++)
    enter_row(&a, row);
  int64_t sum = 0;
  for (int32_t c = 1; c <= n; c++) {
    column_of[a.row_of[c] - 1] = c - 1;
    sum += gain[(size_t)(a.row_of[c] - 1) * (size_t)stride + (size_t)(c - 1)];
  }
  return sum;
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
