/* `hecate-validate published`: the FSSDP paper's set-ups (arXiv 2502.02581) simulated, row by row beside its numbers.
 *
 * Two tables: the inputs as the paper states them, with what it leaves open at plain defaults; and the best single set
 * of unknowns for the whole table, by a full search of a small grid:
 *
 *   objective = mean over the rows with a number (but those marked sweep) of mean |ln(ours / paper)| over the row's
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
#ifndef HEC_VALIDATE_PUBLISHED_H
#define HEC_VALIDATE_PUBLISHED_H
#include "runtime/base/text.h"
#include "validate/published/published_rows.h"

typedef struct {
  const char *cluster_a, *cluster_b; /* any cluster specification; at least 32 devices */
  const char *trace;                 /* recorded loads; NULL: synthetic only */
  const char *stamp;                 /* a line for the heading (date, commit); NULL: none */
  uint64_t seed;
  bool quick; /* two models, few iterations, a grid of 2: for tests */
  void (*progress)(const char *what, int32_t done, int32_t of, void *context); /* NULL: none */
  void *context;
} hec_published_options;

enum { HEC_PUBLISHED_GRID_MAX = 64, HEC_PUBLISHED_CHANGES_MAX = 12, HEC_PUBLISHED_NO_FIT_MAX = 64 };

typedef struct {
  hec_span ours;
  double distance; /* NAN without a number in the paper */
  hec_verdict verdict;
} hec_published_value;

typedef struct {
  const char *change; /* what was changed, in words */
  const char *input;  /* which input */
  hec_published_inputs inputs;
  bool sweeps; /* rows of long runs too; else their values are NAN */
  double objective;
  int32_t signs_agree; /* without the rows of long runs */
  hec_span ours[HEC_PUBLISHED_ROWS_MAX];
} hec_published_change;

typedef struct {
  hec_loads_kind loads;
  hec_lab_key key;
  double peak_bytes;
} hec_published_no_fit;

/* One setting and model: what stands behind the ratios. */
typedef struct {
  hec_setting setting;
  int32_t model;
  double ep_s, balanced_s, best_s, hecate_s; /* iteration times; best rearrangement system */
  const char *best;                          /* which */
  double ep_overload, hecate_overload;       /* busiest rank over mean */
  int32_t t_least, t_most, m;                /* what t and m came out as */
} hec_published_case;
enum { HEC_PUBLISHED_CASES_MAX = HEC_N_SETTINGS * HEC_N_PUBLISHED_MODELS };

typedef struct {
  const char *name;
  hec_published_inputs inputs;
  hec_published_value value[HEC_N_LOADS][HEC_PUBLISHED_ROWS_MAX];
  double objective[HEC_N_LOADS];
  int32_t agree[HEC_N_LOADS], disagree[HEC_N_LOADS];
  hec_span moved[HEC_PUBLISHED_ROWS_MAX]; /* least and most of ours over the changes and the short run unchanged */
  const char *moved_by[HEC_PUBLISHED_ROWS_MAX];           /* input whose change moves the row most; NULL: none does */
  hec_published_change change[HEC_PUBLISHED_CHANGES_MAX]; /* the first is "none": the same inputs, as short a run */
  int32_t n_changes;
  hec_published_no_fit no_fit[HEC_PUBLISHED_NO_FIT_MAX];
  int32_t n_no_fit;
  hec_published_case cases[HEC_N_LOADS][HEC_PUBLISHED_CASES_MAX];
  int32_t n_cases;
} hec_published_table;

typedef struct {
  hec_published_inputs inputs;
  double objective; /* NAN when it does not fit */
  bool fits;
} hec_grid_point;

typedef struct {
  hec_published_options options;
  hec_lab_options lab, short_lab; /* of the tables; of the search and the changes */
  hec_lab_models models;
  bool recorded;
  char trace_name[96];
  int64_t trace_stride;
  hec_published_table table[2]; /* plain, best */
  hec_grid_point grid[HEC_PUBLISHED_GRID_MAX];
  int32_t n_grid, best;
} hec_published;

hec_published_inputs hec_published_plain(void); /* unknown inputs at plain defaults */
/* Runs everything; about two minutes on one core, seconds with `quick`. Free with hec_published_free. */
hec_status hec_published_run(const hec_published_options *options, hec_published **out) HEC_MUST_USE;
void hec_published_free(hec_published *published);

void hec_published_markdown(const hec_published *published, hec_text *out);
void hec_published_json(const hec_published *published, hec_text *out);
/* "8192 tokens per GPU, non-MoE time x1, ..." */
void hec_published_describe(const hec_published_inputs *inputs, hec_text *out);

/* For tests: index of the least objective that is a number, the first of equals; -1 when there is none. */
int32_t hec_grid_best(const hec_grid_point *grid, int32_t n);

#endif
