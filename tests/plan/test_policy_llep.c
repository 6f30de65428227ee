/* LLEP: the small instance, its parameters, and the published loop written out plainly. */
#include "tests/plan/spill_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/suite.h"

static const char box[] = "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

START_TEST(small_instance) {
  hec_spill_case c = hec_spill_case_new(&hec_test_arena, "llep", box, 4, 8);
  c.spill->options.least = 10;
  hec_spill_case_small(&c, 1);
  hec_spill_case_stop(&c);
}
END_TEST

START_TEST(published_parameters) {
  hec_spill_case c = hec_spill_case_new(&hec_test_arena, "llep", box, 4, 8);
  ck_assert(c.spill->options.threshold == 1.3 && c.spill->options.capacity == 1 && c.spill->options.least == 1024);
  /* 130 over a mean of 100 is activation; one less is not. */
  const uint32_t full[8] = {131000, 0, 89000, 0, 90000, 0, 90000, 0}, below[8] = {129000, 0, 91000, 0, 90000, 0, 90000};
  c.load = hec_test_even_load(&hec_test_arena, c.problem, below);
  hec_spill_case_plan(&c);
  ck_assert_int_eq(c.spill->n_moves, 0);
  c.load = hec_test_even_load(&hec_test_arena, c.problem, full);
  hec_spill_case_plan(&c);
  for (int32_t r = 0; r < 4; r++)
    ck_assert_uint_eq(c.rank[r], 100000);
  /* Nobody has room for 1024: whole excesses are handed on, from rank 0 to 1, from there to 3, the last part to 2. */
  const uint32_t small[8] = {1350, 0, 880, 0, 890, 0, 880, 0};
  const hec_spill_move wanted[3] = {{0, 1, 350}, {2, 3, 230}, {6, 2, 110}};
  c.load = hec_test_even_load(&hec_test_arena, c.problem, small);
  hec_spill_case_plan(&c);
  ck_assert_int_eq(c.spill->n_moves, 3);
  for (int32_t i = 0; i < 3; i++)
    ck_assert(c.spill->moves[i].expert == wanted[i].expert && c.spill->moves[i].rank == wanted[i].rank &&
              c.spill->moves[i].tokens == wanted[i].tokens);
  hec_spill_case_stop(&c);
}
END_TEST

/* The paper's inner loop: candidates sorted, each looked at. */
static void spill_plainly(hec_spill_oracle *o, int32_t e, int64_t q, const hec_spill_options *options, int64_t cap,
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
      if (chunk > 0 && !(chunk < (int64_t)options->least && q > chunk))
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

static void plan_plainly(hec_spill_oracle *o, const hec_spill_options *options) {
  int64_t got[HEC_SPILL_RANKS] = {0}, pend[HEC_SPILL_RANKS], most = 0;
  bool done[HEC_SPILL_EXPERTS] = {false};
  for (int32_t r = 0; r < o->n; r++) {
    pend[r] = o->load[r];
    most = o->load[r] > most ? o->load[r] : most;
  }
  if (o->n == 1 || (double)(most * o->n) < options->threshold * (double)o->all)
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
    spill_plainly(o, e, q - keep, options, cap, got, pend);
  }
}

START_TEST(follows_the_published_loop) {
  uint64_t seed = 5;
  int moved = 0, many = 0;
  for (int round = 0; round < 1500; round++) {
    hec_spill_case c = hec_spill_case_random(&hec_test_arena, "llep", &seed);
    hec_spill_case_fill(&c, 1 + hec_test_below(&seed, 1500), &seed);
    hec_spill_options *options = &c.spill->options;
    options->least = round % 4 == 0 ? 1024 : hec_test_below(&seed, 400);
    options->capacity = round % 3 ? 1 : 1.1;
    options->threshold = round % 5 ? 1.3 : 1;
    hec_spill_case_plan(&c);
    for (int32_t g = 0; g < c.problem->dp; g++) {
      hec_spill_oracle o = hec_spill_oracle_new(&c, g * c.problem->ep, c.problem->ep);
      plan_plainly(&o, options);
      hec_spill_oracle_compare(&o, &c, g * c.problem->ep);
    }
    moved += c.spill->n_moves > 0;
    many += c.spill->n_moves > c.problem->n_ranks;
    hec_spill_case_stop(&c);
    hec_arena_free(&hec_test_arena);
  }
  ck_assert(moved > 700 && many > 50);
}
END_TEST

/* With m = 1 and alpha = 1 only what R ranks cannot share evenly may stand above the cap: whenever nobody has room, all
 * have got or expect the cap, so less than R tokens are left. */
START_TEST(balances_without_a_minimum) {
  uint64_t seed = 17;
  for (int round = 0; round < 500; round++) {
    hec_spill_case c = hec_spill_case_random(&hec_test_arena, "llep", &seed);
    hec_spill_case_fill(&c, 1 + hec_test_below(&seed, 3000), &seed);
    c.spill->options.least = 1;
    c.spill->options.threshold = 0;
    hec_spill_case_plan(&c);
    for (int32_t g = 0; g < c.problem->dp; g++) {
      int32_t ep = c.problem->ep;
      uint64_t all = 0;
      for (int32_t r = g * ep; r < (g + 1) * ep; r++)
        all += c.rank[r];
      for (int32_t r = g * ep; r < (g + 1) * ep; r++)
        ck_assert(c.rank[r] <= all / (uint64_t)ep + (uint64_t)ep || all < (uint64_t)ep);
    }
    hec_spill_case_stop(&c);
    hec_arena_free(&hec_test_arena);
  }
}
END_TEST

static const hec_test_suite suite = {.name = "policy_llep"};
HEC_TESTS(suite, {small_instance, 1}, {published_parameters, 1}, {follows_the_published_loop, 1},
          {balances_without_a_minimum, 1})
