/* The heap of indices, against a look at all: made of any order, pushed into and popped from, a root whose key grows. Few
 * distinct keys, so that ties are common. */
#include "runtime/base/heap.h"
#include "tests/support/test.h"

enum { MAX = 200 };

static int32_t first_of(const double *key, const bool *inside, int32_t n) {
  int32_t first = -1;
  for (int32_t i = 0; i < n; i++)
    if (inside[i] && (first < 0 || key[i] < key[first])) /* ascending: the lower index of equals */
      first = i;
  return first;
}

HEC_TEST_LOOP(root_is_first, 200) {
  uint64_t seed = 31 + (uint64_t)_i;
  int32_t n = 1 + (int32_t)hec_test_below(&seed, MAX), heap[MAX], n_heap = 0;
  double key[MAX];
  bool inside[MAX];
  for (int32_t i = 0; i < n; i++) {
    key[i] = (double)hec_test_below(&seed, 20);
    inside[i] = hec_test_below(&seed, 2);
    if (inside[i])
      heap[n_heap++] = i;
  }
  for (int32_t i = n_heap; i > 1; i--) { /* in no order */
    int32_t other = (int32_t)hec_test_below(&seed, (uint64_t)i), item = heap[other];
    heap[other] = heap[i - 1];
    heap[i - 1] = item;
  }
  hec_heap_make(heap, n_heap, hec_heap_min, key);
  for (int32_t step = 0; step < 4 * n || n_heap > 0; step++) {
    int32_t item = (int32_t)hec_test_below(&seed, (uint64_t)n);
    if (n_heap > 0)
      ck_assert_int_eq(heap[0], first_of(key, inside, n));
    if (step < 4 * n && !inside[item]) {
      key[item] = (double)hec_test_below(&seed, 20);
      inside[item] = true;
      hec_heap_push(heap, n_heap++, item, hec_heap_min, key);
    } else if (step < 4 * n && n_heap > 0 && step % 3 == 0) {
      key[heap[0]] += (double)hec_test_below(&seed, 5);
      hec_heap_sink(heap, n_heap, 0, hec_heap_min, key);
    } else if (n_heap > 0) {
      item = first_of(key, inside, n);
      ck_assert_int_eq(hec_heap_pop(heap, n_heap--, hec_heap_min, key), item);
      inside[item] = false;
    }
  }
}
