/* Spread and scale of loads: exact totals, the documented places, and a sorting oracle for the largest remainders. */
#include "models/load.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static hec_load filled(int32_t layers, int32_t sources, int32_t experts, const uint32_t *counts) {
  hec_load load = hec_load_new(&arena, layers, sources, experts);
  memcpy(load.counts, counts, sizeof(uint32_t) * (size_t)layers * (size_t)sources * (size_t)experts);
  return load;
}

static void ck_counts(const hec_load *load, const uint32_t *expected) {
  for (int32_t i = 0; i < load->n_layers * load->n_sources * load->n_experts; i++)
    ck_assert_msg(load->counts[i] == expected[i], "cell %d: expected %u, found %u", i, expected[i], load->counts[i]);
}

HEC_TEST(new_is_zero) {
  hec_load load = hec_load_new(&arena, 2, 3, 4);
  ck_counts(&load, (uint32_t[24]){0});
  ck_assert_ptr_eq(hec_load_row(&load, 1, 2), load.counts + 20);
}

HEC_TEST(spread_gathers) {
  /* 5 sources on 2 ranks: floor(s*2/5) = 0 0 0 1 1 */
  hec_load from = filled(1, 5, 2, (uint32_t[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), to = hec_load_new(&arena, 1, 2, 2);
  to.counts[0] = 99; /* what was there before must not matter */
  ck_ok(hec_load_spread(&from, &to));
  ck_counts(&to, (uint32_t[]){9, 12, 16, 18});
}

HEC_TEST(spread_divides_one_source) {
  /* 1 source on 4 ranks; expert e's remainders start at rank e mod 4 */
  hec_load from = filled(1, 1, 6, (uint32_t[]){8, 5, 6, 7, 1, 0}), to = hec_load_new(&arena, 1, 4, 6);
  ck_ok(hec_load_spread(&from, &to));
  ck_counts(&to, (uint32_t[]){2, 1, 1, 2, 1, 0, /* rank 0 */
                              2, 2, 1, 2, 0, 0, /* rank 1: the odd one of expert 1 */
                              2, 1, 2, 1, 0, 0, /* rank 2: expert 2 begins here */
                              2, 1, 2, 2, 0, 0});
}

HEC_TEST(spread_divides_unevenly) {
  /* 2 sources on 5 ranks: floor(r*2/5) = 0 0 0 1 1, groups of 3 and 2 */
  hec_load from = filled(1, 2, 3, (uint32_t[]){4, 4, 4, 3, 3, 3}), to = hec_load_new(&arena, 1, 5, 3);
  ck_ok(hec_load_spread(&from, &to));
  ck_counts(&to, (uint32_t[]){2, 1, 1, 1, 2, 1, 1, 1, 2, /* group of source 0 */
                              2, 1, 2, 1, 2, 1});
}

HEC_TEST(spread_overflows) {
  hec_load from = filled(1, 2, 2, (uint32_t[]){7, UINT32_MAX, 7, 1}), to = hec_load_new(&arena, 1, 1, 2);
  ck_assert(hec_load_spread(&from, &to) == HEC_FAILED);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "4294967296"));
  from.counts[3] = 0;
  ck_ok(hec_load_spread(&from, &to));
  ck_counts(&to, (uint32_t[]){14, UINT32_MAX});
}

/* Which source the definition gives rank r (fewer sources) or which rank source s (more), and exact totals. */
HEC_TEST(spread_laws) {
  uint64_t random = 3;
  for (int trial = 0; trial < 300; trial++) {
    int32_t S = 1 + (int32_t)hec_test_below(&random, 20), R = 1 + (int32_t)hec_test_below(&random, 20);
    int32_t E = 1 + (int32_t)hec_test_below(&random, 9), L = 1 + (int32_t)hec_test_below(&random, 3);
    hec_load from = hec_load_new(&arena, L, S, E), to = hec_load_new(&arena, L, R, E);
    for (int32_t i = 0; i < L * S * E; i++)
      from.counts[i] = (uint32_t)hec_test_below(&random, 50);
    ck_ok(hec_load_spread(&from, &to));
    for (int32_t l = 0; l < L; l++) {
      for (int32_t e = 0; e < E; e++) {
        for (int32_t k = 0; k < (S >= R ? R : S); k++) {
          uint64_t in = 0, out = 0, low = UINT64_MAX, high = 0;
          for (int32_t s = 0; s < S; s++)
            in += (S >= R ? s * R / S == k : s == k) ? hec_load_row(&from, l, s)[e] : 0;
          for (int32_t r = 0; r < R; r++) {
            if (!(S >= R ? r == k : r * S / R == k))
              continue;
            uint64_t count = hec_load_row(&to, l, r)[e];
            out += count;
            low = count < low ? count : low;
            high = count > high ? count : high;
          }
          ck_assert(in == out && (S >= R || high - low <= 1));
        }
      }
    }
    hec_arena_free(&arena);
  }
}

HEC_TEST(scale_by_hand) {
  hec_load_remainder order[8];
  /* 3 4 5 to 10: quotas 2.5 3.33 4.17 -> 2 3 4, one missing: the largest remainder is the first */
  hec_load load = filled(1, 1, 3, (uint32_t[]){3, 4, 5});
  hec_load_scale(&load, 10, order);
  ck_counts(&load, (uint32_t[]){3, 3, 4});
  /* ties: 1 1 1 1 to 6 gives the lower cells one more */
  load = filled(1, 2, 2, (uint32_t[]){1, 1, 1, 1});
  hec_load_scale(&load, 6, order);
  ck_counts(&load, (uint32_t[]){2, 2, 1, 1});
  /* an empty layer stays empty; a cell without tokens gets none; a layer of the right total stays */
  load = filled(3, 1, 3, (uint32_t[]){0, 0, 0, 0, 1, 1, 5, 0, 2});
  hec_load_scale(&load, 7, order);
  ck_counts(&load, (uint32_t[]){0, 0, 0, 0, 4, 3, 5, 0, 2});
  load = filled(1, 1, 2, (uint32_t[]){UINT32_MAX, UINT32_MAX});
  hec_load_scale(&load, UINT32_MAX, order);
  ck_counts(&load, (uint32_t[]){2147483648u, 2147483647u});
  hec_load_scale(&load, 0, order);
  ck_counts(&load, (uint32_t[]){0, 0});
}

static int by_remainder(const void *a, const void *b) {
  const hec_load_remainder *x = a, *y = b;
  if (x->remainder != y->remainder)
    return x->remainder > y->remainder ? -1 : 1;
  return x->cell < y->cell ? -1 : 1;
}

/* Against a full sort, with many equal remainders. */
HEC_TEST(scale_against_sort) {
  enum { MAX = 400 };
  static hec_load_remainder order[MAX], sorted[MAX];
  uint64_t random = 17;
  for (int trial = 0; trial < 2000; trial++) {
    int32_t S = 1 + (int32_t)hec_test_below(&random, 20), E = 1 + (int32_t)hec_test_below(&random, 20);
    uint64_t range = 1 + hec_test_below(&random, trial % 3 == 0 ? 3 : 100000);
    uint64_t target = hec_test_below(&random, trial % 2 == 0 ? 1000 : UINT32_MAX), total = 0, given = 0;
    hec_load load = hec_load_new(&arena, 1, S, E);
    uint32_t expected[MAX];
    for (int32_t i = 0; i < S * E; i++)
      total += load.counts[i] = (uint32_t)hec_test_below(&random, range);
    for (int32_t i = 0; i < S * E; i++) {
      uint64_t product = load.counts[i] * target;
      expected[i] = total ? (uint32_t)(product / total) : 0;
      given += expected[i];
      sorted[i] = (hec_load_remainder){total ? product % total : 0, (uint32_t)i};
    }
    qsort(sorted, (size_t)(S * E), sizeof *sorted, by_remainder);
    for (uint64_t i = 0; total > 0 && i < target - given; i++)
      expected[sorted[i].cell]++;
    hec_load_scale(&load, target, order);
    ck_counts(&load, expected);
    ck_assert(hec_load_layer_total(&load, 0) == (total > 0 ? target : 0));
    hec_arena_free(&arena);
  }
}

/* Sources that are divided are scaled first: the load of a rank does not depend on how few tokens were recorded. */
HEC_TEST(fit_by_hand) {
  hec_load_remainder order[8];
  hec_load from = filled(2, 1, 2, (uint32_t[]){3, 5, 0, 0}), to = hec_load_new(&arena, 2, 4, 2);
  ck_ok(hec_load_fit(&from, 8000, &to, order));
  ck_counts(&to, (uint32_t[]){750, 1250, 750, 1250, 750, 1250, 750, 1250, 0, 0, 0, 0, 0, 0, 0, 0});
  ck_counts(&from, (uint32_t[]){3, 5, 0, 0});
  /* 2 sources on 3 ranks, to 12: 1 2 3 0 become 2 4 6 0. The first is halved, the odd ones begin at rank e mod 2 */
  from = filled(1, 2, 2, (uint32_t[]){1, 2, 3, 0}), to = hec_load_new(&arena, 1, 3, 2);
  ck_ok(hec_load_fit(&from, 12, &to, order));
  ck_counts(&to, (uint32_t[]){1, 2, 1, 2, 6, 0});
  /* as many sources, or more: gathered, then scaled */
  from = filled(1, 2, 1, (uint32_t[]){1, 2}), to = hec_load_new(&arena, 1, 1, 1);
  ck_ok(hec_load_fit(&from, 7, &to, order));
  ck_counts(&to, (uint32_t[]){7});
}

/* The parts of a divided source differ by one token at most, and their sums are the source's, scaled. */
HEC_TEST(fit_laws) {
  enum { MAX = 20 };
  hec_load_remainder order[MAX * MAX];
  uint64_t random = 5;
  for (int trial = 0; trial < 500; trial++) {
    int32_t R = 2 + (int32_t)hec_test_below(&random, MAX - 1),
            S = 1 + (int32_t)hec_test_below(&random, (uint64_t)R - 1);
    int32_t E = 1 + (int32_t)hec_test_below(&random, MAX), L = 1 + (int32_t)hec_test_below(&random, 3);
    uint64_t target = hec_test_below(&random, 1000000);
    hec_load from = hec_load_new(&arena, L, S, E), scaled = hec_load_new(&arena, L, S, E);
    hec_load to = hec_load_new(&arena, L, R, E);
    for (int32_t i = 0; i < L * S * E; i++)
      from.counts[i] = (uint32_t)hec_test_below(&random, 9);
    hec_load_copy(&from, &scaled);
    hec_load_scale(&scaled, target, order);
    for (int32_t i = 0; i < L * R * E; i++)
      to.counts[i] = 77; /* what was there before must not matter */
    ck_ok(hec_load_fit(&from, target, &to, order));
    for (int32_t l = 0; l < L; l++)
      for (int32_t e = 0; e < E; e++) {
        uint64_t sum[MAX] = {0}, low[MAX], high[MAX] = {0};
        memset(low, 255, sizeof low);
        for (int32_t r = 0; r < R; r++) {
          int32_t s = r * S / R;
          uint64_t count = hec_load_row(&to, l, r)[e];
          sum[s] += count;
          low[s] = count < low[s] ? count : low[s];
          high[s] = count > high[s] ? count : high[s];
        }
        for (int32_t s = 0; s < S; s++)
          ck_assert(sum[s] == hec_load_row(&scaled, l, s)[e] && high[s] - low[s] <= 1);
      }
    hec_arena_free(&arena);
  }
}
