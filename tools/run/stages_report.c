/* See stages_report.h. */
#include "tools/run/stages_report.h"

#include "models/json.h"
#include "runtime/base/value.h"
#include "runtime/program/job.h"
#include "tools/front/summary/summary_write.h"

#include <inttypes.h>
#include <math.h>

/* Tokens of a step, all ranks together. */
static double tokens_of(const hec_summary *summary, const hec_stages *stages) {
  const hec_problem *stage = &summary->job->problem;
  return (double)stage->tokens * stage->n_ranks * stages->order.shape.n_micro_batches;
}

/* Of the steps, mean over ranks. */
static double waiting_share(const hec_summary_row *row) {
  return row->weighted_s > 0 ? row->wait_s / row->weighted_s : 0;
}

/* ---- For people ---- */

static void add_head(const hec_summary *summary, const hec_stages *stages, hec_text *out) {
  const hec_layout *l = &stages->layout;
  const hec_job *job = summary->job;
  hec_text_printf(out, "%s: ", summary->tool);
  hec_text_add_plain(out, job->header.name[0] ? job->header.name : summary->trace);
  hec_text_printf(out, "%s, %" PRId64 " step%s measured after %" PRId32 " of warm-up\nlayout   ",
                  job->header.synthetic ? " (synthetic)" : "", summary->n_iterations,
                  summary->n_iterations == 1 ? "" : "s", summary->execution->n_warmup);
  hec_layout_write(l, out);
  hec_text_printf(
      out, ": %d stage%s of %d rank%s\npipeline %s, %d micro-batches a step; inside a stage the schedule is serial%s\n",
      (int)l->pp, l->pp == 1 ? "" : "s", (int)l->dp, l->dp == 1 ? "" : "s", stages->schedule->name,
      (int)stages->order.shape.n_micro_batches, stages->zero ? "; ZeRO-1" : "");
  hec_summary_execution_place(summary, out);
  hec_text_printf(out, "planned  for %s\n", job->cluster_spec);
  hec_summary_execution_mind(summary, out);
}

static void add_row(hec_summary *summary, const hec_stages *stages, int32_t i, hec_text *out) {
  hec_summary_row *row = &summary->rows[i];
  double median_s = hec_summary_median(row), spread = hec_summary_spread(row),
         ratio = hec_summary_vs_baseline(summary, i);
  hec_text_printf(out, "%-24s %9.2f %9.2f", row->name, 1e3 * median_s,
                  1e3 * hec_series_quantile(&row->iteration_s, 0.95));
  hec_text_printf(out, isfinite(spread) ? " %6.1f%%" : "       -", 100 * spread);
  hec_text_printf(out, isfinite(ratio) ? " %6.2fx" : "       -", ratio);
  hec_text_printf(out, " %10.0f  %6.1f%%  ", tokens_of(summary, stages) / median_s, 100 * waiting_share(row));
  if (row->check)
    hec_text_printf(out, "%s %.1e of %.0e, %" PRId64 " numbers\n", row->check->passed ? "passed" : "FAILED",
                    row->check->worst, row->check->tolerance, row->check->compared);
  else
    hec_text_add(out, "not asked\n");
}

static double sum(hec_rank_memory m) {
  return m.parameters + m.gradients + m.optimizer + m.activations;
}

static void add_memory_row(const hec_stages *stages, const char *policy, int32_t rank, const hec_stage_memory *m,
                           hec_text *out) {
  const hec_rank_memory *c = &m->counted;
  hec_text_printf(out, "%-24s %4" PRId32 " %5" PRId32 " %10.1f %9.1f %9.1f %11.1f %9.1f %9.1f\n", policy, rank,
                  rank / stages->layout.dp, c->parameters / 1e3, c->gradients / 1e3, c->optimizer / 1e3,
                  c->activations / 1e3, sum(*c) / 1e3, sum(m->predicted) / 1e3);
}

enum { MEMORY_RANKS = 8 };

static void add_memory(const hec_summary *summary, const hec_stages *stages, const hec_stage_memory *memory,
                       hec_text *out) {
  int32_t n = stages->layout.gpus, shown = n < MEMORY_RANKS ? n : MEMORY_RANKS;
  double workspace = 0;
  hec_text_printf(out, "\n%-24s %10s %46s %9s\n", "", "", "memory, KB: counted while it ran", "predicted");
  hec_text_printf(out, "%-24s %4s %5s %10s %9s %9s %11s %9s %9s\n", "policy", "rank", "stage", "parameters",
                  "gradients", "optimizer", "activations", "sum", "sum");
  for (int32_t i = 0; i < summary->n_rows; i++, memory += n)
    for (int32_t r = 0; r < n; r++) {
      workspace = memory[r].workspace > workspace ? memory[r].workspace : workspace;
      if (r < shown)
        add_memory_row(stages, r == 0 ? summary->rows[i].name : "", r, &memory[r], out);
    }
  if (shown < n)
    hec_text_printf(out, "%" PRId32 " ranks more: --json has them\n", n - shown);
  hec_text_printf(
      out,
      "predicted: by the memory model of hecate-sim; activations: all that is held from forward to backward, "
      "and buffers, at their peak.\nhecate-run has %.1f KB more, for token streams of all micro-batches\n",
      workspace / 1e3);
}

void hec_stages_table(hec_summary *summary, const hec_stages *stages, const hec_stage_memory *memory, hec_text *out) {
  add_head(summary, stages, out);
  hec_text_printf(out, "\n%-24s %27s %7s\n", "", "step, ms", "speed");
  hec_text_printf(out, "%-24s %9s %9s %7s %7s %10s  %7s  %s\n", "policy", "median", "p95", "spread", "vs ep",
                  "tokens/s", "waiting", "check: worst error");
  for (int32_t i = 0; i < summary->n_rows; i++)
    add_row(summary, stages, i, out);
  hec_text_add(out, "spread: middle half of the steps (75th - 25th percentile) over the median; tokens/s: all ranks "
                    "together;\nwaiting: share of a step in which a rank waits for another stage, mean over ranks\n");
  add_memory(summary, stages, memory, out);
}

/* ---- JSON ---- */

static void json_layout(const hec_layout *l, hec_json_out *json) {
  HEC_JSON(json, HEC_OBJECT("layout", HEC_INT("ranks", l->gpus), HEC_INT("pp", l->pp), HEC_INT("vpp", l->vpp),
                            HEC_INT("ep", l->ep), HEC_INT("dp", l->dp), HEC_INT("edp", l->edp)));
}

static void json_parts(const hec_stages *stages, hec_json_out *json) {
  hec_json_array(json, "layers");
  for (int32_t part = 0; part < stages->order.n_parts; part++)
    hec_json_int(json, NULL, stages->layer_at[part + 1] - stages->layer_at[part]);
  hec_json_close(json);
}

static void json_bytes(const char *key, hec_rank_memory m, hec_json_out *json) {
  HEC_JSON(json, HEC_OBJECT(key, HEC_REAL("parameters", m.parameters), HEC_REAL("gradients", m.gradients),
                            HEC_REAL("optimizer", m.optimizer), HEC_REAL("activations", m.activations)));
}

static void json_memory(const hec_stages *stages, const hec_stage_memory *memory, hec_json_out *json) {
  hec_json_array(json, "memory_bytes");
  for (int32_t r = 0; r < stages->layout.gpus; r++) {
    hec_json_object(json, NULL);
    json_bytes("predicted", memory[r].predicted, json);
    json_bytes("counted", memory[r].counted, json);
    hec_json_double(json, "workspace", memory[r].workspace);
    hec_json_close(json);
  }
  hec_json_close(json);
}

static void json_row(hec_summary *summary, const hec_stages *stages, const hec_stage_memory *memory, int32_t i,
                     hec_json_out *json) {
  hec_summary_row *row = &summary->rows[i];
  hec_json_object(json, NULL);
  HEC_JSON(json, HEC_TEXT("name", row->name),
           HEC_OBJECT("step_s", HEC_REAL("median", hec_summary_median(row)),
                      HEC_REAL("p95", hec_series_quantile(&row->iteration_s, 0.95)),
                      HEC_REAL("spread", hec_summary_spread(row))),
           HEC_REAL("tokens_per_s", tokens_of(summary, stages) / hec_summary_median(row)),
           HEC_REAL("waiting_share", waiting_share(row)),
           HEC_REAL("speedup_vs_ep", hec_summary_vs_baseline(summary, i)));
  json_memory(stages, memory + i * stages->layout.gpus, json);
  if (row->check) {
    HEC_JSON(json, HEC_OBJECT("check", HEC_BOOL("passed", row->check->passed),
                              HEC_REAL("worst_error", row->check->worst), HEC_REAL("tolerance", row->check->tolerance),
                              HEC_INT("compared", row->check->compared), HEC_TEXT("worst_at", row->check->worst_at)));
  }
  hec_json_close(json);
}

void hec_stages_json(hec_summary *summary, const hec_stages *stages, const hec_stage_memory *memory, hec_text *out) {
  const hec_job *job = summary->job;
  const hec_summary_execution *e = summary->execution;
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_INT("version", 1), HEC_TEXT("tool", summary->tool),
           HEC_TEXT("trace", job->header.name[0] ? job->header.name : summary->trace),
           HEC_BOOL("synthetic", job->header.synthetic), HEC_TEXT("model", job->moe.name));
  json_layout(&stages->layout, &json);
  json_parts(stages, &json);
  HEC_JSON(&json, HEC_TEXT("pipeline", stages->schedule->name), HEC_TEXT("schedule", "serial"),
           HEC_INT("zero", stages->zero), HEC_INT("micro_batches", stages->order.shape.n_micro_batches),
           HEC_INT("tokens_per_rank", job->problem.tokens), HEC_TEXT("phase", job->problem.train ? "train" : "forward"),
           HEC_INT("steps", summary->n_iterations), HEC_INT("warmup", e->n_warmup), HEC_INT("seed", (int64_t)e->seed),
           HEC_TEXT("planned_for", job->cluster_spec), HEC_TEXT("backend", e->backend),
           HEC_TEXT("transport", e->transport), HEC_TEXT("ranks_are", e->ranks_are));
  hec_summary_json_machine(e->unit, e->cpu, e->n_cores, e->blas, &json);
  hec_json_strings(&json, "limits", e->limits, e->n_limits);
  hec_json_strings(&json, "defaults_taken", job->defaults, job->n_defaults);
  hec_json_array(&json, "policies");
  for (int32_t i = 0; i < summary->n_rows; i++)
    json_row(summary, stages, memory, i, &json);
  hec_json_close(&json);
  hec_json_close(&json);
}
