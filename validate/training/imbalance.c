/* Forward passes of all layers with the busiest rank's load: see training.h. */
#include "validate/training/training.h"

#include "models/compute_cost.h"

#include <gsl/gsl_fit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 256, REQUEST_TOKENS = 256 };

/* "prefill 256 tok x 256 requests"; a phase that does not say how many requests is taken for as many. */
static void take_phase(const char *phase, hec_training *t) {
  const char *at = phase + strcspn(phase, "0123456789");
  t->seq = *at ? (int32_t)strtol(at, NULL, 10) : REQUEST_TOKENS;
  at = strstr(phase, " x ");
  t->micro_batch = at ? (int32_t)strtol(at + 3, NULL, 10) : REQUESTS;
}

/* Published Triton kernels on A100 take 1.09 to 1.41 times as long as CUTLASS's at 256 and more rows an expert
 * (aiconfigurator, SGLang and vLLM beside TensorRT-LLM). Scans of imbalance use Triton's. */
static const double triton_over_cutlass = 1.2;

/* What a serving engine's rank does in a layer beside what a training step does. It has no sequence parallelism, so it adds
 * up and norms the tokens of all ranks: 8 bytes an element in one fused kernel, twice. Its Triton kernels walk the rows of
 * other ranks' experts too: both products write zeros for them, and the sum over choices reads those of the second. */
static double engine_s(const hec_training *t, const int32_t *rows, int32_t n) {
  const hec_moe *moe = t->moe;
  hec_work_dims dims = hec_work_expert(moe).dims;
  dims.dtype_bytes = 2;
  double others = (double)t->seq * (double)t->micro_batch * (1 - 1 / (double)t->layout.tp);
  double width = (double)moe->d_model, up = (double)(moe->n_ffn_matrices - 1) * (double)moe->d_ffn;
  double walked = others * (double)moe->top_k * 2 * (up + 2 * width);
  return t->constants.in_step * (others * 2 * 8 * width * t->laws->norm.byte_s + walked * t->laws->add.byte_s) +
         sqrt(t->constants.in_step) * (triton_over_cutlass - 1) * hec_gpu_experts_s(t->laws, &dims, rows, n, 1, false);
}

/* A forward pass: the busiest rank has `imbalance` times the mean's rows, spread over its experts as the mean's are. */
static double forward_s(const hec_training *t, double imbalance, hec_arena *arena) {
  int32_t n = t->moe->n_experts / t->layout.ep;
  double rows = (double)t->seq * (double)t->micro_batch / (double)t->layout.tp * (double)t->moe->top_k;
  int32_t *of = HEC_NEW(arena, int32_t, n);
  for (int32_t e = 0; e < n; e++)
    of[e] = (int32_t)(rows * imbalance / (double)n);
  const hec_layer_load load = {.rows = of, .n = n, .received = imbalance};
  hec_layer_pass moe[2], dense[2];
  hec_layer_passes_of(t, HEC_LAYER_MOE, &load, moe);
  hec_layer_passes_of(t, HEC_LAYER_DENSE, NULL, dense);
  return (double)t->moe->n_moe_layers * (hec_layer_pass_s(t, &moe[0]) + engine_s(t, of, n)) +
         (double)(t->moe->n_layers - t->moe->n_moe_layers) * hec_layer_pass_s(t, &dense[0]);
}

static hec_status predict(hec_training_rules *rules, const hec_case_file *csv, const hec_step_constants *constants,
                          hec_imbalance_row *row) {
  hec_training_case c = {0};
  hec_training *t = &c.set_up;
  HEC_TRY(hec_training_rules_device(rules, csv, &c));
  row->why_not = c.why_not;
  if (c.why_not)
    return HEC_OK;
  int64_t ep, gpus;
  if (!hec_case_file_whole(csv, "ep", &ep) || !hec_case_file_whole(csv, "gpus", &gpus) || ep < 1 || gpus < 1 ||
      row->value <= 0 || row->imbalance < 1) {
    row->why_not = "ep, GPUs, imbalance or time is not stated";
    return HEC_OK;
  }
  t->layout = (hec_layout){.tp = (int32_t)ep, .cp = 1, .pp = 1, .vpp = 1, .ep = (int32_t)ep, .etp = 1};
  if (hec_layout_fit(&t->layout, (int32_t)gpus, t->moe) != HEC_OK) {
    row->why_not = hec_arena_text(rules->arena, hec_last_error());
    return HEC_OK;
  }
  t->recipe = hec_recipe_default();
  /* Every rank has all tokens, computes its experts' rows, and an all-reduce adds up (an all-gather and a reduce-scatter):
   * SGLang with tp = ep and no other back end for MoE exchanges. No load changes that traffic. */
  HEC_TRY(hec_recipe_read("graph=full dispatcher=allgather", &t->recipe));
  t->constants = *constants;
  take_phase(hec_case_file_text(csv, "phase"), t);
  row->forward_s = forward_s(t, row->imbalance, rules->arena);
  return HEC_OK;
}

typedef struct {
  hec_training_rules rules;
  const hec_step_constants *constants;
  hec_imbalance_table *table;
} reader;

static hec_status read_row(const hec_case_file *csv, void *context) {
  reader *r = context;
  hec_imbalance_table *table = r->table;
  HEC_RESERVE(table->rows, table->capacity, table->n + 1);
  hec_imbalance_row *row = &table->rows[table->n++];
  *row = (hec_imbalance_row){.id = hec_case_file_text(csv, "id"),
                             .model = hec_case_file_text(csv, "model"),
                             .gpu = hec_case_file_text(csv, "gpu_type")};
  if (hec_case_file_number(csv, "r_max_over_mean", &row->imbalance) && hec_case_file_number(csv, "value", &row->value))
    return predict(&r->rules, csv, r->constants, row);
  row->why_not = "imbalance or time is no number";
  return HEC_OK;
}

static bool same_set_up(const hec_imbalance_row *a, const hec_imbalance_row *b) {
  size_t n = (size_t)(strrchr(a->id, '-') ? strrchr(a->id, '-') - a->id : 0);
  return n > 0 && strncmp(a->id, b->id, n + 1) == 0 && !strchr(b->id + n + 1, '-');
}

/* Least squares over the rows of the base's set-up. */
static void find_slopes(hec_imbalance_table *table, hec_imbalance_row *base) {
  double *x = HEC_NEW(&table->arena, double, 3 * table->n), *measured = x + table->n, *predicted = measured + table->n;
  double offset, c00, c01, c11, rest;
  size_t n = 0;
  for (int32_t i = 0; i < table->n; i++) {
    const hec_imbalance_row *row = &table->rows[i];
    if (row->why_not || !same_set_up(base, row))
      continue;
    x[n] = row->imbalance;
    measured[n] = row->value;
    predicted[n++] = row->forward_s;
  }
  gsl_fit_linear(x, 1, measured, 1, n, &offset, &base->measured_slope_s, &c00, &c01, &c11, &rest);
  gsl_fit_linear(x, 1, predicted, 1, n, &offset, &base->predicted_slope_s, &c00, &c01, &c11, &rest);
}

static void compare(hec_imbalance_table *table) {
  double *predicted = HEC_NEW(&table->arena, double, table->n + 1),
         *measured = HEC_NEW(&table->arena, double, table->n + 1);
  int32_t n = 0;
  for (int32_t i = 0; i < table->n; i++) {
    hec_imbalance_row *row = &table->rows[i], *base = row;
    for (int32_t j = 0; j < table->n; j++)
      if (!table->rows[j].why_not && same_set_up(row, &table->rows[j]) && table->rows[j].imbalance < base->imbalance)
        base = &table->rows[j];
    if (row->why_not || base->why_not)
      continue;
    row->measured = row->value / base->value;
    row->predicted = row->forward_s / base->forward_s;
    row->measured_slope_s = row->predicted_slope_s = NAN;
    if (base == row) {
      find_slopes(table, row);
      continue;
    }
    predicted[n] = row->predicted;
    measured[n++] = row->measured;
  }
  table->error = n > 0 ? hec_error_of(predicted, measured, n) : (hec_error){0};
}

hec_status hec_imbalance_judge(const char *path, const hec_step_constants *constants, hec_imbalance_table *table) {
  static const char *const columns[] = {"id",    "model",           "gpus",  "gpu_type", "ep",
                                        "phase", "r_max_over_mean", "value", NULL};
  reader r = {.constants = constants, .table = table};
  *table = (hec_imbalance_table){0};
  HEC_TRY(hec_training_rules_open(&table->arena, &r.rules));
  hec_status status = hec_case_file_each(path, &table->arena, columns, "docs/layouts.md", read_row, &r);
  hec_training_rules_close(&r.rules);
  if (status == HEC_OK)
    compare(table);
  return status;
}

void hec_imbalance_table_free(hec_imbalance_table *table) {
  free(table->rows);
  hec_arena_free(&table->arena);
}

/* What balancing is worth in seconds, where the parts of a step that no load changes are not predicted well. */
static void slopes(const hec_imbalance_table *table, hec_doc *doc) {
  hec_doc_table(doc, "imbalance_slopes", "set-up of | s per unit of imbalance, measured | predicted | error");
  for (int32_t i = 0; i < table->n; i++) {
    const hec_imbalance_row *r = &table->rows[i];
    if (!r->why_not && isfinite(r->measured_slope_s))
      HEC_ROW(doc, HEC_SHOW("id", HEC_AS_IS, r->id), HEC_SHOW("measured", HEC_FIXED2, r->measured_slope_s),
              HEC_SHOW("predicted", HEC_FIXED2, r->predicted_slope_s),
              HEC_SHOW("error", HEC_SIGNED, r->predicted_slope_s / r->measured_slope_s - 1));
  }
  hec_doc_end(doc);
}

void hec_imbalance_report(const hec_imbalance_table *table, hec_doc *doc) {
  hec_doc_note(doc, "# Time against imbalance");
  hec_doc_note(
      doc,
      "Time over that of the balanced run. Median error %.1f %%, 90th percentile %.1f %%, signed %+.1f %%. "
      "Priced as a serving engine's prefill: attention is split over the ranks that share the experts, every rank "
      "has all tokens, an all-reduce adds up, and Triton kernels walk the rows of other ranks' experts.",
      100 * table->error.median, 100 * table->error.p90, 100 * table->error.bias);
  hec_doc_table(doc, "imbalance", "id | busiest over mean | measured | predicted");
  for (int32_t i = 0; i < table->n; i++) {
    const hec_imbalance_row *r = &table->rows[i];
    if (r->why_not)
      HEC_ROW(doc, HEC_SHOW("id", HEC_AS_IS, r->id), HEC_SHOW("why_not", HEC_AS_IS, r->why_not));
    else
      HEC_ROW(doc, HEC_SHOW("id", HEC_AS_IS, r->id), HEC_SHOW("imbalance", HEC_FIXED, r->imbalance),
              HEC_SHOW("measured", HEC_FIXED, r->measured), HEC_SHOW("predicted", HEC_FIXED, r->predicted),
              HEC_KEEP("forward_s", r->forward_s));
  }
  hec_doc_end(doc);
  slopes(table, doc);
}
