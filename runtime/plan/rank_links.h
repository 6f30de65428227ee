/* The links that the ranks of a problem use, numbered without gaps, and the routes between them in those numbers.
 * Planners that price link by link walk these instead of the whole cluster. */
#pragma once
#include "runtime/base/arena.h"

#include <stddef.h>

typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */

typedef struct {
  int32_t n_ranks;
  int32_t n_links;     /* used by some pair of ranks */
  int32_t n_padded;    /* rounded up to a multiple of 4, at least 4; the padding has bandwidth 1 and carries nothing */
  double *bandwidth;   /* [n_padded] bytes/s */
  double *token;       /* [n_padded] of them for rows of assignments (rates.h) */
  int32_t *route_at;   /* [n_ranks * n_ranks + 1] into route_link; (s, d) at s * n_ranks + d */
  int32_t *route_link; /* link numbers */
  double *latency_s;   /* [n_ranks * n_ranks] */
} hec_rank_links;

hec_rank_links hec_rank_links_new(hec_arena *arena, const hec_problem *problem);

/* The links from rank s to rank d: returns their number (0 for s == d) and where they are. */
static inline int32_t hec_rank_links_route(const hec_rank_links *links, int32_t s, int32_t d, const int32_t **route) {
  const int32_t *at = links->route_at + (size_t)s * (size_t)links->n_ranks + (size_t)d;
  *route = links->route_link + at[0];
  return at[1] - at[0];
}
