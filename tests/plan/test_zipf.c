/* What is left of skewed loads, busiest rank over mean: planners that see the load, and planners that saw another.
 *
 * Zipf cases: 8, 16, 32 ranks on one node, 2, 4 or 8 experts a rank, popularity k^-a for a = 0.3, 0.6, 0.9, 1.2, experts
 * shuffled by 5 seeds, 4096 tokens of top-8 a rank: 180 cases. Recorded: every tenth record of SmartMoE's trace, 24 layers
 * each, two experts a rank, scaled up by 8.
 *
 * Written down is how many cases end at most at 1.06, and the worst: what each planner leaves, not what it ought to. A
 * planner that changes for better or worse shows here. Only MoonEP (exact by construction), HarMoEny (spare ranks are
 * filled until 150 tokens are not worth it) and LLEP above its threshold of 1.3 have no limit of slots and get there
 * always; with one guest slot a rank the greedy planners do for flat popularity only. The lower bound for given homes and
 * that many guests (bound.h, `extra`) is at most 1.06 in all cases: it does not excuse them. */
#include "runtime/plan/bound/bound.h"
#include "runtime/plan/policy.h"
#include "tests/support/check_main.h"
#include "tests/support/problem_case.h"
#include "traces/trace.h"

#include <math.h>
#include <string.h>

enum { EXPERTS_MAX = 256, TOKENS = 4096, TOP_K = 8, SEEDS = 5 };
#define LEFT 1.06

static hec_arena arena;
static void teardown(void) {
  hec_arena_free(&arena);
}

static void shuffle(int32_t *place, int32_t n, uint64_t *seed) {
  for (int32_t e = 0; e < n; e++)
    place[e] = e;
  for (int32_t e = n - 1; e > 0; e--) {
    int32_t other = (int32_t)hec_test_below(seed, (uint64_t)e + 1), was = place[e];
    place[e] = place[other];
    place[other] = was;
  }
}

/* The expert at place k has k^-a of the ranks' tokens. */
static void zipf(const int32_t *place, int32_t n_experts, int32_t n_ranks, double exponent, uint32_t *totals) {
  double sum = 0;
  for (int32_t e = 0; e < n_experts; e++)
    sum += pow(e + 1, -exponent);
  for (int32_t e = 0; e < n_experts; e++)
    totals[e] = (uint32_t)(pow(place[e] + 1, -exponent) / sum * TOKENS * TOP_K * n_ranks + 0.5);
}

static hec_problem *problem_of(int32_t n_ranks, int32_t n_experts, int32_t slots) {
  char line[80];
  (void)snprintf(line, sizeof line, "1x%d nvlink=300G@2us flops=312T mem=80G", n_ranks);
  hec_problem *p = hec_test_problem(&arena, line, n_ranks, 1, n_experts, TOP_K, true);
  p->tokens = TOKENS;
  p->slots = slots;
  return p;
}

/* Busiest over mean under a policy that has seen `before` (NULL: nothing), then gets `totals`. */
static double left_by(const char *name, int32_t n_ranks, int32_t n_experts, int32_t slots, const uint32_t *before,
                      const uint32_t *totals) {
  hec_problem *p = problem_of(n_ranks, n_experts, slots);
  const hec_policy *policy = hec_policy_find(name);
  ck_assert_ptr_nonnull(policy);
  hec_policy_run run = hec_policy_start(policy, p, &arena);
  hec_load load = hec_test_even_load(&arena, p, totals);
  if (before) {
    hec_load seen = hec_test_even_load(&arena, p, before);
    hec_policy_decide(&run, 1, 0);
    hec_policy_refine(&run, 0, &seen);
    hec_policy_observe(&run, &seen);
  }
  hec_policy_decide(&run, 2, 0);
  hec_policy_refine(&run, 0, &load);
  hec_routing routing = hec_routing_new(&arena, p);
  hec_routing_make(&routing, policy->dispatch, p, &run.plan, &load, 0);
  double left = hec_routing_overload(&routing);
  hec_policy_stop(&run);
  return left;
}

/* ---- planners that see the load ---- */

typedef struct {
  int32_t within;
  double worst;
} outcome;

static const struct {
  const char *name;
  int32_t guests; /* slots beside the homes; 0: the planner has no such limit, or its own */
  outcome zipf, recorded;
} exact[] = {
    {"ultraep", 1, {112, 1.1202}, {28, 1.3037}}, {"taot", 1, {110, 1.2780}, {43, 1.5161}},
    {"echo", 1, {43, 1.5406}, {11, 1.8960}},     {"ultraep", 2, {173, 1.0994}, {114, 1.1201}},
    {"taot", 2, {175, 1.0983}, {117, 1.1670}},   {"echo", 2, {178, 1.1158}, {128, 1.2126}},
    {"llep", 0, {167, 1.2857}, {131, 1.2947}},   {"harmoeny", 0, {180, 1.0110}, {144, 1.0071}},
    {"moonep", 0, {180, 1.0000}, {144, 1.0000}},
};
enum { N_EXACT = sizeof exact / sizeof *exact, ZIPF_CASES = 180, RECORDED_CASES = 144 };

enum { GUESTS_MOST = 2 };

typedef struct {
  int32_t n, within[N_EXACT];
  double worst[N_EXACT];
  int32_t reachable[GUESTS_MOST + 1]; /* cases in which the bound is at most 1.06, by guest slots */
} tally;

/* What no choice of guests can go below, over the mean. */
static double least(int32_t n_ranks, int32_t n, int32_t guests, const uint32_t *totals) {
  uint64_t load[EXPERTS_MAX];
  int32_t home[EXPERTS_MAX];
  for (int32_t e = 0; e < n; e++) {
    load[e] = totals[e];
    home[e] = e / (n / n_ranks);
  }
  return hec_bound_extra(load, home, n, n_ranks, guests, &arena) / hec_bound_mean(load, n, n_ranks);
}

static void count(tally *t, int32_t n_ranks, int32_t n, const uint32_t *totals) {
  t->n++;
  for (int32_t guests = 1; guests <= GUESTS_MOST; guests++)
    t->reachable[guests] += least(n_ranks, n, guests, totals) <= LEFT;
  for (int32_t i = 0; i < N_EXACT; i++) {
    double left = left_by(exact[i].name, n_ranks, n, exact[i].guests > 0 ? n / n_ranks + exact[i].guests : HEC_AUTO,
                          NULL, totals);
    if (strcmp(exact[i].name, "llep") == 0 && left > LEFT)
      ck_assert_double_eq(left, left_by("ep", n_ranks, n, HEC_AUTO, NULL, totals)); /* below its threshold: no plan */
    t->within[i] += left <= LEFT;
    t->worst[i] = left > t->worst[i] ? left : t->worst[i];
  }
  hec_arena_free(&arena);
}

static void check(const tally *t, int32_t n, bool recorded) {
  ck_assert_int_eq(t->n, n);
  for (int32_t guests = 1; guests <= GUESTS_MOST; guests++)
    ck_assert_int_eq(t->reachable[guests], n);
  for (int32_t i = 0; i < N_EXACT; i++) {
    outcome expected = recorded ? exact[i].recorded : exact[i].zipf;
    ck_assert_msg(t->within[i] == expected.within && fabs(t->worst[i] - expected.worst) < 1e-4,
                  "%s, %d guests: %d of %d at most 1.06, worst %.4f; expected %d and %.4f", exact[i].name,
                  exact[i].guests, t->within[i], n, t->worst[i], expected.within, expected.worst);
  }
}

START_TEST(exact_planners) {
  tally t = {0};
  for (int32_t n_ranks = 8; n_ranks <= 32; n_ranks *= 2)
    for (int32_t per_rank = 2; per_rank <= 8; per_rank *= 2)
      for (int32_t a = 3; a <= 12; a += 3)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
          int32_t n = n_ranks * per_rank, place[EXPERTS_MAX];
          uint32_t totals[EXPERTS_MAX];
          uint64_t state = seed;
          shuffle(place, n, &state);
          zipf(place, n, n_ranks, a / 10.0, totals);
          count(&t, n_ranks, n, totals);
        }
  check(&t, ZIPF_CASES, false);
}
END_TEST

START_TEST(exact_planners_on_recorded_loads) {
  const char *path = hec_test_wants("plan.zipf recorded", "traces/smartmoe_gpt_e32_r16.jsonl",
                                    "exact planners on recorded loads (those on drawn loads are)");
  if (!path)
    return;
  hec_trace_reader *reader;
  ck_assert_int_eq(hec_trace_open(path, &reader), HEC_OK);
  tally t = {0};
  for (int32_t i = 0; i < 60; i++) {
    const hec_trace_record *record;
    ck_assert_int_eq(hec_trace_next(reader, &record), HEC_OK);
    if (!record)
      break;
    if (i % 10 != 0)
      continue;
    for (int32_t l = 0; l < record->load.n_layers; l++) {
      uint32_t totals[32] = {0};
      for (int32_t s = 0; s < record->load.n_sources; s++)
        for (int32_t e = 0; e < 32; e++)
          totals[e] += 8 * hec_load_row(&record->load, l, s)[e];
      count(&t, 16, 32, totals);
    }
  }
  hec_trace_close(reader);
  check(&t, RECORDED_CASES, true);
}
END_TEST

/* ---- planners that saw another load ---- */

/* Pairs of experts change places. */
static void drift(int32_t *place, int32_t n, int32_t pairs, uint64_t *seed) {
  for (int32_t i = 0; i < pairs; i++) {
    int32_t a = (int32_t)hec_test_below(seed, (uint64_t)n), b = (int32_t)hec_test_below(seed, (uint64_t)n);
    int32_t was = place[a];
    place[a] = place[b];
    place[b] = was;
  }
}

/* 16 ranks, 64 experts, 8 pairs change places: means over the seeds when the load that was seen is the one that comes,
 * and when it is not; exponents 0.6 and 1.2. */
START_TEST(stale_planners) {
  static const struct {
    const char *name;
    double known[2], stale[2];
  } row[] = {{"symi", {1.052, 1.062}, {1.678, 3.368}},
             {"laer", {1.002, 1.003}, {1.637, 3.287}},
             {"prophet", {1.231, 1.444}, {1.705, 3.134}},
             {"eplb-global", {1.006, 1.027}, {1.666, 3.287}}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    for (int32_t k = 0; k < 2; k++) {
      double known = 0, stale = 0;
      for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        int32_t place[EXPERTS_MAX];
        uint32_t before[EXPERTS_MAX], now[EXPERTS_MAX];
        uint64_t state = seed;
        shuffle(place, 64, &state);
        zipf(place, 64, 16, 0.6 * (k + 1), before);
        drift(place, 64, 8, &state);
        zipf(place, 64, 16, 0.6 * (k + 1), now);
        known += left_by(row[i].name, 16, 64, HEC_AUTO, now, now) / SEEDS;
        stale += left_by(row[i].name, 16, 64, HEC_AUTO, before, now) / SEEDS;
        hec_arena_free(&arena);
      }
      ck_assert_msg(fabs(known - row[i].known[k]) < 1e-3 && fabs(stale - row[i].stale[k]) < 1e-3,
                    "%s: known %.4f, stale %.4f; expected %.3f and %.3f", row[i].name, known, stale, row[i].known[k],
                    row[i].stale[k]);
    }
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("plan.zipf");
  TCase *c = tcase_create("zipf");
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_set_timeout(c, 60);
  tcase_add_test(c, exact_planners);
  tcase_add_test(c, exact_planners_on_recorded_loads);
  tcase_add_test(c, stale_planners);
  suite_add_tcase(suite, c);
  return suite;
}

HEC_TEST_MAIN(make_suite)
