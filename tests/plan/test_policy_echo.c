/* ECHO: the assignment by intersecting intervals, then the largest clones of each rank. */
#include "tests/plan/spill_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/suite.h"

static const char box[] = "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

START_TEST(small_instance) {
  hec_spill_case c = hec_spill_case_new(&hec_test_arena, "echo", box, 4, 8);
  ck_assert_int_eq(c.spill->options.slots, 2);
  c.spill->options.slots = 1;
  hec_spill_case_small(&c, 1);
  hec_spill_case_stop(&c);
}
END_TEST

/* Position of i in descending order, ties to the lower index. */
static int32_t position(const int64_t *value, int32_t n, int32_t i) {
  int32_t p = 0;
  for (int32_t j = 0; j < n; j++)
    p += value[j] > value[i] || (value[j] == value[i] && j < i);
  return p;
}

/* Where i's interval begins when all lie on a line in that order. */
static int64_t begin_of(const int64_t *value, int32_t n, int32_t i) {
  int64_t begin = 0;
  for (int32_t j = 0; j < n; j++)
    begin += position(value, n, j) < position(value, n, i) ? value[j] : 0;
  return begin;
}

/* Spill of e: what its rank has beyond avg, less what the larger experts there hold. */
static int64_t spill_of(const hec_spill_oracle *o, int32_t e, int64_t avg) {
  int64_t larger = 0, over = o->load[o->home[e]] - avg;
  for (int32_t i = 0; i < o->n_experts; i++)
    if (o->home[i] == o->home[e] && (o->total[i] > o->total[e] || (o->total[i] == o->total[e] && i < e)))
      larger += o->total[i];
  int64_t spill = over - larger;
  return spill < 0 ? 0 : spill < o->total[e] ? spill : o->total[e];
}

static void plan_plainly(hec_spill_oracle *o, int32_t slots) {
  int64_t spill[HEC_SPILL_EXPERTS], spare[HEC_SPILL_RANKS], avg = o->all / o->n;
  for (int32_t e = 0; e < o->n_experts; e++)
    spill[e] = spill_of(o, e, avg);
  for (int32_t r = 0; r < o->n; r++)
    spare[r] = avg > o->load[r] ? avg - o->load[r] : 0;
  for (int32_t r = 0; r < o->n; r++) {
    int64_t overlap[HEC_SPILL_EXPERTS];
    int32_t kept = 0;
    for (int32_t e = 0; e < o->n_experts; e++) {
      int64_t a = begin_of(spill, o->n_experts, e), b = begin_of(spare, o->n, r);
      int64_t begin = a > b ? a : b, end = a + spill[e] < b + spare[r] ? a + spill[e] : b + spare[r];
      overlap[e] = end > begin ? end - begin : 0;
    }
    for (; kept < slots; kept++) { /* ties: first on the line */
      int32_t best = -1;
      for (int32_t e = 0; e < o->n_experts; e++)
        if (overlap[e] > 0 &&
            (best < 0 || overlap[e] > overlap[best] ||
             (overlap[e] == overlap[best] && position(spill, o->n_experts, e) < position(spill, o->n_experts, best))))
          best = e;
      if (best < 0)
        break;
      o->moved[best][r] = overlap[best];
      overlap[best] = 0;
    }
  }
}

START_TEST(overlaps_of_intervals) {
  uint64_t seed = 23;
  int dropped = 0;
  for (int round = 0; round < 800; round++) {
    hec_spill_case c = hec_spill_case_random(&hec_test_arena, "echo", &seed);
    hec_spill_case_fill(&c, 1 + hec_test_below(&seed, 1000), &seed);
    int32_t slots = (int32_t)hec_test_below(&seed, 3), ep = c.problem->ep;
    c.spill->options.slots = slots;
    hec_spill_case_plan(&c);
    for (int32_t g = 0; g < c.problem->dp; g++) {
      hec_spill_oracle o = hec_spill_oracle_new(&c, g * ep, ep);
      plan_plainly(&o, slots);
      hec_spill_oracle_compare(&o, &c, g * ep);
      for (int32_t r = 0; r < ep; r++) {
        ck_assert_int_le(hec_spill_case_guests(&c, g * ep + r), slots);
        dropped += slots > 0 && (int64_t)c.rank[g * ep + r] < o.all / ep;
      }
    }
    hec_spill_case_stop(&c);
    hec_arena_free(&hec_test_arena);
  }
  ck_assert_int_gt(dropped, 50);
}
END_TEST

/* With room for every clone nobody is below the mean any more, and nobody who was not above it stands above it. */
START_TEST(spare_ranks_are_filled) {
  uint64_t seed = 29;
  for (int round = 0; round < 500; round++) {
    hec_spill_case c = hec_spill_case_random(&hec_test_arena, "echo", &seed);
    c.problem->slots = 2 * c.problem->n_experts;
    hec_policy_stop(&c.run);
    c.run = hec_policy_start(hec_policy_find("echo"), c.problem, &hec_test_arena);
    c.spill = c.run.state;
    hec_spill_case_fill(&c, 1 + hec_test_below(&seed, 1000), &seed);
    hec_spill_case_plan(&c);
    for (int32_t r = 0; r < c.problem->n_ranks; r++) {
      int32_t ep = c.problem->ep, first = r / ep * ep;
      hec_spill_oracle o = hec_spill_oracle_new(&c, first, ep);
      int64_t now = (int64_t)c.rank[r], mean = o.all / ep;
      ck_assert(now == mean || (now > mean && now < mean + ep && o.load[r - first] > mean));
    }
    hec_spill_case_stop(&c);
    hec_arena_free(&hec_test_arena);
  }
}
END_TEST

static const hec_test_suite suite = {.name = "policy_echo"};
HEC_TESTS(suite, {small_instance, 1}, {overlaps_of_intervals, 1}, {spare_ranks_are_filled, 1})
