/* Where token rows stand, each against a plain model of itself. At their experts, on relays, on the members of a group that
 * shares experts, on proxies of nodes. */
#include "runtime/exec/rows/node_rows.h"
#include "runtime/exec/rows/relays.h"
#include "runtime/exec/rows/rows.h"
#include "runtime/plan/token_sets.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* Cells of random loads: every (source, expert) cut over a random set of ranks. Those of each chunk any part of a whole
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
HEC_TEST_LOOP(rows_carry_every_assignment_to_its_expert, 20) {
  enum { RANKS = 5, EXPERTS = 6, DEGREE = 4, MAX = RANKS * RANKS * EXPERTS * 5 * DEGREE };
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
      assigned[r][rows[r].place[j]] = 1 + r * MAX + j;
      if (rows[r].stays[j] >= 0)
        computed[r][rows[r].stays[j]] = 1 + r * MAX + j;
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
            ck_assert_int_eq(computed[d][at++], 1 + cells[i].source * MAX + first[cells[i].source][e][d]++);
    }
    ck_assert_int_eq(at, rows[d].n_computed);
    ck_assert_int_eq(at, rows[d].computed_at[degree]);
  }
}

/* Every cell whose source and rank have another relay stands there, and nowhere else, in both orders. */
HEC_TEST_LOOP(rows_that_pass_stand_in_both_orders, 24) {
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

/* ---- Groups ---- */

enum { RANKS = 8, EXPERTS = 5, DEGREE = 3, ROWS_MAX = 4 };

/* Of each source to each expert, in the expert's group; those of each chunk any part, now and then nothing. */
static int32_t group_cells(uint64_t *seed, int32_t esp, int32_t degree, hec_cell *cells) {
  int32_t n = 0;
  for (int32_t s = 0; s < RANKS; s++)
    for (int32_t e = 0; e < EXPERTS; e++)
      if (hec_test_below(seed, 4) > 0)
        cells[n++] = (hec_cell){s, e % (RANKS / esp) * esp + s % esp, e, (int32_t)hec_test_below(seed, ROWS_MAX)};
  for (int32_t i = n; i < n * degree; i++) {
    cells[i] = cells[i - n];
    cells[i].rows = (int32_t)hec_test_below(seed, ROWS_MAX);
  }
  return n;
}

/* A number for every row that is computed: chunk, expert, member, source, place in the cell. */
static int32_t number_of(int32_t chunk, const hec_cell *c, int32_t esp, int32_t k) {
  return ((((chunk * EXPERTS + c->expert) * esp + c->rank % esp) * RANKS + c->source) * ROWS_MAX) + k + 1;
}

HEC_TEST_LOOP(rows_of_a_group_stand_alike, 60) {
  uint64_t seed = 300 + (uint64_t)_i;
  int32_t esp = 1 << _i % 4, degree = 1 + _i % DEGREE;
  hec_cell cells[RANKS * EXPERTS * DEGREE];
  int32_t n = group_cells(&seed, esp, degree, cells);
  hec_rows_cells of = {cells, n * degree, degree, EXPERTS, RANKS, esp};
  for (int32_t r = 0; r < RANKS; r++) {
    hec_rows rows = hec_rows_make(&arena, &of, r), first = hec_rows_make(&arena, &of, r - r % esp);
    int32_t *at = HEC_NEW(&arena, int32_t, rows.n_computed + 1), before = 0;
    ck_assert_int_eq(rows.n_computed, first.n_computed);
    ck_assert_int_eq(rows.n_computed, rows.shelf_at[degree * EXPERTS * esp]);
    ck_assert(memcmp(rows.shelf_at, first.shelf_at, (size_t)(degree * EXPERTS * esp + 1) * sizeof *rows.shelf_at) == 0);
    /* The group's cells shelf by shelf, by the definition of the shelf. */
    for (int32_t i = 0; i < n * degree; i++)
      for (int32_t k = 0; cells[i].rank / esp == r / esp && k < cells[i].rows; k++) {
        int32_t shelf = (i / n * EXPERTS + cells[i].expert) * esp + cells[i].rank % esp, place = rows.shelf_at[shelf];
        while (place < rows.shelf_at[shelf + 1] && at[place] != 0)
          place++;
        ck_assert_int_lt(place, rows.shelf_at[shelf + 1]);
        at[place] = number_of(i / n, &cells[i], esp, k);
      }
    for (int32_t i = 0; i < rows.n_computed; i++) { /* ascending: by (chunk, expert, member, source) */
      ck_assert_int_gt(at[i], before);
      before = at[i];
    }
    /* Runs that arrive are on the shelves of this member, each source's where its numbers are. */
    int32_t n_arrived = 0;
    for (int32_t slot = 0; slot < degree * RANKS; slot++)
      for (int32_t i = rows.arrive.at[slot]; i < rows.arrive.at[slot + 1]; i++)
        for (int32_t k = 0; k < rows.arrive.run[i].rows; k++, n_arrived++) {
          hec_cell c = {slot % RANKS, r, rows.arrive.run[i].expert, 0};
          ck_assert_int_eq(at[rows.arrive.run[i].first + k], number_of(slot / RANKS, &c, esp, k));
        }
    int32_t n_stay = 0, n_expected = 0;
    for (int32_t j = 0; j < rows.n_assigned; j++)
      n_stay += rows.stays[j] >= 0;
    for (int32_t i = 0; i < n * degree; i++)
      n_expected += cells[i].rank == r ? cells[i].rows : 0;
    ck_assert_int_eq(n_arrived + n_stay, n_expected);
  }
}

/* ---- Nodes ---- */

typedef struct {
  int32_t source, token, expert, rank; /* of an assignment */
} one;

/* All assignments of the layer, by source, expert, position: cells cut each expert's list at random. */
static int32_t random_node_cells(uint64_t *seed, const hec_problem *p, hec_cell *cells, int32_t *n_cells, one *all) {
  int32_t n = 0, first[64], order[64];
  uint32_t counts[64];
  *n_cells = 0;
  for (int32_t s = 0; s < p->n_ranks; s++) {
    bool idle = hec_test_below(seed, 6) == 0;
    for (int32_t e = 0; e < p->n_experts; e++)
      counts[e] = idle ? 0 : (uint32_t)hec_test_below(seed, 2 + hec_test_below(seed, 5) * (uint64_t)p->tokens / 8);
    hec_token_sets(&(hec_token_row){counts, p->n_experts, p->tokens, 3, s}, first, order);
    for (int32_t e = 0; e < p->n_experts; e++)
      for (int32_t r = 0, i = 0; r < p->n_ranks; r++) {
        int32_t left = (int32_t)counts[e] - i;
        int32_t rows =
            r == p->n_ranks - 1 || hec_test_below(seed, 4) == 0 ? (int32_t)hec_test_below(seed, (uint64_t)left + 1) : 0;
        rows = r == p->n_ranks - 1 ? left : rows;
        if (rows == 0)
          continue;
        cells[(*n_cells)++] = (hec_cell){s, r, e, rows};
        for (int32_t k = 0; k < rows; k++, i++)
          all[n++] = (one){s, (first[e] + i) % p->tokens, e, r};
      }
  }
  return n;
}

/* Follows every assignment: its row and its number stand at the same place of both ends' message. What the proxy permutes
 * comes in the order of folded cells. */
HEC_TEST_LOOP(every_assignment_followed, 300) {
  uint64_t seed = 4500 + (uint64_t)_i;
  char line[80];
  int32_t nodes = 2 + (int32_t)hec_test_below(&seed, 3), devices = 1 + (int32_t)hec_test_below(&seed, 4);
  (void)snprintf(line, sizeof line, "%dx%d nvlink=300G@0s nic=1G@0s flops=1T mem=40G", nodes, devices);
  int32_t ranks = (nodes - 1) * devices + 1 + (int32_t)hec_test_below(&seed, (uint64_t)devices);
  hec_problem *p = hec_test_problem(&arena, line, ranks, 1, 1 + (int32_t)hec_test_below(&seed, 9), 1, true);
  p->tokens = 1 + (int32_t)hec_test_below(&seed, 24);
  hec_cell *cells = HEC_NEW(&arena, hec_cell, 16 * 16 * 16);
  one *all = HEC_NEW(&arena, one, 16 * 16 * 64);
  int32_t n_cells, n = random_node_cells(&seed, p, cells, &n_cells, all);
  hec_node_rows rows[16];
  int32_t place[16] = {0}, number[16][16] = {{0}}, own[16] = {0}, others[16] = {0};
  for (int32_t r = 0; r < ranks; r++)
    rows[r] = hec_node_rows_make(&arena, &(hec_node_cells){p, cells, n_cells, 3}, r);
  for (int32_t q = 0; q < ranks; q++)
    for (int32_t s = 0; s < ranks; s++) {
      int32_t sent = rows[s].to.row_at[q + 1] - rows[s].to.row_at[q], with = rows[s].to.number_at[q];
      ck_assert_int_eq(sent, rows[q].from.row_at[s + 1] - rows[q].from.row_at[s]);
      ck_assert_int_eq(rows[s].to.number_at[q + 1] - with, rows[q].from.number_at[s + 1] - rows[q].from.number_at[s]);
      for (int32_t i = rows[s].to.row_at[q] + 1; i < rows[s].to.row_at[q + 1]; i++)
        ck_assert_int_lt(rows[s].token[i - 1], rows[s].token[i]); /* each once */
    }
  for (int32_t e = 0; e < p->n_experts; e++)
    for (int32_t d = 0; d < ranks; d++)
      for (int32_t i = 0, list = 0; i < n; i++) {
        const one *a = &all[i];
        list = i > 0 && all[i - 1].source == a->source ? list + 1 : 0;
        if (a->expert != e || a->rank != d)
          continue;
        int32_t q = hec_proxy_of(p, a->source, hec_problem_node(p, d)), s = a->source;
        const hec_node_list *l = q == s ? &rows[q].own : &rows[q].others;
        int32_t at = q == s ? own[q]++ : others[q]++;
        ck_assert_int_eq(l->place[at], place[q]++);
        if (q == s) {
          ck_assert(l->token[at] == a->token && l->number[at] == list);
          continue;
        }
        int32_t row = l->token[at] - rows[q].from.row_at[s], k = l->number[at] - rows[q].from.number_at[s];
        ck_assert_int_eq(rows[s].token[rows[s].to.row_at[q] + row], a->token);
        ck_assert_int_eq(k, number[s][q]++);
        ck_assert_int_eq(rows[s].number[rows[s].to.number_at[q] + k], list);
      }
  for (int32_t r = 0; r < ranks; r++) {
    ck_assert(rows[r].own.n == own[r] && rows[r].others.n == others[r]);
    ck_assert(rows[r].from.n_rows <= rows[r].from.n_numbers && rows[r].to.n_rows <= rows[r].to.n_numbers);
  }
}
