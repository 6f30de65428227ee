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

static const hec_summary_value shown[] = {HEC_VALUE_MEDIAN,
                                          HEC_VALUE_P95,
                                          HEC_VALUE_MEAN,
                                          HEC_VALUE_VS_EP,
                                          HEC_VALUE_VS_REARRANGEMENT,
                                          HEC_VALUE_OVERLOAD_MEDIAN,
                                          HEC_VALUE_OVERLOAD_P95,
                                          HEC_VALUE_COMPUTE,
                                          HEC_VALUE_PLANNING,
                                          HEC_VALUE_EXPOSED_TOKEN,
                                          HEC_VALUE_EXPOSED_PARAM,
                                          HEC_VALUE_EXPOSED_GRAD,
                                          HEC_VALUE_EXPOSED_MIGRATION,
                                          HEC_VALUE_WAIT};
enum { N_SHOWN = sizeof shown / sizeof *shown };

static void csv_row(hec_summary *summary, int32_t i, hec_text *out) {
  hec_summary_row *row = &summary->rows[i];
  hec_text_add_csv(out, row->name);
  hec_text_add(out, ",");
  hec_text_add_csv(out, row->schedule);
  for (int32_t k = 0; k < N_SHOWN; k++)
    csv_number(hec_summary_value_of(summary, i, shown[k]), out);
  for (int32_t k = 0; k < HEC_N_TRAFFIC; k++)
    csv_number(hec_summary_per_iteration(row, row->traffic[k]), out);
  csv_number(row->peak_bytes, out);
  hec_text_printf(out, ",%s", hec_summary_fits(summary, row) ? "true" : "false");
  csv_execution(summary->execution, row, out);
  csv_number(hec_summary_value_of(summary, i, HEC_VALUE_BOUND),
             out); /* of a simulation: nobody bounds a measured time */
  csv_number(hec_summary_value_of(summary, i, HEC_VALUE_VS_BOUND), out);
  hec_text_printf(out, ",%s,%s", row->bound_s.n > 0 ? row->bound_class : "", row->reference ? "true" : "false");
  csv_number(hec_summary_value_of(summary, i, HEC_VALUE_DROPPED), out);
  csv_number(hec_summary_vs_placed(summary, i), out);
  hec_text_add(out, "\n");
}

void hec_summary_csv(hec_summary *summary, hec_text *out) {
  hec_text_add(out, "policy,schedule");
  for (int32_t k = 0; k < N_SHOWN; k++)
    hec_text_printf(out, ",%s", hec_summary_value_names[shown[k]].column);
  for (int32_t k = 0; k < HEC_N_TRAFFIC; k++)
    hec_text_printf(out, ",%s_bytes", hec_traffic_name[k]);
  hec_text_add(out, ",peak_memory_bytes,fits,times,backend,virtual,spread,check,bound_s,vs_bound,bound_class,reference,"
                    "dropped_share,speedup_vs_given\n");
  for (int32_t i = 0; i < summary->n_rows; i++)
    csv_row(summary, i, out);
}
