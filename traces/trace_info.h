/* What a trace is like: imbalance, idle experts, drift. Definitions:
 *   overload factor   busiest rank over the mean, expert e on rank floor(e*R/E); over (record, layer)
 *   expert peak       hottest expert over the mean; over (record, layer)
 *   CV, Gini          of a layer's expert loads; over (record, layer)
 *   idle              share of (record, layer, expert) without a token
 * Layers of a record without any token are counted apart and enter none of these. Percentiles are at most
 * HEC_HISTOGRAM_RESOLUTION off. Memory does not grow with the trace. */
#pragma once
#include "traces/drift.h"
#include "traces/trace.h"

typedef struct {
  double min, p5, p10, p50, p95, max; /* NaN when there is no value */
  uint64_t n;
} hec_trace_spread;

typedef struct {
  int32_t ranks; /* 0: header's ranks, else source_ranks if above 1, else 8, but no more than experts */
  int32_t n_lags;
  int32_t lags[HEC_DRIFT_LAGS]; /* in records */
} hec_trace_info_options;

typedef struct {
  int64_t n_records, n_iterations, first_iter, last_iter;
  int64_t stride_min, stride_max; /* distance of neighbouring iterations; 0 when there is one */
  int32_t ranks;
  double assignments_mean; /* per layer and record */
  uint64_t n_empty_layers; /* (record, layer) without any token */
  hec_trace_spread overload, expert_peak, cv, gini;
  double idle_share;
  int32_t idle_worst_layer; /* with the largest share over the trace */
  double idle_worst_layer_share;
  double idle_worst; /* largest share of one layer in one record */
  int32_t n_lags;
  int32_t lags[HEC_DRIFT_LAGS];
  hec_trace_spread correlation[HEC_DRIFT_LAGS], tvd;
} hec_trace_info;

/* How far transitions are from what the layers' loads alone would give: the total variation distance from
 * independence, over all pairs of layers. It is the share of counts that experts send elsewhere than the next layer's
 * totals would. 0: no affinity, 1 - 1/E: each expert is followed by one of its own. Few counts are never quite
 * independent. NaN: none. */
double hec_trace_affinity(const hec_trace_header *header);

/* Reads from where `reader` stands to the end. */
hec_status hec_trace_info_read(hec_trace_reader *reader, const hec_trace_info_options *options,
                               hec_trace_info *info) HEC_MUST_USE;

/* Lines for people; one JSON document. `path` names the trace. */
void hec_trace_info_table(const hec_trace_info *info, const hec_trace_header *header, const char *path, hec_text *text);
void hec_trace_info_json(const hec_trace_info *info, const hec_trace_header *header, const char *path, hec_text *text);
