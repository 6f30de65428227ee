/* Readings are kept as they come. Predictions are made when all have been taken, each by planning and lowering the case's
 * iterations again and simulating them. Per point: one lowering, one simulation, one walk per control. */
#include "validate/compare/compare.h"
#include "validate/compare/stages.h"

#include "runtime/base/arena.h"
#include "runtime/plan/problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void hec_comparison_open(hec_comparison *c, const hec_comparison_options *o, hec_arena *arena) {
  *c = (hec_comparison){.options = *o, .arena = arena};
  c->point_at = HEC_NEW(arena, int32_t, o->n_cases + 1);
  for (int32_t i = 0; i < o->n_cases; i++)
    c->point_at[i + 1] = c->point_at[i] + o->cases[i].n_steps - o->cases[i].warmup;
  c->n_points = c->point_at[o->n_cases];
  c->points = HEC_NEW(arena, hec_point, c->n_points);
  c->readings = HEC_NEW(arena, hec_round_reading, (size_t)c->n_points * (size_t)c->options.n_rounds);
  c->by_case = HEC_NEW(arena, hec_compared_case, o->n_cases);
  c->drawn = HEC_NEW(arena, hec_drawn, o->n_cases);
  for (int32_t i = 0; i < o->n_cases; i++)
    for (int32_t k = c->point_at[i]; k < c->point_at[i + 1]; k++) {
      c->points[k].a_case = i;
      c->points[k].iter = o->cases[i].steps[k - c->point_at[i] + o->cases[i].warmup].iter;
    }
}

void hec_comparison_close(hec_comparison *c) {
  for (int32_t i = 0; c->drawn && i < c->options.n_cases; i++)
    hec_timeline_free(&c->drawn[i].measured);
  hec_spans_free(&c->spans);
  hec_text_free(&c->events);
}

/* ---- Readings ---- */

static void add_roles(const hec_spans *spans, const hec_program *program, double role_s[HEC_N_ROLES]) {
  memset(role_s, 0, HEC_N_ROLES * sizeof *role_s);
  for (int32_t i = 0; i < (int32_t)program->n_ops; i++)
    for (int32_t r = 0; r < program->n_ranks; r++)
      if (hec_span_ps(spans, program, i, r) > 0)
        role_s[program->ops[i].role] += 1e-12 * (double)hec_span_ps(spans, program, i, r) / program->n_ranks;
}

/* The iteration of a case that is drawn: the middle one. */
static int32_t drawn_point(const hec_comparison *c, int32_t a_case) {
  return (c->point_at[a_case] + c->point_at[a_case + 1]) / 2;
}

static void keep_timeline(const hec_timeline *from, hec_timeline *to) {
  size_t bytes = (size_t)from->n_ops * (size_t)from->n_ranks * sizeof *from->begin_ps;
  hec_timeline_resize(to, from->n_ops, from->n_ranks);
  memcpy(to->begin_ps, from->begin_ps, bytes);
  memcpy(to->end_ps, from->end_ps, bytes);
}

void hec_comparison_add(hec_comparison *c, const hec_experiment_reading *reading, const hec_replayed *iteration) {
  const hec_experiment_case *of = &c->options.cases[reading->a_case];
  const hec_program *program = iteration->program;
  int32_t index = c->point_at[reading->a_case] + (int32_t)(iteration->step - of->steps) - of->warmup;
  hec_point *point = &c->points[index];
  hec_round_reading *kept = &c->readings[(size_t)index * (size_t)c->options.n_rounds + (size_t)reading->round];
  HEC_ASSERT(point->digest == 0 || point->digest == iteration->digest); /* plans are functions of the loads alone */
  point->digest = iteration->digest;
  hec_spans_find(&c->spans, program, iteration->timeline);
  add_roles(&c->spans, program, kept->role_s);
  kept->total_s = 1e-12 * (double)hec_timeline_end_ps(iteration->timeline);
  kept->raw_s = reading->total_s;
  kept->disturbance = reading->disturbance;
  if (c->options.timelines && index == drawn_point(c, reading->a_case))
    keep_timeline(iteration->timeline, &c->drawn[reading->a_case].measured);
}

/* Readings of a point, by round; their number. */
static const hec_round_reading *readings_of(const hec_comparison *c, int32_t point, int32_t *n) {
  *n = c->options.n_rounds;
  return &c->readings[(size_t)point * (size_t)*n];
}

/* The readings that count, by point and round. */
static hec_readings chosen_readings(const hec_comparison *c, hec_arena *arena) {
  size_t n = (size_t)c->options.n_rounds;
  double *value = HEC_NEW(arena, double, (size_t)c->n_points *n), *disturbance = HEC_NEW(arena, double, n);
  for (size_t i = 0; i < (size_t)c->n_points; i++) {
    for (size_t k = 0; k < n; k++) {
      value[i * n + k] = c->readings[i * n + k].total_s;
      disturbance[k] = c->readings[i * n + k].disturbance;
    }
    hec_choose_readings(disturbance, (int32_t)n, value + i * n);
  }
  return (hec_readings){c->options.n_cases, c->options.n_rounds, c->point_at, value};
}

static hec_medians medians_so_far(const hec_comparison *c, hec_arena *arena) {
  hec_medians medians;
  hec_readings readings = chosen_readings(c, arena);
  hec_medians_draw(&readings, c->options.seed, arena, &medians);
  return medians;
}

double hec_comparison_half_width(const hec_comparison *c) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_medians medians = medians_so_far(c, &arena);
  double max = 0;
  for (int32_t i = 0; i < c->options.n_cases; i++)
    max = fmax(max, hec_medians_half_width(&medians, c->point_at[i], c->point_at[i + 1]));
  return max;
}

double hec_comparison_level_half(const hec_comparison *c) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_medians medians = medians_so_far(c, &arena);
  double half = hec_medians_level_half(&medians, 0, c->n_points);
  return half;
}

/* ---- Predictions ---- */

/* A case at work: plans are made for the problem that was executed, times for the cluster that predicts. */
typedef struct {
  hec_comparison *all;
  int32_t a_case;
  hec_problem priced; /* of the cluster that predicts */
  hec_arena arena;
  hec_lowering *low;
  hec_sim *sim;
  hec_link_cost cost;
  hec_timeline timeline;
  hec_program broken;
  hec_predicted_stages *stages; /* NULL: there are none */
} prediction;

/* The folder of a drawing's files, where ranks have files: what the case is called, as one word, and whether it was
 * predicted or measured. Of two random configurations with one name the later has its number too. */
static void add_folder(const hec_comparison *c, int32_t a_case, const char *which, hec_text *folder) {
  const char *name = c->options.cases[a_case].name;
  bool again = false;
  for (int32_t i = 0; i < a_case; i++)
    again = again || strcmp(c->options.cases[i].name, name) == 0;
  for (const char *at = name; *at; at++)
    if (*at != ',') /* "ep, 16 tokens" */
      hec_text_add_bytes(folder, *at == ' ' || *at == '/' ? "-" : at, 1);
  if (again)
    hec_text_printf(folder, "-%" PRId32, a_case + 1);
  hec_text_printf(folder, "-%s", which);
}

static hec_status draw(const prediction *p, const hec_program *program, const hec_timeline *timeline, bool measured) {
  hec_comparison *c = p->all;
  const char *which = measured ? "measured" : "predicted";
  const hec_timeline_out out = {c->options.timelines, &c->events, c->options.pack, &c->events};
  HEC_SCOPED(hec_text) label = {0}, folder = {0};
  hec_text_printf(&label, "%s, %s", c->options.cases[p->a_case].name, which);
  add_folder(c, p->a_case, which, &folder);
  return hec_timeline_draw(&out, &(hec_drawing){.label = label.data,
                                                .folder = folder.data,
                                                .index = 2 * p->a_case + measured,
                                                .iter = c->points[drawn_point(c, p->a_case)].iter,
                                                .program = program,
                                                .timeline = timeline,
                                                .executed = measured,
                                                .beside = true});
}

static hec_status draw_both(const prediction *p, const hec_program *program) {
  const hec_timeline *measured = &p->all->drawn[p->a_case].measured;
  if (measured->n_ops != (int32_t)program->n_ops)
    return HEC_OK;
  HEC_TRY(draw(p, program, &p->timeline, false));
  return draw(p, program, measured, true);
}

/* p->timeline is its prediction. */
static hec_status predict_point(prediction *p, int32_t index, const hec_program *program, uint64_t digest) {
  hec_comparison *c = p->all;
  hec_point *point = &c->points[index];
  if (point->digest != 0 && point->digest != digest)
    return hec_fail(HEC_FAILED, "%s, iteration %" PRId64 ": the program that was executed is not the one predicted",
                    c->options.cases[p->a_case].name, point->iter);
  hec_spans_find(&c->spans, program, &p->timeline);
  add_roles(&c->spans, program, point->predicted_role_s);
  point->predicted_s = 1e-12 * (double)hec_timeline_end_ps(&p->timeline);
  for (int32_t k = 0; hec_controls[k].name; k++) /* controls break laws of operations, which pieces are not */
    point->control_s[k] = p->stages ? point->predicted_s
                                    : hec_control_predict(&hec_controls[k], &p->priced, program, &p->cost, &p->broken);
  return c->options.timelines && index == drawn_point(c, p->a_case) ? draw_both(p, program) : HEC_OK;
}

static hec_status predict_steps(prediction *p) {
  const hec_experiment_case *of = &p->all->options.cases[p->a_case];
  const hec_schedule *schedule;
  HEC_TRY(hec_schedule_of(of->policy, of->schedule, &schedule));
  p->low = hec_lowering_new(of->problem, of->policy, schedule, p->all->options.collective, &p->arena);
  p->sim = hec_sim_new(&p->priced, p->all->options.law, &p->arena);
  p->cost = hec_link_cost_new(p->priced.cluster, &p->arena);
  for (int32_t i = 0; i < of->n_steps; i++) {
    const hec_replay_step *step = &of->steps[i];
    hec_lower_iteration(p->low, step->iter, step->loads, step->n_loads, of->n_micro_batches);
    if (i < of->warmup)
      continue;
    const hec_program *program = hec_lowering_program(p->low);
    hec_sim_run(p->sim, program, (hec_sim_options){0}, &p->timeline);
    HEC_TRY(predict_point(p, p->all->point_at[p->a_case] + i - of->warmup, program, hec_program_digest(program)));
  }
  return HEC_OK;
}

static hec_status predict_stages(prediction *p) {
  const hec_experiment_case *of = &p->all->options.cases[p->a_case];
  const hec_program *program;
  uint64_t digest;
  HEC_TRY(
      hec_predicted_stages_new(of, &p->priced, p->all->options.law, p->all->options.collective, &p->arena, &p->stages));
  for (int32_t i = 0; i < of->n_steps; i++) {
    digest = hec_predicted_stages_step(p->stages, &of->steps[i], &program, &p->timeline);
    if (i >= of->warmup)
      HEC_TRY(predict_point(p, p->all->point_at[p->a_case] + i - of->warmup, program, digest));
  }
  return HEC_OK;
}

static hec_status predict_case(hec_comparison *c, int32_t a_case, const hec_cluster *cluster) {
  prediction p = {.all = c, .a_case = a_case};
  const hec_problem *executed = c->options.cases[a_case].problem;
  HEC_TRY(hec_problem_make(executed->moe, cluster, executed->train, executed->n_ranks, executed->tokens, &p.priced));
  HEC_TRY(hec_problem_group(&p.priced, executed->esp > 1 ? 0 : executed->ep));
  HEC_TRY(hec_problem_shard(&p.priced, executed->esp));
  hec_status status = c->options.cases[a_case].order ? predict_stages(&p) : predict_steps(&p);
  hec_predicted_stages_free(p.stages);
  if (p.sim)
    hec_sim_free(p.sim);
  hec_lowering_free(p.low);
  hec_link_cost_free(&p.cost);
  hec_timeline_free(&p.timeline);
  free(p.broken.transfers);
  hec_arena_free(&p.arena);
  return status;
}

/* ---- The comparison ---- */

/* Of the readings of a point that count. */
static void settle(hec_comparison *c, const hec_readings *chosen, int32_t index, double *scratch) {
  hec_point *point = &c->points[index];
  int32_t n_rounds, n = 0;
  const hec_round_reading *readings = readings_of(c, index, &n_rounds);
  const double *value = chosen->value + (size_t)index * (size_t)n_rounds;
  point->n_read = point->n_clean = 0;
  for (int32_t k = 0; k < n_rounds; k++) {
    point->n_read += readings[k].total_s > 0;
    point->n_clean += readings[k].total_s > 0 && readings[k].disturbance <= 1;
    if (value[k] > 0)
      scratch[n++] = value[k];
  }
  point->conclusive = n > 0;
  point->measured_s = c->medians.middle[index];
  if (n == 0)
    return;
  point->spread = (hec_quantile(scratch, n, 0.75) - hec_quantile(scratch, n, 0.25)) / point->measured_s;
  for (int32_t role = -1; role < HEC_N_ROLES; role++) {
    n = 0;
    for (int32_t k = 0; k < n_rounds; k++)
      if (value[k] > 0)
        scratch[n++] = role < 0 ? readings[k].raw_s : readings[k].role_s[role];
    *(role < 0 ? &point->raw_s : &point->measured_role_s[role]) = hec_median(scratch, n);
  }
}

/* Predictions and measurements of executed points first .. last, into two arrays. */
static int32_t pairs_of(const hec_comparison *c, int32_t first, int32_t last, double *pairs[2]) {
  int32_t n = 0;
  for (int32_t i = first; i < last; i++)
    if (c->points[i].conclusive) {
      pairs[0][n] = c->points[i].predicted_s;
      pairs[1][n++] = c->points[i].measured_s;
    }
  return n;
}

static void finish_case(hec_comparison *c, int32_t a_case, const double *predicted, const double *scale,
                        double *pairs[2]) {
  hec_compared_case *of = &c->by_case[a_case];
  int32_t first = c->point_at[a_case], last = c->point_at[a_case + 1];
  double drawn[HEC_DRAWS];
  *of = (hec_compared_case){.a_case = &c->options.cases[a_case], .measured = {NAN, NAN}, .n_points = last - first};
  of->n_conclusive = pairs_of(c, first, last, pairs);
  if (of->n_conclusive == 0)
    return;
  of->predicted_s = hec_median(pairs[0], of->n_conclusive);
  of->measured_s = hec_median(pairs[1], of->n_conclusive);
  of->range = hec_error_range_of(predicted, &c->medians, first, last, NULL, scale);
  of->error = of->range.error;
  if (hec_medians_level(&c->medians, first, last, drawn)) {
    of->measured = hec_interval_of(1, drawn, HEC_DRAWS);
    of->measured.low *= of->measured_s;
    of->measured.high *= of->measured_s;
  }
}

/* ---- The ranking ---- */

/* Two cases over the points that both have (iterations differ in their loads, so others would not compare). */
typedef struct {
  double predicted; /* ratio of the medians, first over second */
  hec_contest measured;
} duel;

/* false: they have no point in common, or executed the same programs there, which have no order. */
static bool meet(const hec_comparison *c, int32_t i, int32_t j, duel *out) {
  HEC_SCOPED(hec_arena) arena = {0};
  int32_t first[2] = {c->point_at[i], c->point_at[j]}, n = 0;
  int32_t max = c->by_case[i].n_points < c->by_case[j].n_points ? c->by_case[i].n_points : c->by_case[j].n_points;
  int32_t *row[2] = {HEC_NEW(&arena, int32_t, max), HEC_NEW(&arena, int32_t, max)};
  double *predicted[2] = {HEC_NEW(&arena, double, max), HEC_NEW(&arena, double, max)};
  bool differ = false;
  for (int32_t k = 0; k < max; k++) {
    const hec_point *point[2] = {&c->points[first[0] + k], &c->points[first[1] + k]};
    if (!point[0]->conclusive || !point[1]->conclusive)
      continue;
    differ = differ || point[0]->digest != point[1]->digest;
    for (int32_t side = 0; side < 2; side++) {
      row[side][n] = first[side] + k;
      predicted[side][n] = point[side]->predicted_s;
    }
    n++;
  }
  if (n > 0)
    *out = (duel){hec_median(predicted[0], n) / hec_median(predicted[1], n),
                  hec_contest_of(&c->medians, row[0], row[1], n)};
  return n > 0 && differ;
}

static void judge_pair(hec_comparison *c, const duel *d) {
  double measured = d->measured.ratio;
  bool right = (d->predicted > 1 && measured > 1) || (d->predicted < 1 && measured < 1);
  c->n_pairs++;
  if (!d->measured.apart) {
    c->n_not_apart++;
    return;
  }
  c->n_right += right;
  c->n_wrong += !right;
  if (fmax(measured, 1 / measured) - 1 <= HEC_APART)
    return;
  c->ranking.pairs++;
  c->ranking.wrong += !right;
}

static void find_regret(hec_comparison *c, double *pairs[2]) {
  int32_t n = 0, *index = HEC_NEW(c->arena, int32_t, c->options.n_cases);
  duel d;
  for (int32_t i = 0; i < c->options.n_cases; i++)
    if (c->by_case[i].n_conclusive > 0) {
      pairs[0][n] = c->by_case[i].predicted_s;
      pairs[1][n] = c->by_case[i].measured_s;
      index[n++] = i;
    }
  c->n_ranked = n;
  if (n == 0)
    return;
  c->regret = hec_regret(pairs[0], pairs[1], n, &c->chosen, &c->best);
  c->chosen = index[c->chosen];
  c->best = index[c->best];
  c->regret_known = c->chosen == c->best;
  if (!c->regret_known && meet(c, c->chosen, c->best, &d)) {
    c->regret = fmax(d.measured.ratio - 1, 0);
    c->regret_known = d.measured.apart;
  }
}

static void rank_cases(hec_comparison *c, double *pairs[2]) {
  duel d;
  c->ranking.pairs = c->ranking.wrong = 0;
  c->n_pairs = c->n_right = c->n_wrong = c->n_not_apart = 0;
  for (int32_t i = 0; i < c->options.n_cases; i++)
    for (int32_t j = 0; j < i; j++)
      if (meet(c, i, j, &d))
        judge_pair(c, &d);
  int32_t n = c->n_right + c->n_wrong;
  c->kendall_tau = n > 0 ? (double)(c->n_right - c->n_wrong) / n : 1;
  n = c->ranking.pairs;
  c->ranking.tau = n > 0 ? (double)(n - 2 * c->ranking.wrong) / n : 1;
  find_regret(c, pairs);
}

static void try_controls(hec_comparison *c, const double *scale) {
  bool *matters = HEC_NEW(c->arena, bool, c->n_points);
  double *predicted = HEC_NEW(c->arena, double, c->n_points);
  for (c->n_controls = 0; hec_controls[c->n_controls].name; c->n_controls++) {
    hec_compared_control *k = &c->controls[c->n_controls];
    for (int32_t i = 0; i < c->n_points; i++) {
      predicted[i] = c->points[i].control_s[c->n_controls];
      matters[i] = fabs(predicted[i] / c->points[i].predicted_s - 1) >= HEC_CONTROL_TERM;
    }
    hec_error_range r = hec_error_range_of(predicted, &c->medians, 0, c->n_points, matters, scale);
    *k = (hec_compared_control){&hec_controls[c->n_controls], r.error.n, r.error, r.median};
  }
}

static void count_readings(hec_comparison *c) {
  int32_t n_clean = 0;
  c->n_read = c->n_max = c->n_conclusive = 0;
  c->n_min = c->n_points > 0 ? c->points[0].n_read : 0;
  for (int32_t i = 0; i < c->n_points; i++) {
    int32_t n = c->points[i].n_read;
    n_clean += c->points[i].n_clean;
    c->n_conclusive += c->points[i].conclusive;
    c->n_read += n;
    c->n_min = n < c->n_min ? n : c->n_min;
    c->n_max = n > c->n_max ? n : c->n_max;
  }
  c->disturbed = c->n_read > 0 ? 1 - (double)n_clean / c->n_read : 0;
}

static hec_status predict_all(hec_comparison *c, const hec_cluster *cluster) {
  const hec_timeline_out drawn = {.format = c->options.timelines, .text = &c->events};
  if (drawn.format)
    hec_timeline_begin(&drawn);
  for (int32_t i = 0; i < c->options.n_cases; i++)
    HEC_TRY(predict_case(c, i, cluster));
  if (drawn.format)
    hec_timeline_end(&drawn);
  return HEC_OK;
}

hec_status hec_comparison_finish(hec_comparison *c, const hec_cluster *cluster, const double *scale) {
  int32_t max = c->n_points + c->options.n_rounds + c->options.n_cases, n = 0;
  double *pairs[2] = {HEC_NEW(c->arena, double, max), HEC_NEW(c->arena, double, max)};
  double *predicted = HEC_NEW(c->arena, double, c->n_points);
  hec_readings chosen = chosen_readings(c, c->arena);
  hec_medians_draw(&chosen, c->options.seed, c->arena, &c->medians);
  HEC_TRY(predict_all(c, cluster));
  for (int32_t i = 0; i < c->n_points; i++) {
    settle(c, &chosen, i, pairs[0]);
    predicted[i] = c->points[i].predicted_s;
  }
  count_readings(c);
  for (int32_t i = 0; i < c->options.n_cases; i++)
    finish_case(c, i, predicted, scale, pairs);
  c->range = hec_error_range_of(predicted, &c->medians, 0, c->n_points, NULL, scale);
  c->error = c->range.error;
  for (int32_t i = 0; i < c->n_points; i++)
    if (c->points[i].conclusive) {
      pairs[0][n] = predicted[i];
      pairs[1][n++] = c->points[i].raw_s;
    }
  if (n > 0)
    c->raw = hec_error_of(pairs[0], pairs[1], n);
  try_controls(c, scale);
  rank_cases(c, pairs);
  return HEC_OK;
}
