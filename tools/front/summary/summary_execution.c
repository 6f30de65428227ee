/* For people, of an execution: what ran where. One row per policy has its measured times and what its check found. The
 * verdict does not call a difference inside the spread a difference. */
#include "runtime/program/job.h"
#include "tools/front/summary/summary_parts.h"

#include <inttypes.h>
#include <math.h>

static void add_network(const hec_summary *summary, hec_text *out) {
  const hec_summary_execution *e = summary->execution;
  if (e->virtual_time)
    hec_text_printf(out, "network  virtual: transfers take what the links of %s would (law %s)\n",
                    summary->job->cluster.name, summary->law);
  else if (summary->law)
    hec_text_printf(out, "network  transport %s: %s; predicted by network law %s\n", e->transport, e->transport_summary,
                    summary->law);
  else
    hec_text_printf(out, "network  transport %s: %s; no network law describes it\n", e->transport,
                    e->transport_summary);
}

void hec_summary_execution_place(const hec_summary *summary, hec_text *out) {
  const hec_summary_execution *e = summary->execution;
  hec_summary_add_model(summary, out);
  hec_summary_add_work(summary, out);
  hec_text_printf(out, "ranks    %" PRId32 ", as %s; backend %s\n", hec_job_ranks(summary->job), e->ranks_are,
                  e->backend);
  add_network(summary, out);
  hec_text_add(out, "machine  ");
  hec_text_add_plain(out, e->cpu);
  hec_text_printf(out, ", %" PRId32 " %s%s for %" PRId32 " rank%s; %s\n", e->n_cores, e->unit,
                  e->n_cores == 1 ? "" : "s", e->n_ranks_here, e->n_ranks_here == 1 ? "" : "s", e->blas);
}

void hec_summary_execution_mind(const hec_summary *summary, hec_text *out) {
  const hec_summary_execution *e = summary->execution;
  for (int32_t i = 0; i < e->n_limits; i++)
    hec_text_printf(out, "%s%s\n", i == 0 ? "mind     " : "         ", e->limits[i]);
  hec_summary_add_defaults(summary, out);
}

void hec_summary_execution_header(hec_summary *summary, hec_text *out) {
  const hec_job *job = summary->job;
  const hec_summary_execution *e = summary->execution;
  hec_text_printf(out, "%s: ", summary->tool);
  hec_text_add_plain(out, job->header.name[0] ? job->header.name : summary->trace);
  hec_text_printf(out, "%s, %" PRId64 " iteration%s measured after %" PRId32 " of warm-up\n",
                  job->header.synthetic ? " (synthetic)" : "", summary->n_iterations,
                  summary->n_iterations == 1 ? "" : "s", e->n_warmup);
  hec_summary_execution_place(summary, out);
  hec_text_printf(out, "planned  for %s%s\n", job->cluster_spec, e->imitates ? "; its links are imitated" : "");
  hec_summary_execution_mind(summary, out);
}

static void add_check(const hec_summary_check *check, hec_text *out) {
  if (!check) {
    hec_text_add(out, "  not asked\n");
    return;
  }
  hec_text_printf(out, "  %s %.1e of %.0e%s\n", check->passed ? "passed" : "FAILED", check->worst, check->tolerance,
                  check->exact_bits > HEC_FLOAT_BITS ? ""
                  : check->exact_equal               ? ", exact"
                                                     : ", NOT EXACT");
}

void hec_summary_execution_times(hec_summary *summary, int width, int decimals, hec_text *out) {
  int schedule = hec_summary_schedule_width(summary);
  hec_text_printf(out, "\n%-*s  %*s  %27s %7s  %6s %8s\n", width, "", schedule, "",
                  summary->execution->virtual_time ? "virtual time, ms" : "measured time, ms", "speed", "over-",
                  "peak");
  hec_text_printf(out, "%-*s  %-*s  %9s %9s %7s %7s  %6s %8s  %s\n", width, "policy", schedule, "schedule", "median",
                  "p95", "spread", "vs ep", "load", "MB", "check: worst error");
  for (int32_t i = 0; i < summary->n_rows; i++) {
    hec_summary_row *row = &summary->rows[i];
    double spread = hec_summary_spread(row);
    hec_text_printf(out, "%-*s  %-*s  %9.*f %9.*f", width, row->name, schedule, row->schedule, decimals,
                    1e3 * hec_summary_median(row), decimals, 1e3 * hec_series_quantile(&row->iteration_s, 0.95));
    hec_text_printf(out, isfinite(spread) ? " %6.1f%%" : "       -", 100 * spread);
    hec_summary_add_ratio(out, 7, hec_summary_vs_baseline(summary, i));
    hec_text_printf(out, "  %6.2f %8.2f", hec_series_quantile(&row->overload, 0.5), row->peak_bytes * 1e-6);
    add_check(row->check, out);
  }
  hec_text_add(out,
               "spread: middle half of the iterations (75th - 25th percentile) over the median; overload: busiest rank "
               "over\nmean, median over iterations and layers");
  hec_text_add(out, summary->rows[0].check ? "; exact: one layer and step, bit for bit\n" : "\n");
}

void hec_summary_execution_late(hec_summary *summary, hec_text *out) {
  int32_t n = 0;
  for (int32_t i = 0; i < summary->n_rows; i++)
    if (hec_summary_on_devices(summary->execution) && summary->rows[i].late.n > 0)
      hec_text_printf(out, "%s%s %.1f %%",
                      n++ ? ", " : "\nstood idle since the host was late (worst rank, median): ", summary->rows[i].name,
                      100 * hec_series_quantile(&summary->rows[i].late, 0.5));
  hec_text_add(out, n ? " of an iteration\n" : "");
}

/* Below this the middle half of the iterations is of one or two of them, and says nothing of chance. */
enum { FEW_ITERATIONS = 5 };

/* Whether the middle halves of the two rows' iterations touch. */
static bool overlap(hec_summary_row *a, hec_summary_row *b) {
  return hec_series_quantile(&a->iteration_s, 0.25) <= hec_series_quantile(&b->iteration_s, 0.75) &&
         hec_series_quantile(&b->iteration_s, 0.25) <= hec_series_quantile(&a->iteration_s, 0.75);
}

/* The fastest system; -1 when there are only reference rows. */
static int32_t winner_of(hec_summary *summary) {
  int32_t best = -1;
  for (int32_t i = 0; i < summary->n_rows; i++)
    if (!summary->rows[i].reference &&
        (best < 0 || hec_summary_median(&summary->rows[i]) < hec_summary_median(&summary->rows[best])))
      best = i;
  return best;
}

static int32_t count_systems(const hec_summary *summary) {
  int32_t n = 0;
  for (int32_t i = 0; i < summary->n_rows; i++)
    n += !summary->rows[i].reference;
  return n;
}

static void add_not_told_apart(hec_summary *summary, int32_t best, hec_text *out) {
  hec_summary_row *winner = &summary->rows[best];
  int32_t n = 0;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    if (i == best || summary->rows[i].reference || !overlap(winner, &summary->rows[i]))
      continue;
    hec_text_printf(out, "%s%s",
                    n++ ? ", " : "  Not told apart from it (the middle halves of their iterations overlap): ",
                    summary->rows[i].name);
  }
  hec_text_add(out, n ? ".\n" : "");
}

/* Only where there is something to compare, by times that mean something. */
void hec_summary_execution_verdict(hec_summary *summary, hec_text *out) {
  const hec_summary_execution *e = summary->execution;
  int32_t best = winner_of(summary);
  if (count_systems(summary) < 2)
    return;
  if (hec_summary_execution_crowded(e)) {
    hec_text_printf(out, "\nNo fastest is named: %" PRId32 " ranks %s %" PRId32 " %s%s.\n", e->n_ranks_here,
                    hec_summary_on_devices(e) ? "shared" : "took turns on", e->n_cores, e->unit,
                    e->n_cores == 1 ? "" : "s");
    return;
  }
  hec_summary_row *winner = &summary->rows[best];
  const char *time = e->virtual_time ? "in virtual time" : "here";
  hec_text_printf(out, "\nFastest %s: %s (schedule %s), median %.3f ms", time, winner->name, winner->schedule,
                  1e3 * hec_summary_median(winner));
  double ratio = hec_summary_vs_baseline(summary, best);
  if (isfinite(ratio) && !winner->baseline)
    hec_text_printf(out, ", %.2fx as fast as ep", ratio);
  hec_text_add(out, ".\n");
  if (winner->iteration_s.n > 1)
    add_not_told_apart(summary, best, out);
  if (winner->iteration_s.n < FEW_ITERATIONS)
    hec_text_printf(
        out, "  Only %zu iteration%s measured: how much of the difference is chance is not known; see --steps.\n",
        winner->iteration_s.n, winner->iteration_s.n == 1 ? " was" : "s were");
}
