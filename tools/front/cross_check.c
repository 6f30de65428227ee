/* See cross_check.h. Every iteration is planned again, since policies learn; by the law of the rows, so the plans are theirs and
 * only the network differs. Simulated are as many as WORK_MAX allows. It counts what the fluid solver's time grows with: (row,
 * iteration, layer, pair of ranks). */
#include "tools/front/cross_check.h"

#include "runtime/base/progress.h"
#include "runtime/program/job.h"

#include <string.h>

#define WORK_MAX 1e6
#define WORK_HUGE 1e8 /* of one iteration: minutes */

/* The rows to check, the fastest first. */
static int32_t choose_rows(hec_summary *summary, int32_t row[HEC_CROSSED_MAX]) {
  int32_t best = hec_summary_winner(summary), n = 0;
  if (best < 0)
    return 0;
  double max_s = (1 + HEC_SUMMARY_NEAR) * hec_summary_median(&summary->rows[best]);
  for (int32_t i = 0; i < summary->n_rows; i++) {
    hec_summary_row *one = &summary->rows[i];
    double median_s = hec_summary_median(one);
    if (one->reference || !hec_summary_fits(summary, one) || median_s > max_s)
      continue;
    int32_t at = n < HEC_CROSSED_MAX ? n++ : n;
    for (; at > 0 && hec_summary_median(&summary->rows[row[at - 1]]) > median_s; at--)
      if (at < HEC_CROSSED_MAX)
        row[at] = row[at - 1];
    if (at < HEC_CROSSED_MAX)
      row[at] = i;
  }
  return n;
}

static int64_t every_of(const hec_job *job, const hec_summary *summary, int32_t n_rows) {
  const hec_problem *p = &job->problem;
  double iteration = (double)n_rows * (double)p->n_layers * (double)p->n_ranks * (double)p->n_ranks *
                     (double)job->micro_batches,
         n = WORK_MAX / iteration;
  if (iteration > WORK_HUGE)
    return 0;
  int64_t whole = n < 1 ? 1 : n < (double)summary->n_iterations ? (int64_t)n : summary->n_iterations;
  return (summary->n_iterations + whole - 1) / whole;
}

/* Median over the iterations that were checked. */
static double own_median_s(const hec_summary_row *row, int64_t every) {
  HEC_SCOPED(hec_series) some = {0};
  for (size_t i = 0; i < row->iteration_s.n; i += (size_t)every)
    hec_series_add(&some, row->iteration_s.value[i]);
  double median_s = hec_series_quantile(&some, 0.5);
  return median_s;
}

/* By its time under the other law; of equal ones the faster under its own. */
static void sort(hec_summary_cross *cross) {
  for (int32_t i = 1; i < cross->n; i++) {
    hec_summary_crossed one = cross->rows[i];
    int32_t k = i;
    for (; k > 0 && cross->rows[k - 1].other_s > one.other_s; k--)
      cross->rows[k] = cross->rows[k - 1];
    cross->rows[k] = one;
  }
}

hec_status hec_cross_check(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                           hec_arena *arena, hec_summary *summary) {
  int32_t row[HEC_CROSSED_MAX], n = choose_rows(summary, row);
  int64_t every = n > 1 && options->law == &hec_law_alpha_beta ? every_of(job, summary, n) : 0;
  if (every == 0)
    return HEC_OK;
  const hec_policy **policies = HEC_NEW(arena, const hec_policy *, n);
  const char **schedules = HEC_NEW(arena, const char *, n);
  for (int32_t i = 0; i < n; i++) {
    policies[i] = options->policies[row[i]];
    schedules[i] = summary->rows[row[i]].schedule;
  }
  hec_compare_options wanted = *options;
  wanted.policies = policies;
  wanted.schedules = schedules;
  wanted.n_policies = n;
  wanted.law = &hec_law_max_min;
  wanted.expected = options->law;
  wanted.every = every;
  HEC_SCOPED(hec_summary) other = {0};
  hec_progress_stage("checking the fastest under law max_min", "iterations");
  hec_status status = hec_trace_rewind(reader);
  if (status == HEC_OK)
    status = hec_compare(job, reader, &wanted, arena, &other);
  if (status == HEC_OK) {
    hec_summary_cross *cross = HEC_NEW(arena, hec_summary_cross, 1);
    *cross = (hec_summary_cross){.law = other.law, .n_iterations = other.n_iterations, .n = n};
    for (int32_t i = 0; i < n; i++)
      cross->rows[i] = (hec_summary_crossed){row[i], own_median_s(&summary->rows[row[i]], every),
                                             hec_summary_median(&other.rows[i])};
    sort(cross);
    summary->cross = cross;
  }
  return status;
}
