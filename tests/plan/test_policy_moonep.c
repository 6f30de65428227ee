/* MoonEP: exact balance for every input, within its bound on foreign experts. */
#include "tests/plan/spill_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/suite.h"

static const char box[] = "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

START_TEST(small_instance) {
  hec_spill_case c = hec_spill_case_new(&hec_test_arena, "moonep", box, 4, 8);
  hec_spill_case_small(&c, 1);
  const hec_spill_move *moves = c.spill->moves;
  ck_assert_int_eq(c.spill->n_moves, 3);
  ck_assert(moves[0].rank == 3 && moves[0].tokens == 160 && moves[1].rank == 1 && moves[1].tokens == 100);
  ck_assert(moves[2].rank == 2 && moves[2].tokens == 40 && moves[2].expert == 0);
  hec_spill_case_stop(&c);
}
END_TEST

static void check_group(const hec_spill_case *c, int32_t group) {
  int32_t ep = c->problem->ep, experts = c->problem->n_experts, transfers = 0;
  hec_spill_oracle o = hec_spill_oracle_new(c, group * ep, ep);
  for (int32_t r = 0; r < ep; r++) {
    ck_assert_uint_eq(c->rank[group * ep + r], (uint64_t)(o.all / ep + (r < o.all % ep)));
    int32_t donor = -1, own = 0;
    for (int32_t e = 0; e < experts; e++)
      if (o.home[e] != r && c->computed[(group * ep + r) * experts + e] > 0) {
        ck_assert(donor < 0 || donor == o.home[e]); /* one donor */
        donor = o.home[e];
      }
    for (int32_t e = 0; e < experts; e++)
      own += o.home[e] == donor;
    transfers += donor >= 0;
    ck_assert_int_le(hec_spill_case_guests(c, group * ep + r), own);
    ck_assert_int_le(own, (experts + ep - 1) / ep);
  }
  ck_assert_int_le(transfers, ep - 1);
}

START_TEST(exact_for_every_input) {
  uint64_t seed = 9;
  int full = 0;
  for (int round = 0; round < 3000; round++) {
    hec_spill_case c = hec_spill_case_random(&hec_test_arena, "moonep", &seed);
    hec_spill_case_fill(&c, 1 + hec_test_below(&seed, round % 2 ? 5 : 2000), &seed);
    hec_spill_case_plan(&c);
    for (int32_t g = 0; g < c.problem->dp; g++)
      check_group(&c, g);
    for (int32_t r = 0; r < c.problem->n_ranks; r++)
      full += hec_spill_case_guests(&c, r) > 1;
    hec_spill_case_stop(&c);
    hec_arena_free(&hec_test_arena);
  }
  ck_assert_int_gt(full, 300);
}
END_TEST

/* Every input of two and three ranks with two experts each and up to four tokens an expert. */
START_TEST(exact_exhaustively) {
  for (int32_t ranks = 2; ranks <= 3; ranks++) {
    hec_spill_case c = hec_spill_case_new(&hec_test_arena, "moonep", box, ranks, 2 * ranks);
    int32_t cases = 1;
    for (int32_t e = 0; e < 2 * ranks; e++)
      cases *= 5;
    for (int32_t i = 0; i < cases; i++) {
      for (int32_t e = 0, rest = i; e < 2 * ranks; e++, rest /= 5)
        for (int32_t s = 0; s < ranks; s++)
          hec_load_row(&c.load, 0, s)[e] = (uint32_t)(s == e % ranks ? rest % 5 : 0);
      hec_spill_case_plan(&c);
      check_group(&c, 0);
    }
    hec_spill_case_stop(&c);
    hec_arena_free(&hec_test_arena);
  }
}
END_TEST

static const hec_test_suite suite = {.name = "policy_moonep"};
HEC_TESTS(suite, {small_instance, 1}, {exact_for_every_input, 1}, {exact_exhaustively, 1})
