/* The loads that planners may look at: per-expert totals of the last records. They are integers, because floating means
 * changed owners through the rounding of ties (reference hecate.md 14). Counts by source are kept for those who ask. */
#pragma once
#include "models/load.h"

typedef struct {
  int32_t n_layers, n_experts;
  int32_t window;   /* records kept */
  int64_t n_seen;   /* records pushed so far */
  uint64_t *totals; /* [window][n_layers][n_experts] ring, slot n_seen % window is written next */
  int32_t n_sources;
  uint32_t *counts; /* [window][n_layers][n_sources][n_experts] likewise; NULL: totals only */
} hec_history;

hec_history hec_history_new(hec_arena *arena, int32_t window, int32_t n_layers, int32_t n_experts);
/* From now on it also keeps what each source sent: window * layers * sources * experts * 4 bytes. */
void hec_history_keep_sources(hec_arena *arena, hec_history *history, int32_t n_sources);
void hec_history_push(hec_history *history, const hec_load *load);
/* The same of sources first .. first + n - 1 alone. */
void hec_history_push_sources(hec_history *history, const hec_load *load, int32_t first, int32_t n);
static inline int32_t hec_history_length(const hec_history *h) {
  return h->n_seen < h->window ? (int32_t)h->n_seen : h->window;
}
/* Totals of the record `age` pushes ago (0: the latest; age < length): [n_experts]. */
const uint64_t *hec_history_row(const hec_history *history, int32_t age, int32_t layer);
/* Sums over the last min(window, length) records: out[n_experts]; all zero before the first record. */
void hec_history_sum(const hec_history *history, int32_t layer, int32_t window, uint64_t *out);
/* The same by source: out[n_sources * n_experts]. */
void hec_history_sum_sources(const hec_history *history, int32_t layer, int32_t window, uint64_t *out);
