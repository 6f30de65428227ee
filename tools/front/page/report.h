/* report.html: a comparison, a sweep or a validation as one page that opens offline (page.h). Input are plain structs
 * of this floor; who simulates or measures fills them. Same input, same bytes: no clock, no path of a machine, no
 * locale.
 *
 *   hec_report report = hec_report_of(summary, arena);      what a comparison's page shows
 *   hec_report_draw(&report, row, iter, low, timeline);     one iteration of each row, while it is lowered and timed
 *   hec_report_write(&report, &text);
 *   hec_report_free(&report);
 *
 * Of an execution (summary->execution) nothing is drawn: the charts are those that need the rows alone.
 *
 * A chart is one file with everything static except one const struct, and one row of HEC_CHART_LIST (chart.h). */
#pragma once
#include "runtime/program/summary.h"

/* What a timeline's time is drawn as: books, but experts told from other computing. */
enum { HEC_SPAN_EXPERTS = HEC_N_BOOKS, HEC_N_SPANS };
static inline int32_t hec_span_of(int32_t role) {
  return role == HEC_ROLE_EXPERTS || role == HEC_ROLE_SHARED_EXPERTS ? (int32_t)HEC_SPAN_EXPERTS
                                                                     : (int32_t)hec_role_book[role];
}

enum {
  HEC_REPORT_MOMENTS = 160,  /* of memory over an iteration */
  HEC_REPORT_BLOCKS = 64,    /* a side of the traffic matrix at most; more ranks are added up in blocks */
  HEC_REPORT_CELLS = 40000,  /* of all traffic matrices together */
  HEC_REPORT_RANKS = 32,     /* drawn in a timeline */
  HEC_REPORT_LANES = 3,      /* drawn per rank: compute; token and intra-node; parameter and gradient */
  HEC_REPORT_COLUMNS = 8192, /* of a timeline at most: halved until HEC_REPORT_PIECES suffice */
  HEC_REPORT_PIECES = 14000, /* of a timeline */
  HEC_REPORT_TIMELINES = 3,
  HEC_REPORT_SHOWN = 8, /* rows that a chart shows at first, each with a colour of its own; the others on demand */
  HEC_REPORT_ROWS = 64  /* rows that are drawn one by one: the fastest, and the baseline */
};

typedef struct {
  int32_t row, kind, begin, length; /* HEC_REPORT_LANES * shown rank + lane; HEC_SPAN_*; columns */
} hec_report_span;

typedef struct {
  int32_t begin, length; /* columns */
  int32_t role, layer, rank;
  bool backward;
} hec_report_step; /* of the critical path */

typedef struct {
  int32_t n_columns, n_ranks;
  int32_t rank[HEC_REPORT_RANKS]; /* [n_ranks] shown */
  hec_report_span *spans;         /* [n_spans] by kind, then row, then begin */
  int32_t n_spans;
  hec_report_step *path; /* [n_path] */
  int32_t n_path;
  double path_s[HEC_N_SPANS]; /* of the path by what it is spent on */
  int32_t busiest;            /* rank that most of the path runs on */
  double busiest_s;
} hec_report_timeline;

/* One iteration of a row. */
typedef struct {
  bool there;
  int64_t iter;
  double end_s;
  double *traffic;            /* [n_blocks * n_blocks] bytes from source to destination: exchanges */
  double bytes, across;       /* their sum; of it between nodes */
  double pair_bytes;          /* of the pair of ranks that has most */
  int32_t pair_from, pair_to; /* that pair; -1: none */
  double reduced;             /* bytes that all-reduces add up, in no cell of the matrix */
  int32_t fullest;            /* rank that holds most at once */
  double *memory;             /* [HEC_N_MEMORY * HEC_REPORT_MOMENTS] of it; the fullest instant of each moment */
  double fullest_bytes, fullest_s;
  hec_report_timeline *timeline; /* NULL: not of this row */
  hec_arena arena;               /* of all of it */
} hec_report_iteration;

/* Predicted and measured, of a validation. */
typedef struct {
  const char *name;
  double predicted_s, measured_s;
  double
      error; /* of predicted over measured, with its sign: of several iterations the median of theirs; NAN: unknown */
} hec_report_pair;

typedef struct {
  const char *policy;
  hec_report_pair *kinds; /* [n_kinds] operations of an iteration, mean over ranks */
  int32_t n_kinds;
} hec_report_pairs;

typedef struct {
  hec_report_pair *iterations; /* [n] of each policy or configuration, medians; not finite: inconclusive */
  hec_report_pairs *policies;  /* [n_policies] */
  int32_t n, n_policies;
  double error; /* median over all iterations */
} hec_report_compared;

/* Who wins over two axes of a sweep, everything else fixed. A map stands for all combinations of the other axes that have
 * the same winners and nearly the same gains. Its numbers are ranges over them. */
typedef struct {
  double low, high; /* 0: there is none */
} hec_report_range;

typedef struct {
  const char *name;  /* policy, or "policy/schedule" */
  const char *about; /* what it does; NULL: not known */
  int32_t who;       /* of hec_report_maps.names; -1: nothing that ran there fits */
  hec_report_range seconds;
  hec_report_range over_next; /* speed over the second */
  const char *next_name;      /* NULL: not the same everywhere */
  hec_report_range vs_ep;     /* speed over the baseline, as the CSV has it; none where that does not fit */
  const char *ep;             /* that baseline, as `name` */
  const char *schedule;       /* of the winner, the same everywhere, where the name does not say it; else NULL */
  const char *no_ep;          /* why it is not compared with: "ep does not fit"; NULL: it is, or the sweep has none */
  bool ran;                   /* something ran there, be it too large */
} hec_report_cell;

typedef struct {
  const char *fixed; /* "16 ranks, law max_min": what is the same in this map; "": nothing varies beside the axes */
  hec_report_cell *cells; /* [n_y * n_x] */
  int64_t n_joined;       /* combinations that it stands for */
} hec_report_map;

enum { HEC_REPORT_MAPS = 24 }; /* drawn */

typedef struct {
  const char *time;                            /* of a row: "the median time of an iteration" */
  bool of_schedules;                           /* rows run under schedules of an iteration */
  const char *x_name, *y_name;                 /* "": there is no such axis */
  const char *const *x_value, *const *y_value; /* [n_x], [n_y] with units */
  int32_t n_x, n_y;
  hec_report_map *maps; /* [n_maps] */
  int32_t n_maps;
  const char *const *names; /* [n_names] that win somewhere, most cells first */
  const int64_t *n_cells;   /* [n_names] of each, of all combinations */
  int32_t n_names;
  const char *families;     /* a sentence per family on where it wins, a line each */
  int64_t n_without_ep;     /* cells with a no_ep, of all combinations */
  int64_t n_failed, n_rows; /* configurations that could not run; all */
} hec_report_maps;

/* A training step of a row: what it is spent on adds up to it. */
#define HEC_STEP_PART_LIST(X)                                                                                          \
  X(COMPUTE, "compute")                                                                                                \
  X(DISPATCH, "exposed dispatch and combine")                                                                          \
  X(TENSOR, "tensor parallel")                                                                                         \
  X(GATHER, "copies of experts")                                                                                       \
  X(HOST, "launches")                                                                                                  \
  X(BUBBLE, "bubble")                                                                                                  \
  X(DATA, "data-parallel gradients") X(MOVES, "experts that move") X(OPTIMIZER, "optimizer")
#define HEC_STEP_PART_ENUM(name, text) HEC_STEP_##name,
typedef enum { HEC_STEP_PART_LIST(HEC_STEP_PART_ENUM) HEC_N_STEP_PARTS } hec_step_part;
extern const char *const hec_step_part_name[HEC_N_STEP_PARTS];

typedef struct {
  const char *name, *about;                          /* what it is, under the pointer */
  bool best, fits, shown;                            /* shown at first; the others unfold */
  double step_s, part_s[HEC_N_STEP_PARTS];           /* of the stage that computes most */
  double tokens_per_s, tflops, mfu, vs_ep, overload; /* overload below 0: balanced */
  double needed_bytes;                               /* of the fullest stage */
} hec_report_trained;

/* What the picture of a pipeline tells apart. */
#define HEC_SHOWN_LIST(X)                                                                                              \
  X(FORWARD, "forward")                                                                                                \
  X(BACKWARD, "backward")                                                                                              \
  X(WEIGHT, "weight gradient")                                                                                         \
  X(PAIR, "forward beside backward")                                                                                   \
  X(OPTIMIZER, "optimizer")                                                                                            \
  X(DISPATCH, "dispatch and combine") X(TENSOR, "tensor parallel") X(DATA, "data parallel, moves")
#define HEC_SHOWN_ENUM(name, text) HEC_SHOWN_##name,
typedef enum { HEC_SHOWN_LIST(HEC_SHOWN_ENUM) HEC_N_SHOWN } hec_shown;
static inline bool hec_shown_is_traffic(int32_t kind) { /* beside what is computed */
  return kind >= HEC_SHOWN_DISPATCH;
}

typedef struct {
  int32_t stage, kind; /* hec_shown */
  int64_t begin_ps, end_ps;
} hec_report_piece;

typedef struct {
  const char *name;
  bool open;
  int32_t n_stages;
  const hec_report_piece *pieces; /* [n] of a stage and kind in the order of time */
  int32_t n;
  hec_report_iteration held; /* of the fullest stage; its end is the step's */
} hec_report_pipeline;

typedef struct {
  const hec_report_trained *steps; /* [n_steps] fastest first */
  int32_t n_steps;
  hec_report_pipeline *pipelines; /* [n_pipelines] */
  int32_t n_pipelines;
  double limit_bytes; /* that tensors may take; 0: unknown */
} hec_report_training;

/* A word and what is said under it: about the run. */
typedef struct {
  const char *word, *text;
} hec_report_fact;

typedef struct {
  const char *tool, *title;
  hec_summary *summary;                /* of a comparison; else NULL */
  const hec_report_maps *maps;         /* of a sweep; else NULL */
  const hec_report_compared *compared; /* of a validation; else NULL */
  const hec_report_training *training; /* of a training job; else NULL */
  const char *verdict;                 /* its lines, the first says what to do; NULL: the summary's */
  bool synthetic;
  const hec_report_fact *facts; /* [n_facts] beside what the summary says */
  int32_t n_facts;
  const hec_report_fact *assumed; /* [n_assumed] likewise, at the end of the page */
  int32_t n_assumed;
  /* Of a comparison: */
  int32_t *order;     /* [rows] fastest first */
  const char **about; /* [rows] what each is; NULL: not known */
  int32_t *color;     /* [rows] 0 .. HEC_REPORT_SHOWN - 1, or HEC_REPORT_SHOWN: not shown at first */
  int32_t n_shown;
  int32_t best, baseline; /* rows; -1: none */
  int32_t n_blocks, per_block;
  hec_report_iteration *iterations; /* [rows] */
} hec_report;

hec_report hec_report_of(hec_summary *summary, hec_arena *arena);
void hec_report_free(hec_report *report); /* what is not on the arena */
/* The iteration that was just lowered, as row `row`'s. Threads may draw different rows at once. */
void hec_report_draw(hec_report *report, int32_t row, int64_t iter, const hec_lowering *low,
                     const hec_timeline *timeline);
/* What a policy is, for whoever points at its name: on the arena. schedule: NULL: not said. */
const char *hec_report_about(const char *summary, const char *source, const char *schedule, hec_arena *arena);
/* Memory of the fullest rank over time, and the end, into `it`. */
void hec_report_draw_memory(const hec_program *program, const hec_timeline *timeline, hec_report_iteration *it);
/* What it ran on, in one line. */
void hec_report_add_machine(const hec_summary_execution *execution, hec_text *out);
/* Lines of a sweep: who wins most, by how much. */
void hec_report_maps_verdict(const hec_report_maps *maps, hec_text *out);

void hec_report_write(const hec_report *report, hec_text *out);
