/* A validation session on the ranks of a launch. Calibrate, then execute calibration cases and cases to be compared
 * side by side, then fit and predict.
 *
 *   0  between hosts: exchanges that grow    the links (links.h), unless a calibration is given
 *   1  calibration cases, one round      the reference's pace, and a first cluster that plans are made for (unless given)
 *   2  the cases that are compared, in every round, each beside a calibration case, which take turns; round after round, until
 *      every case is known well enough (compare.h) or the time is over
 *   3  on rank 0: the laws are fitted to the calibration cases of steps 1 and 2, and predict the others
 *
 * A machine's speed drifts by some percent within a minute. What is fitted and what is predicted from it ran in the
 * same minutes, side by side. Each was put at the pace of the probes around it. Plans are decided before anything that
 * is compared is measured. Whatever the machine did meanwhile, there is a result, and intervals that say how far it can
 * be trusted. */
#pragma once
#include "validate/calibrate/calibrate.h"
#include "validate/compare/compare.h"

typedef struct {
  hec_calibrate_options calibrate;
  hec_calibration_machine machine;
  const hec_cluster
      *given;           /* a calibration made before: plans and predictions are for it, nothing is fitted; or NULL */
  double given_probe_s; /* the probe's time at its pace; 0: not known */
  hec_comparison_options compare; /* cases; none: calibration alone */
  uint64_t seed;                  /* of the orders */
  /* Step 2 ends so that all is done `within_s` after the start, if step 1 is by then; 0: after compare.n_rounds rounds. */
  double within_s;
  bool every_round; /* no early stop: all rounds that there is time for */
  /* On rank 0. Seconds of any clock that never goes back; NULL: the machine's. */
  double (*now_s)(void *context);
  /* On rank 0, before a case runs: how many have run, and for how long measuring goes on at most. NULL: none. */
  void (*progress)(void *context, const char *what, int32_t done, double left_s);
  void *context;
} hec_session_options;

typedef struct {
  hec_session_options options;
  hec_calibration calibration;
  hec_comparison comparison;
  hec_comparison training; /* the calibration's own cases: what pace is fitted to; not in any error */
  hec_experiment experiment;
  hec_arena *arena;
  const char *phase;
  bool second;              /* step 2 has begun */
  double start_s, second_s; /* when the session began, and its step 2 */
  int32_t n_run;            /* cases, of the step */
  bool time_over;           /* what ended step 2, rather than narrow intervals or all rounds done */
  double seconds;           /* that measuring took */
  const double *scale;      /* [HEC_DRAWS] how far what predicts is off altogether, in draws; NULL: not known */
  double reference_s;
  hec_cluster planned, fitted; /* of steps 1 and 3 */
  hec_text preset;             /* of step 3, on rank 0: the cluster file; empty with `given` */
} hec_session;

/* The struct must not move afterwards. The cases' problems are made anew for the cluster that plans are made for. */
hec_status hec_session_open(hec_session *session, const hec_session_options *options, hec_arena *arena) HEC_MUST_USE;
size_t hec_session_bytes(hec_session *session); /* region of a rank */
/* Called by every rank, be it a process or a thread: all but rank 0 work on copies of their own. Results are rank 0's. */
hec_status hec_session_run(hec_session *session, hec_rank *rank) HEC_MUST_USE;
void hec_session_close(hec_session *session);
