/* Rows of all systems in one array, in the order they were added; texts on the report's memory. O(rows). */
#include "validate/published/system.h"

#include "runtime/base/table.h"
#include "validate/stats.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYSTEM_ROW(name) &hec_system_##name,
const hec_system *const hec_systems[] = {HEC_SYSTEM_LIST(SYSTEM_ROW) NULL};

typedef struct {
  hec_system_row row;
  const hec_system *system;
} entry;

struct hec_system_report {
  hec_system_options options;
  hec_arena arena;
  const hec_system *running;
  hec_loads_store *drifting; /* NULL until asked for */
  entry *entries;            /* [n] */
  size_t n, capacity;
};

HEC_TABLE_OF(hec_system);
const hec_system *hec_system_find(const char *name) {
  return hec_table_find(hec_systems, name);
}

const hec_system_options *hec_system_options_of(const hec_system_report *report) {
  return &report->options;
}

hec_arena *hec_system_arena(hec_system_report *report) {
  return &report->arena;
}

enum { DRIFTING = 60 };

hec_status hec_system_drifting(hec_system_report *report, hec_loads_store **store) {
  if (!report->drifting)
    HEC_TRY(hec_loads_open(NULL, DRIFTING, report->options.seed, &report->drifting));
  *store = report->drifting;
  return HEC_OK;
}

const char *hec_system_text(hec_system_report *report, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  HEC_ASSERT(n >= 0 && (size_t)n < sizeof text);
  return hec_arena_text(&report->arena, text);
}

static const char *keep(hec_system_report *report, const char *text) {
  return text ? hec_arena_text(&report->arena, text) : NULL;
}

static bool is_span(hec_span span) {
  return isfinite(span.low) && isfinite(span.high) && span.low <= span.high;
}

void hec_system_add(hec_system_report *report, const hec_system_row *row) {
  HEC_ASSERT(report->running && row->quantity && row->setup && row->source && row->assumed && is_span(row->published));
  HEC_ASSERT(row->published.low > 0 && (row->kind == HEC_SYSTEM_GAIN || row->unit));
  HEC_ASSERT(row->skipped || (is_span(row->ours) && row->ours.low >= 0 && is_span(row->moves)));
  HEC_RESERVE(report->entries, report->capacity, report->n + 1);
  entry *e = &report->entries[report->n++];
  *e = (entry){*row, report->running};
  e->row.quantity = keep(report, row->quantity);
  e->row.unit = keep(report, row->kind == HEC_SYSTEM_GAIN ? "x" : row->unit);
  e->row.setup = keep(report, row->setup);
  e->row.source = keep(report, row->source);
  e->row.assumed = keep(report, row->assumed);
  e->row.moved_by = keep(report, row->moved_by);
  e->row.skipped = keep(report, row->skipped);
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

hec_system_summary hec_system_sum(const hec_system_report *report, const hec_system *system) {
  hec_system_summary sum = {0};
  for (size_t i = 0; i < report->n; i++) {
    const entry *e = &report->entries[i];
    if (system && e->system != system)
      continue;
    sum.numbers++;
    sum.skipped += e->row.skipped != NULL;
    if (e->row.skipped)
      continue;
    double off = fabs(hec_system_ratio(&e->row) - 1);
    hec_winner winner = hec_system_winner(&e->row);
    double theirs = sqrt(e->row.published.low * e->row.published.high);
    sum.compared++;
    sum.within_10 += off <= 0.10;
    sum.within_25 += off <= 0.25;
    sum.winners += winner != HEC_WINNER_NONE;
    sum.winners_same += winner == HEC_WINNER_SAME;
    sum.varied += e->row.moved_by != NULL;
    sum.reached += e->row.moved_by && e->row.moves.low <= theirs && theirs <= e->row.moves.high;
  }
  return sum;
}

/* ---- running ---- */

static hec_status run_one(hec_system_report *report, const hec_system *system) {
  report->running = system;
  size_t before = report->n;
  hec_status status = system->run(report);
  HEC_ASSERT(status != HEC_OK || report->n > before);
  report->running = NULL;
  return status;
}

hec_status hec_systems_run(const hec_system *system, const hec_system_options *options, hec_system_report **out) {
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
    status = run_one(report, systems[i]);
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
  hec_loads_close(report->drifting);
  hec_arena_free(&report->arena);
  free(report->entries);
  free(report);
}

int32_t hec_system_count(const hec_system_report *report) {
  return (int32_t)report->n;
}

const hec_system_row *hec_system_at(const hec_system_report *report, int32_t i, const hec_system **system) {
  HEC_ASSERT(i >= 0 && (size_t)i < report->n);
  if (system)
    *system = report->entries[i].system;
  return &report->entries[i].row;
}
