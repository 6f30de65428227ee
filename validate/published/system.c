/* Rows of all systems in one array, in the order of their files, whose texts they point to. O(rows). */
#include "validate/published/system.h"

#include "runtime/base/arena.h"
#include "validate/published/system_list.h"
#include "validate/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SYSTEM_ROW(system) &(const hec_system){.name = #system},
const hec_system *const hec_systems[] = {HEC_SYSTEM_LIST(SYSTEM_ROW) NULL};

HEC_TABLE_OF(hec_system);
const hec_system *hec_system_find(const char *name) {
  return hec_table_find(hec_systems, name);
}

/* ---- judging ---- */

#define EVEN 0.01 /* so near to 1 nobody wins */

/* -1, 0, 1; 2: both sides are in it. */
static int32_t side_of(hec_span span) {
  int32_t low = hec_side_of_one(span.low, EVEN), high = hec_side_of_one(span.high, EVEN);
  return low == high ? low : low < 0 && high > 0 ? 2 : low + high;
}

hec_winner hec_system_winner(const hec_system_row *row) {
  if (row->kind != HEC_SYSTEM_GAIN || row->skipped)
    return HEC_WINNER_NONE;
  int32_t theirs = side_of(row->published), ours = side_of(row->ours);
  if (theirs == 0 || theirs == 2)
    return HEC_WINNER_NONE;
  return ours == 2 ? HEC_WINNER_OPEN : ours == theirs ? HEC_WINNER_SAME : HEC_WINNER_OTHER;
}

double hec_system_ratio(const hec_system_row *row) {
  return row->skipped ? NAN : sqrt(row->ours.low * row->ours.high) / sqrt(row->published.low * row->published.high);
}

static bool same(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

bool hec_system_same_notes(const hec_system_row *a, const hec_system_row *b) {
  return same(a->setup, b->setup) && same(a->source, b->source) && same(a->assumed, b->assumed) &&
         same(a->skipped, b->skipped);
}

static void add_to_sum(hec_system_summary *sum, const hec_system_row *row) {
  sum->numbers++;
  sum->skipped += row->skipped != NULL;
  if (row->skipped)
    return;
  double off = fabs(hec_system_ratio(row) - 1), theirs = sqrt(row->published.low * row->published.high);
  hec_winner winner = hec_system_winner(row);
  sum->compared++;
  sum->within_10 += off <= 0.10;
  sum->within_25 += off <= 0.25;
  sum->winners += winner != HEC_WINNER_NONE;
  sum->winners_same += winner == HEC_WINNER_SAME;
  sum->varied += row->moved_by != NULL;
  sum->reached += row->moved_by && row->moves.low <= theirs && theirs <= row->moves.high;
}

hec_system_summary hec_system_sum(const hec_system_report *report, const hec_system_section *section) {
  hec_system_summary sum = {0};
  for (int32_t i = section ? section->first : 0; i < (section ? section->end : report->n_rows); i++)
    add_to_sum(&sum, &report->row[i]);
  return sum;
}

/* ---- running ---- */

typedef struct {
  hec_system_report *report;
  hec_cell_cache *cache;
} running;

/* The text, which must be there. */
static hec_status want(const hec_scope *scope, const char *key, const char **out) {
  HEC_SCOPED(hec_text) expected = {0};
  *out = hec_scope_text(scope, key);
  if (*out)
    return HEC_OK;
  hec_text_printf(&expected, "a row with a text \"%s\", its own or its group's", key);
  return hec_json_error(scope->file->json, scope->open[scope->n - 1], expected.data);
}

static bool is_number(hec_span span) {
  return isfinite(span.low) && isfinite(span.high) && span.low >= 0 && span.low <= span.high;
}

static hec_status measure(running *r, hec_scope *scope, hec_system_row *row) {
  hec_measured measured;
  HEC_TRY(hec_measure_row(r->cache, scope, &measured));
  if (measured.absent) {
    row->skipped = hec_arena_printf(&r->report->arena, "%s is not below the folder of recorded data", measured.absent);
    return HEC_OK;
  }
  row->ours = measured.ours;
  row->moves = measured.moves;
  return is_number(row->ours) && is_number(row->moves)
             ? HEC_OK
             : hec_json_error(scope->file->json, hec_scope_find(scope, "value"), "a formula that gives a number >= 0");
}

static hec_status add_row(hec_scope *scope, void *context) {
  running *r = context;
  hec_system_report *report = r->report;
  hec_system_row row = {.unit = hec_scope_text(scope, "unit")};
  HEC_TRY(want(scope, "quantity", &row.quantity));
  HEC_TRY(want(scope, "setup", &row.setup));
  HEC_TRY(want(scope, "from", &row.source));
  HEC_TRY(want(scope, "assumed", &row.assumed));
  HEC_TRY(hec_measure_published(scope, &row.published));
  if (!is_number(row.published) || !(row.published.low > 0))
    return hec_json_error(scope->file->json, hec_scope_find(scope, "published"), "a number > 0");
  row.kind = row.unit ? HEC_SYSTEM_VALUE : HEC_SYSTEM_GAIN;
  row.unit = row.unit ? row.unit : "x";
  row.moved_by = hec_scope_text(scope, "moved_by");
  row.skipped = hec_scope_text(scope, "skipped");
  if (!row.skipped)
    HEC_TRY(measure(r, scope, &row));
  HEC_RESERVE(report->row, report->rows_capacity, report->n_rows + 1);
  report->row[report->n_rows++] = row;
  return HEC_OK;
}

/* Synthetic drifting loads are kept from one system to the next. */
static hec_status run_one(hec_system_report *report, const hec_system *system, hec_loads_store *store) {
  const hec_system_options *options = &report->options;
  HEC_RESERVE(report->section, report->sections_capacity, report->n_sections + 1);
  hec_system_section *section = &report->section[report->n_sections];
  HEC_TRY(hec_system_open(system, &section->file));
  report->n_sections++;
  section->first = section->end = report->n_rows;
  running r = {.report = report,
               .cache = hec_cell_cache_new(&(hec_cell_cache_options){
                   .base = hec_setup_default(), .store = store, .shared = options->shared, .quick = options->quick})};
  hec_scope scope = hec_scope_of(&section->file, options->quick);
  hec_status status = hec_scope_rows(&scope, add_row, &r);
  section->end = report->n_rows;
  hec_cell_cache_free(r.cache);
  return status;
}

hec_status hec_systems_run(const hec_system *system, const hec_system_options *options, hec_system_report **out) {
  enum { DRIFTING = 60 };
  HEC_OPENED(hec_loads_store) *store = NULL;
  *out = NULL;
  HEC_TRY(hec_loads_open(NULL, DRIFTING, options->seed, &store));
  hec_system_report *report = hec_malloc(1, sizeof *report);
  *report = (hec_system_report){.options = *options};
  const hec_system *const one[] = {system, NULL};
  const hec_system *const *systems = system ? one : hec_systems;
  int32_t of = 0;
  while (systems[of])
    of++;
  hec_status status = HEC_OK;
  for (int32_t i = 0; i < of && status == HEC_OK; i++) {
    if (options->progress)
      options->progress(systems[i]->name, i, of, options->context);
    status = run_one(report, systems[i], store);
  }
  if (status != HEC_OK) {
    hec_systems_free(report);
    report = NULL;
  }
  *out = report;
  return status;
}

void hec_systems_free(hec_system_report *report) {
  if (!report)
    return;
  for (int32_t i = 0; i < report->n_sections; i++)
    hec_system_close(&report->section[i].file);
  hec_arena_free(&report->arena);
  free(report->section);
  free(report->row);
  free(report);
}
