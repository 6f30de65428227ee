/* A comparison for programs; the form is in session_report.h. */
#include "validate/session_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void add_interval(hec_json_out *json, const char *key, hec_interval interval) {
  if (!hec_interval_known(interval)) {
    hec_json_null(json, key);
    return;
  }
  hec_json_array(json, key);
  hec_json_double(json, NULL, interval.low);
  hec_json_double(json, NULL, interval.high);
  hec_json_close(json);
}

static void add_estimates(hec_json_out *json, const hec_error *error, bool known) {
  hec_json_double(json, "median", known ? error->median : NAN);
  hec_json_double(json, "p90", known ? error->p90 : NAN);
  hec_json_double(json, "worst", known ? error->worst : NAN);
  hec_json_double(json, "bias", known ? error->bias : NAN);
}

static void add_error(hec_json_out *json, const char *key, const hec_error_range *range, bool known) {
  const hec_interval none = {NAN, NAN};
  hec_json_object(json, key);
  add_estimates(json, &range->error, known);
  add_interval(json, "interval", known ? range->median : none);
  add_interval(json, "p90_interval", known ? range->p90 : none);
  add_interval(json, "worst_interval", known ? range->worst : none);
  add_interval(json, "bias_interval", known ? range->bias : none);
  hec_json_close(json);
}

static void add_kinds(hec_json_out *json, const hec_report_kinds *kinds) {
  hec_json_array(json, "kinds");
  for (int32_t i = 0; i < HEC_N_ROLES; i++) {
    if (!(kinds->predicted_s[i] > 0) && !(kinds->measured_s[i] > 0))
      continue;
    hec_json_object(json, NULL);
    hec_json_string(json, "kind", hec_role_name[i]);
    hec_json_double(json, "predicted_s", kinds->predicted_s[i]);
    hec_json_double(json, "measured_s", kinds->measured_s[i]);
    hec_json_double(json, "error", kinds->measured_s[i] > 0 ? kinds->predicted_s[i] / kinds->measured_s[i] - 1 : NAN);
    hec_json_close(json);
  }
  hec_json_close(json);
}

static void add_optional(hec_json_out *json, const char *key, const char *value) {
  if (value && value[0])
    hec_json_string(json, key, value);
  else
    hec_json_null(json, key);
}

static void add_machine(hec_json_out *json, const hec_session_report *r) {
  const hec_summary_execution *e = r->head->execution;
  hec_json_object(json, "machine");
  hec_summary_json_machine(e->unit, e->cpu, e->n_cores, e->blas, json);
  hec_json_string(json, "backend", e->backend);
  hec_json_string(json, "transport", e->transport);
  hec_json_bool(json, "virtual", e->virtual_time);
  hec_json_close(json);
}

static void add_head(hec_json_out *json, const hec_session_report *r) {
  const hec_job *job = r->head->job;
  hec_json_int(json, "version", 1);
  hec_json_string(json, "tool", r->head->tool);
  add_optional(json, "command", r->command);
  add_optional(json, "date", r->session->options.machine.date);
  add_machine(json, r);
  hec_json_string(json, "model", job->moe.name);
  hec_json_int(json, "ranks", job->problem.n_ranks);
  hec_json_int(json, "tokens", job->problem.tokens);
  hec_json_string(json, "phase", job->problem.train ? "train" : "forward");
  hec_json_string(json, "law", r->head->law);
  hec_json_int(json, "seed", (int64_t)r->session->options.seed);
  hec_json_int(json, "rounds", r->session->comparison.n_least);
  hec_json_int(json, "rounds_most", r->session->comparison.n_most);
  hec_json_double(json, "within_s", r->session->options.within_s > 0 ? r->session->options.within_s : NAN);
  hec_json_double(json, "seconds", r->session->seconds);
  hec_json_bool(json, "time_over", r->session->time_over);
  add_optional(json, "trace", r->random ? NULL : r->head->trace);
  hec_json_bool(json, "random", r->random);
  hec_json_strings(json, "limits", r->head->execution->limits, r->head->execution->n_limits);
  hec_json_strings(json, "defaults_taken", job->defaults, job->n_defaults);
}

static void add_calibration(hec_json_out *json, const hec_session_report *r) {
  const hec_calibration *c = &r->session->calibration;
  hec_json_object(json, "calibration");
  add_optional(json, "file", r->given_file);
  if (!r->given_file) {
    hec_json_int(json, "iterations", c->n_read);
    hec_json_double(json, "disturbed", c->disturbed);
    hec_json_bool(json, "contaminated", c->contaminated);
    hec_json_double(json, "speed", c->speed);
    hec_json_double(json, "level_within", c->level);
    hec_json_object(json, "exchange");
    hec_json_double(json, "a_s", c->exchange.a);
    hec_json_double(json, "b", c->exchange.b);
    hec_json_close(json);
    hec_json_object(json, "plan");
    hec_json_double(json, "a_s", c->plan.a);
    hec_json_double(json, "b_s", c->plan.b);
    hec_json_close(json);
  }
  hec_json_close(json);
}

static void add_cases(hec_json_out *json, const hec_session_report *r) {
  const hec_comparison *c = &r->session->comparison;
  hec_json_array(json, "policies");
  for (int32_t i = 0; i < c->options.n_cases; i++) {
    const hec_compared_case *one = &c->by_case[i];
    hec_report_kinds kinds = hec_report_kinds_of(c, i, i + 1);
    bool known = one->n_conclusive > 0;
    hec_json_object(json, NULL);
    hec_json_string(json, "name", one->a_case->name);
    hec_json_string(json, "policy", one->a_case->policy->name);
    hec_json_string(json, "schedule", hec_report_schedule(one->a_case));
    hec_json_double(json, "predicted_s", known ? one->predicted_s : NAN);
    hec_json_double(json, "measured_s", known ? one->measured_s : NAN);
    add_interval(json, "measured_interval", one->measured);
    add_error(json, "error", &one->range, known);
    hec_json_int(json, "points", one->n_points);
    hec_json_int(json, "conclusive", one->n_conclusive);
    add_kinds(json, &kinds);
    hec_json_close(json);
  }
  hec_json_close(json);
}

static void add_lists(hec_json_out *json, const hec_session_report *r) {
  const hec_comparison *c = &r->session->comparison;
  hec_json_array(json, "fitted");
  for (int32_t i = 0; i < hec_report_fitted(r); i++)
    hec_json_string(json, NULL, hec_report_fitted_name(r, i));
  hec_json_close(json);
  hec_json_array(json, "predicted");
  for (int32_t i = 0; i < c->options.n_cases; i++)
    hec_json_string(json, NULL, c->options.cases[i].name);
  hec_json_close(json);
}

static void add_controls(hec_json_out *json, const hec_comparison *c) {
  hec_json_double(json, "claimed", hec_report_claimed(c));
  hec_json_array(json, "controls");
  for (int32_t i = 0; i < c->n_controls; i++) {
    const hec_compared_control *one = &c->controls[i];
    hec_control_verdict verdict = hec_report_control(c, i);
    hec_json_object(json, NULL);
    hec_json_string(json, "name", one->control->name);
    hec_json_string(json, "summary", one->control->summary);
    hec_json_int(json, "points", one->n);
    hec_json_double(json, "median", one->n > 0 ? one->error.median : NAN);
    add_interval(json, "interval", one->median);
    hec_json_double(json, "p90", one->n > 0 ? one->error.p90 : NAN);
    if (verdict == HEC_CONTROL_NOT_TRIED)
      hec_json_null(json, "failed");
    else
      hec_json_bool(json, "failed", verdict == HEC_CONTROL_MISSES);
    hec_json_close(json);
  }
  hec_json_close(json);
}

static void add_pairs(hec_json_out *json, const hec_comparison *c) {
  bool known = c->n_pairs > 0;
  hec_json_object(json, "pairs");
  hec_json_int(json, "right", c->n_right);
  hec_json_int(json, "wrong", c->n_wrong);
  hec_json_int(json, "too_close", c->n_not_apart);
  hec_json_close(json);
  hec_json_object(json, "regret");
  add_optional(json, "predicted_best", known ? c->by_case[c->chosen].a_case->name : NULL);
  add_optional(json, "measured_best", known ? c->by_case[c->best].a_case->name : NULL);
  hec_json_double(json, "share", known ? c->regret : NAN);
  hec_json_bool(json, "told_apart", known && c->regret_known);
  hec_json_close(json);
}

static void add_points(hec_json_out *json, const hec_comparison *c) {
  hec_json_array(json, "points");
  for (int32_t i = 0; i < c->n_points; i++) {
    const hec_point *p = &c->points[i];
    char program[24];
    (void)snprintf(program, sizeof program, "%016" PRIx64, p->digest);
    bool known = p->conclusive;
    hec_json_object(json, NULL);
    hec_json_string(json, "case", c->options.cases[p->a_case].name);
    hec_json_int(json, "iter", p->iter);
    hec_json_string(json, "program", program);
    hec_json_double(json, "predicted_s", p->predicted_s);
    hec_json_double(json, "measured_s", known ? p->measured_s : NAN);
    hec_json_double(json, "uncorrected_s", known ? p->raw_s : NAN);
    hec_json_double(json, "error", known ? p->predicted_s / p->measured_s - 1 : NAN);
    hec_json_double(json, "spread", known ? p->spread : NAN);
    hec_json_int(json, "clean", p->n_clean);
    hec_json_int(json, "rounds", p->n_read);
    hec_json_bool(json, "conclusive", p->conclusive);
    hec_json_close(json);
  }
  hec_json_close(json);
}

void hec_compare_json(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = &r->session->comparison;
  hec_report_kinds kinds = hec_report_kinds_of(c, 0, c->options.n_cases);
  bool known = c->n_conclusive > 0;
  hec_json_out json = hec_json_begin(out, 2);
  hec_json_object(&json, NULL);
  add_head(&json, r);
  add_calibration(&json, r);
  add_cases(&json, r);
  add_kinds(&json, &kinds);
  add_error(&json, "error", &c->range, known);
  hec_json_object(&json, "error_uncorrected");
  add_estimates(&json, &c->raw, known);
  hec_json_close(&json);
  hec_json_double(&json, "kendall_tau", c->n_right + c->n_wrong > 0 ? c->kendall_tau : NAN);
  hec_json_double(&json, "kendall_tau_5pct", c->ranking.pairs > 0 ? c->ranking.tau : NAN);
  hec_json_int(&json, "pairs_5pct", c->ranking.pairs);
  hec_json_int(&json, "wrong_5pct", c->ranking.wrong);
  add_pairs(&json, c);
  add_lists(&json, r);
  add_controls(&json, c);
  hec_json_double(&json, "disturbed", c->disturbed);
  hec_json_int(&json, "inconclusive", c->n_points - c->n_conclusive);
  hec_json_bool(&json, "contaminated", hec_report_contaminated(r->session));
  add_points(&json, c);
  hec_json_close(&json);
}

void hec_compare_csv(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = &r->session->comparison;
  hec_text_add(
      out,
      "case,policy,schedule,iter,predicted_s,measured_s,uncorrected_s,error,spread,clean_rounds,rounds,conclusive\n");
  for (int32_t i = 0; i < c->n_points; i++) {
    const hec_point *p = &c->points[i];
    const hec_lab_case *of = &c->options.cases[p->a_case];
    const char *names[] = {of->name, of->policy->name, hec_report_schedule(of)};
    for (int k = 0; k < 3; k++) {
      hec_text_add_csv(out, names[k]);
      hec_text_add(out, ",");
    }
    hec_text_printf(out, "%" PRId64 ",", p->iter);
    hec_text_add_double(out, p->predicted_s);
    const double measured[] = {p->measured_s, p->raw_s, p->predicted_s / p->measured_s - 1, p->spread};
    for (int k = 0; k < 4; k++) {
      hec_text_add(out, ",");
      if (p->conclusive)
        hec_text_add_double(out, measured[k]);
    }
    hec_text_printf(out, ",%" PRId32 ",%" PRId32 ",%s\n", p->n_clean, p->n_read, p->conclusive ? "true" : "false");
  }
}
