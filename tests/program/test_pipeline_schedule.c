/* Orders of pipeline schedules. By hand where they are small, every piece once for random sizes, what is held, sizes
 * that do not fit. And faults that the check must find. */
#include "runtime/program/pipelines/pipeline_schedule.h"
#include "tests/support/pipeline_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* ---- By hand ---- */

static const struct {
  const char *name;
  hec_pipeline_shape shape;
  int32_t device;
  const char *pieces;
} by_hand[] = {
    {"gpipe", {2, 1, 3, 0}, 0, "F0 F1 F2 B2 B1 B0"},
    {"1f1b", {3, 1, 4, 0}, 0, "F0 F1 F2 B0 F3 B1 B2 B3"},
    {"1f1b", {3, 1, 4, 0}, 1, "F0 F1 B0 F2 B1 F3 B2 B3"},
    {"1f1b", {3, 1, 4, 0}, 2, "F0 B0 F1 B1 F2 B2 F3 B3"},
    {"1f1b", {3, 1, 1, 0}, 0, "F0 B0"},
    /* the stages of the ZB-H1 figure (arXiv:2401.10241, figure 2), with 3 instead of 4 */
    {"zb-h1", {3, 1, 4, 0}, 0, "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3"},
    {"zb-h1", {3, 1, 4, 0}, 1, "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3"},
    {"zb-h1", {3, 1, 4, 0}, 2, "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"},
    /* Megatron: 2 (p-1-d) + (v-1) p forwards first */
    {"interleaved", {2, 2, 4, 0}, 0, "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3"},
    {"interleaved", {2, 2, 4, 0}, 1, "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3"},
    {"interleaved", {2, 2, 5, 3}, 1, "F0 F1 F2 F0' B0' F1' B1' F2' B2' F3 B0 F4 B1 F3' B2 F4' B3' B4' B3 B4"},
    {"interleaved", {2, 2, 2, 0}, 0, "F0 F1 F0' F1' B0' B1' B0 B1"},
    {"1f1b-overlap", {2, 2, 4, 0}, 1, "F0 F1 F0' F1'&B0' F2&B1' F3&B0 F2'&B1 F3'&B2' B3' B2 B3"},
    {"1f1b-overlap", {1, 1, 3, 0}, 0, "F0 F1&B0 F2&B1 B2"},
    /* the steps of DualPipe's code, 2 ranks: no pair at the fold's first forward and backward */
    {"dualpipe", {2, 2, 6, 0}, 0, "F0 F3' F1 B3' F4'&B0 F2&B4' F5'&B1 B5' I2 W2"},
    {"dualpipe", {2, 2, 6, 0}, 1, "F3' F0 F4' B0 F1&B3' F5'&B1 F2&B4' B2 I5' W5'"},
    {"dualpipev", {2, 2, 4, 0}, 0, "F0 F1 F2 F0' I0' W0' F1' F3&B1' F2'&B0 B2' F3'&B1 B3' I2 W2 I3 W3"},
    {"dualpipev", {2, 2, 4, 0}, 1, "F0 F0' F1 F1' F2 B0' F2'&B0 F3&B1' F3'&B1 B2' B2 I3' I3 W3' W3"},
};

HEC_TEST_ROWS(orders_by_hand, by_hand) {
  hec_pipeline_order order = hec_test_pipeline_order(by_hand[_i].name, by_hand[_i].shape, &arena);
  ck_assert_str_eq(hec_test_pipeline_text(&order, by_hand[_i].device, &arena), by_hand[_i].pieces);
}

/* DeepSeek-V3's example: 8 ranks, 20 micro-batches (arXiv:2412.19437, figure 5). Device 0 begins with 7 forwards and ends with
 * 4 weight gradients, one of them last. The pairs of its middle run to the end of both ways. */
HEC_TEST(dualpipe_of_the_paper) {
  hec_pipeline_order order = hec_test_pipeline_order("dualpipe", (hec_pipeline_shape){8, 2, 20, 0}, &arena);
  ck_assert_str_eq(hec_test_pipeline_text(&order, 0, &arena),
                   "F0 F1 F2 F3 F4 F5 F6 F10' I10' W10' F11' I11' W11' F12' I12' W12' F13' F7&B13' F14'&B0 F8&B14' "
                   "F15'&B1 F9&B15' F16'&B2 B16' F17'&B3 B17' F18'&B4 B18' F19'&B5 B19' I6 W6 I7 W7 I8 W8 I9 W9");
}

/* ---- All rows, random sizes ---- */

/* Counted here, not by hec_pipeline_order_check. */
static void each_piece_once(const hec_pipeline_order *o) {
  int32_t n = o->n_parts * o->shape.n_micro_batches;
  int32_t *n_pieces = HEC_NEW(&arena, int32_t, 3 * n);
  for (int32_t d = 0; d < o->shape.n_stages; d++)
    for (int32_t i = o->piece_at[d]; i < o->piece_at[d + 1]; i++) {
      const hec_pipeline_piece *p = &o->piece[i];
      int32_t at = o->part[d * o->shape.n_chunks + p->chunk] * o->shape.n_micro_batches + p->micro_batch;
      int32_t back = at;
      if (p->kind == HEC_PIECE_PAIR)
        back = o->part[d * o->shape.n_chunks + p->beside_chunk] * o->shape.n_micro_batches + p->beside_micro_batch;
      bool both = p->kind == HEC_PIECE_PAIR || p->kind == HEC_PIECE_BACKWARD;
      n_pieces[at] += p->kind == HEC_PIECE_FORWARD || p->kind == HEC_PIECE_PAIR;
      n_pieces[n + back] += p->kind == HEC_PIECE_INPUT_GRADIENT || both;
      n_pieces[2 * n + back] += p->kind == HEC_PIECE_WEIGHT_GRADIENT || both;
      ck_assert(o->schedule->pairs || p->kind != HEC_PIECE_PAIR);
      ck_assert(o->schedule->splits || p->kind != HEC_PIECE_INPUT_GRADIENT);
    }
  for (int32_t i = 0; i < 3 * n; i++)
    ck_assert_int_eq(n_pieces[i], 1);
}

HEC_TEST_TABLE(every_piece_once, hec_pipeline_schedules) {
  const hec_pipeline_schedule *s = hec_pipeline_schedules[_i];
  uint64_t seed = 11 + (uint64_t)_i;
  for (int k = 0; k < 100; k++) {
    hec_pipeline_order o = hec_test_pipeline_order(s->name, hec_test_pipeline_shape(s, &seed), &arena);
    each_piece_once(&o);
    int32_t *n_owners = HEC_NEW(&arena, int32_t, o.n_parts);
    for (int32_t i = 0; i < o.shape.n_stages * o.shape.n_chunks; i++)
      n_owners[o.part[i]]++;
    for (int32_t i = 0; i < o.n_parts; i++)
      ck_assert_int_eq(n_owners[i], s->copies);
  }
}

/* ---- What is held ---- */

/* The most micro-batches of a part that stage s holds: the table of the papers. Interleaved: p (1 + (p-1) / (p v)) stages'
 * worth on stage 0, which is this number of chunks. */
static int64_t max_held(const hec_pipeline_order *o, int32_t s) {
  int32_t p = o->shape.n_stages, v = o->shape.n_chunks, n = o->shape.n_micro_batches,
          ahead = 2 * (p - 1 - s) + (v - 1) * p;
  const char *name = o->schedule->name;
  int64_t found = strcmp(name, "gpipe") == 0          ? n
                  : strcmp(name, "interleaved") == 0  ? ahead + 1
                  : strcmp(name, "1f1b-overlap") == 0 ? ahead + 2 /* the one more, and the one of the pair */
                  : strcmp(name, "dualpipe") == 0     ? p + 1
                  : strcmp(name, "dualpipev") == 0    ? 2 * p + 1
                                                      : p - s;
  return found < (int64_t)n * v ? found : (int64_t)n * v;
}

HEC_TEST_TABLE(held_as_published, hec_pipeline_schedules) {
  const hec_pipeline_schedule *row = hec_pipeline_schedules[_i];
  for (int32_t p = 1; p <= 8; p++)
    for (int32_t m = 2 * p; m <= 6 * p; m += 2 * p) {
      hec_pipeline_shape shape = {p, row->min_chunks == row->max_chunks ? row->min_chunks : 3, m, 0};
      if (p % row->copies != 0)
        continue;
      hec_pipeline_order o = hec_test_pipeline_order(row->name, shape, &arena);
      int64_t *held = HEC_NEW(&arena, int64_t, o.n_pieces);
      hec_pipeline_order_held(&o, NULL, -1, held);
      for (int32_t s = 0; s < p; s++) {
        int64_t max = 0;
        for (int32_t i = o.piece_at[s]; i < o.piece_at[s + 1]; i++)
          max = held[i] > max ? held[i] : max;
        /* a pair needs the forward of the next micro-batch, which the last one has not */
        int64_t published = max_held(&o, s);
        ck_assert_msg(max == published, "%s p %d m %d stage %d: %ld, published %ld", row->name, (int)p, (int)m, (int)s,
                      (long)max, (long)published);
      }
    }
}

/* Unequal bytes: an activation until its input gradient is there, then the part of the weight gradient. zb-h1, stage 1 of 2:
 * F0 I0 F1 I1 W0 W1. Micro-batch 0 has 100 and 7, micro-batch 1 has 30 and 5. */
HEC_TEST(held_by_hand) {
  static const hec_piece_held each[] = {{0, 0}, {0, 0}, {100, 7}, {30, 5}}; /* [part][micro-batch] */
  static const int64_t expected[] = {100, 100, 37, 37, 12, 5};
  hec_pipeline_order o = hec_test_pipeline_order("zb-h1", (hec_pipeline_shape){2, 1, 2, 0}, &arena);
  int64_t held[12];
  ck_assert_int_eq(o.n_pieces, 12);
  ck_assert_str_eq(hec_test_pipeline_text(&o, 1, &arena), "F0 I0 F1 I1 W0 W1");
  hec_pipeline_order_held(&o, each, -1, held);
  for (int i = 0; i < 6; i++) {
    ck_assert_int_eq(held[6 + i], expected[i]);
    ck_assert_int_eq(held[i], 0);
  }
}

/* Chunks add up to the device. */
HEC_TEST_TABLE(held_by_chunk, hec_pipeline_schedules) {
  const hec_pipeline_schedule *row = hec_pipeline_schedules[_i];
  uint64_t seed = 5;
  hec_pipeline_order o = hec_test_pipeline_order(row->name, hec_test_pipeline_shape(row, &seed), &arena);
  hec_piece_held *each = HEC_NEW(&arena, hec_piece_held, o.n_parts * o.shape.n_micro_batches);
  for (int32_t i = 0; i < o.n_parts * o.shape.n_micro_batches; i++)
    each[i] = (hec_piece_held){(int64_t)(hec_test_random(&seed) % 1000), (int64_t)(hec_test_random(&seed) % 100)};
  int64_t *all = HEC_NEW(&arena, int64_t, o.n_pieces), *one = HEC_NEW(&arena, int64_t, o.n_pieces);
  hec_pipeline_order_held(&o, each, -1, all);
  for (int32_t c = 0; c < o.shape.n_chunks; c++) {
    hec_pipeline_order_held(&o, each, c, one);
    for (int32_t i = 0; i < o.n_pieces; i++)
      all[i] -= one[i];
  }
  for (int32_t i = 0; i < o.n_pieces; i++)
    ck_assert_int_eq(all[i], 0);
}

/* ---- Sizes that do not fit ---- */

static const struct {
  const char *name;
  hec_pipeline_shape shape;
  const char *words;
} refused[] = {
    {"1f1b", {0, 1, 4, 0}, "pipeline 1f1b: expected at least 1 stage, found 0; use 1 to"},
    {"gpipe", {2, 1, 0, 0}, "expected at least 1 micro-batch, found 0"},
    {"1f1b", {4, 2, 8, 0}, "expected 1 virtual stage per stage, found 2; use 1, or the pipeline interleaved"},
    {"interleaved", {4, 1, 8, 0}, "expected several virtual stages per stage, found 1; use 2 or more"},
    {"interleaved",
     {4, 2, 10, 0},
     "expected a multiple of the stages as micro-batches, found 10; use 8 or 12, or groups of 10"},
    {"interleaved", {4, 2, 3, 0}, "expected at least as many micro-batches as stages, found 3; use 4 or more"},
    {"interleaved",
     {4, 2, 8, 3},
     "expected groups of at least as many micro-batches as stages, found 3; use 4 or more"},
    {"interleaved",
     {4, 2, 12, 10},
     "last group of no fewer micro-batches than stages, found 2; use groups of 12, or 14 micro"},
    {"1f1b-overlap",
     {4, 1, 8, 0},
     "pipeline 1f1b-overlap: expected several virtual stages per stage, found 1; use 2"},
    {"1f1b-overlap", {4, 2, 9, 0}, "found 9; use 8 or 12"},
    {"zb-h1", {4, 2, 8, 0}, "expected 1 virtual stage per stage, found 2"},
    {"dualpipe", {3, 2, 12, 0}, "pipeline dualpipe: expected an even number of stages, found 3; use 2 or 4"},
    {"dualpipe", {1, 0, 12, 0}, "found 1; use 2, or dualpipev"},
    {"dualpipe", {4, 2, 6, 0}, "expected at least 2 micro-batches per stage, found 6; use 8 or more"},
    {"dualpipe", {4, 2, 9, 0}, "expected an even number of micro-batches, found 9; use 8 or 10"},
    {"dualpipe", {4, 3, 8, 0}, "expected 2 virtual stages per stage, found 3; use 2"},
    {"dualpipev", {4, 2, 7, 0}, "expected at least 2 micro-batches per stage, found 7; use 8 or more"},
    {"1f1b", {1 << 20, 1, 1 << 20, 0}, "expected fewer pieces"},
};

HEC_TEST_ROWS(sizes_are_refused, refused) {
  hec_pipeline_order o;
  hec_pipeline_shape shape = refused[_i].shape;
  ck_refused(hec_pipeline_order_make(hec_pipeline_find(refused[_i].name), &shape, &arena, &o), refused[_i].words);
}

HEC_TEST(fewest_chunks_by_default) {
  hec_pipeline_order o = hec_test_pipeline_order("interleaved", (hec_pipeline_shape){2, 0, 4, 0}, &arena);
  ck_assert_int_eq(o.shape.n_chunks, 2);
  ck_assert_int_eq(o.n_parts, 4);
}

/* ---- The check finds faults ---- */

static void swap(hec_pipeline_piece *a, hec_pipeline_piece *b) {
  hec_pipeline_piece other = *a;
  *a = *b;
  *b = other;
}

HEC_TEST_LOOP(the_check_finds, 7) {
  static const char *const words[] = {"runs a second time",  "what it needs comes later", "misses a piece in virtual stage 0",
                                      "no such chunk",       "another stage runs",        "what it needs comes later",
                                      "it needs comes later"};
  hec_pipeline_order o = hec_test_pipeline_order(_i == 6 ? "1f1b-overlap" : "zb-h1",
                                                 (hec_pipeline_shape){2, _i == 6 ? 2 : 1, 4, 0}, &arena);
  hec_pipeline_piece *piece = o.piece; /* F0 F1 I0 W0 F2 ... */
  switch (_i) {
  case 0:
    piece[1] = piece[0];
    break;
  case 1:
    swap(&piece[0], &piece[2]);
    break;
  case 2:
    o.n_pieces--, o.piece_at[1]--;
    memmove(&piece[o.piece_at[1]], &piece[o.piece_at[1] + 1],
            sizeof *piece * (size_t)(o.piece_at[2] - o.piece_at[1] - 1));
    o.piece_at[2]--;
    break;
  case 3:
    piece[0].micro_batch = 4;
    break;
  case 4:
    o.device[0] = 1;
    break;
  case 5:
    swap(&piece[2], &piece[3]);
    break;
  default: /* a pair whose halves need each other */
    for (int32_t i = 0; i < o.n_pieces; i++)
      if (piece[i].kind == HEC_PIECE_PAIR) {
        piece[i].beside_chunk = piece[i].chunk;
        piece[i].beside_micro_batch = piece[i].micro_batch;
        break;
      }
  }
  ck_assert_int_eq(hec_pipeline_order_check(&o), HEC_FAILED);
  ck_assert_msg(strstr(hec_last_error(), words[_i]) != NULL, "%s", hec_last_error());
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "bug of the schedule"));
}

HEC_TEST(names) {
  for (int32_t i = 0; hec_pipeline_schedules[i]; i++)
    ck_assert_ptr_eq(hec_pipeline_find(hec_pipeline_schedules[i]->name), hec_pipeline_schedules[i]);
  ck_assert_ptr_null(hec_pipeline_find("2f2b"));
}
