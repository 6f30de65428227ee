/* Policies from the fastest on: a bar per row, stacked by where its mean iteration goes (mean over ranks), a mark at
 * the lower bound. The same numbers as a table. */
#include "runtime/base/arena.h"
#include "tools/front/page/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 10000 };

static double longest_s(const hec_report *report, const int32_t *rows, int32_t n) {
  double max = 0;
  for (int32_t i = 0; i < n; i++) {
    hec_summary_row *row = &report->summary->rows[rows[i]];
    double mean = hec_summary_mean(row), bound = hec_series_quantile(&row->bound_s, 0.5);
    max = mean > max ? mean : max;
    max = bound > max ? bound : max;
  }
  return max > 0 ? max : 1;
}

/* "NAME computes for 96 % of its mean iteration, 42.26 ms; most of the rest is ..." */
static void describe(const hec_report *report, int32_t index, hec_text *out) {
  hec_summary_row *row = &report->summary->rows[index];
  double part[HEC_N_PARTS], mean = hec_summary_mean(row);
  hec_part_seconds(row, part);
  int32_t max = HEC_BOOK_PLAN;
  for (int32_t i = 1; i < HEC_N_PARTS; i++)
    max = part[i] > part[max] ? i : max;
  hec_page_add(row->label, out);
  hec_text_printf(out, " computes for %s of its mean iteration of %s", hec_percent(part[0] / mean).text,
                  hec_seconds(mean).text);
  if (part[max] > 0)
    hec_text_printf(out, ", and most of the rest is %s (%s)", hec_part_name[max], hec_seconds(part[max]).text);
  hec_text_add(out, ". ");
}

static void say(const hec_report *report, hec_text *out) {
  hec_chart_says(out);
  int32_t best = report->best >= 0 ? report->best : report->order[0];
  describe(report, best, out);
  if (report->baseline >= 0 && report->baseline != best)
    describe(report, report->baseline, out);
  double over = hec_summary_vs_bound(&report->summary->rows[best]);
  if (isfinite(over)) {
    hec_page_add(report->summary->rows[best].label, out);
    hec_text_printf(out, " takes %s times its lower bound.", hec_times(over).text);
  }
  hec_chart_said(out);
  hec_chart_note(out);
  hec_text_add(
      out,
      "Milliseconds of an iteration, mean over ranks. A bar ends at the mean; the number beside it is the median, and "
      "rows are sorted by it. Exposed: the device computes nothing meanwhile. The grey word is the schedule, where "
      "policy and schedule have different names.");
  if (!report->summary->execution)
    hec_text_add(out, " The black mark is the row's lower bound: no policy of its kind can be faster on these loads.");
  hec_chart_said(out);
}

static void add_keys(const hec_report *report, hec_text *out) {
  hec_text_add(out, "<div class=\"keys\">");
  for (int32_t k = 0; k < HEC_N_PARTS; k++) {
    int32_t part = hec_part_order[k];
    double max = 0, one[HEC_N_PARTS];
    for (int32_t i = 0; i < report->summary->n_rows; i++) {
      hec_part_seconds(&report->summary->rows[i], one);
      max = one[part] > max ? one[part] : max;
    }
    if (max > 0)
      hec_text_printf(out, "<span><i class=\"k%" PRId32 "\"></i><b>%s</b></span>", part, hec_part_name[part]);
  }
  hec_text_add(out, "</div>\n");
}

static void add_shapes(hec_summary_row *row, double max_s, hec_text *out) {
  double part[HEC_N_PARTS], sum = 0;
  int64_t x = 0;
  hec_part_seconds(row, part);
  for (int32_t k = 0; k < HEC_N_PARTS; k++) {
    int32_t i = hec_part_order[k];
    sum += part[i];
    int64_t end = hec_round(WIDTH * sum / max_s);
    if (end > x)
      hec_text_printf(out,
                      "<rect class=\"f k%" PRId32 "\" x=\"%" PRId64 "\" width=\"%" PRId64
                      "\" height=\"18\"><title>%s %s</title></rect>",
                      i, x, end - x, hec_part_name[i], hec_seconds(part[i]).text);
    x = end;
  }
  if (row->bound_s.n > 0)
    hec_text_printf(out, "<path class=\"mark\" d=\"M%" PRId64 " 0v18\"/>",
                    hec_round(WIDTH * hec_series_quantile(&row->bound_s, 0.5) / max_s));
}

static void add_bar(const hec_report *report, int32_t index, double max_s, hec_text *out) {
  hec_summary_row *row = &report->summary->rows[index];
  const hec_page_item item = {index, row->name, report->about[index]};
  hec_text_printf(out, "<div class=\"bar%s\"><span class=\"n\">", index == report->best ? " best" : "");
  hec_page_name(&item, out);
  hec_text_add(out, " <span class=\"dim\">");
  hec_page_add(strcmp(row->schedule, row->name) != 0 ? row->schedule : "", out);
  hec_text_add(out, row->reference ? " reference" : "");
  hec_text_add(out, "</span>");
  hec_text_add(out, hec_summary_fits(report->summary, row) ? "" : " <span class=\"tag warn\">does not fit</span>");
  hec_text_printf(out,
                  "</span><svg viewBox=\"0 0 %d 18\" preserveAspectRatio=\"none\" role=\"img\" data-kind=\"bars\" "
                  "aria-label=\"",
                  WIDTH);
  hec_page_add(row->label, out);
  hec_text_printf(out, ": mean %s\">", hec_seconds(hec_summary_mean(row)).text);
  add_shapes(row, max_s, out);
  hec_text_printf(out, "</svg><span class=\"v\">%s", hec_seconds(hec_summary_median(row)).text);
  double ratio = hec_summary_vs_baseline(report->summary, index);
  if (isfinite(ratio))
    hec_text_printf(out, " <span class=\"dim\">%sx</span>", hec_times(ratio).text);
  hec_text_add(out, "</span></div>\n");
}

static void add_axis(double max_s, hec_text *out) {
  hec_text_add(out, "<div class=\"bar axis\"><span class=\"n\"></span>");
  hec_plot_x_axis(0, 1e3 * max_s, 6, out);
  hec_text_add(out, "<span class=\"v\">ms; speed over ep</span></div>\n");
}

static void add_cell(double value, int decimals, hec_text *out) {
  hec_text_printf(out, "<td>%s</td>", hec_fixed(value, decimals).text);
}

static void add_table_row(const hec_report *report, int32_t index, hec_text *out) {
  hec_summary_row *row = &report->summary->rows[index];
  double part[HEC_N_PARTS];
  hec_part_seconds(row, part);
  hec_text_add(out, "<tr><td>");
  hec_page_add(row->name, out);
  hec_text_add(out, "</td><td>");
  hec_page_add(row->schedule, out);
  hec_text_add(out, "</td>");
  add_cell(1e3 * hec_summary_median(row), 3, out);
  add_cell(1e3 * hec_series_quantile(&row->iteration_s, 0.95), 3, out);
  add_cell(1e3 * hec_summary_mean(row), 3, out);
  add_cell(hec_summary_vs_baseline(report->summary, index), 3, out);
  add_cell(row->bound_s.n > 0 ? 1e3 * hec_series_quantile(&row->bound_s, 0.5) : NAN, 3, out);
  for (int32_t k = 0; k < HEC_N_PARTS; k++)
    add_cell(1e3 * part[hec_part_order[k]], 3, out);
  add_cell(hec_series_quantile(&row->overload, 0.5), 3, out);
  add_cell(hec_series_quantile(&row->overload, 0.95), 3, out);
  add_cell(1e-9 * row->peak_bytes, 4, out);
  hec_text_printf(out, "<td>%s</td></tr>\n", hec_summary_fits(report->summary, row) ? "yes" : "no");
}

static void add_table(const hec_report *report, hec_text *out) {
  hec_text_add(out, "<details class=\"numbers\">\n<summary>All rows as numbers</summary>\n");
  hec_page_wide("All rows as numbers", out);
  hec_text_add(out,
               "<table id=\"numbers\">\n<thead><tr>"
               "<th>policy</th><th>schedule</th><th>median, ms</th><th>p95, ms</th><th>mean, ms</th><th>speed over "
               "ep</th><th>bound, ms</th>");
  for (int32_t k = 0; k < HEC_N_PARTS; k++)
    hec_text_printf(out, "<th>%s, ms</th>", hec_part_name[hec_part_order[k]]);
  hec_text_add(out,
               "<th>overload, median</th><th>overload, p95</th><th>peak, GB</th><th>fits</th></tr></thead>\n<tbody>\n");
  for (int32_t i = 0; i < report->summary->n_rows; i++)
    add_table_row(report, report->order[i], out);
  hec_text_add(out, "</tbody></table>");
  hec_page_wide_end(out);
  hec_text_add(out, "</details>\n");
}

/* On a scale of their own: one very slow row does not squash the others. */
static void add_bars(const hec_report *report, const int32_t *rows, int32_t n, hec_text *out) {
  double max_s = longest_s(report, rows, n);
  for (int32_t i = 0; i < n; i++)
    add_bar(report, rows[i], max_s, out);
  add_axis(max_s, out);
}

static void draw(const hec_report *report, hec_text *out) {
  int32_t *rows = hec_malloc((size_t)report->summary->n_rows, sizeof *rows);
  say(report, out);
  add_keys(report, out);
  add_bars(report, rows, hec_chart_rows(report, false, rows), out);
  int32_t n = hec_chart_rows(report, true, rows);
  if (n > 0) {
    hec_chart_fold(n, out);
    add_bars(report, rows, n, out);
    hec_text_add(out, "</details>\n");
  }
  add_table(report, out);
  free(rows);
}

const hec_chart hec_chart_ranking = {"ranking", "Ranking, and where the time goes", hec_chart_has_summary, draw};
