/* FasterMoE's choice of shadowed experts, apart from the policy so that its published model can be tested exactly. */
#pragma once
#include "runtime/base/arena.h"

#include <stdint.h>

/* Predicted seconds of a layer with the set A of shadowed experts:
 *   compute_s * max over ranks of assignments computed + exchange_s * max over ranks of assignments received
 *     + shadow_s * |A|
 * Forward and backward together: 3 computations (one forward, two backward), 4 exchanges, 2 transfers of parameters. */
typedef struct {
  double compute_s;  /* per assignment on the busiest rank */
  double exchange_s; /* per assignment received by the busiest receiver (its own included, as in the paper's B_w) */
  double shadow_s;   /* per shadowed expert */
} hec_shadow_cost;

typedef struct {
  int32_t n_ranks, n_experts;
  double *key;        /* [n_experts] */
  int32_t *order;     /* [n_experts] */
  uint64_t *received; /* [n_ranks] assignments of experts that are not shadowed */
  uint64_t *local;    /* [n_ranks] assignments of shadowed experts, which stay on their source */
  int32_t *chosen;    /* [n_experts] result, in the order of choice */
  double *
      predicted; /* [n_experts + 1] result: seconds with 0, 1, .. shadows; one more than chosen when one was rejected */
  int32_t n_chosen, n_predicted;
} hec_shadow;

hec_shadow hec_shadow_new(hec_arena *arena, int32_t n_ranks, int32_t n_experts);

/* load: [n_ranks][n_experts] assignments of this micro-batch; home: [n_experts].
 * O(ranks * experts) to add up, then O(ranks) per tried expert. */
void hec_shadow_choose(hec_shadow *shadow, const hec_shadow_cost *cost, const uint32_t *load, const int32_t *home);
