/* Expert loads of one record: how many token-expert assignments each source sends to each expert of each MoE layer. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdint.h>

typedef struct {
  int32_t n_layers, n_sources, n_experts;
  uint32_t *counts; /* [n_layers][n_sources][n_experts] token-expert assignments */
} hec_load;

/* Zeroed counts from the arena. */
hec_load hec_load_new(hec_arena *arena, int32_t n_layers, int32_t n_sources, int32_t n_experts);

static inline size_t hec_load_cells(const hec_load *load) {
  return (size_t)load->n_layers * (size_t)load->n_sources * (size_t)load->n_experts;
}
/* Counts of a load of the same shape. */
void hec_load_copy(const hec_load *from, hec_load *to);

static inline uint32_t *hec_load_row(const hec_load *load, int32_t layer, int32_t source) {
  return load->counts + ((size_t)layer * (size_t)load->n_sources + (size_t)source) * (size_t)load->n_experts;
}

/* Spreads the S sources of `from` over the R sources of `to` (same layers and experts; `to` allocated by the caller).
 * S > R: source s goes to rank floor(s*R/S). S < R: source s goes to the contiguous ranks r with floor(r*S/R) == s.
 * Its counts are split evenly over this group. Remainders go one each to ranks from the (expert mod group size)-th on.
 * Totals per (layer, expert) are kept exactly. HEC_FAILED when a sum exceeds 2^32-1. */
hec_status hec_load_spread(const hec_load *from, hec_load *to) HEC_MUST_USE;

/* Scales every layer so that its total is exactly `assignments` (n_ranks * tokens * top_k). By largest remainder, ties
 * to the lower (source, expert). A layer without any assignment stays empty. `assignments` is at most 2^32-1 (asserted;
 * so no count overflows). `order`: caller's scratch, [n_sources*n_experts]. Exact integer arithmetic, O(cells). */
typedef struct {
  uint64_t remainder;
  uint32_t cell;
} hec_load_remainder;
void hec_load_scale(hec_load *load, uint64_t assignments, hec_load_remainder *order);

/* Both: the sources of `from` on the ranks of `to`, every layer scaled. Where sources are divided they are scaled
 * first. If a few tokens were dealt out to many ranks and scaled after that, the rounding of the first step would make
 * another load. An example is 3 tokens on 4 ranks, scaled to 4000 tokens: it must be 1333 each on three ranks, not 1000
 * on four. */
hec_status hec_load_fit(const hec_load *from, uint64_t assignments, hec_load *to,
                        hec_load_remainder *order) HEC_MUST_USE;

/* Counts of a layer above `capacity` become it. How many assignments are dropped by that. */
uint64_t hec_load_cap(hec_load *load, int32_t layer, uint32_t capacity);
uint64_t hec_load_layer_total(const hec_load *load, int32_t layer);
/* By expert, from sources first .. first + n - 1: total[n_experts]. */
void hec_load_totals(const hec_load *load, int32_t layer, int32_t first, int32_t n, uint64_t *total);
