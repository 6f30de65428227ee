/* The comparison end to end on traces in memory. Its outputs parse and have the keys of the contract, they repeat to
 * the byte, periodic planning is weighed as what it is. An allocation that fails anywhere ends it cleanly. */
#include "models/json.h"
#include "runtime/program/job.h"
#include "tests/support/test.h"
#include "tests/support/trace_text.h"
#include "tools/front/compare_draw.h"
#include "tools/front/job_make.h"
#include "tools/front/summary/summary_write.h"

#include <math.h>
#include <string.h>

#define BOX "2x2 nvlink=300G@2us nic=50G@5us flops=312T mem=40G"

static const hec_test_trace small = {
    .layers = 2, .experts = 6, .top_k = 2, .sources = 4, .records = 4, .first_iter = 3, .stride = 2};

typedef struct {
  hec_arena arena;
  hec_text text, json, csv, table, events;
  hec_trace_reader *reader;
  hec_job job;
  hec_summary summary;
} comparison;

static const hec_policy *policies[64];
static int32_t n_policies, n_threads;
static int64_t n_iterations; /* as the comparison is told */
static const char *box = BOX;
static void all_policies(void) {
  n_policies = 0;
  for (int32_t i = 0; hec_policies[i]; i++)
    if (!hec_policies[i]->placed) /* of a user's file: tests/tools/test_placement.sh */
      policies[n_policies++] = hec_policies[i];
}

static hec_status run(comparison *c, const hec_test_trace *trace, const char *schedule, const hec_law *law) {
  hec_job_options wanted = HEC_JOB_OPTIONS;
  wanted.cluster = box;
  wanted.model = "tiny";
  wanted.period = 2;
  hec_compare_options options = {.policies = policies,
                                 .n_policies = n_policies,
                                 .n_iterations = n_iterations,
                                 .schedule = schedule,
                                 .law = law,
                                 .check = true,
                                 .n_threads = n_threads};
  c->reader = hec_test_trace_open(trace, 5, &c->text);
  HEC_TRY(hec_job_make(&wanted, c->reader, &c->arena, &c->job));
  HEC_TRY(hec_compare(&c->job, c->reader, &options, &c->arena, &c->summary));
  c->summary.tool = "test";
  c->summary.trace = "made";
  hec_summary_json(&c->summary, &c->json);
  hec_summary_csv(&c->summary, &c->csv);
  hec_summary_table(&c->summary, &c->table);
  HEC_TRY(hec_trace_rewind(c->reader));
  return hec_compare_draw(&c->job, c->reader, &options, &c->summary, &(hec_compare_drawing){.iter = -1},
                          &(hec_timeline_out){.format = hec_timeline_formats[0], .text = &c->events});
}

static void finish(comparison *c) {
  hec_summary_free(&c->summary);
  hec_trace_close(c->reader);
  hec_text_free(&c->text);
  hec_text_free(&c->json);
  hec_text_free(&c->csv);
  hec_text_free(&c->table);
  hec_text_free(&c->events);
  hec_arena_free(&c->arena);
}

static hec_json *parse(const hec_text *text) {
  hec_json *json = NULL;
  ck_ok(hec_json_parse(text->data, text->length, "output", &json));
  return json;
}

static void want(const hec_json_value *object, const char *const *keys) {
  for (; *keys; keys++)
    ck_assert_msg(hec_json_get(object, *keys) != NULL, "no key \"%s\"", *keys);
}

static double number(const hec_json_value *object, const char *key) {
  const hec_json_value *value = hec_json_get(object, key);
  ck_assert_msg(value && hec_json_is_number(value), "%s is no number", key);
  return hec_json_number(value);
}

static void check_row(const hec_json_value *row) {
  static const char *const keys[] = {"name",
                                     "schedule",
                                     "iteration_s",
                                     "speedup_vs_ep",
                                     "speedup_vs_best_rearrangement",
                                     "overload_factor",
                                     "exposed_s",
                                     "compute_s",
                                     "planning_s",
                                     "bytes",
                                     "peak_memory_bytes",
                                     "fits",
                                     NULL};
  static const char *const times[] = {"median", "p95", "mean", NULL}, *const factor[] = {"median", "p95", NULL};
  static const char *const exposed[] = {"token", "param", "grad", "migration", NULL};
  static const char *const bytes[] = {"dispatch", "combine", "gather", "scatter", "dense", "migration", NULL};
  want(row, keys);
  want(hec_json_get(row, "iteration_s"), times);
  want(hec_json_get(row, "overload_factor"), factor);
  want(hec_json_get(row, "exposed_s"), exposed);
  want(hec_json_get(row, "bytes"), bytes);
  const hec_json_value *time = hec_json_get(row, "iteration_s");
  ck_assert(number(time, "median") > 0 && number(time, "p95") >= number(time, "median") && number(time, "mean") > 0);
  ck_assert(number(hec_json_get(row, "overload_factor"), "median") >= 1);
  const hec_json_value *bound = hec_json_get(row, "bound_s");
  ck_assert(bound && hec_json_get(row, "vs_bound"));
  if (hec_json_is_number(bound)) { /* null for `ideal`, which is one */
    ck_assert(number(row, "bound_s") > 0 && number(row, "vs_bound") >= 1);
    ck_assert_double_eq_tol(number(row, "vs_bound") * number(row, "bound_s"), number(time, "median"),
                            1e-6 * number(time, "median"));
    ck_assert_ptr_nonnull(hec_json_get(row, "bound_class"));
  } else
    ck_assert_str_eq(hec_json_text(hec_json_get(row, "name")), "ideal");
  ck_assert(number(row, "peak_memory_bytes") > 0 && number(row, "compute_s") > 0);
}

static const char *const schedules[] = {"published", "serial", "hecate"};

/* The best rearrangement is one row for all: in JSON 1 at the fastest that rearranges experts, and what the verdict says of
 * the winner. */
static void check_rearranging(comparison *c, const hec_json_value *rows) {
  const hec_json_value *best = NULL, *winner = NULL;
  double fastest = INFINITY, min = INFINITY;
  for (const hec_json_value *row = hec_json_first(rows); row; row = hec_json_next(row)) {
    const hec_policy *policy = hec_policy_find(hec_json_text(hec_json_get(row, "name")));
    double median = number(hec_json_get(row, "iteration_s"), "median");
    if (policy->rearranges && median < fastest) {
      fastest = median;
      best = row;
    }
    if (!policy->reference && !policy->drops && median < min) {
      min = median;
      winner = row;
    }
  }
  ck_assert(best && winner);
  for (const hec_json_value *row = hec_json_first(rows); row; row = hec_json_next(row))
    ck_assert_double_eq_tol(number(row, "speedup_vs_best_rearrangement"),
                            fastest / number(hec_json_get(row, "iteration_s"), "median"), 1e-9);
  char line[256];
  (void)snprintf(line, sizeof line, "  %.2fx as fast as %s, the fastest here that rearranges experts",
                 number(winner, "speedup_vs_best_rearrangement"), hec_json_text(hec_json_get(best, "name")));
  if (!hec_policy_find(hec_json_text(hec_json_get(winner, "name")))->rearranges)
    ck_assert_msg(strstr(c->table.data, line), "%s is not in %s", line, c->table.data);
}

HEC_TEST_LOOP(outputs, 6) {
  comparison c = {0};
  all_policies();
  ck_ok(run(&c, &small, schedules[_i % 3], _i < 3 ? &hec_law_alpha_beta : &hec_law_max_min));
  hec_json *json = parse(&c.json), *events = parse(&c.events);
  static const char *const top[] = {"version", "trace", "cluster", "model", "defaults_taken", "policies", NULL};
  want(hec_json_root(json), top);
  const hec_json_value *rows = hec_json_get(hec_json_root(json), "policies");
  ck_assert_int_eq(hec_json_length(rows), n_policies);
  check_rearranging(&c, rows);
  for (const hec_json_value *row = hec_json_first(rows); row; row = hec_json_next(row)) {
    check_row(row);
    if (strcmp(hec_json_text(hec_json_get(row, "name")), "ep") == 0)
      ck_assert(number(row, "speedup_vs_ep") == 1);
  }
  ck_assert_int_gt(hec_json_length(hec_json_get(hec_json_root(events), "traceEvents")), 100);
  hec_json_free(json);
  hec_json_free(events);
  size_t commas = 0, first = 0, lines = 0;
  for (const char *p = c.csv.data; *p; p++) {
    commas += *p == ',';
    if (*p != '\n')
      continue;
    first = lines++ == 0 ? commas : first;
    ck_assert_uint_eq(commas, first);
    commas = 0;
  }
  ck_assert_uint_eq(lines, (size_t)n_policies + 1);
  ck_assert_ptr_null(strstr(c.table.data, "synthetic"));
  comparison again = {0};
  ck_ok(run(&again, &small, schedules[_i % 3], _i < 3 ? &hec_law_alpha_beta : &hec_law_max_min));
  ck_assert_str_eq(c.json.data, again.json.data);
  ck_assert_str_eq(c.csv.data, again.csv.data);
  ck_assert_str_eq(c.table.data, again.table.data);
  ck_assert_str_eq(c.events.data, again.events.data);
  finish(&c);
  finish(&again);
}

/* Threads share the policies; nothing of it can be seen. */
HEC_TEST_LOOP(threads_leave_no_trace, 3) {
  static const hec_law *const laws[] = {&hec_law_alpha_beta, &hec_law_max_min, &hec_law_nccl_rounds};
  static const int32_t threads[] = {1, 2, 5, 100};
  comparison alone = {0};
  all_policies();
  ck_ok(run(&alone, &small, "published", laws[_i]));
  for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
    comparison c = {0};
    n_threads = threads[i];
    ck_ok(run(&c, &small, "published", laws[_i]));
    ck_assert_str_eq(c.json.data, alone.json.data);
    ck_assert_str_eq(c.csv.data, alone.csv.data);
    ck_assert_str_eq(c.table.data, alone.table.data);
    ck_assert_str_eq(c.events.data, alone.events.data);
    finish(&c);
  }
  n_threads = 0;
  finish(&alone);
}

/* Policies whose planning takes for ever from an iteration on. */
static void plan_endlessly(hec_policy_run *run, int64_t from_iter) {
  run->planned = true;
  run->units = run->iter >= from_iter ? UINT64_C(1) << 62 : 1;
}
static void fail_late(hec_policy_run *run) {
  plan_endlessly(run, 7);
}
static void fail_soon(hec_policy_run *run) {
  for (volatile int i = 0; i < 3000000; i++) /* the first in the table is the last to fail */
    ;
  plan_endlessly(run, 5);
}
static void fail_soon_too(hec_policy_run *run) {
  plan_endlessly(run, 5);
}

/* The failure that is reported: of the first iteration that has one, the first row's. Histories are whole until then. */
HEC_TEST(first_failure_in_table_order) {
  hec_policy late = *hec_policy_find("ep"), soon = late, soon_too = late;
  late.name = "late";
  late.decide = fail_late;
  soon.name = "soon";
  soon.decide = fail_soon;
  soon_too.name = "soon-too";
  soon_too.decide = fail_soon_too;
  all_policies();
  policies[1] = &late;
  policies[6] = &soon;
  policies[7] = policies[n_policies - 1] = &soon_too;
  for (n_threads = 1; n_threads <= 8; n_threads++) {
    comparison c = {0};
    ck_refused(run(&c, &small, "published", &hec_law_alpha_beta), "soon, iteration 5: expected a simulated time below");
    finish(&c);
  }
  n_threads = 0;
}

HEC_TEST(synthetic_is_said) {
  comparison c = {0};
  all_policies();
  hec_test_trace t = small;
  t.extra = ",\"synthetic\":{\"generator\":\"test\"}";
  ck_ok(run(&c, &t, "published", &hec_law_alpha_beta));
  ck_assert_ptr_nonnull(strstr(c.table.data, "synthetic"));
  ck_assert_ptr_nonnull(strstr(c.json.data, "synthetic"));
  finish(&c);
}

HEC_TEST_LOOP(one_record_alone, 2) {
  comparison c = {0};
  all_policies();
  hec_test_trace t = {.layers = 1, .experts = 1, .top_k = 1, .sources = 1, .records = 1, .cell = _i ? 1 : 0};
  ck_ok(run(&c, &t, "published", &hec_law_alpha_beta));
  ck_assert_int_eq(c.summary.n_iterations, 1);
  finish(&c);
}

HEC_TEST_LOOP(unknown_schedule, 2) { /* also for a policy that runs under no other */
  comparison c = {0};
  policies[0] = hec_policy_find(_i ? "ideal" : "ep");
  n_policies = 1;
  ck_refused(run(&c, &small, "bogus", &hec_law_alpha_beta), "bogus");
  finish(&c);
}

/* A periodic policy plans every 2 iterations. So its planning is paid once, not once for every iteration the record
 * stands for: mean = (sum of stride * ordinary + one-off) / sum of strides. Planning takes 1 s here, the rest next to
 * nothing, and the trace's records are 2 iterations apart. */
HEC_TEST(planning_is_paid_once) {
  comparison c = {0};
  hec_job_options wanted = HEC_JOB_OPTIONS;
  wanted.cluster = "2x2 nvlink=300G nic=50G flops=312T mem=40G plan=1s";
  wanted.model = "tiny";
  wanted.period = 2;
  policies[0] = hec_policy_find("smartmoe");
  hec_test_trace t = small;
  t.cell = 10; /* even: nothing to move, so planning is the only one-off cost */
  c.reader = hec_test_trace_open(&t, 5, &c.text);
  hec_compare_options options = {
      .policies = policies, .n_policies = 1, .schedule = "published", .law = &hec_law_alpha_beta};
  ck_ok(hec_job_make(&wanted, c.reader, &c.arena, &c.job));
  ck_ok(hec_compare(&c.job, c.reader, &options, &c.arena, &c.summary));
  double planned = c.summary.rows[0].book_s[HEC_BOOK_PLAN];
  ck_assert_double_gt(planned, 2.9); /* records 2, 3 and 4 */
  ck_assert_double_lt(hec_summary_mean(&c.summary.rows[0]), planned / 8 + 0.01);
  finish(&c);
}

/* What `joint` sends in a run under `law`, planned by `expected`. */
static double sent_by_joint(uint64_t seed, const hec_law *law, const hec_law *expected) {
  static const hec_test_trace trace = {.layers = 3, .experts = 16, .top_k = 2, .sources = 8, .records = 8, .stride = 1};
  comparison c = {0};
  hec_job_options wanted = HEC_JOB_OPTIONS;
  wanted.cluster = "2x4 nvlink=300G@2us nic=5G@5us flops=312T mem=40G nics=2";
  wanted.model = "gpt-moe-s";
  wanted.tokens = 1024;
  policies[0] = hec_policy_find("joint");
  c.reader = hec_test_trace_open(&trace, seed, &c.text);
  hec_compare_options options = {
      .policies = policies, .n_policies = 1, .schedule = "published", .law = law, .expected = expected};
  ck_ok(hec_job_make(&wanted, c.reader, &c.arena, &c.job));
  ck_ok(hec_compare(&c.job, c.reader, &options, &c.arena, &c.summary));
  double sent = 0;
  for (int32_t kind = 0; kind < HEC_N_TRAFFIC; kind++)
    sent = 31 * sent + c.summary.rows[0].traffic[kind];
  finish(&c);
  return sent;
}

/* Under another law of the network, plans stay those of the law that they expect. */
HEC_TEST(planned_by_another_law) {
  int32_t other = 0;
  for (uint64_t seed = 1; seed <= 12 && other == 0; seed++) {
    double sent = sent_by_joint(seed, &hec_law_alpha_beta, NULL);
    ck_assert_double_eq(sent_by_joint(seed, &hec_law_max_min, &hec_law_alpha_beta), sent);
    other += sent_by_joint(seed, &hec_law_max_min, NULL) != sent; /* mostly the laws lead to the same plan */
  }
  ck_assert_int_gt(other, 0);
}

/* Each row under its best schedule is the fastest of that policy's rows under each schedule alone. Schedules of no paper are no
 * candidates, and a policy that plans by its schedule has but one. */
HEC_TEST_LOOP(best_of_all, 2) {
  const hec_law *const laws[] = {&hec_law_alpha_beta, &hec_law_nccl_rounds};
  comparison best = {0}, one;
  all_policies();
  n_threads = 3;
  ck_ok(run(&best, &small, "best", laws[_i]));
  n_threads = 1;
  ck_assert(best.summary.best && best.summary.n_rows == n_policies);
  int32_t found[64] = {0}, other = 0;
  for (int32_t s = 0; hec_schedules[s]; s++) {
    if (hec_schedules[s]->bound || hec_schedules[s]->own)
      continue;
    one = (comparison){0};
    ck_ok(run(&one, &small, hec_schedules[s]->name, laws[_i]));
    for (int32_t p = 0; p < n_policies; p++) {
      hec_summary_row *row = &best.summary.rows[p], *alone = &one.summary.rows[p];
      ck_assert_str_eq(row->name, policies[p]->name);
      if (policies[p]->by_schedule)
        continue;
      if (policies[p]->baseline && strcmp(alone->schedule, policies[p]->schedule) == 0) /* as people run it today */
        ck_assert_double_eq(row->published_s, hec_summary_median(alone));
      if (_i == 0) /* a law of flows has only those near the best under alpha_beta */
        ck_assert_msg(hec_summary_median(row) <= hec_summary_median(alone), "%s is faster under %s", row->name,
                      alone->schedule);
      if (strcmp(row->schedule, alone->schedule) != 0)
        continue;
      found[p]++;
      other += strcmp(row->schedule, policies[p]->schedule) != 0;
      ck_assert_double_eq(hec_summary_median(row), hec_summary_median(alone));
      ck_assert_double_eq(hec_summary_mean(row), hec_summary_mean(alone));
      ck_assert_double_eq(row->peak_bytes, alone->peak_bytes);
      ck_assert_double_eq(hec_series_quantile(&row->bound_s, 0.5), hec_series_quantile(&alone->bound_s, 0.5));
      ck_assert_str_eq(row->note, alone->note);
    }
    finish(&one);
  }
  for (int32_t p = 0; p < n_policies; p++)
    ck_assert_msg(found[p] > 0 || policies[p]->only_schedule || policies[p]->by_schedule, "%s ran under %s",
                  policies[p]->name, best.summary.rows[p].schedule);
  ck_assert_int_gt(other, 5); /* many are faster than as published */
  finish(&best);
}

/* Candidates are dropped where the number of iterations is known; nothing of it can be seen. The same with a byte less
 * than a row's peak: the row fits until that iteration. */
HEC_TEST_LOOP(dropping_leaves_no_trace, 2) {
  const hec_law *const laws[] = {&hec_law_alpha_beta, &hec_law_max_min};
  const hec_test_trace t = {.layers = 2, .experts = 6, .top_k = 2, .sources = 4, .records = 12 + _i, .stride = 1};
  static const char *const some[] = {"ep", "hecate", "eplb", "fastermoe"};
  double peak[1 + sizeof some / sizeof *some] = {40e9};
  for (n_policies = 0; n_policies < 4; n_policies++)
    policies[n_policies] = hec_policy_find(some[n_policies]);
  for (int32_t i = 0; i <= n_policies; i++) {
    comparison all = {0}, dropping = {0};
    char line[128];
    (void)snprintf(line, sizeof line, "2x2 nvlink=300G@2us nic=50G@5us flops=312T mem=%.0f",
                   i == 0 ? 40e9 : peak[i] - 1);
    box = line;
    ck_ok(run(&all, &t, "best", laws[_i]));
    n_iterations = t.records;
    ck_ok(run(&dropping, &t, "best", laws[_i]));
    n_iterations = 0;
    ck_assert_str_eq(all.json.data, dropping.json.data);
    ck_assert_str_eq(all.csv.data, dropping.csv.data);
    ck_assert_double_gt(all.summary.rows[0].published_s, 0); /* of ep: never dropped */
    ck_assert_double_eq(dropping.summary.rows[0].published_s, all.summary.rows[0].published_s);
    for (int32_t p = 0; i == 0 && p < n_policies; p++)
      peak[1 + p] = all.summary.rows[p].peak_bytes;
    finish(&all);
    finish(&dropping);
  }
  box = BOX;
}

static hec_status run_again(uint64_t k) {
  const hec_test_trace t = {.layers = 1, .experts = 3, .top_k = 1, .sources = 2, .records = 2};
  static comparison c;
  c = (comparison){0};
  return run(&c, &t, "published", k % 2 ? &hec_law_alpha_beta : &hec_law_max_min);
}

HEC_TEST(no_memory) {
  all_policies();
  hec_test_no_memory(run_again);
}
