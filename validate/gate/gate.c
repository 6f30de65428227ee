/* Judging: errors and their intervals (resample.h) over all executed points and over those of each control; pairs are
 * O(points^2) times the draws. */
#include "validate/gate/gate.h"

#include "runtime/base/arena.h"

#include <inttypes.h>
#include <math.h>

const char *const hec_gate_verdict_name[] = {"passed", "failed", "skipped: noisy"};

static bool matters(double predicted_s, double control_s) {
  return fabs(control_s / predicted_s - 1) >= HEC_CONTROL_TERM;
}

/* ---- Stored predictions ---- */

hec_status hec_gate_check_groups(const hec_gate_file *file, const hec_gate_prediction *predictions) {
  for (int32_t k = 0; hec_controls[k].name; k++) {
    int32_t n = 0;
    for (int32_t i = 0; i < file->n_cases * file->n_steps; i++)
      n += matters(predictions[i].predicted_s, predictions[i].control_s[k]);
    if (n < file->bands.points)
      return hec_fail(HEC_FAILED,
                      "gate: control %s changes only %" PRId32 " of the predictions by %g %% or more, expected %" PRId64
                      " or more: the gate's configurations must be chosen anew",
                      hec_controls[k].name, n, 100 * HEC_CONTROL_TERM, file->bands.points);
  }
  return HEC_OK;
}

double hec_gate_moved(const hec_gate_prediction *now, const hec_gate_prediction *stored) {
  if (!(stored->predicted_s > 0))
    return INFINITY;
  double worst = fmax(fabs(now->predicted_s / stored->predicted_s - 1), fabs(now->trained_s / stored->trained_s - 1));
  for (int32_t k = 0; hec_controls[k].name; k++)
    worst = fmax(worst, fabs(now->control_s[k] / stored->control_s[k] - 1));
  return worst;
}

hec_status hec_gate_check_stored(const hec_gate_file *file, const hec_gate_prediction *predictions) {
  int32_t n = file->n_cases * file->n_steps, n_moved = 0, worst_at = 0;
  double worst = 0;
  for (int32_t i = 0; i < n; i++) {
    if (!(file->stored[i].predicted_s > 0))
      return hec_fail(HEC_FAILED, "gate: %s: no stored predictions; write them with --update",
                      file->cases[i / file->n_steps].name);
    double moved = hec_gate_moved(&predictions[i], &file->stored[i]);
    n_moved += !(moved <= file->bands.changed);
    if (!(moved <= worst)) {
      worst = moved;
      worst_at = i;
    }
  }
  if (n_moved == 0)
    return HEC_OK;
  const char *name = file->cases[worst_at / file->n_steps].name;
  return hec_fail(
      HEC_FAILED,
      "gate: %" PRId32 " of %" PRId32
      " predictions are not the stored ones, worst by %.3g %% (%s): a law, a policy or the lowering changed; "
      "if that is meant, write the new ones with --update",
      n_moved, n, 100 * worst, name);
}

/* ---- A session ---- */

void hec_gate_take(const hec_session *session, hec_arena *arena, hec_gate_run *run) {
  const hec_comparison *c = &session->comparison;
  *run = (hec_gate_run){.disturbed = c->disturbed,
                        .calibrated = session->calibration.disturbed,
                        .seconds = session->seconds,
                        .n_points = c->n_points,
                        .n_rounds = c->n_min,
                        .points = HEC_NEW(arena, hec_gate_point, c->n_points),
                        .medians = c->medians,
                        .scale = session->scale};
  for (int32_t i = 0; i < c->n_points; i++) {
    const hec_point *from = &c->points[i];
    hec_gate_point *to = &run->points[i];
    *to = (hec_gate_point){.a_case = from->a_case,
                           .step = i - c->point_at[from->a_case],
                           .executed = from->conclusive,
                           .predicted_s = from->predicted_s,
                           .measured_s = from->measured_s};
    for (int32_t k = 0; k < HEC_CONTROLS_MAX; k++)
      to->control_s[k] = from->control_s[k];
  }
}

/* ---- Judging ---- */

typedef struct {
  const hec_gate_bands *bands;
  const hec_gate_run *run;
  int32_t broken;
  hec_gate_judgement *out;
  double *law;   /* [n_points] */
  bool *matters; /* [n_points] */
} judging;

static void say(judging *j, bool undecided, const char *sentence) {
  hec_text *to = undecided ? &j->out->undecided : &j->out->failed;
  if (to->length > 0)
    hec_text_add(to, "; ");
  hec_text_add(to, sentence);
}

#define SAY(j, undecided, ...)                                                                                         \
  do {                                                                                                                 \
    hec_text said_ = {0};                                                                                              \
    hec_text_printf(&said_, __VA_ARGS__);                                                                              \
    say((j), (undecided), said_.data);                                                                                 \
    hec_text_free(&said_);                                                                                             \
  } while (0)

/* Errors of a law (control, or -1: the real one) on the executed points where `group` matters (-1: on all). */
static hec_error_range error_of(judging *j, int32_t law, int32_t group) {
  for (int32_t i = 0; i < j->run->n_points; i++) {
    const hec_gate_point *p = &j->run->points[i];
    j->law[i] = law < 0 ? p->predicted_s : p->control_s[law];
    j->matters[i] = group < 0 || matters(p->predicted_s, p->control_s[group]);
  }
  return hec_error_range_of(j->law, &j->run->medians, 0, j->run->n_points, j->matters, j->run->scale);
}

/* Where the interval lies: -1 within the band, 1 outside, 0 on both sides or not known. */
static int32_t place(hec_interval interval, double band) {
  return interval.high <= band ? -1 : interval.low > band ? 1 : 0;
}

static void judge_band(judging *j, const char *what, const char *where, double error, hec_interval interval,
                       double band) {
  int32_t at = place(interval, band);
  if (at >= 0)
    SAY(j, at == 0, "%s error%s%s%s %.1f %% [%.1f, %.1f], expected at most %g %%", what, where[0] ? " where " : "",
        where, where[0] ? " matters" : "", 100 * error, 100 * interval.low, 100 * interval.high, 100 * band);
}

/* Does the gate count? And does the law hold where the control says? */
static void judge_control(judging *j, int32_t control) {
  hec_gate_control *c = &j->out->controls[control];
  const hec_gate_bands *b = j->bands;
  const char *name = hec_controls[control].name;
  for (int32_t i = 0; i < j->run->n_points; i++) {
    const hec_gate_point *p = &j->run->points[i];
    bool here = matters(p->predicted_s, p->control_s[control]);
    c->n += here;
    c->n_executed += here && p->executed;
  }
  c->error = error_of(j, control, control);
  c->predicted = error_of(j, j->broken, control);
  c->rejected = c->n_executed >= b->points && place(c->error.median, b->median) == 1;
  if (c->n < b->points)
    SAY(j, false, "does not count: only %" PRId32 " points where %s matters, expected %" PRId64 " or more", c->n, name,
        b->points);
  else if (c->n_executed < b->points)
    SAY(j, true, "there was time for only %" PRId32 " of the %" PRId32 " points where %s matters", c->n_executed, c->n,
        name);
  else if (!c->rejected)
    SAY(j, place(c->error.median, b->median) == 0,
        "does not count: control %s, which is wrong, has a median error of only %.1f %% [%.1f, %.1f]", name,
        100 * c->error.error.median, 100 * c->error.median.low, 100 * c->error.median.high);
  if (c->n_executed >= b->points)
    judge_band(j, "median", name, c->predicted.error.median, c->predicted.median, b->median);
}

/* Pairs of points that are told apart and far apart: how many the law puts in the wrong order. */
static void judge_order(judging *j) {
  const hec_gate_run *run = j->run;
  hec_gate_judgement *out = j->out;
  (void)error_of(j, j->broken, -1); /* leaves the law's predictions */
  for (int32_t a = 0; a < run->n_points; a++)
    for (int32_t b = 0; b < a; b++) {
      if (!run->points[a].executed || !run->points[b].executed)
        continue;
      hec_contest c = hec_contest_of(&run->medians, &a, &b, 1);
      if (!c.apart || fmax(c.ratio, 1 / c.ratio) - 1 <= HEC_APART)
        continue;
      out->n_pairs++;
      out->n_wrong += (j->law[a] > j->law[b]) != (c.ratio > 1) || !(j->law[a] < j->law[b] || j->law[a] > j->law[b]);
    }
  double right = out->n_pairs > 0 ? 1 - (double)out->n_wrong / out->n_pairs : 1;
  if (out->n_pairs * (1 - j->bands->order) < 1) /* a single one would decide */
    SAY(j, true, "only %" PRId32 " pairs are told apart and more than %g %% apart", out->n_pairs, 100 * HEC_APART);
  else if (!(right >= j->bands->order))
    SAY(j, false, "%" PRId32 " of %" PRId32 " pairs more than %g %% apart are in the wrong order", out->n_wrong,
        out->n_pairs, 100 * HEC_APART);
}

static void judge_law(judging *j) {
  hec_gate_judgement *out = j->out;
  out->error = error_of(j, j->broken, -1);
  judge_band(j, "median", "", out->error.error.median, out->error.median, j->bands->median);
  judge_band(j, "p90", "", out->error.error.p90, out->error.p90, j->bands->p90);
  judge_order(j);
}

static void decide(const hec_gate_run *run, hec_gate_judgement *out) {
  double disturbed = fmax(run->disturbed, run->calibrated);
  out->outside = out->failed.length > 0;
  out->verdict = out->outside ? HEC_GATE_FAILED : out->undecided.length > 0 ? HEC_GATE_NOISY : HEC_GATE_PASSED;
  if (out->outside && disturbed > HEC_GATE_DISTURBED) {
    out->verdict = HEC_GATE_NOISY;
    hec_text_printf(&out->failed, " (%.0f %% of the iterations were disturbed: that convicts nobody)", 100 * disturbed);
  }
  out->why = out->outside ? out->failed.data : out->undecided.data ? out->undecided.data : "";
}

void hec_gate_judge(const hec_gate_bands *bands, const hec_gate_run *run, int32_t broken, hec_gate_judgement *out) {
  HEC_SCOPED(hec_arena) arena = {0};
  judging j = {.bands = bands, .run = run, .broken = broken, .out = out};
  *out = (hec_gate_judgement){.n_points = run->n_points};
  j.law = HEC_NEW(&arena, double, run->n_points);
  j.matters = HEC_NEW(&arena, bool, run->n_points);
  for (int32_t i = 0; i < run->n_points; i++)
    out->n_executed += run->points[i].executed;
  for (int32_t k = 0; hec_controls[k].name; k++)
    judge_control(&j, k);
  judge_law(&j);
  decide(run, out);
}

void hec_gate_release(hec_gate_judgement *judgement) {
  hec_text_free(&judgement->failed);
  hec_text_free(&judgement->undecided);
}
