/* Summaries: medians and quantiles over iterations, means weighted by the stride between records, ratios of medians. */
#include "runtime/program/summary.h"
#include "runtime/base/quantile.h"
#include "runtime/plan/rates.h"
#include "runtime/program/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hec_series_add(hec_series *series, double value) {
  HEC_RESERVE(series->value, series->capacity, series->n + 1);
  series->value[series->n++] = value;
}

void hec_series_free(hec_series *series) {
  free(series->value);
  free(series->sorted);
  *series = (hec_series){0};
}

double hec_series_quantile(hec_series *series, double q) {
  if (series->n == 0)
    return 0;
  if (series->n_sorted != series->n) {
    HEC_RESERVE(series->sorted, series->sorted_capacity, series->n);
    memcpy(series->sorted, series->value, series->n * sizeof *series->value);
    hec_values_sort(series->sorted, (int64_t)series->n);
    series->n_sorted = series->n;
  }
  return hec_values_quantile(series->sorted, (int64_t)series->n, q);
}

static double weigh(double all, double ordinary, int64_t stride) {
  return (double)stride * ordinary + (all - ordinary);
}

void hec_summary_add(hec_summary_row *row, const hec_breakdown *all, const hec_breakdown *ordinary, int64_t stride) {
  hec_series_add(&row->iteration_s, all->total_s);
  row->stride += (double)stride;
  row->weighted_s += weigh(all->total_s, ordinary->total_s, stride);
  for (int32_t i = 0; i < HEC_N_BOOKS; i++)
    row->book_s[i] += weigh(all->book_s[i], ordinary->book_s[i], stride);
  row->wait_s += weigh(all->wait_s, ordinary->wait_s, stride);
  row->skew_s += weigh(all->skew_s, ordinary->skew_s, stride);
  row->sparse_s += weigh(all->sparse_s, ordinary->sparse_s, stride);
  for (int32_t i = 0; i < HEC_N_ROLES; i++)
    if (hec_role_is_sparse((hec_role)i))
      row->exposed_sparse_s += weigh(all->role_s[i], ordinary->role_s[i], stride);
  row->n++;
}

void hec_summary_add_traffic(hec_summary_row *row, const double ordinary[HEC_N_TRAFFIC],
                             const double one_off[HEC_N_TRAFFIC], int64_t stride) {
  for (int32_t k = 0; k < HEC_N_TRAFFIC; k++)
    row->traffic[k] += (double)stride * ordinary[k] + one_off[k];
}

double hec_summary_median(hec_summary_row *row) {
  return hec_series_quantile(&row->iteration_s, 0.5);
}

double hec_summary_vs_bound(hec_summary_row *row) {
  double bound_s = hec_series_quantile(&row->bound_s, 0.5);
  return bound_s > 0 ? hec_summary_median(row) / bound_s : NAN;
}

double hec_summary_spread(hec_summary_row *row) {
  if (row->iteration_s.n < 2)
    return NAN;
  double median = hec_summary_median(row),
         wide = hec_series_quantile(&row->iteration_s, 0.75) - hec_series_quantile(&row->iteration_s, 0.25);
  return median > 0 ? wide / median : 0;
}

double hec_summary_per_iteration(const hec_summary_row *row, double sum) {
  return row->stride > 0 ? sum / row->stride : 0;
}

double hec_summary_mean(const hec_summary_row *row) {
  return hec_summary_per_iteration(row, row->weighted_s);
}

int32_t hec_summary_baseline(const hec_summary *summary) {
  for (int32_t i = 0; i < summary->n_rows; i++)
    if (summary->rows[i].baseline)
      return i;
  return -1;
}

double hec_summary_vs_baseline(hec_summary *summary, int32_t row) {
  int32_t i = hec_summary_baseline(summary);
  return i < 0 ? NAN : hec_summary_median(&summary->rows[i]) / hec_summary_median(&summary->rows[row]);
}

int32_t hec_summary_placed(const hec_summary *summary) {
  for (int32_t i = 0; i < summary->n_rows; i++)
    if (summary->rows[i].placed)
      return i;
  return -1;
}

double hec_summary_vs_placed(hec_summary *summary, int32_t row) {
  int32_t i = hec_summary_placed(summary);
  return i < 0 ? NAN : hec_summary_median(&summary->rows[i]) / hec_summary_median(&summary->rows[row]);
}

int32_t hec_summary_fastest_rearranging(hec_summary *summary) {
  int32_t best = -1;
  for (int32_t i = 0; i < summary->n_rows; i++)
    if (summary->rows[i].rearranges &&
        (best < 0 || hec_summary_median(&summary->rows[i]) < hec_summary_median(&summary->rows[best])))
      best = i;
  return best;
}

double hec_summary_vs_rearrangement(hec_summary *summary, int32_t row) {
  int32_t best = hec_summary_fastest_rearranging(summary);
  return best < 0 ? NAN : hec_summary_median(&summary->rows[best]) / hec_summary_median(&summary->rows[row]);
}

double hec_summary_memory(const hec_summary *summary) {
  const hec_device *devices = summary->job->cluster.devices;
  double min = devices[0].memory_bytes;
  for (int32_t r = 1; r < summary->job->problem.n_ranks; r++)
    min = devices[r].memory_bytes < min ? devices[r].memory_bytes : min;
  return min;
}

bool hec_summary_fits(const hec_summary *summary, const hec_summary_row *row) {
  return row->peak_bytes <= hec_summary_memory(summary);
}

#define VALUE_NAME(id, column, group, key, value) {column, group, key},
const hec_summary_value_name hec_summary_value_names[HEC_N_SUMMARY_VALUES] = {HEC_SUMMARY_VALUE_LIST(VALUE_NAME)};

#define VALUE_OF(id, column, group, key, value)                                                                        \
  case HEC_VALUE_##id:                                                                                                 \
    return value;
double hec_summary_value_of(hec_summary *summary, int32_t i, hec_summary_value value) {
  hec_summary_row *row = &summary->rows[i];
  switch (value) {
    HEC_SUMMARY_VALUE_LIST(VALUE_OF)
  default:
    return NAN;
  }
}

int32_t hec_summary_winner(hec_summary *summary) {
  int32_t best = -1;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    hec_summary_row *row = &summary->rows[i];
    if (row->reference || !hec_summary_fits(summary, row))
      continue;
    if (best < 0 || hec_summary_median(row) < hec_summary_median(&summary->rows[best]))
      best = i;
  }
  return best;
}

bool hec_summary_cross_agrees(const hec_summary_cross *cross) {
  for (int32_t i = 1; i < cross->n; i++)
    if (cross->rows[i].own_s < cross->rows[i - 1].own_s)
      return false;
  return true;
}

/* ---- Attention ---- */

double hec_summary_hidden(double sparse_s, double exposed_sparse_s) {
  double hidden = 1 - exposed_sparse_s / sparse_s;
  return !(sparse_s > 0) ? NAN : hidden > 0 ? hidden : 0; /* sums of the same terms in another order: -1e-16 */
}

double hec_summary_reach_bytes(const hec_problem *problem) {
  return problem->window_s * hec_rates_of(problem).node;
}

hec_summary_attention hec_summary_attention_of(hec_summary *summary, hec_arena *arena) {
  const hec_problem *problem = &summary->job->problem;
  const hec_moe *moe = problem->moe;
  hec_summary_attention of = {.context = hec_moe_context(moe, false),
                              .window_s = problem->window_s,
                              .dense_window_s = hec_moe_n_dense_attention(moe, true) > 0 ? problem->dense_window_s : 0,
                              .reach_bytes = hec_summary_reach_bytes(problem),
                              .rows = HEC_NEW(arena, hec_summary_attention_row, summary->n_rows)};
  HEC_SCOPED(hec_text) kind = {0};
  hec_attention_write(moe->attention, moe->s2, moe->n_heads, &kind);
  (void)snprintf(of.kind, sizeof of.kind, "%s", kind.data);
  for (int32_t i = 0; i < summary->n_rows; i++) {
    hec_summary_row *row = &summary->rows[i];
    double per = row->stride > 0 ? 1 / row->stride : 0;
    of.rows[i] = (hec_summary_attention_row){.name = row->label,
                                             .iteration_s = hec_summary_median(row),
                                             .sparse_s = per * row->sparse_s,
                                             .exposed_sparse_s = per * row->exposed_sparse_s,
                                             .t_min = row->t_min,
                                             .t_max = row->t_max};
  }
  return of;
}
