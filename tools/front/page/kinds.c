/* Predicted against measured: of every policy the iteration, then of every policy its kinds of operations. A bar is
 * what was measured, the mark is what was predicted: it stands in or behind the bar by the error. */
#include "tools/front/page/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { WIDTH = 10000 };
#define SHOWN_MIN 0.01 /* of the largest kind: smaller ones are not named in the sentence */

static double max_of(const hec_report_pair *pair, int32_t n) {
  double max = 0;
  for (int32_t i = 0; i < n; i++) {
    max = isfinite(pair[i].measured_s) && pair[i].measured_s > max ? pair[i].measured_s : max;
    max = isfinite(pair[i].predicted_s) && pair[i].predicted_s > max ? pair[i].predicted_s : max;
  }
  return max > 0 ? max : 1;
}

static void add_error(double error, hec_text *out) {
  if (isfinite(error))
    hec_text_printf(out, "%s%s", error > 0 ? "+" : "", hec_percent(error).text);
  else
    hec_text_add(out, "-");
}

static void add_bar(const hec_report_pair *pair, double max, hec_text *out) {
  hec_text_add(out, "<div class=\"bar\"><span class=\"n\">");
  hec_page_add(pair->name, out);
  hec_text_printf(out,
                  "</span><svg viewBox=\"0 0 %d 18\" preserveAspectRatio=\"none\" role=\"img\" data-kind=\"bars\" "
                  "aria-label=\"",
                  WIDTH);
  hec_page_add(pair->name, out);
  hec_text_printf(out, ": predicted %s, measured %s\">", hec_seconds(pair->predicted_s).text,
                  hec_seconds(pair->measured_s).text);
  if (pair->measured_s > 0 && isfinite(pair->measured_s))
    hec_text_printf(
        out, "<rect class=\"f k0\" width=\"%" PRId64 "\" height=\"18\"><title>measured %s, predicted %s</title></rect>",
        hec_round(WIDTH * pair->measured_s / max), hec_seconds(pair->measured_s).text,
        hec_seconds(pair->predicted_s).text);
  if (pair->predicted_s > 0 && isfinite(pair->predicted_s)) {
    int64_t at = hec_round(WIDTH * pair->predicted_s / max);
    hec_text_printf(out, "<path class=\"halo\" d=\"M%" PRId64 " 0v18\"/><path class=\"mark\" d=\"M%" PRId64 " 0v18\"/>",
                    at, at);
  }
  hec_text_printf(out, "</svg><span class=\"v\">%s <span class=\"dim\">",
                  isfinite(pair->measured_s) ? hec_seconds(pair->measured_s).text : "inconclusive");
  add_error(pair->error, out);
  hec_text_add(out, "</span></span></div>\n");
}

static void add_axis(double max, hec_text *out) {
  hec_text_add(out, "<div class=\"bar axis\"><span class=\"n\"></span>");
  hec_plot_x_axis(0, 1e3 * max, 5, out);
  hec_text_add(out, "<span class=\"v\">ms measured; error</span></div>\n");
}

static void add_bars(const hec_report_pair *pair, int32_t n, hec_text *out) {
  double max = max_of(pair, n);
  add_axis(max, out);
  for (int32_t i = 0; i < n; i++)
    add_bar(&pair[i], max, out);
}

/* The kind that is furthest off of those that matter, over all policies. */
static void say(const hec_report_compared *c, hec_text *out) {
  const hec_report_pair *worst = NULL;
  const char *who = NULL;
  for (int32_t p = 0; p < c->n_policies; p++) {
    double max = max_of(c->policies[p].kinds, c->policies[p].n_kinds);
    for (int32_t k = 0; k < c->policies[p].n_kinds; k++) {
      const hec_report_pair *one = &c->policies[p].kinds[k];
      if (one->measured_s < SHOWN_MIN * max || !isfinite(one->error) ||
          (worst && fabs(one->error) <= fabs(worst->error)))
        continue;
      worst = one;
      who = c->policies[p].policy;
    }
  }
  hec_chart_says(out);
  if (isfinite(c->error))
    hec_text_printf(out, "Half of the iterations are predicted within %s. ", hec_percent(c->error).text);
  if (worst) {
    hec_text_add(out, "Furthest off of the larger kinds is ");
    hec_page_add(worst->name, out);
    hec_text_add(out, " under ");
    hec_page_add(who, out);
    hec_text_add(out, ": ");
    add_error(worst->error, out);
    hec_text_printf(out, " of %s measured.", hec_seconds(worst->measured_s).text);
  } else if (!isfinite(c->error)) {
    hec_text_add(out, "Nothing can be said: every measurement was disturbed.");
  }
  hec_chart_said(out);
  hec_chart_note(out);
  hec_text_add(out,
               "Milliseconds; bars are measured, upright marks predicted, the percentage is predicted / measured - 1. "
               "Iterations: medians over those that count, beside them the bias: the median of each one's error. "
               "Kinds: mean over ranks and iterations, without waiting for other "
               "ranks, so they add up to no iteration.");
  hec_chart_said(out);
}

static void draw(const hec_report *report, hec_text *out) {
  const hec_report_compared *c = report->compared;
  say(c, out);
  hec_text_add(out, "<h3>Iterations</h3>\n");
  add_bars(c->iterations, c->n, out);
  hec_text_add(out, "<h3>Kinds of operations</h3>\n");
  if (c->n_policies > 1) {
    hec_page_chips("kinds", out);
    for (int32_t p = 0; p < c->n_policies; p++)
      hec_page_chip("kinds", &(hec_page_item){p, c->policies[p].policy, NULL}, NULL, p < 2, out);
    hec_page_chips_end(out);
  }
  hec_text_add(out, "<div class=\"panels wide\">\n");
  for (int32_t p = 0; p < c->n_policies; p++) {
    hec_page_panel("kinds", &(hec_page_item){p, c->policies[p].policy, NULL}, p < 2, out);
    add_bars(c->policies[p].kinds, c->policies[p].n_kinds, out);
    hec_text_add(out, "</details>\n");
  }
  hec_text_add(out, "</div>\n");
}

static bool applies(const hec_report *report) {
  return report->compared != NULL;
}

const hec_chart hec_chart_kinds = {"kinds", "Predicted against measured", applies, draw};
