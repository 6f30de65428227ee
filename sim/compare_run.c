/* One streaming pass: read an iteration, lower and simulate it for each row, add to it. Rows of one policy under
 * several schedules stand together and are lowered together: the policy plans once. Where each has its best schedule,
 * every candidate is a row until it cannot be the fastest any more (compare_drop.c). At the end the fastest is kept.
 * An iteration with one-off operations is simulated twice, with and without them, so that the mean can weigh them by
 * the stride. Beside it comes the bound of the row's class on the same loads, once for all rows of one class.
 *
 * Threads share an iteration: each takes a policy, until all have had it, and then the next one is read. So a trace is read
 * and unpacked once, by the caller's thread, whatever it comes from. A policy's result
 * does not depend on which others run. The policies that took longest last time begin, so that none is left alone at the end.
 *
 * Memory: every policy keeps its own state and history. Programs, timeline and simulator belong to the thread that has
 * the policy just then. All 32 policies on 256 ranks, 58 layers and 256 experts, forward, under one schedule, have a
 * peak of 1.6 GB. Add 0.2 GB for each thread. Nearly all of it is transfers (24 bytes each). Under several the
 * programs of a policy are there at once. Above TOGETHER_BYTES its schedules are split over several runs of the
 * policy, which decide alike. */
#include "sim/compare_state.h"

#include "runtime/base/progress.h"
#include "sim/law.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const size_t TOGETHER_BYTES = (size_t)1 << 30; /* of programs that one thread holds at once */

/* ---- Rows and groups ---- */

static bool wants_best(const hec_compare_options *options) {
  return !options->schedules && strcmp(options->schedule, "best") == 0;
}

/* What people run today: the baseline, or the placement that they gave, as published. The verdict says its time too. */
static bool is_today(const hec_policy *policy, const hec_schedule *schedule) {
  return (policy->baseline || policy->placed) && strcmp(policy->schedule, schedule->name) == 0;
}

/* `near`: candidates (all rows of hec_schedules_of, policy by policy) that may be rows; NULL: all. */
static hec_status list_rows(hec_comparison *c, const bool *near) {
  const hec_compare_options *options = c->options;
  const hec_schedule *schedules[HEC_SCHEDULES_MAX];
  c->runs = HEC_NEW(&c->arena, hec_compare_row, options->n_policies * HEC_SCHEDULES_MAX);
  for (int32_t p = 0; p < options->n_policies; p++) {
    int32_t n = 1;
    HEC_TRY(hec_policy_suits(options->policies[p], &c->job->problem));
    if (wants_best(options))
      n = hec_schedules_of(options->policies[p], &c->job->problem, schedules);
    else
      HEC_TRY(hec_schedule_of(options->policies[p], options->schedules ? options->schedules[p] : options->schedule,
                              &schedules[0]));
    for (int32_t s = 0; s < n; s++, c->n_candidates++) {
      bool kept = wants_best(options) && is_today(options->policies[p], schedules[s]);
      if (!near || near[c->n_candidates] || kept)
        c->runs[c->n_rows++] =
            (hec_compare_row){.policy = options->policies[p], .schedule = schedules[s], .kept = kept};
    }
  }
  return HEC_OK;
}

/* How many programs a thread may hold: dispatch and combine of every layer between all ranks, forward and backward. */
static int32_t rows_together(const hec_job *job) {
  const hec_problem *p = &job->problem;
  double bytes = (p->train ? 4.0 : 2.0) * (double)sizeof(hec_transfer) * (double)p->n_ranks * (double)p->n_ranks *
                 (double)p->n_layers * (double)job->micro_batches;
  double n = (double)TOGETHER_BYTES / bytes;
  return n < 1 ? 1 : n > HEC_SCHEDULES_MAX ? HEC_SCHEDULES_MAX : (int32_t)n;
}

static void make_groups(hec_comparison *c) {
  int32_t rows_max = rows_together(c->job);
  c->groups = HEC_NEW(&c->arena, hec_compare_group, c->n_rows);
  c->order = HEC_NEW(&c->arena, int32_t, c->n_rows);
  for (int32_t p = 0; p < c->n_rows; p++) {
    hec_compare_group *last = c->n_groups > 0 ? &c->groups[c->n_groups - 1] : NULL;
    if (!last || c->runs[last->first].policy != c->runs[p].policy || last->n == rows_max ||
        c->runs[p].policy->by_schedule) {
      c->order[c->n_groups] = c->n_groups;
      last = &c->groups[c->n_groups++];
      last->first = p;
    }
    last->n++;
    c->rows_max = last->n > c->rows_max ? last->n : c->rows_max;
  }
}

static void start_group(void *context, int32_t worker, int64_t item) {
  hec_comparison *c = context;
  hec_compare_group *g = &c->groups[item];
  hec_compare_row *runs = &c->runs[g->first];
  (void)worker;
  runs[0].low = hec_lowering_new(&c->problem, runs[0].policy, runs[0].schedule, c->options->collective, &g->arena);
  for (int32_t i = 1; i < g->n; i++)
    runs[i].low = hec_lowering_beside(runs[0].low, runs[i].schedule);
}

void hec_comparison_run(hec_comparison *c, void (*work)(void *, int32_t, int64_t)) {
  hec_pool_run(c->pool, &(hec_pool_job){.n = c->n_groups, .work = work, .context = c});
}

void hec_comparison_begin(hec_comparison *c) {
  c->problem = c->job->problem;
  c->problem.pricer = hec_law_pricer(c->options->expected ? c->options->expected : c->options->law);
  make_groups(c);
  int32_t n_threads = c->options->n_threads < c->n_groups ? c->options->n_threads : c->n_groups;
  c->pool = hec_pool_new(n_threads > 1 ? n_threads : 1);
  c->memo = hec_sim_memo_new();
  c->workspaces = HEC_NEW(&c->arena, hec_compare_worker, hec_pool_workers(c->pool));
  for (int32_t i = 0; i < hec_pool_workers(c->pool); i++) {
    c->workspaces[i].sim = hec_sim_new(&c->job->problem, c->options->law, &c->workspaces[i].arena);
    c->workspaces[i].programs = HEC_NEW(&c->arena, hec_program, c->rows_max);
    hec_sim_share(c->workspaces[i].sim, c->memo);
  }
  hec_comparison_run(c, start_group);
}

void hec_comparison_end(hec_comparison *c) {
  int32_t n_workspaces = c->pool ? hec_pool_workers(c->pool) : 0;
  hec_pool_free(c->pool);
  hec_sim_memo_free(c->memo);
  for (int32_t i = 0; i < n_workspaces; i++) {
    hec_sim_free(c->workspaces[i].sim);
    for (int32_t k = 0; k < c->rows_max; k++)
      hec_program_free(&c->workspaces[i].programs[k]);
    hec_timeline_free(&c->workspaces[i].timeline);
    hec_arena_free(&c->workspaces[i].arena);
  }
  for (int32_t g = 0; g < c->n_groups; g++) {
    for (int32_t i = c->groups[g].n - 1; i >= 0; i--)
      hec_lowering_free(c->runs[c->groups[g].first + i].low);
    hec_arena_free(&c->groups[g].arena);
  }
  hec_arena_free(&c->arena);
}

void hec_comparison_lower(const hec_comparison *c, hec_compare_worker *w, const hec_compare_group *g) {
  hec_lowering *lows[HEC_SCHEDULES_MAX];
  const hec_iteration *of = c->iteration;
  int32_t n = 0;
  for (int32_t i = 0; i < g->n; i++) {
    hec_compare_row *one = &c->runs[g->first + i];
    hec_lowering_swap_program(one->low, &w->programs[i]);
    if (i == 0 || !one->dropped) /* the first plans for all */
      lows[n++] = one->low;
  }
  hec_lower_iterations(lows, n, of->iter, of->loads, of->n_loads, of->n_micro_batches);
}

void hec_comparison_give_back(const hec_comparison *c, hec_compare_worker *w, const hec_compare_group *g) {
  for (int32_t i = 0; i < g->n; i++)
    hec_lowering_swap_program(c->runs[g->first + i].low, &w->programs[i]);
}

/* ---- One iteration of one policy ---- */

/* The row's breakdowns. goes_on: not the first of its group. */
static hec_status time_row(const hec_comparison *c, hec_compare_worker *w, hec_compare_row *one, bool goes_on,
                           const char *name) {
  const hec_program *program = hec_lowering_program(one->low);
  bool on_time = one->schedule->bound; /* a bound knows of no late rank: hec_sim_options */
  bool one_off = hec_lowering_one_off(one->low);
  if (one_off) {
    hec_sim_run(w->sim, program, (hec_sim_options){.without_one_off = true, .on_time = on_time, .goes_on = goes_on},
                &w->timeline);
    goes_on = true;
    one->ordinary = hec_timeline_breakdown(&w->timeline, program);
  }
  hec_sim_run(w->sim, program, (hec_sim_options){.on_time = on_time, .goes_on = goes_on}, &w->timeline);
  if (hec_timeline_end_ps(&w->timeline) >= HEC_TIME_END_PS)
    return hec_fail(HEC_BAD_INPUT,
                    "%s, iteration %" PRId64 ": expected a simulated time below %.0f days, found a longer one; "
                    "check `cluster`, `model` and `tokens`",
                    name, c->iteration->iter, (double)HEC_TIME_END_PS * 1e-12 / 86400);
  if (c->options->check) {
    hec_program_check(program);
    hec_timeline_check(&w->timeline, program);
  }
  one->all = hec_timeline_breakdown(&w->timeline, program);
  if (!one_off)
    one->ordinary = one->all;
  return HEC_OK;
}

/* An earlier row of the group with the same program, which therefore takes as long. NULL: none. */
static const hec_compare_row *twin_of(const hec_comparison *c, const hec_compare_group *g, int32_t p) {
  const hec_compare_row *one = &c->runs[p];
  for (int32_t i = g->first; i < p; i++) {
    const hec_compare_row *other = &c->runs[i];
    if (!other->dropped && other->status == HEC_OK && other->schedule->bound == one->schedule->bound &&
        hec_program_same(hec_lowering_program(other->low), hec_lowering_program(one->low)))
      return other;
  }
  return NULL;
}

static int64_t now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void say(const hec_comparison *c, const char *what, const char *row) {
  if (!c->options->silent)
    hec_progress_doing(what, row);
}

static void simulate_row(const hec_comparison *c, hec_compare_worker *w, int32_t p, bool goes_on) {
  hec_compare_row *one = &c->runs[p];
  one->status = time_row(c, w, one, goes_on, c->summary->rows[p].name);
  if (one->status != HEC_OK)
    (void)snprintf(one->message, sizeof one->message, "%s", hec_last_error());
}

static void simulate_group(const hec_comparison *c, hec_compare_worker *w, const hec_compare_group *g) {
  bool goes_on = false;
  for (int32_t p = g->first; p < g->first + g->n; p++) {
    hec_compare_row *one = &c->runs[p];
    if (one->dropped)
      continue;
    const hec_compare_row *twin = twin_of(c, g, p);
    if (twin) {
      one->all = twin->all;
      one->ordinary = twin->ordinary;
    } else {
      simulate_row(c, w, p, goes_on);
      goes_on = true;
    }
    if (one->status == HEC_OK)
      hec_summary_add_iteration(&c->summary->rows[p], one->low, &one->all, &one->ordinary, c->iteration->stride);
  }
}

static void simulate(void *context, int32_t worker, int64_t item) {
  hec_comparison *c = context;
  hec_compare_group *g = &c->groups[c->order[item]];
  hec_compare_worker *w = &c->workspaces[worker];
  int64_t begin_ns = now_ns();
  say(c, "planning", c->runs[g->first].policy->name);
  hec_comparison_lower(c, w, g);
  if (c->report) {
    say(c, "simulating", c->runs[g->first].policy->name);
    simulate_group(c, w, g);
  }
  hec_comparison_give_back(c, w, g);
  g->took_ns = now_ns() - begin_ns;
  if (!c->options->silent)
    hec_progress_at((double)c->iteration->index + (1 + atomic_fetch_add(&c->n_ended, 1)) / (double)c->n_groups,
                    (double)c->options->n_iterations, 0);
}

hec_status hec_comparison_failure(const hec_comparison *c) {
  for (int32_t p = 0; p < c->n_rows; p++)
    if (c->runs[p].status != HEC_OK)
      return hec_fail(c->runs[p].status, "%s", c->runs[p].message);
  return HEC_OK;
}

/* By insertion: it mostly is the order of last time. Who begins is all that clocks decide. */
static void sort_groups(hec_comparison *c) {
  for (int32_t i = 1; i < c->n_groups; i++) {
    int32_t g = c->order[i], k = i;
    for (; k > 0 && c->groups[c->order[k - 1]].took_ns < c->groups[g].took_ns; k--)
      c->order[k] = c->order[k - 1];
    c->order[k] = g;
  }
}

/* ---- All of a trace ---- */

static hec_status run_all(hec_comparison *c, hec_trace_reader *reader) {
  const hec_job *job = c->job;
  HEC_OPENED(hec_feed) *feed = hec_feed_new(job, reader);
  hec_status status = HEC_OK;
  int64_t every = c->options->every > 0 ? c->options->every : 1;
  hec_compare_bounds *bounds = hec_compare_bounds_new(c);
  while ((status = hec_feed_next(feed, &c->iteration)) == HEC_OK && c->iteration) {
    c->report = c->iteration->index >= job->warmup && (c->iteration->index - job->warmup) % every == 0;
    atomic_store(&c->n_ended, 0);
    hec_comparison_run(c, simulate);
    status = hec_comparison_failure(c);
    if (status != HEC_OK)
      break;
    sort_groups(c);
    hec_sim_memo_clear(c->memo);
    say(c, "lower bounds", NULL);
    if (c->report)
      hec_compare_bounds_add(bounds, c);
    c->summary->n_iterations += c->report;
    if (c->report)
      hec_series_add(&c->summary->iters, (double)c->iteration->iter);
    if (c->report && c->n_reported > 0)
      hec_compare_drop(c);
  }
  c->summary->tokens = hec_feed_tokens(feed);
  if (status == HEC_OK && c->summary->n_iterations == 0)
    status = hec_fail(HEC_BAD_INPUT, "`warmup`: no iteration is left to report");
  return status;
}

/* The best row of those from `first` on that are of one policy; the next policy's first in *next. */
static int32_t best_row(hec_summary *candidates, const hec_comparison *c, int32_t first, int32_t *next) {
  int32_t best = -1;
  for (*next = first; *next < c->n_rows && c->runs[*next].policy == c->runs[first].policy; ++*next) {
    if (c->runs[*next].dropped)
      continue;
    hec_summary_row *row = &candidates->rows[*next], *before = best < 0 ? row : &candidates->rows[best];
    bool fits = hec_summary_fits(candidates, row), fitted = hec_summary_fits(candidates, before);
    if (best < 0 || fits > fitted || (fits == fitted && hec_summary_median(row) < hec_summary_median(before)))
      best = *next;
  }
  return best;
}

/* From rows of all candidates to a row a policy. near [rows], NULL: nobody asks; whether a row is within HEC_SUMMARY_NEAR
 * of its policy's best, and fits if that does. */
static void keep_best(const hec_comparison *c, hec_arena *arena, bool *near, hec_summary *summary) {
  hec_summary candidates = *summary;
  summary->rows = HEC_NEW(arena, hec_summary_row, c->options->n_policies);
  summary->n_rows = 0;
  for (int32_t p = 0, next; p < c->n_rows; p = next) {
    int32_t best = best_row(&candidates, c, p, &next);
    hec_summary_row *chosen = &candidates.rows[best];
    bool fits = hec_summary_fits(&candidates, chosen);
    double max_s = (1 + HEC_SUMMARY_NEAR) * hec_summary_median(chosen);
    for (int32_t i = p; i < next; i++) {
      if (c->runs[i].kept)
        chosen->published_s = hec_summary_median(&candidates.rows[i]);
      if (near)
        near[i] = hec_summary_median(&candidates.rows[i]) <= max_s &&
                  (!fits || hec_summary_fits(&candidates, &candidates.rows[i]));
      if (i != best)
        hec_summary_row_free(&candidates.rows[i]);
    }
    summary->rows[summary->n_rows++] = *chosen;
  }
}

/* Iterations of the trace that are reported; 0: not known. */
static int64_t n_reported(const hec_job *job, const hec_compare_options *options) {
  int64_t every = options->every > 0 ? options->every : 1, n = options->n_iterations - job->warmup;
  return options->n_iterations > 0 && n > 0 ? (n + every - 1) / every : 0;
}

/* One way through the trace. near, found: as of list_rows and keep_best. */
typedef struct {
  const hec_job *job;
  hec_trace_reader *reader;
  const hec_compare_options *options;
  const bool *near;
  bool *found;
} pass;

/* again: rows were dropped that might have been the best; the summary is good for nothing. */
static hec_status compare_once(const pass *of, hec_arena *arena, hec_summary *summary, bool *again) {
  const hec_job *job = of->job;
  const hec_compare_options *options = of->options;
  *summary = (hec_summary){.job = job,
                           .law = hec_law_name(options->law),
                           .not_modelled = hec_law_limits(options->law),
                           .best = wants_best(options)};
  hec_comparison c = {.job = job, .options = options, .summary = summary};
  c.n_reported = summary->best && !of->found ? n_reported(job, options) : 0;
  hec_status status = list_rows(&c, of->near);
  if (status == HEC_OK) {
    hec_comparison_begin(&c);
    summary->rows = HEC_NEW(arena, hec_summary_row, c.n_rows);
    summary->n_rows = c.n_rows;
    for (int32_t p = 0; p < c.n_rows; p++)
      summary->rows[p] = hec_summary_row_of(c.runs[p].policy, c.runs[p].schedule, job->problem.n_ranks, arena);
    status = run_all(&c, of->reader);
  }
  *again = status == HEC_OK && hec_compare_dropped_wrongly(&c);
  if (status == HEC_OK && summary->best && !*again)
    keep_best(&c, arena, of->found, summary);
  if (status == HEC_OK && !*again)
    hec_summary_tell_apart(summary, arena);
  hec_comparison_end(&c);
  return status;
}

static hec_status compare(const pass *of, hec_arena *arena, hec_summary *summary) {
  bool again;
  HEC_TRY(compare_once(of, arena, summary, &again));
  if (!again)
    return HEC_OK;
  hec_compare_options options = *of->options;
  options.n_iterations = 0; /* nothing is dropped */
  pass all = *of;
  all.options = &options;
  hec_summary_free(summary);
  HEC_TRY(hec_trace_rewind(of->reader));
  return compare_once(&all, arena, summary, &again);
}

hec_status hec_compare(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                       hec_arena *arena, hec_summary *summary) {
  if (!wants_best(options) || options->law->closed_form)
    return compare(&(pass){job, reader, options, NULL, NULL}, arena, summary);
  hec_compare_options closed = *options;
  closed.law = &hec_law_alpha_beta;
  bool *near = HEC_NEW(arena, bool, options->n_policies *HEC_SCHEDULES_MAX);
  hec_status status = compare(&(pass){job, reader, &closed, NULL, near}, arena, summary);
  if (status == HEC_OK)
    status = hec_trace_rewind(reader);
  if (status != HEC_OK)
    return status;
  hec_summary_free(summary);
  return compare(&(pass){job, reader, options, near, NULL}, arena, summary);
}
