/* The fluid solver: hand-computed sharing, the max-min certificate, conservation of work, and equality with a plain
 * reference solver over random networks. */
#include "runtime/base/arena.h"
#include "sim/fluid.h"
#include "tests/support/reference_fluid.h"
#include "tests/support/test.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#define LINKS_MAX 128
#define FLOWS_MAX 700
#define HOPS_MAX 6

typedef struct {
  int32_t n_links, n_flows;
  double capacity[LINKS_MAX];
  hec_fluid_flow flow[FLOWS_MAX]; /* tag = index */
  double start[FLOWS_MAX];
  int32_t route[FLOWS_MAX][HOPS_MAX];
  double finish[FLOWS_MAX]; /* of the last run */
} problem;

static void add_flow(problem *p, double start, double amount, double cap, int32_t n_links, const int32_t *links) {
  int32_t f = p->n_flows++;
  ck_assert_int_lt(f, FLOWS_MAX);
  for (int32_t i = 0; i < n_links; i++)
    p->route[f][i] = links[i];
  p->start[f] = start;
  p->flow[f] = (hec_fluid_flow){.links = p->route[f], .n_links = n_links, .amount = amount, .cap = cap, .tag = f};
}

/* ---- what must hold at every instant ---- */

/* Nobody above capacity; every flow at its cap or crossing a full link on which nobody is faster. */
static void check_certificate(const problem *p, hec_fluid *fluid, const int32_t *slot) {
  double used[LINKS_MAX] = {0}, fastest[LINKS_MAX] = {0};
  for (int32_t f = 0; f < p->n_flows; f++)
    for (int32_t i = 0; slot[f] >= 0 && p->flow[f].amount > 0 && i < p->flow[f].n_links; i++) {
      int32_t l = p->flow[f].links[i];
      double rate = hec_fluid_rate(fluid, slot[f]);
      used[l] += rate;
      fastest[l] = rate > fastest[l] ? rate : fastest[l];
    }
  for (int32_t l = 0; l < p->n_links; l++)
    ck_assert_double_le(used[l], p->capacity[l] * (1 + 1e-12));
  for (int32_t f = 0; f < p->n_flows; f++) {
    if (slot[f] < 0 || p->flow[f].amount == 0 || (p->flow[f].n_links == 0 && p->flow[f].cap == INFINITY))
      continue;
    double rate = hec_fluid_rate(fluid, slot[f]);
    ck_assert_double_gt(rate, 0);
    ck_assert_double_le(rate, p->flow[f].cap);
    bool held = rate == p->flow[f].cap;
    for (int32_t i = 0; i < p->flow[f].n_links; i++) {
      int32_t l = p->flow[f].links[i];
      held |= used[l] >= p->capacity[l] * (1 - 1e-12) && rate >= fastest[l] * (1 - 1e-12);
    }
    ck_assert_msg(held, "flow %d has no bottleneck", f);
  }
}

/* What a rounding of the clock, or ending with the others of an instant, may move. */
static double slack(const problem *p, int32_t f, double fastest, double now) {
  return 1e-11 * p->flow[f].amount + 2e-14 * now * fastest;
}

/* Runs the flows, added in `order`; with `check`, the certificate and the conservation of work at every event. */
static void run(problem *p, const int32_t *order, bool check) {
  HEC_OPENED(hec_fluid) *fluid = hec_fluid_new(p->n_links, p->capacity);
  static int32_t slot[FLOWS_MAX];
  static double moved[FLOWS_MAX], fastest[FLOWS_MAX];
  memset(moved, 0, sizeof moved);
  memset(fastest, 0, sizeof fastest);
  for (int32_t f = 0; f < p->n_flows; f++)
    slot[f] = -1;
  int32_t waiting = p->n_flows;
  static bool added[FLOWS_MAX];
  memset(added, 0, sizeof added);
  while (waiting > 0 || hec_fluid_count(fluid) > 0) {
    double next = hec_fluid_next(fluid), start = INFINITY, before = hec_fluid_now(fluid);
    for (int32_t f = 0; f < p->n_flows; f++)
      start = !added[f] && p->start[f] < start ? p->start[f] : start;
    double time = start < next ? start : next;
    if (check) {
      check_certificate(p, fluid, slot);
      for (int32_t f = 0; f < p->n_flows; f++)
        if (slot[f] >= 0 && p->flow[f].amount > 0) {
          double rate = hec_fluid_rate(fluid, slot[f]);
          moved[f] += rate * (time - before);
          fastest[f] = rate > fastest[f] ? rate : fastest[f];
        }
    }
    hec_fluid_advance(fluid, time);
    for (int32_t f = 0; check && f < p->n_flows; f++)
      if (slot[f] >= 0) {
        ck_assert_double_ge(hec_fluid_left(fluid, slot[f]), 0);
        ck_assert_double_le(fabs(hec_fluid_left(fluid, slot[f]) + moved[f] - p->flow[f].amount),
                            slack(p, f, fastest[f], time));
      }
    int32_t n;
    const hec_fluid_done *done = hec_fluid_pop(fluid, &n);
    ck_assert(n > 0 || start <= next);
    for (int32_t i = 0; i < n; i++) {
      int32_t f = (int32_t)done[i].tag;
      p->finish[f] = done[i].finish;
      ck_assert(done[i].start == p->start[f]);
      ck_assert_double_ge(done[i].finish, done[i].start);
      if (check && (p->flow[f].n_links > 0 || p->flow[f].cap < INFINITY))
        ck_assert_double_le(fabs(moved[f] - p->flow[f].amount), slack(p, f, fastest[f], time));
      slot[f] = -1;
    }
    for (int32_t i = 0; start == time && i < p->n_flows; i++) {
      int32_t f = order ? order[i] : i;
      if (added[f] || p->start[f] != time)
        continue;
      slot[f] = hec_fluid_add(fluid, &p->flow[f]);
      added[f] = true;
      waiting--;
    }
  }
  hec_fluid_rebase(fluid);
}

/* ---- by hand ---- */

static problem hand;

/* One link of 10, flows of 10, 20, 30 from 0: thirds until 3, halves until 5, alone until 6. */
HEC_TEST(one_link_in_turn) {
  hand = (problem){.n_links = 1, .capacity = {10}};
  for (int i = 1; i <= 3; i++)
    add_flow(&hand, 0, 10.0 * i, INFINITY, 1, (int32_t[]){0});
  run(&hand, NULL, true);
  ck_assert_double_eq_tol(hand.finish[0], 3, 1e-14);
  ck_assert_double_eq_tol(hand.finish[1], 5, 1e-14);
  ck_assert_double_eq_tol(hand.finish[2], 6, 1e-14);
}

/* The textbook line of links 1 and 2 (capacities 6 and 10): the long flow gets 3, the short ones 3 and 7. */
HEC_TEST(long_flow_and_short_flows) {
  hand = (problem){.n_links = 2, .capacity = {6, 10}};
  add_flow(&hand, 0, 9, INFINITY, 2, (int32_t[]){0, 1});
  add_flow(&hand, 0, 9, INFINITY, 1, (int32_t[]){0});
  add_flow(&hand, 0, 28, INFINITY, 1, (int32_t[]){1});
  run(&hand, NULL, true);
  ck_assert_double_eq_tol(hand.finish[0], 3, 1e-14); /* 9 at 3 */
  ck_assert_double_eq_tol(hand.finish[1], 3, 1e-14);
  ck_assert_double_eq_tol(hand.finish[2], 3 + 0.7, 1e-14); /* 21 by then, 7 left at 10 */
}

/* A later flow takes half of what the first had: 100 at 10/s from 0, a second of 20 from 4. */
HEC_TEST(a_later_start) {
  hand = (problem){.n_links = 1, .capacity = {10}};
  add_flow(&hand, 0, 100, INFINITY, 1, (int32_t[]){0});
  add_flow(&hand, 4, 20, INFINITY, 1, (int32_t[]){0});
  run(&hand, NULL, true);
  ck_assert_double_eq_tol(hand.finish[1], 8, 1e-14); /* 20 at 5 */
  ck_assert_double_eq_tol(hand.finish[0], 12, 1e-14);
}

/* A device (capacity 1 second a second) shared by two works of which one may use at most a quarter. */
HEC_TEST(caps_and_devices) {
  hand = (problem){.n_links = 1, .capacity = {1}};
  add_flow(&hand, 0, 1, 0.25, 1, (int32_t[]){0});       /* 0.25 all along: 4 */
  add_flow(&hand, 0, 1.5, 1, 1, (int32_t[]){0});        /* 0.75: 2 */
  add_flow(&hand, 1, 6, 2, 0, NULL);                    /* on no link: its cap */
  add_flow(&hand, 3, 5, INFINITY, 0, NULL);             /* no limit at all */
  add_flow(&hand, 2.5, 0, INFINITY, 1, (int32_t[]){0}); /* nothing to do */
  run(&hand, NULL, true);
  ck_assert_double_eq_tol(hand.finish[0], 4, 1e-14);
  ck_assert_double_eq_tol(hand.finish[1], 2, 1e-14);
  ck_assert_double_eq(hand.finish[2], 4);
  ck_assert_double_eq(hand.finish[3], 3);
  ck_assert_double_eq(hand.finish[4], 2.5);
}

/* A link that is crossed twice carries the flow twice. */
HEC_TEST(a_link_crossed_twice) {
  hand = (problem){.n_links = 1, .capacity = {12}};
  add_flow(&hand, 0, 8, INFINITY, 2, (int32_t[]){0, 0});
  add_flow(&hand, 0, 8, INFINITY, 1, (int32_t[]){0});
  run(&hand, NULL, true);
  ck_assert_double_eq_tol(hand.finish[0], 2, 1e-14); /* 2 x + x = 12 */
  ck_assert_double_eq_tol(hand.finish[1], 2, 1e-14);
}

/* Equal flows end in one pop, in the order they were added, although slots were reused in another order. */
HEC_TEST(one_instant_one_pop) {
  double capacity[2] = {7, 3};
  HEC_OPENED(hec_fluid) *fluid = hec_fluid_new(2, capacity);
  for (int round = 0; round < 3; round++) {
    for (int64_t i = 0; i < 9; i++)
      (void)hec_fluid_add(
          fluid,
          &(hec_fluid_flow){
              .links = (int32_t[]){i % 2 == 0, 1}, .n_links = 2, .amount = 2.385, .cap = INFINITY, .tag = 100 - i});
    hec_fluid_advance(fluid, hec_fluid_next(fluid));
    int32_t n;
    const hec_fluid_done *done = hec_fluid_pop(fluid, &n);
    ck_assert_int_eq(n, 9);
    for (int i = 0; i < n; i++)
      ck_assert_int_eq(done[i].tag, 100 - i);
    ck_assert_int_eq(hec_fluid_count(fluid), 0);
    ck_assert(isinf(hec_fluid_next(fluid)));
    if (round == 1)
      hec_fluid_rebase(fluid);
  }
}

/* 0.1 + 0.2 and 0.3 are two doubles and one instant: one pop, in the order of adding, not of finishing. A difference of
 * 1e-12 is a difference. */
HEC_TEST(roundings_are_one_instant) {
  HEC_OPENED(hec_fluid) *fluid = hec_fluid_new(0, NULL);
  double amounts[3] = {0.1 + 0.2, 0.3, 0.3 + 1e-12};
  ck_assert(amounts[0] > amounts[1]);
  for (int i = 0; i < 3; i++)
    (void)hec_fluid_add(fluid, &(hec_fluid_flow){.amount = amounts[i], .cap = 1, .tag = i});
  int32_t n;
  hec_fluid_advance(fluid, hec_fluid_next(fluid));
  const hec_fluid_done *done = hec_fluid_pop(fluid, &n);
  ck_assert_int_eq(n, 2);
  ck_assert(done[0].tag == 0 && done[1].tag == 1);
  ck_assert(done[0].finish == 0.3 && done[1].finish == 0.3);
  hec_fluid_advance(fluid, hec_fluid_next(fluid));
  done = hec_fluid_pop(fluid, &n);
  ck_assert_int_eq(n, 1);
  ck_assert(done[0].tag == 2 && done[0].finish == amounts[2]);
}

/* ---- random networks ---- */

/* kind 0: one switch; 1: nodes of 4 behind a shared NIC; 2: leaves and a thin core; 3: routes of any links.
 * Link ids: up n, down n, then shared ones. */
static int32_t random_route(int kind, int32_t n, int32_t s, int32_t d, const problem *p, uint64_t *random,
                            int32_t *route) {
  int32_t nodes = (n + 3) / 4, length = 0;
  if (kind == 3) {
    for (int32_t hops = 1 + (int32_t)hec_test_below(random, HOPS_MAX); length < hops;)
      route[length++] = (int32_t)hec_test_below(random, (uint64_t)p->n_links);
    return length;
  }
  route[length++] = s;
  if (kind >= 1 && s / 4 != d / 4)
    route[length++] = 2 * n + s / 4;
  if (kind == 2 && s / 4 != d / 4)
    route[length++] = 2 * n + 2 * nodes + (s / 4 + d / 4) % 2;
  if (kind >= 1 && s / 4 != d / 4)
    route[length++] = 2 * n + nodes + d / 4;
  route[length++] = n + d;
  return length;
}

static void make_problem(problem *p, uint64_t *random) {
  int kind = (int)hec_test_below(random, 4);
  int32_t n = 2 + (int32_t)hec_test_below(random, 23), nodes = (n + 3) / 4;
  bool staggered = hec_test_below(random, 3) > 0, equal = hec_test_below(random, 4) == 0,
       capped = hec_test_below(random, 4) == 0;
  *p = (problem){.n_links = 2 * n + 2 * nodes + 2};
  bool unequal = hec_test_below(random, 2) == 0;
  for (int32_t l = 0; l < p->n_links; l++)
    p->capacity[l] =
        2.385e10 * (unequal ? 0.1 + hec_test_uniform(random) * (1 + 9 * (double)hec_test_below(random, 2)) : 1);
  uint64_t pairs = 1 + hec_test_below(random, (uint64_t)(n * (n - 1) < 160 ? n * (n - 1) : 160));
  for (uint64_t i = 0; i < pairs; i++) {
    int32_t s = (int32_t)hec_test_below(random, (uint64_t)n), d = (int32_t)hec_test_below(random, (uint64_t)n - 1);
    d += d >= s;
    for (uint64_t copies = 1 + (hec_test_below(random, 5) == 0); copies > 0; copies--) {
      int32_t route[HOPS_MAX];
      int32_t length = random_route(kind, n, s, d, p, random, route);
      double u = hec_test_uniform(random);
      double amount = equal ? 3e6 : hec_test_below(random, 30) == 0 ? 0 : floor(4e6 * u * u * u) + 1;
      double cap = capped && hec_test_below(random, 2) ? 2.385e9 * (double)(1 + hec_test_below(random, 8)) : INFINITY;
      double start = staggered ? 1e-3 * hec_test_uniform(random) * (double)hec_test_below(random, 3) : 0;
      add_flow(p, start, amount, cap, length, route);
    }
  }
}

HEC_TEST(random_certificates) {
  static problem p;
  uint64_t random = 11;
  for (int i = 0; i < 60; i++) {
    make_problem(&p, &random);
    run(&p, NULL, true);
  }
}

HEC_TEST(random_equals_reference) {
  static problem p;
  static hec_reference_flow flow[FLOWS_MAX];
  static double finish[FLOWS_MAX];
  uint64_t random = 12;
  double worst = 0;
  for (int i = 0; i < 200; i++) {
    make_problem(&p, &random);
    run(&p, NULL, false);
    for (int32_t f = 0; f < p.n_flows; f++)
      flow[f] = (hec_reference_flow){p.flow[f].links, p.flow[f].n_links, p.flow[f].amount, p.flow[f].cap, p.start[f]};
    hec_reference_fluid(p.n_flows, flow, p.n_links, p.capacity, finish);
    for (int32_t f = 0; f < p.n_flows; f++) {
      double error = finish[f] > 0 ? fabs(p.finish[f] - finish[f]) / finish[f] : p.finish[f];
      worst = error > worst ? error : worst;
    }
  }
  ck_assert_double_le(worst, 1e-10);
}

/* Finishes of the last run are those of another, but for roundings. */
static void check_same_finishes(const problem *p, int32_t n, const double *finish) {
  for (int32_t f = 0; f < n; f++)
    ck_assert_double_le(fabs(p->finish[f] - finish[f]), 1e-12 * finish[f]);
}

/* Adding the flows in another order changes nothing. */
HEC_TEST(order_of_adding_does_not_matter) {
  static problem p;
  static double finish[FLOWS_MAX];
  static int32_t order[FLOWS_MAX];
  uint64_t random = 13;
  for (int i = 0; i < 40; i++) {
    make_problem(&p, &random);
    run(&p, NULL, false);
    memcpy(finish, p.finish, sizeof finish);
    for (int32_t f = 0; f < p.n_flows; f++) {
      int32_t at = (int32_t)hec_test_below(&random, (uint64_t)f + 1);
      order[f] = order[at];
      order[at] = f;
    }
    run(&p, order, false);
    check_same_finishes(&p, p.n_flows, finish);
  }
}

/* Twice the capacity everywhere: every finish is half (starts at 0), exactly: only powers of two are involved. */
HEC_TEST(capacity_scales_time) {
  static problem p;
  static double finish[FLOWS_MAX];
  uint64_t random = 14;
  for (int i = 0; i < 20; i++) {
    make_problem(&p, &random);
    for (int32_t f = 0; f < p.n_flows; f++) {
      p.start[f] = 0;
      p.flow[f].cap = INFINITY;
    }
    run(&p, NULL, false);
    memcpy(finish, p.finish, sizeof finish);
    for (int32_t l = 0; l < p.n_links; l++)
      p.capacity[l] *= 2;
    run(&p, NULL, false);
    for (int32_t f = 0; f < p.n_flows; f++)
      ck_assert(2 * p.finish[f] == finish[f]);
  }
}

/* All-to-all of 32 on one switch: equal sizes end together. Unequal ones, with one sender that has the most for
 * everybody: its port is the most crowded one all along. So it is always full and the last flow ends when it has
 * carried its load. */
HEC_TEST(all_to_all_of_32) {
  enum { N = 32 };
  double capacity[2 * N];
  for (int l = 0; l < 2 * N; l++)
    capacity[l] = 5e10;
  uint64_t random = 15;
  for (int equal = 0; equal < 2; equal++) {
    HEC_OPENED(hec_fluid) *fluid = hec_fluid_new(2 * N, capacity);
    double load[2 * N] = {0}, busiest = 0;
    for (int32_t s = 0; s < N; s++)
      for (int32_t d = 0; d < N; d++) {
        double bytes = equal ? 1e6 : floor(1e6 * hec_test_uniform(&random)) + (s == 3 ? 2e6 : 1);
        if (s == d)
          continue;
        load[s] += bytes;
        load[N + d] += bytes;
        (void)hec_fluid_add(
            fluid,
            &(hec_fluid_flow){
                .links = (int32_t[]){s, N + d}, .n_links = 2, .amount = bytes, .cap = INFINITY, .tag = s * N + d});
      }
    for (int l = 0; l < 2 * N; l++)
      busiest = load[l] > busiest ? load[l] : busiest;
    int32_t ended = 0, pops = 0;
    for (; hec_fluid_count(fluid) > 0; pops++) {
      hec_fluid_advance(fluid, hec_fluid_next(fluid));
      int32_t n;
      (void)hec_fluid_pop(fluid, &n);
      ended += n;
    }
    ck_assert_int_eq(ended, N * (N - 1));
    ck_assert_double_eq_tol(hec_fluid_now(fluid), busiest / 5e10, 1e-12 * busiest / 5e10);
    ck_assert(equal ? pops == 1 : pops > 900);
  }
}

/* Flows on links of their own, added in the middle of everything, do not change the others' finishes. */
HEC_TEST(strangers_do_not_disturb) {
  static problem p;
  static double finish[FLOWS_MAX];
  uint64_t random = 16;
  for (int i = 0; i < 20; i++) {
    make_problem(&p, &random);
    run(&p, NULL, false);
    memcpy(finish, p.finish, sizeof finish);
    int32_t known = p.n_flows, device = p.n_links++;
    p.capacity[device] = 1;
    for (int k = 0; k < 20; k++)
      add_flow(&p, 1e-3 * hec_test_uniform(&random), 1e-4 * hec_test_uniform(&random), 1, 1, &device);
    run(&p, NULL, false);
    check_same_finishes(&p, known, finish);
  }
}

/* Capacities over 18 decades and amounts over 12: still a certificate at every event, and every flow ends. */
HEC_TEST(extreme_ratios) {
  static problem p;
  static const double capacities[] = {1e-3, 2.385, 1e6, 2.385e10, 1e15}, amounts[] = {1, 2385, 1e8, 9e12};
  uint64_t random = 17;
  for (int i = 0; i < 40; i++) {
    make_problem(&p, &random);
    for (int32_t l = 0; l < p.n_links; l++)
      p.capacity[l] = capacities[hec_test_below(&random, 5)];
    for (int32_t f = 0; f < p.n_flows; f++)
      p.flow[f].amount = amounts[hec_test_below(&random, 4)];
    run(&p, NULL, true);
  }
}

/* ---- misuse is ours, and stops ---- */

static void one_flow(hec_fluid **fluid) {
  double capacity = 1;
  *fluid = hec_fluid_new(1, &capacity);
  (void)hec_fluid_add(*fluid, &(hec_fluid_flow){.links = (int32_t[]){0}, .n_links = 1, .amount = 5, .cap = INFINITY});
  hec_fluid_advance(*fluid, 2);
}

HEC_TEST_ABORTS(time_runs_backwards, 1) {
  hec_fluid *fluid;
  one_flow(&fluid);
  hec_fluid_advance(fluid, 1);
}

HEC_TEST_ABORTS(time_jumps_over_a_finish, 1) {
  hec_fluid *fluid;
  one_flow(&fluid);
  hec_fluid_advance(fluid, 5.5);
}

HEC_TEST_ABORTS(rebase_with_flows_inside, 1) {
  hec_fluid *fluid;
  one_flow(&fluid);
  hec_fluid_rebase(fluid);
}

HEC_TEST_ABORTS(no_such_link, 1) {
  hec_fluid *fluid;
  one_flow(&fluid);
  (void)hec_fluid_add(fluid, &(hec_fluid_flow){.links = (int32_t[]){1}, .n_links = 1, .amount = 5, .cap = INFINITY});
}
