/* Memory against the limit. First comes the peak of every policy: fullest rank, worst iteration, in the order of the
 * program, which decides what "fits". Then comes the fullest rank over the time of one iteration, stacked by what holds
 * it. */
#include "runtime/base/arena.h"
#include "tools/front/page/chart.h"

#include <inttypes.h>
#include <stdlib.h>

enum { WIDTH = HEC_REPORT_MOMENTS, HEIGHT = 1000, BAR = 10000 };

/* Colours of classes, k0 ...: parameters, gradients, optimizer, activations, copies, their gradients, buffers. */
static const int32_t color_of[HEC_N_MEMORY] = {0, 4, 7, 2, 3, 1, 5};

static void say(const hec_report *report, hec_text *out) {
  hec_summary *summary = report->summary;
  double limit = hec_summary_memory(summary);
  int32_t fullest = 0, n_fit = 0;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    fullest = summary->rows[i].peak_bytes > summary->rows[fullest].peak_bytes ? i : fullest;
    n_fit += hec_summary_fits(summary, &summary->rows[i]);
  }
  const hec_summary_row *row = &summary->rows[fullest];
  int32_t max = 0;
  for (int32_t k = 1; k < HEC_N_MEMORY; k++)
    max = row->peak_class[k] > row->peak_class[max] ? k : max;
  hec_chart_says(out);
  hec_text_printf(out, "%" PRId32 " of %" PRId32 " rows fit into the %s of a device; ", n_fit, summary->n_rows,
                  hec_bytes(limit).text);
  hec_page_add(row->label, out);
  hec_text_printf(out, " needs most, %s, %s of it for %s.", hec_bytes(row->peak_bytes).text,
                  hec_percent(row->peak_bytes > 0 ? row->peak_class[max] / row->peak_bytes : 0).text,
                  hec_memory_name[max]);
  hec_chart_said(out);
  hec_chart_note(out);
  hec_text_add(
      out,
      "Bytes of the fullest rank. The bars are peaks over all iterations, memory taken and freed in the order of the "
      "program; the pictures below are one iteration in the order of its time, where lanes that run ahead may hold "
      "a little more.");
  hec_chart_add_rows(report, out);
  hec_chart_said(out);
}

void hec_memory_keys(hec_text *out) {
  hec_text_add(out, "<div class=\"keys\">");
  for (int32_t k = 0; k < HEC_N_MEMORY; k++)
    hec_text_printf(out, "<span><i class=\"k%" PRId32 "\"></i><b>%s</b></span>", color_of[k], hec_memory_name[k]);
  hec_text_add(out, "</div>\n");
}

/* How far a scale goes: to the limit, unless next to it there would be nothing to see of what is held. */
static double top_of(double held, double limit) {
  return limit > held && limit < 3 * held ? limit : held;
}

typedef struct {
  const char *name;
  double bytes;
} unit;

static unit unit_of(double top, bool binary) {
  static const unit units[2][2] = {{{"MB", 1e6}, {"GB", 1e9}}, {{"MiB", 1048576}, {"GiB", 1073741824}}};
  return units[binary][top >= units[binary][1].bytes];
}

static void add_bar(const hec_report *report, int32_t index, double top, hec_text *out) {
  const hec_summary_row *row = &report->summary->rows[index];
  const hec_page_item item = hec_chart_item(report, index);
  double limit = hec_summary_memory(report->summary), sum = 0;
  int64_t x = 0;
  hec_text_printf(out, "<div class=\"bar%s\"><span class=\"n\">", index == report->best ? " best" : "");
  hec_page_name(&item, out);
  hec_text_printf(out,
                  "%s</span><svg viewBox=\"0 0 %d 18\" preserveAspectRatio=\"none\" role=\"img\" data-kind=\"bars\" "
                  "aria-label=\"",
                  hec_summary_fits(report->summary, row) ? "" : " <span class=\"tag warn\">does not fit</span>", BAR);
  hec_page_add(row->label, out);
  hec_text_printf(out, ": %s\">", hec_bytes(row->peak_bytes).text);
  for (int32_t k = 0; k < HEC_N_MEMORY; k++) {
    sum += row->peak_class[k];
    int64_t end = hec_round(BAR * sum / top);
    if (end > x)
      hec_text_printf(out,
                      "<rect class=\"f k%" PRId32 "\" x=\"%" PRId64 "\" width=\"%" PRId64
                      "\" height=\"18\"><title>%s %s</title></rect>",
                      color_of[k], x, end - x, hec_memory_name[k], hec_bytes(row->peak_class[k]).text);
    x = end;
  }
  int64_t at = hec_round(BAR * limit / top);
  if (limit <= top)
    hec_text_printf(out, "<path class=\"limit\" d=\"M%" PRId64 " 0v18\"/>", at < BAR ? at : BAR - 10);
  hec_text_printf(out, "</svg><span class=\"v\">%s <span class=\"dim\">%s</span></span></div>\n",
                  hec_bytes(row->peak_bytes).text,
                  row->peak_bytes < 0.001 * limit ? "under 0.1 %" : hec_percent(row->peak_bytes / limit).text);
}

static void add_axis(double top, bool limit, hec_text *out) {
  hec_text_printf(out, "<div class=\"bar axis\"><span class=\"n\">%s</span>", limit ? "dashed: the limit" : "");
  hec_plot_x_axis(0, top / unit_of(top, false).bytes, 5, out);
  hec_text_printf(out, "<span class=\"v\">%s; share of the limit</span></div>\n", unit_of(top, false).name);
}

static void add_bars(const hec_report *report, const int32_t *rows, int32_t n, hec_text *out) {
  double held = 0, limit = hec_summary_memory(report->summary);
  for (int32_t i = 0; i < n; i++)
    held = report->summary->rows[rows[i]].peak_bytes > held ? report->summary->rows[rows[i]].peak_bytes : held;
  double top = top_of(held, limit);
  if (!(top > 0))
    return;
  for (int32_t i = 0; i < n; i++)
    add_bar(report, rows[i], top, out);
  add_axis(top, limit <= top, out);
}

static void add_peaks(const hec_report *report, hec_text *out) {
  int32_t *rows = hec_malloc((size_t)report->summary->n_rows, sizeof *rows), n = hec_chart_rows(report, false, rows);
  hec_text_add(out, "<h3>Peak against the limit</h3>\n");
  add_bars(report, rows, n, out);
  n = hec_chart_rows(report, true, rows);
  if (n > 0) {
    hec_chart_fold(n, out);
    add_bars(report, rows, n, out);
    hec_text_add(out, "</details>\n");
  }
  free(rows);
}

/* ---- Over time ---- */

/* The outline of everything up to class `k`, as steps; down again along what is below it. */
static void add_area(const hec_report_iteration *it, int32_t k, double top, hec_text *out) {
  int64_t low[WIDTH], high[WIDTH];
  bool some = false;
  for (int32_t m = 0; m < WIDTH; m++) {
    double below = 0;
    for (int32_t i = 0; i < k; i++)
      below += it->memory[i * WIDTH + m];
    low[m] = hec_round(HEIGHT * (1 - below / top));
    high[m] = hec_round(HEIGHT * (1 - (below + it->memory[k * WIDTH + m]) / top));
    some = some || low[m] != high[m];
  }
  if (!some)
    return;
  hec_text_printf(out, "<path class=\"f k%" PRId32 "\" d=\"M0 %" PRId64, color_of[k], high[0]);
  for (int32_t m = 0, from = 0; m < WIDTH; m++)
    if (m + 1 == WIDTH || high[m + 1] != high[m]) {
      hec_text_printf(out, "h%" PRId32, m + 1 - from);
      from = m + 1;
      hec_text_printf(out, "V%" PRId64, m + 1 < WIDTH ? high[m + 1] : low[m]);
    }
  for (int32_t m = WIDTH - 1, from = WIDTH; m >= 0; m--)
    if (m == 0 || low[m - 1] != low[m]) {
      hec_text_printf(out, "h-%" PRId32, from - m);
      from = m;
      if (m > 0)
        hec_text_printf(out, "V%" PRId64, low[m - 1]);
    }
  hec_text_add(out, "z\"/>\n");
}

static void add_shapes(const hec_memory_panel *p, double unit_bytes, const hec_axis *axis, const hec_plot *plot,
                       hec_text *out) {
  double top = unit_bytes * axis->high;
  hec_plot_grid(axis, plot, out);
  for (int32_t k = 0; k < HEC_N_MEMORY; k++)
    add_area(p->it, k, top, out);
  if (p->limit <= top)
    hec_text_printf(out, "<path class=\"limit\" d=\"M0 %" PRId64 "h%d\"/>\n", hec_round(HEIGHT * (1 - p->limit / top)),
                    WIDTH);
}

void hec_memory_panel_draw(const hec_memory_panel *p, hec_text *out) {
  const hec_report_iteration *it = p->it;
  double limit = p->limit, top = top_of(it->fullest_bytes, limit);
  unit in = unit_of(top, p->binary);
  hec_number (*bytes)(double) = p->binary ? hec_bytes_binary : hec_bytes;
  hec_axis axis = hec_axis_of(0, (top > 0 ? top : 1) / in.bytes, 4);
  const hec_plot plot = {
      .kind = "area", .label = p->what, .width = WIDTH, .height = HEIGHT, .px = 170, .gutter = 44, .crisp = true};
  hec_page_panel(p->chart, &p->item, p->open, out);
  hec_chart_note(out);
  hec_text_printf(out, "%s: %s at %s; the limit of %s is %s.", p->who, bytes(it->fullest_bytes).text,
                  hec_seconds(it->fullest_s).text, bytes(limit).text,
                  limit <= in.bytes * axis.high ? "dashed" : "above the picture");
  hec_chart_said(out);
  hec_text_printf(out, "<p class=\"unit y\">%s</p>\n", in.name);
  hec_plot_begin(&plot, out);
  hec_text_printf(out, " data-w=\"%d\" data-h=\"%d\" data-unit=\"%s\" data-end=\"%s\" data-digits=\"3\" data-names=\"",
                  WIDTH, HEC_N_MEMORY, p->binary ? "iB" : "B", hec_fixed(1e3 * it->end_s, 6).text);
  for (int32_t k = 0; k < HEC_N_MEMORY; k++)
    hec_text_printf(out, "%s%s", k ? "|" : "", hec_memory_name[k]);
  hec_text_add(out, "\"");
  hec_plot_values(it->memory, HEC_N_MEMORY * WIDTH, out);
  hec_plot_body(out);
  add_shapes(p, in.bytes, &axis, &plot, out);
  hec_plot_shapes_end(out);
  hec_plot_y_axis(&axis, out);
  hec_plot_x_axis(0, 1e3 * it->end_s, 6, out);
  hec_plot_end(p->unit, out);
  hec_text_add(out, "</details>\n");
}

static void add_panel(const hec_report *report, int32_t row, hec_text *out) {
  const hec_report_iteration *it = &report->iterations[row];
  const char *name = report->summary->rows[row].label;
  HEC_SCOPED(hec_text) what = {0}, who = {0};
  hec_text_printf(&what, "Bytes that rank %" PRId32 " holds over an iteration under %s", it->fullest, name);
  hec_text_printf(&who, "Rank %" PRId32 ", iteration %" PRId64, it->fullest, it->iter);
  hec_memory_panel_draw(&(hec_memory_panel){.chart = "memory",
                                            .item = hec_chart_item(report, row),
                                            .what = what.data,
                                            .who = who.data,
                                            .unit = "ms of the iteration",
                                            .open = hec_chart_opens(report, row),
                                            .limit = hec_summary_memory(report->summary),
                                            .it = it},
                        out);
}

static void draw(const hec_report *report, hec_text *out) {
  say(report, out);
  hec_memory_keys(out);
  add_peaks(report, out);
  hec_text_add(out, "<h3>Over one iteration</h3>\n");
  hec_chart_chips(report, "memory", false, out);
  hec_text_add(out, "<div class=\"panels\">\n");
  for (int32_t k = 0; k < report->summary->n_rows; k++)
    if (report->iterations[report->order[k]].there && hec_chart_draws(report, report->order[k]))
      add_panel(report, report->order[k], out);
  hec_text_add(out, "</div>\n");
}

const hec_chart hec_chart_memory = {"memory", "Memory against the limit", hec_chart_has_iterations, draw};
