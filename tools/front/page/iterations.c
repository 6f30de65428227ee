/* Time of every reported iteration, a line per policy. Where there are more iterations than the page has room for, of
 * every run of as many the shortest and the longest are kept, in their order: the envelope is true, what is between is
 * not drawn. */
#include "tools/front/page/chart.h"

#include <inttypes.h>

enum { WIDTH = 10000, HEIGHT = 10000, POINTS = 240 };

static const hec_series *series_of(const hec_report *report, int32_t row) {
  return &report->summary->rows[row].iteration_s;
}

static void range_of(const hec_report *report, double *low, double *high) {
  *low = series_of(report, 0)->value[0];
  *high = *low;
  for (int32_t i = 0; i < report->summary->n_rows; i++)
    for (size_t k = 0; k < series_of(report, i)->n; k++) {
      double s = series_of(report, i)->value[k];
      *low = s < *low ? s : *low;
      *high = s > *high ? s : *high;
    }
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
  double x = s->series->n > 1 ? (double)i / (double)(s->series->n - 1) : 0,
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
  if (s->series->n == 1) /* a point is no line */
    hec_text_printf(out, "%d,%" PRId64, WIDTH,
                    hec_round(HEIGHT * (s->axis->high - 1e3 * s->series->value[0]) / (s->axis->high - s->axis->low)));
}

static void add_line(const hec_report *report, int32_t row, const hec_axis *axis, hec_text *out) {
  static const char *const dashes[HEC_REPORT_LINES + 1] = {"", "8 3", "2 3", "10 3 2 3", "", "5 5", "3 2", ""};
  int32_t color = report->color[row];
  const scale s = {series_of(report, row), axis};
  hec_text_printf(out,
                  "<g class=\"l%" PRId32 "\" data-of=\"iterations\" data-i=\"%" PRId32 "\"><polyline class=\"thin%s\"",
                  color, row, color == HEC_REPORT_LINES ? " faint" : "");
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
    hec_text_add(out, "no row varies more.");
  else {
    hec_page_add(summary->rows[widest].label, out);
    hec_text_printf(out, " varies most, %s to %s.", hec_seconds(hec_series_quantile(w, 0)).text,
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
  for (int32_t color = 0; color < HEC_REPORT_LINES; color++)
    for (int32_t i = 0; i < report->summary->n_rows; i++)
      if (report->color[i] == color) {
        hec_text_printf(out, "<span><i class=\"line l%" PRId32 "\"></i><b>", color);
        hec_page_add(report->summary->rows[i].label, out);
        hec_text_add(out, "</b></span>");
      }
  if (report->summary->n_rows > HEC_REPORT_LINES)
    hec_text_add(out, "<span><i class=\"line l7\"></i><b>all others</b></span>");
  hec_text_add(out, "</div>\n");
}

static void draw(const hec_report *report, hec_text *out) {
  double low, high;
  range_of(report, &low, &high);
  hec_axis axis = hec_axis_of(1e3 * low, 1e3 * high, 6);
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
  for (int32_t k = report->summary->n_rows - 1; k >= 0; k--) /* those without a colour below, the best on top */
    if (report->color[report->order[k]] == HEC_REPORT_LINES && hec_chart_draws(report, report->order[k]))
      add_line(report, report->order[k], &axis, out);
  for (int32_t k = report->summary->n_rows - 1; k >= 0; k--)
    if (report->color[report->order[k]] < HEC_REPORT_LINES)
      add_line(report, report->order[k], &axis, out);
  hec_plot_shapes_end(out);
  hec_plot_y_axis(&axis, out);
  hec_chart_iter_axis(report, n, false, out);
  hec_plot_end("iteration, as the trace numbers it", out);
}

const hec_chart hec_chart_iterations = {"iterations", "Time of each iteration", hec_chart_has_summary, draw};
