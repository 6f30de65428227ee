/* Time of every reported iteration, a line per policy. There may be more iterations than the page has room for. Then
 * the shortest and the longest of each run of equal length are kept, in their order. So the envelope is true, and what
 * is between is not drawn. */
#include "tools/front/page/chart.h"

#include <inttypes.h>

enum { WIDTH = 10000, HEIGHT = 10000, POINTS = 240 };

static const hec_series *series_of(const hec_report *report, int32_t row) {
  return &report->summary->rows[row].iteration_s;
}

/* Milliseconds of a row's shortest and longest iteration. */
static hec_axis range_of(const hec_report *report, int32_t row) {
  hec_series *s = &report->summary->rows[row].iteration_s;
  return (hec_axis){.low = 1e3 * hec_series_quantile(s, 0), .high = 1e3 * hec_series_quantile(s, 1)};
}

/* Over the rows that are shown at first. Lines of the others may lie outside: the script fits the axis to what is chosen. */
static hec_axis axis_of(const hec_report *report) {
  hec_axis all = range_of(report, report->best >= 0 ? report->best : report->order[0]);
  for (int32_t i = 0; i < report->summary->n_rows; i++) {
    hec_axis one = range_of(report, i);
    if (!hec_chart_shows(report, i))
      continue;
    all.low = one.low < all.low ? one.low : all.low;
    all.high = one.high > all.high ? one.high : all.high;
  }
  return hec_axis_of(all.low, all.high, 6);
}

/* Iterations in a run of which two are drawn; 1: all are. */
static size_t run_of(const hec_series *series) {
  return series->n <= POINTS ? 1 : (series->n + POINTS / 2 - 1) / (POINTS / 2);
}

typedef struct {
  const hec_series *series;
  const hec_axis *axis;
} scale;

static void add_point(const scale *s, size_t i, hec_text *out) {
  double x = (double)i / (double)(s->series->n - 1),
         y = (1e3 * s->series->value[i] - s->axis->low) / (s->axis->high - s->axis->low);
  hec_text_printf(out, "%" PRId64 ",%" PRId64 " ", hec_round(WIDTH * x), hec_round(HEIGHT * (1 - y)));
}

static void add_points(const scale *s, hec_text *out) {
  size_t run = run_of(s->series);
  for (size_t i = 0; i < s->series->n; i += run) {
    size_t last = i + run < s->series->n ? i + run : s->series->n, min = i, max = i;
    for (size_t k = i; k < last; k++) {
      min = s->series->value[k] < s->series->value[min] ? k : min;
      max = s->series->value[k] > s->series->value[max] ? k : max;
    }
    add_point(s, min < max ? min : max, out);
    if (min != max)
      add_point(s, min < max ? max : min, out);
  }
}

static void add_line(const hec_report *report, int32_t row, const hec_axis *axis, hec_text *out) {
  static const char *const dashes[HEC_REPORT_SHOWN + 1] = {"", "8 3", "2 3", "10 3 2 3", "", "5 5", "3 2", "12 4", ""};
  int32_t color = report->color[row];
  const scale s = {series_of(report, row), axis};
  hec_axis range = range_of(report, row);
  bool shown = hec_chart_shows(report, row);
  hec_text_printf(out,
                  "<g class=\"l%" PRId32 "%s\" data-of=\"iterations\" data-i=\"%" PRId32
                  "\" data-low=\"%s\" data-high=\"%s\"><polyline class=\"thin%s\"",
                  color, shown ? "" : " off", row, hec_fixed(range.low, 6).text, hec_fixed(range.high, 6).text,
                  shown ? "" : " faint");
  if (dashes[color][0])
    hec_text_printf(out, " stroke-dasharray=\"%s\"", dashes[color]);
  hec_text_add(out, " data-name=\"");
  hec_page_add(report->summary->rows[row].label, out);
  hec_text_add(out, "\" points=\"");
  add_points(&s, out);
  hec_text_add(out, "\"/></g>\n");
}

/* Who varies most, and how the best and the baseline lie. */
static void say(const hec_report *report, hec_text *out) {
  hec_summary *summary = report->summary;
  int32_t best = report->best >= 0 ? report->best : report->order[0], widest = report->order[0];
  double max = -1;
  for (int32_t k = 0; k < summary->n_rows; k++) {
    hec_series *s = &summary->rows[report->order[k]].iteration_s;
    if (!hec_chart_shows(report, report->order[k]))
      continue;
    double wide = hec_series_quantile(s, 1) - hec_series_quantile(s, 0);
    if (wide > max) {
      max = wide;
      widest = report->order[k];
    }
  }
  hec_series *s = &summary->rows[best].iteration_s, *w = &summary->rows[widest].iteration_s;
  hec_chart_says(out);
  hec_page_add(summary->rows[best].label, out);
  hec_text_printf(out, " takes %s to %s from iteration to iteration; ", hec_seconds(hec_series_quantile(s, 0)).text,
                  hec_seconds(hec_series_quantile(s, 1)).text);
  if (widest == best)
    hec_text_add(out, "no row shown varies more.");
  else {
    hec_page_add(summary->rows[widest].label, out);
    hec_text_printf(out, " varies most of those shown, %s to %s.", hec_seconds(hec_series_quantile(w, 0)).text,
                    hec_seconds(hec_series_quantile(w, 1)).text);
  }
  hec_chart_said(out);
  size_t run = run_of(s);
  hec_chart_note(out);
  hec_text_add(
      out,
      "Milliseconds until the slowest rank is done, one-off costs such as migration included; warm-up is left out. "
      "The axis need not begin at 0.");
  if (run > 1)
    hec_text_printf(out, " Of every %zu iterations the shortest and the longest are drawn.", run);
  hec_chart_add_rows(report, out);
  hec_chart_said(out);
}

/* A legend for print and for readers without the script. */
static void add_keys(const hec_report *report, hec_text *out) {
  hec_text_add(out, "<div class=\"keys plain\">");
  for (int32_t color = 0; color < report->n_shown; color++)
    for (int32_t i = 0; i < report->summary->n_rows; i++)
      if (report->color[i] == color) {
        hec_text_printf(out, "<span><i class=\"line l%" PRId32 "\"></i><b>", color);
        hec_page_add(report->summary->rows[i].label, out);
        hec_text_add(out, "</b></span>");
      }
  hec_text_add(out, "</div>\n");
}

static void draw(const hec_report *report, hec_text *out) {
  hec_axis axis = axis_of(report);
  size_t n = series_of(report, 0)->n;
  const hec_plot plot = {.kind = "lines",
                         .label = "Milliseconds of each iteration, a line per policy",
                         .width = WIDTH,
                         .height = HEIGHT,
                         .px = 320};
  say(report, out);
  add_keys(report, out);
  hec_chart_chips(report, "iterations", true, out);
  hec_text_add(out, "<p class=\"unit y\">ms</p>\n");
  hec_plot_begin(&plot, out);
  hec_text_printf(out, " data-low=\"%s\" data-high=\"%s\" data-n=\"%zu\" data-unit=\"ms\" data-digits=\"%d\"",
                  hec_fixed(axis.low, 6).text, hec_fixed(axis.high, 6).text, n, hec_decimals(axis.step) + 2);
  hec_chart_add_iters(report, n, out);
  hec_plot_body(out);
  hec_plot_grid(&axis, &plot, out);
  hec_text_add(out, "<g class=\"lines\">\n");
  for (int shown = 0; shown < 2; shown++) /* those without a colour below, the best on top */
    for (int32_t k = report->summary->n_rows - 1; k >= 0; k--)
      if (hec_chart_shows(report, report->order[k]) == shown && hec_chart_draws(report, report->order[k]))
        add_line(report, report->order[k], &axis, out);
  hec_text_add(out, "</g>\n");
  hec_plot_shapes_end(out);
  hec_plot_y_axis(&axis, out);
  hec_chart_iter_axis(report, n, false, out);
  hec_plot_end("iteration, as the trace numbers it", out);
}

/* A single iteration is no line; the ranking has its time. */
static bool applies(const hec_report *report) {
  return report->summary && series_of(report, 0)->n > 1;
}

const hec_chart hec_chart_iterations = {"iterations", "Time of each iteration", applies, draw};
