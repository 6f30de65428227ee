/* A step is `micro_batches` times the mean simulated micro-batch of the window, and the optimizer:
 *
 *   step       = B * mean_entries(total) + Adam(experts and dense parameters, each on N ranks)
 *   all-to-all = B * mean_entries(all-to-all of the rank), mean over ranks; experts likewise
 *   other      = step - all-to-all - experts, on both sides
 *
 * O(methods * entries * (changes + 1)) simulated micro-batches. */
#include "validate/outcomes/outcomes.h"

#include "runtime/plan/problem.h"
#include "validate/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Which recorded micro-batches are taken: those asked for, or another choice. */
typedef enum { WINDOW_MAIN, WINDOW_ALL, WINDOW_BUT_FIRST, WINDOW_SECOND_HALF, WINDOW_LAST_TWO } window_law;

/* What may be changed, one at a time. */
typedef struct {
  const char *change, *why;
  window_law window;
  bool alone;                        /* kernels take in a step what they take alone */
  double speed, nonmoe, nvlink, nic; /* factors; 0: none. nonmoe NONMOE_BY_LAW: without the model's own */
  hec_step_options step;
  bool control;
  const char *cluster; /* NULL: the options' */
} inputs;
#define NONMOE_BY_LAW (-1)

static const inputs plain = {.change = NULL};

#define OTHER_WHY "not the hardware that was measured: shows what the ratios rest on"
/* Controls throw away what the prediction rests on. On other clusters, the same loads on hardware that the recording did not
 * run on, the steps must be wrong: are the ratios? */
static const inputs changes[] = {
    {"loads: every recorded micro-batch", "the first ones are before the planners had a history", .window = WINDOW_ALL},
    {"loads: all but the first micro-batch", "in the first no method has a plan yet", .window = WINDOW_BUT_FIRST},
    {"loads: the second half of the recording", "the measured iterations are later ones", .window = WINDOW_SECOND_HALF},
    {"loads: the last two micro-batches", "one step; the profiled one, if loads and profile are of the same run",
     .window = WINDOW_LAST_TWO},
    {"kernels as fast as alone", "without the constant of steps over kernels alone (in_step)", .alone = true},
    {"compute at 0.9 of its rate", "lower clocks; kernels that are less well chosen", .speed = 0.9},
    {"compute at 1.1 of its rate", "the other side", .speed = 1.1},
    {"non-MoE part by the law alone", "without the artifact's profile of attention", .nonmoe = NONMOE_BY_LAW},
    {"links a third faster", "about their data sheets' rates", .nvlink = 4.0 / 3, .nic = 4.0 / 3},
    {"links at half their rate", "contention of parameters and tokens is not modelled", .nvlink = 0.5, .nic = 0.5},
    {"every all-to-all waits for all ranks", "not only for those it has rows for", .step = {.all_wait = true}},
    {"control: maximum over the sum of layers", "which layer a rank is hot in is thrown away",
     .step = {.loads = HEC_LOADS_SUMMED}, .control = true},
    {"control: mean load on every rank", "which rank is hot is thrown away", .step = {.loads = HEC_LOADS_MEAN},
     .control = true},
    {"control: compute at 0.4 of its rate, the same links", "about that of a V100", .speed = 0.4},
    {"control: another cluster, dgx-h100", OTHER_WHY, .cluster = "dgx-h100"},
    {"control: another cluster, p4d-24xlarge", OTHER_WHY, .cluster = "p4d-24xlarge"},
    {"control: another cluster, v100-1edr", OTHER_WHY, .cluster = "v100-1edr"},
};
enum { N_CHANGES = sizeof changes / sizeof *changes };
_Static_assert((int)N_CHANGES <= (int)HEC_OUTCOME_CHANGES_MAX, "a report holds all changes");

/* ---- one set ---- */

static double factor(double given) {
  return given > 0 ? given : 1;
}

static void scale_links(hec_cluster *cluster, const inputs *in, hec_arena *arena) {
  hec_link *links = HEC_NEW(arena, hec_link, cluster->n_links);
  memcpy(links, cluster->links, (size_t)cluster->n_links * sizeof *links);
  for (int32_t i = 0; i < cluster->n_links; i++)
    links[i].bandwidth *=
        factor(links[i].kind == HEC_LINK_PORT_OUT || links[i].kind == HEC_LINK_PORT_IN ? in->nvlink : in->nic);
  hec_device *devices = HEC_NEW(arena, hec_device, cluster->n_devices);
  memcpy(devices, cluster->devices, (size_t)cluster->n_devices * sizeof *devices);
  for (int32_t i = 0; i < cluster->n_devices; i++) {
    devices[i].speed *= factor(in->speed);
    if (in->alone) {
      devices[i].launch_s /= devices[i].in_step;
      devices[i].hbm_bandwidth *= devices[i].in_step;
      devices[i].in_step = 1;
    }
  }
  cluster->links = links;
  cluster->devices = devices;
}

/* Adam on what one rank keeps: everything is sharded over all ranks. */
static double optimizer_s(const hec_problem *problem) {
  const hec_memory_cost *b = &problem->bytes;
  double experts = (double)problem->n_layers * problem->n_experts;
  double bytes = b->dense_grad + 2 * b->dense_optimizer + b->dense_param +
                 experts * (b->expert_grad + 2 * b->expert_optimizer + b->expert_param);
  return hec_local_s(&problem->cluster->devices[0], HEC_CURVE_NONE, false, bytes / problem->n_ranks);
}

double hec_outcomes_spread(const double *x, int32_t n) {
  double m = hec_mean(x, n), sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += (x[i] - m) * (x[i] - m);
  return sqrt(sum / n);
}

/* Pearson's correlation; 0 when one side does not vary. */
static double correlation(const double *x, const double *y, int32_t n) {
  double mx = hec_mean(x, n), my = hec_mean(y, n), xy = 0, xx = 0, yy = 0;
  for (int32_t i = 0; i < n; i++) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) * (x[i] - mx);
    yy += (y[i] - my) * (y[i] - my);
  }
  return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

static void finish(const hec_outcomes *o, const hec_step_times *sum, int32_t n_entries, double adam_s, hec_method m,
                   hec_outcome_prediction *p) {
  int32_t n = o->recorded.n_ranks;
  double steps = (double)o->moe.micro_batches / n_entries;
  for (int32_t r = 0; r < n; r++) {
    p->rank_alltoall_s[r] = sum->alltoall_s[r] * steps;
    p->rank_expert_s[r] = sum->expert_s[r] * steps;
  }
  p->step_s = sum->total_s * steps + adam_s;
  p->alltoall_s = hec_mean(p->rank_alltoall_s, n);
  p->wire_s = hec_mean(sum->wire_s, n) * steps;
  p->expert_s = hec_mean(p->rank_expert_s, n);
  p->other_s = p->step_s - p->alltoall_s - p->expert_s;
  for (int32_t i = 0; i < HEC_N_ROLES; i++)
    p->role_s[i] = sum->parts.role_s[i] * steps;
  p->role_s[HEC_ROLE_OPTIMIZER] += adam_s;
  p->wait_s = sum->parts.wait_s * steps;
  const hec_outcome_measured *measured = &o->recorded.measured[m];
  p->expert_error_mean = 0;
  for (int32_t r = 0; r < n; r++)
    p->expert_error_mean += fabs(p->rank_expert_s[r] / measured->expert_s[r] - 1) / n;
  p->expert_correlation = correlation(p->rank_expert_s, measured->expert_s, n);
  p->alltoall_correlation = correlation(p->rank_alltoall_s, measured->alltoall_s, n);
  p->expert_spread_s = hec_outcomes_spread(p->rank_expert_s, n);
  p->alltoall_spread_s = hec_outcomes_spread(p->rank_alltoall_s, n);
}

static void widen(double range[2], double predicted, double measured) {
  if (!(measured > 0))
    return;
  range[0] = fmin(range[0], predicted / measured - 1);
  range[1] = fmax(range[1], predicted / measured - 1);
}

static void find_ranges(const hec_outcome_case *c, hec_outcome_set *set) {
  set->step_error[0] = set->alltoall_error[0] = set->min_gap = INFINITY;
  set->step_error[1] = set->alltoall_error[1] = -INFINITY;
  for (int32_t m = 0; m < HEC_N_METHODS; m++) {
    widen(set->step_error, set->of[m].step_s, c->measured[m].step_s);
    widen(set->step_error, set->of[m].step_s, c->measured[m].end_to_end_s);
    widen(set->alltoall_error, set->of[m].alltoall_s, c->measured[m].alltoall_mean_s);
    if (m > 0)
      set->min_gap = fmin(set->min_gap, set->of[m - 1].step_s / set->of[m].step_s - 1);
  }
}

static void judge(const hec_outcome_case *c, hec_outcome_set *set) {
  double laer = set->of[HEC_METHOD_LAER].step_s;
  set->order_kept = true;
  set->worst = 0;
  for (int32_t m = 0; m < HEC_N_METHODS; m++) {
    set->ratio[m] = set->of[m].step_s / laer;
    const hec_outcome_measured *one = &c->measured[m], *base = &c->measured[HEC_METHOD_LAER];
    set->error_step[m] = set->ratio[m] / (one->step_s / base->step_s) - 1;
    bool known = one->end_to_end_s > 0 && base->end_to_end_s > 0;
    set->error_end_to_end[m] = known ? set->ratio[m] / (one->end_to_end_s / base->end_to_end_s) - 1 : NAN;
    set->worst = fmax(set->worst, fabs(set->error_step[m]));
    set->worst = known ? fmax(set->worst, fabs(set->error_end_to_end[m])) : set->worst;
    for (int32_t k = 0; k < m; k++)
      set->order_kept =
          set->order_kept && (set->of[k].step_s > set->of[m].step_s) == (c->measured[k].step_s > c->measured[m].step_s);
  }
  set->within_bound = set->worst <= HEC_OUTCOMES_BOUND;
  find_ranges(c, set);
}

/* Of the recorded loads, whatever the law of loads: what no cost of computing or links changes. */
static double busiest_of(const hec_outcome_case *c, hec_method m, int32_t first, int32_t last) {
  double sum = 0;
  for (int32_t e = first; e <= last; e++)
    for (int32_t l = 0; l < c->n_layers; l++) {
      const int32_t *load = hec_outcome_load(c, m, e, l);
      double max = 0, all = 0;
      for (int32_t r = 0; r < c->n_ranks; r++) {
        max = load[r] > max ? load[r] : max;
        all += load[r];
      }
      sum += max * c->n_ranks / all;
    }
  return sum / ((double)(last - first + 1) * c->n_layers);
}

/* The profiled step is of the last two micro-batches (README.md). */
static double moved_s(const hec_outcomes *o, hec_method m, const double *busiest) {
  const hec_outcome_measured *one = &o->recorded.measured[m];
  int32_t last = o->recorded.n_entries - 1;
  double more = busiest[m] - busiest_of(&o->recorded, m, last > 0 ? last - 1 : 0, last);
  return one->step_s + more * hec_mean(one->expert_s, o->recorded.n_ranks);
}

static void clear(hec_step_times *sum, int32_t n) {
  double *a = sum->alltoall_s, *w = sum->wire_s, *e = sum->expert_s;
  memset(a, 0, (size_t)n * sizeof *a);
  memset(w, 0, (size_t)n * sizeof *w);
  memset(e, 0, (size_t)n * sizeof *e);
  *sum = (hec_step_times){.alltoall_s = a, .wire_s = w, .expert_s = e};
}

static void choose(const hec_outcomes *o, window_law window, int32_t *first, int32_t *last) {
  int32_t end = o->recorded.n_entries - 1;
  const int32_t begin[] = {[WINDOW_MAIN] = o->first,
                           [WINDOW_BUT_FIRST] = 1,
                           [WINDOW_SECOND_HALF] = end / 2 + 1,
                           [WINDOW_LAST_TWO] = end > 0 ? end - 1 : 0};
  *first = begin[window] < end ? begin[window] : end;
  *last = window == WINDOW_MAIN ? o->last : end;
}

static hec_status predict(hec_outcomes *o, const inputs *in, hec_outcome_set *set) {
  int32_t n = o->recorded.n_ranks, first, last;
  choose(o, in->window, &first, &last);
  hec_cluster *cluster = HEC_NEW(&o->arena, hec_cluster, 1);
  hec_moe *moe = HEC_NEW(&o->arena, hec_moe, 1);
  hec_problem *problem = HEC_NEW(&o->arena, hec_problem, 1);
  *cluster = o->cluster;
  if (in->cluster)
    HEC_TRY(hec_cluster_load(in->cluster, &o->arena, cluster));
  *moe = o->moe;
  moe->nonmoe_scale *= in->nonmoe == NONMOE_BY_LAW ? 1 / o->moe.nonmoe_scale : factor(in->nonmoe);
  scale_links(cluster, in, &o->arena);
  HEC_TRY(hec_problem_make(moe, cluster, true, n, moe->tokens_per_rank, problem));
  hec_step *step = hec_step_new(problem, o->law, &o->recorded, &o->arena);
  hec_step_times sum = {.alltoall_s = HEC_NEW(&o->arena, double, n),
                        .wire_s = HEC_NEW(&o->arena, double, n),
                        .expert_s = HEC_NEW(&o->arena, double, n)};
  for (int32_t m = 0; m < HEC_N_METHODS; m++) {
    hec_outcome_prediction *p = &set->of[m];
    p->rank_alltoall_s = HEC_NEW(&o->arena, double, n);
    p->rank_expert_s = HEC_NEW(&o->arena, double, n);
    clear(&sum, n);
    for (int32_t e = first; e <= last; e++)
      hec_step_add(step, (hec_method)m, e, in->step, &sum);
    finish(o, &sum, last - first + 1, optimizer_s(problem), (hec_method)m, p);
    set->busiest[m] = busiest_of(&o->recorded, (hec_method)m, first, last);
  }
  set->moved = moved_s(o, HEC_METHOD_FSDP, set->busiest) / moved_s(o, HEC_METHOD_LAER, set->busiest);
  hec_step_free(step);
  judge(&o->recorded, set);
  return HEC_OK;
}

/* ---- changes ---- */

/* Has the change's cluster the recording's nodes? */
static hec_status fits(hec_outcomes *o, const char *preset, bool *fit) {
  hec_cluster other = {0};
  *fit = true;
  if (preset) {
    HEC_TRY(hec_cluster_load(preset, &o->arena, &other));
    *fit = other.n_nodes >= o->recorded.n_nodes && other.devices_per_node == o->recorded.devices_per_node;
  }
  return HEC_OK;
}

static hec_status change_all(hec_outcomes *o) {
  for (int32_t i = 0; i < N_CHANGES; i++) {
    const inputs *in = &changes[i];
    bool fit;
    HEC_TRY(fits(o, in->cluster, &fit));
    if (!fit)
      continue;
    hec_outcome_change *one = &o->change[o->n_changes++];
    *one = (hec_outcome_change){.change = in->change, .why = in->why, .cluster = in->cluster, .control = in->control};
    HEC_TRY(predict(o, in, &one->set));
  }
  return HEC_OK;
}

/* ---- the whole ---- */

static hec_status check_fit(const hec_outcomes *o) {
  const hec_outcome_case *c = &o->recorded;
  int64_t total = 0, want = (int64_t)c->n_ranks * o->moe.tokens_per_rank * o->moe.top_k;
  for (int32_t r = 0; r < c->n_ranks; r++)
    total += hec_outcome_load(c, HEC_METHOD_FSDP, 0, 0)[r];
  if (o->cluster.n_nodes < c->n_nodes || o->cluster.devices_per_node != c->devices_per_node)
    return hec_fail(HEC_BAD_INPUT, "%s: expected a cluster of %d nodes of %d devices, found %s with %d of %d",
                    o->options.path, c->n_nodes, c->devices_per_node, o->cluster.name, o->cluster.n_nodes,
                    o->cluster.devices_per_node);
  if (o->moe.n_moe_layers != c->n_layers || o->moe.top_k != c->top_k)
    return hec_fail(HEC_BAD_INPUT, "%s: expected a model of %d MoE layers, top-%d, found %s with %d, top-%d",
                    o->options.path, c->n_layers, c->top_k, o->moe.name, o->moe.n_moe_layers, o->moe.top_k);
  if (total != want)
    return hec_fail(HEC_BAD_INPUT,
                    "%s: iterations[0].FSDP[0]: expected %lld assignments (ranks * tokens * top_k of model %s), found "
                    "%lld",
                    o->options.path, (long long)want, o->moe.name, (long long)total);
  return HEC_OK;
}

static hec_status choose_window(hec_outcomes *o) {
  int32_t n = o->recorded.n_entries;
  o->first = o->options.first;
  o->last = o->options.last;
  if (o->first < 0) {
    o->first = n >= 30 ? 25 : 0;
    o->last = n >= 30 ? 29 : n - 1;
  }
  if (o->first > o->last || o->last >= n)
    return hec_fail(HEC_BAD_INPUT, "%s: expected micro-batches within 0 to %d, found %d to %d", o->options.path, n - 1,
                    o->first, o->last);
  return HEC_OK;
}

static hec_status run(hec_outcomes *o) {
  o->law = hec_law_find(o->options.law ? o->options.law : "alpha_beta");
  if (!o->law)
    return hec_fail(HEC_BAD_INPUT, "--law: expected alpha_beta, max_min or nccl_rounds, found \"%s\"", o->options.law);
  HEC_TRY(hec_cluster_load(o->options.cluster, &o->arena, &o->cluster));
  HEC_TRY(hec_moe_load(o->options.model, &o->moe));
  HEC_TRY(hec_outcome_case_read(o->options.path, &o->arena, &o->recorded));
  HEC_TRY(check_fit(o));
  HEC_TRY(choose_window(o));
  HEC_TRY(predict(o, &plain, &o->set));
  o->passed = o->set.order_kept && o->set.within_bound;
  return o->options.quick ? HEC_OK : change_all(o);
}

hec_status hec_outcomes_run(const hec_outcomes_options *options, hec_outcomes **out) {
  hec_outcomes *o = hec_malloc(1, sizeof *o);
  memset(o, 0, sizeof *o);
  o->options = *options;
  hec_status status = run(o);
  if (status != HEC_OK) {
    hec_outcomes_free(o);
    o = NULL;
  }
  *out = o;
  return status;
}

void hec_outcomes_free(hec_outcomes *o) {
  if (!o)
    return;
  hec_arena_free(&o->arena);
  free(o);
}
