/* A comparison as CSV, a line per row of the summary. */
#include "tools/front/summary/summary_parts.h"

#include <math.h>

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
                       hec_summary_per_iteration(row, row->book_s[HEC_BOOK_COMPUTE]),
                       hec_summary_per_iteration(row, row->book_s[HEC_BOOK_PLAN]),
                       hec_summary_per_iteration(row, row->book_s[HEC_BOOK_TOKEN]),
                       hec_summary_per_iteration(row, row->book_s[HEC_BOOK_PARAM]),
                       hec_summary_per_iteration(row, row->book_s[HEC_BOOK_GRAD]),
                       hec_summary_per_iteration(row, row->book_s[HEC_BOOK_MIGRATION]),
                       hec_summary_per_iteration(row, row->wait_s)};
    hec_text_add_csv(out, row->name);
    hec_text_add(out, ",");
    hec_text_add_csv(out, row->schedule);
    for (size_t k = 0; k < sizeof values / sizeof *values; k++)
      csv_number(values[k], out);
    for (int32_t k = 0; k < HEC_N_TRAFFIC; k++)
      csv_number(hec_summary_per_iteration(row, row->traffic[k]), out);
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
