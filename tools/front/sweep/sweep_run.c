/* Runs a sweep: threads take items, each some policies of one group (everything equal but the policy). They compare
 * them in one pass over the trace as hecate-sim does; how, says the kind of the rows (sweep_kind.h). Configurations
 * may differ only by law, schedule and policy. What these share (model, cluster with its routes, problem) a thread
 * keeps while it stays on one job. The text of a trace is shared by all. Items follow the product, so neighbours
 * mostly share a job.
 *
 * An item has all policies of its group where there are many groups, fewer where threads would stand idle. Rows do not
 * depend on it: a policy's row is the same in every company, and ratios between rows are made at the end.
 *
 * A comparison that fails is done again one policy at a time, so that a reason stands with the rows it belongs to.
 * One mutex guards what is shared (rows, journal, the first failure); simulation runs outside of it. */
#include "runtime/base/pool.h"
#include "tools/front/sweep/sweep_kind.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ITEMS_PER_THREAD = 8, POLICIES_MAX = 64 };

typedef struct {
  hec_sweep_rows *rows;
  const hec_sweep_run_options *options;
  int32_t per_item; /* policies */
  int64_t n_items, per_group, of, before;
  double begin_s;
  struct worker *workers;
  pthread_mutex_t mutex;
  /* under the mutex: */
  int64_t done;
  hec_status status; /* of the first failure, which stops all */
  char message[1024];
} shared;

typedef struct worker {
  shared *run;
  hec_sweep_held held;
  hec_arena_mark after_job;
  int64_t trace_at, job_at; /* -1: none yet */
  char why[1024];           /* there is no job; "": there is */
  /* results of an item, until they are handed in */
  int32_t n;
  int64_t index[POLICIES_MAX];
  hec_sweep_row row[POLICIES_MAX]; /* why: NULL or reason */
  char reason[POLICIES_MAX][1024];
} worker;

/* ---- One comparison ---- */

static void cannot(worker *w, int32_t i, const char *why) {
  HEC_SCOPED(hec_text) named = {0};
  hec_args_add_flags(why, &named);
  (void)snprintf(w->reason[i], sizeof w->reason[i], "%s", named.data ? named.data : "");
  w->row[i] = (hec_sweep_row){.why = w->reason[i]};
}

/* Compares the policies of those results of the item whose places are in `place`; they are filled in only on success. */
static hec_status compare(worker *w, const int32_t *place, int32_t n) {
  const hec_sweep *s = w->run->rows->sweep;
  const hec_policy *policies[POLICIES_MAX];
  hec_sweep_row *rows[POLICIES_MAX];
  for (int32_t i = 0; i < n; i++) {
    policies[i] = hec_sweep_policy(s, w->index[place[i]]);
    rows[i] = &w->row[place[i]];
  }
  hec_status status = hec_trace_rewind(w->held.reader);
  if (status == HEC_OK)
    status = s->kind->compare(s, w->index[place[0]], policies, n, &w->held, rows);
  hec_arena_rewind(&w->held.arena, w->after_job);
  return status;
}

/* ---- One item ---- */

static hec_status open_trace(worker *w, int64_t index) {
  const hec_sweep *s = w->run->rows->sweep;
  const hec_sweep_value *value = hec_sweep_at(s, index, HEC_AXIS_trace);
  int64_t at = value - s->axis[HEC_AXIS_trace].value;
  if (at == w->trace_at)
    return hec_trace_rewind(w->held.reader);
  hec_trace_close(w->held.reader);
  w->held.reader = NULL;
  w->trace_at = -1;
  HEC_TRY(hec_trace_open_memory(s->traces[at].bytes, s->traces[at].length, value->text, &w->held.reader));
  w->trace_at = at;
  return HEC_OK;
}

static hec_status make_job(worker *w, int64_t index) {
  HEC_TRY(open_trace(w, index));
  return w->run->rows->sweep->kind->make(w->run->rows->sweep, index, &w->held);
}

static void need_job(worker *w, int64_t index) {
  int64_t job = index / w->run->rows->sweep->per_job;
  if (job == w->job_at)
    return;
  hec_arena_free(&w->held.arena);
  w->why[0] = 0;
  if (make_job(w, index) != HEC_OK)
    (void)snprintf(w->why, sizeof w->why, "%s", hec_last_error());
  w->job_at = job;
  w->after_job = hec_arena_save(&w->held.arena);
}

static void run_item(worker *w) {
  int32_t fit[POLICIES_MAX], n_fit = 0;
  need_job(w, w->index[0]);
  for (int32_t i = 0; i < w->n; i++) {
    const hec_policy *policy = hec_sweep_policy(w->run->rows->sweep, w->index[i]);
    if (w->why[0])
      cannot(w, i, w->why);
    else if (hec_policy_suits(policy, w->held.problem) != HEC_OK)
      cannot(w, i, hec_last_error());
    else
      fit[n_fit++] = i;
  }
  if (n_fit == 0 || compare(w, fit, n_fit) == HEC_OK)
    return;
  for (int32_t i = 0; i < n_fit; i++)
    if (compare(w, &fit[i], 1) != HEC_OK)
      cannot(w, fit[i], hec_last_error());
}

/* ---- Threads ---- */

/* What there is to do of an item: its rows of this shard that are not there. Under the mutex. */
static void list_rows(worker *w, int64_t item) {
  const shared *run = w->run;
  const hec_sweep *s = run->rows->sweep;
  int64_t n_policies = hec_sweep_policies(s), first = item % run->per_group * run->per_item;
  w->n = 0;
  for (int64_t p = first; run->status == HEC_OK && p < first + run->per_item && p < n_policies; p++) {
    int64_t index = item / run->per_group * n_policies + p;
    if (!run->rows->row[index] && hec_sweep_mine(s, index, run->options->shard, run->options->n_shards))
      w->index[w->n++] = index;
  }
}

/* Under the mutex. */
static void hand_in(worker *w) {
  shared *run = w->run;
  for (int32_t i = 0; i < w->n; i++)
    hec_sweep_rows_set(run->rows, w->index[i], &w->row[i]);
  run->done += w->n;
  if (run->status == HEC_OK && run->options->journal)
    run->status = hec_sweep_journal_add(run->options->journal, run->rows, w->index, w->n);
  else if (run->status != HEC_OK)
    return;
  if (run->status == HEC_OK && run->options->done)
    (void)atomic_fetch_add(run->options->done, w->n);
  if (run->status != HEC_OK)
    (void)snprintf(run->message, sizeof run->message, "%s", hec_last_error());
}

static void work(void *context, int32_t number, int64_t item) {
  shared *run = context;
  worker *w = &run->workers[number];
  (void)pthread_mutex_lock(&run->mutex);
  list_rows(w, item);
  (void)pthread_mutex_unlock(&run->mutex);
  if (w->n == 0)
    return;
  run_item(w);
  (void)pthread_mutex_lock(&run->mutex);
  hand_in(w);
  (void)pthread_mutex_unlock(&run->mutex);
}

static double now_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void watch(void *context) {
  shared *run = context;
  (void)pthread_mutex_lock(&run->mutex);
  int64_t done = run->done;
  (void)pthread_mutex_unlock(&run->mutex);
  run->options->progress(done, run->of, run->before, now_s() - run->begin_s, run->options->progress_context);
}

static void run_items(shared *run) {
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_OPENED(hec_pool) *pool = hec_pool_new(run->options->n_threads);
  int32_t n = hec_pool_workers(pool);
  run->workers = HEC_NEW(&arena, worker, n);
  for (int32_t i = 0; i < n; i++) {
    run->workers[i].run = run;
    run->workers[i].held.solver = run->options->solver;
    run->workers[i].trace_at = run->workers[i].job_at = -1;
  }
  run->begin_s = now_s();
  hec_pool_run(
      pool,
      &(hec_pool_job){.n = run->n_items, .work = work, .watch = run->options->progress ? watch : NULL, .context = run});
  for (int32_t i = 0; i < n; i++) {
    hec_trace_close(run->workers[i].held.reader);
    hec_arena_free(&run->workers[i].held.arena);
  }
}

hec_status hec_sweep_run(hec_sweep_rows *rows, const hec_sweep_run_options *options) {
  const hec_sweep *s = rows->sweep;
  int64_t n_policies = hec_sweep_policies(s), n_groups = s->n / n_policies;
  HEC_ASSERT(n_policies <= POLICIES_MAX && options->n_threads > 0);
  shared run = {.rows = rows, .options = options, .mutex = PTHREAD_MUTEX_INITIALIZER};
  int64_t wanted = (int64_t)ITEMS_PER_THREAD * options->n_threads * options->n_shards;
  int64_t per_item = n_groups * n_policies / wanted;
  run.per_item = (int32_t)(per_item < 1 ? 1 : per_item > n_policies ? n_policies : per_item);
  run.per_group = (n_policies + run.per_item - 1) / run.per_item;
  run.n_items = n_groups * run.per_group;
  for (int64_t i = 0; i < s->n; i++) {
    bool mine = hec_sweep_mine(s, i, options->shard, options->n_shards);
    run.of += mine;
    run.before += mine && rows->row[i];
  }
  run.done = run.before;
  if (run.done < run.of)
    run_items(&run);
  (void)pthread_mutex_destroy(&run.mutex);
  return run.status == HEC_OK ? HEC_OK : hec_fail(run.status, "%s", run.message);
}
