/* What a session found, for people and for programs. Rank 0's, after hec_session_run.
 *
 * error      |predicted / measured - 1| of a point (compare.h), whose measurement is put at one pace of the cores;
 *            uncorrected: of the readings as they were; bias: its median with the sign
 * interval   95 % by resampling (resample.h); null where there is only one reading
 *   claimed    what a broken law must miss by: the error that 9 of 10 points of this very comparison are within
 *              (hec_report_claimed). A negative control (control.h) is there to fail. It "failed" when its median
 *              error, over the points where it makes a difference, is above that. With fewer than HEC_CONTROL_MIN such
 *              points it was not tried.
 * pairs      of cases, by their medians: too_close are those not told apart (compare.h), which count in no tau and no order;
 *            regret: what the case that is predicted best takes more, measured, than the best
 * disturbed  share of the iterations in which a rank lost its processor or a core was slower than before
 * contaminated  more than HEC_CONTAMINATED_MAX of the calibration's or the comparison's iterations were disturbed
 *
 * The JSON of compare (DESIGN section 10): seconds and shares, null for what is not known.
 *     {"version": 1, "tool", "command", "date", "machine": {"cpu", "cores", "blas", "backend", "transport", "virtual"},
 *      "model", "ranks", "tokens", "phase", "law", "seed", "rounds", "rounds_most", "within_s", "seconds", "time_over",
 *      "trace", "random", "layout" (of pipeline stages; a policy's schedule is then the pipeline's), "limits": [...], "defaults_taken": [...],
 *      "calibration": {"file", "iterations", "disturbed", "contaminated", "speed", "level_within",
 *                      "exchange": {"a_s", "b"}, "plan": {"a_s", "b_s"}},
 *      "policies": [{"name", "policy", "schedule", "predicted_s", "measured_s", "measured_interval": [low, high],
 *                    "error": {"median", "p90", "worst", "bias", "interval", "p90_interval", "worst_interval",
 *                              "bias_interval"},
 *                    "points", "conclusive", "kinds": [{"kind", "predicted_s", "measured_s", "error"}]}],
 *      "kinds": [as above, over all], "error": as a policy's, "error_uncorrected": {"median", "p90", "worst", "bias"},
 *      "kendall_tau", "kendall_tau_5pct", "pairs_5pct", "wrong_5pct",
 *      "pairs": {"right", "wrong", "too_close"},
 *      "regret": {"predicted_best", "measured_best", "share", "told_apart"}, "fitted": [...], "predicted": [...],
 *      "claimed", "controls": [{"name", "summary", "points", "median", "interval", "p90", "failed"}],
 *      "disturbed", "inconclusive", "contaminated",
 *      "points": [{"case", "iter", "program", "predicted_s", "measured_s", "uncorrected_s", "error", "spread",
 *                  "clean", "rounds", "conclusive"}]}
 * "rounds": of the point with fewest readings, "rounds_most": with most; a point: "clean" of "rounds" undisturbed,
 * "conclusive" when it was executed. */
#pragma once
#include "tools/front/summary/summary_write.h"
#include "validate/doc.h"
#include "validate/session.h"

enum { HEC_CONTROL_MIN = 3 };

typedef struct {
  const hec_session *session;
  const hec_summary *head; /* tool, trace, law, job, execution: what ran where */
  bool random;             /* the cases are random configurations, not policies on a trace */
  const char *layout;      /* of pipeline stages; NULL: there are none */
  const char *command;     /* the command line; NULL: none is shown */
  const char *stamp;       /* a line for the Markdown's head; or NULL */
  /* Of a calibration made before (session given): its file, what it says of itself, its cases; else NULL. */
  const char *given_file, *given_summary;
  const char *const *given_cases; /* [n_given_cases] */
  int32_t n_given_cases;
} hec_session_report;

void hec_calibrate_text(const hec_session_report *report, hec_text *out);
hec_doc_report hec_compare_report;                                      /* of a hec_session_report */
void hec_compare_page(const hec_session_report *report, hec_text *out); /* HTML: tools/front/page/report.h */
void hec_compare_csv(const hec_session_report *report, hec_text *out);  /* one line per point */

/* ---- What the forms share ---- */

/* Seconds per iteration of each role (spans, mean over ranks), mean over the conclusive points of cases first .. last.
 * */
typedef struct {
  double predicted_s[HEC_N_ROLES], measured_s[HEC_N_ROLES];
  int32_t n; /* points */
} hec_report_kinds;
hec_report_kinds hec_report_kinds_of(const hec_comparison *comparison, int32_t first, int32_t last);

double hec_report_claimed(const hec_comparison *comparison); /* NAN without a conclusive point */
typedef enum { HEC_CONTROL_NOT_TRIED, HEC_CONTROL_MISSES, HEC_CONTROL_PASSES } hec_control_verdict;
hec_control_verdict hec_report_control(const hec_comparison *comparison, int32_t control);
bool hec_report_contaminated(const hec_session *session);
const char *hec_report_schedule(const hec_experiment_case *one);
/* What the laws were fitted on: cases of this session, or those that a calibration made before lists. */
int32_t hec_report_fitted(const hec_session_report *report);
const char *hec_report_fitted_name(const hec_session_report *report, int32_t i);
/* Lines without an end: where the laws come from; what was disturbed; what correcting for pace changes. Then the
 * verdict, whole lines. */
void hec_report_add_source(const hec_session_report *report, hec_text *out);
void hec_report_add_rounds(const hec_session_report *report, hec_text *out);
void hec_report_add_disturbed(const hec_session_report *report, hec_text *out);
void hec_report_add_pace(const hec_session_report *report, hec_text *out);
/* Kendall's tau, pairs, regret: after `begin`, with `next` between them and no end. False: nothing to rank. */
bool hec_report_add_ranking(const hec_session_report *report, const char *begin, const char *next, hec_text *out);
void hec_report_add_verdict(const hec_session_report *report, hec_text *out);
void hec_report_add_interval(hec_text *out, hec_interval interval); /* "[0.8, 1.3 %]" */
