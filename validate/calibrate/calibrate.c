/* Cases: loads of two skews at the full, half and quarter number of tokens under plain expert parallelism. And FSSDP under
 * the serial schedule, for gathers, scatters and reductions. Some seconds in all. */
#include "validate/calibrate/calibrate.h"

#include "runtime/base/arena.h"

#include "runtime/plan/problem.h"
#include "validate/resample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 4, SKEWS = 2, STEPS = 4, WARMUP = 1 };
static const double skew_of[SKEWS] = {0.4, 1.3};
/* Policies that move parameters: guests, slices, replicas and migration (decided every iteration here). */
static const char *const moving[] = {"hecate", "fsdp", "eplb", NULL};
enum { N_MOVING = sizeof moving / sizeof *moving - 1 };

static hec_status add_case(hec_calibration *c, int32_t tokens, double sigma, const char *policy, hec_arena *arena) {
  const hec_calibrate_options *o = &c->options;
  const hec_model *model = o->model;
  hec_problem *problem = HEC_NEW(arena, hec_problem, 1);
  hec_experiment_case *one = &c->cases[c->n_cases];
  HEC_TRY(hec_problem_make(&model->moe, o->base, o->train, o->n_ranks, tokens, problem));
  HEC_TRY(hec_problem_shard(problem, o->esp > 1 ? o->esp : 1));
  problem->t = (model->n_experts + 1) / 2;
  problem->m = model->n_experts;
  problem->period = 1;
  problem->slots = HEC_AUTO;
  *one = (hec_experiment_case){.model = model,
                               .problem = problem,
                               .policy = hec_policy_find(policy),
                               .schedule = "serial",
                               .n_steps = STEPS,
                               .n_micro_batches = 1,
                               .warmup = WARMUP};
  HEC_ASSERT(one->policy != NULL);
  (void)snprintf(one->name, sizeof one->name, "%s, serial, %d tokens, synthetic log-normal loads, sigma %g", policy,
                 (int)tokens, sigma);
  hec_experiment_loads wish = {.n_layers = model->n_blocks,
                               .n_experts = model->n_experts,
                               .top_k = model->top_k,
                               .n_ranks = o->n_ranks,
                               .tokens = tokens,
                               .n_steps = STEPS,
                               .sigma = sigma,
                               .seed = o->seed + 7919 * (uint64_t)c->n_cases};
  HEC_TRY(hec_experiment_draw(&wish, arena, &one->steps));
  c->n_cases++;
  return HEC_OK;
}

/* One class of links each, all links of a class alike: that is what is scaled. */
static hec_status check_base(const hec_cluster *c) {
  for (int32_t i = 0; i < c->n_links; i++) {
    const hec_link *link = &c->links[i], *first = link;
    for (int32_t k = 0; k < i && first == link; k++)
      first = c->links[k].kind == link->kind ? &c->links[k] : first;
    if (link->kind == HEC_LINK_LEAF_UP || link->kind == HEC_LINK_LEAF_DOWN)
      return hec_fail(HEC_BAD_INPUT, "cluster %s: calibration knows no leaf uplinks; leave \"leaf\" out", c->name);
    if (link->bandwidth < first->bandwidth || link->bandwidth > first->bandwidth ||
        link->latency_ps != first->latency_ps)
      return hec_fail(HEC_BAD_INPUT, "cluster %s: calibration needs all links of a class alike", c->name);
  }
  for (int32_t i = 0; i < c->n_devices; i++)
    if (c->devices[i].speed < 1 || c->devices[i].speed > 1)
      return hec_fail(HEC_BAD_INPUT, "cluster %s: calibration measures the devices, expected no slow ones", c->name);
  return HEC_OK;
}

hec_status hec_calibration_open(hec_calibration *c, const hec_calibrate_options *options, hec_arena *arena) {
  *c = (hec_calibration){.options = *options, .cases = HEC_NEW(arena, hec_experiment_case, SIZES * SKEWS + N_MOVING)};
  int32_t tokens = options->tokens;
  HEC_TRY(check_base(options->base));
  for (int32_t size = 0; size < SIZES && tokens >= 1; size++, tokens /= 2)
    for (int32_t skew = 0; skew < SKEWS; skew++)
      HEC_TRY(add_case(c, tokens, skew_of[skew], "ep", arena));
  for (int32_t i = 0; options->n_ranks > 1 && options->esp <= 1 && moving[i]; i++) /* shards never move */
    HEC_TRY(add_case(c, options->tokens, skew_of[1], moving[i], arena));
  c->links = hec_link_cost_new(options->base, arena);
  c->samples.between_hosts = options->n_ranks > options->base->devices_per_node;
  return HEC_OK;
}

static void set_class(hec_cluster *c, hec_link_kind out, hec_link_kind in, const hec_link_growth *found) {
  for (int32_t i = 0; found->bandwidth > 0 && i < c->n_links; i++) {
    hec_link *link = &c->links[i];
    if (link->kind != out && link->kind != in)
      continue;
    link->bandwidth = link->whole = link->nominal = found->bandwidth;
    link->latency_ps = link->kind == out ? (int64_t)llround(1e12 * found->latency_s) : 0;
  }
}

void hec_calibration_set_links(hec_calibration *c, const hec_links_found *found, hec_arena *arena) {
  hec_cluster *own = HEC_NEW(arena, hec_cluster, 1);
  *own = *c->options.base;
  own->links = HEC_NEW(arena, hec_link, own->n_links);
  memcpy(own->links, c->options.base->links, (size_t)own->n_links * sizeof *own->links);
  set_class(own, HEC_LINK_PORT_OUT, HEC_LINK_PORT_IN, &found->port);
  set_class(own, HEC_LINK_NIC_OUT, HEC_LINK_NIC_IN, &found->nic);
  c->options.base = own;
  hec_link_cost_free(&c->links);
  c->links = hec_link_cost_new(own, arena);
  c->known = *found;
}

void hec_calibration_add(hec_calibration *c, const hec_problem *problem, const hec_experiment_reading *reading,
                         const hec_replayed *iteration) {
  const hec_experiment_case *of = &c->cases[reading->a_case];
  int32_t step = (int32_t)(iteration->step - of->steps) - of->warmup;
  HEC_RESERVE(c->readings, c->readings_capacity, (size_t)c->n_read + 1);
  c->readings[c->n_read] = (hec_calibration_reading){reading->a_case, step, reading->disturbance};
  c->n_undisturbed += hec_experiment_undisturbed(reading);
  hec_samples_add(&c->samples, problem, iteration, c->n_read++, &c->links);
}

void hec_calibration_close(hec_calibration *c) {
  hec_samples_free(&c->samples);
  hec_link_cost_free(&c->links);
  free(c->readings);
  c->readings = NULL;
}

/* ---- Fits ---- */

#define COMM_SHARE_MAX 0.98 /* some computing goes on whatever is moved; a cluster file allows 0.99 */

static hec_status fit_set(hec_calibration *c, const hec_sample_set *set, hec_arena *arena) {
  hec_observations observed = {.n = set->n, .x_at = set->x_at, .x = set->x, .y = set->y};
  hec_fit_options options = {.n_knots = 12, .floor = hec_curve_has_rows(set->kind)};
  hec_calibrated_curve *curve = &c->curves[c->n_curves];
  *curve = (hec_calibrated_curve){set->kind, set->backward, set->flops_per_row, {0}};
  if (set->n == 0)
    return HEC_OK;
  HEC_TRY(hec_fit_curve(&observed, &options, arena, &curve->fit));
  c->n_curves++;
  return HEC_OK;
}

/* All exchanges together scale the links, which is what planners see, unless these were measured by themselves. What each
 * kind then takes of that is a curve: some add what they receive, some move rows, some whole experts. */
static hec_status fit_links(hec_calibration *c, hec_arena *arena) {
  int32_t n = 0;
  for (int32_t k = 0; k < HEC_N_CURVE_KINDS; k++)
    n += c->samples.exchange[k].n;
  double *x = HEC_NEW(arena, double, n), *y = HEC_NEW(arena, double, n);
  n = 0;
  for (int32_t k = 0; k < HEC_N_CURVE_KINDS; k++) {
    const hec_sample_pairs *pairs = &c->samples.exchange[k];
    for (int32_t i = 0; i < pairs->n; i++, n++) {
      x[n] = pairs->x[i];
      y[n] = pairs->y[i];
    }
  }
  return n > 0 ? hec_fit_line(x, y, n, arena, &c->exchange) : HEC_OK;
}

static hec_status fit_exchange(hec_calibration *c, hec_curve_kind kind, hec_arena *arena) {
  const hec_sample_pairs *pairs = &c->samples.exchange[kind];
  hec_calibrated_curve *curve = &c->curves[c->n_curves];
  hec_fit_options options = {.n_knots = 8};
  int32_t *x_at = HEC_NEW(arena, int32_t, pairs->n + 1);
  double *x = HEC_NEW(arena, double, pairs->n);
  if (pairs->n == 0)
    return HEC_OK;
  for (int32_t i = 0; i < pairs->n; i++) {
    x_at[i + 1] = i + 1;
    x[i] = c->exchange.a + c->exchange.b * pairs->x[i];
  }
  hec_observations observed = {.n = pairs->n, .x_at = x_at, .x = x, .y = pairs->y};
  *curve = (hec_calibrated_curve){.kind = kind};
  HEC_TRY(hec_fit_curve(&observed, &options, arena, &curve->fit));
  for (int32_t j = 0; c->samples.between_hosts && j < curve->fit.n_knots; j++)
    curve->fit.y[j] = fmax(curve->fit.y[j], curve->fit.x[j]); /* never less than its links take: links.h */
  c->n_curves++;
  return HEC_OK;
}

static hec_status fit_exchanges(hec_calibration *c, hec_arena *arena) {
  c->exchange = (hec_line){.b = 1};
  if (c->options.virtual_time)
    return HEC_OK;
  if (c->known.nic.n > 0)
    c->exchange = hec_link_line(&c->known.nic);
  else
    HEC_TRY(fit_links(c, arena));
  for (int32_t k = 0; k < HEC_N_CURVE_KINDS; k++)
    HEC_TRY(fit_exchange(c, (hec_curve_kind)k, arena));
  return HEC_OK;
}

static const hec_calibrated_curve *find_curve(const hec_calibration *c, hec_curve_kind kind) {
  for (int32_t i = 0; i < c->n_curves; i++)
    if (c->curves[i].kind == kind && !c->curves[i].backward)
      return &c->curves[i];
  return NULL;
}

/* The law for shapes that were not measured: the last slope of the experts' curve is the rate, where it starts the fixed
 * cost. */
static void fit_law(hec_calibration *c) {
  const hec_calibrated_curve *expert = find_curve(c, HEC_CURVE_EXPERT), *adam = find_curve(c, HEC_CURVE_OPTIMIZER);
  const hec_device *device = &c->options.base->devices[0];
  c->flops = device->flops * device->flops_efficiency;
  c->gemm_a_s = device->gemm_a_s;
  c->hbm_bandwidth = device->hbm_bandwidth;
  c->launch_s = 0;
  if (expert && expert->fit.n_knots > 1) {
    const hec_fit *f = &expert->fit;
    int32_t last = f->n_knots - 1;
    double slope = (f->y[last] - f->y[0]) / (f->x[last] - f->x[0]), start = f->y[0] - slope * f->x[0];
    if (slope > 0)
      c->flops = expert->flops_per_row / slope;
    c->gemm_a_s = start > 0 ? start / c->options.model->moe.n_ffn_matrices : 0;
  }
  if (adam) {
    const hec_fit *f = &adam->fit;
    c->hbm_bandwidth = f->x[f->n_knots - 1] / f->y[f->n_knots - 1];
  }
}

/* Of each case's step: its readings that count. */
static void keep_some(hec_calibration *c, hec_arena *arena) {
  bool *counts = HEC_NEW(arena, bool, c->n_read);
  double *value = HEC_NEW(arena, double, c->n_read), *disturbance = HEC_NEW(arena, double, c->n_read);
  int32_t *index = HEC_NEW(arena, int32_t, c->n_read);
  for (int32_t i = 0; i < c->n_cases; i++)
    for (int32_t step = 0; step < STEPS - WARMUP; step++) {
      int32_t n = 0;
      for (int32_t k = 0; k < c->n_read; k++)
        if (c->readings[k].a_case == i && c->readings[k].step == step) {
          value[n] = 1;
          disturbance[n] = c->readings[k].disturbance;
          index[n++] = k;
        }
      hec_choose_readings(disturbance, n, value);
      for (int32_t k = 0; k < n; k++)
        counts[index[k]] = value[k] > 0;
    }
  hec_samples_keep(&c->samples, counts);
}

hec_status hec_calibration_fit(hec_calibration *c, hec_arena *arena) {
  const hec_samples *s = &c->samples;
  c->n_curves = 0;
  c->disturbed = c->n_read > 0 ? 1 - (double)c->n_undisturbed / c->n_read : 0;
  c->contaminated = c->disturbed > HEC_CONTAMINATED_MAX;
  c->level = c->own[0] = c->own[1] = c->own[2] = NAN;
  keep_some(c, arena);
  for (int32_t i = 0; i < s->n_sets; i++)
    HEC_TRY(fit_set(c, &s->sets[i], arena));
  HEC_TRY(fit_exchanges(c, arena));
  if (s->plan.n > 0)
    HEC_TRY(hec_fit_line(s->plan.x, s->plan.y, s->plan.n, arena, &c->plan));
  fit_law(c);
  c->comm_share = s->lasted_s > 0 ? s->busy_s / s->lasted_s : 0;
  c->comm_share = c->comm_share < COMM_SHARE_MAX ? c->comm_share : COMM_SHARE_MAX;
  c->speed = 1;
  return HEC_OK;
}

#define COMPUTES 0.01 /* of an iteration: where slower cores change less, its time says nothing of them */

void hec_calibration_pace(hec_calibration *c, const double *const predicted[2], const double *measured, int32_t n,
                          hec_arena *arena) {
  double *slower = HEC_NEW(arena, double, n); /* 1 / speed - 1 that each iteration asks for */
  int32_t n_known = 0;
  for (int32_t i = 0; i < n; i++)
    if (predicted[1][i] > (1 + COMPUTES) * predicted[0][i])
      slower[n_known++] =
          (measured[i] - predicted[0][i]) / (predicted[1][i] - predicted[0][i]) * (1 / HEC_PACE_TRIED - 1);
  double asked = n_known > 0 ? hec_median(slower, n_known) : 0;
  c->speed = asked > 0 ? 1 / (1 + asked) : 1;
}
