/* Counts as a table, a line per expert. Columns layer (or layer_id), expert (expert_id) and count (tokens,
 * token_count, num_tokens), perhaps step (iter, iteration), rank (source_rank), method, model_name and phase.
 * Others are left out, and said. llama.cpp derivatives write one. SGLang before 2025-05 writes a file per rank and dump
 * (expert_distribution_rank<r>_timestamp<t>.csv). Then rows are of source rank r, and the k-th file of each rank is
 * step k. A column says the rank of each line, in files whose names do not. Lines of a step may come in any order; one step is in memory. Experts that have no line have no tokens. But
 * a layer whose table was complete in the first step must stay so, unless the user says that there are gaps. A lost
 * line is not a zero. */
#include "runtime/base/arena.h"
#include "traces/import/csv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP "step|iter|iteration"
#define RANK "rank|source_rank"

enum { LAYER, EXPERT, COUNT };
static const char *const columns[] = {"layer|layer_id", "expert|expert_id", "count|tokens|token_count|num_tokens",
                                      NULL};

enum { LINES_MAX = 1 << 22 }; /* of a step: 96 MiB of cells, far above any model's layers x experts */

typedef struct {
  int32_t layer, rank, expert;
  uint32_t count;
  int64_t line;
} cell;

typedef struct {
  hec_csv csv;
  int layer, expert, count, step, rank; /* columns; step, rank -1: none */
  cell *cells;                          /* of the step */
  size_t n, capacity, given;
  int64_t step_at, next_step; /* of the cells; of the line that is read already, -1: none */
  bool ended;
  uint32_t *counts;
} table;

static hec_status open_file(hec_import_file *file) {
  table *t = file->state;
  t->next_step = -1;
  HEC_TRY(hec_csv_open(&t->csv, file));
  HEC_TRY(hec_csv_want(&t->csv, columns[LAYER], &t->layer));
  HEC_TRY(hec_csv_want(&t->csv, columns[EXPERT], &t->expert));
  HEC_TRY(hec_csv_want(&t->csv, columns[COUNT], &t->count));
  HEC_TRY(hec_csv_find(&t->csv, STEP, &t->step));
  t->rank = -1;
  if (file->given < 0)
    HEC_TRY(hec_csv_find(&t->csv, RANK, &t->rank));
  HEC_TRY(hec_csv_find_kinds(file, &t->csv, "train"));
  hec_csv_leave_columns(file, &t->csv);
  file->dated = t->step >= 0;
  return HEC_OK;
}

static void close_file(void *state) {
  table *t = state;
  hec_csv_close(&t->csv);
  free(t->cells);
  free(t->counts);
}

/* The next line's step. */
static hec_status advance(hec_import_file *file, table *t) {
  bool more = false;
  for (bool take = false; !take;) {
    HEC_TRY(hec_csv_next(&t->csv, &more));
    take = !more;
    if (more)
      HEC_TRY(hec_csv_choose(file, &t->csv, &take));
  }
  t->ended = !more;
  t->next_step = more ? 0 : -1;
  if (more && t->step >= 0)
    HEC_TRY(hec_csv_integer(&t->csv, t->step, HEC_IMPORT_STEP_MAX, &t->next_step));
  return HEC_OK;
}

static hec_status take_cell(table *t, int64_t n_experts) {
  int64_t layer = 0, rank = 0, expert = 0, count = 0;
  HEC_TRY(hec_csv_integer(&t->csv, t->layer, (1 << 20) - 1, &layer));
  HEC_TRY(hec_csv_integer(&t->csv, t->expert, (n_experts > 0 ? n_experts : HEC_TRACE_DIMENSION_MAX) - 1, &expert));
  HEC_TRY(hec_csv_integer(&t->csv, t->count, UINT32_MAX, &count));
  if (t->rank >= 0)
    HEC_TRY(hec_csv_integer(&t->csv, t->rank, HEC_CSV_RANK_MAX, &rank));
  if (t->n == LINES_MAX)
    return hec_import_fail(t->csv.file, t->csv.line, "line", "expected at most %d lines of a step, found more",
                           LINES_MAX);
  HEC_RESERVE(t->cells, t->capacity, t->n + 1);
  t->cells[t->n++] = (cell){(int32_t)layer, (int32_t)rank, (int32_t)expert, (uint32_t)count, t->csv.line};
  return HEC_OK;
}

static int compare_cells(const void *a, const void *b) {
  const cell *x = a, *y = b;
  if (x->layer != y->layer)
    return x->layer < y->layer ? -1 : 1;
  if (x->rank != y->rank)
    return x->rank < y->rank ? -1 : 1;
  if (x->expert != y->expert)
    return x->expert < y->expert ? -1 : 1;
  return x->line < y->line ? -1 : 1;
}

/* Lines of several steps or ranks, whose column is not read, look like one. */
static hec_status repeated_cell(const hec_import_file *file, const table *t, const cell *c) {
  HEC_SCOPED(hec_text) hint = {0};
  hec_text_add(&hint, "");
  if (t->step < 0) {
    hec_text_add(&hint, "; no column is named step, iter or iteration");
    (void)hec_csv_add_near(&t->csv, STEP, &hint);
  } else if (t->rank < 0 && file->given < 0) {
    hec_text_add(&hint, "; no column is named rank or source_rank");
    (void)hec_csv_add_near(&t->csv, RANK, &hint);
  }
  return hec_import_fail(file, c->line, hec_csv_name(&t->csv, t->expert),
                         "expected every expert of a layer once in a step%s, found layer %d, expert %d again%s",
                         t->rank < 0 ? "" : " and rank", (int)c->layer, (int)c->expert, hint.data);
}

/* After sorting: no expert twice, and how many layers there are. */
static hec_status check_cells(const hec_import_file *file, const table *t, size_t *n_layers) {
  *n_layers = 1;
  for (size_t i = 1; i < t->n; i++) {
    const cell *a = &t->cells[i - 1], *b = &t->cells[i];
    if (a->layer == b->layer && a->rank == b->rank && a->expert == b->expert)
      return repeated_cell(file, t, b);
    *n_layers += a->layer != b->layer;
  }
  return HEC_OK;
}

/* Those of the first step are all there are. */
static hec_status check_ranks(hec_import_file *file, const table *t) {
  const hec_import_options *o = hec_import_options_of(file->job);
  int64_t max = 0;
  for (size_t i = 0; i < t->n; i++)
    max = t->cells[i].rank > max ? t->cells[i].rank : max;
  int64_t known = file->kept > 0 ? file->kept : o->ranks;
  if (known > 0 && max >= known)
    return hec_import_fail(file, t->cells[t->n - 1].line, hec_csv_name(&t->csv, t->rank),
                           "expected from 0 to %" PRId64 "%s, found %" PRId64, known - 1,
                           file->kept > 0 ? ", as in the first step" : " (--ranks)", max);
  if (file->kept > 0)
    return HEC_OK;
  if (known == 0)
    hec_import_assume(file->job, "ranks 0 to %" PRId64 " are all there are (--ranks N checks)", max);
  file->kept = known > 0 ? known : max + 1;
  HEC_TRY(hec_import_set_ranks(file, 0, "rank", (int32_t)file->kept));
  hec_import_set_sources(file->job, (int32_t)file->kept);
  return HEC_OK;
}

/* The first line that should be there: cells are sorted, and some are missing. */
static cell first_missing(const table *t, int64_t n_ranks, int64_t n_experts) {
  cell wanted = {.layer = t->cells[0].layer};
  for (size_t i = 0; i < t->n; i++) {
    const cell *c = &t->cells[i];
    if (wanted.rank == n_ranks)
      wanted = (cell){.layer = c->layer};
    if (c->layer != wanted.layer || c->rank != wanted.rank || c->expert != wanted.expert)
      break;
    if (++wanted.expert == n_experts) {
      wanted.expert = 0;
      wanted.rank++;
    }
  }
  return wanted;
}

static hec_status missing_cells(const hec_import_file *file, const table *t, int64_t n_ranks, int64_t n_experts,
                                size_t all) {
  cell missing = first_missing(t, n_ranks, n_experts);
  char rank[32] = "";
  if (t->rank >= 0)
    (void)snprintf(rank, sizeof rank, ", rank %d", (int)missing.rank);
  return hec_import_fail(file, t->cells[t->n - 1].line, "line",
                         "expected a line for every expert of every layer%s in step %" PRId64
                         ", found %zu for %zu, none for layer %d%s, expert %d: sort the file by step (--gaps%s: those "
                         "without one have no tokens)",
                         t->rank < 0 ? "" : " and rank", t->step_at, t->n, all, (int)missing.layer, rank,
                         (int)missing.expert, hec_import_experts(file->job) > 0 ? "" : " and --experts N");
}

static hec_status judge(hec_import_file *file, table *t) {
  int32_t max = 0;
  size_t n_layers = 0;
  HEC_TRY(check_cells(file, t, &n_layers));
  if (t->rank >= 0)
    HEC_TRY(check_ranks(file, t));
  for (size_t i = 0; i < t->n; i++)
    max = t->cells[i].expert > max ? t->cells[i].expert : max;
  bool gaps = hec_import_options_of(file->job)->gaps, known = hec_import_experts(file->job) > 0;
  int64_t n_ranks = t->rank >= 0 ? file->kept : 1;
  int64_t n_experts = known ? hec_import_experts(file->job) : (int64_t)max + 1;
  size_t all = n_layers * (size_t)n_ranks * (size_t)n_experts;
  if (t->n != all && !(gaps && known))
    return missing_cells(file, t, n_ranks, n_experts, all);
  if (t->n != all)
    hec_import_assume(file->job, "experts without a line have no tokens");
  if (known)
    return HEC_OK;
  if (hec_import_options_of(file->job)->top_k > (int64_t)max + 1)
    return hec_import_fail(file, t->cells[t->n - 1].line, hec_csv_name(&t->csv, t->expert),
                           "expected %" PRId64 " experts and more in step %" PRId64
                           " (--top-k), found %d: sort the file by step",
                           (int64_t)hec_import_options_of(file->job)->top_k, t->step_at, (int)max + 1);
  hec_import_assume(file->job, "experts: %d, the highest of the first step (--experts)", (int)max + 1);
  return hec_import_set_experts(file, 0, "expert", max + 1);
}

/* All lines of the next step. */
static hec_status read_step(hec_import_file *file, table *t, bool *more) {
  t->n = t->given = 0;
  if (t->next_step < 0 && !t->ended)
    HEC_TRY(advance(file, t));
  *more = !t->ended;
  if (t->ended)
    return HEC_OK;
  t->step_at = t->next_step;
  while (!t->ended && t->next_step == t->step_at) {
    HEC_TRY(take_cell(t, hec_import_experts(file->job)));
    HEC_TRY(advance(file, t));
  }
  hec_csv_sort(t->cells, t->n, sizeof *t->cells, compare_cells);
  return judge(file, t);
}

static hec_status next(hec_import_file *file, hec_import_row *row, bool *more) {
  table *t = file->state;
  *more = true;
  if (t->given == t->n)
    HEC_TRY(read_step(file, t, more));
  if (!*more)
    return HEC_OK;
  size_t experts = (size_t)hec_import_experts(file->job);
  int32_t layer = t->cells[t->given].layer, rank = t->cells[t->given].rank;
  if (!t->counts)
    t->counts = hec_malloc(experts, sizeof *t->counts);
  memset(t->counts, 0, experts * sizeof *t->counts);
  *row = (hec_import_row){.step = t->step_at,
                          .layer = layer,
                          .source = t->rank < 0 ? -1 : rank,
                          .n = (int32_t)experts,
                          .counts = t->counts,
                          .line = t->cells[t->given].line};
  for (; t->given < t->n && t->cells[t->given].layer == layer && t->cells[t->given].rank == rank; t->given++) {
    const cell *c = &t->cells[t->given];
    if ((size_t)c->expert >= experts)
      return hec_import_fail(file, c->line, hec_csv_name(&t->csv, t->expert), "expected from 0 to %zu, found %d",
                             experts - 1, (int)c->expert);
    t->counts[c->expert] = c->count;
    row->n_lines++;
  }
  return HEC_OK;
}

static bool recognise(const char *head, size_t n) {
  return hec_csv_head_has_all(head, n, columns);
}

const hec_importer hec_importer_csv_counts = {
    .name = "csv-counts",
    .summary = "CSV layer,expert,count, perhaps with step and rank; by rank, too, where names have one",
    .source = "llama.cpp derivatives; SGLang before 2025-05, expert_distribution_rank<r>_timestamp<t>.csv",
    .pattern = "*.csv *.csv.gz",
    .files = HEC_FILES_MAYBE_RANKS,
    .columns = columns,
    .recognise = recognise,
    .state_bytes = sizeof(table),
    .open = open_file,
    .next = next,
    .close = close_file,
};
