/* The timeline of one iteration: three lanes for every rank shown (compute; token and intra-node; parameter and
 * gradient). A rank is eight units high: lanes are at 2, 4 and 6, two thick. Above them, in the first eight units, the
 * critical path on its own, which is drawn through the lanes, too. The script enlarges it by the width of the view; it
 * draws nothing. */
#include "runtime/program/job.h"
#include "tools/front/page/chart.h"

#include <inttypes.h>
#include <stdlib.h>

enum { RANK = 8, LANE = 2 };

static const char *const kind_name[HEC_N_SPANS] = {
    "other computing", "planning", "token traffic", "parameter traffic", "gradient traffic", "migration", "experts"};

static int32_t color_of(int32_t kind) {
  return kind == HEC_SPAN_EXPERTS ? 8 : kind;
}

static void describe(const hec_report *report, int32_t row, hec_text *out) {
  const hec_report_iteration *it = &report->iterations[row];
  const hec_report_timeline *t = it->timeline;
  int32_t max = 0, next = -1;
  for (int32_t k = 1; k < HEC_N_SPANS; k++)
    max = t->path_s[k] > t->path_s[max] ? k : max;
  for (int32_t k = 0; k < HEC_N_SPANS; k++)
    if (k != max && t->path_s[k] > 0 && (next < 0 || t->path_s[k] > t->path_s[next]))
      next = k;
  hec_page_add(report->summary->rows[row].label, out);
  hec_text_printf(out, ": of the critical path of iteration %" PRId64 ", %s long, %s is %s", it->iter,
                  hec_seconds(it->end_s).text, hec_percent(t->path_s[max] / it->end_s).text, kind_name[max]);
  if (next >= 0)
    hec_text_printf(out, " and %s %s", hec_percent(t->path_s[next] / it->end_s).text, kind_name[next]);
  hec_text_printf(out, "; most of it runs on rank %" PRId32 " (%s). ", t->busiest,
                  hec_percent(t->busiest_s / it->end_s).text);
}

static bool has_timeline(const hec_report *report, int32_t row) {
  return report->iterations[row].timeline && report->iterations[row].timeline->n_spans > 0;
}

static bool applies(const hec_report *report) {
  for (int32_t i = 0; report->summary && i < report->summary->n_rows; i++)
    if (has_timeline(report, i))
      return true;
  return false;
}

static void say(const hec_report *report, hec_text *out) {
  const hec_report_iteration *some = NULL;
  hec_chart_says(out);
  for (int32_t k = 0; k < report->summary->n_rows; k++)
    if (has_timeline(report, report->order[k])) {
      some = some ? some : &report->iterations[report->order[k]];
      describe(report, report->order[k], out);
    }
  hec_chart_said(out);
  hec_chart_note(out);
  hec_text_printf(
      out,
      "Milliseconds of one iteration to the right; of every rank three lanes: computing; token traffic; parameter and "
      "gradient traffic. A column, %s of the time, is drawn as what takes most of it: shorter operations beside "
      "others are not seen.",
      hec_seconds(some->end_s / some->timeline->n_columns).text);
  if (some->timeline->n_ranks < report->summary->job->problem.n_ranks)
    hec_text_printf(out,
                    " %" PRId32 " of %" PRId32 " ranks are drawn, evenly chosen; the path is drawn at the one before.",
                    some->timeline->n_ranks, report->summary->job->problem.n_ranks);
  hec_text_add(
      out,
      " All operations of all policies are in timeline.json, or in the form that --timeline-format named. The path "
      "goes back from what ends last to what it waited "
      "for longest, across ranks where an exchange did; what delays transfers inside an exchange is the exchange's.");
  hec_chart_said(out);
}

static void add_keys(hec_text *out) {
  static const int32_t order[HEC_N_SPANS] = {HEC_SPAN_EXPERTS, HEC_BOOK_COMPUTE,   HEC_BOOK_TOKEN, HEC_BOOK_PARAM,
                                             HEC_BOOK_GRAD,    HEC_BOOK_MIGRATION, HEC_BOOK_PLAN};
  hec_text_add(out, "<div class=\"keys\">");
  for (int32_t k = 0; k < HEC_N_SPANS; k++)
    hec_text_printf(out, "<span><i class=\"k%" PRId32 "\"></i><b>%s</b></span>", color_of(order[k]),
                    kind_name[order[k]]);
  hec_text_add(out, "<span><i class=\"line path\"></i><b>critical path</b></span></div>\n");
}

static void add_spans(const hec_report_timeline *t, hec_text *out) {
  for (int32_t i = 0; i < t->n_spans;) {
    int32_t kind = t->spans[i].kind, row = -1, pen = 0;
    hec_text_printf(out, "<path class=\"s k%" PRId32 "\" stroke-width=\"%d\" data-name=\"%s\" d=\"", color_of(kind),
                    LANE, kind_name[kind]);
    for (; i < t->n_spans && t->spans[i].kind == kind; i++) {
      const hec_report_span *s = &t->spans[i];
      if (s->row != row)
        hec_text_printf(out, "M%" PRId32 " %d", s->begin,
                        RANK * (1 + s->row / HEC_REPORT_LANES) + LANE * (1 + s->row % HEC_REPORT_LANES));
      else
        hec_text_printf(out, "m%" PRId32 " 0", s->begin - pen);
      hec_text_printf(out, "h%" PRId32, s->length);
      row = s->row;
      pen = s->begin + s->length;
    }
    hec_text_add(out, "\"/>\n");
  }
}

static int32_t shown_rank(const hec_report_timeline *t, int32_t rank) {
  int32_t i = t->n_ranks - 1;
  while (i > 0 && t->rank[i] > rank)
    i--;
  return i;
}

/* Lane that a role is drawn on, close enough: where its book's operations are. */
static int32_t lane_of(int32_t role) {
  hec_book book = hec_role_book[role];
  return book == HEC_BOOK_COMPUTE || book == HEC_BOOK_PLAN ? 0 : book == HEC_BOOK_TOKEN ? 1 : 2;
}

static void add_way(const hec_report_timeline *t, const char *class, hec_text *out) {
  hec_text_printf(out, "<path class=\"%s\" d=\"", class);
  for (int32_t i = 0; i < t->n_path; i++) {
    const hec_report_step *s = &t->path[i];
    int32_t y = RANK * (1 + shown_rank(t, s->rank)) + LANE * (1 + lane_of(s->role));
    if (i == 0)
      hec_text_printf(out, "M%" PRId32 " %" PRId32, s->begin, y);
    else
      hec_text_printf(out, "V%" PRId32, y);
    hec_text_printf(out, "h%" PRId32, s->length);
  }
  hec_text_add(out, "\"/>\n");
}

/* The path by what it is, above the ranks. */
static void add_strip(const hec_report_timeline *t, hec_text *out) {
  for (int32_t kind = 0; kind < HEC_N_SPANS; kind++) {
    int32_t pen = -1;
    for (int32_t i = 0; i < t->n_path; i++) {
      const hec_report_step *s = &t->path[i];
      if (hec_span_of(s->role) != kind)
        continue;
      if (pen < 0)
        hec_text_printf(out, "<path class=\"s k%" PRId32 "\" stroke-width=\"5\" d=\"M%" PRId32 " 4", color_of(kind),
                        s->begin);
      else
        hec_text_printf(out, "m%" PRId32 " 0", s->begin - pen);
      hec_text_printf(out, "h%" PRId32, s->length);
      pen = s->begin + s->length;
    }
    hec_text_add(out, pen < 0 ? "" : "\"/>\n");
  }
}

static void add_data(const hec_report_iteration *it, hec_text *out) {
  const hec_report_timeline *t = it->timeline;
  hec_axis axis = hec_axis_of(0, 1e3 * it->end_s / t->n_columns, 1);
  hec_text_printf(out, " data-w=\"%" PRId32 "\" data-end=\"%s\" data-digits=\"%d\" data-names=\"", t->n_columns,
                  hec_fixed(1e3 * it->end_s, 6).text, hec_decimals(axis.step));
  for (int32_t k = 0; k < HEC_N_ROLES; k++)
    hec_text_printf(out, "%s%s", k ? "|" : "", hec_role_name[k]);
  hec_text_add(out, "\" data-ranks=\"");
  for (int32_t i = 0; i < t->n_ranks; i++)
    hec_text_printf(out, "%s%" PRId32, i ? " " : "", t->rank[i]);
  hec_text_add(out, "\" data-path=\"");
  for (int32_t i = 0; i < t->n_path; i++)
    hec_text_printf(out, "%s%" PRId32 " %" PRId32 " %" PRId32 " %" PRId32 " %" PRId32, i ? ";" : "", t->path[i].begin,
                    t->path[i].length, t->path[i].role, t->path[i].layer, t->path[i].rank);
  hec_text_add(out, "\"");
}

static void add_tools(hec_text *out) {
  static const char *const what[][2] = {
      {"in", "closer"}, {"out", "wider"}, {"left", "earlier"}, {"right", "later"}, {"whole", "whole iteration"}};
  hec_text_add(out, "<div class=\"chips script zoom\" role=\"group\" aria-label=\"Enlarge the timeline\">\n");
  for (size_t i = 0; i < sizeof what / sizeof *what; i++)
    hec_text_printf(out, "<button type=\"button\" data-do=\"%s\">%s</button>\n", what[i][0], what[i][1]);
  hec_text_add(out, "<span class=\"note\">or drag; Shift and wheel; keys + - 0 and arrows</span></div>\n");
}

static void add_panel(const hec_report *report, int32_t row, hec_text *out) {
  const hec_report_iteration *it = &report->iterations[row];
  const hec_report_timeline *t = it->timeline;
  int32_t rows = 1 + t->n_ranks;
  HEC_SCOPED(hec_text) label = {0};
  hec_text_printf(&label, "Timeline of iteration %" PRId64 " under %s, ranks downwards, with the critical path",
                  it->iter, report->summary->rows[row].label);
  const hec_plot plot = {.kind = "spans",
                         .label = label.data,
                         .width = t->n_columns,
                         .height = RANK * rows + 1,
                         .px = rows * (t->n_ranks > 16 ? 17 : 22),
                         .crisp = true};
  const hec_page_item item = hec_chart_item(report, row);
  hec_page_panel("timeline", &item, hec_chart_opens(report, row), out);
  add_tools(out);
  hec_plot_begin(&plot, out);
  add_data(it, out);
  hec_plot_body(out);
  add_strip(t, out);
  add_spans(t, out);
  add_way(t, "halo", out);
  add_way(t, "mark", out);
  hec_plot_shapes_end(out);
  hec_plot_y_begin(false, out);
  for (int32_t i = 0; i < rows; i++) {
    hec_number rank = hec_fixed(i > 0 ? t->rank[i - 1] : 0, 0);
    HEC_SCOPED(hec_text) name = {0};
    if (i == 0)
      hec_text_add(&name, "path");
    else
      hec_text_printf(&name, "rank %s", rank.text);
    hec_plot_y_label(1 - ((double)i + 0.5) / rows, name.data, out);
  }
  hec_plot_labels_end(out);
  hec_plot_x_axis(0, 1e3 * it->end_s, 8, out);
  hec_plot_end("ms of the iteration", out);
  hec_text_add(out, "</details>\n");
}

static void draw(const hec_report *report, hec_text *out) {
  say(report, out);
  add_keys(out);
  hec_page_chips("timeline", out);
  for (int32_t k = 0; k < report->summary->n_rows; k++) {
    int32_t row = report->order[k];
    hec_page_item item = hec_chart_item(report, row);
    if (has_timeline(report, row))
      hec_page_chip("timeline", &item, NULL, hec_chart_opens(report, row), out);
  }
  hec_page_chips_end(out);
  hec_text_add(out, "<div class=\"panels wide\">\n");
  for (int32_t k = 0; k < report->summary->n_rows; k++)
    if (has_timeline(report, report->order[k]))
      add_panel(report, report->order[k], out);
  hec_text_add(out, "</div>\n");
}

const hec_chart hec_chart_gantt = {"timeline", "One iteration, and its critical path", applies, draw};
