/* The table for people: one row per policy, milliseconds, and the verdict in words. */
#include "runtime/program/summary.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void add_header(hec_summary *summary, hec_text *out) {
  const hec_job *job = summary->job;
  const hec_problem *problem = &job->problem;
  hec_text_printf(out, "%s: %s%s, %" PRId64 " iterations\n", summary->tool,
                  job->header.name[0] ? job->header.name : summary->trace, job->header.synthetic ? " (synthetic)" : "",
                  summary->n_iterations);
  hec_text_printf(out,
                  "model    %s: %" PRId32 " MoE layers, %" PRId32 " experts, top-%" PRId32 ", d_model %" PRId32
                  ", d_ffn %" PRId32 "\n",
                  job->moe.name, problem->n_layers, problem->n_experts, problem->top_k, job->moe.d_model,
                  job->moe.d_ffn);
  hec_text_printf(out, "cluster  %s: %" PRId32 " ranks on %" PRId32 " node%s, %" PRId32 " tokens per rank, %s\n",
                  job->cluster.name, problem->n_ranks, problem->n_nodes, problem->n_nodes == 1 ? "" : "s",
                  problem->tokens, problem->train ? "training iteration" : "forward pass");
  hec_text_printf(out, "network  %s\n", summary->law);
  for (int32_t i = 0; i < job->n_defaults; i++)
    hec_text_printf(out, "%s%s\n", i == 0 ? "assumed  " : "         ", job->defaults[i]);
}

static void add_ratio(hec_text *out, int width, double ratio) {
  if (isfinite(ratio))
    hec_text_printf(out, " %*.2fx", width - 1, ratio);
  else
    hec_text_printf(out, " %*s", width, "-");
}

static int name_width(const hec_summary *summary) {
  int width = 6;
  for (int32_t i = 0; i < summary->n_rows; i++)
    if ((int)strlen(summary->rows[i].name) > width)
      width = (int)strlen(summary->rows[i].name);
  return width;
}

static void add_row(hec_summary *summary, int32_t i, int width, hec_text *out) {
  hec_summary_row *row = &summary->rows[i];
  double per_ms = row->n > 0 ? 1e3 / (double)row->n : 0;
  hec_text_printf(out, "%-*s  %-8s %9.3f %9.3f %9.3f", width, row->name, row->schedule, 1e3 * hec_summary_median(row),
                  1e3 * hec_series_quantile(&row->iteration_s, 0.95), 1e3 * hec_summary_mean(row));
  add_ratio(out, 6, hec_summary_vs_baseline(summary, i));
  hec_text_printf(out, " %5.2f %5.2f", hec_series_quantile(&row->overload, 0.5),
                  hec_series_quantile(&row->overload, 0.95));
  static const hec_book order[] = {HEC_BOOK_COMPUTE, HEC_BOOK_TOKEN,     HEC_BOOK_PARAM,
                                   HEC_BOOK_GRAD,    HEC_BOOK_MIGRATION, HEC_BOOK_PLAN};
  for (size_t k = 0; k < sizeof order / sizeof *order; k++)
    hec_text_printf(out, " %8.3f", per_ms * row->book_s[order[k]]);
  hec_text_printf(out, " %8.3f %8.2f %s\n", per_ms * row->wait_s, row->peak_bytes * 1e-9,
                  hec_summary_fits(summary, row) ? "yes" : "NO");
}

/* The fastest row that is a system and fits; -1 when there is none. */
static int32_t winner_of(hec_summary *summary) {
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

/* Where the winner saves most against `other`, in words. */
static void add_reason(const hec_summary_row *winner, const hec_summary_row *other, hec_text *out) {
  static const char *const what[HEC_N_BOOKS + 1] = {
      "less compute per rank", "less planning",  "less exposed token traffic",       "less parameter traffic",
      "less gradient traffic", "less migration", "less waiting for the busiest rank"};
  int32_t most = -1;
  double most_s = 0;
  for (int32_t i = 0; i <= HEC_N_BOOKS; i++) {
    double a = i < HEC_N_BOOKS ? other->book_s[i] : other->wait_s,
           b = i < HEC_N_BOOKS ? winner->book_s[i] : winner->wait_s;
    double saved = a / (double)other->n - b / (double)winner->n;
    if (saved > most_s) {
      most = i;
      most_s = saved;
    }
  }
  if (most >= 0)
    hec_text_printf(out, ", mostly by %s (%.3f ms a rank and iteration)", what[most], 1e3 * most_s);
}

static void add_verdict(hec_summary *summary, hec_text *out) {
  int32_t best = winner_of(summary);
  if (best < 0) {
    hec_text_add(out, "\nNo policy fits into the memory of this cluster.\n");
    return;
  }
  hec_summary_row *winner = &summary->rows[best];
  hec_text_printf(out, "\nFastest that fits: %s under %s, %.3f ms", winner->name, winner->schedule,
                  1e3 * hec_summary_median(winner));
  for (int32_t i = 0; i < summary->n_rows; i++)
    if (summary->rows[i].baseline && i != best) {
      hec_text_printf(out, "; %.2fx %s", hec_summary_vs_baseline(summary, best), summary->rows[i].name);
      add_reason(winner, &summary->rows[i], out);
    }
  double rearrangement = hec_summary_vs_rearrangement(summary, best);
  if (isfinite(rearrangement) && !winner->rearrangement)
    hec_text_printf(out, "; %.2fx the best rearrangement system", rearrangement);
  hec_text_add(out, ".\n");
}

void hec_summary_table(hec_summary *summary, hec_text *out) {
  add_header(summary, out);
  int width = name_width(summary);
  hec_text_printf(out, "\n%-*s  %-8s %29s %6s %11s %62s %8s\n", width, "", "", "iteration, ms", "", "overload",
                  "where the time goes, mean over ranks, ms (exposed)", "peak");
  hec_text_printf(out, "%-*s  %-8s %9s %9s %9s %6s %5s %5s %8s %8s %8s %8s %8s %8s %8s %8s %s\n", width, "policy",
                  "schedule", "median", "p95", "mean", "vs EP", "p50", "p95", "compute", "token", "param", "grad",
                  "migrate", "plan", "wait", "GB", "fits");
  for (int32_t i = 0; i < summary->n_rows; i++)
    add_row(summary, i, width, out);
  add_verdict(summary, out);
}
