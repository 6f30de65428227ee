/* Predicted beside measured: cases of an experiment, every iteration of which is simulated from the same program that was
 * executed.
 *
 * A point is one iteration of one case. Readings are mended and at the reference's pace (experiment.h). Its measurement is the
 * median of those that count (resample.h). The error of the readings as they were is reported too. Its prediction is the
 * simulator's for the same iteration, planned and lowered again. That this is the program which the ranks executed in
 * every round is verified by its digest. Nothing measured on a point enters a prediction.
 *
 * Every error has an interval, by resampling. Two cases are told apart when the interval of their ratio, over the points
 * that both have, does not hold 1. Only pairs that are told apart have an order.
 *
 * When to stop: once every case's level is known within HEC_NARROW, after HEC_ROUNDS_MIN rounds, looked at between
 * rounds only. How wide an interval is says how much readings scatter. It does not say where their median lies or how
 * near it is to the prediction, which is not known yet while measuring. So stopping favours neither small errors nor
 * large ones. */
#pragma once
#include "sim/simulate.h"
#include "tools/front/timelines/timeline_format.h"
#include "validate/calibrate/samples.h"
#include "validate/compare/control.h"
#include "validate/experiment.h"
#include "validate/resample.h"

#define HEC_APART 0.05  /* pairs whose order must be kept differ by more than this share */
#define HEC_NARROW 0.01 /* half an interval */
enum { HEC_ROUNDS_MIN = 5 };

typedef struct {
  int32_t a_case;
  int64_t iter;
  uint64_t digest;                    /* of the program; 0: not executed, the time was over */
  double predicted_s, measured_s;     /* both at the reference's pace */
  double raw_s;                       /* measured, as it was */
  double spread;                      /* of the readings that count: (75th - 25th percentile) / median */
  int32_t n_read, n_clean;            /* n_clean: undisturbed */
  bool conclusive;                    /* executed at least once */
  double control_s[HEC_CONTROLS_MAX]; /* predictions under laws that are broken on purpose */
  double predicted_role_s[HEC_N_ROLES], measured_role_s[HEC_N_ROLES]; /* spans (spans.h), mean over ranks */
} hec_point;

/* What one round measured of a point. */
typedef struct {
  double total_s, raw_s; /* 0: not executed in that round */
  double role_s[HEC_N_ROLES];
  double disturbance; /* experiment.h */
} hec_round_reading;

typedef struct {
  const hec_experiment_case *a_case;
  double predicted_s, measured_s; /* medians over the points that were executed; 0 without any */
  hec_interval measured;          /* of measured_s */
  hec_error_range range;          /* over them */
  hec_error error;                /* the estimates in it */
  int32_t n_points, n_conclusive;
} hec_compared_case;

typedef struct {
  const hec_control *control;
  int32_t n;       /* points on which it makes a difference of HEC_CONTROL_TERM or more */
  hec_error error; /* of its predictions on them */
  hec_interval median;
} hec_compared_control;

/* What is drawn: one iteration of a case, as the last round measured it. */
typedef struct {
  hec_timeline measured;
} hec_drawn;

typedef struct {
  hec_experiment_case *cases; /* [n_cases] */
  int32_t n_cases, n_rounds;  /* rounds at most */
  uint64_t seed;              /* of resampling */
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
  hec_round_reading *readings; /* [n_points][n_rounds] */
  hec_drawn *drawn;            /* [n_cases] */
  hec_spans spans;
  hec_arena *arena;
  /* After hec_comparison_finish: */
  hec_medians medians;        /* of the points */
  hec_compared_case *by_case; /* [n_cases] */
  hec_error_range range;      /* over all points that were executed */
  hec_error error;            /* the estimates in it */
  hec_error raw;              /* the same with readings as they were, whatever the pace */
  int32_t n_ranked, n_pairs;  /* cases with an executed point; pairs of cases that have one in common and did not
                               * execute the same programs there. Without any, no order was tested */
  double kendall_tau;         /* of the pairs that are told apart, by their medians over the points that both have */
  struct {
    int32_t pairs, wrong;
    double tau;                          /* (right - wrong) / pairs; 1: there are none */
  } ranking;                             /* the same over those more than HEC_APART apart */
  int32_t n_right, n_wrong, n_not_apart; /* all pairs */
  double regret;                         /* measured: the case that is predicted best over the one that is best, - 1 */
  int32_t chosen, best;                  /* the two, of by_case; no meaning without a pair */
  bool regret_known;                     /* they are told apart, or one and the same */
  hec_compared_control controls[HEC_CONTROLS_MAX];
  int32_t n_controls, n_conclusive;
  int32_t n_read, n_min, n_max; /* readings of all points; of the points that have fewest and most */
  double disturbed;             /* share of the readings that were disturbed */
  hec_text events;              /* the timelines, predicted above measured: one file, or all that were packed */
} hec_comparison;

void hec_comparison_open(hec_comparison *comparison, const hec_comparison_options *options, hec_arena *arena);
/* On rank 0: one iteration of case reading->a_case; asserts that its program is that of earlier rounds. */
void hec_comparison_add(hec_comparison *comparison, const hec_experiment_reading *reading,
                        const hec_replayed *iteration);
/* On rank 0, at any time: half the width of the interval of the case that is known least. */
double hec_comparison_half_width(const hec_comparison *comparison);
/* The same of the level of all cases together. */
double hec_comparison_level_half(const hec_comparison *comparison);
/* On rank 0, after all rounds: predicts every point for the cluster, then compares. scale[HEC_DRAWS]: how far the cluster's
 * level may be off (resample.h); NULL: it is known. HEC_FAILED when an iteration planned again is not the one that was
 * executed. */
hec_status hec_comparison_finish(hec_comparison *comparison, const hec_cluster *cluster,
                                 const double *scale) HEC_MUST_USE;
void hec_comparison_close(hec_comparison *comparison);
