/* Copies for one micro-batch and the split of its tokens, of a layer whose homes and residents stand. It takes what
 * ends the layer soonest by layer_end.h, among these:
 *
 *   everywhere   the k hottest experts on every rank, k = 1, 4, 16 .. before the gate, 1, 3, 7 .. of the others after it
 *   spill        one copy after the other: the fullest rank's largest expert goes to a rank below the mean. It takes
 *                as many tokens as leave neither past it. That goes on until no rank is above it. Those up to the
 *                soonest end are kept. Where experts compute longer than tokens travel, a copy goes to the home's node
 *                before one that has the expert before any other; else the other way round
 *   split        plain, or balanced
 *
 * Whatever is chosen is predicted to end no later than nothing of it. */
#pragma once
#include "runtime/plan/planners/layer_end.h"

/* A copy on `to`, and what it takes over. */
typedef struct {
  int32_t expert, from, to;
  uint32_t tokens;
} hec_guest_move;

typedef struct {
  hec_layer_end end;
  int32_t m;                 /* guests of a rank and layer at most; the caller's */
  int32_t room;              /* of them, those that may be chosen now */
  bool plain;                /* splits stay plain: balanced ones end later */
  bool spread;               /* copies go to nodes without one first */
  hec_held everywhere;       /* what was held everywhere last */
  uint64_t *load;            /* [n_experts] */
  double *key;               /* [n_experts] */
  int32_t *order;            /* [n_experts] descending */
  hec_guest_move *moves;     /* [n_experts * n_ranks] */
  bool *full;                /* [n_ranks] scratch: nothing more can leave it */
  hec_layer_kept none, best; /* scratch: without guests; with the best so far, or before a try */
} hec_guests;

hec_guests hec_guests_new(hec_arena *arena, const hec_problem *problem, hec_hiding hides);

/* Before the gate, once end was set: adds early guests, half of m a rank unless all experts fit; the end that is expected. */
double hec_guests_choose(hec_guests *guests);
/* After it: the split, plain or balanced, and then copies everywhere, or one by one. Each takes the times that it starts from. */
hec_layer_times hec_guests_split(hec_guests *guests);
hec_layer_times hec_guests_hold_late(hec_guests *guests, hec_layer_times times);
double hec_guests_spill(hec_guests *guests, const hec_layer_times *times, int32_t room, hec_held held);
