/* How far medians of repeated readings can be trusted, when a machine disturbs some of them. Pure functions of the
 * readings: the same numbers in, the same numbers out.
 *
 * A row is what is measured again and again: one iteration of one case. A block is the rows that run together: the
 * iterations of a case. A disturbance that lasts hits all of them, so resampling draws whole executions of a block.
 *
 *   choose     which readings of a row count: those that nothing disturbed, and the least disturbed half of all. How
 *              disturbed a reading is comes from probes and lost processor time, never from the reading itself, so choosing
 *              does not pull the median. There is always something to choose, so nothing is ever refused.
 *   draw       of each block as many executions as it has, with replacement; the medians of its rows in them. Blocks are
 *              drawn independently: they ran at different moments.
 *   interval   95 % of the draws, and the same mirrored at the estimate (the "basic" bootstrap); both together hold
 *   of errors  every row's error may be anywhere in its own interval: the median of the errors lies between the median of their
 *              lower ends and that of their upper ends, and so do the other quantiles. That is wider than resampling the
 *              median itself, which would miss the truth: noise makes |error| larger, and medians of ties smaller, in
 *              the estimate as in every draw (seen in simulations: 52 % instead of 95 %).
 *
 * With few readings a bootstrap is too sure of itself (of n readings no draw leaves their range). Deviations are stretched by
 * 1 + HEC_FEW / n^3, chosen so that simulated intervals hold the truth (tests/validate/test_resample.c). That is 3.5
 * for 2 readings, 1.7 for 3, 1.2 for 5, 1.02 for 10. One reading has no interval. */
#pragma once
#include "runtime/base/arena.h"
#include "validate/stats.h"

#include <stdbool.h>

#define HEC_FEW 20.0
enum { HEC_DRAWS = 200 };

typedef struct {
  double low, high;
} hec_interval; /* both NAN: not known */
static inline bool hec_interval_known(hec_interval interval) {
  return interval.low <= interval.high;
}

/* Sets to 0 the values that do not count; `disturbance` at most 1: undisturbed. Values of 0 are no readings. At least
 * half of the readings are left, and at least three where there are as many. Ties to the earlier. */
void hec_choose_readings(const double *disturbance, int32_t n, double *value);

typedef struct {
  int32_t n_blocks, n_rounds;
  const int32_t *row_at; /* [n_blocks + 1] rows of each block */
  const double *value;   /* [rows * n_rounds] > 0; 0: none that counts */
} hec_readings;

/* Medians of all rows, as they are and drawn. A row without a reading has 0 everywhere, one with a single reading (or whose
 * block ran once) its value everywhere. */
typedef struct {
  int32_t n_rows;
  double *middle; /* [n_rows] */
  double *drawn;  /* [HEC_DRAWS * n_rows] */
  bool *known;    /* [n_rows] more than one reading */
} hec_medians;
void hec_medians_draw(const hec_readings *readings, uint64_t seed, hec_arena *arena, hec_medians *medians);

/* Rows first .. last - 1 together: how far the level of all of them is off in a draw. It is the geometric mean of what
 * each is off (of their medians: two readings have few of those).
 * Into level[HEC_DRAWS]; false: no row has two readings, and all are 1. */
bool hec_medians_level(const hec_medians *medians, int32_t first, int32_t last, double *level);
/* Half of the width of the level's interval: 0.01 is 1 %. INFINITY where it is not known. */
double hec_medians_level_half(const hec_medians *medians, int32_t first, int32_t last);
/* Half of the width of a row's own interval, the median over the rows. INFINITY where a row's is not known. */
double hec_medians_half_width(const hec_medians *medians, int32_t first, int32_t last);

/* Errors of predictions over the rows that have readings, first .. last - 1, of which `chosen` [n_rows] (NULL: all).
 * scale[HEC_DRAWS]: what all predictions are multiplied by in a draw, because the calibration that they came from was
 * measured too; NULL: 1. Estimates are those of hec_error_of. */
typedef struct {
  hec_error error;
  hec_interval median, p90, worst, bias;
} hec_error_range;
hec_error_range hec_error_range_of(const double *predicted, const hec_medians *medians, int32_t first, int32_t last,
                                   const bool *chosen, const double *scale);

/* The median over rows a[k] over the median over rows b[k], n >= 1 of each, all with readings: is one longer? They are told
 * apart when the interval of their ratio does not hold 1. */
typedef struct {
  double ratio;
  hec_interval range;
  bool apart;
} hec_contest;
hec_contest hec_contest_of(const hec_medians *medians, const int32_t *a, const int32_t *b, int32_t n);

/* From draws (sorted in place) of an estimate; all are ratios or times, above 0, and mirrored as such: twice as much beside
 * half. */
hec_interval hec_interval_of(double estimate, double *drawn, int32_t n);
