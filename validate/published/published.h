/* `hecate-validate published`: the FSSDP paper's set-ups (arXiv 2502.02581) simulated, row by row beside its numbers. They are
 * systems/hecate.json; beside rows (scope.h, measure.h) it holds
 *
 *   inputs              what the paper leaves open, at plain defaults
 *   grid, quick_grid    the values that the search combines: tokens, nonmoe_scale, sigma
 *   changes             of one input each: change (in words), input; field, and times, plus or to; long: for rows of long runs too
 *   search, sets.long   iterations and warm-up of search and changes, and of long runs; kept: iterations of loads
 *   axes                settings and models: of the table of cases
 *   of a row            key; where (setting and model); kind (number: the default; sign: the paper says who wins,
 *                       above 1; info: not in the paper); paper (the number as printed); depends_on (which inputs);
 *                       reading (what of it is our reading); long; followed (it is in the table of changes)
 *
 * There are two tables. One has the inputs as the paper states them, with what it leaves open at plain defaults. The
 * other has the best single set of unknowns for the whole table, by a full search of a small grid:
 *
 *   objective = mean over the rows with a number (but those of long runs) of mean |ln(ours / paper)| over the row's
 * ends, on the synthetic loads, so it does not depend on which traces there are; a ratio that could not be formed
 *               counts as ln 10; sets under which EP itself does not fit into a GPU are left out (the paper's batch is
 *               the largest that fits)
 *
 * and for each table what one change of one input does to every row. All numbers are simulated: same options, same
 * bytes.
 *
 * JSON (--json):
 *   {"version":1,"paper","stamp","clusters":{"a","b"},"trace":{"name","stride"} or null,"seed","quick",
 *    "iterations":{"reported","warmup","sweep","sweep_warmup","search","search_warmup"},
 *    "tables":[{"name":"plain"|"best","inputs":I,
 *      "objective":{"synthetic","recorded"},"signs":{"synthetic":{"agree","disagree"},"recorded":{..}},
 *      "rows":[{"key","quantity","where","kind":"number"|"sign"|"info","paper":[low,high] or
 * null,"paper_text","inputs", "reading","synthetic":V,"recorded":V or null, "moves":{"least","most","most_by"}}], over
 * the changes below, synthetic "no_fit":[{"loads","setting","model","policy","peak_gb"}],
 *      "sensitivity":[{"change","inputs":I,"objective","signs_agree","rows":{key:[low,high],..}}]}],
 *    "grid":[{"inputs":I,"objective","fits"}],"best"}          best: index in grid
 *   I = {"tokens","nonmoe_scale","skew","nic_share","m","t","drift"}   m and t: a number, "auto" or (t) "paper"
 *   V = {"ours":[low,high],"distance","sign":"agrees"|"disagrees"|"undefined"}     numbers not formed: null */
#pragma once
#include "validate/doc.h"
#include "validate/published/measure.h"
#include "validate/published/scope.h"

typedef struct {
  const char *cluster_a, *cluster_b; /* any cluster specification; at least 32 devices */
  const char *trace;                 /* recorded loads; NULL: synthetic only */
  const char *stamp;                 /* a line for the heading (date, commit); NULL: none */
  uint64_t seed;
  bool quick; /* two models, few iterations, a grid of 2: for tests */
  void (*progress)(const char *what, int32_t done, int32_t of, void *context); /* NULL: none */
  void *context;
} hec_published_options;

enum { HEC_PUBLISHED_ROWS_MAX = 48, HEC_PUBLISHED_GRID_MAX = 64, HEC_PUBLISHED_CHANGES_MAX = 12 };
enum { HEC_PUBLISHED_NO_FIT_MAX = 64, HEC_PUBLISHED_CASES_MAX = 16 };

typedef enum { HEC_ROW_NUMBER, HEC_ROW_SIGN, HEC_ROW_INFO } hec_row_kind;

typedef struct {
  const char *key;      /* in JSON */
  const char *quantity; /* for people; every value is a ratio, and above 1 means what the text says */
  const char *where;    /* setting and model */
  hec_row_kind kind;
  hec_span paper;         /* numbers */
  const char *paper_text; /* as the paper prints it */
  const char *inputs;     /* the unknown inputs that this row depends on */
  bool long_run;          /* needs long runs, so it is left out of the objective of the search */
  bool followed;
  const char *reading; /* NULL: nothing */
  hec_scope scope;     /* what is open at the row */
} hec_published_row;

typedef enum { HEC_AGREES, HEC_DISAGREES, HEC_UNDEFINED } hec_verdict;
/* Undefined: no statement, or a value that could not be formed (nothing was exposed on either side). */
hec_verdict hec_row_verdict(const hec_published_row *row, hec_span ours);
/* Mean |ln(ours / paper)| of the ends; a number that could not be formed counts as ln 10. NAN without a number. */
double hec_row_distance(const hec_published_row *row, hec_span ours);

typedef struct {
  hec_span ours;
  double distance; /* NAN without a number in the paper */
  hec_verdict verdict;
} hec_published_value;

typedef struct {
  const char *change; /* what was changed, in words */
  const char *input;  /* which input */
  hec_setup inputs;
  bool long_runs; /* rows of long runs too; else their values are NAN */
  double objective;
  int32_t signs_agree; /* without the rows of long runs */
  hec_span ours[HEC_PUBLISHED_ROWS_MAX];
} hec_published_change;

typedef struct {
  hec_loads_kind loads;
  hec_setup setup;
  double peak_bytes;
} hec_published_no_fit;

/* One setting and model: what stands behind the ratios. */
typedef struct {
  const char *setting, *model;
  double ep_s, balanced_s, best_s, hecate_s; /* iteration times; best rearrangement system */
  const char *best;                          /* which */
  double ep_overload, hecate_overload;       /* busiest rank over mean */
  int32_t t_min, t_max, m;                   /* what t and m came out as */
} hec_published_case;

typedef struct {
  const char *name;
  hec_setup inputs;
  hec_published_value value[HEC_N_LOADS][HEC_PUBLISHED_ROWS_MAX];
  double objective[HEC_N_LOADS];
  int32_t agree[HEC_N_LOADS], disagree[HEC_N_LOADS];
  hec_span moved[HEC_PUBLISHED_ROWS_MAX];       /* min and max of ours over the changes and the short run unchanged */
  const char *moved_by[HEC_PUBLISHED_ROWS_MAX]; /* input whose change moves the row most; NULL: none does */
  hec_published_change change[HEC_PUBLISHED_CHANGES_MAX]; /* the first is "none": the same inputs, as short a run */
  int32_t n_changes;
  hec_published_no_fit no_fit[HEC_PUBLISHED_NO_FIT_MAX];
  int32_t n_no_fit;
  hec_published_case cases[HEC_N_LOADS][HEC_PUBLISHED_CASES_MAX];
  int32_t n_cases;
} hec_published_table;

typedef struct {
  hec_setup inputs;
  double objective; /* NAN when it does not fit */
  bool fits;
} hec_grid_point;

typedef struct {
  hec_published_options options;
  hec_system_file file;
  hec_published_row row[HEC_PUBLISHED_ROWS_MAX];
  int32_t n_rows;
  hec_setup plain, search,
      longer; /* unknown inputs at plain defaults, and lengths: of tables, of search and changes, of long runs */
  hec_loads_store *loads;
  bool recorded;
  char trace_name[96];
  int64_t trace_stride;
  hec_published_table table[2]; /* plain, best */
  hec_grid_point grid[HEC_PUBLISHED_GRID_MAX];
  int32_t n_grid, best;
} hec_published;

/* Reads the data file, the rows and the inputs: nothing is simulated. */
hec_status hec_published_open(const hec_published_options *options, hec_published **out) HEC_MUST_USE;
/* Runs everything; about two minutes on one core, seconds with `quick`. Free with hec_published_free. */
hec_status hec_published_run(const hec_published_options *options, hec_published **out) HEC_MUST_USE;
void hec_published_free(hec_published *published);
HEC_OPENED_BY(hec_published, hec_published_free)

hec_doc_report hec_published_report; /* of a hec_published */
/* "8192 tokens per GPU, non-MoE time x1, ..." */
void hec_published_describe(const hec_setup *inputs, hec_text *out);

/* For tests: index of the min objective that is a number, the first of equals; -1 when there is none. */
int32_t hec_grid_best(const hec_grid_point *grid, int32_t n);
