/* The gate's verdicts on sessions that are made up: passed; failed for each reason. Skipped where intervals lie on both sides
 * of a band, or where the machine was too disturbed for a failure to count. Not counting when a control does not fail or
 * matters nowhere. Loads are whole and the same everywhere; stored predictions notice a change of one; the committed baseline
 * is written as it was read. */
#include "tests/support/test.h"
#include "validate/gate/gate.h"

#include "runtime/base/arena.h"
#include "runtime/base/temporary.h"

#include <string.h>

enum { N = 40, ROUNDS = 6 };
static const hec_gate_bands bands = {.median = 0.05, .p90 = 0.1, .order = 0.95, .changed = 1e-9, .points = 5};

typedef struct {
  hec_gate_run run;
  hec_gate_point points[N];
  double scatter; /* of readings around measured_s */
} session;

/* Predictions 1 % off, readings within 0.5 %; control k matters on every third point, k first, by 15 to 25 %. */
static void make(session *s) {
  *s = (session){.run = {.disturbed = 0.1, .calibrated = 0.2, .n_points = N, .n_rounds = ROUNDS}, .scatter = 0.005};
  for (int32_t i = 0; i < N; i++) {
    hec_gate_point *p = &s->points[i];
    double m = 0.01 * (1 + 0.13 * i), sign = i % 2 ? 1 : -1;
    *p = (hec_gate_point){.a_case = i / 2, .step = i % 2, .executed = true, .measured_s = m};
    p->predicted_s = m * (1 + 0.01 * sign);
    for (int32_t k = 0; hec_controls[k].name; k++)
      p->control_s[k] = p->predicted_s * (i % 3 == k ? 0.75 + 0.0025 * i : 0.999);
  }
}

static void judge(session *s, int32_t broken, hec_arena *arena, hec_gate_judgement *j) {
  int32_t row_at[N + 1];
  double *value = HEC_NEW(arena, double, N *ROUNDS);
  for (int32_t i = 0; i < N; i++) {
    row_at[i + 1] = i + 1;
    for (int32_t k = 0; s->points[i].executed && k < ROUNDS; k++)
      value[i * ROUNDS + k] = s->points[i].measured_s * (1 + s->scatter * ((5 * k) % ROUNDS - 2.5) / 2.5);
  }
  row_at[0] = 0;
  hec_medians_draw(&(hec_readings){N, ROUNDS, row_at, value}, 3, arena, &s->run.medians);
  s->run.points = s->points;
  hec_gate_judge(&bands, &s->run, broken, j);
}

static void expect(session *s, int32_t broken, hec_gate_verdict verdict, const char *why) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_gate_judgement j;
  judge(s, broken, &arena, &j);
  ck_assert_msg(j.verdict == verdict, "%s, expected %s: %s", hec_gate_verdict_name[j.verdict],
                hec_gate_verdict_name[verdict], j.why);
  ck_assert_msg(why ? strstr(j.why, why) != NULL : j.why[0] == 0, "%s", j.why);
  hec_gate_release(&j);
}

HEC_TEST(good_predictions_pass) {
  HEC_SCOPED(hec_arena) arena = {0};
  session s;
  make(&s);
  hec_gate_judgement j;
  judge(&s, -1, &arena, &j);
  ck_assert_int_eq(j.verdict, HEC_GATE_PASSED);
  ck_assert_int_eq(j.n_executed, N);
  ck_assert(j.error.error.median > 0.0099 && j.error.error.median < 0.0101);
  ck_assert(j.error.median.low <= j.error.error.median && j.error.median.high >= j.error.error.median);
  ck_assert(j.n_wrong == 0 && j.n_pairs > N * (N - 1) / 4);
  ck_assert_int_eq(j.controls[0].n, 14);
  ck_assert_int_eq(j.controls[1].n, 13);
  hec_gate_release(&j);
  s.run.disturbed = s.run.calibrated = 0.9; /* what is within its band, counts on a busy machine too */
  expect(&s, -1, HEC_GATE_PASSED, NULL);
}

HEC_TEST(every_broken_law_fails) {
  for (int32_t k = 0; hec_controls[k].name; k++) {
    session s;
    char why[96];
    make(&s);
    (void)snprintf(why, sizeof why, "where %s matters", hec_controls[k].name);
    expect(&s, k, HEC_GATE_FAILED, why);
  }
}

HEC_TEST(each_band_fails) {
  session s;
  make(&s); /* median: all 6 % too long */
  for (int32_t i = 0; i < N; i++)
    s.points[i].measured_s /= 1.08;
  expect(&s, -1, HEC_GATE_FAILED, "median error");
  make(&s); /* p90: one in eight 13 % off */
  for (int32_t i = 0; i < N; i += 8)
    s.points[i].measured_s /= 1.15;
  expect(&s, -1, HEC_GATE_FAILED, "p90 error");
  make(&s); /* a law that is wrong only where one term matters */
  for (int32_t i = 2; i < N; i += 3)
    s.points[i].measured_s /= 1.08;
  expect(&s, -1, HEC_GATE_FAILED, "median error where flat_rate matters");
  make(&s); /* order: times 5 to 6 % apart, predicted in the other direction, each by less than the bands */
  for (int32_t i = 0; i < N; i++) {
    hec_gate_point *p = &s.points[i];
    double factor = (i % 2 ? 1.03 : 0.97) / p->measured_s, control = p->control_s[i % 3] / p->predicted_s;
    for (int32_t k = 0; hec_controls[k].name; k++)
      p->control_s[k] = k == i % 3 ? control : 0.999;
    p->measured_s *= factor;
    p->predicted_s = i % 2 ? 0.999 : 1.001;
  }
  expect(&s, -1, HEC_GATE_FAILED, "in the wrong order");
}

/* Intervals on both sides of a band decide nothing, whichever side the estimate is on. Neither does a number outside on
 * a machine that was disturbed most of the time. */
HEC_TEST(not_decided) {
  session s;
  for (int32_t above = 0; above < 2; above++) {
    make(&s);
    s.scatter = 0.15;
    for (int32_t i = 0; i < N; i++)
      s.points[i].measured_s /= above ? 1.055 : 1.045;
    expect(&s, -1, HEC_GATE_NOISY, "expected at most");
  }
  for (int32_t busy = 0; busy < 2; busy++) {
    make(&s);
    *(busy ? &s.run.disturbed : &s.run.calibrated) = 0.6;
    for (int32_t i = 0; i < N; i++)
      s.points[i].measured_s /= 1.08;
    expect(&s, -1, HEC_GATE_NOISY, "(60 % of the iterations were disturbed: that convicts nobody)");
    for (int32_t k = 0; hec_controls[k].name; k++) { /* a broken law is still seen to be outside */
      HEC_SCOPED(hec_arena) arena = {0};
      hec_gate_judgement j;
      judge(&s, k, &arena, &j);
      ck_assert(j.verdict == HEC_GATE_NOISY && j.outside);
      hec_gate_release(&j);
    }
  }
  make(&s); /* the time was over before the points of one control */
  for (int32_t i = 0; i < N; i++)
    s.points[i].executed = i % 3 != 1 || i < 12;
  expect(&s, -1, HEC_GATE_NOISY, "there was time for only 4 of the 13 points where mean_bytes matters");
  for (int32_t i = 0; i < N; i++)
    s.points[i].executed = false;
  expect(&s, -1, HEC_GATE_NOISY, "median error");
}

HEC_TEST(a_gate_that_cannot_tell_does_not_count) {
  session s;
  make(&s);
  for (int32_t i = 0; i < N; i++)
    s.points[i].control_s[1] = s.points[i].predicted_s * (i < 4 ? 0.8 : 1);
  expect(&s, -1, HEC_GATE_FAILED, "does not count: only 4 points where mean_bytes matters");
  make(&s); /* matters by 6 %, but the law is 3 % off in that direction: the control looks good */
  for (int32_t i = 0; i < N; i++) {
    s.points[i].control_s[0] = s.points[i].predicted_s * 0.94;
    s.points[i].measured_s = s.points[i].predicted_s * 0.97;
  }
  expect(&s, -1, HEC_GATE_FAILED, "does not count: control mean_compute, which is wrong");
}

HEC_TEST(loads_are_whole) {
  HEC_SCOPED(hec_arena) arena = {0};
  for (int32_t skew = 0; skew <= 16; skew += 4) {
    hec_load a = hec_load_new(&arena, 3, 2, 8), b = hec_load_new(&arena, 3, 2, 8);
    uint32_t max = 0;
    hec_gate_draw(7, skew, 100, &a);
    hec_gate_draw(7, skew, 100, &b);
    ck_assert(memcmp(a.counts, b.counts, hec_load_cells(&a) * sizeof *a.counts) == 0);
    for (int32_t l = 0; l < 3; l++)
      for (int32_t r = 0; r < 2; r++) {
        uint32_t sum = 0;
        for (int32_t e = 0; e < 8; e++) {
          sum += hec_load_row(&a, l, r)[e];
          max = hec_load_row(&a, l, r)[e] > max ? hec_load_row(&a, l, r)[e] : max;
        }
        ck_assert_uint_eq(sum, 100);
      }
    ck_assert(skew == 0 ? max < 25 : skew < 8 || max > 40);
  }
}

HEC_TEST(the_baseline_holds_and_notices) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_gate_file file, again;
  HEC_SCOPED(hec_text) text = {0};
  const char *path = "validate/gate/gate.json", *copy = "validate/gate/gate.json.test";
  ck_assert_msg(hec_gate_read(path, &arena, &file) == HEC_OK, "%s", hec_last_error());
  int32_t n = file.n_cases * file.n_steps;
  hec_gate_prediction *now = HEC_NEW(&arena, hec_gate_prediction, n);
  ck_assert_int_eq(hec_gate_predict(&file, now), HEC_OK);
  ck_assert_msg(hec_gate_check_stored(&file, now) == HEC_OK, "%s", hec_last_error());
  ck_assert_msg(hec_gate_check_groups(&file, now) == HEC_OK, "%s", hec_last_error());
  hec_gate_write(&file, now, &text);
  ck_assert_int_eq(hec_write_file(copy, text.data, text.length), HEC_OK);
  ck_assert_msg(hec_gate_read(copy, &arena, &again) == HEC_OK, "%s", hec_last_error());
  remove(copy);
  ck_assert(memcmp(again.stored, now, (size_t)n * sizeof *now) == 0);
  for (int32_t field = 0; field < 3; field++) {
    double *changed = field == 0 ? &now[3].predicted_s : field == 1 ? &now[3].control_s[2] : &now[3].trained_s;
    double before = *changed;
    *changed *= 1 + 1e-8;
    ck_assert_int_eq(hec_gate_check_stored(&file, now), HEC_FAILED);
    ck_assert_ptr_nonnull(strstr(hec_last_error(), "1 of"));
    *changed = before;
  }
  for (int32_t i = 0; i < n; i++)
    now[i].control_s[0] = now[i].predicted_s;
  ck_assert_int_eq(hec_gate_check_groups(&file, now), HEC_FAILED);
}
