/* A binary heap of indices. heap[0] comes before all others, by a total order over what `keys` says of them. So what
 * comes out depends on nothing else. An item whose key came to stand later sinks (hec_heap_sink). O(log n) each;
 * inline, so that `before` is, too. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef bool hec_heap_before(const void *keys, int32_t a, int32_t b);

/* The least of double keys[], ties to the lower index. */
static inline bool hec_heap_min(const void *keys, int32_t a, int32_t b) {
  const double *key = keys;
  return key[a] != key[b] ? key[a] < key[b] : a < b;
}

/* The item at `at`, which may belong behind those below it, goes there. */
static inline void hec_heap_sink(int32_t *heap, int32_t n, int32_t at, hec_heap_before *before, const void *keys) {
  int32_t item = heap[at];
  for (int32_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && before(keys, heap[child + 1], heap[child]))
      child++;
    if (!before(keys, heap[child], item))
      break;
    heap[at] = heap[child];
  }
  heap[at] = item;
}

/* Of n items in any order. */
static inline void hec_heap_make(int32_t *heap, int32_t n, hec_heap_before *before, const void *keys) {
  for (int32_t at = n / 2; at-- > 0;)
    hec_heap_sink(heap, n, at, before, keys);
}

/* One more than n. */
static inline void hec_heap_push(int32_t *heap, int32_t n, int32_t item, hec_heap_before *before, const void *keys) {
  for (; n > 0 && before(keys, item, heap[(n - 1) / 2]); n = (n - 1) / 2)
    heap[n] = heap[(n - 1) / 2];
  heap[n] = item;
}

/* The first of n > 0; n - 1 are left. */
static inline int32_t hec_heap_pop(int32_t *heap, int32_t n, hec_heap_before *before, const void *keys) {
  int32_t first = heap[0];
  heap[0] = heap[n - 1];
  hec_heap_sink(heap, n - 1, 0, before, keys);
  return first;
}
