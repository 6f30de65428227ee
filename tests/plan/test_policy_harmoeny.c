/* HarMoEny: one move after the other, until none is worth it. */
#include "tests/plan/spill_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/suite.h"

static const char box[] = "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

START_TEST(small_instance) {
  hec_spill_case c = hec_spill_case_new(&hec_test_arena, "harmoeny", box, 4, 8);
  ck_assert_uint_eq(c.spill->options.least, 150);
  c.spill->options.least = 10;
  hec_spill_case_small(&c, 1);
  hec_spill_case_stop(&c);
}
END_TEST

/* Written out over all experts and ranks. Returns whether a move is left to do, and does it. */
static bool step(hec_spill_oracle *o, int64_t *load, int64_t q) {
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

START_TEST(follows_the_published_loop) {
  uint64_t seed = 37;
  int moved = 0, small = 0;
  for (int round = 0; round < 1500; round++) {
    hec_spill_case c = hec_spill_case_random(&hec_test_arena, "harmoeny", &seed);
    hec_spill_case_fill(&c, 1 + hec_test_below(&seed, 1000), &seed);
    c.spill->options.least = round % 3 == 0 ? 150 : 1 + hec_test_below(&seed, 100);
    hec_spill_case_plan(&c);
    for (int32_t g = 0; g < c.problem->dp; g++) {
      int32_t ep = c.problem->ep;
      hec_spill_oracle o = hec_spill_oracle_new(&c, g * ep, ep);
      int64_t load[HEC_SPILL_RANKS];
      for (int32_t r = 0; r < ep; r++)
        load[r] = o.load[r];
      while (step(&o, load, (int64_t)c.spill->options.least))
        moved++;
      hec_spill_oracle_compare(&o, &c, g * ep);
      for (int32_t r = 0; r < ep; r++) {
        ck_assert_int_eq(load[r], (int64_t)c.rank[g * ep + r]);
        small += load[r] > o.all / ep;
      }
    }
    hec_spill_case_stop(&c);
    hec_arena_free(&hec_test_arena);
  }
  ck_assert(moved > 3000 && small > 500);
}
END_TEST

static const hec_test_suite suite = {.name = "policy_harmoeny"};
HEC_TESTS(suite, {small_instance, 1}, {follows_the_published_loop, 1})
