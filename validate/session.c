/* One lab per step; which part a reading belongs to follows from its case's place in the list. */
#include "validate/session.h"

#include "runtime/base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void measured(void *context, const hec_lab_reading *reading, const hec_replayed *iteration) {
  hec_session *s = context;
  int32_t n = s->options.given ? 0 : s->calibration.n_cases;
  if (reading->a_case < n) {
    hec_calibration_add(&s->calibration, s->lab.cases[reading->a_case].problem, reading, iteration);
    if (s->second)
      hec_comparison_add(&s->training, reading, iteration);
    return;
  }
  hec_lab_reading of_case = *reading;
  of_case.a_case -= n;
  hec_comparison_add(&s->comparison, &of_case, iteration);
}

static void progress(void *context, int32_t done, int32_t of) {
  hec_session *s = context;
  if (s->options.progress)
    s->options.progress(s->options.context, s->phase, done, of);
}

/* Of the first pass: a busy machine is refused as soon as that is certain. */
static bool hopeless(void *context) {
  const hec_session *s = context;
  int32_t n_planned = 0;
  for (int32_t i = 0; i < s->calibration.n_cases; i++)
    n_planned += s->calibration.cases[i].n_steps - s->calibration.cases[i].warmup;
  return hec_calibration_is_hopeless(&s->calibration, n_planned);
}

/* Whether a case of step 2 needs no more rounds. */
static bool settled(void *context, int32_t a_case) {
  const hec_session *s = context;
  int32_t n = s->options.given ? 0 : s->calibration.n_cases;
  return a_case < n ? hec_comparison_settled(&s->training, a_case) : hec_comparison_settled(&s->comparison, a_case - n);
}

static hec_lab lab_of(hec_session *s, hec_lab_case *cases, int32_t n, int32_t n_rounds) {
  return (hec_lab){.cases = cases,
                   .n_cases = n,
                   .n_rounds = n_rounds,
                   .seed = s->options.seed,
                   .collective = s->options.compare.collective,
                   .virtual_time = s->options.calibrate.virtual_time,
                   .measured = measured,
                   .progress = progress,
                   .settled = settled,
                   .reference_s = s->reference_s,
                   .context = s};
}

/* Calibration cases (unless a calibration is given) and the others. */
static hec_lab lab_of_all(hec_session *s) {
  int32_t n = s->options.given ? 0 : s->calibration.n_cases, m = s->options.compare.n_cases;
  hec_lab_case *all = HEC_NEW(s->arena, hec_lab_case, n + m);
  if (n > 0)
    memcpy(all, s->calibration.cases, (size_t)n * sizeof *all);
  if (m > 0)
    memcpy(all + n, s->options.compare.cases, (size_t)m * sizeof *all);
  return lab_of(s, all, n + m, s->options.compare.n_rounds);
}

hec_status hec_session_open(hec_session *s, const hec_session_options *options, hec_arena *arena) {
  *s = (hec_session){.options = *options, .arena = arena};
  HEC_TRY(hec_calibration_open(&s->calibration, &options->calibrate, arena));
  hec_comparison_open(&s->comparison, &options->compare, arena);
  hec_comparison_options training = options->compare;
  training.cases = s->calibration.cases;
  training.n_cases = s->calibration.n_cases;
  training.timelines = NULL;
  hec_comparison_open(&s->training, &training, arena);
  return HEC_OK;
}

size_t hec_session_bytes(hec_session *s) {
  hec_lab calibration = lab_of(s, s->calibration.cases, s->calibration.n_cases, 1), all = lab_of_all(s);
  size_t a = hec_lab_bytes(&calibration), b = hec_lab_bytes(&all);
  return a > b ? a : b;
}

void hec_session_close(hec_session *s) {
  hec_calibration_close(&s->calibration);
  hec_comparison_close(&s->comparison);
  hec_comparison_close(&s->training);
  hec_lab_close(&s->lab);
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

/* The pace of ranks that wait for each other, from the calibration's own iterations. */
static hec_status find_pace(hec_session *s, hec_text *preset) {
  int32_t n = s->training.n_points, n_known = 0;
  double *predicted[2] = {HEC_NEW(s->arena, double, n), HEC_NEW(s->arena, double, n)};
  double *measured_s = HEC_NEW(s->arena, double, n);
  for (int32_t k = 0; k < 2; k++) {
    hec_cluster cluster;
    s->calibration.speed = k == 0 ? 1 : HEC_PACE_TRIED;
    write_preset(s, preset);
    HEC_TRY(hec_cluster_parse_json(preset->data, "the calibration", s->arena, &cluster));
    HEC_TRY(hec_comparison_finish(&s->training, &cluster));
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

static hec_status fit_here(hec_session *s, hec_text *preset) {
  HEC_TRY(hec_calibration_fit(&s->calibration, s->arena));
  if (s->second)
    HEC_TRY(find_pace(s, preset));
  write_preset(s, preset);
  return HEC_OK;
}

/* The cluster that rank 0 fitted; its text into `preset` of every rank, empty when it is refused. */
static hec_status fit(hec_session *s, hec_rank *rank, hec_text *preset, hec_cluster *cluster) {
  hec_rank_at_phase(rank, 0, "fitting");
  if (rank->rank == 0 && fit_here(s, preset) != HEC_OK) {
    (void)snprintf(s->refused, sizeof s->refused, "%s", hec_last_error());
    hec_text_free(preset);
  }
  HEC_TRY(share(rank, preset));
  if (preset->length == 0) {
    if (rank->rank != 0)
      (void)snprintf(s->refused, sizeof s->refused, "refused by rank 0");
    return HEC_OK;
  }
  hec_status status = hec_cluster_parse_json(preset->data, "the calibration", s->arena, cluster);
  return status == HEC_OK ? HEC_OK : hec_rank_report(rank, status, hec_last_error());
}

/* ---- A rank's own ---- */

/* Problems are made anew on the way, so every rank has its own. */
static hec_lab_case *copy_cases(const hec_lab_case *cases, int32_t n, hec_arena *arena) {
  hec_lab_case *own = HEC_NEW(arena, hec_lab_case, n);
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

static hec_status first_pass(hec_session *s, hec_rank *rank) {
  hec_text preset = {0};
  s->phase = "calibrating";
  s->lab = lab_of(s, s->calibration.cases, s->calibration.n_cases, 1);
  s->lab.hopeless = hopeless;
  HEC_TRY(hec_lab_run(&s->lab, rank));
  s->reference_s = rank->rank == 0 ? hec_lab_reference(&s->lab) : 0;
  hec_lab_close(&s->lab);
  hec_status status = fit(s, rank, &preset, &s->planned);
  hec_text_free(&preset);
  hec_calibration_clear(&s->calibration);
  return status;
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

static hec_status second_pass(hec_session *s, hec_rank *rank) {
  s->second = true;
  s->phase = s->options.compare.n_cases > 0 ? "executing" : "measuring";
  s->lab = lab_of_all(s);
  s->lab.n_extra = s->options.compare.n_extra;
  HEC_TRY(hec_lab_run(&s->lab, rank));
  if (s->options.given)
    s->fitted = *s->options.given;
  else
    HEC_TRY(fit(s, rank, &s->preset, &s->fitted));
  if (s->refused[0] || rank->rank != 0 || s->options.compare.n_cases == 0)
    return HEC_OK;
  hec_status status = hec_comparison_finish(&s->comparison, &s->fitted);
  return status == HEC_OK ? HEC_OK : hec_rank_report(rank, status, hec_last_error());
}

static hec_status run(hec_session *s, hec_rank *rank) {
  if (s->options.given)
    s->planned = *s->options.given;
  else
    HEC_TRY(first_pass(s, rank));
  if (s->refused[0])
    return HEC_OK;
  HEC_TRY(plan_for(s, &s->planned));
  return second_pass(s, rank);
}

hec_status hec_session_run(hec_session *s, hec_rank *rank) {
  hec_arena arena = {0};
  hec_session own = copy_of(s, &arena);
  hec_status status = hec_rank_barrier(rank); /* before it, rank 0 must not change what others copy */
  if (status == HEC_OK)
    status = run(rank->rank == 0 ? s : &own, rank);
  hec_text_free(&own.preset);
  hec_lab_close(&own.lab);
  hec_arena_free(&arena);
  return status;
}
