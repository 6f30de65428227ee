/* Summaries: medians and quantiles over iterations, means weighted by the stride between records, ratios of medians. */
#include "runtime/program/summary_parts.h"

#include <inttypes.h>
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

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double hec_series_quantile(hec_series *series, double q) {
  if (series->n == 0)
    return 0;
  if (series->n_sorted != series->n) {
    HEC_RESERVE(series->sorted, series->sorted_capacity, series->n);
    memcpy(series->sorted, series->value, series->n * sizeof *series->value);
    qsort(series->sorted, series->n, sizeof *series->sorted, by_value);
    series->n_sorted = series->n;
  }
  double at = q * (double)(series->n - 1);
  size_t low = (size_t)at, high = low + 1 < series->n ? low + 1 : low;
  return series->sorted[low] + (at - (double)low) * (series->sorted[high] - series->sorted[low]);
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

double hec_summary_mean(const hec_summary_row *row) {
  return row->stride > 0 ? row->weighted_s / row->stride : 0;
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
  double least = devices[0].memory_bytes;
  for (int32_t r = 1; r < summary->job->problem.n_ranks; r++)
    least = devices[r].memory_bytes < least ? devices[r].memory_bytes : least;
  return least;
}

bool hec_summary_fits(const hec_summary *summary, const hec_summary_row *row) {
  return row->peak_bytes <= hec_summary_memory(summary);
}

static double per_iteration(const hec_summary_row *row, double sum) {
  return row->stride > 0 ? sum / row->stride : 0;
}

static void json_check(const hec_summary_check *check, hec_json_out *json) {
  hec_json_object(json, "check");
  hec_json_bool(json, "passed", check->passed);
  hec_json_double(json, "worst_error", check->worst);
  hec_json_double(json, "tolerance", check->tolerance);
  hec_json_int(json, "compared", check->compared);
  hec_json_string(json, "worst_at", check->worst_at);
  hec_json_object(json, "exact");
  if (check->exact_bits > HEC_FLOAT_BITS)
    hec_json_null(json, "passed");
  else
    hec_json_bool(json, "passed", check->exact_equal);
  hec_json_int(json, "compared", check->exact_compared);
  hec_json_int(json, "bits", check->exact_bits);
  hec_json_close(json);
  hec_json_close(json);
}

/* Of a simulation: what no policy of the row's class can go below; null where there is no such bound. */
static void json_bound(hec_summary_row *row, hec_json_out *json) {
  if (row->bound_s.n == 0) {
    hec_json_null(json, "bound_s");
    hec_json_null(json, "vs_bound");
    return;
  }
  hec_json_double(json, "bound_s", hec_series_quantile(&row->bound_s, 0.5));
  hec_json_double(json, "vs_bound", hec_summary_vs_bound(row));
  hec_json_string(json, "bound_class", row->bound_class);
}

/* Layers in every micro-batch of every iteration: how many of each degree, on each route of token rows, and with rows that
 * travel once per node. */
static void json_choice(const hec_summary_row *row, hec_json_out *json) {
  char key[16];
  if (row->by_node)
    hec_json_int(json, "layers_by_node", row->choice.by_node);
  if (!row->cuts)
    return;
  hec_json_object(json, "degrees");
  for (int32_t r = 1; r <= HEC_DEGREE_MAX; r++) {
    (void)snprintf(key, sizeof key, "%" PRId32, r);
    if (row->choice.degree[r] > 0)
      hec_json_int(json, key, row->choice.degree[r]);
  }
  hec_json_close(json);
  if (!row->routes)
    return;
  hec_json_object(json, "token_routes");
  for (int32_t k = 0; k < HEC_N_TOKEN_ROUTES; k++)
    hec_json_int(json, hec_token_routes[k]->name, row->choice.route[k]);
  hec_json_close(json);
}

static void json_row(hec_summary *summary, int32_t i, hec_json_out *json) {
  hec_summary_row *row = &summary->rows[i];
  hec_json_object(json, NULL);
  hec_json_string(json, "name", row->name);
  hec_json_string(json, "schedule", row->schedule);
  hec_json_bool(json, "reference", row->reference);
  hec_json_object(json, "iteration_s");
  hec_json_double(json, "median", hec_summary_median(row));
  hec_json_double(json, "p95", hec_series_quantile(&row->iteration_s, 0.95));
  hec_json_double(json, "mean", hec_summary_mean(row));
  if (summary->execution)
    hec_json_double(json, "spread", hec_summary_spread(row));
  hec_json_close(json);
  if (row->check)
    json_check(row->check, json);
  hec_json_double(json, "speedup_vs_ep", hec_summary_vs_baseline(summary, i));
  hec_json_double(json, "speedup_vs_best_rearrangement", hec_summary_vs_rearrangement(summary, i));
  if (hec_summary_placed(summary) >= 0)
    hec_json_double(json, "speedup_vs_given", hec_summary_vs_placed(summary, i));
  if (!summary->execution)
    json_bound(row, json);
  hec_json_object(json, "overload_factor");
  hec_json_double(json, "median", hec_series_quantile(&row->overload, 0.5));
  hec_json_double(json, "p95", hec_series_quantile(&row->overload, 0.95));
  hec_json_close(json);
  hec_json_object(json, "exposed_s");
  hec_json_double(json, "token", per_iteration(row, row->book_s[HEC_BOOK_TOKEN]));
  hec_json_double(json, "param", per_iteration(row, row->book_s[HEC_BOOK_PARAM]));
  hec_json_double(json, "grad", per_iteration(row, row->book_s[HEC_BOOK_GRAD]));
  hec_json_double(json, "migration", per_iteration(row, row->book_s[HEC_BOOK_MIGRATION]));
  hec_json_close(json);
  if (hec_summary_on_devices(summary->execution) && row->late.n > 0)
    hec_json_double(json, "host_late_share", hec_series_quantile(&row->late, 0.5));
  if (row->sparse_s > 0)
    hec_json_double(json, "hidden_share", hec_summary_hidden(row->sparse_s, row->exposed_sparse_s));
  hec_json_double(json, "compute_s", per_iteration(row, row->book_s[HEC_BOOK_COMPUTE]));
  hec_json_double(json, "planning_s", per_iteration(row, row->book_s[HEC_BOOK_PLAN]));
  hec_json_double(json, "wait_s", per_iteration(row, row->wait_s));
  if (row->skew_s > 0)
    hec_json_double(json, "skew_s", per_iteration(row, row->skew_s));
  hec_json_object(json, "bytes");
  for (int32_t k = 0; k < HEC_N_TRAFFIC; k++)
    hec_json_double(json, hec_traffic_name[k], per_iteration(row, row->traffic[k]));
  hec_json_close(json);
  hec_json_double(json, "peak_memory_bytes", row->peak_bytes);
  hec_json_bool(json, "fits", hec_summary_fits(summary, row));
  if (row->dropped_share >= 0)
    hec_json_double(json, "dropped_share", row->dropped_share);
  if (row->note[0])
    hec_json_string(json, "note", row->note);
  json_choice(row, json);
  if (row->t_most >= 0) {
    hec_json_array(json, "t");
    hec_json_int(json, NULL, row->t_least);
    hec_json_int(json, NULL, row->t_most);
    hec_json_close(json);
    hec_json_array(json, "m");
    hec_json_int(json, NULL, row->m_least);
    hec_json_int(json, NULL, row->m_most);
    hec_json_close(json);
  }
  hec_json_close(json);
}

void hec_summary_json_machine(const char *unit, const char *processor, int32_t n, const char *library,
                              hec_json_out *json) {
  bool devices = unit && unit[0] == 'd';
  hec_json_string(json, devices ? "device" : "cpu", processor);
  hec_json_int(json, devices ? "devices" : "cores", n);
  hec_json_string(json, devices ? "library" : "blas", library);
}

static void json_execution(const hec_job *job, const hec_summary_execution *e, hec_json_out *json) {
  hec_json_string(json, "planned_for", job->cluster_spec);
  hec_json_string(json, "backend", e->backend);
  hec_json_string(json, "transport", e->transport);
  hec_json_string(json, "ranks_are", e->ranks_are);
  hec_json_bool(json, "virtual", e->virtual_time);
  hec_json_int(json, "warmup", e->n_warmup);
  hec_json_int(json, "seed", (int64_t)e->seed);
  hec_summary_json_machine(e->unit, e->cpu, e->n_cores, e->blas, json);
  hec_json_strings(json, "limits", e->limits, e->n_limits);
}

static void json_text(hec_json_out *json, const char *key, const char *value) {
  if (value)
    hec_json_string(json, key, value);
  else
    hec_json_null(json, key);
}

void hec_summary_json(hec_summary *summary, hec_text *out) {
  const hec_job *job = summary->job;
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "version", 1);
  hec_json_string(&json, "tool", summary->tool);
  hec_json_string(&json, "trace", job->header.name[0] ? job->header.name : summary->trace);
  hec_json_bool(&json, "synthetic", job->header.synthetic != NULL);
  hec_json_string(&json, "cluster", job->cluster.name);
  hec_json_string(&json, "model", job->moe.name);
  hec_json_int(&json, "ranks", job->problem.n_ranks);
  hec_json_int(&json, "tokens_per_rank", job->problem.tokens);
  hec_json_string(&json, "phase", job->problem.train ? "train" : "forward");
  json_text(&json, "law", summary->law);
  json_text(&json, "not_modelled", summary->not_modelled);
  hec_json_int(&json, "iterations", summary->n_iterations);
  if (summary->execution)
    json_execution(job, summary->execution, &json);
  hec_json_double(&json, "window_s", job->problem.window_s); /* T of FSSDP: forward before an MoE layer */
  hec_summary_json_attention(summary, &json);
  hec_json_double(&json, "node_bandwidth", hec_cluster_node_bandwidth(&job->cluster, false)); /* bw: bytes/s */
  hec_json_double(&json, "nonmoe_scale", job->moe.nonmoe_scale);
  hec_json_strings(&json, "defaults_taken", job->defaults, job->n_defaults);
  hec_json_array(&json, "policies");
  for (int32_t i = 0; i < summary->n_rows; i++)
    json_row(summary, i, &json);
  hec_json_close(&json);
  hec_json_close(&json);
}

static void csv_number(double value, hec_text *out) {
  hec_text_add(out, ",");
  if (isfinite(value))
    hec_text_add_double(out, value);
}

/* How the row came about; of a simulation the word alone. */
static void csv_execution(const hec_summary_execution *e, hec_summary_row *row, hec_text *out) {
  if (!e) {
    hec_text_add(out, ",simulated,,,,");
    return;
  }
  hec_text_printf(out, ",measured,%s,%s", e->backend, e->virtual_time ? "true" : "false");
  csv_number(hec_summary_spread(row), out);
  hec_text_printf(out, ",%s", !row->check ? "" : row->check->passed ? "passed" : "failed");
}

/* Of a simulation: nobody bounds a measured time. */
static void csv_bound(hec_summary_row *row, hec_text *out) {
  bool is_bound = row->bound_s.n > 0;
  csv_number(is_bound ? hec_series_quantile(&row->bound_s, 0.5) : NAN, out);
  csv_number(is_bound ? hec_summary_vs_bound(row) : NAN, out);
  hec_text_printf(out, ",%s", is_bound ? row->bound_class : "");
}

void hec_summary_csv(hec_summary *summary, hec_text *out) {
  hec_text_add(
      out,
      "policy,schedule,iteration_median_s,iteration_p95_s,iteration_mean_s,speedup_vs_ep,speedup_vs_best_rearrangement,"
      "overload_median,overload_p95,compute_s,planning_s,exposed_token_s,exposed_param_s,exposed_grad_s,"
      "exposed_migration_s,wait_s");
  for (int32_t k = 0; k < HEC_N_TRAFFIC; k++)
    hec_text_printf(out, ",%s_bytes", hec_traffic_name[k]);
  hec_text_add(out, ",peak_memory_bytes,fits,times,backend,virtual,spread,check,bound_s,vs_bound,bound_class,reference,"
                    "dropped_share,speedup_vs_given\n");
  for (int32_t i = 0; i < summary->n_rows; i++) {
    hec_summary_row *row = &summary->rows[i];
    double values[] = {hec_summary_median(row),
                       hec_series_quantile(&row->iteration_s, 0.95),
                       hec_summary_mean(row),
                       hec_summary_vs_baseline(summary, i),
                       hec_summary_vs_rearrangement(summary, i),
                       hec_series_quantile(&row->overload, 0.5),
                       hec_series_quantile(&row->overload, 0.95),
                       per_iteration(row, row->book_s[HEC_BOOK_COMPUTE]),
                       per_iteration(row, row->book_s[HEC_BOOK_PLAN]),
                       per_iteration(row, row->book_s[HEC_BOOK_TOKEN]),
                       per_iteration(row, row->book_s[HEC_BOOK_PARAM]),
                       per_iteration(row, row->book_s[HEC_BOOK_GRAD]),
                       per_iteration(row, row->book_s[HEC_BOOK_MIGRATION]),
                       per_iteration(row, row->wait_s)};
    hec_text_add_csv(out, row->name);
    hec_text_add(out, ",");
    hec_text_add_csv(out, row->schedule);
    for (size_t k = 0; k < sizeof values / sizeof *values; k++)
      csv_number(values[k], out);
    for (int32_t k = 0; k < HEC_N_TRAFFIC; k++)
      csv_number(per_iteration(row, row->traffic[k]), out);
    csv_number(row->peak_bytes, out);
    hec_text_printf(out, ",%s", hec_summary_fits(summary, row) ? "true" : "false");
    csv_execution(summary->execution, row, out);
    csv_bound(row, out);
    hec_text_printf(out, ",%s", row->reference ? "true" : "false");
    csv_number(row->dropped_share >= 0 ? row->dropped_share : NAN, out);
    csv_number(hec_summary_vs_placed(summary, i), out);
    hec_text_add(out, "\n");
  }
}
