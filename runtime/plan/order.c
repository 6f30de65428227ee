/* Heap sort in place: the heap's root is what comes last. qsort of the C library may allocate and is not stable. */
#include "runtime/plan/order.h"

#include <stdbool.h>

static bool after(const double *key, int32_t a, int32_t b) {
  return key[a] != key[b] ? key[a] < key[b] : a > b;
}

static void sift(const double *key, int32_t *heap, int32_t n, int32_t at) {
  int32_t item = heap[at];
  for (int32_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
    if (child + 1 < n && after(key, heap[child + 1], heap[child]))
      child++;
    if (!after(key, heap[child], item))
      break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = item;
}

void hec_order_descending(const double *key, int32_t n, int32_t *order) {
  for (int32_t i = 0; i < n; i++)
    order[i] = i;
  for (int32_t at = n / 2 - 1; at >= 0; at--)
    sift(key, order, n, at);
  for (int32_t last = n - 1; last > 0; last--) {
    int32_t item = order[0];
    order[0] = order[last];
    order[last] = item;
    sift(key, order, last, 0);
  }
}
