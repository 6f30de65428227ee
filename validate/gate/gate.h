/* The regression gate: does hecate still predict what this machine does, and would it be noticed if it did not?
 *
 *   1  stored predictions    On a cluster that is committed every configuration must be predicted to take what the file
 *                            says, to 1e-9. Needs no measurement and no luck: any change of a law, a policy or the
 *                            lowering shows, meant or not; one that is meant is written down with --update.
 *   2  measured              One session on this machine (session.h), the laws fitted in it. Errors and order must be
 *                            within the bands. So must they on each group of configurations where one of the controls
 *                            matters: where the term that the control breaks is 5 % of the iteration or more.
 *   3  controls              A law that is broken on purpose must fail on its group. If it does not, or the group is too
 *                            small, the gate could not have told: it does not count, which is a failure.
 *
 * 2 and 3 compare times of one session with each other, so they hold on any machine; only 1 knows another machine's.
 *
 * Every number of 2 and 3 has an interval (resample.h). It is within its band when the whole interval is, outside when
 * the whole interval is; between the two it is not decided. The gate fails when a number is outside, and passes when
 * all are within. Else it is skipped, with the intervals that were reached: more time would make them narrower. So a
 * single disturbed reading decides nothing. A machine that was disturbed in more than half of the iterations convicts
 * nobody. What disturbs them need not be what disturbed the calibration. So a number outside its band makes it skipped,
 * and what is within counts.
 * None of this looks at the sign of an error or at which law is judged, so a wrong law cannot excuse itself.
 *
 * Broken laws stand in for the predictions of 2 (hec_gate_judge, `broken`) after everything was fitted under the real
 * one, on the same session. So the difference is the law alone. */
#pragma once
#include "validate/doc.h"
#include "validate/gate/gate_cases.h"
#include "validate/session.h"

/* Share of the iterations, of the cases' or of the calibration's, above which nothing fails. */
#define HEC_GATE_DISTURBED 0.5

/* What one session gave. */
typedef struct {
  int32_t a_case, step;
  bool executed;
  double predicted_s, measured_s, control_s[HEC_CONTROLS_MAX];
} hec_gate_point;

typedef struct {
  double disturbed, calibrated; /* shares of disturbed iterations: of the cases, of the calibration */
  double seconds;               /* that measuring took */
  int32_t n_points, n_rounds;   /* rounds: of the point with fewest readings */
  hec_gate_point *points;       /* [n_points] */
  hec_medians medians;          /* of the points */
  const double *scale;          /* [HEC_DRAWS] or NULL (session.h) */
} hec_gate_run;

typedef enum { HEC_GATE_PASSED, HEC_GATE_FAILED, HEC_GATE_NOISY } hec_gate_verdict;
extern const char *const hec_gate_verdict_name[]; /* "passed", "failed", "skipped: noisy" */

typedef struct {
  int32_t n, n_executed;            /* points where it matters */
  hec_error_range error, predicted; /* of the control and of the prediction that is judged, on them */
  bool rejected;                    /* the control is outside the band for sure */
} hec_gate_control;

typedef struct {
  hec_gate_verdict verdict;
  bool outside;               /* a number is outside its band, whether or not the machine lets that count */
  hec_text failed, undecided; /* sentences, separated by "; " */
  const char *why;            /* of the verdict; "" when passed */
  int32_t n_points, n_executed;
  hec_error_range error;
  int32_t n_pairs, n_wrong; /* told apart, and more than HEC_APART apart */
  hec_gate_control controls[HEC_CONTROLS_MAX];
} hec_gate_judgement;

/* How many points each control matters on by the stored law, and whether that is enough: HEC_FAILED, an error of ours. */
hec_status hec_gate_check_groups(const hec_gate_file *file, const hec_gate_prediction *predictions) HEC_MUST_USE;
/* 1: how far a prediction moved from the stored one, its largest relative change; infinite where none is stored. */
double hec_gate_moved(const hec_gate_prediction *now, const hec_gate_prediction *stored);
/* HEC_FAILED names how many predictions moved and the worst; also where there are none. */
hec_status hec_gate_check_stored(const hec_gate_file *file, const hec_gate_prediction *predictions) HEC_MUST_USE;
/* 2 and 3. broken: index of the control whose law stands for the prediction, -1: none. Free with hec_gate_release. */
void hec_gate_judge(const hec_gate_bands *bands, const hec_gate_run *run, int32_t broken, hec_gate_judgement *out);
void hec_gate_release(hec_gate_judgement *judgement);

/* Points of a finished session whose cases are the file's. points: the arena's; medians and scale: the session's. */
void hec_gate_take(const hec_session *session, hec_arena *arena, hec_gate_run *run);

/* ---- Reports ---- */

typedef struct {
  const hec_gate_file *file;
  const char *cpu, *blas, *transport, *stamp; /* stamp NULL: none */
  hec_gate_verdict verdict;
  const char *why; /* "" when passed */
  int32_t broken;  /* as judged */
  const hec_gate_run *run;
  const hec_gate_judgement *judgement;
  int32_t n_broken; /* self-test: broken laws judged on the same session, in the controls' order */
  const hec_gate_judgement *of_broken;
} hec_gate_report;

/* Of a hec_gate_report:
 * {"version", "verdict", "why", "seconds", "rounds", "broken", "machine": {...}, "points", "conclusive", "disturbed",
 *  "calibration": {"disturbed"}, "error": {...}, "order": {"pairs", "wrong"},
 *  "controls": [{"name", "points", "conclusive", "control": {...}, "predicted": {...}, "failed"}],
 *  "self_test": [{"broken", "verdict", "why"}], "rows": [{"case", "step", "predicted_s", "measured_s", "error",
 *  "conclusive"}]}; an error: {"n", "median", "p90", "worst", "bias", "interval", "p90_interval"}; conclusive: executed */
hec_doc_report hec_gate_report_measured;

/* Of 1 alone. */
typedef struct {
  const hec_gate_file *file;
  const hec_gate_prediction *now; /* [n_cases * n_steps] */
  const char *stamp;              /* NULL: none */
  const char *why;                /* what hec_gate_check_stored said; "" when passed */
} hec_gate_stored_report;

/* Of a hec_gate_stored_report:
 * {"version", "verdict", "why", "stamp", "cluster", "predictions", "moved_most", "rows": [{"case", "step", "predicted_s",
 *  "stored_s", "trained_s", "stored_trained_s", "moved"}]}; null: none stored; "moved" is over the controls, too */
hec_doc_report hec_gate_report_stored;
