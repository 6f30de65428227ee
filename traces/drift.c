/* Ring of the last records; each keeps its deviations from the mean, so a correlation is one dot product:
 *   r = sum_e (x_e - mean x)(y_e - mean y) / sqrt(sum_e (x_e - mean x)^2 * sum_e (y_e - mean y)^2)
 *   tvd = 1/2 sum_e |x_e / sum x - y_e / sum y|
 * O(lags * layers * experts) per record. */
#include "traces/drift.h"

#include "runtime/base/status.h"

#include <math.h>

hec_drift hec_drift_new(hec_arena *arena, int32_t n_layers, int32_t n_experts, const int32_t *lags, int32_t n_lags) {
  HEC_ASSERT(n_lags <= HEC_DRIFT_LAGS);
  hec_drift drift = {.n_layers = n_layers, .n_experts = n_experts, .n_lags = n_lags, .n_slots = 2};
  for (int32_t k = 0; k < n_lags; k++) {
    HEC_ASSERT(lags[k] > 0 && lags[k] <= HEC_DRIFT_LAG_MAX);
    drift.lags[k] = lags[k];
    drift.n_slots = lags[k] + 1 > drift.n_slots ? lags[k] + 1 : drift.n_slots;
    drift.correlation[k] = hec_histogram_new(arena, false);
  }
  drift.tvd = hec_histogram_new(arena, false);
  size_t n_rows = (size_t)drift.n_slots * (size_t)n_layers;
  drift.deviations = HEC_NEW(arena, double, n_rows *(size_t)n_experts);
  drift.norms = HEC_NEW(arena, double, n_rows);
  drift.totals = HEC_NEW(arena, double, n_rows);
  return drift;
}

static void keep_layer(hec_drift *drift, size_t row, const uint64_t *counts) {
  int32_t n = drift->n_experts;
  double *deviations = drift->deviations + row * (size_t)n;
  double total = 0, squares = 0;
  for (int32_t e = 0; e < n; e++)
    total += (double)counts[e];
  double mean = total / n;
  for (int32_t e = 0; e < n; e++) {
    deviations[e] = (double)counts[e] - mean;
    squares += deviations[e] * deviations[e];
  }
  drift->norms[row] = sqrt(squares);
  drift->totals[row] = total;
}

static void add_correlation(hec_drift *drift, hec_histogram *to, size_t row, size_t before) {
  size_t n = (size_t)drift->n_experts;
  double norms = drift->norms[row] * drift->norms[before];
  if (!(norms > 0))
    return;
  const double *x = drift->deviations + row * n, *y = drift->deviations + before * n;
  double sum = 0;
  for (size_t e = 0; e < n; e++)
    sum += x[e] * y[e];
  double r = sum / norms;
  hec_histogram_add(to, r > 1 ? 1 : r < -1 ? -1 : r);
}

static void add_tvd(hec_drift *drift, size_t row, size_t before) {
  size_t n = (size_t)drift->n_experts;
  double total_x = drift->totals[row], total_y = drift->totals[before], sum = 0;
  if (!(total_x > 0 && total_y > 0))
    return;
  const double *x = drift->deviations + row * n, *y = drift->deviations + before * n;
  for (size_t e = 0; e < n; e++) /* the means are equal shares and cancel */
    sum += fabs(x[e] / total_x - y[e] / total_y);
  hec_histogram_add(&drift->tvd, sum / 2);
}

void hec_drift_add(hec_drift *drift, const uint64_t *totals) {
  size_t n_layers = (size_t)drift->n_layers, n_slots = (size_t)drift->n_slots;
  size_t record = (size_t)drift->n_records, slot = record % n_slots;
  for (size_t l = 0; l < n_layers; l++) {
    size_t row = slot * n_layers + l;
    keep_layer(drift, row, totals + l * (size_t)drift->n_experts);
    for (int32_t k = 0; k < drift->n_lags; k++) {
      size_t lag = (size_t)drift->lags[k];
      if (record >= lag)
        add_correlation(drift, &drift->correlation[k], row, (record - lag) % n_slots * n_layers + l);
    }
    if (record >= 1)
      add_tvd(drift, row, (record - 1) % n_slots * n_layers + l);
  }
  drift->n_records++;
}
