/* The bound of the largest load against exhaustive search over every placement of small instances. Never above the best there
 * is, equal to it where the header says so. The best of a placement is by the sets of its experts, all 2^E of them. */
#include "tests/plan/load_bound.h"
#include "tests/support/test.h"

#include <string.h>

enum { RANKS_MAX = 3, EXPERTS_MAX = 5, SETS = 1 << EXPERTS_MAX };

HEC_TEST_ARENA(arena)

typedef struct {
  int32_t ranks, experts;
  uint64_t load[EXPERTS_MAX];
  int32_t home[EXPERTS_MAX];
} instance;

static instance random_instance(uint64_t *seed) {
  instance in = {.ranks = 1 + (int32_t)hec_test_below(seed, RANKS_MAX),
                 .experts = 1 + (int32_t)hec_test_below(seed, EXPERTS_MAX)};
  uint64_t kind = hec_test_below(seed, 4);
  for (int32_t e = 0; e < in.experts; e++) {
    in.load[e] = kind == 0   ? hec_test_below(seed, 4)
                 : kind == 1 ? (hec_test_below(seed, 3) ? 0 : hec_test_below(seed, 1000))
                             : hec_test_below(seed, 100);
    in.home[e] = kind == 3 ? e % in.ranks : (int32_t)hec_test_below(seed, (uint64_t)in.ranks);
  }
  return in;
}

/* held[r]: experts that rank r may compute, as bits. The least largest load: max over sets of w(S) / |N(S)|; 1e300 when
 * an expert is nowhere. */
static double best_of(const instance *in, const unsigned held[RANKS_MAX]) {
  double max = 0;
  unsigned anywhere = 0;
  for (int32_t r = 0; r < in->ranks; r++)
    anywhere |= held[r];
  if (anywhere != (1u << in->experts) - 1)
    return 1e300;
  for (unsigned set = 1; set < 1u << in->experts; set++) {
    uint64_t weight = 0;
    int32_t ranks = 0;
    for (int32_t e = 0; e < in->experts; e++)
      weight += set >> e & 1 ? in->load[e] : 0;
    for (int32_t r = 0; r < in->ranks; r++)
      ranks += (held[r] & set) != 0;
    double ratio = (double)weight / ranks;
    max = ratio > max ? ratio : max;
  }
  return max;
}

static int32_t bits(unsigned set) {
  int32_t n = 0;
  for (; set; set &= set - 1)
    n++;
  return n;
}

static unsigned homes_of(const instance *in, int32_t rank) {
  unsigned set = 0;
  for (int32_t e = 0; e < in->experts; e++)
    set |= in->home[e] == rank ? 1u << e : 0;
  return set;
}

/* The best over all placements: rank r holds `fixed[r]` and at most `slots` experts more. */
static double search(const instance *in, const unsigned fixed[RANKS_MAX], int32_t slots) {
  unsigned n_sets = 1u << in->experts, held[RANKS_MAX] = {0};
  unsigned limit[RANKS_MAX] = {n_sets, in->ranks > 1 ? n_sets : 1, in->ranks > 2 ? n_sets : 1}, more[RANKS_MAX];
  double best = 1e300;
  for (more[0] = 0; more[0] < limit[0]; more[0]++)
    for (more[1] = 0; more[1] < limit[1]; more[1]++)
      for (more[2] = 0; more[2] < limit[2]; more[2]++) {
        bool right = true;
        for (int32_t r = 0; r < in->ranks; r++) {
          right = right && bits(more[r]) <= slots && (more[r] & fixed[r]) == 0;
          held[r] = fixed[r] | more[r];
        }
        double load = right ? best_of(in, held) : 1e300;
        best = load < best ? load : best;
      }
  return best;
}

static void compare(const char *name, const instance *in, double bound, double best, bool tight) {
  double slack = 1e-12 * best;
  ck_assert_msg(bound <= best + slack && (!tight || bound >= best - slack),
                "%s: bound %.9g, best %.9g%s; %d ranks, loads %d %d %d %d %d, homes %d %d %d %d %d", name, bound, best,
                tight ? " (tight)" : "", in->ranks, (int)in->load[0], (int)in->load[1], (int)in->load[2],
                (int)in->load[3], (int)in->load[4], in->home[0], in->home[1], in->home[2], in->home[3], in->home[4]);
}

HEC_TEST_LOOP(extra_against_every_placement, 12) {
  uint64_t seed = 300 + (uint64_t)_i;
  for (int round = 0; round < 3; round++) {
    instance in = random_instance(&seed);
    unsigned fixed[RANKS_MAX] = {0};
    for (int32_t r = 0; r < in.ranks; r++)
      fixed[r] = homes_of(&in, r);
    for (int32_t extra = 0; extra <= in.experts; extra++) {
      double bound = hec_load_bound(in.load, in.home, in.experts, in.ranks, extra, &arena);
      compare("extra", &in, bound, search(&in, fixed, extra), extra == 0 || extra >= in.experts || in.ranks <= 2);
    }
  }
}

/* Reference policies.md 0.3: p of the ranks hot with equal experts, the rest empty. B of m slots beyond homes leave
 * (1 + B/m)^2 / (4 B/m) times the mean. */
HEC_TEST(worst_case_of_slots) {
  static const struct {
    int32_t ranks, hot, per_rank, extra;
    double overload;
  } golden[] = {
      {9, 2, 8, 1, 2.53125}, {5, 2, 4, 1, 1.5625}, {3, 2, 2, 1, 1.125}, {7, 6, 4, 3, 49.0 / 48}, {4, 4, 2, 2, 1}};
  for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
    uint64_t load[72] = {0};
    int32_t home[72], experts = golden[i].ranks * golden[i].per_rank;
    for (int32_t e = 0; e < experts; e++) {
      home[e] = e / golden[i].per_rank;
      load[e] = home[e] < golden[i].hot ? 840 : 0;
    }
    double bound = hec_load_bound(load, home, experts, golden[i].ranks, golden[i].extra, &arena);
    ck_assert_double_eq_tol(bound / hec_load_mean(load, experts, golden[i].ranks), golden[i].overload, 1e-9);
  }
}
