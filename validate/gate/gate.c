/* Judging: errors (stats.h) over all conclusive points and over those of each control; pairs are O(points^2). */
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

static double half_median(const hec_comparison *c, int32_t index, int32_t parity, double *scratch) {
  int32_t n = 0;
  int32_t n_rounds;
  const hec_round_reading *readings = hec_comparison_readings(c, index, &n_rounds);
  for (int32_t k = parity; k < n_rounds; k += 2)
    if (readings[k].clean)
      scratch[n++] = readings[k].total_s;
  return n > 0 ? hec_median(scratch, n) : 0;
}

void hec_gate_take(const hec_comparison *c, hec_arena *arena, hec_gate_run *run) {
  double *scratch = HEC_NEW(arena, double, c->options.n_rounds);
  run->disturbed = c->disturbed;
  run->n_points = c->n_points;
  run->points = HEC_NEW(arena, hec_gate_point, c->n_points);
  for (int32_t i = 0; i < c->n_points; i++) {
    const hec_point *from = &c->points[i];
    hec_gate_point *to = &run->points[i];
    *to = (hec_gate_point){.a_case = from->a_case,
                           .step = i - c->point_at[from->a_case],
                           .conclusive = from->conclusive,
                           .predicted_s = from->predicted_s,
                           .measured_s = from->measured_s};
    for (int32_t k = 0; k < HEC_CONTROLS_MAX; k++)
      to->control_s[k] = from->control_s[k];
    for (int32_t half = 0; half < 2; half++)
      to->half_s[half] = half_median(c, i, half, scratch);
  }
}

/* ---- Judging ---- */

typedef struct {
  const hec_gate_bands *bands;
  const hec_gate_run *run;
  int32_t broken;
  hec_gate_judgement *out;
  double *pairs[2]; /* [n_points] */
  bool noisy, failed;
} judging;

static void say(judging *j, bool noisy, const char *sentence) {
  j->noisy = j->noisy || noisy;
  j->failed = j->failed || !noisy;
  if (j->out->why.length > 0)
    hec_text_add(&j->out->why, "; ");
  hec_text_add(&j->out->why, sentence);
}

#define SAY(j, noisy, ...)                                                                                             \
  do {                                                                                                                 \
    hec_text said_ = {0};                                                                                              \
    hec_text_printf(&said_, __VA_ARGS__);                                                                              \
    say((j), (noisy), said_.data);                                                                                     \
    hec_text_free(&said_);                                                                                             \
  } while (0)

static double law_of(const hec_gate_point *p, int32_t law) {
  return law < 0 ? p->predicted_s : p->control_s[law];
}

/* Errors of a law (control, or -1: the real one) on the conclusive points where `group` matters (-1: on all). */
static hec_error error_of(judging *j, int32_t law, int32_t group) {
  int32_t n = 0;
  for (int32_t i = 0; i < j->run->n_points; i++) {
    const hec_gate_point *p = &j->run->points[i];
    if (!p->conclusive || (group >= 0 && !matters(p->predicted_s, p->control_s[group])))
      continue;
    j->pairs[0][n] = law_of(p, law);
    j->pairs[1][n++] = p->measured_s;
  }
  return n > 0 ? hec_error_of(j->pairs[0], j->pairs[1], n) : (hec_error){0};
}

/* Can this session judge at all? */
static void judge_noise(judging *j) {
  const hec_gate_run *run = j->run;
  hec_gate_judgement *out = j->out;
  int32_t n = 0;
  for (int32_t i = 0; i < run->n_points; i++) {
    const hec_gate_point *p = &run->points[i];
    out->n_conclusive += p->conclusive;
    if (p->conclusive && p->half_s[0] > 0 && p->half_s[1] > 0) {
      j->pairs[0][n] = p->half_s[0];
      j->pairs[1][n++] = p->half_s[1];
    }
  }
  if (n > 0)
    out->repeat = hec_error_of(j->pairs[0], j->pairs[1], n);
  if (run->refused)
    SAY(j, true, "the calibration was refused (%.0f %% of its iterations were disturbed)", 100 * run->calibrated);
  else if (run->calibrated > HEC_GATE_DISTURBED || run->disturbed > HEC_GATE_DISTURBED)
    SAY(j, true, "%.0f %% of the calibration's readings and %.0f %% of the others were disturbed",
        100 * run->calibrated, 100 * run->disturbed);
  if (!run->refused && out->n_conclusive < HEC_GATE_CONCLUSIVE * run->n_points)
    SAY(j, true, "only %" PRId32 " of %" PRId32 " points are conclusive (%.0f %% of the readings were disturbed)",
        out->n_conclusive, run->n_points, 100 * run->disturbed);
  if (out->repeat.median > j->bands->median || out->repeat.p90 > j->bands->p90)
    SAY(j, true, "even and odd rounds differ by %.1f %% in the median, %.1f %% at p90", 100 * out->repeat.median,
        100 * out->repeat.p90);
}

/* Does the gate count? */
static void judge_control(judging *j, int32_t control) {
  hec_gate_control *c = &j->out->controls[control];
  const char *name = hec_controls[control].name;
  for (int32_t i = 0; i < j->run->n_points; i++) {
    const hec_gate_point *p = &j->run->points[i];
    bool here = matters(p->predicted_s, p->control_s[control]);
    c->n += here;
    c->n_conclusive += here && p->conclusive;
  }
  c->error = error_of(j, control, control);
  c->predicted = error_of(j, j->broken, control);
  if (c->n < j->bands->points)
    SAY(j, false, "does not count: only %" PRId32 " points where %s matters, expected %" PRId64 " or more", c->n, name,
        j->bands->points);
  else if (c->n_conclusive < j->bands->points)
    SAY(j, true, "only %" PRId32 " of the %" PRId32 " points where %s matters are conclusive", c->n_conclusive, c->n,
        name);
  else if (!(c->error.median > j->bands->median))
    SAY(j, false, "does not count: control %s, which is wrong, has a median error of only %.1f %%", name,
        100 * c->error.median);
  if (c->n_conclusive > 0 && !(c->predicted.median <= j->bands->median))
    SAY(j, false, "median error %.1f %% where %s matters, expected at most %g %%", 100 * c->predicted.median, name,
        100 * j->bands->median);
}

static void judge_law(judging *j) {
  const hec_gate_bands *b = j->bands;
  hec_gate_judgement *out = j->out;
  int32_t n = out->n_conclusive;
  out->error = error_of(j, j->broken, -1); /* leaves its pairs */
  out->ranking = hec_ranking_of(j->pairs[0], j->pairs[1], n, HEC_APART, NULL);
  if (!(out->error.median <= b->median))
    SAY(j, false, "median error %.1f %%, expected at most %g %%", 100 * out->error.median, 100 * b->median);
  if (!(out->error.p90 <= b->p90))
    SAY(j, false, "p90 error %.1f %%, expected at most %g %%", 100 * out->error.p90, 100 * b->p90);
  double right = out->ranking.pairs > 0 ? 1 - (double)out->ranking.wrong / out->ranking.pairs : 1;
  if (!(right >= b->order))
    SAY(j, false, "%" PRId32 " of %" PRId32 " pairs more than %g %% apart are in the wrong order", out->ranking.wrong,
        out->ranking.pairs, 100 * HEC_APART);
}

void hec_gate_judge(const hec_gate_bands *bands, const hec_gate_run *run, int32_t broken, hec_gate_judgement *out) {
  hec_arena arena = {0};
  judging j = {.bands = bands, .run = run, .broken = broken, .out = out};
  *out = (hec_gate_judgement){.n_points = run->n_points};
  for (int32_t i = 0; i < 2; i++)
    j.pairs[i] = HEC_NEW(&arena, double, run->n_points + 1);
  judge_noise(&j);
  if (!j.noisy) {
    for (int32_t k = 0; hec_controls[k].name; k++)
      judge_control(&j, k);
    judge_law(&j);
  }
  /* Measurements that cannot judge come first: what they say about predictions means nothing. */
  out->verdict = j.noisy ? HEC_GATE_NOISY : j.failed ? HEC_GATE_FAILED : HEC_GATE_PASSED;
  hec_arena_free(&arena);
}

void hec_gate_release(hec_gate_judgement *judgement) {
  hec_text_free(&judgement->why);
}
