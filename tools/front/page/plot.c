/* Plots: frame, axes, cells. See page.h. */
#include "tools/front/page/page.h"

#include <inttypes.h>
#include <string.h>

hec_axis hec_axis_of(double low, double high, int32_t about) {
  double range = high - low, wanted = range > 0 ? range / about : 1, power = 1;
  while (power * 10 <= wanted)
    power *= 10;
  while (power > wanted && power > 1e-12)
    power /= 10;
  double over = wanted / power, step = power * (over < 1.5 ? 1 : over < 3.5 ? 2 : over < 7.5 ? 5 : 10);
  hec_axis axis = {.step = step, .low = (double)(int64_t)(low / step) * step};
  if (axis.low > low)
    axis.low -= step;
  axis.high = axis.low + step;
  while (axis.high < high - 1e-9 * step)
    axis.high += step;
  return axis;
}

void hec_plot_begin(const hec_plot *plot, hec_text *out) {
  hec_text_printf(out, "<div class=\"plot\" style=\"--h:%" PRId32 "px", plot->px);
  if (plot->gutter > 0)
    hec_text_printf(out, ";--g:%" PRId32 "px", plot->gutter);
  hec_text_printf(out,
                  "\">\n<svg viewBox=\"0 0 %" PRId32 " %" PRId32
                  "\" preserveAspectRatio=\"none\" role=\"img\" tabindex=\"0\" "
                  "data-kind=\"%s\"%s aria-label=\"",
                  plot->width, plot->height, plot->kind, plot->crisp ? " class=\"crisp\"" : "");
  hec_page_add(plot->label, out);
  hec_text_add(out, "\"");
}

void hec_plot_body(hec_text *out) {
  hec_text_add(out, ">\n");
}

void hec_plot_shapes_end(hec_text *out) {
  hec_text_add(out, "</svg>\n");
}

void hec_plot_end(const char *unit, hec_text *out) {
  hec_text_add(out, "<p class=\"unit\">");
  hec_page_add(unit, out);
  hec_text_add(out, "</p>\n</div>\n");
}

void hec_plot_y_begin(bool names, hec_text *out) {
  hec_text_printf(out, "<div class=\"ys%s\" aria-hidden=\"true\">", names ? " names" : "");
}

void hec_plot_y_label(double share, const char *label, hec_text *out) {
  hec_text_printf(out, "<span style=\"top:%s%%\">", hec_fixed(100 * (1 - share), 1).text);
  hec_page_add(label, out);
  hec_text_add(out, "</span>");
}

void hec_plot_y_name(double share, const hec_page_item *item, hec_text *out) {
  hec_text_printf(out, "<span style=\"top:%s%%\">", hec_fixed(100 * (1 - share), 1).text);
  hec_page_name(item, out);
  hec_text_add(out, "</span>");
}

void hec_plot_labels_end(hec_text *out) {
  hec_text_add(out, "</div>\n");
}

static int32_t steps_of(const hec_axis *axis) {
  return (int32_t)hec_round((axis->high - axis->low) / axis->step);
}

void hec_plot_y_axis(const hec_axis *axis, hec_text *out) {
  int32_t n = steps_of(axis);
  hec_plot_y_begin(false, out);
  for (int32_t i = 0; i <= n; i++)
    hec_plot_y_label((double)i / n, hec_fixed(axis->low + i * axis->step, hec_decimals(axis->step)).text, out);
  hec_plot_labels_end(out);
}

void hec_plot_grid(const hec_axis *axis, const hec_plot *plot, hec_text *out) {
  int32_t n = steps_of(axis);
  hec_text_add(out, "<path class=\"grid\" d=\"");
  for (int32_t i = 1; i < n; i++)
    hec_text_printf(out, "M0 %" PRId64 "h%" PRId32, hec_round((double)plot->height * (n - i) / n), plot->width);
  hec_text_add(out, "\"/>\n");
}

void hec_plot_x_begin(hec_text *out) {
  hec_text_add(out, "<div class=\"xs\" aria-hidden=\"true\">");
}

void hec_plot_x_label(double share, const char *label, hec_text *out) {
  hec_text_printf(out, "<span%s style=\"left:%s%%\">",
                  share < 0.02   ? " class=\"first\""
                  : share > 0.98 ? " class=\"last\""
                                 : "",
                  hec_fixed(100 * share, 2).text);
  hec_page_add(label, out);
  hec_text_add(out, "</span>");
}

void hec_plot_x_axis(double low, double high, int32_t about, hec_text *out) {
  hec_axis axis = hec_axis_of(low, high, about);
  int32_t n = steps_of(&axis);
  hec_plot_x_begin(out);
  for (int32_t i = 0; i <= n; i++) {
    double at = axis.low + i * axis.step, share = high > low ? (at - low) / (high - low) : 0;
    if (share > -1e-9 && share < 1 + 1e-9)
      hec_plot_x_label(share, hec_fixed(at, hec_decimals(axis.step)).text, out);
  }
  hec_plot_labels_end(out);
}

/* A run of equal cells is one horizontal stroke as thick as a row. */
static void add_class(const uint8_t *class_of, int32_t rows, int32_t columns, int class, hec_text *out) {
  bool some = false;
  for (int32_t y = 0; y < rows; y++) {
    int32_t pen = -1; /* where the pen is in this row; -1: elsewhere */
    for (int32_t x = 0; x < columns;) {
      int32_t from = x;
      while (x < columns && class_of[y * columns + x] == class)
        x++;
      if (x == from) {
        x++;
        continue;
      }
      if (!some)
        hec_text_printf(out, "<path class=\"s h%d\" d=\"", class);
      some = true;
      if (pen < 0)
        hec_text_printf(out, "M%" PRId32 " %" PRId32, from, y);
      else
        hec_text_printf(out, "m%" PRId32 " 0", from - pen);
      hec_text_printf(out, "h%" PRId32, x - from);
      pen = x;
    }
  }
  if (some)
    hec_text_add(out, "\"/>\n");
}

void hec_plot_cells(const uint8_t *class_of, int32_t rows, int32_t columns, hec_text *out) {
  hec_text_add(out, "<g transform=\"translate(0 .5)\">\n"); /* strokes in the middle of their rows */
  for (int class = 0; class <= 8; class ++)
    add_class(class_of, rows, columns, class, out);
  hec_text_add(out, "</g>\n");
}

void hec_plot_values(const double *value, size_t n, hec_text *out) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  double max = 0;
  for (size_t i = 0; i < n; i++)
    max = value[i] > max ? value[i] : max;
  double scale = max > 0 ? max / 262143 : 1;
  hec_text_add(out, " data-scale=\"");
  hec_text_add_double(out, scale);
  hec_text_add(out, "\" data-v=\"");
  for (size_t i = 0; i < n; i++) {
    int64_t steps = hec_round(value[i] / scale);
    char three[3] = {letters[steps >> 12 & 63], letters[steps >> 6 & 63], letters[steps & 63]};
    hec_text_add_bytes(out, three, 3);
  }
  hec_text_add(out, "\"");
}

void hec_plot_classes(const hec_number *from, int32_t n, const char *unit, hec_text *out) {
  hec_text_add(out, "<div class=\"keys\"><span>");
  hec_page_add(unit, out);
  hec_text_add(out, ", from:</span>");
  for (int32_t i = 0; i < n; i++)
    hec_text_printf(out, "<span><i class=\"h%" PRId32 "\"></i>%s</span>", i, from[i].text);
  hec_text_add(out, "</div>\n");
}
