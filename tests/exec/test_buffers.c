/* Planned buffers, token rows and expert slots, each against a plain model of itself over random histories. */
#include "runtime/exec/buffers.h"
#include "runtime/exec/rows/relays.h"
#include "runtime/exec/rows/rows.h"
#include "runtime/exec/store.h"
#include "tests/support/check_main.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"

#include <string.h>

static hec_arena arena;
static void teardown(void) {
  hec_arena_free(&arena);
}

/* ---- Buffers ---- */

enum { CAPACITY = 1 << 16, OPEN_MOST = 40, WAITS = 64 };

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

START_TEST(buffers_never_overlap_and_wait_for_what_was_there) {
  static _Alignas(64) char memory[CAPACITY];
  uint64_t seed = 9 + (uint64_t)_i;
  int32_t last_use[CAPACITY / 64];
  opened open[OPEN_MOST];
  int32_t n_open = 0;
  double live = 0, peak = 0;
  hec_buffers buffers;
  hec_buffers_init(&buffers, memory, CAPACITY);
  for (size_t i = 0; i < CAPACITY / 64; i++)
    last_use[i] = -1;
  for (int32_t op = 0; op < 600; op++) {
    if (n_open < OPEN_MOST && hec_test_below(&seed, 2)) {
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
END_TEST

START_TEST(buffers_by_hand) {
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
END_TEST

/* ---- Rows ---- */

/* Cells of random loads: every (source, expert) cut over a random set of ranks; those of each chunk any part of a whole
 * one, now and then nothing. */
static int32_t random_cells(uint64_t *seed, int32_t n_ranks, int32_t n_experts, int32_t degree, hec_cell *cells) {
  int32_t n = 0;
  for (int32_t s = 0; s < n_ranks; s++)
    for (int32_t e = 0; e < n_experts; e++)
      for (int32_t r = 0; r < n_ranks; r++)
        if (hec_test_below(seed, 3) == 0)
          cells[n++] = (hec_cell){s, r, e, 1 + (int32_t)hec_test_below(seed, 5)};
  for (int32_t i = n; i < n * degree; i++) {
    cells[i] = cells[i - n];
    cells[i].rows = (int32_t)hec_test_below(seed, 4);
  }
  return n * degree;
}

/* Each assignment has a number; it is put where the rows say, sent as runs, and must arrive where its expert is. */
START_TEST(rows_carry_every_assignment_to_its_expert) {
  enum { RANKS = 5, EXPERTS = 6, DEGREE = 4, MOST = RANKS * RANKS * EXPERTS * 5 * DEGREE };
  uint64_t seed = 100 + (uint64_t)_i;
  hec_cell *cells = HEC_NEW(&arena, hec_cell, RANKS * RANKS * EXPERTS * DEGREE);
  int32_t degree = 1 + _i % DEGREE, n_cells = random_cells(&seed, RANKS, EXPERTS, degree, cells), n = n_cells / degree;
  hec_rows_cells of = {cells, n_cells, degree, EXPERTS, RANKS, 1};
  hec_rows rows[RANKS];
  int32_t *assigned[RANKS], *computed[RANKS];
  for (int32_t r = 0; r < RANKS; r++) {
    rows[r] = hec_rows_make(&arena, &of, r);
    assigned[r] = HEC_NEW(&arena, int32_t, rows[r].n_assigned + 1);
    computed[r] = HEC_NEW(&arena, int32_t, rows[r].n_computed + 1);
    for (int32_t j = 0; j < rows[r].n_assigned; j++) {
      ck_assert_int_eq(assigned[r][rows[r].place[j]], 0);
      assigned[r][rows[r].place[j]] = 1 + r * MOST + j;
      if (rows[r].stays[j] >= 0)
        computed[r][rows[r].stays[j]] = 1 + r * MOST + j;
    }
  }
  for (int32_t d = 0; d < RANKS; d++)
    for (int32_t from = 0; from < RANKS * degree; from++) { /* chunk by chunk */
      int32_t s = from % RANKS, to = from - s + d;
      int32_t next = rows[s].leaving_at[to], leave = rows[s].leave.at[to];
      ck_assert_int_eq(rows[d].n_slots, RANKS * degree);
      for (int32_t i = rows[d].arrive.at[from]; i < rows[d].arrive.at[from + 1]; i++, leave++) {
        ck_assert_int_gt(rows[d].arrive.run[i].rows, 0);
        ck_assert_int_eq(rows[d].arrive.run[i].rows, rows[s].leave.run[leave].rows);
        ck_assert_int_eq(next, rows[s].leave.run[leave].first);
        for (int32_t k = 0; k < rows[d].arrive.run[i].rows; k++) {
          ck_assert_int_eq(rows[d].arrive.run[i].peer, s);
          ck_assert_int_eq(computed[d][rows[d].arrive.run[i].first + k], 0);
          computed[d][rows[d].arrive.run[i].first + k] = assigned[s][next++];
        }
      }
      ck_assert_int_eq(next, s == d ? rows[s].leaving_at[to] : rows[s].leaving_at[to + 1]);
    }
  /* By the definition of cells: computed rows by (chunk, expert, source, place in the source's list). */
  int32_t position[RANKS];
  int32_t first[RANKS][EXPERTS][RANKS]; /* source, expert, rank: the next assignment of the cell */
  memset(position, 0, sizeof position);
  for (int32_t i = 0; i < n; i++) {
    first[cells[i].source][cells[i].expert][cells[i].rank] = position[cells[i].source];
    for (int32_t c = 0; c < degree; c++)
      position[cells[i].source] += cells[c * n + i].rows;
  }
  for (int32_t d = 0; d < RANKS; d++) {
    int32_t at = 0;
    for (int32_t c = 0; c < degree; c++) {
      ck_assert_int_eq(at, rows[d].computed_at[c]);
      for (int32_t e = 0; e < EXPERTS; e++)
        for (int32_t i = c * n; i < (c + 1) * n; i++)
          for (int32_t k = 0; cells[i].rank == d && cells[i].expert == e && k < cells[i].rows; k++)
            ck_assert_int_eq(computed[d][at++], 1 + cells[i].source * MOST + first[cells[i].source][e][d]++);
    }
    ck_assert_int_eq(at, rows[d].n_computed);
    ck_assert_int_eq(at, rows[d].computed_at[degree]);
  }
}
END_TEST

/* Every cell whose source and rank have another relay stands there, and nowhere else, in both orders. */
START_TEST(rows_that_pass_stand_in_both_orders) {
  enum { RANKS = 8, EXPERTS = 4, DEGREE = 4 };
  static const char *const lines[] = {"4x2 nvlink=1G nic=1G flops=1T mem=1G", "3x3 nvlink=1G nic=1G flops=1T mem=1G",
                                      "2x4 nvlink=1G nic=1G flops=1T mem=1G"};
  static const int32_t per_node[] = {2, 3, 4};
  uint64_t seed = 300 + (uint64_t)_i;
  int32_t k = _i % 3, g = per_node[k], degree = 1 + _i / 3 % DEGREE;
  const hec_problem *p = hec_test_problem(&arena, lines[k], RANKS, 1, EXPERTS, 1, true);
  hec_cell *cells = HEC_NEW(&arena, hec_cell, RANKS * RANKS * EXPERTS * DEGREE);
  int32_t n_cells = random_cells(&seed, RANKS, EXPERTS, degree, cells), n = n_cells / degree, passed = 0;
  hec_rows_cells of = {cells, n_cells, degree, EXPERTS, RANKS, 1};
  for (int32_t x = 0; x < RANKS; x++) {
    const hec_relays *relays = hec_relays_make(&arena, &of, &hec_token_route_2dh, p, x);
    int32_t run = 0;
    for (int32_t c = 0; c < degree; c++) {
      int32_t row[2] = {0, 0}, place = relays->at[c];
      ck_assert_int_eq(relays->at[c], run);
      for (int32_t d = 0; d < RANKS; d++)
        for (int32_t i = c * n; i < (c + 1) * n; i++) { /* cells are by (source, expert, rank) */
          int32_t s = cells[i].source, q = s / g * g + d % g;
          if (cells[i].rank != d || cells[i].rows == 0 || q != x || q >= RANKS || s == d || q == s || q == d)
            continue;
          const hec_relay_run *r = &relays->run[run++];
          ck_assert(r->source == s && r->rank == d && r->expert == cells[i].expert && r->rows == cells[i].rows);
          ck_assert_int_eq(r->aligned, row[0]);
          row[0] += r->rows;
          passed++;
        }
      for (int32_t s = 0; s < RANKS; s++)
        for (int32_t i = relays->at[c]; i < relays->at[c + 1]; i++) /* runs are by (rank, source, expert) */
          if (relays->run[i].source == s) {
            ck_assert_int_eq(relays->by_source[place++], i);
            ck_assert_int_eq(relays->run[i].relayed, row[1]);
            row[1] += relays->run[i].rows;
          }
      ck_assert_int_eq(place, run);
      ck_assert_int_eq(row[0], row[1]);
    }
    ck_assert_int_eq(relays->at[degree], run);
    for (int32_t peer = 0; peer < RANKS; peer++) {
      int32_t to = x / g * g + peer % g, from = peer / g * g + x % g;
      ck_assert_int_eq(relays->over_to[peer], peer == x || to >= RANKS ? x : to);
      ck_assert_int_eq(relays->over_from[peer], peer == x ? x : from >= RANKS ? peer : from);
    }
  }
  ck_assert_int_gt(passed, 0);
}
END_TEST

/* ---- Slots ---- */

START_TEST(slots_come_and_go) {
  enum { ROWS = 7, PARTS = 3, SIZE = 100, MOST = 9 };
  uint64_t seed = 200 + (uint64_t)_i;
  size_t floats = hec_store_bytes(SIZE, PARTS, 4, MOST) / sizeof(float);
  float *memory = HEC_NEW(&arena, float, floats);
  hec_store store = hec_store_new(&arena, memory + floats, ROWS, PARTS, SIZE, 4, MOST);
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
      ck_assert_int_eq(n, MOST);
    }
    ck_assert_int_eq(store.n_used, n);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("buffers");
  TCase *c = tcase_create("buffers");
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_add_test(c, buffers_by_hand);
  tcase_add_loop_test(c, buffers_never_overlap_and_wait_for_what_was_there, 0, 20);
  tcase_add_loop_test(c, rows_carry_every_assignment_to_its_expert, 0, 20);
  tcase_add_loop_test(c, rows_that_pass_stand_in_both_orders, 0, 24);
  tcase_add_loop_test(c, slots_come_and_go, 0, 10);
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
