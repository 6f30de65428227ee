/* What a run says about each policy, and how it is written. Simulator and runtime use the same. */
#ifndef HEC_PROGRAM_SUMMARY_H
#define HEC_PROGRAM_SUMMARY_H
#include "runtime/program/job.h"
#include "runtime/program/timeline.h"

/* Growing list of numbers, one per iteration (or per iteration and layer). */
typedef struct {
  double *value; /* [n] in the order they were added */
  size_t n, capacity;
  double *sorted; /* [n_sorted] made when a quantile is asked for */
  size_t n_sorted, sorted_capacity;
} hec_series;
void hec_series_add(hec_series *series, double value);
void hec_series_free(hec_series *series);
/* Quantile q in 0..1 by linear interpolation between order statistics (rank q*(n-1)). 0 when empty. */
double hec_series_quantile(hec_series *series, double q);

/* One policy over the reported iterations. */
typedef struct {
  const char *name, *schedule;
  bool reference;                     /* no system but a reference row (ideal, ep-balanced) */
  bool baseline, rearrangement;       /* the row others are compared to; counts as a rearrangement system */
  hec_series iteration_s;             /* per iteration, one-off costs included */
  hec_series overload;                /* per (iteration, micro-batch, layer) */
  double weighted_s, stride;          /* sums for the mean: stride * ordinary + one-off; stride */
  double book_s[HEC_N_BOOKS], wait_s; /* sums over iterations */
  double traffic[HEC_N_TRAFFIC];
  double peak_bytes; /* fullest rank, worst iteration */
  double peak_class[HEC_N_MEMORY];
  int32_t t_least, t_most, m_least, m_most; /* FSSDP; -1: none */
  int64_t n;                                /* iterations reported */
  int64_t n_migrations;
} hec_summary_row;

typedef struct {
  const hec_job *job;
  const char *tool, *trace, *law; /* trace: its path as given */
  const char *not_modelled;       /* by the network law */
  hec_summary_row *rows;          /* [n_rows] */
  int32_t n_rows;
  int64_t n_iterations; /* reported */
} hec_summary;

/* Adds one iteration: all of it, and what it would have been without its one-off operations (the same when there are
 * none). Everything but the series counts stride * ordinary + one-off, so that the parts of a row add up to its mean.
 */
void hec_summary_add(hec_summary_row *row, const hec_breakdown *all, const hec_breakdown *ordinary, int64_t stride);
void hec_summary_add_traffic(hec_summary_row *row, const double ordinary[HEC_N_TRAFFIC],
                             const double one_off[HEC_N_TRAFFIC], int64_t stride);

double hec_summary_median(hec_summary_row *row);
double hec_summary_mean(const hec_summary_row *row);
double hec_summary_vs_baseline(hec_summary *summary, int32_t row);      /* ratio of medians; NAN without a baseline */
double hec_summary_vs_rearrangement(hec_summary *summary, int32_t row); /* NAN when no rearrangement system ran */
int32_t hec_summary_best_rearrangement(hec_summary *summary);           /* its row; -1: none ran */
double hec_summary_memory(const hec_summary *summary);                  /* bytes of the smallest device in use */
bool hec_summary_fits(const hec_summary *summary, const hec_summary_row *row);

void hec_summary_table(hec_summary *summary, hec_text *out); /* for people */
void hec_summary_json(hec_summary *summary, hec_text *out);  /* DESIGN section 10, "sim" */
void hec_summary_csv(hec_summary *summary, hec_text *out);

#endif
