/* One pass. A layer's counts are summed over its sources, sorted (radix, for Gini) and pooled by rank:
 *   Gini = (2 * sum_i i * x_(i) / sum x - (n + 1)) / n, x_(1) <= ... <= x_(n), i from 1
 *   CV   = sqrt(mean (x - mean x)^2) / mean x
 * O(counts) per record. */
#include "traces/trace_info.h"

#include "runtime/base/progress.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8 }; /* where neither options nor trace say */

typedef struct {
  const hec_trace_info_options *options;
  hec_trace_info *info;
  int32_t n_layers, n_experts;
  uint64_t *totals;         /* [n_layers][n_experts] of the record */
  uint64_t *sorted, *other; /* [n_experts] scratch */
  uint64_t *rank_load;      /* [ranks] */
  uint64_t *n_idle;         /* [n_layers] */
  hec_histogram overload, expert_peak, cv, gini;
  hec_drift drift;
  double assignments;
} gathering;

static void sum_sources(const hec_load *load, uint64_t *totals) {
  size_t n = (size_t)load->n_experts;
  for (int32_t l = 0; l < load->n_layers; l++) {
    uint64_t *sum = totals + (size_t)l * n;
    memset(sum, 0, n * sizeof *sum);
    for (int32_t s = 0; s < load->n_sources; s++) {
      const uint32_t *row = hec_load_row(load, l, s);
      for (size_t e = 0; e < n; e++)
        sum[e] += row[e];
    }
  }
}

/* Least significant byte first; bytes that are the same in all values cost one counting pass. Result in `values`. */
static void sort_values(uint64_t *values, uint64_t *other, size_t n) {
  uint64_t any = 0;
  for (size_t i = 0; i < n; i++)
    any |= values[i];
  uint64_t *from = values, *to = other;
  for (unsigned shift = 0; shift < 64 && any >> shift != 0; shift += 8) {
    size_t at[256] = {0};
    for (size_t i = 0; i < n; i++)
      at[(from[i] >> shift) & 255]++;
    size_t sum = 0;
    for (size_t b = 0; b < 256; b++) {
      size_t count = at[b];
      at[b] = sum;
      sum += count;
    }
    for (size_t i = 0; i < n; i++)
      to[at[(from[i] >> shift) & 255]++] = from[i];
    uint64_t *swapped = from;
    from = to;
    to = swapped;
  }
  if (from != values)
    memcpy(values, from, n * sizeof *values);
}

static double gini_of(const uint64_t *sorted, int32_t n, double total) {
  double weighted = 0;
  for (int32_t i = 0; i < n; i++)
    weighted += (double)(i + 1) * (double)sorted[i];
  return (2 * weighted / total - (n + 1)) / n;
}

static double cv_of(const uint64_t *values, int32_t n, double mean) {
  double squares = 0;
  for (int32_t i = 0; i < n; i++)
    squares += ((double)values[i] - mean) * ((double)values[i] - mean);
  return sqrt(squares / n) / mean;
}

static double overload_of(gathering *g, const uint64_t *values, double total) {
  uint64_t n_ranks = (uint64_t)g->info->ranks, n = (uint64_t)g->n_experts, busiest = 0;
  memset(g->rank_load, 0, n_ranks * sizeof *g->rank_load);
  for (uint64_t e = 0; e < n; e++)
    g->rank_load[e * n_ranks / n] += values[e];
  for (uint64_t r = 0; r < n_ranks; r++)
    busiest = g->rank_load[r] > busiest ? g->rank_load[r] : busiest;
  return (double)busiest / (total / (double)n_ranks);
}

static void gather_layer(gathering *g, int32_t layer) {
  int32_t n = g->n_experts;
  const uint64_t *values = g->totals + (size_t)layer * (size_t)n;
  uint64_t total = 0, n_idle = 0;
  for (int32_t e = 0; e < n; e++) {
    total += values[e];
    n_idle += values[e] == 0;
  }
  if (total == 0) {
    g->info->n_empty_layers++;
    return;
  }
  double sum = (double)total, mean = sum / n;
  double idle = (double)n_idle / n;
  g->n_idle[layer] += n_idle;
  g->info->idle_worst = idle > g->info->idle_worst ? idle : g->info->idle_worst;
  memcpy(g->sorted, values, (size_t)n * sizeof *values);
  sort_values(g->sorted, g->other, (size_t)n);
  hec_histogram_add(&g->overload, overload_of(g, values, sum));
  hec_histogram_add(&g->expert_peak, (double)g->sorted[n - 1] / mean);
  hec_histogram_add(&g->cv, cv_of(values, n, mean));
  hec_histogram_add(&g->gini, gini_of(g->sorted, n, sum));
  g->assignments += sum;
}

static void gather_iter(gathering *g, int64_t iter) {
  hec_trace_info *info = g->info;
  if (info->n_records == 0) {
    info->first_iter = iter;
    info->n_iterations = 1;
  } else if (iter != info->last_iter) {
    int64_t step = iter - info->last_iter;
    info->n_iterations++;
    info->stride_min = info->n_iterations == 2 || step < info->stride_min ? step : info->stride_min;
    info->stride_max = step > info->stride_max ? step : info->stride_max;
  }
  info->last_iter = iter;
  info->n_records++;
}

static hec_trace_spread spread_of(const hec_histogram *h) {
  return (hec_trace_spread){.min = hec_histogram_quantile(h, 0),
                            .p5 = hec_histogram_quantile(h, 0.05),
                            .p10 = hec_histogram_quantile(h, 0.10),
                            .p50 = hec_histogram_quantile(h, 0.50),
                            .p95 = hec_histogram_quantile(h, 0.95),
                            .max = hec_histogram_quantile(h, 1),
                            .n = h->n};
}

static void finish_idle(gathering *g) {
  hec_trace_info *info = g->info;
  uint64_t n_idle = 0;
  for (int32_t l = 0; l < g->n_layers; l++) {
    n_idle += g->n_idle[l];
    if (g->n_idle[l] > g->n_idle[info->idle_worst_layer])
      info->idle_worst_layer = l;
  }
  double per_layer = (double)info->n_records * g->n_experts;
  info->idle_worst_layer_share = (double)g->n_idle[info->idle_worst_layer] / per_layer;
  info->idle_share = (double)n_idle / (per_layer * g->n_layers);
}

static void finish(gathering *g) {
  hec_trace_info *info = g->info;
  uint64_t n = g->overload.n;
  info->assignments_mean = n > 0 ? g->assignments / (double)n : 0;
  info->overload = spread_of(&g->overload);
  info->expert_peak = spread_of(&g->expert_peak);
  info->cv = spread_of(&g->cv);
  info->gini = spread_of(&g->gini);
  info->tvd = spread_of(&g->drift.tvd);
  info->n_lags = g->drift.n_lags;
  for (int32_t k = 0; k < info->n_lags; k++) {
    info->lags[k] = g->drift.lags[k];
    info->correlation[k] = spread_of(&g->drift.correlation[k]);
  }
  finish_idle(g);
}

static hec_status gather(gathering *g, hec_trace_reader *reader) {
  hec_progress_stage("reading", "records");
  for (int64_t n = 1;; n++) {
    const hec_trace_record *record = NULL;
    HEC_TRY(hec_trace_next(reader, &record));
    if (!record)
      return HEC_OK;
    hec_progress_at((double)n, 0, 0);
    sum_sources(&record->load, g->totals);
    for (int32_t l = 0; l < g->n_layers; l++)
      gather_layer(g, l);
    hec_drift_add(&g->drift, g->totals);
    gather_iter(g, record->iter);
  }
}

hec_status hec_trace_info_read(hec_trace_reader *reader, const hec_trace_info_options *options, hec_trace_info *info) {
  const hec_trace_header *h = hec_trace_header_of(reader);
  int64_t largest = 1;
  for (int32_t k = 0; k < options->n_lags; k++)
    largest = options->lags[k] > largest ? options->lags[k] : largest;
  if ((int64_t)h->n_layers * h->n_experts > (INT64_C(1) << 27) / (largest + 1))
    return hec_fail(HEC_FAILED, "layers x experts x (largest lag + 1) is above 2^27: take smaller lags");
  HEC_SCOPED(hec_arena) arena = {0};
  int32_t by_default = h->ranks > 0 ? h->ranks : h->n_sources > 1 ? h->n_sources : RANKS;
  by_default = by_default < h->n_experts ? by_default : h->n_experts; /* more would stand idle */
  *info = (hec_trace_info){.ranks = options->ranks > 0 ? options->ranks : by_default};
  gathering g = {.options = options, .info = info, .n_layers = h->n_layers, .n_experts = h->n_experts};
  g.totals = HEC_NEW(&arena, uint64_t, (size_t)h->n_layers * (size_t)h->n_experts);
  g.sorted = HEC_NEW(&arena, uint64_t, h->n_experts);
  g.other = HEC_NEW(&arena, uint64_t, h->n_experts);
  g.rank_load = HEC_NEW(&arena, uint64_t, info->ranks);
  g.n_idle = HEC_NEW(&arena, uint64_t, h->n_layers);
  hec_histogram *relative[] = {&g.overload, &g.expert_peak, &g.cv};
  for (size_t i = 0; i < 3; i++)
    *relative[i] = hec_histogram_new(&arena, true);
  g.gini = hec_histogram_new(&arena, false);
  g.drift = hec_drift_new(&arena, h->n_layers, h->n_experts, options->lags, options->n_lags);
  HEC_TRY(gather(&g, reader));
  finish(&g);
  return HEC_OK;
}

/* Half the sum of |count - row * column / all|; adds the pair's counts to *all. */
static double off_independence(const uint64_t *count, size_t n, double *row, double *column, double *all) {
  double pair = 0, off = 0;
  memset(row, 0, n * sizeof *row);
  memset(column, 0, n * sizeof *column);
  for (size_t a = 0; a < n; a++)
    for (size_t b = 0; b < n; b++) {
      row[a] += (double)count[a * n + b];
      column[b] += (double)count[a * n + b];
    }
  for (size_t a = 0; a < n; a++)
    pair += row[a];
  for (size_t a = 0; pair > 0 && a < n; a++)
    for (size_t b = 0; b < n; b++)
      off += fabs((double)count[a * n + b] - row[a] * (column[b] / pair));
  *all += pair;
  return off / 2;
}

double hec_trace_affinity(const hec_trace_header *header) {
  size_t n = (size_t)header->n_experts;
  double off = 0, all = 0;
  HEC_SCOPED(hec_arena) arena = {0};
  double *row = HEC_NEW(&arena, double, n), *column = HEC_NEW(&arena, double, n);
  for (int32_t l = 0; header->transitions && l + 1 < header->n_layers; l++)
    off += off_independence(header->transitions + (size_t)l * n * n, n, row, column, &all);
  return all > 0 ? off / all : NAN;
}
