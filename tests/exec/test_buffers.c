/* Planned buffers and expert slots, each against a plain model of itself over random histories. */
#include "runtime/exec/buffers.h"
#include "runtime/exec/store.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* ---- Buffers ---- */

enum { CAPACITY = 1 << 16, OPEN_MAX = 40, WAITS = 64 };

typedef struct {
  char *at;
  double bytes;
} opened;

/* last_use[i]: newest operation that used the 64-byte line i and gave it back; -1: none, -2: in use. */
static void check_taken(const char *base, const opened *o, const int32_t *last_use, const int32_t *after,
                        int32_t n_after) {
  size_t first = (size_t)(o->at - base) / 64, lines = ((size_t)o->bytes + 63) / 64;
  ck_assert_uint_eq((uintptr_t)(o->at - base) % 64, 0);
  for (size_t i = first; i < first + (lines ? lines : 1); i++) {
    ck_assert_int_ne(last_use[i], -2);
    bool waits = last_use[i] == -1;
    for (int32_t k = 0; k < n_after; k++)
      waits = waits || after[k] == last_use[i];
    ck_assert_msg(waits, "line %zu was used by %d and nobody waits for it", i, last_use[i]);
  }
}

static void mark(const char *base, const opened *o, int32_t *last_use, int32_t value) {
  size_t first = (size_t)(o->at - base) / 64, lines = ((size_t)o->bytes + 63) / 64;
  for (size_t i = first; i < first + (lines ? lines : 1); i++)
    last_use[i] = value;
}

HEC_TEST_LOOP(buffers_never_overlap_and_wait_for_what_was_there, 20) {
  static _Alignas(64) char memory[CAPACITY];
  uint64_t seed = 9 + (uint64_t)_i;
  int32_t last_use[CAPACITY / 64];
  opened open[OPEN_MAX];
  int32_t n_open = 0;
  double live = 0, peak = 0;
  hec_buffers buffers;
  hec_buffers_init(&buffers, memory, CAPACITY);
  for (size_t i = 0; i < CAPACITY / 64; i++)
    last_use[i] = -1;
  for (int32_t op = 0; op < 600; op++) {
    if (n_open < OPEN_MAX && hec_test_below(&seed, 2)) {
      int32_t after[WAITS], n_after = 0;
      opened o = {.bytes = (double)hec_test_below(&seed, 3000)};
      o.at = hec_buffers_take(&buffers, o.bytes, after, &n_after, WAITS);
      if (!o.at) /* refused: then no free run is long enough */
        continue;
      check_taken(memory, &o, last_use, after, n_after);
      mark(memory, &o, last_use, -2);
      open[n_open++] = o;
      live += o.bytes;
      peak = live > peak ? live : peak;
    } else if (n_open > 0) {
      int32_t i = (int32_t)hec_test_below(&seed, (uint64_t)n_open);
      hec_buffers_give(&buffers, open[i].at, open[i].bytes, op);
      mark(memory, &open[i], last_use, op);
      live -= open[i].bytes;
      open[i] = open[--n_open];
    }
    ck_assert(buffers.live == live && buffers.peak == peak);
  }
  hec_buffers_free(&buffers);
}

HEC_TEST(buffers_by_hand) {
  static _Alignas(64) char memory[256];
  int32_t after[4], n = 0;
  hec_buffers b;
  hec_buffers_init(&b, memory, sizeof memory);
  char *x = hec_buffers_take(&b, 64, after, &n, 4), *y = hec_buffers_take(&b, 65, after, &n, 4);
  ck_assert(x == memory && y == memory + 64 && n == 0);
  ck_assert(hec_buffers_take(&b, 65, after, &n, 4) == NULL); /* one line is left */
  hec_buffers_give(&b, x, 64, 7);
  hec_buffers_give(&b, y, 65, 9);
  ck_assert(hec_buffers_take(&b, 100, after, &n, 4) == memory && n == 2 && after[0] == 7 && after[1] == 9);
  n = 0;
  ck_assert(hec_buffers_take(&b, 128, after, &n, 4) == memory + 128 && n == 1 && after[0] == 9);
  ck_assert(b.top == 256 && b.peak == 228);
  hec_buffers_free(&b);
}

/* ---- Slots ---- */

HEC_TEST_LOOP(slots_come_and_go, 10) {
  enum { ROWS = 7, PARTS = 3, SIZE = 100, MAX = 9 };
  uint64_t seed = 200 + (uint64_t)_i;
  size_t floats = hec_store_bytes(SIZE, PARTS, 4, MAX) / sizeof(float);
  float *memory = HEC_NEW(&arena, float, floats);
  hec_store store = hec_store_new(&arena, memory + floats, ROWS, PARTS, SIZE, 4, MAX);
  float expected[ROWS * PARTS] = {0};
  bool here[ROWS * PARTS] = {0};
  int32_t n = 0;
  size_t needed;
  for (int32_t i = 0; i < 500; i++) {
    int32_t row = (int32_t)hec_test_below(&seed, ROWS), part = (int32_t)hec_test_below(&seed, PARTS);
    int32_t k = row * PARTS + part;
    ck_assert(hec_store_has(&store, row, part) == here[k]);
    if (here[k]) {
      hec_store_part at = hec_store_at(&store, row, part);
      ck_assert_int_eq(at.n, 100 * (part + 1) / 3 - 100 * part / 3);
      ck_assert(at.params[0] == expected[k] && at.second[at.n - 1] == expected[k]);
      ck_assert(at.params >= memory && at.second + at.n <= memory + floats);
      hec_store_give(&store, row, part);
      here[k] = false;
      n--;
    } else if (needed = hec_store_needs(&store, row, part),
               hec_store_take(&store, row, part, &hec_processor_cpu) == HEC_OK) {
      ck_assert_uint_eq(needed, hec_store_bytes(SIZE, PARTS, 4, store.n_slots));
      hec_store_part at = hec_store_at(&store, row, part);
      for (int64_t j = 0; j < at.n; j++) {
        ck_assert(at.grads[j] == 0);
        at.params[j] = at.grads[j] = at.first[j] = at.second[j] = expected[k] = (float)(i + 1);
      }
      here[k] = true;
      n++;
    } else {
      ck_assert_int_eq(n, MAX);
    }
    ck_assert_int_eq(store.n_used, n);
  }
}
