/* Training steps from the fastest on: a bar per row, stacked by what the busiest stage spends its step on. The same numbers as a
 * table. */
#include "tools/front/page/chart.h"

#include <inttypes.h>

enum { WIDTH = 10000 };

#define PART_NAME(name, text) text,
const char *const hec_step_part_name[HEC_N_STEP_PARTS] = {HEC_STEP_PART_LIST(PART_NAME)};

/* Colours as of the other charts: computing, token traffic, ...; see page.css. */
static const int32_t color_of[HEC_N_STEP_PARTS] = {0, 2, 3, 4, 1, 6, 5, 8, 7};

static void say(const hec_report_training *t, hec_text *out) {
  const hec_report_trained *best = &t->steps[0];
  hec_chart_says(out);
  for (int32_t i = 0; i < t->n_steps; i++)
    best = t->steps[i].best ? &t->steps[i] : best;
  int32_t max = HEC_STEP_DISPATCH;
  for (int32_t k = 1; k < HEC_N_STEP_PARTS; k++)
    max = best->part_s[k] > best->part_s[max] ? k : max;
  hec_page_add(best->name, out);
  hec_text_printf(out, " computes for %s of its step of %s",
                  hec_percent(best->part_s[HEC_STEP_COMPUTE] / best->step_s).text, hec_seconds(best->step_s).text);
  if (best->part_s[max] > 0)
    hec_text_printf(out, ", and most of the rest is %s (%s)", hec_step_part_name[max],
                    hec_seconds(best->part_s[max]).text);
  hec_text_add(out, ".");
  hec_chart_said(out);
  hec_chart_note(out);
  hec_text_add(out,
               "Seconds of the stage that is busy longest. Exposed: nothing is computed meanwhile. Bubble: it waits "
               "for other stages. Balanced routing: every expert has the same load.");
  hec_chart_said(out);
}

static void add_keys(const hec_report_training *t, hec_text *out) {
  hec_text_add(out, "<div class=\"keys\">");
  for (int32_t k = 0; k < HEC_N_STEP_PARTS; k++) {
    double max = 0;
    for (int32_t i = 0; i < t->n_steps; i++)
      max = t->steps[i].part_s[k] > max ? t->steps[i].part_s[k] : max;
    if (max > 0)
      hec_text_printf(out, "<span><i class=\"k%" PRId32 "\"></i><b>%s</b></span>", color_of[k], hec_step_part_name[k]);
  }
  hec_text_add(out, "</div>\n");
}

static void add_shapes(const hec_report_trained *row, double longest_s, hec_text *out) {
  double sum = 0;
  int64_t x = 0;
  for (int32_t k = 0; k < HEC_N_STEP_PARTS; k++) {
    sum += row->part_s[k];
    int64_t end = hec_round(WIDTH * sum / longest_s);
    if (end > x)
      hec_text_printf(out,
                      "<rect class=\"f k%" PRId32 "\" x=\"%" PRId64 "\" width=\"%" PRId64
                      "\" height=\"18\"><title>%s %s</title></rect>",
                      color_of[k], x, end - x, hec_step_part_name[k], hec_seconds(row->part_s[k]).text);
    x = end > x ? end : x;
  }
}

static void add_bar(const hec_report_trained *row, double longest_s, hec_text *out) {
  hec_text_printf(out, "<div class=\"bar%s\"><span class=\"n\">", row->best ? " best" : "");
  hec_page_name(&(hec_page_item){0, row->name, row->about}, out);
  hec_text_printf(out,
                  "%s</span><svg viewBox=\"0 0 %d 18\" preserveAspectRatio=\"none\" role=\"img\" "
                  "data-kind=\"bars\" aria-label=\"",
                  row->fits ? "" : " <span class=\"tag warn\">does not fit</span>", WIDTH);
  hec_page_add(row->name, out);
  hec_text_printf(out, ": step %s\">", hec_seconds(row->step_s).text);
  add_shapes(row, longest_s, out);
  hec_text_printf(out, "</svg><span class=\"v\">%s <span class=\"dim\">%sx</span></span></div>\n",
                  hec_seconds(row->step_s).text, hec_times(row->vs_ep).text);
}

static void add_axis(double longest_s, hec_text *out) {
  hec_text_add(out, "<div class=\"bar axis\"><span class=\"n\"></span>");
  hec_plot_x_axis(0, longest_s, 6, out);
  hec_text_add(out, "<span class=\"v\">s; speed over ep</span></div>\n");
}

static void add_cell(double value, int decimals, hec_text *out) {
  hec_text_printf(out, "<td>%s</td>", hec_fixed(value, decimals).text);
}

static void add_table(const hec_report_training *t, hec_text *out) {
  hec_text_add(out, "<details class=\"numbers\">\n<summary>All rows as numbers</summary>\n");
  hec_page_wide("All rows as numbers", out);
  hec_text_add(out, "<table id=\"numbers\">\n<thead><tr><th>policy</th><th>step, s</th><th>tokens/s/GPU</th>"
                    "<th>model TFLOP/s/GPU</th><th>MFU, %</th><th>bubble, %</th><th>exposed dispatch, %</th>"
                    "<th>speed over ep</th><th>overload</th><th>memory, GiB</th><th>fits</th></tr></thead>\n<tbody>\n");
  for (int32_t i = 0; i < t->n_steps; i++) {
    const hec_report_trained *row = &t->steps[i];
    hec_text_add(out, "<tr><td>");
    hec_page_add(row->name, out);
    hec_text_add(out, "</td>");
    add_cell(row->step_s, 4, out);
    add_cell(row->tokens_per_s, 0, out);
    add_cell(row->tflops, 1, out);
    add_cell(100 * row->mfu, 1, out);
    add_cell(100 * row->part_s[HEC_STEP_BUBBLE] / row->step_s, 1, out);
    add_cell(100 * row->part_s[HEC_STEP_DISPATCH] / row->step_s, 1, out);
    add_cell(row->vs_ep, 3, out);
    add_cell(row->overload < 0 ? 1 : row->overload, 2, out);
    add_cell(row->needed_bytes / 1073741824, 1, out);
    hec_text_printf(out, "<td>%s</td></tr>\n", row->fits ? "yes" : "no");
  }
  hec_text_add(out, "</tbody></table>");
  hec_page_wide_end(out);
  hec_text_add(out, "</details>\n");
}

/* Those shown at first, or (`rest`) the others, on a scale of their own. How many. */
static int32_t count(const hec_report_training *t, bool rest, double *longest_s) {
  int32_t n = 0;
  *longest_s = 0;
  for (int32_t i = 0; i < t->n_steps; i++)
    if (t->steps[i].shown != rest) {
      n++;
      *longest_s = t->steps[i].step_s > *longest_s ? t->steps[i].step_s : *longest_s;
    }
  return n;
}

static void add_bars(const hec_report_training *t, bool rest, hec_text *out) {
  double longest_s;
  (void)count(t, rest, &longest_s);
  for (int32_t i = 0; i < t->n_steps; i++)
    if (t->steps[i].shown != rest)
      add_bar(&t->steps[i], longest_s, out);
  add_axis(longest_s, out);
}

static void draw(const hec_report *report, hec_text *out) {
  const hec_report_training *t = report->training;
  double longest_s;
  say(t, out);
  add_keys(t, out);
  add_bars(t, false, out);
  int32_t n = count(t, true, &longest_s);
  if (n > 0) {
    hec_chart_fold(n, out);
    add_bars(t, true, out);
    hec_text_add(out, "</details>\n");
  }
  add_table(t, out);
}

static bool applies(const hec_report *report) {
  return report->training != NULL;
}

const hec_chart hec_chart_steps = {"steps", "The step, and where its time goes", applies, draw};
