/* Pro-Prophet's choice of experts to replicate on part of the ranks (reference policies.md 3.9). It stands apart from
 * the policy so that its model can be tested exactly. */
#pragma once
#include "runtime/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* Predicted seconds of a layer, R = assignments received from other ranks, H = assignments computed, C = copies made:
 *
 *   T_FEC = compute_s * max H, T_BEC = 2 T_FEC, T_FNEC = window_s, T_BNEC = 2 window_s
 *   4 exchange_s * max R + 3 T_FEC + max(0, transfer_s C - T_FEC - T_FNEC) + max(0, gradient_s C - T_BEC - T_BNEC)
 *
 * Forward only: 2, 1, and no gradients. */
typedef struct {
  double exchange_s; /* per assignment received, of one exchange */
  double compute_s;  /* forward, per assignment */
  double transfer_s; /* per copy of an expert's parameters, the ranks sharing the work: bytes / (ranks * bandwidth) */
  double gradient_s; /* likewise, of its gradients */
  double window_s;   /* forward of what is not experts */
  bool train;
} hec_partial_cost;

typedef struct {
  int32_t n_ranks, n_experts;
  int32_t excluded;    /* in: n, ranks that get no copy; -1: the best of several */
  int32_t balanced;    /* in: 1 / a */
  int32_t *chosen;     /* [n_experts] result: experts in the order of choice */
  int32_t *receiver;   /* [n_experts * n_ranks] result: ranks that get a copy of chosen[k], from k * n_ranks */
  double *predicted;   /* [n_experts + 1] result: seconds with 0, 1, .. n_chosen of them */
  int32_t n_chosen;    /* result */
  int32_t n_receivers; /* result: of each chosen expert */
  uint64_t *load;      /* scratch [n_experts] */
  uint64_t *computed;  /* [n_ranks] H, of the result */
  uint64_t *received;  /* [n_ranks] R, of the result */
  uint8_t *used;       /* scratch [n_ranks] a rank's hottest expert is replicated */
  uint8_t *is_chosen;  /* scratch [n_experts] */
  double *key;         /* scratch [n_ranks] */
  int32_t *order;      /* scratch [n_ranks] */
  uint64_t units;      /* inner steps of the last choice */
} hec_partial_shadow;

/* excluded -1, balanced 10. */
hec_partial_shadow hec_partial_shadow_new(hec_arena *arena, int32_t n_ranks, int32_t n_experts);

/* sent: [n_ranks][n_experts] assignments; home: [n_experts]; at most `max` experts.
 * O(ranks * experts), then O(ranks log ranks + experts) per tried expert. */
void hec_partial_shadow_choose(hec_partial_shadow *shadow, const hec_partial_cost *cost, const uint64_t *sent,
                               const int32_t *home, int32_t max);
