/* A comparison for the terminal: iterations, where their time goes, negative controls, what was fitted on what, verdict.
 * Milliseconds and per cent; at most about 110 columns. */
#include "validate/session_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_LEAST 0.01 /* of an iteration: kinds of operations that take less are summed up */

static const hec_comparison *of(const hec_session_report *r) {
  return &r->session->comparison;
}

static void add_head(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = of(r);
  const hec_job *job = r->head->job;
  hec_text_printf(out, "%s: ", r->head->tool);
  if (r->random)
    hec_text_printf(out, "%" PRId32 " random configurations", c->options.n_cases);
  else {
    hec_text_add_plain(out, job->header.name[0] ? job->header.name : r->head->trace);
    hec_text_printf(out, "%s, %" PRId32 " polic%s", job->header.synthetic ? " (synthetic)" : "", c->options.n_cases,
                    c->options.n_cases == 1 ? "y" : "ies");
  }
  hec_text_printf(out, ", %" PRId32 " iterations: ", c->n_points);
  hec_report_add_rounds(r, out);
  hec_text_add(out, "\n");
  hec_summary_execution_place(r->head, out);
  hec_text_add(out, "laws     calibrated ");
  hec_report_add_source(r, out);
  hec_text_add(out, "\n");
  hec_summary_execution_mind(r->head, out);
}

static int name_width(const hec_comparison *c) {
  int width = 20;
  for (int32_t i = 0; i < c->options.n_cases; i++)
    width = (int)strlen(c->options.cases[i].name) > width ? (int)strlen(c->options.cases[i].name) : width;
  return width;
}

/* Median over a case's conclusive points; NAN without. */
static double spread_of(const hec_comparison *c, int32_t a_case) {
  double spread[64];
  int32_t n = 0;
  for (int32_t i = c->point_at[a_case]; i < c->point_at[a_case + 1] && n < 64; i++)
    if (c->points[i].conclusive && c->points[i].n_clean > 1)
      spread[n++] = c->points[i].spread;
  return n > 0 ? hec_median(spread, n) : NAN;
}

/* Whether every case is a single iteration, whose error is all there is to say. */
static bool single(const hec_comparison *c) {
  return c->n_points == c->options.n_cases;
}

static int schedule_width(const hec_comparison *c) {
  int width = 8;
  for (int32_t i = 0; i < c->options.n_cases; i++) {
    int length = (int)strlen(hec_report_schedule(c->by_case[i].a_case));
    width = length > width ? length : width;
  }
  return width;
}

static void add_case(const hec_comparison *c, int32_t index, int width, hec_text *out) {
  const hec_compared_case *one = &c->by_case[index];
  const double errors[] = {one->error.bias, one->error.median, one->error.p90, one->error.worst};
  hec_text_printf(out, "%-*s %-*s ", width, one->a_case->name, schedule_width(c), hec_report_schedule(one->a_case));
  if (one->n_conclusive == 0) {
    hec_text_add(out, " not executed: the time was over\n");
    return;
  }
  hec_text_printf(out, " %10.3f%10.3f ", 1e3 * one->predicted_s, 1e3 * one->measured_s);
  for (int k = 0; k < (single(c) ? 1 : 4); k++)
    hec_report_add_percent(out, 9, errors[k], k == 0);
  hec_report_add_percent(out, 9, spread_of(c, index), false);
  hec_text_add(out, "  ");
  hec_report_add_interval(out, single(c) ? one->range.bias : one->range.median);
  if (one->n_conclusive < one->n_points)
    hec_text_printf(out, " %" PRId32 " of %" PRId32 " iterations", one->n_conclusive, one->n_points);
  hec_text_add(out, "\n");
}

static void add_cases(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = of(r);
  int width = name_width(c), schedule = schedule_width(c);
  const char *first = r->random ? "configuration" : "policy";
  if (single(c)) {
    hec_text_printf(out, "\n%-*s %-*s  %20s\n%-*s %-*s  %10s%10s  %8s %8s  %s\n", width, "", schedule, "",
                    "iteration, ms", width, first, schedule, "schedule", "predicted", "measured", "error", "spread",
                    "95 % interval");
  } else {
    hec_text_printf(out, "\n%-*s %-*s  %20s  %35s\n", width, "", schedule, "", "iteration, ms", "error of iterations");
    hec_text_printf(out, "%-*s %-*s  %10s%10s  %8s %8s %8s %8s %8s  %s\n", width, first, schedule, "schedule",
                    "predicted", "measured", "bias", "median", "p90", "worst", "spread", "95 % interval");
  }
  for (int32_t i = 0; i < c->options.n_cases; i++)
    add_case(c, i, width, out);
  if (!single(c))
    hec_text_add(out, "predicted, measured: medians over the iterations; error: |predicted / measured - 1| of each\n"
                      "iteration's time, bias: its median with the sign; interval: of the median error\n");
  else
    hec_text_add(out, "error: predicted / measured - 1 of the iteration's time, with its interval\n");
  hec_text_add(out,
               "the measurement of an iteration is the median over its rounds, lost time taken out, at one pace, of\n"
               "the least disturbed ones; spread: their middle half over it\n");
}

static void add_kind(hec_text *out, int width, const char *name, double predicted_s, double measured_s) {
  hec_text_printf(out, "  %-*s  %10.3f%10.3f ", width + 7, name, 1e3 * predicted_s, 1e3 * measured_s);
  hec_report_add_percent(out, 9, measured_s > 0 ? predicted_s / measured_s - 1 : NAN, true);
  hec_text_add(out, "\n");
}

static void add_kinds(const hec_report_kinds *kinds, double iteration_s, int width, hec_text *out) {
  double small[2] = {0, 0};
  int32_t n_small = 0;
  for (int32_t i = 0; i < HEC_N_ROLES; i++) {
    if (!(kinds->predicted_s[i] > 0) && !(kinds->measured_s[i] > 0))
      continue;
    if (fmax(kinds->predicted_s[i], kinds->measured_s[i]) >= SHOWN_LEAST * iteration_s) {
      add_kind(out, width, hec_role_name[i], kinds->predicted_s[i], kinds->measured_s[i]);
      continue;
    }
    n_small++;
    small[0] += kinds->predicted_s[i];
    small[1] += kinds->measured_s[i];
  }
  char name[32];
  (void)snprintf(name, sizeof name, "%" PRId32 " smaller kind%s", n_small, n_small == 1 ? "" : "s");
  if (n_small > 0)
    add_kind(out, width, name, small[0], small[1]);
}

static void add_operations(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = of(r);
  int width = name_width(c), n = r->random ? 1 : c->options.n_cases;
  hec_text_printf(out, "\n%-*s  %10s%10s %9s\n", width + 9, "operations, ms of an iteration", "predicted", "measured",
                  "error");
  for (int32_t i = 0; i < n; i++) {
    int32_t last = r->random ? c->options.n_cases : i + 1;
    hec_report_kinds kinds = hec_report_kinds_of(c, i, last);
    double iteration_s = 0;
    for (int32_t k = c->point_at[i]; k < c->point_at[last]; k++)
      iteration_s += c->points[k].conclusive ? c->points[k].measured_s / kinds.n : 0;
    if (kinds.n == 0)
      continue;
    hec_text_printf(out, "%s\n", r->random ? "mean over all configurations" : c->options.cases[i].name);
    add_kinds(&kinds, iteration_s, width, out);
  }
  hec_text_add(out, "mean over ranks and iterations, without waiting for other ranks, so they add up to no iteration; "
                    "below 1 % of an\niteration: summed up\n");
}

static void add_controls(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = of(r);
  if (c->n_conclusive == 0)
    return;
  hec_text_printf(
      out,
      "\nnegative controls: laws broken on purpose. Of the iterations whose prediction one changes by %g %% or "
      "more:\nwith a law broken, the median error must be larger than the 90th percentile of the errors "
      "with the real law, %.1f %%\n",
      100 * HEC_CONTROL_TERM, 100 * hec_report_claimed(c));
  hec_text_printf(out, "%-14s %10s %13s  told apart\n", "control", "iterations", "median error");
  for (int32_t i = 0; i < c->n_controls; i++) {
    const hec_compared_control *one = &c->controls[i];
    hec_control_verdict verdict = hec_report_control(c, i);
    hec_text_printf(out, "%-14s %10" PRId32, one->control->name, one->n);
    hec_report_add_percent(out, 14, one->n > 0 ? one->error.median : NAN, false);
    hec_text_printf(out, "  %-11s %s\n",
                    verdict == HEC_CONTROL_NOT_TRIED ? (one->n > 0 ? "too few" : "not tried")
                    : verdict == HEC_CONTROL_MISSES  ? "yes"
                                                     : "NO",
                    one->control->summary);
  }
}

static void add_lists(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = of(r);
  hec_text_add(out, "\nfitted on  ");
  for (int32_t i = 0; i < hec_report_fitted(r); i++) {
    hec_text_add(out, i ? "           " : "");
    hec_text_add_plain(out, hec_report_fitted_name(r, i));
    hec_text_add(out, "\n");
  }
  hec_text_add(out, hec_report_fitted(r) == 0 ? "cases that the file does not list\n" : "");
  if (r->random)
    hec_text_printf(out, "predicted  the %" PRId32 " configurations above", c->options.n_cases);
  else
    hec_text_printf(out,
                    "predicted  the %" PRId32 " polic%s above on iterations %" PRId64 " to %" PRId64 " of the trace",
                    c->options.n_cases, c->options.n_cases == 1 ? "y" : "ies", c->points[0].iter,
                    c->points[c->point_at[1] - 1].iter);
  hec_text_add(out, "; no case is in both, all errors are of these\ndisturbed  ");
  hec_report_add_disturbed(r, out);
  hec_text_add(out, "\npace       ");
  hec_report_add_pace(r, out);
  hec_text_add(out, "\n");
}

void hec_compare_text(const hec_session_report *r, hec_text *out) {
  add_head(r, out);
  add_cases(r, out);
  add_operations(r, out);
  add_controls(r, out);
  add_lists(r, out);
  if (hec_report_add_ranking(r, "ranking    ", "\n           ", out))
    hec_text_add(out, "\n");
  hec_text_add(out, "\n");
  hec_report_add_verdict(r, out);
}
