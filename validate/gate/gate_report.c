/* The gate's reports. For people the self-test and the errors come before the rows; the forms for programs are in gate.h. */
#include "validate/gate/gate.h"

#include <inttypes.h>
#include <math.h>

static void add_verdict(hec_doc *doc, const char *title, const char *stamp, hec_gate_verdict verdict, const char *why) {
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("verdict", hec_gate_verdict_name[verdict]), HEC_KEEP("why", why),
          HEC_KEEP("stamp", stamp ? stamp : ""));
  hec_doc_note(doc, "# Regression gate: %s", title);
  if (stamp)
    hec_doc_note(doc, "%s", stamp);
  hec_doc_note(doc, "Verdict: **%s**%s%s", hec_gate_verdict_name[verdict], why[0] ? ": " : "", why);
}

static void add_head(hec_doc *doc, const hec_gate_report *r) {
  const hec_control *broken = r->broken >= 0 ? &hec_controls[r->broken] : NULL;
  add_verdict(doc, "predicted against measured", r->stamp, r->verdict, r->why);
  HEC_ADD(
      doc, HEC_KEEP("seconds", r->run->seconds), HEC_KEEP("rounds", r->run->n_rounds),
      HEC_KEEP("broken", broken ? broken->name : NULL),
      HEC_OBJECT("machine", HEC_KEEP("cpu", r->cpu), HEC_KEEP("blas", r->blas), HEC_KEEP("transport", r->transport)),
      HEC_KEEP("points", r->judgement->n_points), HEC_KEEP("conclusive", r->judgement->n_executed),
      HEC_KEEP("disturbed", r->run->disturbed), HEC_OBJECT("calibration", HEC_KEEP("disturbed", r->run->calibrated)));
  hec_text text = {0};
  hec_text_printf(&text,
                  "%s; %s; transport %s; %" PRId32 " ranks; %" PRId32 " configurations of %" PRId32
                  " iterations, %" PRId32 " rounds in %.0f s; disturbed: %.0f %% of the iterations, %.0f %% of the "
                  "calibration's.",
                  r->cpu, r->blas, r->transport, r->file->links_cluster.n_devices, r->file->n_cases, r->file->n_steps,
                  r->run->n_rounds, r->run->seconds, 100 * r->run->disturbed, 100 * r->run->calibrated);
  if (broken)
    hec_text_printf(&text, " Predictions under a law that was broken on purpose: %s (%s).", broken->name,
                    broken->summary);
  hec_doc_take(doc, &text);
  hec_doc_note(doc, "Links are imitated: this validates compute, waiting and order, not the network.");
}

static void add_self_test(hec_doc *doc, const hec_gate_report *r) {
  if (r->n_broken > 0)
    hec_doc_note(doc, "The same session with laws that were broken on purpose:");
  hec_doc_table(doc, "self_test", r->n_broken > 0 ? "law | verdict |" : NULL);
  for (int32_t k = 0; k < r->n_broken; k++)
    HEC_ROW(doc, HEC_SHOW("broken", HEC_AS_IS, hec_controls[k].name),
            HEC_SHOW("verdict", HEC_AS_IS, hec_gate_verdict_name[r->of_broken[k].verdict]),
            HEC_SHOW("why", HEC_AS_IS, r->of_broken[k].why));
  hec_doc_end(doc);
}

static const char *range(hec_doc *doc, double value, hec_interval interval) {
  return hec_doc_text(doc, "%.1f %% [%.1f, %.1f]", 100 * value, 100 * interval.low, 100 * interval.high);
}

static void show_error(hec_doc *doc, const char *of, const hec_error_range *e, const char *wanted) {
  HEC_ROW(doc, HEC_CELL(of), HEC_SHOW(NULL, HEC_AS_IS, e->error.n), HEC_CELL(range(doc, e->error.median, e->median)),
          HEC_CELL(range(doc, e->error.p90, e->p90)), HEC_SHOW(NULL, HEC_PERCENT, e->error.worst),
          HEC_SHOW(NULL, HEC_SIGNED, e->error.bias), HEC_CELL(wanted));
}

static void show_errors(hec_doc *doc, const hec_gate_report *r) {
  const hec_gate_judgement *j = r->judgement;
  const hec_gate_bands *b = &r->file->bands;
  hec_doc_table(doc, NULL, "| points | median | p90 | worst | bias |");
  show_error(doc, "prediction", &j->error, hec_doc_text(doc, "at most %g %%, %g %%", 100 * b->median, 100 * b->p90));
  for (int32_t k = 0; hec_controls[k].name; k++) {
    const hec_gate_control *c = &j->controls[k];
    show_error(doc, hec_doc_text(doc, "prediction where %s matters", hec_controls[k].name), &c->predicted,
               hec_doc_text(doc, "median at most %g %%", 100 * b->median));
    show_error(doc, hec_doc_text(doc, "control %s there", hec_controls[k].name), &c->error,
               c->rejected                         ? "fails, as it must"
               : c->error.median.high <= b->median ? "**passes**"
                                                   : "not decided");
  }
  hec_doc_end(doc);
  hec_doc_note(doc, "Pairs told apart and more than %g %% apart: %" PRId32 ", in the wrong order: %" PRId32 ".",
               100 * HEC_APART, j->n_pairs, j->n_wrong);
}

#define KEEP_RANGE(k, e)                                                                                               \
  HEC_OBJECT(k, HEC_KEEP("n", (e).error.n), HEC_KEEP_ERROR((e).error, true),                                           \
             hec_value_pair("interval", (e).median.low, (e).median.high),                                              \
             hec_value_pair("p90_interval", (e).p90.low, (e).p90.high))

static void keep_controls(hec_doc *doc, const hec_gate_report *r) {
  hec_doc_table(doc, "controls", NULL);
  for (int32_t k = 0; hec_controls[k].name; k++) {
    const hec_gate_control *c = &r->judgement->controls[k];
    HEC_ROW(doc, HEC_KEEP("name", hec_controls[k].name), HEC_KEEP("points", c->n),
            HEC_KEEP("conclusive", c->n_executed), KEEP_RANGE("control", c->error),
            KEEP_RANGE("predicted", c->predicted), HEC_KEEP("failed", c->rejected));
  }
  hec_doc_end(doc);
}

static void add_points(hec_doc *doc, const hec_gate_report *r) {
  hec_doc_table(doc, "rows", "configuration | iteration | predicted, ms | measured, ms | error");
  for (int32_t i = 0; i < r->run->n_points; i++) {
    const hec_gate_point *p = &r->run->points[i];
    double predicted = r->broken < 0 ? p->predicted_s : p->control_s[r->broken];
    HEC_ROW(
        doc, HEC_SHOW("case", HEC_AS_IS, r->file->cases[p->a_case].name), HEC_SHOW("step", HEC_AS_IS, p->step),
        HEC_SHOW("predicted_s", HEC_MS, predicted),
        HEC_SHOW("measured_s", p->executed ? HEC_MS : HEC_NOT, p->measured_s),
        HEC_SHOW("error", p->executed ? HEC_SIGNED2 : HEC_NOT, p->measured_s > 0 ? predicted / p->measured_s - 1 : 0),
        HEC_KEEP("conclusive", p->executed));
    if (!p->executed)
      HEC_ADD(doc, HEC_CELL("not executed"), HEC_CELL(NULL));
  }
  hec_doc_end(doc);
}

void hec_gate_report_measured(const void *report, hec_doc *doc) {
  const hec_gate_report *r = report;
  add_head(doc, r);
  HEC_ADD(doc, KEEP_RANGE("error", r->judgement->error),
          HEC_OBJECT("order", HEC_KEEP("pairs", r->judgement->n_pairs), HEC_KEEP("wrong", r->judgement->n_wrong)));
  keep_controls(doc, r);
  add_self_test(doc, r);
  show_errors(doc, r);
  add_points(doc, r);
}

/* ---- Of stored predictions alone ---- */

static double moved_most(const hec_gate_stored_report *r) {
  double max = 0;
  for (int32_t i = 0; i < r->file->n_cases * r->file->n_steps; i++)
    max = fmax(max, hec_gate_moved(&r->now[i], &r->file->stored[i]));
  return max;
}

/* What is not stored is 0. */
static double or_none(double stored_s) {
  return stored_s > 0 ? stored_s : NAN;
}

void hec_gate_report_stored(const void *report, hec_doc *doc) {
  const hec_gate_stored_report *r = report;
  const hec_gate_file *f = r->file;
  int32_t n = f->n_cases * f->n_steps;
  add_verdict(doc, "predictions against the stored ones", r->stamp, r->why[0] ? HEC_GATE_FAILED : HEC_GATE_PASSED,
              r->why);
  HEC_ADD(doc, HEC_KEEP("cluster", f->cluster_name), HEC_KEEP("predictions", n), HEC_KEEP("moved_most", moved_most(r)));
  hec_doc_note(doc,
               "%" PRId32 " configurations of %" PRId32 " iterations on %s: the most a prediction moved is %.3g %%, "
               "expected at most %g %%. Nothing was measured.",
               f->n_cases, f->n_steps, f->cluster_name, 100 * moved_most(r), 100 * f->bands.changed);
  hec_doc_table(doc, "rows", "configuration | iteration | forward, ms | stored | training, ms | stored | moved");
  for (int32_t i = 0; i < n; i++) {
    const hec_gate_prediction *now = &r->now[i], *stored = &f->stored[i];
    double moved = hec_gate_moved(now, stored);
    HEC_ROW(doc, HEC_SHOW("case", HEC_AS_IS, f->cases[i / f->n_steps].name),
            HEC_SHOW("step", HEC_AS_IS, i % f->n_steps), HEC_SHOW("predicted_s", HEC_MS, now->predicted_s),
            HEC_SHOW("stored_s", HEC_MS, or_none(stored->predicted_s)), HEC_SHOW("trained_s", HEC_MS, now->trained_s),
            HEC_SHOW("stored_trained_s", HEC_MS, or_none(stored->trained_s)), HEC_KEEP("moved", moved),
            HEC_CELL(isinf(moved) ? "none stored" : hec_doc_text(doc, "%.3g %%", 100 * moved)));
  }
  hec_doc_end(doc);
}
