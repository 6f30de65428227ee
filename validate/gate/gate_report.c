/* The gate's reports as Markdown and JSON; the forms are in gate.h. */
#include "validate/gate/gate.h"

#include <inttypes.h>
#include <math.h>

static const char *failed_text(const hec_gate_control *c, const hec_gate_bands *b) {
  return c->rejected ? "fails, as it must" : c->error.median.high <= b->median ? "**passes**" : "not decided";
}

static void add_head(const hec_gate_report *r, hec_text *out) {
  hec_text_add(out, "# Regression gate: predicted against measured\n\n");
  if (r->stamp)
    hec_text_printf(out, "%s\n\n", r->stamp);
  hec_text_printf(out, "Verdict: **%s**%s%s\n\n", hec_gate_verdict_name[r->verdict], r->why[0] ? ": " : "", r->why);
  hec_text_printf(out,
                  "%s; %s; transport %s; %" PRId32 " ranks; %" PRId32 " configurations of %" PRId32
                  " iterations, %" PRId32 " rounds in %.0f s; disturbed: %.0f %% of the iterations, %.0f %% of the "
                  "calibration's.",
                  r->cpu, r->blas, r->transport, r->file->links_cluster.n_devices, r->file->n_cases, r->file->n_steps,
                  r->run->n_rounds, r->run->seconds, 100 * r->run->disturbed, 100 * r->run->calibrated);
  if (r->broken >= 0)
    hec_text_printf(out, " Predictions under a law that was broken on purpose: %s (%s).", hec_controls[r->broken].name,
                    hec_controls[r->broken].summary);
  hec_text_add(out, "\n\nLinks are imitated: this validates compute, waiting and order, not the network.\n\n");
}

static void add_range(hec_text *out, double value, hec_interval interval) {
  hec_text_printf(out, " %.1f %% [%.1f, %.1f] |", 100 * value, 100 * interval.low, 100 * interval.high);
}

static void add_error(hec_text *out, const hec_error_range *e) {
  hec_text_printf(out, " %" PRId32 " |", e->error.n);
  add_range(out, e->error.median, e->median);
  add_range(out, e->error.p90, e->p90);
  hec_text_printf(out, " %.1f %% | %+.1f %% |", 100 * e->error.worst, 100 * e->error.bias);
}

static void add_errors(const hec_gate_report *r, hec_text *out) {
  const hec_gate_judgement *j = r->judgement;
  const hec_gate_bands *b = &r->file->bands;
  hec_text_add(out, "| | points | median | p90 | worst | bias | |\n|---|---|---|---|---|---|---|\n");
  hec_text_add(out, "| prediction |");
  add_error(out, &j->error);
  hec_text_printf(out, " at most %g %%, %g %% |\n", 100 * b->median, 100 * b->p90);
  for (int32_t k = 0; hec_controls[k].name; k++) {
    const hec_gate_control *c = &j->controls[k];
    hec_text_printf(out, "| prediction where %s matters |", hec_controls[k].name);
    add_error(out, &c->predicted);
    hec_text_printf(out, " median at most %g %% |\n| control %s there |", 100 * b->median, hec_controls[k].name);
    add_error(out, &c->error);
    hec_text_printf(out, " %s |\n", failed_text(c, b));
  }
  hec_text_printf(out,
                  "\nPairs told apart and more than %g %% apart: %" PRId32 ", in the wrong order: %" PRId32 ".\n\n",
                  100 * HEC_APART, j->n_pairs, j->n_wrong);
}

static void add_points(const hec_gate_report *r, hec_text *out) {
  hec_text_add(out, "| configuration | iteration | predicted, ms | measured, ms | error |\n|---|---|---|---|---|\n");
  for (int32_t i = 0; i < r->run->n_points; i++) {
    const hec_gate_point *p = &r->run->points[i];
    double predicted = r->broken < 0 ? p->predicted_s : p->control_s[r->broken];
    hec_text_printf(out, "| %s | %" PRId32 " | %.3f | ", r->file->cases[p->a_case].name, p->step, 1e3 * predicted);
    if (p->executed)
      hec_text_printf(out, "%.3f | %+.2f %% |\n", 1e3 * p->measured_s, 100 * (predicted / p->measured_s - 1));
    else
      hec_text_add(out, "not executed | |\n");
  }
}

void hec_gate_markdown(const hec_gate_report *r, hec_text *out) {
  add_head(r, out);
  if (r->n_broken > 0) {
    hec_text_add(out,
                 "The same session with laws that were broken on purpose:\n\n| law | verdict | |\n|---|---|---|\n");
    for (int32_t k = 0; k < r->n_broken; k++)
      hec_text_printf(out, "| %s | %s | %s |\n", hec_controls[k].name, hec_gate_verdict_name[r->of_broken[k].verdict],
                      r->of_broken[k].why);
    hec_text_add(out, "\n");
  }
  add_errors(r, out);
  add_points(r, out);
}

static void json_interval(hec_json_out *json, const char *key, hec_interval interval) {
  hec_json_array(json, key);
  hec_json_double(json, NULL, interval.low);
  hec_json_double(json, NULL, interval.high);
  hec_json_close(json);
}

static void json_error(hec_json_out *json, const char *key, const hec_error_range *e) {
  hec_json_object(json, key);
  hec_json_int(json, "n", e->error.n);
  hec_json_double(json, "median", e->error.median);
  hec_json_double(json, "p90", e->error.p90);
  hec_json_double(json, "worst", e->error.worst);
  hec_json_double(json, "bias", e->error.bias);
  json_interval(json, "interval", e->median);
  json_interval(json, "p90_interval", e->p90);
  hec_json_close(json);
}

static void json_head(hec_json_out *json, const hec_gate_report *r) {
  hec_json_int(json, "version", 1);
  hec_json_string(json, "verdict", hec_gate_verdict_name[r->verdict]);
  hec_json_string(json, "why", r->why);
  hec_json_string(json, "stamp", r->stamp ? r->stamp : "");
  hec_json_double(json, "seconds", r->run->seconds);
  hec_json_int(json, "rounds", r->run->n_rounds);
  if (r->broken >= 0)
    hec_json_string(json, "broken", hec_controls[r->broken].name);
  else
    hec_json_null(json, "broken");
  hec_json_object(json, "machine");
  hec_json_string(json, "cpu", r->cpu);
  hec_json_string(json, "blas", r->blas);
  hec_json_string(json, "transport", r->transport);
  hec_json_close(json);
  hec_json_int(json, "points", r->judgement->n_points);
  hec_json_int(json, "conclusive", r->judgement->n_executed);
  hec_json_double(json, "disturbed", r->run->disturbed);
  hec_json_object(json, "calibration");
  hec_json_double(json, "disturbed", r->run->calibrated);
  hec_json_close(json);
}

static void json_controls(hec_json_out *json, const hec_gate_report *r) {
  hec_json_array(json, "controls");
  for (int32_t k = 0; hec_controls[k].name; k++) {
    const hec_gate_control *c = &r->judgement->controls[k];
    hec_json_object(json, NULL);
    hec_json_string(json, "name", hec_controls[k].name);
    hec_json_int(json, "points", c->n);
    hec_json_int(json, "conclusive", c->n_executed);
    json_error(json, "control", &c->error);
    json_error(json, "predicted", &c->predicted);
    hec_json_bool(json, "failed", c->rejected);
    hec_json_close(json);
  }
  hec_json_close(json);
}

static void json_row(hec_json_out *json, const hec_gate_report *r, const hec_gate_point *p) {
  double predicted = r->broken < 0 ? p->predicted_s : p->control_s[r->broken];
  hec_json_object(json, NULL);
  hec_json_string(json, "case", r->file->cases[p->a_case].name);
  hec_json_int(json, "step", p->step);
  hec_json_double(json, "predicted_s", predicted);
  hec_json_double(json, "measured_s", p->measured_s);
  hec_json_double(json, "error", p->measured_s > 0 ? predicted / p->measured_s - 1 : 0);
  hec_json_bool(json, "conclusive", p->executed);
  hec_json_close(json);
}

void hec_gate_json(const hec_gate_report *r, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  json_head(&json, r);
  json_error(&json, "error", &r->judgement->error);
  hec_json_object(&json, "order");
  hec_json_int(&json, "pairs", r->judgement->n_pairs);
  hec_json_int(&json, "wrong", r->judgement->n_wrong);
  hec_json_close(&json);
  json_controls(&json, r);
  hec_json_array(&json, "self_test");
  for (int32_t k = 0; k < r->n_broken; k++) {
    hec_json_object(&json, NULL);
    hec_json_string(&json, "broken", hec_controls[k].name);
    hec_json_string(&json, "verdict", hec_gate_verdict_name[r->of_broken[k].verdict]);
    hec_json_string(&json, "why", r->of_broken[k].why);
    hec_json_close(&json);
  }
  hec_json_close(&json);
  hec_json_array(&json, "rows");
  for (int32_t i = 0; i < r->run->n_points; i++)
    json_row(&json, r, &r->run->points[i]);
  hec_json_close(&json);
  hec_json_close(&json);
}

/* ---- Of stored predictions alone ---- */

static double moved_most(const hec_gate_stored_report *r) {
  double most = 0;
  for (int32_t i = 0; i < r->file->n_cases * r->file->n_steps; i++)
    most = fmax(most, hec_gate_moved(&r->now[i], &r->file->stored[i]));
  return most;
}

static hec_gate_verdict verdict_of(const hec_gate_stored_report *r) {
  return r->why[0] ? HEC_GATE_FAILED : HEC_GATE_PASSED;
}

static void add_stored(const hec_gate_prediction *now, const hec_gate_prediction *stored, hec_text *out) {
  double moved = hec_gate_moved(now, stored);
  if (isinf(moved))
    hec_text_printf(out, "%.3f | - | %.3f | - | none stored |\n", 1e3 * now->predicted_s, 1e3 * now->trained_s);
  else
    hec_text_printf(out, "%.3f | %.3f | %.3f | %.3f | %.3g %% |\n", 1e3 * now->predicted_s, 1e3 * stored->predicted_s,
                    1e3 * now->trained_s, 1e3 * stored->trained_s, 100 * moved);
}

void hec_gate_stored_markdown(const hec_gate_stored_report *r, hec_text *out) {
  const hec_gate_file *f = r->file;
  hec_text_add(out, "# Regression gate: predictions against the stored ones\n\n");
  if (r->stamp)
    hec_text_printf(out, "%s\n\n", r->stamp);
  hec_text_printf(out, "Verdict: **%s**%s%s\n\n", hec_gate_verdict_name[verdict_of(r)], r->why[0] ? ": " : "", r->why);
  hec_text_printf(out,
                  "%" PRId32 " configurations of %" PRId32 " iterations on %s: the most a prediction moved is %.3g %%, "
                  "expected at most %g %%. Nothing was measured.\n\n",
                  f->n_cases, f->n_steps, f->cluster_name, 100 * moved_most(r), 100 * f->bands.changed);
  hec_text_add(out, "| configuration | iteration | forward, ms | stored | training, ms | stored | moved |\n"
                    "|---|---|---|---|---|---|---|\n");
  for (int32_t i = 0; i < f->n_cases * f->n_steps; i++) {
    hec_text_printf(out, "| %s | %" PRId32 " | ", f->cases[i / f->n_steps].name, i % f->n_steps);
    add_stored(&r->now[i], &f->stored[i], out);
  }
}

/* What is not finite is null. */
static double or_none(double stored_s) {
  return stored_s > 0 ? stored_s : INFINITY;
}

void hec_gate_stored_json(const hec_gate_stored_report *r, hec_text *out) {
  const hec_gate_file *f = r->file;
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "version", 1);
  hec_json_string(&json, "verdict", hec_gate_verdict_name[verdict_of(r)]);
  hec_json_string(&json, "why", r->why);
  hec_json_string(&json, "stamp", r->stamp ? r->stamp : "");
  hec_json_string(&json, "cluster", f->cluster_name);
  hec_json_int(&json, "predictions", f->n_cases * f->n_steps);
  hec_json_double(&json, "moved_most", moved_most(r));
  hec_json_array(&json, "rows");
  for (int32_t i = 0; i < f->n_cases * f->n_steps; i++) {
    const hec_gate_prediction *now = &r->now[i], *stored = &f->stored[i];
    hec_json_object(&json, NULL);
    hec_json_string(&json, "case", f->cases[i / f->n_steps].name);
    hec_json_int(&json, "step", i % f->n_steps);
    hec_json_double(&json, "predicted_s", now->predicted_s);
    hec_json_double(&json, "stored_s", or_none(stored->predicted_s));
    hec_json_double(&json, "trained_s", now->trained_s);
    hec_json_double(&json, "stored_trained_s", or_none(stored->trained_s));
    hec_json_double(&json, "moved", hec_gate_moved(now, stored));
    hec_json_close(&json);
  }
  hec_json_close(&json);
  hec_json_close(&json);
}
