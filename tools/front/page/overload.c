/* Overload factor of every layer: busiest rank's tokens over the mean; 1 is balance. First a row of cells per policy,
 * its mean over iterations and micro-batches. Then a policy's layers over its iterations. Classes are fixed, so that
 * pages can be compared by eye. */
#include "tools/front/page/chart.h"

#include "runtime/base/arena.h"
#include "runtime/program/job.h"

#include <inttypes.h>
#include <stdlib.h>

enum { COLUMNS = 48, CLASSES = 9 };
static const double class_from[CLASSES] = {1, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 8};

static uint8_t class_of(double factor) {
  int32_t c = 0;
  while (c + 1 < CLASSES && factor >= class_from[c + 1])
    c++;
  return (uint8_t)c;
}

static int32_t layers_of(const hec_report *report) {
  return report->summary->job->problem.n_layers;
}

static size_t passes_of(const hec_report *report, int32_t row) { /* micro-batches of all iterations */
  return report->summary->rows[row].overload.n / (size_t)layers_of(report);
}

/* Mean of a layer over passes first .. last - 1. */
static double mean_of(const hec_report *report, int32_t row, int32_t layer, size_t first, size_t last) {
  const double *value = report->summary->rows[row].overload.value;
  double sum = 0;
  for (size_t i = first; i < last; i++)
    sum += value[i * (size_t)layers_of(report) + (size_t)layer];
  return last > first ? sum / (double)(last - first) : 0;
}

typedef struct {
  int32_t row, layer;
  double factor;
} worst;

static worst worst_of(const hec_report *report, int32_t row) {
  worst found = {row, 0, 0};
  for (int32_t layer = 0; layer < layers_of(report); layer++) {
    double factor = mean_of(report, row, layer, 0, passes_of(report, row));
    if (factor > found.factor)
      found = (worst){row, layer, factor};
  }
  return found;
}

static void say(const hec_report *report, hec_text *out) {
  int32_t best = report->best >= 0 ? report->best : report->order[0];
  worst max = worst_of(report, best);
  for (int32_t row = 0; row < report->summary->n_rows; row++) {
    worst one = worst_of(report, row);
    max = hec_chart_shows(report, row) && one.factor > max.factor ? one : max;
  }
  hec_chart_says(out);
  hec_text_printf(out, "Layer %" PRId32 " under ", max.layer);
  hec_page_add(report->summary->rows[max.row].label, out);
  hec_text_printf(out, " is the worst: its busiest rank has %s times the mean tokens.", hec_times(max.factor).text);
  if (best != max.row) {
    worst its = worst_of(report, best);
    hec_text_add(out, " Under ");
    hec_page_add(report->summary->rows[best].label, out);
    hec_text_printf(out, " no layer exceeds %s.", hec_times(its.factor).text);
  }
  hec_chart_said(out);
  hec_chart_note(out);
  hec_text_add(
      out, "Overload factor: the busiest rank's tokens over the mean of all ranks; 1 is balance, no unit. Layers are "
           "counted "
           "from 0, MoE layers only. Above: mean over the reported iterations; below: one policy over its iterations.");
  hec_chart_add_rows(report, out);
  hec_chart_said(out);
}

static void add_heat(hec_plot *plot, const double *value, hec_text *out) {
  plot->kind = "heat";
  plot->crisp = true;
  hec_plot_begin(plot, out);
  hec_text_printf(out, " data-w=\"%" PRId32 "\" data-h=\"%" PRId32 "\" data-unit=\"times the mean\"", plot->width,
                  plot->height);
  hec_plot_values(value, (size_t)plot->width * (size_t)plot->height, out);
}

static void add_cells(const hec_plot *plot, const double *value, hec_text *out) {
  size_t n = (size_t)plot->width * (size_t)plot->height;
  uint8_t *class = hec_malloc(n, 1);
  for (size_t i = 0; i < n; i++)
    class[i] = class_of(value[i]);
  hec_plot_body(out);
  hec_plot_cells(class, plot->height, plot->width, out);
  hec_plot_shapes_end(out);
  free(class);
}

/* Every so many layers a label, in the middle of its cells. */
static void label_layers(int32_t n, bool upright, hec_text *out) {
  int32_t step = 1;
  while (n / step > (upright ? 8 : 24))
    step *= 2;
  (upright ? hec_plot_y_begin(false, out) : hec_plot_x_begin(out));
  for (int32_t i = 0; i < n; i += step) {
    double share = ((double)i + 0.5) / n;
    if (upright)
      hec_plot_y_label(1 - share, hec_fixed(i, 0).text, out);
    else
      hec_plot_x_label(share, hec_fixed(i, 0).text, out);
  }
  hec_plot_labels_end(out);
}

static void add_overview(const hec_report *report, const int32_t *rows, int32_t n, hec_text *out) {
  int32_t n_layers = layers_of(report);
  double *value = hec_malloc((size_t)n * (size_t)n_layers, sizeof *value);
  for (int32_t k = 0; k < n; k++)
    for (int32_t layer = 0; layer < n_layers; layer++)
      value[k * n_layers + layer] = mean_of(report, rows[k], layer, 0, passes_of(report, rows[k]));
  hec_plot plot = {.label = "Mean overload factor of each layer under each policy",
                   .width = n_layers,
                   .height = n,
                   .px = 20 * n,
                   .gutter = 160};
  add_heat(&plot, value, out);
  hec_text_add(out, " data-x=\"layer\"");
  add_cells(&plot, value, out);
  hec_plot_y_begin(true, out);
  for (int32_t k = 0; k < n; k++) {
    hec_page_item item = hec_chart_item(report, rows[k]);
    hec_plot_y_name(1 - ((double)k + 0.5) / n, &item, out);
  }
  hec_plot_labels_end(out);
  label_layers(n_layers, false, out);
  hec_plot_end("MoE layer", out);
  free(value);
}

static void add_panel(const hec_report *report, int32_t row, hec_text *out) {
  int32_t n_layers = layers_of(report);
  size_t passes = passes_of(report, row), bin = (passes + COLUMNS - 1) / COLUMNS, n = (passes + bin - 1) / bin;
  bool whole = passes == (size_t)report->summary->rows[row].n; /* a pass is an iteration */
  double *value = hec_malloc(n * (size_t)n_layers, sizeof *value);
  for (int32_t layer = 0; layer < n_layers; layer++)
    for (size_t k = 0; k < n; k++)
      value[(size_t)layer * n + k] =
          mean_of(report, row, layer, k * bin, (k + 1) * bin < passes ? (k + 1) * bin : passes);
  HEC_SCOPED(hec_text) label = {0};
  hec_text_printf(&label, "Overload factor of layers over iterations under %s", report->summary->rows[row].label);
  hec_plot plot = {.label = label.data,
                   .width = (int32_t)n,
                   .height = n_layers,
                   .px = n_layers * 20 < 90    ? 90
                         : n_layers * 20 > 240 ? 240
                                               : n_layers * 20,
                   .gutter = 34};
  const hec_page_item item = hec_chart_item(report, row);
  hec_page_panel("overload", &item, hec_chart_opens(report, row), out);
  add_heat(&plot, value, out);
  hec_text_printf(out, " data-y=\"layer\" data-x=\"%s\" data-xfrom=\"1\" data-xstep=\"%zu\" data-xlast=\"%zu\"",
                  whole ? "iteration" : "micro-batch", bin, passes);
  add_cells(&plot, value, out);
  label_layers(n_layers, true, out);
  if (whole)
    hec_chart_iter_axis(report, passes, true, out);
  else
    hec_plot_x_axis(0.5, (double)passes + 0.5, passes < 6 ? (int32_t)passes : 6, out);
  hec_plot_end(whole ? "iteration (downwards: MoE layer)" : "micro-batch, counted from 1 (downwards: MoE layer)", out);
  hec_text_add(out, "</details>\n");
  free(value);
}

static void add_overviews(const hec_report *report, hec_text *out) {
  int32_t *rows = hec_malloc((size_t)report->summary->n_rows, sizeof *rows), n = hec_chart_rows(report, false, rows);
  add_overview(report, rows, n, out);
  n = hec_chart_rows(report, true, rows);
  if (n > 0) {
    hec_chart_fold(n, out);
    add_overview(report, rows, n, out);
    hec_text_add(out, "</details>\n");
  }
  free(rows);
}

static void draw(const hec_report *report, hec_text *out) {
  hec_number from[CLASSES];
  for (int32_t c = 0; c < CLASSES; c++)
    from[c] = hec_fixed(class_from[c], 2);
  say(report, out);
  hec_plot_classes(from, CLASSES, "times the mean", out);
  add_overviews(report, out);
  hec_chart_chips(report, "overload", false, out);
  hec_text_add(out, "<div class=\"panels\">\n");
  for (int32_t k = 0; k < report->summary->n_rows; k++)
    if (passes_of(report, report->order[k]) > 0 && hec_chart_draws(report, report->order[k]))
      add_panel(report, report->order[k], out);
  hec_text_add(out, "</div>\n");
}

static bool applies(const hec_report *report) {
  return report->summary && report->summary->rows[0].overload.n > 0 && report->summary->job->problem.n_ranks > 1;
}

const hec_chart hec_chart_overload = {"overload", "Overload of the busiest rank, by layer", applies, draw};
