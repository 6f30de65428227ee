/* Readings are kept as they come; predictions are made when all have been taken, each by planning and lowering the case's
 * iterations again and simulating them. Per point: one lowering, one simulation, one walk per control. */
#include "validate/compare/compare.h"

#include "runtime/base/arena.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int32_t rounds_most(const hec_comparison *c) {
  return c->options.n_rounds + c->options.n_extra;
}

void hec_comparison_open(hec_comparison *c, const hec_comparison_options *o, hec_arena *arena) {
  *c = (hec_comparison){.options = *o, .arena = arena};
  c->point_at = HEC_NEW(arena, int32_t, o->n_cases + 1);
  for (int32_t i = 0; i < o->n_cases; i++)
    c->point_at[i + 1] = c->point_at[i] + o->cases[i].n_steps - o->cases[i].warmup;
  c->n_points = c->point_at[o->n_cases];
  c->points = HEC_NEW(arena, hec_point, c->n_points);
  c->readings = HEC_NEW(arena, hec_round_reading, (size_t)c->n_points * (size_t)rounds_most(c));
  c->by_case = HEC_NEW(arena, hec_compared_case, o->n_cases);
  c->drawn = HEC_NEW(arena, hec_drawn, o->n_cases);
  for (int32_t i = 0; i < o->n_cases; i++)
    for (int32_t k = c->point_at[i]; k < c->point_at[i + 1]; k++)
      c->points[k].a_case = i;
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

void hec_comparison_add(hec_comparison *c, const hec_lab_reading *reading, const hec_replayed *iteration) {
  const hec_lab_case *of = &c->options.cases[reading->a_case];
  const hec_program *program = hec_lowering_program(iteration->low);
  int32_t index = c->point_at[reading->a_case] + (int32_t)(iteration->step - of->steps) - of->warmup;
  hec_point *point = &c->points[index];
  hec_round_reading *kept = &c->readings[(size_t)index * (size_t)rounds_most(c) + (size_t)reading->round];
  uint64_t digest = hec_program_digest(program);
  HEC_ASSERT(point->digest == 0 || point->digest == digest); /* plans are functions of the loads alone */
  point->digest = digest;
  point->iter = iteration->step->iter;
  hec_spans_find(&c->spans, program, iteration->timeline);
  add_roles(&c->spans, program, kept->role_s);
  kept->total_s = 1e-12 * (double)hec_timeline_end_ps(iteration->timeline);
  kept->clean = reading->clean;
  kept->pace = reading->pace;
  if (c->options.timelines && index == drawn_point(c, reading->a_case))
    keep_timeline(iteration->timeline, &c->drawn[reading->a_case].measured);
}

const hec_round_reading *hec_comparison_readings(const hec_comparison *c, int32_t point, int32_t *n) {
  *n = rounds_most(c);
  return &c->readings[(size_t)point * (size_t)*n];
}

/* Readings that a point needs. */
static int32_t clean_least(const hec_comparison *c) {
  int32_t half = (c->options.n_rounds + 1) / 2;
  return half < HEC_CLEAN_LEAST ? half : HEC_CLEAN_LEAST;
}

static void count(const hec_comparison *c, int32_t point, int32_t *n_read, int32_t *n_clean) {
  int32_t n_rounds;
  const hec_round_reading *readings = hec_comparison_readings(c, point, &n_rounds);
  *n_read = *n_clean = 0;
  for (int32_t k = 0; k < n_rounds; k++) {
    *n_read += readings[k].total_s > 0;
    *n_clean += readings[k].clean;
  }
}

bool hec_comparison_settled(const hec_comparison *c, int32_t a_case) {
  int32_t n_points = c->point_at[a_case + 1] - c->point_at[a_case], n_conclusive = 0, n_read, n_clean;
  for (int32_t i = c->point_at[a_case]; i < c->point_at[a_case + 1]; i++) {
    count(c, i, &n_read, &n_clean);
    n_conclusive += n_clean >= clean_least(c);
  }
  return 2 * n_conclusive > n_points;
}

/* ---- Predictions ---- */

/* A case at work: plans are made for the problem that was executed, times for the cluster that predicts. */
typedef struct {
  hec_comparison *all;
  int32_t a_case;
  hec_problem priced;         /* of the cluster that predicts */
  hec_cluster slower_cluster; /* the same, its cores slower */
  hec_problem slower;
  hec_arena arena;
  hec_lowering *low;
  hec_sim *sim, *slower_sim;
  hec_link_cost cost;
  hec_timeline timeline;
  hec_program broken;
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
  hec_text label = {0}, folder = {0};
  hec_text_printf(&label, "%s, %s", c->options.cases[p->a_case].name, which);
  add_folder(c, p->a_case, which, &folder);
  hec_status status = hec_timeline_draw(&out, &(hec_drawing){.label = label.data,
                                                             .folder = folder.data,
                                                             .index = 2 * p->a_case + measured,
                                                             .iter = c->points[drawn_point(c, p->a_case)].iter,
                                                             .program = program,
                                                             .timeline = timeline,
                                                             .executed = measured,
                                                             .beside = true});
  hec_text_free(&label);
  hec_text_free(&folder);
  return status;
}

static hec_status draw_both(const prediction *p, const hec_program *program) {
  const hec_timeline *measured = &p->all->drawn[p->a_case].measured;
  if (measured->n_ops != (int32_t)program->n_ops)
    return HEC_OK;
  HEC_TRY(draw(p, program, &p->timeline, false));
  return draw(p, program, measured, true);
}

static hec_status predict_point(prediction *p, int32_t index) {
  hec_comparison *c = p->all;
  hec_point *point = &c->points[index];
  const hec_program *program = hec_lowering_program(p->low);
  if (point->digest != hec_program_digest(program))
    return hec_fail(HEC_FAILED, "%s, iteration %" PRId64 ": the program that was executed is not the one predicted",
                    c->options.cases[p->a_case].name, point->iter);
  hec_sim_run(p->slower_sim, program, (hec_sim_options){0}, &p->timeline);
  point->slower_s = 1e-12 * (double)hec_timeline_end_ps(&p->timeline);
  hec_sim_run(p->sim, program, (hec_sim_options){0}, &p->timeline);
  hec_spans_find(&c->spans, program, &p->timeline);
  add_roles(&c->spans, program, point->predicted_role_s);
  point->predicted_s = 1e-12 * (double)hec_timeline_end_ps(&p->timeline);
  for (int32_t k = 0; hec_controls[k].name; k++)
    point->control_s[k] = hec_control_predict(&hec_controls[k], &p->priced, program, &p->cost, &p->broken);
  return c->options.timelines && index == drawn_point(c, p->a_case) ? draw_both(p, program) : HEC_OK;
}

static hec_status predict_steps(prediction *p) {
  const hec_lab_case *of = &p->all->options.cases[p->a_case];
  const hec_schedule *schedule;
  HEC_TRY(hec_schedule_of(of->policy, of->schedule, &schedule));
  p->low = hec_lowering_new(of->problem, of->policy, schedule, p->all->options.collective, &p->arena);
  p->sim = hec_sim_new(&p->priced, p->all->options.law, &p->arena);
  p->slower_sim = hec_sim_new(&p->slower, p->all->options.law, &p->arena);
  p->cost = hec_link_cost_new(p->priced.cluster, &p->arena);
  for (int32_t i = 0; i < of->n_steps; i++) {
    const hec_replay_step *step = &of->steps[i];
    hec_lower_iteration(p->low, step->iter, step->loads, step->n_loads, of->n_micro_batches);
    if (i >= of->warmup)
      HEC_TRY(predict_point(p, p->all->point_at[p->a_case] + i - of->warmup));
  }
  return HEC_OK;
}

static hec_status predict_case(hec_comparison *c, int32_t a_case, const hec_cluster *cluster) {
  prediction p = {.all = c, .a_case = a_case};
  const hec_problem *executed = c->options.cases[a_case].problem;
  HEC_TRY(hec_problem_make(executed->moe, cluster, executed->train, executed->n_ranks, executed->tokens, &p.priced));
  HEC_TRY(hec_problem_group(&p.priced, executed->esp > 1 ? 0 : executed->ep));
  HEC_TRY(hec_problem_shard(&p.priced, executed->esp));
  p.slower_cluster = *cluster;
  p.slower_cluster.devices = HEC_NEW(&p.arena, hec_device, cluster->n_devices);
  memcpy(p.slower_cluster.devices, cluster->devices, (size_t)cluster->n_devices * sizeof *cluster->devices);
  for (int32_t i = 0; i < cluster->n_devices; i++)
    p.slower_cluster.devices[i].speed *= HEC_PACE_TRIED;
  p.slower = p.priced;
  p.slower.cluster = &p.slower_cluster;
  hec_status status = predict_steps(&p);
  if (p.sim)
    hec_sim_free(p.sim);
  if (p.slower_sim)
    hec_sim_free(p.slower_sim);
  hec_lowering_free(p.low);
  hec_link_cost_free(&p.cost);
  hec_timeline_free(&p.timeline);
  free(p.broken.transfers);
  hec_arena_free(&p.arena);
  return status;
}

/* ---- The comparison ---- */

/* What a reading would be at pace 1: times are linear in the pace. */
static double at_pace_1(const hec_point *point, const hec_round_reading *reading) {
  double per_pace = (point->slower_s - point->predicted_s) / (1 / HEC_PACE_TRIED - 1);
  double predicted = point->predicted_s + per_pace * (reading->pace - 1);
  return predicted > 0 ? reading->total_s * (point->predicted_s / predicted) : reading->total_s;
}

/* Medians of the readings that count; their number. */
static void settle(const hec_comparison *c, int32_t index, double *scratch) {
  hec_point *point = &c->points[index];
  int32_t n_rounds, n = 0;
  const hec_round_reading *readings = hec_comparison_readings(c, index, &n_rounds);
  count(c, index, &point->n_read, &point->n_clean);
  point->conclusive = point->n_clean >= clean_least(c);
  if (point->n_clean == 0)
    return;
  for (int32_t k = 0; k < n_rounds; k++)
    if (readings[k].clean)
      scratch[n++] = readings[k].total_s;
  point->raw_s = hec_median(scratch, n);
  n = 0;
  for (int32_t k = 0; k < n_rounds; k++)
    if (readings[k].clean)
      scratch[n++] = at_pace_1(point, &readings[k]);
  point->measured_s = hec_median(scratch, n);
  point->spread = (hec_quantile(scratch, n, 0.75) - hec_quantile(scratch, n, 0.25)) / point->measured_s;
  for (int32_t role = 0; role < HEC_N_ROLES; role++) {
    n = 0;
    for (int32_t k = 0; k < n_rounds; k++)
      if (readings[k].clean)
        scratch[n++] = readings[k].role_s[role];
    point->measured_role_s[role] = hec_median(scratch, n);
  }
}

/* Predictions (control < 0: the simulator's) and measurements of conclusive points first .. last, into two arrays. */
static int32_t pairs_of(const hec_comparison *c, int32_t first, int32_t last, int32_t control, double *pairs[2]) {
  int32_t n = 0;
  for (int32_t i = first; i < last; i++) {
    const hec_point *p = &c->points[i];
    if (!p->conclusive || (control >= 0 && fabs(p->control_s[control] / p->predicted_s - 1) < HEC_CONTROL_TERM))
      continue;
    pairs[0][n] = control < 0 ? p->predicted_s : p->control_s[control];
    pairs[1][n++] = p->measured_s;
  }
  return n;
}

static void finish_case(hec_comparison *c, int32_t a_case, double *pairs[2]) {
  hec_compared_case *of = &c->by_case[a_case];
  int32_t first = c->point_at[a_case], last = c->point_at[a_case + 1];
  *of = (hec_compared_case){.a_case = &c->options.cases[a_case], .n_points = last - first};
  of->n_conclusive = pairs_of(c, first, last, -1, pairs);
  if (of->n_conclusive == 0)
    return;
  of->predicted_s = hec_median(pairs[0], of->n_conclusive);
  of->measured_s = hec_median(pairs[1], of->n_conclusive);
  of->error = hec_error_of(pairs[0], pairs[1], of->n_conclusive);
  for (int32_t i = first; i < last; i++)
    for (int32_t role = 0; c->points[i].conclusive && role < HEC_N_ROLES; role++) {
      of->predicted_role_s[role] += c->points[i].predicted_role_s[role] / of->n_conclusive;
      of->measured_role_s[role] += c->points[i].measured_role_s[role] / of->n_conclusive;
    }
}

/* The middle half of the rounds of a case: how far its measurement can be told from another's. */
static void find_middle(hec_comparison *c, int32_t a_case, double *scratch[2]) {
  hec_compared_case *of = &c->by_case[a_case];
  int32_t n_known = 0;
  of->low_s = 0;
  of->high_s = INFINITY;
  for (int32_t round = 0; round < rounds_most(c); round++) {
    int32_t n = 0;
    for (int32_t i = c->point_at[a_case]; i < c->point_at[a_case + 1]; i++) {
      const hec_round_reading *reading = &c->readings[(size_t)i * (size_t)rounds_most(c) + (size_t)round];
      if (c->points[i].conclusive && reading->clean)
        scratch[0][n++] = at_pace_1(&c->points[i], reading) / c->points[i].measured_s;
    }
    if (n > 0)
      scratch[1][n_known++] = hec_median(scratch[0], n) * of->measured_s;
  }
  if (n_known > 1) {
    of->low_s = hec_quantile(scratch[1], n_known, 0.25);
    of->high_s = hec_quantile(scratch[1], n_known, 0.75);
  }
}

/* Two cases where both were measured: medians over the points that are conclusive in both (iterations differ in their
 * loads, so others would not compare), and how far each measurement scatters. */
typedef struct {
  double predicted[2], measured[2], low[2], high[2];
} contest;

/* Of the points that two cases have in common; false: there is none, or the two executed the same programs there, which
 * have no order. */
static bool meet(const hec_comparison *c, int32_t i, int32_t j, double *pairs[2], contest *out) {
  const int32_t which[2] = {i, j};
  bool differ = false;
  for (int32_t side = 0; side < 2; side++) {
    const hec_compared_case *of = &c->by_case[which[side]];
    int32_t n = 0, n_points = of->n_points < c->by_case[which[!side]].n_points ? of->n_points
                                                                               : c->by_case[which[!side]].n_points;
    for (int32_t k = 0; k < n_points; k++) {
      const hec_point *own = &c->points[c->point_at[which[side]] + k];
      const hec_point *other = &c->points[c->point_at[which[!side]] + k];
      if (!own->conclusive || !other->conclusive)
        continue;
      differ = differ || own->digest != other->digest;
      pairs[0][n] = own->predicted_s;
      pairs[1][n++] = own->measured_s;
    }
    if (n == 0)
      return false;
    out->predicted[side] = hec_median(pairs[0], n);
    out->measured[side] = hec_median(pairs[1], n);
    out->low[side] = out->measured[side] * (of->low_s / of->measured_s);
    out->high[side] = out->measured[side] * (of->high_s / of->measured_s);
  }
  return differ;
}

static void judge_pair(hec_comparison *c, const contest *pair, int32_t *agree) {
  const hec_measured_range range = {pair->low, pair->high};
  hec_ranking far = hec_ranking_of(pair->predicted, pair->measured, 2, HEC_APART, &range);
  hec_pairs all = hec_pairs_of(pair->predicted, pair->measured, 2, &range);
  c->ranking.pairs += far.pairs;
  c->ranking.wrong += far.wrong;
  c->ranking.wrong_close += far.wrong_close;
  c->pairs.right += all.right;
  c->pairs.wrong += all.wrong;
  c->pairs.close += all.close;
  *agree += hec_ranking_of(pair->predicted, pair->measured, 2, 0, NULL).wrong ? -1 : 1;
}

static void rank_cases(hec_comparison *c, double *pairs[2]) {
  int32_t n = 0, agree = 0, n_cases = c->options.n_cases;
  int32_t *index = HEC_NEW(c->arena, int32_t, n_cases);
  contest pair;
  for (int32_t i = 0; i < n_cases; i++)
    find_middle(c, i, pairs);
  c->ranking = (hec_ranking){.tau = 1};
  c->pairs = (hec_pairs){0};
  c->n_pairs = 0;
  for (int32_t i = 0; i < n_cases; i++)
    for (int32_t j = 0; j < i; j++)
      if (meet(c, i, j, pairs, &pair)) {
        judge_pair(c, &pair, &agree);
        c->n_pairs++;
      }
  c->kendall_tau = c->n_pairs > 0 ? (double)agree / c->n_pairs : 1;
  if (c->ranking.pairs > 0)
    c->ranking.tau = (double)(c->ranking.pairs - 2 * (int64_t)c->ranking.wrong) / c->ranking.pairs;
  for (int32_t i = 0; i < n_cases; i++)
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
  if (c->chosen != c->best && meet(c, c->chosen, c->best, pairs, &pair))
    c->regret = fmax(pair.measured[0] / pair.measured[1] - 1, 0);
}

static void try_controls(hec_comparison *c, double *pairs[2]) {
  for (c->n_controls = 0; hec_controls[c->n_controls].name; c->n_controls++) {
    hec_compared_control *k = &c->controls[c->n_controls];
    *k = (hec_compared_control){.control = &hec_controls[c->n_controls]};
    k->n = pairs_of(c, 0, c->n_points, c->n_controls, pairs);
    if (k->n > 0)
      k->error = hec_error_of(pairs[0], pairs[1], k->n);
  }
}

hec_status hec_comparison_finish(hec_comparison *c, const hec_cluster *cluster) {
  int32_t most = c->n_points + rounds_most(c) + c->options.n_cases, n_clean = 0;
  c->n_read = c->n_most = 0;
  double *pairs[2] = {HEC_NEW(c->arena, double, most), HEC_NEW(c->arena, double, most)};
  const hec_timeline_out drawn = {.format = c->options.timelines, .text = &c->events};
  if (drawn.format)
    hec_timeline_begin(&drawn);
  for (int32_t i = 0; i < c->options.n_cases; i++)
    HEC_TRY(predict_case(c, i, cluster));
  if (drawn.format)
    hec_timeline_end(&drawn);
  for (int32_t i = 0; i < c->n_points; i++) {
    settle(c, i, pairs[0]);
    n_clean += c->points[i].n_clean;
    c->n_read += c->points[i].n_read;
    c->n_most = c->points[i].n_read > c->n_most ? c->points[i].n_read : c->n_most;
  }
  c->disturbed = c->n_read > 0 ? 1 - (double)n_clean / c->n_read : 0;
  for (int32_t i = 0; i < c->options.n_cases; i++)
    finish_case(c, i, pairs);
  c->n_conclusive = pairs_of(c, 0, c->n_points, -1, pairs);
  if (c->n_conclusive > 0)
    c->error = hec_error_of(pairs[0], pairs[1], c->n_conclusive);
  for (int32_t i = 0, n = 0; i < c->n_points; i++)
    if (c->points[i].conclusive)
      pairs[1][n++] = c->points[i].raw_s;
  if (c->n_conclusive > 0)
    c->raw = hec_error_of(pairs[0], pairs[1], c->n_conclusive);
  try_controls(c, pairs);
  rank_cases(c, pairs);
  return HEC_OK;
}
