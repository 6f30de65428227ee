/* One experiment per step; which part a reading belongs to follows from its case's place in the list. */
#include "validate/session.h"

#include "runtime/base/arena.h"
#include "runtime/exec/launch/rank.h"
#include "runtime/plan/problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void measured(void *context, const hec_experiment_reading *reading, const hec_replayed *iteration) {
  hec_session *s = context;
  int32_t n = s->options.given ? 0 : s->calibration.n_cases;
  if (reading->a_case < n) {
    hec_experiment_reading of_training = *reading;
    of_training.round += s->second; /* step 1 is its round 0 */
    hec_calibration_add(&s->calibration, s->experiment.cases[reading->a_case].problem, reading, iteration);
    hec_comparison_add(&s->training, &of_training, iteration);
    return;
  }
  hec_experiment_reading of_case = *reading;
  of_case.a_case -= n;
  hec_comparison_add(&s->comparison, &of_case, iteration);
}

/* ---- When to stop ---- */

#define FINISHING 0.06 /* of the time given: fits, predictions, resampling and reports take less */

static double now_s(const hec_session *s) {
  return s->options.now_s ? s->options.now_s(s->options.context) : 1e-9 * (double)hec_clock_ns();
}

/* Every case is known within HEC_NARROW; of a calibration beside others, its level. */
static bool is_narrow(const hec_session *s) {
  if (s->options.compare.n_cases == 0)
    return hec_comparison_half_width(&s->training) <= HEC_NARROW;
  return hec_comparison_half_width(&s->comparison) <= HEC_NARROW &&
         (s->options.given || hec_comparison_level_half(&s->training) <= HEC_NARROW);
}

/* Before each case: has the next one time, and is it needed? */
static bool go_on(void *context, int32_t round, int32_t done) {
  hec_session *s = context;
  const hec_session_options *o = &s->options;
  double now = now_s(s), until = s->start_s + (1 - FINISHING) * o->within_s;
  if (s->second && done == 0 && round >= HEC_ROUNDS_MIN && !o->every_round && is_narrow(s))
    return false;
  if (s->second && o->within_s > 0) {
    double a_case = s->n_run > 0 ? (now - s->second_s) / s->n_run : 0;
    s->time_over = now + a_case > until;
    if (s->time_over)
      return false;
  }
  if (o->progress)
    o->progress(o->context, s->phase, s->n_run, o->within_s > 0 ? fmax(until - now, 0) : INFINITY);
  s->n_run++;
  return true;
}

static hec_experiment experiment_of(hec_session *s, hec_experiment_case *cases, int32_t n, int32_t n_rounds) {
  return (hec_experiment){.cases = cases,
                          .n_cases = n,
                          .n_rounds = n_rounds,
                          .seed = s->options.seed,
                          .collective = s->options.compare.collective,
                          .virtual_time = s->options.calibrate.virtual_time,
                          .measured = measured,
                          .go_on = go_on,
                          .reference_s = s->reference_s,
                          .context = s};
}

/* Calibration cases (unless a calibration is given) and the others. */
static hec_experiment experiment_of_all(hec_session *s) {
  int32_t n = s->options.given ? 0 : s->calibration.n_cases, m = s->options.compare.n_cases;
  hec_experiment_case *all = HEC_NEW(s->arena, hec_experiment_case, n + m);
  if (n > 0)
    memcpy(all, s->calibration.cases, (size_t)n * sizeof *all);
  if (m > 0)
    memcpy(all + n, s->options.compare.cases, (size_t)m * sizeof *all);
  hec_experiment experiment = experiment_of(s, all, n + m, s->options.compare.n_rounds);
  experiment.n_in_turn = n;
  return experiment;
}

hec_status hec_session_open(hec_session *s, const hec_session_options *options, hec_arena *arena) {
  *s = (hec_session){.options = *options, .arena = arena, .reference_s = options->given_probe_s};
  HEC_TRY(hec_calibration_open(&s->calibration, &options->calibrate, arena));
  hec_comparison_open(&s->comparison, &options->compare, arena);
  hec_comparison_options training = options->compare;
  training.cases = s->calibration.cases;
  training.n_cases = s->calibration.n_cases;
  training.timelines = NULL;
  training.n_rounds++;
  training.seed++; /* draws of its own */
  hec_comparison_open(&s->training, &training, arena);
  return HEC_OK;
}

/* Imitated links in virtual time take what they say. */
static bool measures_links(const hec_session *s) {
  const hec_calibrate_options *o = &s->options.calibrate;
  return !s->options.given && !o->virtual_time && o->n_ranks > o->base->devices_per_node;
}

size_t hec_session_bytes(hec_session *s) {
  hec_experiment calibration = experiment_of(s, s->calibration.cases, s->calibration.n_cases, 1),
                 all = experiment_of_all(s);
  size_t a = hec_experiment_bytes(&calibration), b = hec_experiment_bytes(&all);
  size_t links = measures_links(s) ? hec_links_region(s->options.calibrate.n_ranks) : 0;
  return links > a && links > b ? links : a > b ? a : b;
}

void hec_session_close(hec_session *s) {
  hec_calibration_close(&s->calibration);
  hec_comparison_close(&s->comparison);
  hec_comparison_close(&s->training);
  hec_experiment_close(&s->experiment);
  hec_text_free(&s->preset);
}

/* ---- Sharing ---- */

static hec_status share(hec_rank *rank, hec_text *text) {
  size_t length = text->length;
  HEC_TRY(hec_rank_broadcast(rank, &length, sizeof length));
  char *all = hec_malloc(length + 1, 1);
  if (rank->rank == 0 && length > 0)
    memcpy(all, text->data, length);
  all[length] = 0;
  hec_status status = length > 0 ? hec_rank_broadcast(rank, all, length) : HEC_OK;
  if (status == HEC_OK && rank->rank != 0 && length > 0)
    hec_text_add_bytes(text, all, length);
  free(all);
  return status;
}

static void write_preset(const hec_session *s, hec_text *preset) {
  hec_text_free(preset);
  hec_calibration_json(&s->calibration, &s->options.machine, preset);
}

/* What the calibration makes of its own cases. */
static hec_status predict_training(hec_session *s, hec_text *preset) {
  hec_cluster cluster;
  write_preset(s, preset);
  HEC_TRY(hec_cluster_parse_json(preset->data, "the calibration", s->arena, &cluster));
  return hec_comparison_finish(&s->training, &cluster, NULL);
}

/* The pace of ranks that wait for each other, from the calibration's own iterations. */
static hec_status find_pace(hec_session *s, hec_text *preset) {
  int32_t n = s->training.n_points, n_known = 0;
  double *predicted[2] = {HEC_NEW(s->arena, double, n), HEC_NEW(s->arena, double, n)};
  double *measured_s = HEC_NEW(s->arena, double, n);
  for (int32_t k = 0; k < 2; k++) {
    s->calibration.speed = k == 0 ? 1 : HEC_PACE_TRIED;
    HEC_TRY(predict_training(s, preset));
    n_known = 0;
    for (int32_t i = 0; i < n; i++)
      if (s->training.points[i].conclusive) {
        measured_s[n_known] = s->training.points[i].measured_s;
        predicted[k][n_known++] = s->training.points[i].predicted_s;
      }
  }
  hec_calibration_pace(&s->calibration, (const double *const[]){predicted[0], predicted[1]}, measured_s, n_known,
                       s->arena);
  return HEC_OK;
}

/* How far its level, and its predictions of its own cases, are off. */
static hec_status find_own_error(hec_session *s, hec_text *preset) {
  const hec_comparison *t = &s->training;
  HEC_TRY(predict_training(s, preset));
  double half = hec_medians_level_half(&t->medians, 0, t->n_points);
  s->calibration.level = isfinite(half) ? half : NAN;
  s->calibration.own[0] = t->error.median;
  s->calibration.own[1] = t->range.median.low;
  s->calibration.own[2] = t->range.median.high;
  return HEC_OK;
}

static hec_status fit_here(hec_session *s, hec_text *preset) {
  s->calibration.probe_s = s->reference_s;
  HEC_TRY(hec_calibration_fit(&s->calibration, s->arena));
  if (s->second && s->training.n_points > 0) {
    HEC_TRY(find_pace(s, preset));
    HEC_TRY(find_own_error(s, preset));
  }
  write_preset(s, preset);
  return HEC_OK;
}

/* The cluster that rank 0 fitted; its text into `preset` of every rank. */
static hec_status fit(hec_session *s, hec_rank *rank, hec_text *preset, hec_cluster *cluster) {
  hec_rank_at_phase(rank, 0, "fitting");
  hec_status status = rank->rank == 0 ? fit_here(s, preset) : HEC_OK;
  if (status != HEC_OK)
    return hec_rank_report(rank, status, hec_last_error());
  HEC_TRY(share(rank, preset));
  status = hec_cluster_parse_json(preset->data, "the calibration", s->arena, cluster);
  return status == HEC_OK ? HEC_OK : hec_rank_report(rank, status, hec_last_error());
}

/* ---- A rank's own ---- */

/* Problems are made anew on the way, so every rank has its own. */
static hec_experiment_case *copy_cases(const hec_experiment_case *cases, int32_t n, hec_arena *arena) {
  hec_experiment_case *own = HEC_NEW(arena, hec_experiment_case, n);
  for (int32_t i = 0; i < n; i++) {
    own[i] = cases[i];
    own[i].problem = HEC_NEW(arena, hec_problem, 1);
    *own[i].problem = *cases[i].problem;
  }
  return own;
}

/* For ranks that collect nothing. */
static hec_session copy_of(const hec_session *s, hec_arena *arena) {
  hec_session own = {.options = s->options, .arena = arena, .reference_s = s->reference_s};
  own.options.compare.cases = copy_cases(s->options.compare.cases, s->options.compare.n_cases, arena);
  own.calibration.options = s->calibration.options;
  own.calibration.cases = s->calibration.cases;
  own.calibration.n_cases = s->calibration.n_cases;
  return own;
}

/* ---- Steps ---- */

static hec_status measure_links(hec_session *s, hec_rank *rank) {
  hec_links_found found;
  hec_rank_at_phase(rank, 0, "measuring links");
  HEC_TRY(hec_links_measure(s->options.calibrate.base, rank, &found));
  if (rank->rank == 0)
    hec_calibration_set_links(&s->calibration, &found, s->arena);
  return HEC_OK;
}

static hec_status first_pass(hec_session *s, hec_rank *rank) {
  HEC_SCOPED(hec_text) preset = {0};
  if (measures_links(s))
    HEC_TRY(measure_links(s, rank));
  s->phase = "calibrating";
  s->experiment = experiment_of(s, s->calibration.cases, s->calibration.n_cases, 1);
  HEC_TRY(hec_experiment_run(&s->experiment, rank));
  s->reference_s = rank->rank == 0 ? hec_experiment_reference(&s->experiment) : 0;
  hec_experiment_close(&s->experiment);
  return fit(s, rank, &preset, &s->planned);
}

/* The cases' problems for the cluster that plans are made for; what the user asked for stays. */
static hec_status plan_for(hec_session *s, const hec_cluster *cluster) {
  for (int32_t i = 0; i < s->options.compare.n_cases; i++) {
    hec_problem *p = s->options.compare.cases[i].problem, made;
    if (p->cluster == cluster)
      continue;
    HEC_TRY(hec_problem_make(p->moe, cluster, p->train, p->n_ranks, p->tokens, &made));
    HEC_TRY(hec_problem_shard(&made, p->esp));
    hec_problem_choose_as(&made, p);
    *p = made;
  }
  return HEC_OK;
}

/* How far what predicts is off altogether; without a calibration here, nothing is known of that. */
static const double *scale_of(hec_session *s) {
  double *scale = HEC_NEW(s->arena, double, HEC_DRAWS);
  if (s->options.given || !hec_medians_level(&s->training.medians, 0, s->training.n_points, scale))
    return NULL;
  return scale;
}

static hec_status second_pass(hec_session *s, hec_rank *rank) {
  s->second = true;
  s->phase = s->options.compare.n_cases > 0 ? "executing" : "measuring";
  s->experiment = experiment_of_all(s);
  s->second_s = rank->rank == 0 ? now_s(s) : 0;
  s->n_run = 0;
  HEC_TRY(hec_experiment_run(&s->experiment, rank));
  s->seconds = rank->rank == 0 ? now_s(s) - s->start_s : 0;
  if (s->options.given)
    s->fitted = *s->options.given;
  else
    HEC_TRY(fit(s, rank, &s->preset, &s->fitted));
  if (rank->rank != 0 || s->options.compare.n_cases == 0)
    return HEC_OK;
  s->scale = scale_of(s);
  hec_status status = hec_comparison_finish(&s->comparison, &s->fitted, s->scale);
  return status == HEC_OK ? HEC_OK : hec_rank_report(rank, status, hec_last_error());
}

static hec_status run(hec_session *s, hec_rank *rank) {
  s->start_s = rank->rank == 0 ? now_s(s) : 0;
  if (s->options.given)
    s->planned = *s->options.given;
  else
    HEC_TRY(first_pass(s, rank));
  HEC_TRY(plan_for(s, &s->planned));
  return second_pass(s, rank);
}

hec_status hec_session_run(hec_session *s, hec_rank *rank) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_session own = copy_of(s, &arena);
  hec_status status = hec_rank_barrier(rank); /* before it, rank 0 must not change what others copy */
  if (status == HEC_OK)
    status = run(rank->rank == 0 ? s : &own, rank);
  hec_text_free(&own.preset);
  hec_experiment_close(&own.experiment);
  return status;
}
