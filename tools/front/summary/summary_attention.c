/* The window that hides parameter traffic, and what is left of it under other kinds of attention.
 *
 *     T      forward time of attention and gate, before an MoE layer: beside it FSSDP gathers parameters
 *     T bw   bytes that come into a node meanwhile, at its nominal rate: what a gather may have
 *     hidden 1 - exposed / all. all: the time in which parameters of copies travel or their gradients return, mean
 *            over ranks. hidden is the part of it in which the rank computes or tokens travel as well.
 * The counts of the kinds: models/attention.c. A shorter attention leaves a shorter window: t falls, or more is exposed. Calibration after the gate is exposed by
 * design. */
#include "runtime/base/value.h"
#include "runtime/program/job.h"
#include "tools/front/summary/summary_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void hec_summary_add_hidden(const hec_summary *summary, hec_text *out) {
  enum { WIDTH = 108 };
  int32_t column = 0;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    const hec_summary_row *row = &summary->rows[i];
    char item[80];
    if (row->sparse_s <= 0)
      continue;
    if (column == 0) {
      hec_text_printf(out, "\nhidden: share of the time of gathered parameters and returned gradients of copies beside "
                           "computing or tokens\n ");
      column = 1;
    }
    int n = snprintf(item, sizeof item, " %s %.0f %%", row->label,
                     100 * hec_summary_hidden(row->sparse_s, row->exposed_sparse_s));
    if (column + n + 1 > WIDTH) {
      hec_text_add(out, ",\n ");
      column = 1;
    }
    hec_text_printf(out, "%s%s", column > 1 ? "," : "", item);
    column += n + (column > 1);
  }
  hec_text_add(out, column > 0 ? "\n" : "");
}

static bool any_sparse(const hec_summary *summary, int32_t row) {
  for (int32_t k = 0; k < summary->n_attentions; k++)
    if (summary->attentions[k].rows[row].sparse_s > 0)
      return true;
  return false;
}

/* Of a row under one kind, " 12.345  0.123  98": iteration, exposed gathers and scatters, hidden share of them in percent. */
static void add_cell(const hec_summary_attention_row *row, hec_text *out) {
  hec_text_printf(out, " %9.3f %8.3f", 1e3 * row->iteration_s, 1e3 * row->exposed_sparse_s);
  double hidden = hec_summary_hidden(row->sparse_s, row->exposed_sparse_s);
  if (isfinite(hidden))
    hec_text_printf(out, " %4.0f", 100 * hidden);
  else
    hec_text_printf(out, " %4s", "-");
}

static void add_kinds(const hec_summary *summary, hec_text *out) {
  const hec_problem *problem = &summary->job->problem;
  int width = 10;
  for (int32_t k = 0; k < summary->n_attentions; k++)
    width = (int)strlen(summary->attentions[k].kind) > width ? (int)strlen(summary->attentions[k].kind) : width;
  hec_text_printf(
      out,
      "\nattention: a shorter one leaves a shorter window T before an MoE layer, which hides parameter traffic\n"
      "   %-*s %10s %9s  %18s %8s\n",
      width, "", "keys/query", "T, ms", "T bw into a node", "experts");
  for (int32_t k = 0; k < summary->n_attentions; k++) {
    const hec_summary_attention *of = &summary->attentions[k];
    hec_text_printf(out, "%" PRId32 "  %-*s %10.1f %9.3f  %15.4g MB %8.1f", k + 1, width, of->kind, of->context,
                    1e3 * of->window_s, 1e-6 * of->reach_bytes, of->reach_bytes / problem->bytes.expert_param);
    if (of->dense_window_s > 0)
      hec_text_printf(out, "  (dense layers: T %.3f ms)", 1e3 * of->dense_window_s);
    hec_text_add(out, "\n");
  }
}

void hec_summary_add_attentions(const hec_summary *summary, hec_text *out) {
  int32_t n_shown = 0, n_sparse = 0;
  int width = 17;
  if (summary->n_attentions == 0)
    return;
  add_kinds(summary, out);
  for (int32_t i = 0; i < summary->n_rows; i++)
    width = (int)strlen(summary->rows[i].label) > width ? (int)strlen(summary->rows[i].label) : width;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    bool sparse = any_sparse(summary, i);
    if (!sparse && !summary->rows[i].baseline)
      continue;
    if (n_shown++ == 0) {
      hec_text_printf(out, "\n%-*s", width, "ms, by attention");
      for (int32_t k = 0; k < summary->n_attentions; k++)
        hec_text_printf(out, " %" PRId32 "%8s %8s %4s", k + 1, "median", "exposed", "hid");
      hec_text_add(out, "\n");
    }
    hec_text_printf(out, "%-*s", width, summary->rows[i].label);
    for (int32_t k = 0; k < summary->n_attentions; k++)
      add_cell(&summary->attentions[k].rows[i], out);
    hec_text_add(out, "\n");
    n_sparse += sparse;
  }
  if (n_sparse == 0)
    hec_text_add(out, "   no policy of these gathers parameters\n");
}

static void json_kind(const hec_summary *summary, const hec_summary_attention *of, hec_json_out *json) {
  hec_json_object(json, NULL);
  HEC_JSON(json, HEC_TEXT("attention", of->kind), HEC_REAL("attention_context", of->context),
           HEC_REAL("window_s", of->window_s));
  if (of->dense_window_s > 0)
    hec_json_double(json, "dense_window_s", of->dense_window_s);
  hec_json_double(json, "window_bytes", of->reach_bytes);
  hec_json_array(json, "policies");
  for (int32_t i = 0; i < summary->n_rows; i++) {
    const hec_summary_attention_row *row = &of->rows[i];
    hec_json_object(json, NULL);
    HEC_JSON(json, HEC_TEXT("name", row->name), HEC_REAL("iteration_s", row->iteration_s),
             HEC_REAL("sparse_s", row->sparse_s), HEC_REAL("exposed_sparse_s", row->exposed_sparse_s));
    if (row->t_max >= 0) {
      HEC_JSON(json, HEC_LIST("t", HEC_INT(NULL, row->t_min), HEC_INT(NULL, row->t_max)));
    }
    hec_json_close(json);
  }
  hec_json_close(json);
  hec_json_close(json);
}

void hec_summary_json_attention(const hec_summary *summary, hec_json_out *json) {
  const hec_problem *problem = &summary->job->problem;
  HEC_SCOPED(hec_text) kind = {0};
  hec_attention_write(problem->moe->attention, problem->moe->s2, problem->moe->n_heads, &kind);
  if (hec_moe_n_dense_attention(problem->moe, true) > 0)
    hec_json_double(json, "dense_window_s", problem->dense_window_s);
  HEC_JSON(json, HEC_REAL("window_bytes", hec_summary_reach_bytes(problem)), HEC_TEXT("attention", kind.data),
           HEC_REAL("attention_context", hec_moe_context(problem->moe, false)));
  if (summary->n_attentions == 0)
    return;
  hec_json_array(json, "attentions");
  for (int32_t k = 0; k < summary->n_attentions; k++)
    json_kind(summary, &summary->attentions[k], json);
  hec_json_close(json);
}
