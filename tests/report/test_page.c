/* Pages of comparisons, sweeps and validations made in memory. Their tags are balanced and their attributes quoted, by
 * a reader that knows nothing of how they are made. Every chart is there, with a sentence and units; nothing points
 * outside; hostile names stay text. The same input gives the same bytes; an allocation that fails anywhere ends it
 * cleanly. */
#include "runtime/program/job.h"
#include "tests/support/test.h"
#include "tests/support/trace_text.h"
#include "tools/front/compare_draw.h"
#include "tools/front/job_make.h"
#include "tools/front/page/chart.h"
#include "tools/front/summary/summary_write.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define HOSTILE "</title><script>alert(1)</script>\\\"'&<img src=x onerror=y>"

typedef struct {
  hec_arena arena;
  hec_text text, page, events;
  int32_t n_threads;
  hec_trace_reader *reader;
  hec_job job;
  hec_summary summary;
  hec_report report;
  const char *name; /* of the trace; NULL: as it calls itself */
} maker;

static const hec_policy *policies[64];
static int32_t n_policies;

static void look(void *context, int32_t row, int64_t iter, const hec_lowering *low, const hec_timeline *timeline) {
  hec_report_draw(&((maker *)context)->report, row, iter, low, timeline);
}

static hec_status make(maker *m, const hec_test_trace *trace, const char *cluster, const hec_law *law) {
  hec_job_options wanted = HEC_JOB_OPTIONS;
  wanted.cluster = cluster;
  wanted.model = "tiny";
  wanted.period = 2;
  hec_compare_options options = {
      .policies = policies, .n_policies = n_policies, .schedule = "published", .law = law, .n_threads = m->n_threads};
  m->reader = hec_test_trace_open(trace, 5, &m->text);
  HEC_TRY(hec_job_make(&wanted, m->reader, &m->arena, &m->job));
  HEC_TRY(hec_compare(&m->job, m->reader, &options, &m->arena, &m->summary));
  m->summary.tool = "test 1";
  m->summary.trace = HOSTILE;
  if (m->name)
    m->job.header.name = hec_arena_text(&m->arena, m->name);
  m->report = hec_report_of(&m->summary, &m->arena);
  const hec_compare_drawing drawing = {-1, look, m};
  HEC_TRY(hec_trace_rewind(m->reader));
  const hec_timeline_out out = {.format = hec_timeline_formats[0], .text = &m->events};
  HEC_TRY(hec_compare_draw(&m->job, m->reader, &options, &m->summary, &drawing, &out));
  hec_report_write(&m->report, &m->page);
  return HEC_OK;
}

static void finish(maker *m) {
  hec_report_free(&m->report);
  hec_summary_free(&m->summary);
  hec_trace_close(m->reader);
  hec_text_free(&m->text);
  hec_text_free(&m->page);
  hec_text_free(&m->events);
  hec_arena_free(&m->arena);
}

/* ---- A reader of pages ---- */

static bool is_void(const char *name) {
  return strcmp(name, "meta") == 0 || strcmp(name, "br") == 0;
}

/* One attribute: name, or name="value"; false at the end of the tag. */
static bool skip_attribute(const char **at) {
  *at += strspn(*at, " \n");
  if (**at == '>' || **at == '/')
    return false;
  size_t n = strspn(*at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
  ck_assert_msg(n > 0, "no attribute: %.40s", *at);
  *at += n;
  if (**at != '=')
    return true;
  ck_assert_msg((*at)[1] == '"', "a value without quotes: %.40s", *at);
  *at += 2;
  size_t value = strcspn(*at, "\"<>");
  ck_assert_msg((*at)[value] == '"', "a value that is not closed, or holds markup: %.40s", *at);
  *at += value + 1;
  ck_assert_msg(strchr(" \n>/", **at), "no blank after a value: %.40s", *at);
  return true;
}

/* Aborts unless every tag is closed in order; text between tags has no '>' and no '&' but of "&#N;". */
static void check_balance(const char *page) {
  static char open[64][16];
  int depth = 0;
  const char *at = page + strcspn(page, "\n");
  ck_assert_int_eq(strncmp(page, "<!DOCTYPE html>", 15), 0);
  while (*at) {
    if (*at != '<') {
      ck_assert_msg(*at != '>' && (*at != '&' || at[1] == '#'), "stray markup: %.60s", at);
      at++;
      continue;
    }
    bool closes = at[1] == '/';
    at += 1 + closes;
    size_t n = 0;
    char name[16];
    while (isalnum((unsigned char)at[n]))
      n++;
    ck_assert_msg(n > 0 && n < sizeof name, "no tag: %.40s", at);
    memcpy(name, at, n);
    name[n] = 0;
    at += n;
    while (!closes && skip_attribute(&at))
      ;
    bool alone = *at == '/';
    at += alone;
    ck_assert_msg(*at == '>', "a tag that does not end: <%s %.40s", name, at);
    at++;
    if (closes) {
      ck_assert_msg(depth > 0 && strcmp(open[depth - 1], name) == 0, "</%s> closes <%s>: %.60s", name,
                    depth > 0 ? open[depth - 1] : "", at);
      depth--;
    } else if (!alone && !is_void(name)) {
      ck_assert_int_lt(depth, 63);
      strcpy(open[depth++], name);
      const char *raw = strcmp(name, "script") == 0 ? "</script>" : strcmp(name, "style") == 0 ? "</style>" : NULL;
      if (raw) {
        at = strstr(at, raw);
        ck_assert_ptr_nonnull(at);
      }
    }
  }
  ck_assert_msg(depth == 0, "<%s> is never closed", depth > 0 ? open[depth - 1] : "");
}

static size_t count(const char *page, const char *what) {
  size_t n = 0;
  for (const char *at = page; (at = strstr(at, what)) != NULL; at += strlen(what))
    n++;
  return n;
}

/* Nothing may ask for anything, and one script alone is there. */
static void check_closed(const char *page) {
  static const char *const never[] = {"http:",   "https:",  "//www",       "@import",  "url(",     "<link", "<img",
                                      "<iframe", "<object", "javascript:", "onclick=", ">nan",     " nan",  "\"nan",
                                      ">inf",    " inf ",   "\"inf",       "%nan",     "onload=\""};
  for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
    const char *at = strstr(page, never[i]);
    ck_assert_msg(!at, "\"%s\" in the page: %.60s", never[i], at);
  }
  ck_assert_uint_eq(count(page, "<script"), 1);
  ck_assert_uint_eq(count(page, "<style"), 1);
  ck_assert_uint_eq(count(page, "<title>alert"), 0);
  ck_assert_uint_eq(count(page, "default-src 'none'"), 1);
  ck_assert_uint_eq(count(page, "script-src 'sha256-"), 1);
}

/* The chart's section has a sentence that says something, and a unit. */
static void check_chart(const char *page, const hec_chart *chart, bool there) {
  char opening[64];
  (void)snprintf(opening, sizeof opening, "<section id=\"%s\"", chart->name);
  const char *at = strstr(page, opening);
  ck_assert_msg((at != NULL) == there, "chart %s", chart->name);
  if (!at)
    return;
  const char *end = strstr(at, "</section>"), *says = strstr(at, "<p class=\"says\">");
  ck_assert_msg(says && says < end && says[16] != '<', "%s says nothing", chart->name);
  static const char *const units[] = {"ms", "bytes", "GB", "MB", "times the mean", "speed over"};
  bool has = false;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    const char *unit = strstr(at, units[i]);
    has = has || (unit && unit < end);
  }
  ck_assert_msg(has, "%s has no unit", chart->name);
}

/* `charts`: names of those that must be there, the only ones; NULL: not looked at. */
static void check_page(const char *page, const char *charts) {
  check_balance(page);
  check_closed(page);
  for (int32_t i = 0; hec_charts[i] && charts; i++)
    check_chart(page, hec_charts[i], strstr(charts, hec_charts[i]->name) != NULL);
  ck_assert_ptr_nonnull(strstr(page, "<section id=\"assumed\""));
  ck_assert_ptr_nonnull(strstr(page, "id=\"verdict\">\n<p>"));
}

#define ALL_CHARTS "ranking iterations overload traffic memory timeline"

/* ---- Comparisons ---- */

static void all_policies(void) {
  n_policies = 0;
  for (int32_t i = 0; hec_policies[i]; i++)
    if (!hec_policies[i]->placed) /* of a user's file */
      policies[n_policies++] = hec_policies[i];
}

#define BOX "2x2 nvlink=300G@2us nic=50G@5us flops=312T mem=40G"
static const hec_test_trace small = {
    .layers = 2, .experts = 6, .top_k = 2, .sources = 4, .records = 4, .first_iter = 3, .stride = 2};

static size_t count_until(const char *page, const char *end, const char *what) {
  size_t n = 0;
  for (const char *at = page; (at = strstr(at, what)) != NULL && at < end; at += strlen(what))
    n++;
  return n;
}

/* A chart of bars shows eight rows, the best and the baseline among them, then a scale. The others are folded away, with a
 * scale of their own. Every name explains itself. */
static void check_eight(const maker *m, const char *chart) {
  char opening[64], name[96];
  (void)snprintf(opening, sizeof opening, "<section id=\"%s\"", chart);
  const char *at = strstr(m->page.data, opening), *end = strstr(at, "</section>"), *fold = strstr(at, "class=\"fold\"");
  ck_assert(at && fold && fold < end);
  ck_assert_uint_eq(count_until(at, fold, "<div class=\"bar"), 8 + 1);
  ck_assert_uint_eq(count_until(at, end, "<div class=\"bar"), (size_t)n_policies + 2);
  ck_assert_uint_eq(count_until(at, end, "class=\"n\"><b title=\""), (size_t)n_policies);
  const int32_t seen[] = {m->report.best, m->report.baseline};
  for (int i = 0; i < 2; i++) {
    (void)snprintf(name, sizeof name, ">%s</b>", m->summary.rows[seen[i]].name);
    const char *found = strstr(at, name);
    ck_assert_msg(found && found < fold, "%s: %s is folded away", chart, name);
  }
}

/* Lines: eight are shown, the axis covers them; each says its range. */
static void check_lines(const maker *m) {
  const char *at = strstr(m->page.data, "<section id=\"iterations\""), *end = strstr(at, "</section>");
  ck_assert_uint_eq(count_until(at, end, "<g class=\"l"), (size_t)n_policies + 1); /* the group of all of them */
  ck_assert_uint_eq(count_until(at, end, "<g class=\"l8 off\""), (size_t)n_policies - 8);
  double low = strtod(strstr(at, " data-low=\"") + 11, NULL), high = strtod(strstr(at, " data-high=\"") + 12, NULL);
  for (int32_t i = 0; i < n_policies; i++) {
    hec_series *s = &m->summary.rows[i].iteration_s;
    if (m->report.color[i] < 8)
      ck_assert(1e3 * hec_series_quantile(s, 0) >= low - 1e-6 && 1e3 * hec_series_quantile(s, 1) <= high + 1e-6);
  }
}

/* What is held can be seen beside the limit, however much larger that is. */
static void check_seen(const maker *m) {
  const char *at = strstr(m->page.data, "<h3>Peak against the limit</h3>"), *end = strstr(at, "class=\"fold\"");
  double max = 0;
  while ((at = strstr(at, "<rect ")) != NULL && at < end) {
    double x = strtod(strstr(at, " x=\"") + 4, NULL), width = strtod(strstr(at, " width=\"") + 8, NULL);
    max = x + width > max ? x + width : max;
    at++;
  }
  ck_assert_msg(max > 10000 / 3.0, "the longest bar ends at %g of 10000", max);
}

HEC_TEST_LOOP(comparison, 2) {
  maker m = {0}, again = {0};
  const hec_law *law = _i ? &hec_law_max_min : &hec_law_alpha_beta;
  all_policies();
  ck_ok(make(&m, &small, BOX, law));
  check_page(m.page.data, ALL_CHARTS);
  HEC_SCOPED(hec_text) verdict = {0};
  hec_summary_advice(&m.summary, "</p>\n<p>", &verdict); /* the sentences of the first screen, above everything else */
  const char *at = strstr(m.page.data, verdict.data);
  ck_assert_msg(at && at < strstr(m.page.data, "<dl>"), "no verdict: %s", verdict.data);
  ck_assert_ptr_nonnull(strstr(m.page.data, "<li>reference rows (ep-balanced, ep-capacity, ideal) are no systems"));
  /* Axes, the value under the pointer and sentences number iterations as the trace does: 3, 5, 7, 9. */
  ck_assert_uint_eq(count(m.page.data, " data-iters=\"3 2 4;\""), 1);
  ck_assert_uint_eq(count(m.page.data, ">9</span></div>\n<p class=\"unit\">iteration, as the trace numbers it<"), 1);
  ck_assert_uint_eq(count(m.page.data, ">9</span></div>\n<p class=\"unit\">iteration (downwards"), (size_t)n_policies);
  ck_assert_ptr_nonnull(strstr(m.page.data, "The grey word is the schedule"));
  check_eight(&m, "ranking");
  check_eight(&m, "memory");
  check_lines(&m);
  check_seen(&m);
  again.n_threads = 3; /* nor does it matter who draws */
  ck_ok(make(&again, &small, BOX, law));
  ck_assert_str_eq(m.page.data, again.page.data);
  finish(&m);
  finish(&again);
}

/* Names are the trace's, and the path's where it has none. */
HEC_TEST_LOOP(hostile_names, 2) {
  maker m = {0};
  all_policies();
  n_policies = 3;
  hec_test_trace t = small;
  t.extra = _i ? ",\"synthetic\":{\"generator\":\"made\"}" : "";
  m.name = _i ? HOSTILE : "";
  ck_ok(make(&m, &t, BOX, &hec_law_alpha_beta));
  check_page(m.page.data, ALL_CHARTS);
  ck_assert_ptr_nonnull(strstr(m.page.data, "&#60;script&#62;alert(1)"));
  ck_assert_uint_eq(count(m.page.data, "synthetic loads"), _i ? 1 : 0);
  finish(&m);
}

/* One rank and one iteration; nothing fits; no policy that others are compared to; a single reference row. */
HEC_TEST_LOOP(little_to_show, 4) {
  static const struct {
    const char *cluster, *policy, *charts;
    hec_test_trace trace;
  } cases[] = {
      {"1x1 nvlink=1G flops=1T mem=40G",
       "ep",
       "ranking memory timeline", /* one rank sends nothing and is never overloaded, one iteration is no line */
       {.layers = 1, .experts = 1, .top_k = 1, .sources = 1, .records = 1}},
      {"2x2 nvlink=300G nic=50G flops=312T mem=1K",
       "ep",
       ALL_CHARTS,
       {.layers = 2, .experts = 6, .top_k = 2, .sources = 4, .records = 4}},
      {BOX, "hecate", ALL_CHARTS, {.layers = 1, .experts = 4, .top_k = 1, .sources = 4, .records = 2}},
      {BOX,
       "ideal",
       "ranking iterations overload memory timeline",
       {.layers = 1, .experts = 4, .top_k = 1, .sources = 4, .records = 2}}};
  maker m = {0};
  policies[0] = hec_policy_find(cases[_i].policy);
  n_policies = 1;
  ck_ok(make(&m, &cases[_i].trace, cases[_i].cluster, &hec_law_alpha_beta));
  check_page(m.page.data, cases[_i].charts);
  ck_assert_uint_eq(count(m.page.data, "reference rows ("), policies[0]->reference);
  finish(&m);
}

/* More iterations and ranks than are drawn one by one; that is said. */
HEC_TEST(much_to_show) {
  maker m = {0};
  policies[0] = hec_policy_find("ep");
  policies[1] = hec_policy_find("hecate");
  n_policies = 2;
  hec_test_trace t = {.layers = 2, .experts = 8, .top_k = 2, .sources = 96, .records = 300};
  ck_ok(make(&m, &t, "12x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", &hec_law_alpha_beta));
  check_page(m.page.data, ALL_CHARTS);
  char iters[64];
  (void)snprintf(iters, sizeof iters, " data-iters=\"%d 1 %d;\"", (int)m.job.warmup, 300 - (int)m.job.warmup);
  ck_assert_msg(strstr(m.page.data, iters), "%s: %.60s", iters, strstr(m.page.data, " data-iters"));
  ck_assert_ptr_nonnull(strstr(m.page.data, ">50</span>"));
  ck_assert_ptr_nonnull(strstr(m.page.data, "Of every 3 iterations the shortest and the longest are drawn."));
  ck_assert_ptr_nonnull(strstr(m.page.data, "32 of 96 ranks are drawn"));
  ck_assert_ptr_nonnull(strstr(m.page.data, "2 ranks are added up in a cell's side"));
  ck_assert_uint_lt(m.page.length, 1000000);
  finish(&m);
}

/* What the page draws of an iteration adds up to what the summary counts by other means. */
HEC_TEST(drawn_adds_up) {
  maker m = {0};
  all_policies();
  ck_ok(make(&m, &small, BOX, &hec_law_alpha_beta));
  for (int32_t i = 0; i < n_policies; i++) {
    const hec_report_iteration *it = &m.report.iterations[i];
    double sum = 0, path = 0, max = 0;
    ck_assert(it->there && it->bytes >= it->across && it->across >= 0);
    for (int32_t k = 0; k < m.report.n_blocks * m.report.n_blocks; k++)
      sum += it->traffic[k];
    ck_assert_double_eq_tol(sum, it->bytes, 1e-6 * it->bytes + 1e-9);
    for (int32_t k = 0; k < HEC_REPORT_MOMENTS; k++) {
      double held = 0;
      for (int32_t c = 0; c < HEC_N_MEMORY; c++)
        held += it->memory[c * HEC_REPORT_MOMENTS + k];
      max = held > max ? held : max;
      ck_assert_msg(held > 0, "%s holds nothing at moment %d", policies[i]->name, k);
    }
    ck_assert_double_eq_tol(max, it->fullest_bytes, 1e-9 * max);
    ck_assert((it->timeline != NULL) == (m.report.color[i] < HEC_REPORT_TIMELINES));
    for (int32_t k = 0; it->timeline && k < HEC_N_SPANS; k++)
      path += it->timeline->path_s[k];
    ck_assert(!it->timeline || fabs(path - it->end_s) < 1e-9 * it->end_s);
  }
  finish(&m);
}

/* ---- Sweeps and validations ---- */

HEC_TEST(regime_maps) {
  hec_report_cell cells[] = {
      {HOSTILE, "what it does", 0, {0.01, 0.01}, {1.5, 1.5}, "b", {3, 3.2}, "ep/" HOSTILE, NULL, NULL, true},
      {.name = "b", .who = 1, .seconds = {0.01, 0.02}},
      {.who = -1},
      {.name = HOSTILE, .who = 0, .seconds = {0.01, 0.01}, .over_next = {1.7, 2}, .next_name = NULL}};
  hec_report_map one = {"", cells, 1};
  hec_report_map map[HEC_REPORT_MAPS + 3];
  for (int32_t i = 0; i < HEC_REPORT_MAPS + 3; i++)
    map[i] = one;
  map[0].n_joined = 2;
  const char *const x[] = {"1", HOSTILE}, *const y[] = {"2", "3"}, *const names[] = {HOSTILE, "b"};
  const int64_t won[] = {56, 28};
  hec_report_maps maps = {.x_name = "ranks",
                          .y_name = "tokens",
                          .x_value = x,
                          .y_value = y,
                          .n_x = 2,
                          .n_y = 2,
                          .maps = map,
                          .n_maps = HEC_REPORT_MAPS + 3,
                          .names = names,
                          .n_cells = won,
                          .n_names = 2,
                          .families = "FSSDP (" HOSTILE ") wins.\n",
                          .n_failed = 1,
                          .n_rows = 9};
  HEC_SCOPED(hec_text) verdict = {0}, page = {0};
  hec_report_maps_verdict(&maps, &verdict);
  ck_assert_ptr_nonnull(strstr(verdict.data, "in 56 of 84 cells, 1.50 to 2.00 times as fast as the next"));
  ck_assert_ptr_nonnull(strstr(verdict.data, "In 28 more cells nothing can run: the CSV says why."));
  hec_report_write(&(hec_report){.tool = "t", .title = HOSTILE, .maps = &maps, .verdict = verdict.data}, &page);
  check_page(page.data, NULL);
  check_chart(page.data, &hec_chart_regime, true);
  ck_assert_uint_eq(count(page.data, "<small>1.70 to 2.00x as fast as the next<"), HEC_REPORT_MAPS);
  ck_assert_uint_eq(count(page.data, "<small>10.0 ms to 20.0 ms<"), HEC_REPORT_MAPS);
  ck_assert_uint_eq(count(page.data, "<td class=\"g7\"><b title=\"what it does\">&#60;/title"),
                    HEC_REPORT_MAPS);                                                      /* by the gain over ep: 3 */
  ck_assert_uint_eq(count(page.data, "<td class=\"g5\"><b>&#60;/title"), HEC_REPORT_MAPS); /* over the next: 1.7 */
  ck_assert_uint_eq(count(page.data, "<td class=\"g0\"><b>b<"), HEC_REPORT_MAPS);
  ck_assert_ptr_nonnull(strstr(page.data, "28 grids are shown as 27"));
  ck_assert_ptr_nonnull(strstr(page.data, "3 more grids are left out"));
  ck_assert_ptr_nonnull(strstr(page.data, "1 of 9 configurations could not run"));
  ck_assert_uint_eq(count(page.data, "<small>3.00 to 3.20x as fast as ep/"), HEC_REPORT_MAPS);
  ck_assert_uint_eq(count(page.data, "within 0.5 % of"), 0);
  ck_assert_uint_eq(count(page.data, "<small>cannot run<"), HEC_REPORT_MAPS);
}

/* A lead of at most half a per cent is none: as the verdict of a comparison has it. */
HEC_TEST_LOOP(leads_and_ties, 4) {
  static const struct {
    double next[2];
    const char *says;
  } cases[] = {
      {{0.01004, 0.0151}, "in 2 of 2 cells, 1.51 times as fast as the next; in 1 of them within 0.5 % of the next."},
      {{0.01004, 0.01}, "in 2 of 2 cells, everywhere within 0.5 % of the next."},
      {{0.01004, 0}, "in 2 of 2 cells, in 1 of them within 0.5 % of the next."},
      {{0.01006, 0.0151}, "in 2 of 2 cells, 1.01 to 1.51 times as fast as the next."}};
  hec_report_cell cells[2];
  for (int k = 0; k < 2; k++) {
    double over = cases[_i].next[k] / 0.01;
    cells[k] = (hec_report_cell){"a", NULL, 0, {0.01, 0.01}, {over, over}, "b", {0, 0}, NULL, NULL, NULL, true};
  }
  hec_report_map map = {"", cells, 1};
  const char *const x[] = {"1", "2"}, *const y[] = {""}, *const names[] = {"a"};
  const int64_t won[] = {2};
  hec_report_maps maps = {.x_name = "ranks",
                          .y_name = "",
                          .x_value = x,
                          .y_value = y,
                          .n_x = 2,
                          .n_y = 1,
                          .maps = &map,
                          .n_maps = 1,
                          .names = names,
                          .n_cells = won,
                          .n_names = 1,
                          .n_rows = 2};
  HEC_SCOPED(hec_text) verdict = {0}, page = {0};
  hec_report_maps_verdict(&maps, &verdict);
  ck_assert_msg(strstr(verdict.data, cases[_i].says), "%s", verdict.data);
  hec_report_write(&(hec_report){.tool = "t", .title = "t", .maps = &maps, .verdict = verdict.data}, &page);
  ck_assert_uint_eq(count(page.data, "<small>within 0.5 % of b"), _i == 1 ? 2 : _i < 3);
}

HEC_TEST(kinds_of_operations) {
  hec_report_pair iterations[] = {{HOSTILE, 0.09, 0.1, -0.07}, {"b", NAN, NAN, NAN}};
  hec_report_pair kinds[] = {{"experts", 0.05, 0.04, 0.25}, {"gate", 0.001, 0.0001, 9}, {"counts", 1e-3, 0, NAN}};
  hec_report_pairs policies_of[] = {{HOSTILE, kinds, 3}};
  hec_report_compared compared = {iterations, policies_of, 2, 1, 0.034};
  hec_report_fact facts[] = {{"word", HOSTILE}}, assumed[] = {{"", HOSTILE}};
  HEC_SCOPED(hec_text) page = {0};
  hec_report_write(&(hec_report){.tool = HOSTILE,
                                 .title = "t",
                                 .compared = &compared,
                                 .verdict = "one.\n  two.\n" HOSTILE,
                                 .facts = facts,
                                 .n_facts = 1,
                                 .assumed = assumed,
                                 .n_assumed = 1},
                   &page);
  check_page(page.data, NULL);
  check_chart(page.data, &hec_chart_kinds, true);
  ck_assert_ptr_nonnull(strstr(page.data, "predicted within 3.4 %"));
  ck_assert_ptr_nonnull(strstr(page.data, "Furthest off of the larger kinds is experts"));
  ck_assert_ptr_nonnull(strstr(page.data, "+25 %"));
  ck_assert_ptr_nonnull(strstr(page.data, ">-7.0 %<")); /* the bias, not that of the medians */
  ck_assert_ptr_nonnull(strstr(page.data, "<p>two.</p>"));
  ck_assert_ptr_nonnull(strstr(page.data, "inconclusive"));
}

static hec_status run_again(uint64_t k) {
  (void)k;
  const hec_test_trace t = {.layers = 1, .experts = 3, .top_k = 1, .sources = 2, .records = 2};
  static maker m;
  m = (maker){0};
  return make(&m, &t, "1x2 nvlink=1G flops=1T mem=1G", &hec_law_alpha_beta);
}

HEC_TEST(no_memory) {
  policies[0] = hec_policy_find("ep");
  n_policies = 1;
  hec_test_no_memory(run_again);
}
