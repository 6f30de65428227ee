/* Megatron-LM's router trace (--moe-routing-trace-path, megatron/core/transformer/moe/router_trace.py): a file
 * router_trace_rank<r>.jsonl per rank, an object per step, block, layer and micro-batch,
 *   {"step","stage":"pre_dispatch","block":"decoder"|"mtp","layer","rank","num_tokens","topk",
 *    "top_indices":[[e x topk] x num_tokens]}   and "mtp_idx", "hs_*", "logit_*" where there are some.
 * It is written before dispatch, so before dropping, and per source rank. Tokens keep their order from layer to layer, so
 * transitions are counted. How many experts there are is in logit_shape [tokens, experts] alone, else the user says.
 * Inferred: several records of a step and layer are its micro-batches, in order. Activation recomputation calls the
 * router again in the backward pass: such records look like micro-batches more, and transitions are left out. */
#include "traces/import/megatron_layer.h"

#include "runtime/base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  hec_scan scan;
  hec_text text;
  int64_t step, layer, mtp_idx, rank, n_tokens, top_k, n_experts; /* of the record; -1: absent */
  bool mtp, has_indices;
  hec_scan_matrix ids, before; /* of this record and of the one before */
  int64_t step_before, layer_before, tokens_before;
  uint32_t *counts, *counts_before; /* [experts] */
  uint32_t *last;                   /* [experts] the last token that chose it, from 1 */
} trace;

static hec_status read_block(void *t) {
  return hec_megatron_scan_block(&((trace *)t)->scan, &((trace *)t)->text, &((trace *)t)->mtp);
}

static hec_status read_stage(void *state) {
  trace *t = state;
  HEC_TRY(hec_scan_text(&t->scan, &t->text));
  return strcmp(t->text.data, "pre_dispatch") == 0 ? HEC_OK
                                                   : hec_scan_fail(&t->scan, "another text", "\"pre_dispatch\"");
}

static hec_status read_indices(void *state) {
  trace *t = state;
  t->ids.n_columns = t->top_k; /* -1: as the first row */
  t->has_indices = true;
  return hec_scan_rows(&t->scan, &t->ids, "experts");
}

/* [tokens, experts] */
static hec_status read_shape(void *state) {
  trace *t = state;
  uint32_t shape[2];
  HEC_TRY(hec_scan_counts(&t->scan, shape, 2, "sizes (tokens, experts)"));
  t->n_experts = shape[1];
  return HEC_OK;
}

static const hec_import_field fields[] = {
    {"step", true, .at = offsetof(trace, step), .max = HEC_IMPORT_STEP_MAX},
    {"stage", true, .read = read_stage},
    {"block", true, .read = read_block},
    {"layer", true, .at = offsetof(trace, layer), .max = HEC_MEGATRON_LAYER_MAX},
    {"rank", true, .at = offsetof(trace, rank), .max = INT32_MAX},
    {"num_tokens", true, .at = offsetof(trace, n_tokens), .max = INT32_MAX},
    {"topk", true, .at = offsetof(trace, top_k), .min = 1, .max = HEC_TRACE_DIMENSION_MAX},
    {"mtp_idx", false, .at = offsetof(trace, mtp_idx), .max = HEC_MEGATRON_LAYER_MAX},
    {"top_indices", true, .read = read_indices},
    {"logit_shape", false, .read = read_shape},
    {.key = NULL}};

static hec_status check_record(hec_import_file *file, trace *t) {
  HEC_TRY(hec_import_set_top_k(file, t->scan.line, "topk", t->top_k));
  if (t->n_experts >= 0)
    HEC_TRY(hec_import_set_experts(file, t->scan.line, "logit_shape[1]", t->n_experts));
  if (t->ids.n_rows != t->n_tokens)
    return hec_import_fail(file, t->scan.line, "top_indices", "expected %lld rows (num_tokens), found %lld",
                           (long long)t->n_tokens, (long long)t->ids.n_rows);
  if (t->ids.n_rows > 0 && t->ids.n_columns != t->top_k)
    return hec_import_fail(file, t->scan.line, "top_indices[0]", "expected %lld experts (topk), found %lld",
                           (long long)t->top_k, (long long)t->ids.n_columns);
  if (t->mtp && t->mtp_idx < 0)
    return hec_import_fail(file, t->scan.line, "mtp_idx",
                           "expected this key in a record of block mtp, found no such key");
  if (file->given >= 0 && t->rank != file->given)
    return hec_import_fail(file, t->scan.line, "rank", "expected %d (of the file's name), found %lld", (int)file->given,
                           (long long)t->rank);
  if (hec_import_experts(file->job) == 0)
    return hec_import_fail(file, t->scan.line, "logit_shape",
                           "expected --experts N, as a recording without logits does not say how many there are");
  return HEC_OK;
}

static hec_status wrong_expert(const hec_import_file *file, const trace *t, size_t i, bool repeated) {
  size_t k = (size_t)t->top_k;
  char field[64];
  (void)snprintf(field, sizeof field, "top_indices[%zu][%zu]", i / k, i % k);
  if (repeated)
    return hec_import_fail(file, t->scan.line, field, "expected %zu different experts of a token, found %u twice", k,
                           t->ids.values[i]);
  return hec_import_fail(file, t->scan.line, field, "expected an expert from 0 to %d, found %u",
                         (int)hec_import_experts(file->job) - 1, t->ids.values[i]);
}

static hec_status count(hec_import_file *file, trace *t) {
  uint32_t n_experts = (uint32_t)hec_import_experts(file->job);
  size_t n = (size_t)t->n_tokens, k = (size_t)t->top_k;
  const uint32_t *id = t->ids.values;
  uint32_t *counts = t->counts_before;
  t->counts_before = t->counts;
  t->counts = counts ? counts : hec_malloc(n_experts, sizeof *counts);
  memset(t->counts, 0, n_experts * sizeof *t->counts);
  t->last = t->last ? t->last : hec_malloc(n_experts, sizeof *t->last);
  memset(t->last, 0, n_experts * sizeof *t->last);
  for (uint32_t token = 1; token <= n; token++)
    for (size_t a = 0; a < k; a++, id++) {
      if (*id >= n_experts || t->last[*id] == token)
        return wrong_expert(file, t, (size_t)(id - t->ids.values), *id < n_experts);
      t->last[*id] = token;
      t->counts[*id]++;
    }
  return HEC_OK;
}

static hec_status open_file(hec_import_file *file) {
  trace *t = file->state;
  t->step_before = -1;
  return hec_import_scan(file, &t->scan);
}

static void close_file(void *state) {
  trace *t = state;
  hec_scan_end(&t->scan);
  hec_text_free(&t->text);
  free(t->ids.values);
  free(t->before.values);
  free(t->counts);
  free(t->counts_before);
  free(t->last);
}

static hec_status next(hec_import_file *file, hec_import_row *row, bool *more) {
  trace *t = file->state;
  hec_scan_matrix ids = t->before;
  t->before = t->ids; /* the record given last: rows of the next layer's record may need it */
  t->ids = ids;
  t->step = t->layer = t->mtp_idx = t->rank = t->n_tokens = t->top_k = t->n_experts = -1;
  HEC_TRY(hec_import_line(file, &t->scan, fields, t, more));
  if (!*more)
    return HEC_OK;
  HEC_TRY(check_record(file, t));
  HEC_TRY(count(file, t));
  *row = (hec_import_row){.step = t->step,
                          .layer = hec_import_layer(t->mtp ? t->mtp_idx + 1 : 0, t->layer),
                          .source = -1,
                          .n = hec_import_experts(file->job),
                          .counts = t->counts,
                          .line = t->scan.line,
                          .ids = t->ids.values,
                          .n_tokens = t->n_tokens};
  if (t->step_before == t->step && t->tokens_before == t->n_tokens) {
    row->ids_before = t->before.values;
    row->counts_before = t->counts_before;
    row->layer_before = t->layer_before;
  }
  t->step_before = t->step;
  t->layer_before = row->layer;
  t->tokens_before = t->n_tokens;
  return HEC_OK;
}

static bool recognise(const char *head, size_t n) {
  return head[0] == '{' && (hec_import_has(head, n, "\"top_indices\"") || hec_import_has(head, n, "\"pre_dispatch\""));
}

const hec_importer hec_importer_megatron_router_trace = {
    .name = "megatron-router-trace",
    .summary = "Megatron-LM, router_trace_rank<r>.jsonl: experts of every token per source rank, transitions",
    .source = "Megatron-LM, megatron/core/transformer/moe/router_trace.py",
    .pattern = "router_trace_rank*.jsonl router_trace_rank*.jsonl.gz",
    .behind = "MTP blocks",
    .files = HEC_FILES_ONE_PER_RANK,
    .repeats = true,
    .paths = true,
    .counted = HEC_COUNTED_BEFORE_DROP,
    .phase = "train",
    .recognise = recognise,
    .begin = hec_megatron_assume_stage,
    .state_bytes = sizeof(trace),
    .open = open_file,
    .next = next,
    .close = close_file,
};
