/* As test_spill_oracles.c, for the two that do not fill ranks one by one: ECHO's intervals, UltraEP's search. */
#include "tests/plan/spill_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static const char box[] = "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

/* ---- ECHO ---- */

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

static void echo_plan(hec_spill_oracle *o, int32_t slots) {
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

HEC_TEST(echo_overlaps_of_intervals) {
  uint64_t seed = 23;
  int dropped = 0;
  for (int round = 0; round < 800; round++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_random(&arena, "echo", 1000, &seed);
    int32_t slots = c.spill->options.slots = (int32_t)hec_test_below(&seed, 3);
    hec_spill_case_plan(&c);
    hec_spill_oracle o = hec_spill_oracle_new(&c, 0, c.problem->n_ranks);
    echo_plan(&o, slots);
    hec_spill_oracle_compare(&o, &c, 0);
    for (int32_t r = 0; r < o.n; r++) {
      ck_assert_int_le(hec_spill_case_guests(&c, r), slots);
      dropped += slots > 0 && (int64_t)c.rank[r] < o.all / o.n;
    }
  }
  ck_assert_int_gt(dropped, 50);
}

/* With room for every clone nobody is below the mean any more, and nobody who was not above it stands above it. */
HEC_TEST(echo_fills_spare_ranks) {
  uint64_t seed = 29;
  for (int round = 0; round < 500; round++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_random(&arena, "echo", 1000, &seed);
    c.problem->slots = 2 * c.problem->n_experts;
    hec_policy_stop(&c.run);
    c.run = hec_policy_start(hec_policy_find("echo"), c.problem, &arena);
    c.spill = c.run.state;
    hec_spill_case_plan(&c);
    hec_spill_oracle o = hec_spill_oracle_new(&c, 0, c.problem->n_ranks);
    for (int32_t r = 0; r < o.n; r++) {
      int64_t now = (int64_t)c.rank[r], mean = o.all / o.n;
      ck_assert(now == mean || (now > mean && now < mean + o.n && o.load[r] > mean));
    }
  }
}

/* ---- UltraEP ---- */

static int32_t largest(const int64_t *value, int32_t n, const bool *done) {
  int32_t best = -1;
  for (int32_t i = 0; i < n; i++)
    if (!done[i] && (best < 0 || value[i] > value[best]))
      best = i;
  return best;
}

typedef struct {
  int64_t target, min; /* least 0: follows the need */
  int64_t slack[HEC_SPILL_RANKS];
  int32_t slots, used[HEC_SPILL_RANKS];
} greedy;

static bool hosts(const hec_spill_oracle *o, const greedy *g, int32_t e, int32_t r) {
  return g->slack[r] > 0 && g->used[r] < g->slots && r != o->home[e] && o->moved[e][r] == 0;
}

static int64_t give(hec_spill_oracle *o, greedy *g, int32_t e, int64_t need) {
  int64_t available = o->total[e] - 1;
  while (need > 0 && available > 0) {
    int32_t t = -1, n = 0;
    for (int32_t r = 0; r < o->n; r++)
      if (hosts(o, g, e, r)) {
        n++;
        t = t < 0 || g->slack[r] > g->slack[t] ? r : t;
      }
    if (t < 0)
      break;
    int64_t q = need < g->slack[t] ? need : g->slack[t];
    q = available < q ? available : q;
    if (q < (g->min > 0 ? g->min : (need + n - 1) / n))
      break;
    o->moved[e][t] = q;
    g->slack[t] -= q;
    g->used[t]++;
    need -= q;
    available -= q;
  }
  return need;
}

static bool fits(hec_spill_oracle *o, int64_t target, int64_t min, int32_t slots) {
  greedy g = {.target = target, .min = min, .slots = slots};
  bool seen[HEC_SPILL_RANKS] = {false};
  memset(o->moved, 0, sizeof o->moved);
  for (int32_t r = 0; r < o->n; r++)
    g.slack[r] = target > o->load[r] ? target - o->load[r] : 0;
  for (int32_t k = 0; k < o->n; k++) {
    int32_t s = largest(o->load, o->n, seen);
    bool done[HEC_SPILL_EXPERTS];
    for (int32_t e = 0; e < o->n_experts; e++)
      done[e] = o->home[e] != s;
    seen[s] = true;
    int64_t need = o->load[s] - target;
    for (int32_t e = largest(o->total, o->n_experts, done); need > 0 && e >= 0;
         e = largest(o->total, o->n_experts, done)) {
      done[e] = true;
      need = give(o, &g, e, need);
    }
    if (need > 0)
      return false;
  }
  return true;
}

static int64_t max_of(const hec_spill_oracle *o) {
  int64_t max = 0;
  for (int32_t r = 0; r < o->n; r++)
    max = o->load[r] > max ? o->load[r] : max;
  return max;
}

/* Leaves the moves of the smallest target that fits, trying all; counts targets above it that do not fit. */
static int64_t search_plainly(hec_spill_oracle *o, const hec_spill_options *options, int *gaps) {
  int64_t target = (o->all + o->n - 1) / o->n, max = max_of(o);
  int64_t min = options->min > 1 ? (int64_t)options->min : 1;
  while (!fits(o, target, min, options->slots))
    target++;
  for (int64_t above = target + 1; above < max; above++)
    *gaps += !fits(o, above, min, options->slots);
  (void)fits(o, target, min, options->slots);
  return target;
}

static void ultraep_plan(hec_spill_oracle *o, const hec_spill_options *options) {
  int64_t mean = (o->all + o->n - 1) / o->n, max = max_of(o), target = mean * 101 / 100 + (mean * 101 % 100 > 0);
  for (int32_t try = 0; try < options->tries && target < max; try++) {
    if (fits(o, target, 0, options->slots))
      return;
    target += max < 200 ? 1 : max / 100;
  }
  int gaps = 0;
  (void)search_plainly(o, options, &gaps);
}

static int32_t domain_end(const hec_spill_case *c, int32_t first) {
  int32_t ranks = c->problem->n_ranks, per_node = c->problem->cluster->devices_per_node, end = first + 1;
  while (end < ranks && end % per_node != 0)
    end++;
  return end;
}

/* Small instances without the fast tries: the moves are those of the smallest target, and no rank is above it. */
HEC_TEST(ultraep_target_is_the_smallest) {
  uint64_t seed = 41;
  int raised = 0, gaps = 0, moved = 0;
  for (int round = 0; round < 2500; round++) {
    HEC_SCOPED(hec_spill_case) c =
        hec_spill_case_new(&arena, "ultraep", box, 2 + round % 3, 2 + (int32_t)hec_test_below(&seed, 9));
    hec_spill_case_fill(&c, 1 + hec_test_below(&seed, round % 2 ? 12 : 200), &seed);
    c.spill->options.tries = 0;
    c.spill->options.min = hec_test_below(&seed, 3) ? hec_test_below(&seed, 30) : 1;
    c.spill->options.slots = (int32_t)hec_test_below(&seed, 3);
    hec_spill_case_plan(&c);
    for (int32_t first = 0; first < c.problem->n_ranks; first = domain_end(&c, first)) {
      hec_spill_oracle o = hec_spill_oracle_new(&c, first, domain_end(&c, first) - first);
      int64_t target = search_plainly(&o, &c.spill->options, &gaps);
      hec_spill_oracle_compare(&o, &c, first);
      for (int32_t r = 0; r < o.n; r++)
        ck_assert((int64_t)c.rank[first + r] <= target);
      raised += target > (o.all + o.n - 1) / o.n && target < max_of(&o);
    }
    moved += c.spill->n_moves > 0;
  }
  printf("targets above the mean %d, larger targets that do not fit %d\n", raised, gaps);
  ck_assert(raised > 100 && gaps > 1000 && moved > 800);
}

/* As published, on domains of any shape: nothing leaves a node, no rank has more guests than slots. */
HEC_TEST(ultraep_follows_the_published_search) {
  uint64_t seed = 43;
  int moved = 0;
  for (int round = 0; round < 1000; round++) {
    HEC_SCOPED(hec_spill_case) c = hec_spill_case_random(&arena, "ultraep", 1000, &seed);
    hec_spill_case_plan(&c);
    for (int32_t first = 0; first < c.problem->n_ranks; first = domain_end(&c, first)) {
      hec_spill_oracle o = hec_spill_oracle_new(&c, first, domain_end(&c, first) - first);
      uint64_t computed = 0;
      ultraep_plan(&o, &c.spill->options);
      hec_spill_oracle_compare(&o, &c, first);
      for (int32_t r = 0; r < o.n; r++) {
        computed += c.rank[first + r];
        ck_assert_int_le(hec_spill_case_guests(&c, first + r), 2);
      }
      ck_assert_int_eq((int64_t)computed, o.all);
    }
    moved += c.spill->n_moves > 0;
  }
  ck_assert_int_gt(moved, 400);
}
