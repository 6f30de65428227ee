/* See stages_report.h. */
#include "tools/run/stages_report.h"

#include "models/json.h"
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
  hec_json_object(json, "layout");
  hec_json_int(json, "ranks", l->gpus);
  hec_json_int(json, "pp", l->pp);
  hec_json_int(json, "vpp", l->vpp);
  hec_json_int(json, "ep", l->ep);
  hec_json_int(json, "dp", l->dp);
  hec_json_int(json, "edp", l->edp);
  hec_json_close(json);
}

static void json_parts(const hec_stages *stages, hec_json_out *json) {
  hec_json_array(json, "layers");
  for (int32_t part = 0; part < stages->order.n_parts; part++)
    hec_json_int(json, NULL, stages->layer_at[part + 1] - stages->layer_at[part]);
  hec_json_close(json);
}

static void json_bytes(const char *key, hec_rank_memory m, hec_json_out *json) {
  hec_json_object(json, key);
  hec_json_double(json, "parameters", m.parameters);
  hec_json_double(json, "gradients", m.gradients);
  hec_json_double(json, "optimizer", m.optimizer);
  hec_json_double(json, "activations", m.activations);
  hec_json_close(json);
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
  hec_json_string(json, "name", row->name);
  hec_json_object(json, "step_s");
  hec_json_double(json, "median", hec_summary_median(row));
  hec_json_double(json, "p95", hec_series_quantile(&row->iteration_s, 0.95));
  hec_json_double(json, "spread", hec_summary_spread(row));
  hec_json_close(json);
  hec_json_double(json, "tokens_per_s", tokens_of(summary, stages) / hec_summary_median(row));
  hec_json_double(json, "waiting_share", waiting_share(row));
  hec_json_double(json, "speedup_vs_ep", hec_summary_vs_baseline(summary, i));
  json_memory(stages, memory + i * stages->layout.gpus, json);
  if (row->check) {
    hec_json_object(json, "check");
    hec_json_bool(json, "passed", row->check->passed);
    hec_json_double(json, "worst_error", row->check->worst);
    hec_json_double(json, "tolerance", row->check->tolerance);
    hec_json_int(json, "compared", row->check->compared);
    hec_json_string(json, "worst_at", row->check->worst_at);
    hec_json_close(json);
  }
  hec_json_close(json);
}

void hec_stages_json(hec_summary *summary, const hec_stages *stages, const hec_stage_memory *memory, hec_text *out) {
  const hec_job *job = summary->job;
  const hec_summary_execution *e = summary->execution;
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "version", 1);
  hec_json_string(&json, "tool", summary->tool);
  hec_json_string(&json, "trace", job->header.name[0] ? job->header.name : summary->trace);
  hec_json_bool(&json, "synthetic", job->header.synthetic);
  hec_json_string(&json, "model", job->moe.name);
  json_layout(&stages->layout, &json);
  json_parts(stages, &json);
  hec_json_string(&json, "pipeline", stages->schedule->name);
  hec_json_string(&json, "schedule", "serial");
  hec_json_int(&json, "zero", stages->zero);
  hec_json_int(&json, "micro_batches", stages->order.shape.n_micro_batches);
  hec_json_int(&json, "tokens_per_rank", job->problem.tokens);
  hec_json_string(&json, "phase", job->problem.train ? "train" : "forward");
  hec_json_int(&json, "steps", summary->n_iterations);
  hec_json_int(&json, "warmup", e->n_warmup);
  hec_json_int(&json, "seed", (int64_t)e->seed);
  hec_json_string(&json, "planned_for", job->cluster_spec);
  hec_json_string(&json, "backend", e->backend);
  hec_json_string(&json, "transport", e->transport);
  hec_json_string(&json, "ranks_are", e->ranks_are);
  hec_summary_json_machine(e->unit, e->cpu, e->n_cores, e->blas, &json);
  hec_json_strings(&json, "limits", e->limits, e->n_limits);
  hec_json_strings(&json, "defaults_taken", job->defaults, job->n_defaults);
  hec_json_array(&json, "policies");
  for (int32_t i = 0; i < summary->n_rows; i++)
    json_row(summary, stages, memory, i, &json);
  hec_json_close(&json);
  hec_json_close(&json);
}
