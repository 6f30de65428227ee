/* Goes through a trace again to look at one iteration of every row. Rows that nobody looks at only lower the iteration: their
 * history must go on. */
#include "sim/compare_state.h"

#include <stdio.h>

/* As the rows of a summary say. */
static void list_rows(hec_comparison *c) {
  c->n_rows = c->options->n_policies;
  c->runs = HEC_NEW(&c->arena, hec_compare_row, c->n_rows);
  for (int32_t p = 0; p < c->n_rows; p++)
    c->runs[p] = (hec_compare_row){.policy = c->options->policies[p],
                                   .schedule = hec_schedule_find(c->summary->rows[p].schedule)};
}

static bool is_wanted(const hec_comparison *c, int32_t p, int64_t iter) {
  if (iter >= 0)
    return c->iteration->iter == iter;
  return c->iteration->index - c->job->warmup == hec_summary_nearest_median(&c->summary->rows[p]);
}

/* In table order. Mostly few wait for earlier ones: groups begin in that order. */
static void hand_in(hec_comparison *c, const hec_compare_group *g) {
  (void)pthread_mutex_lock(&c->mutex);
  for (int32_t i = 0; i < g->n; i++)
    c->runs[g->first + i].done = true;
  for (; c->n_done < c->n_rows && c->runs[c->n_done].done; c->n_done++)
    if (c->runs[c->n_done].wanted && c->view->looked)
      c->view->looked(c->view->context, c->n_done);
  (void)pthread_mutex_unlock(&c->mutex);
}

static void look_at_row(const hec_comparison *c, hec_compare_worker *w, int32_t p) {
  hec_compare_row *one = &c->runs[p];
  hec_sim_run(w->sim, hec_lowering_program(one->low), (hec_sim_options){.on_time = one->schedule->bound}, &w->timeline);
  one->status = c->view->look(c->view->context, p, c->iteration->iter, one->low, &w->timeline);
  if (one->status != HEC_OK)
    (void)snprintf(one->message, sizeof one->message, "%s", hec_last_error());
}

static void look(void *context, int32_t worker, int64_t item) {
  hec_comparison *c = context;
  hec_compare_worker *w = &c->workspaces[worker];
  const hec_compare_group *g = &c->groups[item];
  hec_comparison_lower(c, w, g);
  for (int32_t p = g->first; p < g->first + g->n; p++)
    if (c->runs[p].wanted)
      look_at_row(c, w, p);
  hec_comparison_give_back(c, w, g);
  hand_in(c, g);
}

/* Adds how many wanted it. */
static hec_status look_at_all(hec_comparison *c, int32_t *n_looked) {
  for (int32_t p = 0; p < c->n_rows; p++) {
    c->runs[p].wanted = is_wanted(c, p, c->view->iter);
    c->runs[p].done = false;
    *n_looked += c->runs[p].wanted;
  }
  c->n_done = 0;
  hec_comparison_run(c, look);
  hec_sim_memo_clear(c->memo);
  return hec_comparison_failure(c);
}

hec_status hec_compare_look(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                            hec_summary *summary, const hec_compare_view *view) {
  hec_comparison c = {
      .job = job, .options = options, .summary = summary, .view = view, .mutex = PTHREAD_MUTEX_INITIALIZER};
  hec_status status = HEC_OK;
  list_rows(&c);
  hec_comparison_begin(&c);
  HEC_OPENED(hec_feed) *feed = hec_feed_new(job, reader);
  int32_t n_looked = 0;
  while (status == HEC_OK && n_looked < c.n_rows && (status = hec_feed_next(feed, &c.iteration)) == HEC_OK &&
         c.iteration)
    status = look_at_all(&c, &n_looked);
  hec_comparison_end(&c);
  (void)pthread_mutex_destroy(&c.mutex);
  return status;
}
