/* Tokens over fixed replicas so that the busiest rank has least: the linear programme of LPLB and of MicroMoE, solved
 * exactly and in whole tokens. Apart from the policies, so that it can be tested exactly. */
#pragma once
#include "runtime/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int32_t n_ranks, n_experts;
  int32_t capacity;              /* places */
  int32_t *at;                   /* [n_experts + 1] in: CSR of places; an expert that cannot be split has none */
  int32_t *rank;                 /* [capacity] in: holder, each once per expert; ascending where they are many */
  uint64_t *tokens;              /* [capacity] in: any split of the experts' tokens; out: the best */
  uint64_t *load;                /* [n_ranks] in: what cannot be moved; out: all that the rank computes */
  uint64_t max;                  /* result: the busiest rank's load */
  uint64_t units;                /* inner steps of the last solution */
  int32_t *expert;               /* scratch [capacity] of the place */
  int32_t *place_at, *place;     /* scratch [n_ranks + 1], [capacity] CSR of places by rank */
  int32_t *level, *queue, *path; /* scratch [n_ranks] */
  int32_t *arc, *next;           /* scratch [n_ranks] place in `place` and place of the expert that come next */
  int32_t n_words;               /* of a set of ranks, a bit each */
  uint64_t *holders;             /* scratch [n_experts * n_words] of an expert with many */
  uint64_t *at_level;            /* scratch [(n_ranks + 1) * n_words] ranks of a level that are no dead ends */
} hec_min_max;

hec_min_max hec_min_max_new(hec_arena *arena, int32_t n_ranks, int32_t n_experts, int32_t capacity);

/* Minimises the busiest rank. Only ranks above the mean give away more than they get. Deterministic; allocates nothing.
 */
void hec_min_max_solve(hec_min_max *m);
