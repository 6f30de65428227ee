/* Predicted beside measured: cases of a lab, every iteration of which is simulated from the same program that was
 * executed.
 *
 * A point is one iteration of one case. Its measurement is the median over the rounds that nothing disturbed (lab.h); a
 * point with fewer than HEC_CLEAN_LEAST of them (or than half of the rounds, if that is less) is inconclusive: shown,
 * counted, in no error. A case is settled when more than half of its points are conclusive. Readings are put at pace 1 (lab.h) by what the simulator says that pace makes of the iteration;
 * the error without that is reported too. Its prediction is the simulator's for the same iteration, planned and lowered again; that this is
 * the program which the ranks executed in every round is verified by its digest. Nothing measured on a point enters a
 * prediction.
 *
 * A round's reading of a case is the median over its conclusive points of reading / the point's measurement, times the
 * case's measured_s. Two cases are too close to tell apart when the middle halves of their rounds
 * overlap, or one has fewer than two rounds. */
#ifndef HEC_VALIDATE_COMPARE_H
#define HEC_VALIDATE_COMPARE_H
#include "runtime/program/timeline_format.h"
#include "sim/simulate.h"
#include "validate/calibrate/samples.h"
#include "validate/compare/control.h"
#include "validate/lab.h"
#include "validate/stats.h"

enum { HEC_CLEAN_LEAST = 5 };
#define HEC_APART 0.05 /* pairs whose order must be kept differ by more than this share */

typedef struct {
  int32_t a_case;
  int64_t iter;
  uint64_t digest;                /* of the program */
  double predicted_s, measured_s; /* both at pace 1 */
  double slower_s;                /* predicted for cores of HEC_PACE_TRIED of the speed: what pace makes of it */
  double raw_s;                   /* measured, whatever the pace was */
  double spread;                  /* of the rounds that count: (75th - 25th percentile) / median */
  int32_t n_read, n_clean;
  bool conclusive;
  double control_s[HEC_CONTROLS_MAX]; /* predictions under laws that are broken on purpose */
  double predicted_role_s[HEC_N_ROLES], measured_role_s[HEC_N_ROLES]; /* spans (spans.h), mean over ranks */
} hec_point;

/* What one round measured of a point. */
typedef struct {
  double total_s, pace; /* 0: not executed in that round */
  double role_s[HEC_N_ROLES];
  bool clean;
} hec_round_reading;

typedef struct {
  const hec_lab_case *a_case;
  double predicted_s, measured_s; /* medians over the conclusive points; 0 without any */
  double low_s, high_s;           /* the middle half of the rounds (above); 0 and infinity with fewer than two */
  hec_error error;                /* over them */
  double predicted_role_s[HEC_N_ROLES], measured_role_s[HEC_N_ROLES]; /* means over them */
  int32_t n_points, n_conclusive;
} hec_compared_case;

typedef struct {
  const hec_control *control;
  int32_t n;       /* points on which it makes a difference of HEC_CONTROL_TERM or more */
  hec_error error; /* of its predictions on them */
} hec_compared_control;

/* What is drawn: one iteration of a case, as the last round measured it. */
typedef struct {
  hec_timeline measured;
} hec_drawn;

typedef struct {
  hec_lab_case *cases; /* [n_cases] */
  int32_t n_cases, n_rounds;
  int32_t n_extra; /* rounds of cases that were not settled, at most */
  const hec_collective *collective;
  const hec_law *law;
  const hec_timeline_format *timelines; /* of what is drawn; NULL: nothing is */
  /* Of timelines in files of ranks: adds one to `text` (a hec_text). */
  hec_status (*pack)(void *text, const char *folder, int32_t rank, const hec_text *file);
} hec_comparison_options;

typedef struct {
  hec_comparison_options options;
  hec_point *points; /* [n_points] case by case, iteration by iteration */
  int32_t *point_at; /* [n_cases + 1] */
  int32_t n_points;
  hec_round_reading *readings; /* [n_points][n_rounds + n_extra] */
  hec_drawn *drawn;            /* [n_cases] */
  hec_spans spans;
  hec_arena *arena;
  /* After hec_comparison_finish: */
  hec_compared_case *by_case; /* [n_cases] */
  hec_error error;            /* over all conclusive points */
  hec_error raw;              /* the same with readings as they were, whatever the pace */
  int32_t n_ranked, n_pairs;  /* cases with a conclusive point; pairs of cases that have one in common and did not
                               * execute the same programs there: without any, no order was tested */
  double kendall_tau;         /* of these pairs, by their medians over the points that are conclusive in both */
  hec_ranking ranking;        /* the same over pairs more than HEC_APART apart */
  hec_pairs pairs;            /* all pairs; too close: see above */
  double regret;              /* measured: the case that is predicted best over the one that is best, - 1 */
  int32_t chosen, best;       /* the two, of by_case; no meaning without a pair */
  hec_compared_control controls[HEC_CONTROLS_MAX];
  int32_t n_controls, n_conclusive;
  int32_t n_read, n_most; /* readings of all points; of the point that has most */
  double disturbed;       /* share of the readings that were left out */
  hec_text events;        /* the timelines, predicted above measured: one file, or all that were packed */
} hec_comparison;

void hec_comparison_open(hec_comparison *comparison, const hec_comparison_options *options, hec_arena *arena);
/* On rank 0: one iteration of case reading->a_case; asserts that its program is that of earlier rounds. */
void hec_comparison_add(hec_comparison *comparison, const hec_lab_reading *reading, const hec_replayed *iteration);
/* On rank 0, at any time. */
bool hec_comparison_settled(const hec_comparison *comparison, int32_t a_case);
/* Readings of a point, by round; their number. */
const hec_round_reading *hec_comparison_readings(const hec_comparison *comparison, int32_t point, int32_t *n);
/* On rank 0, after all rounds: predicts every point for the cluster, then compares. HEC_FAILED when an iteration planned
 * again is not the one that was executed. */
hec_status hec_comparison_finish(hec_comparison *comparison, const hec_cluster *cluster) HEC_MUST_USE;
void hec_comparison_close(hec_comparison *comparison);

#endif
