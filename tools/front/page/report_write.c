/* The page from end to end, and which rows of a comparison are drawn apart. */
#include "tools/front/page/report.h"

#include "runtime/program/job.h"
#include "tools/front/page/chart.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEC_CHART_ROW(name) &hec_chart_##name,
const hec_chart *const hec_charts[] = {HEC_CHART_LIST(HEC_CHART_ROW) NULL};

/* ---- Which rows ---- */

static void sort_rows(hec_report *report) {
  hec_summary_row *rows = report->summary->rows;
  int32_t n = report->summary->n_rows;
  for (int32_t i = 0; i < n; i++) {
    int32_t k = i;
    for (; k > 0 && hec_summary_median(&rows[report->order[k - 1]]) > hec_summary_median(&rows[i]); k--)
      report->order[k] = report->order[k - 1];
    report->order[k] = i;
  }
}

static void color_row(hec_report *report, int32_t row, int32_t *n) {
  if (row >= 0 && *n < HEC_REPORT_LINES && report->color[row] == HEC_REPORT_LINES)
    report->color[row] = (*n)++;
}

/* Colours go to the best, the baseline, the fastest that rearranges, then to systems from the fastest on. */
static void color_rows(hec_report *report) {
  hec_summary *summary = report->summary;
  int32_t n = 0;
  for (int32_t i = 0; i < summary->n_rows; i++)
    report->color[i] = HEC_REPORT_LINES;
  color_row(report, report->best >= 0 ? report->best : report->order[0], &n);
  color_row(report, report->baseline, &n);
  color_row(report, hec_summary_fastest_rearranging(summary), &n);
  for (int32_t i = 0; i < summary->n_rows; i++)
    if (!summary->rows[report->order[i]].reference)
      color_row(report, report->order[i], &n);
}

hec_report hec_report_of(hec_summary *summary, hec_arena *arena) {
  int32_t n = summary->n_rows, n_ranks = summary->job->problem.n_ranks;
  hec_report report = {.tool = summary->tool,
                       .title = summary->job->header.name[0] ? summary->job->header.name : summary->trace,
                       .summary = summary,
                       .synthetic = summary->job->header.synthetic != NULL,
                       .order = HEC_NEW(arena, int32_t, n),
                       .color = HEC_NEW(arena, int32_t, n),
                       .best = summary->execution && hec_summary_execution_crowded(summary->execution)
                                   ? -1 /* the verdict names none either */
                                   : hec_summary_winner(summary),
                       .baseline = hec_summary_baseline(summary),
                       .iterations = HEC_NEW(arena, hec_report_iteration, n)};
  int32_t max = HEC_REPORT_BLOCKS;
  while (max > 4 && (int64_t)max * max * n > HEC_REPORT_CELLS)
    max--;
  report.per_block = (n_ranks + max - 1) / max;
  report.n_blocks = (n_ranks + report.per_block - 1) / report.per_block;
  sort_rows(&report);
  color_rows(&report);
  return report;
}

void hec_report_free(hec_report *report) {
  for (int32_t i = 0; report->summary && i < report->summary->n_rows; i++)
    hec_arena_free(&report->iterations[i].arena);
}

/* ---- What charts share ---- */

const char *const hec_part_name[HEC_N_PARTS] = {"compute",
                                                "planning",
                                                "exposed token traffic",
                                                "exposed parameter traffic",
                                                "exposed gradient traffic",
                                                "exposed migration",
                                                "waiting",
                                                "start skew"};
const int32_t hec_part_order[HEC_N_PARTS] = {HEC_BOOK_COMPUTE,   HEC_BOOK_TOKEN, HEC_BOOK_PARAM, HEC_BOOK_GRAD,
                                             HEC_BOOK_MIGRATION, HEC_BOOK_PLAN,  HEC_PART_WAIT,  HEC_PART_SKEW};

void hec_part_seconds(const hec_summary_row *row, double seconds[HEC_N_PARTS]) {
  double per = row->stride > 0 ? 1 / row->stride : 0;
  for (int32_t i = 0; i < HEC_N_BOOKS; i++)
    seconds[i] = per * row->book_s[i];
  seconds[HEC_PART_WAIT] = per * row->wait_s;
  seconds[HEC_PART_SKEW] = per * row->skew_s;
}

bool hec_chart_draws(const hec_report *report, int32_t row) {
  for (int32_t i = 0; i < report->summary->n_rows && i < HEC_REPORT_ROWS; i++)
    if (report->order[i] == row)
      return true;
  return report->color[row] < HEC_REPORT_LINES;
}

void hec_chart_add_rows(const hec_report *report, hec_text *out) {
  int32_t n = 0;
  for (int32_t i = 0; i < report->summary->n_rows; i++)
    n += hec_chart_draws(report, i);
  if (n < report->summary->n_rows)
    hec_text_printf(out, " %" PRId32 " of %" PRId32 " rows are drawn one by one: the fastest, and the baseline.", n,
                    report->summary->n_rows);
}

bool hec_chart_opens(const hec_report *report, int32_t row) {
  return row == report->best || row == report->baseline || (report->best < 0 && row == report->order[0]);
}

void hec_chart_chips(const hec_report *report, const char *name, bool color, hec_text *out) {
  hec_page_chips(name, out);
  for (int32_t i = 0; i < report->summary->n_rows; i++) {
    int32_t row = report->order[i];
    if (!hec_chart_draws(report, row))
      continue;
    char class[8] = "l0";
    class[1] = (char)('0' + report->color[row]);
    hec_page_chip(name, row, report->summary->rows[row].label, color ? class : NULL,
                  color || hec_chart_opens(report, row), out);
  }
  hec_text_printf(out,
                  "<button type=\"button\" data-all=\"%s\" data-on=\"1\">all</button>\n"
                  "<button type=\"button\" data-all=\"%s\" data-on=\"0\">none</button>\n",
                  name, name);
  hec_page_chips_end(out);
}

int64_t hec_chart_iter(const hec_report *report, size_t place) {
  const hec_series *iters = &report->summary->iters;
  return place < iters->n ? (int64_t)iters->value[place] : (int64_t)place + 1;
}

void hec_chart_add_iters(const hec_report *report, size_t n, hec_text *out) {
  hec_text_add(out, " data-iters=\"");
  for (size_t i = 0; i < n;) {
    int64_t first = hec_chart_iter(report, i), step = i + 1 < n ? hec_chart_iter(report, i + 1) - first : 1;
    size_t last = i + 1;
    while (last < n && hec_chart_iter(report, last) - hec_chart_iter(report, last - 1) == step)
      last++;
    hec_text_printf(out, "%" PRId64 " %" PRId64 " %zu;", first, step, last - i);
    i = last;
  }
  hec_text_add(out, "\"");
}

/* The first place of the labels: so that they are round where iterations are evenly numbered. */
static size_t first_label(const hec_report *report, size_t n, size_t step) {
  int64_t apart = n > step ? hec_chart_iter(report, step) - hec_chart_iter(report, 0) : 0;
  for (size_t i = 0; apart > 0 && i < step; i++)
    if (hec_chart_iter(report, i) % apart == 0)
      return i;
  return 0;
}

void hec_chart_iter_axis(const hec_report *report, size_t n, bool cells, hec_text *out) {
  static const size_t factors[] = {2, 5, 10};
  size_t step = 1, power = 1;
  for (size_t k = 0; n / step > 8; k = (k + 1) % 3) {
    step = power * factors[k];
    power *= k == 2 ? 10 : 1;
  }
  hec_plot_x_begin(out);
  for (size_t i = first_label(report, n, step); i < n; i += step) {
    char label[32];
    (void)snprintf(label, sizeof label, "%" PRId64, hec_chart_iter(report, i));
    double share = cells ? ((double)i + 0.5) / (double)n : n > 1 ? (double)i / (double)(n - 1) : 0.5;
    hec_plot_x_label(share, label, out);
  }
  hec_plot_labels_end(out);
}

bool hec_chart_has_summary(const hec_report *report) {
  return report->summary != NULL;
}

bool hec_chart_has_iterations(const hec_report *report) {
  for (int32_t i = 0; report->summary && i < report->summary->n_rows; i++)
    if (report->iterations[i].there)
      return true;
  return false;
}

void hec_chart_says(hec_text *out) {
  hec_text_add(out, "<p class=\"says\">");
}

void hec_chart_note(hec_text *out) {
  hec_text_add(out, "<p class=\"note\">");
}

void hec_chart_said(hec_text *out) {
  hec_text_add(out, "</p>\n");
}

/* ---- The page ---- */

void hec_report_write(const hec_report *report, hec_text *out) {
  hec_text title = {0};
  hec_text_printf(&title, "hecate: %s", report->title);
  hec_page_begin(title.data, out);
  hec_text_free(&title);
  hec_page_head(report, out);
  for (int32_t i = 0; hec_charts[i]; i++) {
    const hec_chart *chart = hec_charts[i];
    if (!chart->applies(report))
      continue;
    hec_page_section(chart->name, chart->title, out);
    chart->draw(report, out);
    hec_page_section_end(out);
  }
  hec_page_assumed(report, out);
  hec_page_end(report->tool, out);
}
