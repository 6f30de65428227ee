/* One streaming pass: read an iteration, lower and simulate it for each policy, add to its row. An iteration with
 * one-off operations is simulated twice, with and without them, so that the mean can weigh them by the stride. Beside it
 * the bound of the row's class on the same loads, once for all rows of one class.
 *
 * Threads share an iteration: each takes a policy, until all have had it, and then the next one is read. So a trace is read
 * and unpacked once, by the caller's thread, whatever it comes from; a policy's result
 * does not depend on which others run. The policies that took longest last time begin, so that none is left alone at the end.
 *
 * Memory: every policy keeps its own state and history; program, timeline and simulator belong to the thread that has the
 * policy just then. All 32 policies on 256 ranks, 58 layers and 256 experts, forward: a peak of 1.6 GB and 0.2 GB for each
 * thread, nearly all of it transfers (24 bytes each). */
#include "sim/compare.h"

#include "runtime/base/pool.h"
#include "runtime/base/progress.h"
#include "runtime/plan/bound/bound.h"
#include "runtime/program/job.h"
#include "sim/law.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* One policy at work. */
typedef struct {
  hec_arena arena;
  hec_lowering *low;
  const hec_schedule *schedule;
  int64_t took_ns; /* its last iteration */
  hec_status status;
  char message[1024];
  bool wanted, done;
} row_run;

/* What a thread simulates with. */
typedef struct {
  hec_arena arena;
  hec_sim *sim;
  hec_program program;
  hec_timeline timeline;
} workspace;

typedef struct {
  const hec_job *job;
  const hec_compare_options *options;
  hec_summary *summary;
  hec_arena arena;
  hec_pool *pool;
  hec_sim_memo *memo;             /* of the iteration at hand */
  workspace *workspaces;          /* [workers of the pool] */
  row_run *runs;                  /* [n_policies] */
  int32_t *order;                 /* [n_policies] rows, those that took longest first */
  const hec_iteration *iteration; /* at hand */
  bool report;                    /* it is past the warm-up */
  atomic_int n_ended;             /* rows, of the iteration at hand */
  /* of looking: */
  const hec_compare_view *view;
  pthread_mutex_t mutex; /* guards how far it has come */
  int32_t n_done;        /* rows of the iteration at hand that nobody waits for any more */
} comparison;

static hec_status schedule_of(const hec_compare_options *options, int32_t p, const hec_schedule **schedule) {
  return hec_schedule_of(options->policies[p], options->schedules ? options->schedules[p] : options->schedule,
                         schedule);
}

static void start_row(void *context, int32_t worker, int64_t p) {
  comparison *c = context;
  (void)worker;
  c->runs[p].low = hec_lowering_new(&c->job->problem, c->options->policies[p], c->runs[p].schedule,
                                    c->options->collective, &c->runs[p].arena);
}

static void run_rows(comparison *c, void (*work)(void *, int32_t, int64_t)) {
  hec_pool_run(c->pool, &(hec_pool_job){.n = c->options->n_policies, .work = work, .context = c});
}

static hec_status begin(comparison *c) {
  const hec_compare_options *options = c->options;
  int32_t n = options->n_policies, n_threads = options->n_threads < n ? options->n_threads : n;
  c->runs = HEC_NEW(&c->arena, row_run, n);
  c->order = HEC_NEW(&c->arena, int32_t, n);
  for (int32_t p = 0; p < n; p++) {
    c->order[p] = p;
    HEC_TRY(hec_policy_suits(options->policies[p], &c->job->problem));
    HEC_TRY(schedule_of(options, p, &c->runs[p].schedule));
  }
  c->pool = hec_pool_new(n_threads > 1 ? n_threads : 1);
  c->memo = hec_sim_memo_new();
  c->workspaces = HEC_NEW(&c->arena, workspace, hec_pool_workers(c->pool));
  for (int32_t i = 0; i < hec_pool_workers(c->pool); i++) {
    c->workspaces[i].sim = hec_sim_new(&c->job->problem, options->law, &c->workspaces[i].arena);
    hec_sim_share(c->workspaces[i].sim, c->memo);
  }
  run_rows(c, start_row);
  return HEC_OK;
}

static void end(comparison *c) {
  int32_t n_workspaces = c->pool ? hec_pool_workers(c->pool) : 0;
  hec_pool_free(c->pool);
  hec_sim_memo_free(c->memo);
  for (int32_t i = 0; i < n_workspaces; i++) {
    hec_sim_free(c->workspaces[i].sim);
    hec_program_free(&c->workspaces[i].program);
    hec_timeline_free(&c->workspaces[i].timeline);
    hec_arena_free(&c->workspaces[i].arena);
  }
  for (int32_t p = 0; p < c->options->n_policies; p++) {
    hec_lowering_free(c->runs[p].low);
    hec_arena_free(&c->runs[p].arena);
  }
  hec_arena_free(&c->arena);
}

static void lower(workspace *w, row_run *one, const hec_iteration *iteration) {
  hec_lowering_swap_program(one->low, &w->program);
  hec_lower_iteration(one->low, iteration->iter, iteration->loads, iteration->n_loads, iteration->n_micro_batches);
}

/* Until here the program is the row's. */
static void give_back(workspace *w, row_run *one) {
  hec_lowering_swap_program(one->low, &w->program);
}

/* Bounds of the iteration at hand. */
typedef struct {
  hec_bound *bound;
  bool closed_form;                          /* of the law */
  hec_load rewritten;                        /* of a policy that computes something else than the gate chose */
  double known_s[HEC_N_BOUND_CLASSES][2][2]; /* by class and schedule: tokens_wait, by_node; 0: not yet */
} bounds;

static double bound_s_of(bounds *b, const row_run *one, const hec_iteration *iteration) {
  const hec_policy_run *run = hec_lowering_run(one->low);
  hec_bound_class class = hec_bound_class_of(run->policy, run->problem);
  double *known_s = &b->known_s[class][one->schedule->tokens_wait][one->schedule->by_node];
  if (!run->policy->rewrite && *known_s > 0)
    return *known_s;
  hec_bound_begin(b->bound, (hec_bound_case){.class = class,
                                             .tokens_wait = one->schedule->tokens_wait,
                                             .by_node = one->schedule->by_node,
                                             .closed_form = b->closed_form,
                                             .n_micro_batches = iteration->n_micro_batches});
  for (int32_t mb = 0; mb < iteration->n_micro_batches; mb++) {
    const hec_load *load = &iteration->loads[iteration->n_loads == 1 ? 0 : mb];
    if (run->policy->rewrite) {
      hec_load_copy(load, &b->rewritten);
      hec_lowering_rewrite(one->low, &b->rewritten);
      load = &b->rewritten;
    }
    hec_bound_add(b->bound, load);
  }
  double total_s = hec_bound_end(b->bound).total_s;
  if (!run->policy->rewrite)
    *known_s = total_s;
  return total_s;
}

/* ---- One iteration of one policy ---- */

static hec_status measure(const comparison *c, workspace *w, const row_run *one, hec_summary_row *row) {
  const hec_program *program = hec_lowering_program(one->low);
  hec_breakdown all, ordinary;
  bool on_time = one->schedule->bound; /* a bound knows of no late rank: hec_sim_options */
  if (hec_lowering_one_off(one->low)) {
    hec_sim_run(w->sim, program, (hec_sim_options){.without_one_off = true, .on_time = on_time}, &w->timeline);
    ordinary = hec_timeline_breakdown(&w->timeline, program);
  }
  hec_sim_run(w->sim, program, (hec_sim_options){.on_time = on_time}, &w->timeline);
  if (hec_timeline_end_ps(&w->timeline) >= HEC_TIME_END_PS)
    return hec_fail(HEC_BAD_INPUT,
                    "%s, iteration %" PRId64 ": expected a simulated time below %.0f days, found a longer one; "
                    "check `cluster`, `model` and `tokens`",
                    row->name, c->iteration->iter, (double)HEC_TIME_END_PS * 1e-12 / 86400);
  if (c->options->check) {
    hec_program_check(program);
    hec_timeline_check(&w->timeline, program);
  }
  all = hec_timeline_breakdown(&w->timeline, program);
  hec_summary_add_iteration(row, one->low, &all, hec_lowering_one_off(one->low) ? &ordinary : &all,
                            c->iteration->stride);
  return HEC_OK;
}

static int64_t now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void say(const comparison *c, const char *what, const char *row) {
  if (!c->options->silent)
    hec_progress_doing(what, row);
}

static void simulate(void *context, int32_t worker, int64_t item) {
  comparison *c = context;
  int32_t p = c->order[item];
  workspace *w = &c->workspaces[worker];
  row_run *one = &c->runs[p];
  int64_t begin_ns = now_ns();
  say(c, "planning", c->options->policies[p]->name);
  lower(w, one, c->iteration);
  if (c->report)
    say(c, "simulating", c->options->policies[p]->name);
  if (c->report)
    one->status = measure(c, w, one, &c->summary->rows[p]);
  if (one->status != HEC_OK)
    (void)snprintf(one->message, sizeof one->message, "%s", hec_last_error());
  give_back(w, one);
  one->took_ns = now_ns() - begin_ns;
  if (!c->options->silent)
    hec_progress_at((double)c->iteration->index +
                        (1 + atomic_fetch_add(&c->n_ended, 1)) / (double)c->options->n_policies,
                    (double)c->options->n_iterations, 0);
}

static hec_status first_failure(const comparison *c) {
  for (int32_t p = 0; p < c->options->n_policies; p++)
    if (c->runs[p].status != HEC_OK)
      return hec_fail(c->runs[p].status, "%s", c->runs[p].message);
  return HEC_OK;
}

/* By insertion: it mostly is the order of last time. Who begins is all that clocks decide. */
static void sort_rows(comparison *c) {
  for (int32_t i = 1; i < c->options->n_policies; i++) {
    int32_t p = c->order[i], k = i;
    for (; k > 0 && c->runs[c->order[k - 1]].took_ns < c->runs[p].took_ns; k--)
      c->order[k] = c->order[k - 1];
    c->order[k] = p;
  }
}

/* ---- All of a trace ---- */

static void add_bounds(bounds *b, const comparison *c) {
  memset(b->known_s, 0, sizeof b->known_s);
  for (int32_t p = 0; p < c->options->n_policies; p++) {
    hec_summary_row *row = &c->summary->rows[p];
    const hec_policy_run *run = hec_lowering_run(c->runs[p].low);
    if (c->runs[p].schedule->bound) /* is one itself */
      continue;
    row->bound_class = hec_bound_class_name[hec_bound_class_of(run->policy, run->problem)];
    hec_series_add(&row->bound_s, bound_s_of(b, &c->runs[p], c->iteration));
  }
}

static hec_status run_all(comparison *c, hec_trace_reader *reader) {
  const hec_job *job = c->job;
  hec_feed *feed = hec_feed_new(job, reader);
  hec_status status = HEC_OK;
  const hec_problem *problem = &job->problem;
  bounds b = {.bound = hec_bound_new(problem, &c->arena),
              .closed_form = c->options->law->closed_form,
              .rewritten = hec_load_new(&c->arena, problem->n_layers, problem->n_ranks, problem->n_experts)};
  while ((status = hec_feed_next(feed, &c->iteration)) == HEC_OK && c->iteration) {
    c->report = c->iteration->index >= job->warmup;
    atomic_store(&c->n_ended, 0);
    run_rows(c, simulate);
    status = first_failure(c);
    if (status != HEC_OK)
      break;
    sort_rows(c);
    hec_sim_memo_clear(c->memo);
    say(c, "lower bounds", NULL);
    if (c->report)
      add_bounds(&b, c);
    c->summary->n_iterations += c->report;
    if (c->report)
      hec_series_add(&c->summary->iters, (double)c->iteration->iter);
  }
  c->summary->tokens = hec_feed_tokens(feed);
  hec_feed_free(feed);
  if (status == HEC_OK && c->summary->n_iterations == 0)
    status = hec_fail(HEC_BAD_INPUT, "`warmup`: no iteration is left to report");
  return status;
}

hec_status hec_compare(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                       hec_arena *arena, hec_summary *summary) {
  *summary = (hec_summary){.job = job,
                           .law = hec_law_name(options->law),
                           .not_modelled = hec_law_limits(options->law),
                           .n_rows = options->n_policies,
                           .rows = HEC_NEW(arena, hec_summary_row, options->n_policies)};
  comparison c = {.job = job, .options = options, .summary = summary};
  hec_status status = begin(&c);
  for (int32_t p = 0; status == HEC_OK && p < options->n_policies; p++)
    summary->rows[p] = hec_summary_row_of(options->policies[p], c.runs[p].schedule, job->problem.n_ranks, arena);
  if (status == HEC_OK) {
    hec_summary_tell_apart(summary, arena);
    status = run_all(&c, reader);
  }
  end(&c);
  return status;
}

/* ---- One iteration, looked at ---- */

static bool is_wanted(const comparison *c, int32_t p, int64_t iter) {
  if (iter >= 0)
    return c->iteration->iter == iter;
  return c->iteration->index - c->job->warmup == hec_summary_nearest_median(&c->summary->rows[p]);
}

/* In table order. Mostly few wait for earlier ones: rows begin in that order. */
static void hand_in(comparison *c, row_run *one) {
  (void)pthread_mutex_lock(&c->mutex);
  one->done = true;
  for (; c->n_done < c->options->n_policies && c->runs[c->n_done].done; c->n_done++)
    if (c->runs[c->n_done].wanted && c->view->looked)
      c->view->looked(c->view->context, c->n_done);
  (void)pthread_mutex_unlock(&c->mutex);
}

/* Lanes that nobody looks at only lower the iteration: their history must go on. */
static void look(void *context, int32_t worker, int64_t p) {
  comparison *c = context;
  workspace *w = &c->workspaces[worker];
  row_run *one = &c->runs[p];
  lower(w, one, c->iteration);
  if (one->wanted) {
    hec_sim_run(w->sim, hec_lowering_program(one->low), (hec_sim_options){.on_time = one->schedule->bound},
                &w->timeline);
    one->status = c->view->look(c->view->context, (int32_t)p, c->iteration->iter, one->low, &w->timeline);
    if (one->status != HEC_OK)
      (void)snprintf(one->message, sizeof one->message, "%s", hec_last_error());
  }
  give_back(w, one);
  hand_in(c, one);
}

/* Adds how many wanted it. */
static hec_status look_at_all(comparison *c, int32_t *n_looked) {
  for (int32_t p = 0; p < c->options->n_policies; p++) {
    c->runs[p].wanted = is_wanted(c, p, c->view->iter);
    c->runs[p].done = false;
    *n_looked += c->runs[p].wanted;
  }
  c->n_done = 0;
  run_rows(c, look);
  hec_sim_memo_clear(c->memo);
  return first_failure(c);
}

hec_status hec_compare_look(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                            hec_summary *summary, const hec_compare_view *view) {
  comparison c = {.job = job, .options = options, .summary = summary, .view = view, .mutex = PTHREAD_MUTEX_INITIALIZER};
  hec_status status = begin(&c);
  hec_feed *feed = status == HEC_OK ? hec_feed_new(job, reader) : NULL;
  int32_t n_looked = 0;
  while (status == HEC_OK && n_looked < options->n_policies && (status = hec_feed_next(feed, &c.iteration)) == HEC_OK &&
         c.iteration)
    status = look_at_all(&c, &n_looked);
  hec_feed_free(feed);
  end(&c);
  (void)pthread_mutex_destroy(&c.mutex);
  return status;
}
