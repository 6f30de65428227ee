/* Experts to ranks, equally many on each in every layer. As many tokens as possible find their experts of two
 * successive layers on one rank. */
#pragma once
#include "runtime/base/arena.h"

typedef struct {
  int32_t n_layers, n_experts, n_parts;
  const uint64_t *flow; /* in: [n_layers - 1][n_experts][n_experts] tokens of expert a, then b of the next layer */
  int32_t *part;        /* [n_layers * n_experts] in: a start with the wanted counts, alike in all layers; result */
  const int32_t *pool;  /* in: [n_parts] experts stay in parts of the pool that they start in; NULL: all are one */
  uint64_t *gain;       /* scratch [n_experts * n_parts] */
  int32_t *start;       /* scratch [n_layers * n_experts] */
  int32_t *room;        /* scratch [n_parts] */
  int32_t *best;        /* scratch [n_layers * n_experts] */
  int32_t *path;        /* scratch [n_layers * n_experts] */
  int32_t *of_path;     /* scratch [n_experts] */
  uint64_t *between;    /* scratch [n_experts * n_experts] */
  double *key;          /* scratch [n_experts * n_experts] */
  int32_t *order;       /* scratch [n_experts * n_experts] */
} hec_affinity;

hec_affinity hec_affinity_new(hec_arena *arena, int32_t n_layers, int32_t n_experts, int32_t n_parts);
/* A heuristic, never worse than the start. */
void hec_affinity_make(hec_affinity *affinity);
/* Tokens whose part stays the same from a layer to the next. */
uint64_t hec_affinity_kept(const hec_affinity *affinity);
