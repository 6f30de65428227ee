/* How fast expert loads change. One measure is the Pearson correlation of a layer's count vector (summed over sources)
 * with itself some records earlier. The other is the total variation distance of its shares at lag 1. */
#pragma once
#include "traces/histogram.h"

enum { HEC_DRIFT_LAGS = 16, HEC_DRIFT_LAG_MAX = 1000 };

typedef struct {
  int32_t n_layers, n_experts, n_lags, n_slots;
  int32_t lags[HEC_DRIFT_LAGS];              /* in records */
  hec_histogram correlation[HEC_DRIFT_LAGS]; /* over layers x pairs of records; pairs with a constant vector left out */
  hec_histogram tvd;                         /* lag 1 */
  double *deviations;                        /* [n_slots][n_layers][n_experts] counts minus the layer's mean */
  double *norms;                             /* [n_slots][n_layers] sqrt of the sum of their squares */
  double *totals;                            /* [n_slots][n_layers] */
  int64_t n_records;
} hec_drift;

/* Memory: the largest lag + 1 records of totals. */
hec_drift hec_drift_new(hec_arena *arena, int32_t n_layers, int32_t n_experts, const int32_t *lags, int32_t n_lags);
/* totals: [n_layers][n_experts] of the next record. */
void hec_drift_add(hec_drift *drift, const uint64_t *totals);
