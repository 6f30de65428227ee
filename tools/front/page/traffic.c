/* Bytes from every rank to every other in one iteration: all exchanges, every hop. All-reduces run in rings of the
 * law's choice and stand in words. Classes are of all policies together, each so many times the one before. */
#include "tools/front/page/chart.h"

#include "runtime/base/arena.h"

#include <inttypes.h>
#include <stdlib.h>

enum { CLASSES = 9 };

static size_t cells_of(const hec_report *report) {
  return (size_t)report->n_blocks * (size_t)report->n_blocks;
}

static double max_of(const hec_report *report) {
  double max = 0;
  for (int32_t i = 0; i < report->summary->n_rows; i++)
    for (size_t k = 0; report->iterations[i].there && k < cells_of(report); k++)
      max = report->iterations[i].traffic[k] > max ? report->iterations[i].traffic[k] : max;
  return max;
}

/* How much more a class is than the one before: as little as 2. But the mean cell of every policy is still two classes
 * from the end. */
static double step_of(const hec_report *report, double max) {
  double min = max;
  for (int32_t i = 0; i < report->summary->n_rows; i++) {
    const hec_report_iteration *it = &report->iterations[i];
    double n = 0;
    for (size_t k = 0; it->there && k < cells_of(report); k++)
      n += it->traffic[k] > 0;
    min = n > 0 && it->bytes / n < min ? it->bytes / n : min;
  }
  double step = 2, low = max;
  for (; step < 10; step++) {
    low = max;
    for (int32_t c = 2; c < CLASSES; c++)
      low /= step;
    if (low <= min)
      break;
  }
  return step;
}

/* Class c > 0 begins at max / step^(9 - c); class 0 is nothing, and less than that. */
static double class_from(double max, double step, int32_t c) {
  double from = max;
  for (int32_t i = c; i < CLASSES; i++)
    from /= step;
  return c == 0 ? 0 : from;
}

static void describe(const hec_report *report, int32_t row, hec_text *out) {
  const hec_report_iteration *it = &report->iterations[row];
  hec_page_add(report->summary->rows[row].label, out);
  hec_text_printf(out, " sends %s between ranks", hec_bytes(it->bytes).text);
  if (it->bytes > 0)
    hec_text_printf(out, ", %s of it between nodes", hec_percent(it->across / it->bytes).text);
  if (it->pair_from >= 0)
    hec_text_printf(out, ", most from rank %" PRId32 " to rank %" PRId32 " (%s)", it->pair_from, it->pair_to,
                    hec_bytes(it->pair_bytes).text);
  hec_text_printf(out, ", in iteration %" PRId64 ". ", it->iter);
}

static void say(const hec_report *report, hec_text *out) {
  int32_t n = 0;
  double reduced = 0;
  hec_chart_says(out);
  for (int32_t k = 0; k < report->summary->n_rows; k++) {
    int32_t row = report->order[k];
    if (!report->iterations[row].there || !hec_chart_opens(report, row))
      continue;
    describe(report, row, out);
    n++;
    reduced = report->iterations[row].reduced;
  }
  for (int32_t k = 0; n == 0 && k < report->summary->n_rows; k++)
    if (report->iterations[report->order[k]].there) {
      describe(report, report->order[k], out);
      reduced = report->iterations[report->order[k]].reduced;
      n++;
    }
  hec_chart_said(out);
  hec_chart_note(out);
  hec_text_add(
      out,
      "Bytes of one iteration of each policy (the one nearest its median, or the one asked for), sources downwards, "
      "destinations to the right; every hop counts.");
  if (reduced > 0)
    hec_text_printf(out, " All-reduces of %s in all, whose rings are not drawn, come on top.", hec_bytes(reduced).text);
  if (report->per_block > 1)
    hec_text_printf(out, " %" PRId32 " ranks are added up in a cell's side, for the page's size.", report->per_block);
  hec_chart_add_rows(report, out);
  hec_chart_said(out);
}

static void label_ranks(const hec_report *report, bool upright, hec_text *out) {
  int32_t step = 1;
  while (report->n_blocks / step > 8)
    step *= 2;
  (upright ? hec_plot_y_begin(false, out) : hec_plot_x_begin(out));
  for (int32_t i = 0; i < report->n_blocks; i += step) {
    double share = ((double)i + 0.5) / report->n_blocks;
    hec_number label = hec_fixed((double)i * report->per_block, 0);
    if (upright)
      hec_plot_y_label(1 - share, label.text, out);
    else
      hec_plot_x_label(share, label.text, out);
  }
  hec_plot_labels_end(out);
}

static void add_panel(const hec_report *report, int32_t row, const double *from, hec_text *out) {
  const hec_report_iteration *it = &report->iterations[row];
  size_t n = cells_of(report);
  uint8_t *class = hec_malloc(n, 1);
  for (size_t i = 0; i < n; i++) {
    class[i] = 0;
    while (class[i] + 1 < CLASSES && it->traffic[i] > 0 && it->traffic[i] >= from[class[i] + 1])
      class[i]++;
  }
  HEC_SCOPED(hec_text) label = {0};
  hec_text_printf(&label, "Bytes from rank to rank under %s", report->summary->rows[row].label);
  const hec_plot plot = {.kind = "heat",
                         .label = label.data,
                         .width = report->n_blocks,
                         .height = report->n_blocks,
                         .px = 330,
                         .gutter = 34,
                         .crisp = true};
  const hec_page_item item = hec_chart_item(report, row);
  hec_page_panel("traffic", &item, hec_chart_opens(report, row), out);
  hec_plot_begin(&plot, out);
  hec_text_printf(out,
                  " data-w=\"%" PRId32 "\" data-h=\"%" PRId32
                  "\" data-unit=\"B\" data-y=\"from rank\" data-x=\"to rank\" "
                  "data-xstep=\"%" PRId32 "\" data-ystep=\"%" PRId32 "\"",
                  plot.width, plot.height, report->per_block, report->per_block);
  hec_plot_values(it->traffic, n, out);
  hec_plot_body(out);
  hec_plot_cells(class, plot.height, plot.width, out);
  hec_plot_shapes_end(out);
  label_ranks(report, true, out);
  label_ranks(report, false, out);
  hec_plot_end("to rank (downwards: from rank)", out);
  hec_text_add(out, "</details>\n");
  free(class);
}

static void draw(const hec_report *report, hec_text *out) {
  double max = max_of(report), step = step_of(report, max), from[CLASSES];
  hec_number shown[CLASSES];
  for (int32_t c = 0; c < CLASSES; c++) {
    from[c] = class_from(max, step, c);
    shown[c] = hec_bytes(from[c]);
  }
  say(report, out);
  hec_plot_classes(shown, CLASSES, "bytes", out);
  hec_chart_chips(report, "traffic", false, out);
  hec_text_add(out, "<div class=\"panels\">\n");
  for (int32_t k = 0; k < report->summary->n_rows; k++)
    if (report->iterations[report->order[k]].there && hec_chart_draws(report, report->order[k]))
      add_panel(report, report->order[k], from, out);
  hec_text_add(out, "</div>\n");
}

/* One rank sends nothing. */
static bool applies(const hec_report *report) {
  return hec_chart_has_iterations(report) && max_of(report) > 0;
}

const hec_chart hec_chart_traffic = {"traffic", "Bytes between ranks", applies, draw};
