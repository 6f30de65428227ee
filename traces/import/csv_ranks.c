/* Tokens per rank as a table, a line per rank. Columns rank, layer, iter (iteration, step) and tokens (token_num), as
 * LAER-MoE's analysis writes them, with method and model_name (arXiv 2602.11686, artifact, token_analysis_backup.csv).
 * They are tokens RECEIVED. Experts of a rank are not told apart, so an expert of the trace is all that one
 * expert-parallel rank has. There are as many as --ep, rank r being (r mod ep)-th, as in LAER's runs. Ranks with the
 * same ones add up. Lines come in any order (by rank, by method), so the whole table is in memory, 24 bytes a line. A
 * table of several methods, models or phases needs --method, --model, --phase. Several files are one after another in
 * time, each of all ranks.
 * Each begins behind the last step of the one before. */
#include "runtime/base/arena.h"
#include "traces/import/csv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 1 << 27 };
enum { RANK, LAYER, ITER, TOKENS };
static const char *const columns[] = {"rank", "layer", "iter|iteration|step", "tokens|token_num", NULL};

typedef struct {
  int64_t iter;
  int32_t layer, rank;
  uint32_t tokens, line;
} entry;

typedef struct {
  hec_csv csv;
  int rank, layer, iter, tokens; /* columns */
  entry *entries;
  size_t n, capacity, given;
  bool read;
} table;

static hec_status open_file(hec_import_file *file) {
  table *t = file->state;
  HEC_TRY(hec_csv_open(&t->csv, file));
  HEC_TRY(hec_csv_want(&t->csv, columns[RANK], &t->rank));
  HEC_TRY(hec_csv_want(&t->csv, columns[LAYER], &t->layer));
  HEC_TRY(hec_csv_want(&t->csv, columns[ITER], &t->iter));
  HEC_TRY(hec_csv_want(&t->csv, columns[TOKENS], &t->tokens));
  HEC_TRY(hec_csv_find_kinds(file, &t->csv, "train"));
  hec_csv_leave_columns(file, &t->csv);
  file->dated = true;
  return HEC_OK;
}

static void close_file(void *state) {
  table *t = state;
  hec_csv_close(&t->csv);
  free(t->entries);
}

static hec_status take_line(table *t) {
  int64_t rank = 0, layer = 0, iter = 0, tokens = 0;
  HEC_TRY(hec_csv_integer(&t->csv, t->rank, HEC_CSV_RANK_MAX, &rank));
  HEC_TRY(hec_csv_integer(&t->csv, t->layer, (1 << 20) - 1, &layer));
  HEC_TRY(hec_csv_integer(&t->csv, t->iter, (INT64_C(1) << 53) - 1, &iter));
  HEC_TRY(hec_csv_integer(&t->csv, t->tokens, UINT32_MAX, &tokens));
  if (t->n == LINES_MAX)
    return hec_import_fail(t->csv.file, t->csv.line, "line", "expected at most %d lines, found more", LINES_MAX);
  HEC_RESERVE(t->entries, t->capacity, t->n + 1);
  t->entries[t->n++] = (entry){iter, (int32_t)layer, (int32_t)rank, (uint32_t)tokens, (uint32_t)t->csv.line};
  return HEC_OK;
}

static int compare_entries(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->iter != y->iter)
    return x->iter < y->iter ? -1 : 1;
  if (x->layer != y->layer)
    return x->layer < y->layer ? -1 : 1;
  if (x->rank != y->rank)
    return x->rank < y->rank ? -1 : 1;
  return x->line < y->line ? -1 : 1;
}

static hec_status read_lines(hec_import_file *file, table *t) {
  for (bool more = true, take = true;;) {
    HEC_TRY(hec_csv_next(&t->csv, &more));
    if (!more)
      return HEC_OK;
    HEC_TRY(hec_csv_choose(file, &t->csv, &take));
    if (take)
      HEC_TRY(take_line(t));
  }
}

static hec_status read_table(hec_import_file *file, table *t) {
  const hec_import_options *o = hec_import_options_of(file->job);
  int32_t ranks = 0;
  HEC_TRY(read_lines(file, t));
  if (file->words[1].length > 0)
    HEC_TRY(hec_import_set_model(file, 0, "model", file->words[1].data));
  if (t->n == 0)
    return hec_import_fail(file, 0, "lines", "expected at least one (of --method, --model and --phase), found none");
  hec_csv_sort(t->entries, t->n, sizeof *t->entries, compare_entries);
  for (size_t i = 0; i < t->n; i++)
    ranks = t->entries[i].rank >= ranks ? t->entries[i].rank + 1 : ranks;
  if (o->ranks > 0 && ranks != o->ranks)
    return hec_import_fail(file, 0, "rank", "expected ranks 0 to %" PRId64 " (--ranks), found up to %d", o->ranks - 1,
                           (int)ranks - 1);
  if (file->kept > 0 && ranks != file->kept) /* kept: of the first file */
    return hec_import_fail(file, 0, "rank",
                           "expected ranks 0 to %" PRId64 " as in the first file (files are one after another in "
                           "time), found up to %d",
                           file->kept - 1, (int)ranks - 1);
  if (file->kept > 0)
    return HEC_OK;
  file->kept = ranks;
  int64_t ep = o->ep > 0 ? o->ep : ranks;
  HEC_ASSERT(ep > 0);
  if (ranks % ep != 0)
    return hec_import_fail(file, 0, "rank", "expected a number that --ep %" PRId64 " divides, found %d", ep,
                           (int)ranks);
  if (o->ep == 0)
    hec_import_assume(file->job, "expert parallelism over all %d ranks (--ep)", (int)ranks);
  if (o->ranks == 0)
    hec_import_assume(file->job, "ranks 0 to %d are all there are (--ranks N checks)", (int)ranks - 1);
  hec_import_assume(file->job,
                    "an expert is all that one expert-parallel rank has; who sent the tokens is not recorded");
  HEC_TRY(hec_import_set_ranks(file, 0, "rank", ranks));
  hec_import_set_sources(file->job, ranks);
  return hec_import_set_experts(file, 0, "rank (expert-parallel ranks)", ep);
}

static hec_status next(hec_import_file *file, hec_import_row *row, bool *more) {
  table *t = file->state;
  if (!t->read)
    HEC_TRY(read_table(file, t));
  t->read = true;
  *more = t->given < t->n;
  if (!*more)
    return HEC_OK;
  const entry *e = &t->entries[t->given++];
  *row = (hec_import_row){.step = e->iter,
                          .layer = e->layer,
                          .source = e->rank,
                          .first = e->rank % hec_import_experts(file->job),
                          .n = 1,
                          .counts = &e->tokens,
                          .line = e->line,
                          .n_lines = 1};
  return HEC_OK;
}

static bool recognise(const char *head, size_t n) {
  return hec_csv_head_has_all(head, n, columns);
}

const hec_importer hec_importer_csv_ranks = {
    .name = "csv-ranks",
    .summary = "CSV rank,layer,iter,tokens, and LAER-MoE's with method and model_name: tokens received by ranks",
    .source = "LAER-MoE, arXiv 2602.11686, artifact",
    .pattern = "*.csv *.csv.gz",
    .files = HEC_FILES_SEQUENCE,
    .totals = true,
    .columns = columns,
    .recognise = recognise,
    .state_bytes = sizeof(table),
    .open = open_file,
    .next = next,
    .close = close_file,
};
