/* The page from end to end, and which rows of a comparison are drawn apart. */
#include "tools/front/page/report.h"

#include "runtime/program/job.h"
#include "tools/front/args.h"
#include "tools/front/page/chart.h"
#include "tools/front/summary/summary_write.h"

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

static void color_row(hec_report *report, int32_t row) {
  if (row >= 0 && report->n_shown < HEC_REPORT_SHOWN && report->color[row] == HEC_REPORT_SHOWN)
    report->color[row] = report->n_shown++;
}

/* Colours go to the best, the baseline, the fastest that rearranges, then to the other rows that matter. Where there is no
 * system, to references. */
static void color_rows(hec_report *report) {
  hec_summary *summary = report->summary;
  int32_t row[HEC_REPORT_SHOWN], n = hec_summary_choose_rows(summary, HEC_REPORT_SHOWN, row);
  for (int32_t i = 0; i < summary->n_rows; i++)
    report->color[i] = HEC_REPORT_SHOWN;
  color_row(report, report->best >= 0 ? report->best : report->order[0]);
  color_row(report, report->baseline);
  color_row(report, hec_summary_fastest_rearranging(summary));
  for (int32_t i = 0; i < n; i++)
    color_row(report, row[i]);
}

const char *hec_report_about(const char *summary, const char *source, const char *schedule, hec_arena *arena) {
  HEC_SCOPED(hec_text) text = {0};
  hec_args_add_flags(summary, &text);
  hec_text_printf(&text, " (%s)", source);
  if (schedule)
    hec_text_printf(&text, "; schedule %s", schedule);
  const char *copy = hec_arena_text(arena, text.data);
  return copy;
}

hec_report hec_report_of(hec_summary *summary, hec_arena *arena) {
  int32_t n = summary->n_rows, n_ranks = summary->job->problem.n_ranks;
  hec_report report = {.tool = summary->tool,
                       .title = summary->job->header.name[0] ? summary->job->header.name : summary->trace,
                       .summary = summary,
                       .synthetic = summary->job->header.synthetic != NULL,
                       .order = HEC_NEW(arena, int32_t, n),
                       .color = HEC_NEW(arena, int32_t, n),
                       .about = HEC_NEW(arena, const char *, n),
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
  for (int32_t i = 0; i < n; i++)
    if (summary->rows[i].about)
      report.about[i] =
          hec_report_about(summary->rows[i].about, summary->rows[i].source, summary->rows[i].schedule, arena);
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

bool hec_chart_shows(const hec_report *report, int32_t row) {
  return report->color[row] < HEC_REPORT_SHOWN;
}

int32_t hec_chart_rows(const hec_report *report, bool rest, int32_t *row) {
  int32_t n = 0;
  for (int32_t i = 0; i < report->summary->n_rows; i++)
    if (hec_chart_shows(report, report->order[i]) != rest)
      row[n++] = report->order[i];
  return n;
}

void hec_chart_fold(int32_t n, hec_text *out) {
  char title[64];
  (void)snprintf(title, sizeof title, "%" PRId32 " other row%s", n, n == 1 ? "" : "s");
  hec_page_fold(title, out);
}

hec_page_item hec_chart_item(const hec_report *report, int32_t row) {
  return (hec_page_item){row, report->summary->rows[row].label, report->about[row]};
}

bool hec_chart_draws(const hec_report *report, int32_t row) {
  for (int32_t i = 0; i < report->summary->n_rows && i < HEC_REPORT_ROWS; i++)
    if (report->order[i] == row)
      return true;
  return hec_chart_shows(report, row);
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

static int32_t add_chips(const hec_report *report, const char *name, bool color, bool rest, hec_text *out) {
  int32_t n = 0;
  for (int32_t i = 0; i < report->summary->n_rows; i++) {
    int32_t row = report->order[i];
    if (!hec_chart_draws(report, row) || hec_chart_shows(report, row) == rest)
      continue;
    char class[8] = "l0";
    class[1] = (char)('0' + report->color[row]);
    hec_page_item item = hec_chart_item(report, row);
    if (rest && n++ == 0) {
      hec_text_add(out, "<details class=\"fold script\">\n<summary>Choose among the others</summary>\n");
      hec_page_chips(name, out);
    }
    hec_page_chip(name, &item, color ? class : NULL, color ? !rest : hec_chart_opens(report, row), out);
  }
  return n;
}

void hec_chart_chips(const hec_report *report, const char *name, bool color, hec_text *out) {
  hec_page_chips(name, out);
  (void)add_chips(report, name, color, false, out);
  hec_text_printf(out,
                  "<button type=\"button\" data-all=\"%s\" data-on=\"1\">all</button>\n"
                  "<button type=\"button\" data-all=\"%s\" data-on=\"0\">none</button>\n",
                  name, name);
  hec_page_chips_end(out);
  if (add_chips(report, name, color, true, out) > 0) {
    hec_page_chips_end(out);
    hec_text_add(out, "</details>\n");
  }
}

/* What the trace calls the reported iteration of that place; counted from 1 where that is not known. */
static int64_t iter_at(const hec_report *report, size_t place) {
  const hec_series *iters = &report->summary->iters;
  return place < iters->n ? (int64_t)iters->value[place] : (int64_t)place + 1;
}

void hec_chart_add_iters(const hec_report *report, size_t n, hec_text *out) {
  hec_text_add(out, " data-iters=\"");
  for (size_t i = 0; i < n;) {
    int64_t first = iter_at(report, i), step = i + 1 < n ? iter_at(report, i + 1) - first : 1;
    size_t last = i + 1;
    while (last < n && iter_at(report, last) - iter_at(report, last - 1) == step)
      last++;
    hec_text_printf(out, "%" PRId64 " %" PRId64 " %zu;", first, step, last - i);
    i = last;
  }
  hec_text_add(out, "\"");
}

/* The first place of the labels: so that they are round where iterations are evenly numbered. */
static size_t first_label(const hec_report *report, size_t n, size_t step) {
  int64_t apart = n > step ? iter_at(report, step) - iter_at(report, 0) : 0;
  for (size_t i = 0; apart > 0 && i < step; i++)
    if (iter_at(report, i) % apart == 0)
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
    (void)snprintf(label, sizeof label, "%" PRId64, iter_at(report, i));
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
  HEC_SCOPED(hec_text) title = {0};
  hec_text_printf(&title, "hecate: %s", report->title);
  hec_page_begin(title.data, out);
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
