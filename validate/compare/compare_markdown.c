/* A comparison as Markdown, for validate/results/. */
#include "validate/session_report.h"

#include <inttypes.h>
#include <math.h>

static void add_cell(hec_text *out, double share, bool sign) {
  hec_text_add(out, " ");
  hec_report_add_percent(out, 0, share, sign);
  hec_text_add(out, " |");
}

static void add_head(const hec_session_report *r, hec_text *out) {
  hec_text_add(out, "# Predicted against measured\n\n");
  if (r->stamp)
    hec_text_printf(out, "%s\n\n", r->stamp);
  if (r->command)
    hec_text_printf(out, "`%s`\n\n", r->command);
  hec_report_add_verdict(r, out);
  hec_text_add(out, "\n```\n");
  hec_summary_execution_place(r->head, out);
  hec_text_printf(out, "seed     %" PRIu64 "; ", r->session->options.seed);
  hec_report_add_rounds(r, out);
  hec_text_add(out, "\nlaws     calibrated ");
  hec_report_add_source(r, out);
  hec_text_add(out, "\n");
  hec_summary_execution_mind(r->head, out);
  hec_text_add(out, "disturbed ");
  hec_report_add_disturbed(r, out);
  hec_text_add(out, "\npace     ");
  hec_report_add_pace(r, out);
  hec_text_add(out, "\n```\n\n");
}

static void add_cases(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = &r->session->comparison;
  hec_text_printf(out,
                  "## Iterations\n\nMedians over the iterations, ms. A measurement is the median over the least "
                  "disturbed of its rounds, lost time taken out, at one pace; error: |predicted / measured - 1| of the "
                  "iteration's time; interval: 95 %% by resampling, of the median error.\n\n"
                  "| %s | schedule | predicted | measured | bias | error: median | p90 | worst | interval |\n"
                  "|---|---|---|---|---|---|---|---|---|\n",
                  r->random ? "configuration" : "policy");
  for (int32_t i = 0; i < c->options.n_cases; i++) {
    const hec_compared_case *one = &c->by_case[i];
    bool known = one->n_conclusive > 0;
    const double errors[] = {one->error.bias, one->error.median, one->error.p90, one->error.worst};
    hec_text_printf(out, "| %s | %s | ", one->a_case->name, hec_report_schedule(one->a_case));
    if (known)
      hec_text_printf(out, "%.3f | %.3f |", 1e3 * one->predicted_s, 1e3 * one->measured_s);
    else
      hec_text_add(out, "- | - |");
    for (int k = 0; k < 4; k++)
      add_cell(out, known ? errors[k] : NAN, k == 0);
    hec_text_add(out, " ");
    hec_report_add_interval(out, known ? one->range.median : (hec_interval){NAN, NAN});
    hec_text_add(out, " |\n");
  }
  const double all[] = {c->error.bias, c->error.median, c->error.p90, c->error.worst};
  hec_text_add(out, "| **all** | | | |");
  for (int k = 0; k < 4; k++)
    add_cell(out, c->n_conclusive > 0 ? all[k] : NAN, k == 0);
  hec_text_add(out, " ");
  hec_report_add_interval(out, c->range.median);
  hec_text_add(out, " |\n\n");
  if (hec_report_add_ranking(r, "Ranking of the ", "; ", out))
    hec_text_add(out, ".\n\n");
}

static void add_kinds(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = &r->session->comparison;
  hec_text_printf(out,
                  "## Operations\n\nms of an iteration, mean over ranks and iterations, without waiting for other "
                  "ranks.\n\n| %s | operation | predicted | measured | error |\n|---|---|---|---|---|\n",
                  r->random ? "" : "policy");
  int32_t n = r->random ? 1 : c->options.n_cases;
  for (int32_t i = 0; i < n; i++) {
    hec_report_kinds kinds = hec_report_kinds_of(c, i, r->random ? c->options.n_cases : i + 1);
    const char *name = r->random ? "all configurations" : c->options.cases[i].name;
    for (int32_t k = 0; k < HEC_N_ROLES; k++) {
      if (!(kinds.predicted_s[k] > 0) && !(kinds.measured_s[k] > 0))
        continue;
      hec_text_printf(out, "| %s | %s | %.3f | %.3f |", name, hec_role_name[k], 1e3 * kinds.predicted_s[k],
                      1e3 * kinds.measured_s[k]);
      add_cell(out, kinds.measured_s[k] > 0 ? kinds.predicted_s[k] / kinds.measured_s[k] - 1 : NAN, true);
      hec_text_add(out, "\n");
      name = "";
    }
  }
  hec_text_add(out, "\n");
}

static void add_controls(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = &r->session->comparison;
  if (c->n_conclusive == 0)
    return;
  hec_text_printf(out,
                  "## Negative controls\n\nLaws broken on purpose. Of the iterations whose prediction one changes by "
                  "%g %% or more: with a law broken, the median error must be larger than the 90th percentile of the "
                  "errors with the real law, %.1f %%.\n\n"
                  "| control | what it breaks | iterations | median error | told apart |\n|---|---|---|---|---|\n",
                  100 * HEC_CONTROL_TERM, 100 * hec_report_claimed(c));
  for (int32_t i = 0; i < c->n_controls; i++) {
    const hec_compared_control *one = &c->controls[i];
    hec_control_verdict verdict = hec_report_control(c, i);
    hec_text_printf(out, "| %s | %s | %" PRId32 " |", one->control->name, one->control->summary, one->n);
    add_cell(out, one->n > 0 ? one->error.median : NAN, false);
    hec_text_printf(out, " %s |\n",
                    verdict == HEC_CONTROL_NOT_TRIED ? (one->n > 0 ? "too few" : "not tried")
                    : verdict == HEC_CONTROL_MISSES  ? "yes"
                                                     : "**no**");
  }
  hec_text_add(out, "\n");
}

void hec_compare_markdown(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = &r->session->comparison;
  add_head(r, out);
  add_cases(r, out);
  add_kinds(r, out);
  add_controls(r, out);
  hec_text_add(out, "## Fitted on\n\n");
  for (int32_t i = 0; i < hec_report_fitted(r); i++) {
    hec_text_add(out, "- ");
    hec_text_add_plain(out, hec_report_fitted_name(r, i));
    hec_text_add(out, "\n");
  }
  hec_text_add(out, "\n## Predicted\n\n");
  for (int32_t i = 0; i < c->options.n_cases; i++)
    hec_text_printf(out, "- %s\n", c->options.cases[i].name);
}
