/* Experts by descending load, the way every planner here wants them: a total order, so any sorting method agrees. */
#pragma once
#include <stdint.h>

/* order[n] = 0..n-1 by descending key, ties to the lower index. O(n log n), 4 KiB of stack at most. Integer loads are
 * exact as keys below 2^53. */
void hec_order_descending(const double *key, int32_t n, int32_t *order);
/* The same for the ascending indices that stand in `order` already. */
void hec_order_listed(const double *key, int32_t n, int32_t *order);
/* By descending load; `key` is scratch [n]. */
void hec_order_loads(const uint64_t *load, int32_t n, double *key, int32_t *order);

static inline uint64_t hec_largest(const uint64_t *load, int32_t n) { /* 0 of none */
  uint64_t max = 0;
  for (int32_t i = 0; i < n; i++)
    max = load[i] > max ? load[i] : max;
  return max;
}
