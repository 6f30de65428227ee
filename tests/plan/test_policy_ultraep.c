/* UltraEP: the greedy test of a target written out plainly, and the target against all smaller ones. */
#include "tests/plan/spill_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/suite.h"

#include <string.h>

static const char box[] = "1x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

START_TEST(small_instance) {
  hec_spill_case c = hec_spill_case_new(&hec_test_arena, "ultraep", box, 4, 8);
  const hec_spill_options *o = &c.spill->options;
  ck_assert(o->slots == 2 && o->least == 1024 && o->threshold == 1 && o->capacity == 1.01 && o->tries == 3 &&
            o->within_node);
  c.spill->options.slots = 1;
  c.spill->options.least = 1;
  c.spill->options.tries = 0;
  hec_spill_case_small(&c, 1);
  const hec_spill_move *moves = c.spill->moves;
  ck_assert(moves[0].rank == 3 && moves[0].tokens == 160 && moves[1].rank == 1 && moves[1].tokens == 100);
  ck_assert(moves[2].rank == 2 && moves[2].tokens == 40 && moves[2].expert == 0);
  hec_spill_case_stop(&c);
}
END_TEST

static int32_t largest(const int64_t *value, int32_t n, const bool *done) {
  int32_t best = -1;
  for (int32_t i = 0; i < n; i++)
    if (!done[i] && (best < 0 || value[i] > value[best]))
      best = i;
  return best;
}

typedef struct {
  int64_t target, least; /* least 0: follows the need */
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
    if (q < (g->least > 0 ? g->least : (need + n - 1) / n))
      break;
    o->moved[e][t] = q;
    g->slack[t] -= q;
    g->used[t]++;
    need -= q;
    available -= q;
  }
  return need;
}

static bool fits(hec_spill_oracle *o, int64_t target, int64_t least, int32_t slots) {
  greedy g = {.target = target, .least = least, .slots = slots};
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

static int64_t most_of(const hec_spill_oracle *o) {
  int64_t most = 0;
  for (int32_t r = 0; r < o->n; r++)
    most = o->load[r] > most ? o->load[r] : most;
  return most;
}

/* Leaves the moves of the smallest target that fits, trying all; counts targets above it that do not fit. */
static int64_t search_plainly(hec_spill_oracle *o, const hec_spill_options *options, int *gaps) {
  int64_t target = (o->all + o->n - 1) / o->n, most = most_of(o);
  int64_t least = options->least > 1 ? (int64_t)options->least : 1;
  while (!fits(o, target, least, options->slots))
    target++;
  for (int64_t above = target + 1; above < most; above++)
    *gaps += !fits(o, above, least, options->slots);
  (void)fits(o, target, least, options->slots);
  return target;
}

static void plan_plainly(hec_spill_oracle *o, const hec_spill_options *options) {
  int64_t mean = (o->all + o->n - 1) / o->n, most = most_of(o), target = mean * 101 / 100 + (mean * 101 % 100 > 0);
  for (int32_t try = 0; try < options->tries && target < most; try++) {
    if (fits(o, target, 0, options->slots))
      return;
    target += most < 200 ? 1 : most / 100;
  }
  int gaps = 0;
  (void)search_plainly(o, options, &gaps);
}

static int32_t domain_end(const hec_spill_case *c, int32_t first) {
  int32_t ep = c->problem->ep, per_node = c->problem->cluster->devices_per_node, end = first + 1;
  while (end % ep != 0 && end % per_node != 0)
    end++;
  return end;
}

/* Small instances without the fast tries: the moves are those of the smallest target, and no rank is above it. */
START_TEST(target_is_the_smallest) {
  uint64_t seed = 41;
  int raised = 0, gaps = 0, moved = 0;
  for (int round = 0; round < 2500; round++) {
    hec_spill_case c =
        hec_spill_case_new(&hec_test_arena, "ultraep", box, 2 + round % 3, 2 + (int32_t)hec_test_below(&seed, 9));
    hec_spill_case_fill(&c, 1 + hec_test_below(&seed, round % 2 ? 12 : 200), &seed);
    c.spill->options.tries = 0;
    c.spill->options.least = hec_test_below(&seed, 3) ? hec_test_below(&seed, 30) : 1;
    c.spill->options.slots = (int32_t)hec_test_below(&seed, 3);
    hec_spill_case_plan(&c);
    for (int32_t first = 0; first < c.problem->n_ranks; first = domain_end(&c, first)) {
      hec_spill_oracle o = hec_spill_oracle_new(&c, first, domain_end(&c, first) - first);
      int64_t target = search_plainly(&o, &c.spill->options, &gaps);
      hec_spill_oracle_compare(&o, &c, first);
      for (int32_t r = 0; r < o.n; r++)
        ck_assert((int64_t)c.rank[first + r] <= target);
      raised += target > (o.all + o.n - 1) / o.n && target < most_of(&o);
    }
    moved += c.spill->n_moves > 0;
    hec_spill_case_stop(&c);
    hec_arena_free(&hec_test_arena);
  }
  printf("targets above the mean %d, larger targets that do not fit %d\n", raised, gaps);
  ck_assert(raised > 100 && gaps > 1000 && moved > 800);
}
END_TEST

/* As published, on domains of any shape: nothing leaves a node, no rank has more guests than slots. */
START_TEST(follows_the_published_search) {
  uint64_t seed = 43;
  int moved = 0;
  for (int round = 0; round < 1000; round++) {
    hec_spill_case c = hec_spill_case_random(&hec_test_arena, "ultraep", &seed);
    hec_spill_case_fill(&c, 1 + hec_test_below(&seed, 1000), &seed);
    hec_spill_case_plan(&c);
    for (int32_t first = 0; first < c.problem->n_ranks; first = domain_end(&c, first)) {
      hec_spill_oracle o = hec_spill_oracle_new(&c, first, domain_end(&c, first) - first);
      uint64_t computed = 0;
      plan_plainly(&o, &c.spill->options);
      hec_spill_oracle_compare(&o, &c, first);
      for (int32_t r = 0; r < o.n; r++) {
        computed += c.rank[first + r];
        ck_assert_int_le(hec_spill_case_guests(&c, first + r), 2);
      }
      ck_assert_int_eq((int64_t)computed, o.all);
    }
    moved += c.spill->n_moves > 0;
    hec_spill_case_stop(&c);
    hec_arena_free(&hec_test_arena);
  }
  ck_assert_int_gt(moved, 400);
}
END_TEST

static const hec_test_suite suite = {.name = "policy_ultraep"};
HEC_TESTS(suite, {small_instance, 1}, {target_is_the_smallest, 1}, {follows_the_published_search, 1})
