/* Merge sort beside the list while it is short: a merge has no branch that depends on keys, only a choice. Longer ones by
 * heap sort in place: the heap's root is what comes last. qsort of the C library may allocate and is not stable. */
#include "runtime/plan/planners/order.h"

#include "runtime/base/heap.h"

#include <string.h>

enum { MERGED_MAX = 1024, RUN = 4 };

static bool after(const void *keys, int32_t a, int32_t b) {
  const double *key = keys;
  return key[a] != key[b] ? key[a] < key[b] : a > b;
}

static void heap_sort(const double *key, int32_t n, int32_t *order) {
  hec_heap_make(order, n, after, key);
  for (; n > 1; n--)
    order[n - 1] = hec_heap_pop(order, n, after, key);
}

static void insert(const double *key, int32_t *order, int32_t n) {
  for (int32_t i = 1; i < n; i++) {
    int32_t item = order[i], at = i;
    for (; at > 0 && key[item] > key[order[at - 1]]; at--)
      order[at] = order[at - 1];
    order[at] = item;
  }
}

/* a and b, the lower indices in a, to out. */
static void merge(const double *key, const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b, int32_t *out) {
  int32_t i = 0, j = 0, n = 0;
  while (i < n_a && j < n_b) {
    bool second = key[b[j]] > key[a[i]];
    out[n++] = second ? b[j] : a[i];
    j += second;
    i += !second;
  }
  memcpy(out + n, a + i, (size_t)(n_a - i) * sizeof *out);
  memcpy(out + n + n_a - i, b + j, (size_t)(n_b - j) * sizeof *out);
}

static void merge_sort(const double *key, int32_t n, int32_t *order) {
  int32_t other[MERGED_MAX], *from = order, *to = other;
  for (int32_t at = 0; at < n; at += RUN)
    insert(key, order + at, n - at < RUN ? n - at : RUN);
  for (int32_t run = RUN; run < n; run *= 2) {
    for (int32_t at = 0; at < n; at += 2 * run) {
      int32_t n_a = n - at < run ? n - at : run, n_b = n - at - n_a < run ? n - at - n_a : run;
      merge(key, from + at, n_a, from + at + n_a, n_b, to + at);
    }
    int32_t *filled = to;
    to = from;
    from = filled;
  }
  if (from != order)
    memcpy(order, from, (size_t)n * sizeof *order);
}

void hec_order_listed(const double *key, int32_t n, int32_t *order) {
  if (n <= MERGED_MAX)
    merge_sort(key, n, order);
  else
    heap_sort(key, n, order);
}

void hec_order_descending(const double *key, int32_t n, int32_t *order) {
  for (int32_t i = 0; i < n; i++)
    order[i] = i;
  hec_order_listed(key, n, order);
}

void hec_order_loads(const uint64_t *load, int32_t n, double *key, int32_t *order) {
  for (int32_t i = 0; i < n; i++)
    key[i] = (double)load[i];
  hec_order_descending(key, n, order);
}
