/* Ring of the last `window` records: totals over the sources, whole numbers, so that sums are exact in any order.
 * Push costs O(layers * sources * experts), a sum O(window * experts). */
#include "runtime/plan/history.h"

#include <string.h>

hec_history hec_history_new(hec_arena *arena, int32_t window, int32_t n_layers, int32_t n_experts) {
  HEC_ASSERT(window >= 1 && n_layers >= 1 && n_experts >= 1);
  return (hec_history){
      .n_layers = n_layers,
      .n_experts = n_experts,
      .window = window,
      .totals = HEC_NEW(arena, uint64_t, (size_t)window * (size_t)n_layers * (size_t)n_experts),
  };
}

static uint64_t *slot_row(const hec_history *h, int64_t record, int32_t layer) {
  size_t slot = (size_t)(record % h->window);
  return h->totals + (slot * (size_t)h->n_layers + (size_t)layer) * (size_t)h->n_experts;
}

void hec_history_keep_sources(hec_arena *arena, hec_history *h, int32_t n_sources) {
  HEC_ASSERT(n_sources >= 1 && h->n_seen == 0);
  h->n_sources = n_sources;
  h->counts =
      HEC_NEW(arena, uint32_t, (size_t)h->window * (size_t)h->n_layers * (size_t)n_sources * (size_t)h->n_experts);
}

/* One layer of one record: [n_sources][n_experts]. */
static uint32_t *slot_counts(const hec_history *h, int64_t record, int32_t layer) {
  size_t slot = (size_t)(record % h->window);
  return h->counts + (slot * (size_t)h->n_layers + (size_t)layer) * (size_t)h->n_sources * (size_t)h->n_experts;
}

static void keep_counts(hec_history *h, const hec_load *load, int32_t first) {
  size_t row = (size_t)h->n_experts;
  for (int32_t layer = 0; layer < h->n_layers; layer++)
    for (int32_t source = 0; source < h->n_sources; source++)
      memcpy(slot_counts(h, h->n_seen, layer) + (size_t)source * row, hec_load_row(load, layer, first + source),
             row * sizeof *h->counts);
}

void hec_history_push(hec_history *history, const hec_load *load) {
  hec_history_push_sources(history, load, 0, load->n_sources);
}

void hec_history_push_sources(hec_history *history, const hec_load *load, int32_t first, int32_t n) {
  HEC_ASSERT(load->n_layers == history->n_layers && load->n_experts == history->n_experts);
  HEC_ASSERT(first >= 0 && n >= 1 && first + n <= load->n_sources && (!history->counts || n == history->n_sources));
  for (int32_t layer = 0; layer < history->n_layers; layer++)
    hec_load_totals(load, layer, first, n, slot_row(history, history->n_seen, layer));
  if (history->counts)
    keep_counts(history, load, first);
  history->n_seen++;
}

const uint64_t *hec_history_row(const hec_history *history, int32_t age, int32_t layer) {
  HEC_ASSERT(age >= 0 && age < hec_history_length(history) && layer >= 0 && layer < history->n_layers);
  return slot_row(history, history->n_seen - 1 - age, layer);
}

void hec_history_sum(const hec_history *history, int32_t layer, int32_t window, uint64_t *out) {
  memset(out, 0, (size_t)history->n_experts * sizeof *out);
  int32_t length = hec_history_length(history);
  int32_t records = window < length ? window : length;
  for (int32_t age = 0; age < records; age++) {
    const uint64_t *row = hec_history_row(history, age, layer);
    for (int32_t e = 0; e < history->n_experts; e++)
      out[e] += row[e];
  }
}

void hec_history_sum_sources(const hec_history *history, int32_t layer, int32_t window, uint64_t *out) {
  HEC_ASSERT(history->counts != NULL);
  size_t n = (size_t)history->n_sources * (size_t)history->n_experts;
  memset(out, 0, n * sizeof *out);
  int32_t length = hec_history_length(history);
  int32_t records = window < length ? window : length;
  for (int32_t age = 0; age < records; age++) {
    const uint32_t *counts = slot_counts(history, history->n_seen - 1 - age, layer);
    for (size_t i = 0; i < n; i++)
      out[i] += counts[i];
  }
}
