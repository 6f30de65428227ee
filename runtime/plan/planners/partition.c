/* Multi-way number partitioning (MoETuner's first integer programme, arXiv 2502.06643; reference policies.md 2):
 *
 *   minimise  sum over parts of | sum of its weights - mean |,   every part at most ceil(n / parts) items
 *
 * Items go by descending weight, each to the lightest part with room (ties: fewer items, then the lower part). Then
 * pairs of different parts change places where that lowers the two parts' deviations, pass after pass until none does.
 * In whole numbers: deviations times n_parts. The bound on items is ours. With it every rank keeps equally many
 * experts in each layer. The paper only asks so for all layers together. O(n log n + n parts + passes n^2). */
#include "runtime/plan/planners/partition.h"

#include "runtime/base/status.h"
#include "runtime/plan/planners/order.h"

#include <stdbool.h>
#include <string.h>

enum { PASSES_MAX = 100 };

hec_partition hec_partition_new(hec_arena *arena, int32_t n_items, int32_t n_parts) {
  return (hec_partition){
      .n_items = n_items,
      .n_parts = n_parts,
      .part = HEC_NEW(arena, int32_t, n_items),
      .sum = HEC_NEW(arena, uint64_t, n_parts),
      .count = HEC_NEW(arena, int32_t, n_parts),
      .key = HEC_NEW(arena, double, n_items),
      .order = HEC_NEW(arena, int32_t, n_items),
  };
}

static uint64_t apart(uint64_t a, uint64_t b) {
  return a > b ? a - b : b - a;
}

static uint64_t total_of(const hec_partition *p) {
  uint64_t total = 0;
  for (int32_t c = 0; c < p->n_parts; c++)
    total += p->sum[c];
  return total;
}

uint64_t hec_partition_deviation(const hec_partition *p) {
  uint64_t total = total_of(p), deviation = 0;
  for (int32_t c = 0; c < p->n_parts; c++)
    deviation += apart(p->sum[c] * (uint64_t)p->n_parts, total);
  return deviation;
}

static int32_t lightest(const hec_partition *p, int32_t capacity) {
  int32_t best = -1;
  for (int32_t c = 0; c < p->n_parts; c++) {
    if (p->count[c] == capacity)
      continue;
    if (best < 0 || p->sum[c] < p->sum[best] || (p->sum[c] == p->sum[best] && p->count[c] < p->count[best]))
      best = c;
  }
  return best;
}

/* Exchanges items i and j if that helps. */
static bool exchange(hec_partition *p, const uint64_t *weight, uint64_t total, int32_t i, int32_t j) {
  uint64_t *a = &p->sum[p->part[i]], *b = &p->sum[p->part[j]], n = (uint64_t)p->n_parts;
  if (a == b || weight[i] == weight[j])
    return false;
  uint64_t to_a = *a - weight[i] + weight[j], to_b = *b - weight[j] + weight[i];
  if (apart(to_a * n, total) + apart(to_b * n, total) >= apart(*a * n, total) + apart(*b * n, total))
    return false;
  *a = to_a;
  *b = to_b;
  int32_t part = p->part[i];
  p->part[i] = p->part[j];
  p->part[j] = part;
  return true;
}

void hec_partition_make(hec_partition *p, const uint64_t *weight) {
  int32_t capacity = (p->n_items + p->n_parts - 1) / p->n_parts;
  memset(p->sum, 0, (size_t)p->n_parts * sizeof *p->sum);
  memset(p->count, 0, (size_t)p->n_parts * sizeof *p->count);
  hec_order_loads(weight, p->n_items, p->key, p->order);
  for (int32_t k = 0; k < p->n_items; k++) {
    int32_t c = lightest(p, capacity);
    HEC_ASSERT(c >= 0);
    p->part[p->order[k]] = c;
    p->sum[c] += weight[p->order[k]];
    p->count[c]++;
  }
  p->units = (uint64_t)p->n_items * (uint64_t)p->n_parts;
  uint64_t total = total_of(p);
  bool changed = true;
  for (int32_t pass = 0; pass < PASSES_MAX && changed; pass++) {
    changed = false;
    for (int32_t i = 0; i < p->n_items; i++)
      for (int32_t j = i + 1; j < p->n_items; j++)
        changed |= exchange(p, weight, total, i, j);
    p->units += (uint64_t)p->n_items * (uint64_t)p->n_items / 2;
  }
}
