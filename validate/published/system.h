/* `hecate-validate published --system NAME`: a system's set-up in our simulator, its public numbers beside ours.
 *
 * One file in systems/ with everything static except one hec_system, and one row in system_list.h; list, `all`, table,
 * JSON and tests walk the rows. The head of such a file says source, set-up, what is inferred, and what is not as
 * published. One set of defaults, nothing is tuned to a row: an input that is not public and decides a row is varied, and
 * the row says how far it moves.
 *
 * A row is judged by the geometric middle of its ends:  ratio = ours / published, within 10 % when |ratio - 1| <= 0.1.
 * Who wins: a gain's side of 1, published and ours (1 % around 1 is neither side); open where a range of ours holds both.
 *
 * JSON: {"version":1,"seed","quick","recorded" (a folder of recorded data was given),"stamp","systems":[{"name","title","source","differs","rows":[{"quantity","kind":"gain"|"value",
 *   "unit","setup","source","assumed","published":[low,high],"ours":[low,high] or null,"ratio":number or null,
 *   "moves":[low,high] or null,"moved_by" or null,"winner":"same"|"other"|"open" or null,"skipped" or null}],"summary":S}],
 *   "summary":S}         S = {"numbers","compared","skipped","within_10","within_25","winners","winners_same","varied","reached"} */
#ifndef HEC_VALIDATE_PUBLISHED_SYSTEM_H
#define HEC_VALIDATE_PUBLISHED_SYSTEM_H
#include "validate/published/published_rows.h"
#include "validate/published/system_list.h"

typedef enum {
  HEC_SYSTEM_GAIN,  /* how many times better: who wins is its side of 1 */
  HEC_SYSTEM_VALUE, /* anything else: overload factors, seconds, shares */
} hec_system_kind;

/* Texts are copied. */
typedef struct {
  const char *quantity; /* what the number is */
  hec_system_kind kind;
  const char *unit;     /* of values: "ms"; "": a bare number; NULL: "x" */
  const char *setup;    /* cluster, model, tokens, loads */
  const char *source;   /* table, figure or file of the source it is from */
  const char *assumed;  /* what of the set-up is assumed, inferred or synthetic; "" only when nothing is */
  hec_span published;   /* a number (low == high), or its range over what the row covers */
  hec_span ours;        /* at the defaults; the same ends */
  hec_span moves;       /* ours over the values tried of what is not known; {0, 0}: nothing was varied */
  const char *moved_by; /* what was varied */
  const char *skipped;  /* why there is no number of ours; NULL: there is */
} hec_system_row;

typedef struct hec_system_report hec_system_report;
typedef struct hec_system hec_system;

typedef struct {
  uint64_t seed;      /* of synthetic loads */
  const char *shared; /* folder of recorded data; NULL: none, rows that need it say so */
  const char *stamp;  /* a line for the heading; NULL: none */
  bool quick;         /* fewer layers, iterations and rows' variants; as many rows: for tests */
  void (*progress)(const char *system, int32_t done, int32_t of, void *context); /* NULL: none */
  void *context;
} hec_system_options;

struct hec_system {
  const char *name;    /* of --system */
  const char *title;   /* for people */
  const char *source;  /* papers, repositories */
  const char *differs; /* what is inferred or not as published, of the inputs: no conclusion; sentences */
  /* Adds the rows. Fails on recorded data that is there and cannot be read, or our own bugs; absent data is a skipped
   * row. */
  hec_status (*run)(hec_system_report *report);
};

#define HEC_SYSTEM_DECLARE(name) extern const hec_system hec_system_##name;
HEC_SYSTEM_LIST(HEC_SYSTEM_DECLARE)
extern const hec_system *const hec_systems[]; /* NULL-terminated, in the order of the list */
/* NULL when unknown. "hecate" is none of them: it is what `published` does by default (published.h). */
const hec_system *hec_system_find(const char *name);

/* ---- for systems ---- */

const hec_system_options *hec_system_options_of(const hec_system_report *report);
void hec_system_add(hec_system_report *report, const hec_system_row *row);
/* Memory until the report is freed; what is big is rewound. */
hec_arena *hec_system_arena(hec_system_report *report);
/* Synthetic loads with drift, made once per skew, number of experts and top-k; at most 60 iterations. */
hec_status hec_system_drifting(hec_system_report *report, hec_loads_store **store) HEC_MUST_USE;
/* A text on that memory. */
const char *hec_system_text(hec_system_report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- running and showing ---- */

/* `system` NULL: all of the table. Free with hec_systems_free. */
hec_status hec_systems_run(const hec_system *system, const hec_system_options *options,
                           hec_system_report **report) HEC_MUST_USE;
void hec_systems_free(hec_system_report *report);

int32_t hec_system_count(const hec_system_report *report); /* rows */
const hec_system_row *hec_system_at(const hec_system_report *report, int32_t i, const hec_system **system);

typedef enum { HEC_WINNER_NONE, HEC_WINNER_SAME, HEC_WINNER_OTHER, HEC_WINNER_OPEN } hec_winner;
hec_winner hec_system_winner(const hec_system_row *row); /* none: a value, a skipped row, or published even */
double hec_system_ratio(const hec_system_row *row);      /* ours / published; NAN without ours */
/* Do two rows have the same set-up, source, assumptions, and reason for being skipped? */
bool hec_system_same_notes(const hec_system_row *a, const hec_system_row *b);

typedef struct {
  int32_t numbers, compared, skipped, within_10, within_25, winners, winners_same;
  int32_t varied, reached; /* rows with something varied; of them with the published number in the range */
} hec_system_summary;
hec_system_summary hec_system_sum(const hec_system_report *report, const hec_system *system); /* NULL: all */

void hec_systems_markdown(const hec_system_report *report, hec_text *out);
void hec_systems_json(const hec_system_report *report, hec_text *out);
void hec_systems_list(hec_text *out);      /* `--system list` */
void hec_systems_list_json(hec_text *out); /* with --json */

#endif
