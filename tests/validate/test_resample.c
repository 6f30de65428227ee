/* Intervals of medians, on readings that are made up so that the truth is known. Quiet ones, bursts of a neighbour, a clock that
 * drifts, one slow core. In 1,000 simulated measurements intervals must hold the truth at least 900 times. Those that
 * leave out the calibration's own doubt must not, and those that count every reading of a machine with bursts are wide. */
#include "tests/support/random_problem.h"
#include "tests/support/test.h"
#include "validate/resample.h"

#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)

/* Sum of twelve: near enough to a normal number. */
static double normal(uint64_t *seed) {
  double sum = -6;
  for (int32_t i = 0; i < 12; i++)
    sum += hec_test_uniform(seed);
  return sum;
}

/* ---- Choosing ---- */

HEC_TEST(undisturbed_or_the_better_half) {
  static const struct {
    double disturbance[6], value[6], kept[6];
  } rows[] = {
      {{0, 0, 0, 0, 0, 0}, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}},
      {{0, 1, 5, 1, 1, 1}, {1, 2, 3, 4, 5, 6}, {1, 2, 0, 4, 5, 6}}, /* at most 1 is undisturbed */
      {{7, 5, 6, 4, 9, 8}, {1, 2, 3, 4, 5, 6}, {0, 2, 3, 4, 0, 0}}, /* the better half */
      {{9, 9, 9, 9, 9, 9}, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 0, 0, 0}}, /* ties to the earlier */
      {{9, 0, 8, 7, 9, 9}, {1, 2, 0, 0, 5, 6}, {1, 2, 0, 0, 5, 0}}, /* three, where there are as many */
      {{9, 8, 7, 9, 9, 9}, {1, 0, 0, 0, 0, 6}, {1, 0, 0, 0, 0, 6}},
      {{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double value[6];
    memcpy(value, rows[i].value, sizeof value);
    hec_choose_readings(rows[i].disturbance, 6, value);
    ck_assert_msg(memcmp(value, rows[i].kept, sizeof value) == 0, "row %d", (int)i);
  }
}

/* ---- Medians ---- */

HEC_TEST(medians) {
  const int32_t row_at[] = {0, 2, 3, 4};
  const double value[] = {3, 1, 2, 0, 10, 30, 20, 0, /* a block of two rows, three rounds of both */
                          5, 0, 0, 0,                /* one reading */
                          0, 0, 0, 0};               /* none */
  const hec_readings readings = {3, 4, row_at, value};
  hec_medians one, again, other;
  hec_medians_draw(&readings, 1, &arena, &one);
  hec_medians_draw(&readings, 1, &arena, &again);
  hec_medians_draw(&readings, 2, &arena, &other);
  const double middle[] = {2, 20, 5, 0};
  int32_t n_apart = 0;
  for (int32_t i = 0; i < 4; i++) {
    ck_assert(one.middle[i] >= middle[i] && one.middle[i] <= middle[i] && one.known[i] == (i < 2));
    for (int32_t b = 0; b < HEC_DRAWS; b++) {
      double drawn = one.drawn[b * 4 + i];
      ck_assert(i < 2 || (drawn >= middle[i] && drawn <= middle[i]));
      n_apart += fabs(drawn - other.drawn[b * 4 + i]) > 0;
    }
  }
  ck_assert(memcmp(one.drawn, again.drawn, 4 * HEC_DRAWS * sizeof *one.drawn) == 0 && n_apart > HEC_DRAWS / 2);
  /* rows of a block are drawn together: 1 with 30, 2 with 20, 3 with 10 */
  for (int32_t b = 0; b < HEC_DRAWS; b++)
    ck_assert((one.drawn[b * 4] < 2) == (one.drawn[b * 4 + 1] > 20));
  double level[HEC_DRAWS];
  ck_assert(hec_medians_level(&one, 0, 2, level) && !hec_medians_level(&one, 2, 4, level) && level[0] >= 1 &&
            level[7] <= 1);
  ck_assert(isinf(hec_medians_half_width(&one, 2, 4)));
}

HEC_TEST(an_interval) {
  double drawn[HEC_DRAWS];
  for (int32_t i = 0; i < HEC_DRAWS; i++)
    drawn[i] = 2 + (double)((i * 7) % HEC_DRAWS) / HEC_DRAWS; /* 2 to 3 */
  hec_interval i =
      hec_interval_of(2.2, drawn, HEC_DRAWS); /* draws that are larger than the estimate: mirrored below it */
  ck_assert_double_eq_tol(i.low, 2.2 * 2.2 / 2.97, 1e-9);
  ck_assert_double_eq_tol(i.high, 2.97, 1e-9);
  i = hec_interval_of(2.8, drawn, HEC_DRAWS);
  ck_assert_double_eq_tol(i.low, 2.025, 1e-9);
  ck_assert_double_eq_tol(i.high, 2.8 * 2.8 / 2.025, 1e-9);
  ck_assert(hec_interval_known(i) && !hec_interval_known((hec_interval){NAN, NAN}));
}

/* ---- Simulated measurements ---- */

enum { CASES = 3, STEPS = 4, ROWS = CASES * STEPS, TRAINING = 11, ROUNDS_MAX = 24 };

typedef enum { QUIET, BURSTS, DRIFT, SLOW_CORE, N_MACHINES } machine;
static const char *const machine_name[] = {"quiet", "bursts", "drifting clock", "one slow core"};

typedef struct {
  machine kind;
  int32_t n_rounds, n_training;  /* n_training: rounds of calibration, which are worse; 0: as many, and as good */
  bool all_count, without_scale; /* what must go wrong */
  uint64_t seed;
} trial;

/* One execution of a block in a round: what the machine does to its times, and how disturbed it says it was. Mending (experiment.h)
 * leaves a tenth of what a burst or a slow core did, and a slow wave of what a clock did. */
static double machine_at(const trial *t, int32_t round, int32_t place, uint64_t *seed, double *disturbance) {
  double level = 1 + 0.004 * normal(seed);
  *disturbance = 0;
  if (t->kind == BURSTS && hec_test_uniform(seed) < 0.45) {
    double burst = 0.2 + hec_test_uniform(seed);
    *disturbance = 10 * burst;
    level *= 1 + (t->all_count ? 1 : 0.1) * burst;
  }
  if (t->kind == DRIFT)
    level *= 1 + 0.01 * sin(0.9 * round + 0.2 * place);
  if (t->kind == SLOW_CORE) {
    *disturbance = 1.5;
    level *= 1.01 + 0.01 * hec_test_uniform(seed);
  }
  return level;
}

static void read_block(const trial *t, int32_t n_rows, int32_t place, uint64_t *seed, double *value) {
  for (int32_t k = 0; k < t->n_rounds; k++) {
    double disturbance, level = machine_at(t, k, place, seed, &disturbance);
    for (int32_t i = 0; i < n_rows; i++)
      value[i * t->n_rounds + k] = level * (1 + 0.01 * normal(seed)) * (t->all_count || disturbance <= 1 ? 1 : -1);
  }
  /* the sign says disturbed: choose as an experiment's readings are chosen */
  for (int32_t i = 0; i < n_rows; i++) {
    double *row = value + i * t->n_rounds, disturbance[ROUNDS_MAX];
    for (int32_t k = 0; k < t->n_rounds; k++) {
      disturbance[k] = row[k] < 0 ? 2 : 0;
      row[k] = fabs(row[k]);
    }
    hec_choose_readings(disturbance, t->n_rounds, row);
  }
}

/* The machine's constant share (a slow core's) hits calibration and cases alike, as in a session. */
static bool holds(const trial *t, int32_t index, double *half_width) {
  HEC_SCOPED(hec_arena) own = {0};
  uint64_t seed = t->seed + 7919 * (uint64_t)index;
  double value[(ROWS + TRAINING) * ROUNDS_MAX], predicted[ROWS], truth[ROWS], one[ROWS], scale[HEC_DRAWS];
  int32_t row_at[CASES + 1] = {0}, training_at[TRAINING + 1] = {0};
  hec_medians cases, training;
  for (int32_t c = 0; c < CASES; c++)
    row_at[c + 1] = (c + 1) * STEPS;
  for (int32_t c = 0; c < TRAINING; c++)
    training_at[c + 1] = c + 1;
  trial calibrating = *t;
  calibrating.n_rounds = t->n_training > 0 ? t->n_training : t->n_rounds;
  for (int32_t c = 0; c < TRAINING; c++)
    read_block(&calibrating, 1, CASES + c, &seed, value + c * calibrating.n_rounds);
  for (int32_t k = 0; t->n_training > 0 && k < TRAINING * calibrating.n_rounds; k++)
    value[k] = 1 + 12 * (value[k] - 1);
  hec_medians_draw(&(hec_readings){TRAINING, calibrating.n_rounds, training_at, value}, seed, &own, &training);
  double level = hec_median(training.middle, TRAINING); /* what the calibration believes that 1 is */
  for (int32_t c = 0; c < CASES; c++)
    read_block(t, STEPS, c, &seed, value + c * STEPS * t->n_rounds);
  hec_medians_draw(&(hec_readings){CASES, t->n_rounds, row_at, value}, seed + 1, &own, &cases);
  for (int32_t i = 0; i < ROWS; i++) {
    truth[i] = 1 + 0.015 * (i % 5 - 1.5); /* predictions are off by so much */
    predicted[i] = truth[i] * level;
    one[i] = 1;
  }
  (void)hec_medians_level(&training, 0, TRAINING, scale);
  hec_error_range r = hec_error_range_of(predicted, &cases, 0, ROWS, NULL, t->without_scale ? NULL : scale);
  double wanted = hec_error_of(truth, one, ROWS).median;
  *half_width = (r.median.high - r.median.low) / 2;
  return r.median.low <= wanted && wanted <= r.median.high;
}

static double coverage(trial t, double *average) {
  int32_t n = 0, all = hec_test_cases(1000);
  double width = 0, half;
  for (int32_t i = 0; i < all; i++) {
    n += holds(&t, i, &half);
    width += half / all;
  }
  printf("coverage, %s, %d rounds%s%s: %.3f, +- %.2f %% on average\n", machine_name[t.kind], (int)t.n_rounds,
         t.all_count ? ", all readings count" : "", t.without_scale ? ", without the calibration's doubt" : "",
         (double)n / all, 100 * width);
  fflush(stdout);
  *average = width;
  return (double)n / all;
}

static const int32_t rounds[] = {3, 8};
HEC_TEST_ROWS(intervals_hold_the_truth, rounds) {
  double width;
  for (int32_t k = 0; k < N_MACHINES; k++)
    ck_assert(coverage((trial){.kind = (machine)k, .n_rounds = rounds[_i], .seed = 11}, &width) >= 0.9);
}

/* A bad calibration, good readings of the cases: without the doubt about its level, intervals are too narrow. Readings that
 * bursts made longer, all of them counted, hide how long the quiet ones are. */
HEC_TEST(wrong_intervals_do_not) {
  double all, chosen, width;
  (void)coverage((trial){.kind = BURSTS, .n_rounds = 8, .all_count = true, .seed = 12}, &all);
  (void)coverage((trial){.kind = BURSTS, .n_rounds = 8, .seed = 12}, &chosen);
  ck_assert(all > 3 * chosen);
  double with = coverage((trial){.kind = QUIET, .n_rounds = 16, .n_training = 3, .seed = 13}, &width);
  double without =
      coverage((trial){.kind = QUIET, .n_rounds = 16, .n_training = 3, .without_scale = true, .seed = 13}, &width);
  ck_assert(with >= 0.9 && without < 0.8);
}

/* ---- Told apart ---- */

/* Two cases, one longer by `more`; how often they are told apart. */
static double told_apart(double more, int32_t n_rounds) {
  int32_t n = 0, all = hec_test_cases(150), row_at[] = {0, STEPS, 2 * STEPS}, a[STEPS], b[STEPS];
  for (int32_t i = 0; i < all; i++) {
    HEC_SCOPED(hec_arena) own = {0};
    hec_medians m;
    uint64_t seed = 5000 + 31 * (uint64_t)i;
    double value[2 * STEPS * ROUNDS_MAX];
    trial t = {.kind = DRIFT, .n_rounds = n_rounds};
    for (int32_t c = 0; c < 2; c++)
      read_block(&t, STEPS, c, &seed, value + c * STEPS * n_rounds);
    for (int32_t k = 0; k < STEPS; k++) {
      a[k] = k;
      b[k] = STEPS + k;
    }
    for (int32_t k = 0; k < STEPS * n_rounds; k++)
      value[k] *= 1 + more;
    hec_medians_draw(&(hec_readings){2, n_rounds, row_at, value}, seed, &own, &m);
    hec_contest c = hec_contest_of(&m, a, b, STEPS);
    n += c.apart;
    ck_assert(c.range.low <= c.ratio && c.ratio <= c.range.high && (more < 0.05 || c.ratio > 1));
  }
  return (double)n / all;
}

HEC_TEST(told_apart_or_not) {
  double alike = told_apart(0, 8), close = told_apart(0.003, 8), far = told_apart(0.05, 8);
  printf("told apart: alike %.3f, 0.3 %% apart %.3f, 5 %% apart %.3f\n", alike, close, far);
  ck_assert(alike <= 0.08 && close < 0.5 && far >= 0.99);
  hec_medians m;
  hec_medians_draw(&(hec_readings){2, 1, (const int32_t[]){0, 1, 2}, (const double[]){1, 2}}, 1, &arena, &m);
  hec_contest c = hec_contest_of(&m, (const int32_t[]){0}, (const int32_t[]){1}, 1); /* one reading says nothing */
  ck_assert(!c.apart && !hec_interval_known(c.range) && c.ratio < 0.6);
}

/* ---- Stopping early ---- */

/* Measuring until rows are known within 2 %, looking after every round from the fifth on. The median is no more off than
 * one over a number of rounds that was fixed before, and on neither side. */
HEC_TEST(stopping_favours_nothing) {
  int32_t all = hec_test_cases(200), row_at[] = {0, STEPS};
  double bias = 0, rounds_used = 0;
  for (int32_t i = 0; i < all; i++) {
    uint64_t seed = 90000 + 17 * (uint64_t)i;
    double value[STEPS * ROUNDS_MAX], seen[STEPS * ROUNDS_MAX], half = INFINITY;
    trial t = {.kind = QUIET, .n_rounds = ROUNDS_MAX};
    read_block(&t, STEPS, 0, &seed, value);
    for (int32_t k = 0; k < STEPS * ROUNDS_MAX; k++)
      value[k] = 1 + 2.5 * (value[k] - 1); /* 2.5 % of scatter: more than five rounds are needed */
    hec_medians m;
    int32_t n = 5;
    for (; n <= ROUNDS_MAX && half > 0.02; n++) {
      HEC_SCOPED(hec_arena) own = {0};
      for (int32_t k = 0; k < STEPS * n; k++)
        seen[k] = value[k / n * ROUNDS_MAX + k % n];
      hec_medians_draw(&(hec_readings){1, n, row_at, seen}, seed, &own, &m);
      half = hec_medians_half_width(&m, 0, STEPS);
      if (half <= 0.02 || n == ROUNDS_MAX) {
        bias += hec_median(m.middle, STEPS) - 1;
        rounds_used += n;
      }
    }
  }
  printf("stopped after %.1f rounds of %d on average, bias %+.3f %%\n", rounds_used / all, ROUNDS_MAX,
         100 * bias / all);
  ck_assert(rounds_used / all < ROUNDS_MAX - 2 && rounds_used / all > 5.5);
  ck_assert(fabs(bias / all) < 0.002);
}
