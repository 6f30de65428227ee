/* Records become iterations. One record is read ahead, because an iteration ends where the next `iter` begins. Loads of
 * two iterations are in memory at most, whatever the trace's length. */
#include "runtime/program/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The loads of one iteration. */
typedef struct {
  int64_t iter;
  int32_t n, capacity;
  hec_load *loads;
  hec_token_range tokens;
  char label[128];
} group;

struct hec_feed {
  const hec_job *job;
  hec_trace_reader *reader;
  hec_arena arena;
  hec_load_remainder *order;
  group now, next;
  bool ended;
  hec_iteration iteration;
  hec_token_range tokens;
};

hec_feed *hec_feed_new(const hec_job *job, hec_trace_reader *reader) {
  hec_arena arena = {0};
  hec_feed *feed = HEC_NEW(&arena, hec_feed, 1);
  feed->job = job;
  feed->reader = reader;
  feed->order = HEC_NEW(&arena, hec_load_remainder, (size_t)job->problem.n_ranks * (size_t)job->problem.n_experts);
  feed->iteration = (hec_iteration){.index = -1, .stride = 1};
  feed->arena = arena;
  return feed;
}

void hec_feed_free(hec_feed *feed) {
  if (!feed)
    return;
  hec_arena arena = feed->arena; /* the feed itself lives in it */
  hec_arena_free(&arena);
}

static void widen(hec_token_range *range, hec_token_range by) {
  if (by.max == 0)
    return;
  range->min = range->max == 0 || by.min < range->min ? by.min : range->min;
  range->max = by.max > range->max ? by.max : range->max;
}

/* Per rank, as the job counts its own: of the fullest layer, rounded up. */
static int32_t tokens_of(const hec_problem *problem, const hec_load *load) {
  uint64_t total = 0, per_token = (uint64_t)problem->n_ranks * (uint64_t)problem->top_k;
  for (int32_t l = 0; l < load->n_layers; l++) {
    uint64_t layer = hec_load_layer_total(load, l);
    total = layer > total ? layer : total;
  }
  return (int32_t)((total + per_token - 1) / per_token);
}

hec_status hec_job_check_assignments(const char *what, uint64_t assignments) {
  if (assignments <= INT32_MAX)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: expected at most %d assignments in a layer, found %" PRIu64, what, INT32_MAX,
                  assignments);
}

hec_status hec_job_load(const hec_job *job, const hec_trace_record *record, hec_load *out, hec_load_remainder *order) {
  hec_load first = record->load; /* layers beyond the problem's are left out */
  first.n_layers = out->n_layers;
  hec_status status =
      job->scale_to > 0 ? hec_load_fit(&first, job->scale_to, out, order) : hec_load_spread(&first, out);
  if (status != HEC_OK) { /* the counts are the trace's: bad input */
    char why[256];
    (void)snprintf(why, sizeof why, "%s", hec_last_error());
    return hec_fail(HEC_BAD_INPUT, "%s:%" PRId64 ": %s", job->origin, record->line, why);
  }
  char line[512];
  (void)snprintf(line, sizeof line, "%.460s:%" PRId64, job->origin, record->line);
  for (int32_t l = 0; l < out->n_layers; l++)
    HEC_TRY(hec_job_check_assignments(line, hec_load_layer_total(out, l)));
  return HEC_OK;
}

static hec_status add_load(hec_feed *feed, group *to, const hec_trace_record *record) {
  if (to->n == HEC_MICRO_BATCHES_MAX)
    return hec_fail(HEC_BAD_INPUT, "%s:%" PRId64 ": iter: expected at most %d records of one iteration, found more",
                    feed->job->origin, record->line, HEC_MICRO_BATCHES_MAX);
  if (to->n == to->capacity) {
    int32_t capacity = to->capacity ? 2 * to->capacity : 1;
    hec_load *loads = HEC_NEW(&feed->arena, hec_load, capacity);
    if (to->n > 0)
      memcpy(loads, to->loads, (size_t)to->n * sizeof *loads);
    for (int32_t i = to->n; i < capacity; i++)
      loads[i] = hec_load_new(&feed->arena, feed->job->problem.n_layers, feed->job->problem.n_ranks,
                              feed->job->problem.n_experts);
    to->loads = loads;
    to->capacity = capacity;
  }
  if (to->n == 0) {
    to->iter = record->iter;
    to->tokens = (hec_token_range){0};
    memcpy(to->label, record->label, sizeof to->label);
  }
  hec_load *load = &to->loads[to->n++];
  HEC_TRY(hec_job_load(feed->job, record, load, feed->order));
  int32_t tokens = feed->job->scale_to == 0 ? tokens_of(&feed->job->problem, load) : 0;
  widen(&to->tokens, (hec_token_range){tokens, tokens});
  return HEC_OK;
}

hec_token_range hec_feed_tokens(const hec_feed *feed) {
  return feed->tokens;
}

/* Reads on until the iteration in `now` is complete and the first record of the next one is in `next`. */
static hec_status fill(hec_feed *feed) {
  group spare = feed->now;
  feed->now = feed->next;
  feed->next = spare;
  feed->next.n = 0;
  while (!feed->ended && feed->next.n == 0) {
    const hec_trace_record *record;
    HEC_TRY(hec_trace_next(feed->reader, &record));
    feed->ended = record == NULL;
    if (record)
      HEC_TRY(add_load(feed, feed->now.n == 0 || feed->now.iter == record->iter ? &feed->now : &feed->next, record));
  }
  return HEC_OK;
}

hec_status hec_feed_next(hec_feed *feed, const hec_iteration **iteration) {
  *iteration = NULL;
  HEC_TRY(fill(feed));
  if (feed->now.n == 0)
    return HEC_OK;
  widen(&feed->tokens, feed->now.tokens);
  hec_iteration *it = &feed->iteration;
  it->index++;
  it->iter = feed->now.iter;
  it->stride = feed->next.n > 0 ? feed->next.iter - feed->now.iter : it->stride;
  it->n_loads = feed->now.n;
  it->n_micro_batches = feed->now.n > 1 ? feed->now.n : feed->job->micro_batches;
  it->loads = feed->now.loads;
  it->label = feed->now.label;
  *iteration = it;
  return HEC_OK;
}
