/* `hecate-validate published --system NAME`: a system's set-up in our simulator, its public numbers beside ours.
 *
 * A system is one data file, systems/NAME.json (scope.h), and one row in system_list.h; list, `all`, table, JSON and
 * tests walk the rows. Its notes say source, set-up, what is inferred, and what is not as published. There is one set
 * of defaults, and nothing is tuned to a row. If an input is not public and decides a row, it is varied, and the row
 * says how far it moves.
 *
 * A row is judged by the geometric middle of its ends:  ratio = ours / published, within 10 % when |ratio - 1| <= 0.1.
 * Who wins: a gain's side of 1, published and ours (1 % around 1 is neither side); open where a range of ours holds both.
 *
 * JSON: {"version":1,"seed","quick","recorded" (a folder of recorded data was given),"stamp","systems":[{"name","title","source","differs","rows":[{"quantity","kind":"gain"|"value",
 *   "unit","setup","source","assumed","published":[low,high],"ours":[low,high] or null,"ratio":number or null,
 *   "moves":[low,high] or null,"moved_by" or null,"winner":"same"|"other"|"open" or null,"skipped" or null}],"summary":S}],
 *   "summary":S}         S = {"numbers","compared","skipped","within_10","within_25","winners","winners_same","varied","reached"} */
#pragma once
#include "runtime/base/table.h"
#include "validate/doc.h"
#include "validate/published/measure.h"
#include "validate/published/scope.h"

typedef enum {
  HEC_SYSTEM_GAIN,  /* how many times better: who wins is its side of 1 */
  HEC_SYSTEM_VALUE, /* anything else: overload factors, seconds, shares */
} hec_system_kind;

typedef struct {
  const char *quantity; /* what the number is */
  hec_system_kind kind;
  const char *unit;     /* "x" of gains; of values "ms", ""... */
  const char *setup;    /* cluster, model, tokens, loads */
  const char *source;   /* table, figure or file of the source it is from */
  const char *assumed;  /* what of the set-up is assumed, inferred or synthetic; "" only when nothing is */
  hec_span published;   /* a number (low == high), or its range over what the row covers */
  hec_span ours;        /* at the defaults; the same ends */
  hec_span moves;       /* ours over the values tried of what is not known; {0, 0}: nothing was varied */
  const char *moved_by; /* what was varied */
  const char *skipped;  /* why there is no number of ours; NULL: there is */
} hec_system_row;

typedef struct {
  uint64_t seed;      /* of synthetic loads */
  const char *shared; /* folder of recorded data; NULL: none, rows that need it say so */
  const char *stamp;  /* a line for the heading; NULL: none */
  bool quick;         /* fewer layers, iterations and rows' variants; as many rows: for tests */
  void (*progress)(const char *system, int32_t done, int32_t of, void *context); /* NULL: none */
  void *context;
} hec_system_options;

/* A system in a report, with its rows. */
typedef struct {
  hec_system_file file;
  int32_t first, end; /* rows of the report */
} hec_system_section;

typedef struct {
  hec_system_options options;
  hec_system_section *section; /* [n_sections] */
  hec_system_row *row;         /* [n_rows] */
  int32_t n_sections, n_rows;
  size_t sections_capacity, rows_capacity;
  hec_arena arena;
} hec_system_report;

extern const hec_system *const hec_systems[]; /* NULL-terminated, in the order of the list */
/* NULL when unknown. "hecate" is none of them: it is what `published` does by default (published.h). */
const hec_system *hec_system_find(const char *name);

/* `system` NULL: all of the table. Absent recorded data is a skipped row; data that is there and cannot be read fails. Free with
 * hec_systems_free. */
hec_status hec_systems_run(const hec_system *system, const hec_system_options *options,
                           hec_system_report **report) HEC_MUST_USE;
void hec_systems_free(hec_system_report *report);
HEC_OPENED_BY(hec_system_report, hec_systems_free)

typedef enum { HEC_WINNER_NONE, HEC_WINNER_SAME, HEC_WINNER_OTHER, HEC_WINNER_OPEN } hec_winner;
hec_winner hec_system_winner(const hec_system_row *row); /* none: a value, a skipped row, or published even */
double hec_system_ratio(const hec_system_row *row);      /* ours / published; NAN without ours */
/* Do two rows have the same set-up, source, assumptions, and reason for being skipped? */
bool hec_system_same_notes(const hec_system_row *a, const hec_system_row *b);

typedef struct {
  int32_t numbers, compared, skipped, within_10, within_25, winners, winners_same;
  int32_t varied, reached; /* rows with something varied; of them with the published number in the range */
} hec_system_summary;
/* Of one section; NULL: of all. */
hec_system_summary hec_system_sum(const hec_system_report *report, const hec_system_section *section);

hec_doc_report hec_systems_report; /* of a hec_system_report */
/* `--system list`, and with --json. */
hec_status hec_systems_list(bool json, hec_text *out) HEC_MUST_USE;
