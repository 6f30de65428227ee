/* Spilling policies against their published procedures written out plainly, over all experts and ranks, on random problems:
 * LLEP's, HarMoEny's and MoonEP's loops. Where their limits are met exactly; and what MoonEP promises for every input. */
#include "tests/plan/spill_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static const char box[] = "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

/* ---- LLEP ---- */

HEC_TEST(llep_threshold_and_minimum) {
  HEC_SCOPED(hec_spill_case) c = hec_spill_case_new(&arena, "llep", box, 4, 8);
  /* 130 over a mean of 100 is activation; one less is not. */
  const uint32_t full[8] = {131000, 0, 89000, 0, 90000, 0, 90000, 0}, below[8] = {129000, 0, 91000, 0, 90000, 0, 90000};
  c.load = hec_test_even_load(&arena, c.problem, below);
  hec_spill_case_plan(&c);
  ck_assert_int_eq(c.spill->n_moves, 0);
  c.load = hec_test_even_load(&arena, c.problem, full);
  hec_spill_case_plan(&c);
  for (int32_t r = 0; r < 4; r++)
    ck_assert_uint_eq(c.rank[r], 100000);
  c.spill->options.threshold = 1.5; /* met exactly: a product of doubles that is exact */
  const uint32_t exact[8] = {150000, 0, 90000, 0, 80000, 0, 80000};
  c.load = hec_test_even_load(&arena, c.problem, exact);
  hec_spill_case_plan(&c);
  ck_assert_int_gt(c.spill->n_moves, 0);
  c.spill->options.threshold = 1.3;
  /* Nobody has room for 1024: whole excesses are handed on, from rank 0 to 1, from there to 3, the last part to 2. */
  const uint32_t small[8] = {1350, 0, 880, 0, 890, 0, 880, 0};
  const hec_spill_move wanted[3] = {{0, 1, 350}, {2, 3, 230}, {6, 2, 110}};
  c.load = hec_test_even_load(&arena, c.problem, small);
  hec_spill_case_plan(&c);
  ck_assert_int_eq(c.spill->n_moves, 3);
  for (int32_t i = 0; i < 3; i++)
    ck_assert(c.spill->moves[i].expert == wanted[i].expert && c.spill->moves[i].rank == wanted[i].rank &&
              c.spill->moves[i].tokens == wanted[i].tokens);
}

/* A chunk of m tokens is worth a guest, one of m - 1 is not: then all that is left goes to one rank. Cap 200; expert 0 has 200
 * tokens too many, ranks 1 and 2 have room for 100 each. */
HEC_TEST(llep_at_its_minimum) {
  const uint32_t totals[8] = {400, 0, 100, 0, 100, 0, 200, 0};
  static const uint64_t of_expert_0[2][4] = {{200, 100, 100, 0}, {200, 200, 0, 0}};
  for (int more = 0; more < 2; more++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_new(&arena, "llep", box, 4, 8);
    c.spill->options.min = (uint64_t)(100 + more);
    c.load = hec_test_even_load(&arena, c.problem, totals);
    hec_spill_case_plan(&c);
    for (int32_t r = 0; r < 4; r++)
      ck_assert_uint_eq(c.computed[r * 8], of_expert_0[more][r]);
  }
}

/* The paper's inner loop: candidates sorted, each looked at. */
static void llep_spill(hec_spill_oracle *o, int32_t e, int64_t q, const hec_spill_options *options, int64_t cap,
                       int64_t *got, const int64_t *pend) {
  while (q > 0) {
    int32_t order[HEC_SPILL_RANKS], n = 0, taker = -1;
    for (int32_t r = 0; r < o->n; r++) {
      int32_t place = n;
      if (r == o->home[e])
        continue;
      for (; place > 0 && got[order[place - 1]] + pend[order[place - 1]] > got[r] + pend[r]; place--)
        order[place] = order[place - 1];
      order[place] = r;
      n++;
    }
    int64_t chunk = 0;
    for (int32_t i = 0; i < n && taker < 0; i++) {
      int64_t room = cap - got[order[i]] - pend[order[i]];
      chunk = q < room ? q : room;
      if (chunk > 0 && !(chunk < (int64_t)options->min && q > chunk))
        taker = order[i];
    }
    if (taker < 0) {
      taker = order[0];
      chunk = q;
    }
    o->moved[e][taker] += chunk;
    got[taker] += chunk;
    q -= chunk;
  }
}

static void llep_plan(hec_spill_oracle *o, const hec_spill_options *options) {
  int64_t got[HEC_SPILL_RANKS] = {0}, pend[HEC_SPILL_RANKS], max = 0;
  bool done[HEC_SPILL_EXPERTS] = {false};
  for (int32_t r = 0; r < o->n; r++) {
    pend[r] = o->load[r];
    max = o->load[r] > max ? o->load[r] : max;
  }
  if (o->n == 1 || (double)(max * o->n) < options->threshold * (double)o->all)
    return;
  int64_t cap = (int64_t)(options->capacity * (double)(o->all / o->n));
  cap = cap < 1 ? 1 : cap;
  for (int32_t k = 0; k < o->n_experts; k++) {
    int32_t e = -1;
    for (int32_t i = 0; i < o->n_experts; i++)
      if (!done[i] && (e < 0 || o->total[i] > o->total[e]))
        e = i;
    done[e] = true;
    int32_t home = o->home[e];
    int64_t q = o->total[e];
    pend[home] -= q;
    int64_t room = cap - got[home] - pend[home];
    int64_t keep = room >= q ? q : room > 0 ? room : 0;
    got[home] += keep;
    llep_spill(o, e, q - keep, options, cap, got, pend);
  }
}

HEC_TEST(llep_follows_the_published_loop) {
  uint64_t seed = 5;
  int moved = 0, many = 0;
  for (int round = 0; round < 1500; round++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_random(&arena, "llep", 1500, &seed);
    hec_spill_options *options = &c.spill->options;
    options->min = round % 4 == 0 ? 1024 : hec_test_below(&seed, 400);
    options->capacity = round % 3 ? 1 : 1.1;
    options->threshold = round % 5 ? 1.3 : 1;
    hec_spill_case_plan(&c);
    hec_spill_oracle o = hec_spill_oracle_new(&c, 0, c.problem->n_ranks);
    llep_plan(&o, options);
    hec_spill_oracle_compare(&o, &c, 0);
    moved += c.spill->n_moves > 0;
    many += c.spill->n_moves > c.problem->n_ranks;
  }
  ck_assert(moved > 700 && many > 50);
}

/* With m = 1 and alpha = 1 only what R ranks cannot share evenly may stand above the cap. Whenever nobody has room, all
 * have got or expect the cap. So less than R tokens are left. */
HEC_TEST(llep_balances_without_a_minimum) {
  uint64_t seed = 17;
  for (int round = 0; round < 500; round++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_random(&arena, "llep", 3000, &seed);
    c.spill->options.min = 1;
    c.spill->options.threshold = 0;
    hec_spill_case_plan(&c);
    uint64_t all = 0, ranks = (uint64_t)c.problem->n_ranks;
    for (uint64_t r = 0; r < ranks; r++)
      all += c.rank[r];
    for (uint64_t r = 0; r < ranks; r++)
      ck_assert(c.rank[r] <= all / ranks + ranks || all < ranks);
  }
}

/* ---- HarMoEny ---- */

/* Returns whether a move is left to do, and does it. */
static bool harmoeny_step(hec_spill_oracle *o, int64_t *load, int64_t q) {
  int64_t avg = o->all / o->n, left = 0;
  int32_t from = 0, to = 0, expert = -1;
  for (int32_t r = 0; r < o->n; r++) {
    from = load[r] > load[from] ? r : from;
    to = load[r] < load[to] ? r : to;
  }
  for (int32_t e = 0; e < o->n_experts; e++) {
    int64_t here = o->home[e] == from ? o->total[e] : o->moved[e][from];
    for (int32_t r = 0; o->home[e] == from && r < o->n; r++)
      here -= o->moved[e][r];
    if (expert < 0 || here > left) {
      expert = e;
      left = here;
    }
  }
  if (load[from] <= avg || from == to || load[to] + q > avg || left < q)
    return false;
  ck_assert_int_eq(o->home[expert], from); /* guests never leave again */
  int64_t n = left, over = load[from] - avg, room = avg - load[to];
  n = over < n ? over : n;
  n = room < n ? room : n;
  o->moved[expert][to] += n;
  load[from] -= n;
  load[to] += n;
  return true;
}

HEC_TEST(harmoeny_follows_the_published_loop) {
  uint64_t seed = 37;
  int moved = 0, small = 0;
  for (int round = 0; round < 1500; round++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_random(&arena, "harmoeny", 1000, &seed);
    c.spill->options.min = round % 3 == 0 ? 150 : 1 + hec_test_below(&seed, 100);
    hec_spill_case_plan(&c);
    hec_spill_oracle o = hec_spill_oracle_new(&c, 0, c.problem->n_ranks);
    int64_t load[HEC_SPILL_RANKS];
    memcpy(load, o.load, sizeof load);
    while (harmoeny_step(&o, load, (int64_t)c.spill->options.min))
      moved++;
    hec_spill_oracle_compare(&o, &c, 0);
    for (int32_t r = 0; r < o.n; r++) {
      ck_assert_int_eq(load[r], (int64_t)c.rank[r]);
      small += load[r] > o.all / o.n;
    }
  }
  ck_assert(moved > 3000 && small > 500);
}

/* q is enough in both conditions, and one more is too much. For the room of the emptiest rank, and for the largest expert of
 * the fullest. Three experts on each of two ranks, all tokens on rank 0; moved: how many tokens leave it. */
HEC_TEST(harmoeny_at_its_minimum) {
  static const struct {
    uint32_t totals[6];
    uint64_t min, moved;
  } cases[] = {
      {{100, 100, 0, 0, 0, 0}, 100, 100},                                   /* room 100, expert 100 */
      {{100, 100, 0, 0, 0, 0}, 101, 0},   {{60, 60, 60, 0, 0, 0}, 60, 60},  /* room 90, expert 60 */
      {{60, 60, 60, 0, 0, 0}, 61, 0},     {{120, 30, 30, 0, 0, 0}, 90, 90}, /* room 90, expert 120 */
      {{120, 30, 30, 0, 0, 0}, 91, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_new(&arena, "harmoeny", box, 2, 6);
    c.spill->options.min = cases[i].min;
    c.load = hec_test_even_load(&arena, c.problem, cases[i].totals);
    hec_spill_case_plan(&c);
    ck_assert_uint_eq(c.rank[1], cases[i].moved);
  }
}

/* ---- MoonEP ---- */

/* As published: receivers find a donor, the emptiest at the fullest. Then each donor serves the largest quota first, from its
 * own expert with the most left. Ties to the lower index. */
static void moonep_plan(hec_spill_oracle *o) {
  int64_t balance[HEC_SPILL_RANKS], quota[HEC_SPILL_RANKS] = {0}, left[HEC_SPILL_EXPERTS];
  int32_t donor[HEC_SPILL_RANKS] = {0};
  for (int32_t r = 0; r < o->n; r++)
    balance[r] = o->load[r] - o->all / o->n - (r < o->all % o->n);
  for (;;) {
    int32_t full = 0, empty = 0;
    for (int32_t r = 0; r < o->n; r++) {
      full = balance[r] > balance[full] ? r : full;
      empty = balance[r] < balance[empty] ? r : empty;
    }
    if (balance[full] == 0)
      break;
    donor[empty] = full;
    quota[empty] = -balance[empty];
    balance[full] -= quota[empty];
    balance[empty] = 0;
  }
  memcpy(left, o->total, sizeof left);
  for (;;) {
    int32_t to = 0, from = -1; /* the largest quota of all: donors do not share experts, so their order is free */
    for (int32_t r = 0; r < o->n; r++)
      to = quota[r] > quota[to] ? r : to;
    if (quota[to] == 0)
      break;
    for (int32_t e = 0; e < o->n_experts; e++)
      if (o->home[e] == donor[to] && (from < 0 || left[e] > left[from]))
        from = e;
    int64_t take = left[from] < quota[to] ? left[from] : quota[to];
    o->moved[from][to] += take;
    left[from] -= take;
    quota[to] -= take;
  }
}

static void moonep_check(const hec_spill_case *c) {
  int32_t ranks = c->problem->n_ranks, experts = c->problem->n_experts, transfers = 0;
  hec_spill_oracle o = hec_spill_oracle_new(c, 0, ranks);
  for (int32_t r = 0; r < ranks; r++) {
    ck_assert_uint_eq(c->rank[r], (uint64_t)(o.all / ranks + (r < o.all % ranks)));
    int32_t donor = -1, own = 0;
    for (int32_t e = 0; e < experts; e++)
      if (o.home[e] != r && c->computed[r * experts + e] > 0) {
        ck_assert(donor < 0 || donor == o.home[e]); /* one donor */
        donor = o.home[e];
      }
    for (int32_t e = 0; e < experts; e++)
      own += o.home[e] == donor;
    transfers += donor >= 0;
    ck_assert_int_le(hec_spill_case_guests(c, r), own);
    ck_assert_int_le(own, (experts + ranks - 1) / ranks);
  }
  ck_assert_int_le(transfers, ranks - 1);
  if (o.all > 0)
    moonep_plan(&o);
  hec_spill_oracle_compare(&o, c, 0);
}

HEC_TEST(moonep_is_exact) {
  uint64_t seed = 9;
  int full = 0;
  for (int round = 0; round < 3000; round++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_random(&arena, "moonep", round % 2 ? 5 : 2000, &seed);
    hec_spill_case_plan(&c);
    moonep_check(&c);
    for (int32_t r = 0; r < c.problem->n_ranks; r++)
      full += hec_spill_case_guests(&c, r) > 1;
  }
  ck_assert_int_gt(full, 300);
}

/* Every input of two and three ranks with two experts each and up to four tokens an expert. */
HEC_TEST(moonep_is_exact_exhaustively) {
  for (int32_t ranks = 2; ranks <= 3; ranks++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_new(&arena, "moonep", box, ranks, 2 * ranks);
    int32_t cases = 1;
    for (int32_t e = 0; e < 2 * ranks; e++)
      cases *= 5;
    for (int32_t i = 0; i < cases; i++) {
      for (int32_t e = 0, rest = i; e < 2 * ranks; e++, rest /= 5)
        for (int32_t s = 0; s < ranks; s++)
          hec_load_row(&c.load, 0, s)[e] = (uint32_t)(s == e % ranks ? rest % 5 : 0);
      hec_spill_case_plan(&c);
      moonep_check(&c);
    }
  }
}
