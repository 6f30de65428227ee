/* A comparison as a report: verdict, iterations, where their time goes, negative controls, what was fitted on what. The form for
 * programs is in session_report.h. */
#include "runtime/program/job.h"
#include "tools/validate/session_report.h"

#include <inttypes.h>
#include <math.h>

static const hec_comparison *of(const hec_session_report *r) {
  return &r->session->comparison;
}

static const char *or_null(const char *text) {
  return text && text[0] ? text : NULL;
}

/* ---- What ran, and where ---- */

static void keep_head(hec_doc *doc, const hec_session_report *r) {
  const hec_job *job = r->head->job;
  const hec_session_options *o = &r->session->options;
  const hec_summary_execution *e = r->head->execution;
  bool devices = hec_summary_on_devices(e);
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("tool", r->head->tool), HEC_KEEP("command", or_null(r->command)),
          HEC_KEEP("date", or_null(o->machine.date)),
          HEC_OBJECT("machine", HEC_KEEP(devices ? "device" : "cpu", e->cpu),
                     HEC_KEEP(devices ? "devices" : "cores", e->n_cores),
                     HEC_KEEP(devices ? "library" : "blas", e->blas), HEC_KEEP("backend", e->backend),
                     HEC_KEEP("transport", e->transport), HEC_KEEP("virtual", e->virtual_time)),
          HEC_KEEP("model", job->moe.name), HEC_KEEP("ranks", job->problem.n_ranks),
          HEC_KEEP("tokens", job->problem.tokens), HEC_KEEP("phase", job->problem.train ? "train" : "forward"),
          HEC_KEEP("law", r->head->law), HEC_KEEP("seed", (int64_t)o->seed), HEC_KEEP("rounds", of(r)->n_min),
          HEC_KEEP("rounds_most", of(r)->n_max), HEC_KEEP("within_s", o->within_s > 0 ? o->within_s : NAN),
          HEC_KEEP("seconds", r->session->seconds), HEC_KEEP("time_over", r->session->time_over),
          HEC_KEEP("trace", r->random ? NULL : or_null(r->head->trace)), HEC_KEEP("random", r->random),
          HEC_KEEP("layout", or_null(r->layout)), hec_value_texts("limits", e->limits, e->n_limits),
          hec_value_texts("defaults_taken", job->defaults, job->n_defaults));
}

#define KEEP_LINE(k, slope, line) HEC_OBJECT(k, HEC_KEEP("a_s", (line).a), HEC_KEEP(slope, (line).b))

static void keep_calibration(hec_doc *doc, const hec_session_report *r) {
  const hec_calibration *c = &r->session->calibration;
  const hec_value file = HEC_KEEP("file", or_null(r->given_file));
  HEC_ADD(doc, r->given_file
                   ? HEC_OBJECT("calibration", file)
                   : HEC_OBJECT("calibration", file, HEC_KEEP("iterations", c->n_read),
                                HEC_KEEP("disturbed", c->disturbed), HEC_KEEP("contaminated", c->contaminated),
                                HEC_KEEP("speed", c->speed), HEC_KEEP("level_within", c->level),
                                KEEP_LINE("exchange", "b", c->exchange), KEEP_LINE("plan", "b_s", c->plan)));
}

static void show_head(hec_doc *doc, const hec_session_report *r) {
  hec_text text = {0};
  hec_doc_note(doc, "# Predicted against measured");
  if (r->stamp)
    hec_doc_note(doc, "%s", r->stamp);
  if (r->command)
    hec_doc_note(doc, "`%s`", r->command);
  hec_report_add_verdict(r, &text);
  hec_doc_take(doc, &text);
  hec_text_add(&text, "```\n");
  if (r->layout)
    hec_text_printf(&text, "layout   %s; inside a stage the schedule is serial\n", r->layout);
  hec_summary_execution_place(r->head, &text);
  hec_text_printf(&text, "seed     %" PRIu64 "; ", r->session->options.seed);
  hec_report_add_rounds(r, &text);
  hec_text_add(&text, "\nlaws     calibrated ");
  hec_report_add_source(r, &text);
  hec_text_add(&text, "\n");
  hec_summary_execution_mind(r->head, &text);
  hec_text_add(&text, "disturbed ");
  hec_report_add_disturbed(r, &text);
  hec_text_add(&text, "\npace     ");
  hec_report_add_pace(r, &text);
  hec_text_add(&text, "\n```");
  hec_doc_take(doc, &text);
}

/* ---- Iterations ---- */

#define KEEP_ERROR(range, known)                                                                                       \
  HEC_OBJECT("error", HEC_KEEP_ERROR((range)->error, known), interval_of("interval", (range)->median, known),          \
             interval_of("p90_interval", (range)->p90, known), interval_of("worst_interval", (range)->worst, known),   \
             interval_of("bias_interval", (range)->bias, known))

static hec_value interval_of(const char *key, hec_interval interval, bool known) {
  return hec_value_interval(key, known ? interval : (hec_interval){NAN, NAN});
}

static void show_error(hec_doc *doc, const hec_error_range *range, bool known) {
  HEC_SCOPED(hec_text) text = {0};
  hec_report_add_interval(&text, known ? range->median : (hec_interval){NAN, NAN});
  HEC_ADD(doc, HEC_SHOW(NULL, HEC_SIGNED, known ? range->error.bias : NAN),
          HEC_SHOW(NULL, HEC_PERCENT, known ? range->error.median : NAN),
          HEC_SHOW(NULL, HEC_PERCENT, known ? range->error.p90 : NAN),
          HEC_SHOW(NULL, HEC_PERCENT, known ? range->error.worst : NAN), HEC_CELL(text.data));
}

/* Rows of cases first .. last - 1; for people the name is in the first. */
static void add_kinds(hec_doc *doc, const hec_comparison *c, const char *name, int32_t first, int32_t last) {
  hec_report_kinds kinds = hec_report_kinds_of(c, first, last);
  for (int32_t i = 0; i < HEC_N_ROLES; i++) {
    double predicted_s = kinds.predicted_s[i], measured_s = kinds.measured_s[i];
    if (!(predicted_s > 0) && !(measured_s > 0))
      continue;
    HEC_ROW(doc, HEC_CELL(name), HEC_SHOW("kind", HEC_AS_IS, hec_role_name[i]),
            HEC_SHOW("predicted_s", HEC_MS, predicted_s), HEC_SHOW("measured_s", HEC_MS, measured_s),
            HEC_SHOW("error", HEC_SIGNED, measured_s > 0 ? predicted_s / measured_s - 1 : NAN));
    name = "";
  }
}

static void keep_kinds(hec_doc *doc, const hec_comparison *c, int32_t first, int32_t last) {
  hec_doc_table(doc, "kinds", NULL);
  add_kinds(doc, c, "", first, last);
  hec_doc_end(doc);
}

static void add_case(hec_doc *doc, const hec_comparison *c, int32_t i) {
  const hec_compared_case *one = &c->by_case[i];
  bool known = one->n_conclusive > 0;
  HEC_ROW(doc, HEC_SHOW("name", HEC_AS_IS, one->a_case->name), HEC_KEEP("policy", one->a_case->policy->name),
          HEC_SHOW("schedule", HEC_AS_IS, hec_report_schedule(one->a_case)),
          HEC_SHOW("predicted_s", HEC_MS, known ? one->predicted_s : NAN),
          HEC_SHOW("measured_s", HEC_MS, known ? one->measured_s : NAN),
          hec_value_interval("measured_interval", one->measured), KEEP_ERROR(&one->range, known),
          HEC_KEEP("points", one->n_points), HEC_KEEP("conclusive", one->n_conclusive));
  show_error(doc, &one->range, known);
  keep_kinds(doc, c, i, i + 1);
}

static void add_cases(hec_doc *doc, const hec_session_report *r) {
  const hec_comparison *c = of(r);
  hec_text ranking = {0};
  hec_doc_note(doc,
               "## Iterations\n\nMedians over the iterations, ms. A measurement is the median over the least "
               "disturbed of its rounds, lost time taken out, at one pace; error: |predicted / measured - 1| of the "
               "iteration's time; interval: 95 %% by resampling, of the median error.");
#define HEADS " | schedule | predicted | measured | bias | error: median | p90 | worst | interval"
  hec_doc_table(doc, "policies", r->random ? "configuration" HEADS : "policy" HEADS);
  for (int32_t i = 0; i < c->options.n_cases; i++)
    add_case(doc, c, i);
  if (doc->kind != HEC_DOC_JSON) {
    HEC_ROW(doc, HEC_CELL("**all**"), HEC_CELL(NULL), HEC_CELL(NULL), HEC_CELL(NULL));
    show_error(doc, &c->range, c->n_conclusive > 0);
  }
  hec_doc_end(doc);
  if (hec_report_add_ranking(r, "Ranking of the ", "; ", &ranking))
    hec_text_add(&ranking, ".");
  hec_doc_take(doc, &ranking);
}

/* ---- Operations ---- */

static void show_operations(hec_doc *doc, const hec_session_report *r) {
  const hec_comparison *c = of(r);
  int32_t n = c->options.n_cases;
  hec_doc_note(doc, "## Operations\n\nms of an iteration, mean over ranks and iterations, without waiting for other "
                    "ranks.");
  hec_doc_table(doc, NULL,
                r->random ? " | operation | predicted | measured | error"
                          : "policy | operation | predicted | measured | error");
  if (r->random)
    add_kinds(doc, c, "all configurations", 0, n);
  for (int32_t i = 0; i < n && !r->random; i++)
    add_kinds(doc, c, c->options.cases[i].name, i, i + 1);
  hec_doc_end(doc);
}

/* ---- The rest ---- */

static void add_control(hec_doc *doc, const hec_comparison *c, int32_t i) {
  const hec_compared_control *one = &c->controls[i];
  hec_control_verdict verdict = hec_report_control(c, i);
  const char *told = verdict == HEC_CONTROL_NOT_TRIED ? (one->n > 0 ? "too few" : "not tried")
                     : verdict == HEC_CONTROL_MISSES  ? "yes"
                                                      : "**no**";
  HEC_ROW(doc, HEC_SHOW("name", HEC_AS_IS, one->control->name), HEC_SHOW("summary", HEC_AS_IS, one->control->summary),
          HEC_SHOW("points", HEC_AS_IS, one->n), HEC_SHOW("median", HEC_PERCENT, one->n > 0 ? one->error.median : NAN),
          hec_value_interval("interval", one->median), HEC_KEEP("p90", one->n > 0 ? one->error.p90 : NAN),
          verdict == HEC_CONTROL_NOT_TRIED ? hec_value_text("failed", HEC_NOT, NULL)
                                           : HEC_KEEP("failed", (bool)(verdict == HEC_CONTROL_MISSES)),
          HEC_CELL(told));
}

/* People have them before the lists, programs behind. */
static void add_controls(hec_doc *doc, const hec_comparison *c, bool for_people) {
  if (for_people)
    hec_doc_note(
        doc,
        "## Negative controls\n\nLaws broken on purpose. Of the iterations whose prediction one changes by %g "
        "%% or more: with a law broken, the median error must be larger than the 90th percentile of the errors "
        "with the real law, %.1f %%.",
        100 * HEC_CONTROL_TERM, 100 * hec_report_claimed(c));
  else
    HEC_ADD(doc, HEC_KEEP("claimed", hec_report_claimed(c)));
  hec_doc_table(doc, for_people ? NULL : "controls",
                for_people ? "control | what it breaks | iterations | median error | told apart" : NULL);
  for (int32_t i = 0; i < c->n_controls; i++)
    add_control(doc, c, i);
  hec_doc_end(doc);
}

static void add_lists(hec_doc *doc, const hec_session_report *r) {
  hec_doc_note(doc, "## Fitted on");
  hec_doc_list(doc, "fitted");
  for (int32_t i = 0; i < hec_report_fitted(r); i++)
    HEC_ADD(doc, HEC_CELL(hec_report_fitted_name(r, i)));
  hec_doc_end(doc);
  hec_doc_note(doc, "## Predicted");
  hec_doc_list(doc, "predicted");
  for (int32_t i = 0; i < of(r)->options.n_cases; i++)
    HEC_ADD(doc, HEC_CELL(of(r)->options.cases[i].name));
  hec_doc_end(doc);
}

static void keep_order(hec_doc *doc, const hec_comparison *c) {
  bool known = c->n_pairs > 0;
  HEC_ADD(doc, HEC_KEEP("kendall_tau", c->n_right + c->n_wrong > 0 ? c->kendall_tau : NAN),
          HEC_KEEP("kendall_tau_5pct", c->ranking.pairs > 0 ? c->ranking.tau : NAN),
          HEC_KEEP("pairs_5pct", c->ranking.pairs), HEC_KEEP("wrong_5pct", c->ranking.wrong),
          HEC_OBJECT("pairs", HEC_KEEP("right", c->n_right), HEC_KEEP("wrong", c->n_wrong),
                     HEC_KEEP("too_close", c->n_not_apart)),
          HEC_OBJECT("regret", HEC_KEEP("predicted_best", known ? or_null(c->by_case[c->chosen].a_case->name) : NULL),
                     HEC_KEEP("measured_best", known ? or_null(c->by_case[c->best].a_case->name) : NULL),
                     HEC_KEEP("share", known ? c->regret : NAN),
                     HEC_KEEP("told_apart", (bool)(known && c->regret_known))));
}

static void keep_points(hec_doc *doc, const hec_comparison *c) {
  hec_doc_table(doc, "points", NULL);
  for (int32_t i = 0; i < c->n_points; i++) {
    const hec_point *p = &c->points[i];
    bool known = p->conclusive;
    HEC_ROW(doc, HEC_KEEP("case", c->options.cases[p->a_case].name), HEC_KEEP("iter", p->iter),
            HEC_KEEP("program", hec_doc_text(doc, "%016" PRIx64, p->digest)), HEC_KEEP("predicted_s", p->predicted_s),
            HEC_KEEP("measured_s", known ? p->measured_s : NAN), HEC_KEEP("uncorrected_s", known ? p->raw_s : NAN),
            HEC_KEEP("error", known ? p->predicted_s / p->measured_s - 1 : NAN),
            HEC_KEEP("spread", known ? p->spread : NAN), HEC_KEEP("clean", p->n_clean), HEC_KEEP("rounds", p->n_read),
            HEC_KEEP("conclusive", p->conclusive));
  }
  hec_doc_end(doc);
}

void hec_compare_report(const void *report, hec_doc *doc) {
  const hec_session_report *r = report;
  const hec_comparison *c = of(r);
  bool known = c->n_conclusive > 0;
  keep_head(doc, r);
  keep_calibration(doc, r);
  show_head(doc, r);
  add_cases(doc, r);
  keep_kinds(doc, c, 0, c->options.n_cases);
  HEC_ADD(doc, KEEP_ERROR(&c->range, known), HEC_OBJECT("error_uncorrected", HEC_KEEP_ERROR(c->raw, known)));
  keep_order(doc, c);
  show_operations(doc, r);
  if (known)
    add_controls(doc, c, true);
  add_lists(doc, r);
  add_controls(doc, c, false);
  HEC_ADD(doc, HEC_KEEP("disturbed", c->disturbed), HEC_KEEP("inconclusive", c->n_points - c->n_conclusive),
          HEC_KEEP("contaminated", hec_report_contaminated(r->session)));
  keep_points(doc, c);
}

void hec_compare_csv(const hec_session_report *r, hec_text *out) {
  const hec_comparison *c = of(r);
  hec_text_add(
      out,
      "case,policy,schedule,iter,predicted_s,measured_s,uncorrected_s,error,spread,clean_rounds,rounds,conclusive\n");
  for (int32_t i = 0; i < c->n_points; i++) {
    const hec_point *p = &c->points[i];
    const hec_experiment_case *one = &c->options.cases[p->a_case];
    const char *names[] = {one->name, one->policy->name, hec_report_schedule(one)};
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
