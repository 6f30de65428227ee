/* A validation session on the ranks of a launch: calibrate, then execute calibration cases and cases to be compared side by
 * side, then fit and predict.
 *
 *   1  calibration cases, one round      the machine's pace, and a first cluster that plans are made for (unless given)
 *   2  calibration cases and the others, shuffled together, n_rounds times; then those of both that too few readings
 *      count of, n_extra times at most
 *   3  on rank 0: the laws are fitted to the calibration cases of step 2 alone, and predict the others
 *
 * A machine's speed drifts by some percent within a minute; what is fitted and what is predicted from it ran in the same
 * minutes, like two runners on one track. Plans are decided before anything that is compared is measured. */
#ifndef HEC_VALIDATE_SESSION_H
#define HEC_VALIDATE_SESSION_H
#include "validate/calibrate/calibrate.h"
#include "validate/compare/compare.h"

typedef struct {
  hec_calibrate_options calibrate;
  hec_calibration_machine machine;
  const hec_cluster
      *given; /* a calibration made before: plans and predictions are for it, nothing is fitted; or NULL */
  hec_comparison_options compare;                                              /* cases; none: calibration alone */
  uint64_t seed;                                                               /* of the orders */
  void (*progress)(void *context, const char *what, int32_t done, int32_t of); /* on rank 0; NULL: none */
  void *context;
} hec_session_options;

typedef struct {
  hec_session_options options;
  hec_calibration calibration;
  hec_comparison comparison;
  hec_comparison training; /* the calibration's own cases of step 2: what pace is fitted to; not in any error */
  hec_lab lab;
  hec_arena *arena;
  const char *phase;
  bool second; /* step 2 has begun */
  double reference_s;
  hec_cluster planned, fitted; /* of steps 1 and 3 */
  char refused[512]; /* why there is no result: the machine was not quiet enough; "" otherwise; every rank's */
  hec_text preset;   /* of step 3, on rank 0: the cluster file; empty with `given` */
} hec_session;

/* The struct must not move afterwards. The cases' problems are made anew for the cluster that plans are made for. */
hec_status hec_session_open(hec_session *session, const hec_session_options *options, hec_arena *arena) HEC_MUST_USE;
size_t hec_session_bytes(hec_session *session); /* region of a rank */
/* Called by every rank, be it a process or a thread: all but rank 0 work on copies of their own. Results are rank 0's. HEC_OK with `refused`
 * set when a calibration could not be fitted: no failure of the launch, and worth trying again. */
hec_status hec_session_run(hec_session *session, hec_rank *rank) HEC_MUST_USE;
void hec_session_close(hec_session *session);

#endif
