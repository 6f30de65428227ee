/* What the forms of the report share: sums over points, verdicts, sentences. */
#include "tools/validate/session_report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

hec_report_kinds hec_report_kinds_of(const hec_comparison *c, int32_t first, int32_t last) {
  hec_report_kinds kinds = {.n = 0};
  for (int32_t i = c->point_at[first]; i < c->point_at[last]; i++)
    kinds.n += c->points[i].conclusive;
  for (int32_t i = c->point_at[first]; i < c->point_at[last]; i++)
    for (int32_t role = 0; c->points[i].conclusive && role < HEC_N_ROLES; role++) {
      kinds.predicted_s[role] += c->points[i].predicted_role_s[role] / kinds.n;
      kinds.measured_s[role] += c->points[i].measured_role_s[role] / kinds.n;
    }
  return kinds;
}

double hec_report_claimed(const hec_comparison *c) {
  return c->n_conclusive > 0 ? c->error.p90 : NAN;
}

hec_control_verdict hec_report_control(const hec_comparison *c, int32_t control) {
  const hec_compared_control *of = &c->controls[control];
  if (of->n < HEC_CONTROL_MIN || c->n_conclusive == 0)
    return HEC_CONTROL_NOT_TRIED;
  return of->error.median > hec_report_claimed(c) ? HEC_CONTROL_MISSES : HEC_CONTROL_PASSES;
}

bool hec_report_contaminated(const hec_session *s) {
  return s->calibration.contaminated ||
         (s->options.compare.n_cases > 0 && s->comparison.disturbed > HEC_CONTAMINATED_MAX);
}

const char *hec_report_schedule(const hec_experiment_case *one) {
  const hec_schedule *schedule;
  if (one->order)
    return one->order->schedule->name;
  return hec_schedule_of(one->policy, one->schedule, &schedule) == HEC_OK ? schedule->name : one->schedule;
}

int32_t hec_report_fitted(const hec_session_report *r) {
  return r->given_file ? r->n_given_cases : r->session->calibration.n_cases;
}

const char *hec_report_fitted_name(const hec_session_report *r, int32_t i) {
  return r->given_file ? r->given_cases[i] : r->session->calibration.cases[i].name;
}

void hec_report_add_source(const hec_session_report *r, hec_text *out) {
  const hec_calibration *c = &r->session->calibration;
  if (r->given_file) {
    hec_text_add(out, "before, ");
    hec_text_add_plain(out, r->given_file);
    hec_text_printf(out, ": %s", r->given_summary);
    return;
  }
  hec_text_printf(out,
                  "in this run, on %" PRId32 " cases (%" PRId32 " iterations) executed in turn with what is predicted",
                  c->n_cases, c->n_read);
  if (c->speed < 1)
    hec_text_printf(out, "; ranks that wait for each other keep %.1f %% of that speed", 100 * c->speed);
}

void hec_report_add_rounds(const hec_session_report *r, hec_text *out) {
  const hec_session *s = r->session;
  const hec_comparison *c = s->options.compare.n_cases > 0 ? &s->comparison : &s->training;
  if (c->n_min < c->n_max)
    hec_text_printf(out, "%" PRId32 " to ", c->n_min);
  hec_text_printf(out, "%" PRId32 " round%s in %.0f s", c->n_max, c->n_max == 1 ? "" : "s", s->seconds);
  if (s->time_over)
    hec_text_printf(out, ", the time given was over (--within)");
  else if (!s->options.every_round)
    hec_text_printf(out, ", then every %s was known within %g %%", s->options.compare.n_cases > 0 ? "case" : "time",
                    100 * HEC_NARROW);
}

void hec_report_add_interval(hec_text *out, hec_interval interval) {
  if (hec_interval_known(interval) && interval.high > 10)
    hec_text_printf(out, "[%.1f, above 1000 %%]", 100 * interval.low);
  else if (hec_interval_known(interval))
    hec_text_printf(out, "[%.1f, %.1f %%]", 100 * interval.low, 100 * interval.high);
  else
    hec_text_add(out, "[not known]");
}

static bool on_devices(const hec_session_report *r) {
  return hec_summary_on_devices(r->head->execution);
}

/* Of a calibration alone: its own; of a comparison: of everything that it executed. */
void hec_report_add_disturbed(const hec_session_report *r, hec_text *out) {
  const hec_session *s = r->session;
  const hec_comparison *c = &s->comparison;
  bool compared = s->options.compare.n_cases > 0;
  const char *why = on_devices(r) ? " (devices are not probed)"
                                  : " (a rank without a core, or a core slower than before); lost time is taken out, "
                                    "the least disturbed half counts";
  if (!r->given_file)
    hec_text_printf(out, "%.1f %% of %" PRId32 " iterations of the calibration%s", 100 * s->calibration.disturbed,
                    s->calibration.n_read, compared ? ", " : "");
  if (compared)
    hec_text_printf(out, "%.1f %% of %" PRId32 " that were predicted", 100 * c->disturbed, c->n_read);
  hec_text_add(out, why);
  if (compared && c->n_conclusive < c->n_points)
    hec_text_printf(out, "; %" PRId32 " of %" PRId32 " points not executed, the time was over",
                    c->n_points - c->n_conclusive, c->n_points);
}

void hec_report_add_pace(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = &r->session->comparison;
  hec_text_add(out, on_devices(r)
                        ? "devices are not probed; measurements are as they were"
                        : "speed of the cores, found by probes around each iteration; measurements are put at "
                          "one pace");
  if (c->n_conclusive > 0 && !on_devices(r))
    hec_text_printf(out, "; as they were, errors are %.1f %% (median), %.1f %% (p90), bias %+.1f %%",
                    100 * c->raw.median, 100 * c->raw.p90, 100 * c->raw.bias);
}

bool hec_report_add_ranking(const hec_session_report *r, const char *begin, const char *next, hec_text *out) {
  const hec_comparison *c = &r->session->comparison;
  const char *what = r->random ? "configurations" : "policies";
  if (c->options.n_cases < 2 || c->n_conclusive == 0)
    return false;
  if (c->n_pairs == 0) {
    hec_text_printf(out, "%snone: no two %s differ in an iteration that both executed", begin, what);
    return true;
  }
  hec_text_printf(out,
                  "%s%s, two by two by the medians of the iterations that both executed: %" PRId32
                  " pairs right, %" PRId32 " wrong, %" PRId32 " not told apart (the interval of their ratio holds 1)",
                  begin, what, c->n_right, c->n_wrong, c->n_not_apart);
  if (c->n_right + c->n_wrong > 0)
    hec_text_printf(out, "%sKendall tau of those told apart %.3f", next, c->kendall_tau);
  if (c->ranking.pairs > 0)
    hec_text_printf(out, ", %.3f over the %" PRId32 " more than %g %% apart (%" PRId32 " in the wrong order)",
                    c->ranking.tau, c->ranking.pairs, 100 * HEC_APART, c->ranking.wrong);
  if (r->random) /* they are different work: nobody chooses between them */
    return true;
  const char *chosen = c->by_case[c->chosen].a_case->name, *best = c->by_case[c->best].a_case->name;
  if (c->chosen == c->best)
    hec_text_printf(out, "%sthe predicted best, %s, is the measured best", next, best);
  else if (!c->regret_known)
    hec_text_printf(out, "%sthe predicted best, %s, is not told apart from the measured best, %s", next, chosen, best);
  else
    hec_text_printf(out, "%sthe predicted best, %s, takes %.1f %% more (measured) than the measured best, %s", next,
                    chosen, 100 * c->regret, best);
  if (c->n_ranked < c->options.n_cases)
    hec_text_printf(out, "%sof %" PRId32 " policies; there was no time for the other %" PRId32, next, c->n_ranked,
                    c->options.n_cases - c->n_ranked);
  return true;
}

/* Of pairs that are told apart and far apart; said also where there are none, and how many are not told apart. */
static void add_ranking(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = &r->session->comparison;
  const char *what = r->random ? "configurations" : "policies";
  int32_t pairs = c->ranking.pairs, wrong = c->ranking.wrong;
  if (c->options.n_cases < 2)
    return;
  if (c->n_pairs == 0) {
    hec_text_printf(out, "Ranking: not tested, no two %s differ in an iteration that both executed.\n", what);
    return;
  }
  if (pairs == 0)
    hec_text_printf(out, "Ranking: no two %s are told apart and more than %g %% apart", what, 100 * HEC_APART);
  else if (pairs == 1 && wrong == 0)
    hec_text_printf(out, "Ranking kept: the order of the one pair of %s more than %g %% apart is predicted right", what,
                    100 * HEC_APART);
  else if (wrong == 0)
    hec_text_printf(
        out, "Ranking kept: the order of the %s is predicted right for all %" PRId32 " pairs more than %g %% apart",
        what, pairs, 100 * HEC_APART);
  else
    hec_text_printf(out,
                    "Ranking NOT kept: %" PRId32 " of %" PRId32
                    " pairs of %s more than %g %% apart are predicted in the wrong order",
                    wrong, pairs, what, 100 * HEC_APART);
  if (c->n_not_apart > 0)
    hec_text_printf(out, "; not told apart: %" PRId32 " of %" PRId32 " pairs", c->n_not_apart, c->n_pairs);
  hec_text_add(out, ".\n");
}

void hec_report_add_verdict(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = &r->session->comparison;
  if (c->n_conclusive == 0) {
    hec_text_add(out, "Nothing can be said: there was no time to execute anything; give more with --within.\n");
    return;
  }
  if (c->n_conclusive == 1) {
    hec_text_printf(out, "Predicted within %.1f %% ", 100 * c->error.worst);
    hec_report_add_interval(out, c->range.worst);
    hec_text_add(out, " (the one iteration that was executed).\n");
  } else {
    hec_text_printf(out, "Predicted within %.1f %% ", 100 * c->error.median);
    hec_report_add_interval(out, c->range.median);
    hec_text_printf(out, " (median of %" PRId32 " iterations; 9 of 10 within %.1f %% ", c->n_conclusive,
                    100 * c->error.p90);
    hec_report_add_interval(out, c->range.p90);
    hec_text_printf(out, ", worst %.1f %%). In brackets: 95 %% intervals.\n", 100 * c->error.worst);
  }
  add_ranking(r, out);
  for (int32_t i = 0; i < c->n_controls; i++)
    if (hec_report_control(c, i) == HEC_CONTROL_PASSES)
      hec_text_printf(out, "Mind: this run cannot tell the broken law %s from the real one.\n",
                      c->controls[i].control->name);
  if (hec_report_contaminated(r->session))
    hec_text_printf(out,
                    "Mind: %.0f %% of the iterations were disturbed; lost time and pace are taken out, but a quiet "
                    "machine gives narrower intervals.\n",
                    100 * fmax(c->disturbed, r->session->calibration.disturbed));
}
