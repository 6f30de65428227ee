/* Megatron-LM's tokens per expert (--save-tokens-per-expert-interval, megatron/training/activation_logging.py): files
 * tokens_per_expert/rank<r>.jsonl, an object per iteration, block and layer,
 *   {"iter","block":"decoder"|"mtp","layer","tpe":[[count x local experts] x micro-batches]}   and "mtp_idx" for MTP.
 * Counts are of tokens RECEIVED by the experts of rank r, after dispatch (so after dropping) and possibly padded. Local
 * expert i is expert (r mod ep) x local + i: Megatron numbers expert-parallel ranks fastest (expert-tensor-parallel size
 * 1). Ranks with the same experts add up; who sent the tokens is lost, so the trace has totals. */
#include "runtime/base/arena.h"
#include "traces/import/megatron_layer.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct {
  hec_scan scan;
  hec_text text;
  hec_scan_matrix counts;
  int64_t iter, layer, mtp_idx, n_given; /* micro-batches given of the record */
  bool mtp;
} log_file;

static hec_status read_block(void *l) {
  return hec_megatron_scan_block(&((log_file *)l)->scan, &((log_file *)l)->text, &((log_file *)l)->mtp);
}

static hec_status read_counts(void *state) {
  log_file *l = state;
  l->counts.n_columns = -1;
  return hec_scan_rows(&l->scan, &l->counts, "counts");
}

static const hec_import_field fields[] = {
    {"iter", true, .at = offsetof(log_file, iter), .max = HEC_IMPORT_STEP_MAX},
    {"block", true, .read = read_block},
    {"layer", true, .at = offsetof(log_file, layer), .max = HEC_MEGATRON_LAYER_MAX},
    {"tpe", true, .read = read_counts},
    {"mtp_idx", false, .at = offsetof(log_file, mtp_idx), .max = HEC_MEGATRON_LAYER_MAX},
    {.key = NULL}};

static int64_t stages(const hec_import *job) {
  return hec_import_options_of(job)->pp > 0 ? hec_import_options_of(job)->pp : 1;
}

static int64_t ep_of(const hec_import *job) {
  int64_t ep = hec_import_options_of(job)->ep;
  return ep > 0 ? ep : hec_import_ranks(job) / stages(job);
}

static hec_status begin(hec_import *job, const hec_import_input *beside) {
  (void)beside;
  int64_t ranks = hec_import_ranks(job) / stages(job), ep = ep_of(job);
  if (ranks % ep != 0)
    return hec_fail(HEC_BAD_INPUT, "--ep: expected a number that divides the %" PRId64 " ranks, found %" PRId64, ranks,
                    ep);
  if (hec_import_options_of(job)->ep == 0)
    hec_import_assume(job, "expert parallelism over all %" PRId64 " ranks (--ep)", ranks);
  if (hec_import_options_of(job)->ep == 0 && hec_import_options_of(job)->experts > 0)
    hec_import_know_ranks(job);
  HEC_TRY(hec_megatron_assume_stage(job, NULL));
  hec_import_assume(job, "counts are of tokens received, perhaps padded; who sent them is not recorded");
  hec_import_file file = {.job = job, .input = hec_import_first(job)};
  return hec_import_set_ranks(&file, 0, "ranks", ranks);
}

static hec_status open_file(hec_import_file *file) {
  return hec_import_scan(file, &((log_file *)file->state)->scan);
}

static void close_file(void *state) {
  log_file *l = state;
  hec_scan_end(&l->scan);
  hec_text_free(&l->text);
  free(l->counts.values);
}

static hec_status read_record(hec_import_file *file, log_file *l, bool *more) {
  l->mtp_idx = -1;
  l->n_given = 0;
  HEC_TRY(hec_import_line(file, &l->scan, fields, l, more));
  if (!*more)
    return HEC_OK;
  if (l->mtp && l->mtp_idx < 0)
    return hec_import_fail(file, l->scan.line, "mtp_idx",
                           "expected this key in a record of block mtp, found no such key");
  if (l->counts.n_rows == 0)
    return hec_import_fail(file, l->scan.line, "tpe", "expected at least one micro-batch, found none");
  int64_t local = l->counts.n_columns, ep = ep_of(file->job), experts = hec_import_experts(file->job);
  if (experts > 0 && local * ep != experts)
    return hec_import_fail(file, l->scan.line, "tpe",
                           "expected %" PRId64 " experts over %" PRId64 " ranks, found %" PRId64 " on this one",
                           experts, ep, local);
  return hec_import_set_experts(file, l->scan.line, "tpe (experts x ranks)", local * ep);
}

static hec_status next(hec_import_file *file, hec_import_row *row, bool *more) {
  log_file *l = file->state;
  *more = true;
  if (l->n_given == l->counts.n_rows)
    HEC_TRY(read_record(file, l, more));
  if (!*more)
    return HEC_OK;
  int32_t local = (int32_t)l->counts.n_columns;
  *row = (hec_import_row){.step = l->iter,
                          .layer = hec_import_layer(l->mtp ? l->mtp_idx + 1 : 0, l->layer),
                          .source = -1,
                          .first = (int32_t)(file->rank % ep_of(file->job)) * local,
                          .n = local,
                          .counts = l->counts.values + l->n_given++ * local,
                          .line = l->scan.line};
  return HEC_OK;
}

static bool recognise(const char *head, size_t n) {
  return head[0] == '{' && hec_import_has(head, n, "\"tpe\"") && hec_import_has(head, n, "\"block\"");
}

const hec_importer hec_importer_megatron_tokens_per_expert = {
    .name = "megatron-tokens-per-expert",
    .summary = "Megatron-LM, tokens_per_expert/rank<r>.jsonl: tokens received by each rank's experts",
    .source = "Megatron-LM, megatron/training/activation_logging.py",
    .pattern = "rank*.jsonl rank*.jsonl.gz",
    .files = HEC_FILES_ONE_PER_RANK,
    .behind = "MTP blocks",
    .totals = true,
    .repeats = true,
    .counted = HEC_COUNTED_AFTER_DROP,
    .phase = "train",
    .recognise = recognise,
    .begin = begin,
    .state_bytes = sizeof(log_file),
    .open = open_file,
    .next = next,
    .close = close_file,
};
