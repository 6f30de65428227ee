/* Sweeps: the product of traces, models, clusters, scales, options, laws, schedules and policies. One row of results
 * per configuration is an iteration, or a training step where the spec has a layout or a set-up. A configuration is an
 * index of the product. The last axis (policy) turns fastest.
 *
 *   spec      JSON: {"trace": ..., "policy": ..., ...}, keys as hecate-sim's options with _ for -, each one value or an
 *             array of them (tools/front/sweep/sweep_spec.c has the table); paths in it are relative to its own folder
 *   journal   one header line, then one line per finished row, in any order (tools/front/sweep/sweep_journal.c)
 *   part      a journal that is complete for its shard, rows in order: what merge joins
 *
 * A row depends on its configuration alone: which thread, shard or run computed it cannot be seen in the results. All
 * files are read once, before the first row; rows are computed from what was read, and the digest is of the same bytes. */
#pragma once
#include "models/json.h"
#include "runtime/program/summary.h"
#include "sim/simulate.h"
#include "tools/front/options.h"
#include "tools/front/page/report.h"
#include "traces/synth.h"

/* The trace, then the options that sweeps vary (option_list.h), outermost first. Those of kind ROW do not make the job. */
#define HEC_SWEEP_AXIS(name, ...) HEC_AXIS_##name,
typedef enum {
  HEC_AXIS_trace,
  HEC_JOB_AXIS_LIST(HEC_SWEEP_AXIS) HEC_TRAINING_OPTION_LIST(HEC_SWEEP_AXIS) HEC_ROW_AXIS_LIST(HEC_SWEEP_AXIS)
      HEC_SWEEP_AXES
} hec_sweep_axis;
static inline bool hec_sweep_of_training(int64_t axis) {
  return axis > HEC_AXIS_trace + HEC_N_JOB_AXES && axis <= HEC_AXIS_trace + HEC_N_JOB_AXES + HEC_N_TRAINING_OPTIONS;
}
static inline const hec_run_option *hec_sweep_option(int64_t axis) { /* not of the trace */
  int64_t at = axis - HEC_AXIS_trace - 1;
  return hec_sweep_of_training(axis) ? &hec_training_rows[at - HEC_N_JOB_AXES]
                                     : &hec_run_rows[at < HEC_N_JOB_AXES ? at : at - HEC_N_TRAINING_OPTIONS];
}
static inline const char *hec_sweep_axis_name(int64_t axis) { /* key of the spec, column of the results */
  return axis == HEC_AXIS_trace ? "trace" : hec_sweep_option(axis)->key;
}
static inline bool hec_sweep_makes_job(int64_t axis) {
  return axis == HEC_AXIS_trace || hec_sweep_option(axis)->kind != HEC_RUN_ROW;
}

/* Axes whose values may name files. */
static const hec_sweep_axis hec_sweep_of_files[] = {HEC_AXIS_model, HEC_AXIS_cluster, HEC_AXIS_setup};
enum { HEC_N_SWEEP_OF_FILES = sizeof hec_sweep_of_files / sizeof *hec_sweep_of_files };

typedef struct hec_sweep_kind hec_sweep_kind; /* sweep_kind.h */

#define HEC_SWEEP_AUTO "auto" /* text of a value that is left to the job */

typedef struct {
  const char *text; /* as results show it; "" of slow and skew: none */
  const char *path; /* of the file that `text` names, relative to the spec; NULL: it names none */
  const char *line; /* a cluster's line whose device file is beside the spec, as the working folder sees it; or NULL */
  char *content;    /* of a model's, cluster's or set-up's file, with a zero behind it; NULL until loaded */
  double number;    /* of numeric axes */
  const hec_policy *policy; /* of the axis of policies */
  const hec_json_value *at; /* for messages; NULL: not in the file */
} hec_sweep_value;

typedef struct {
  char *bytes; /* [length] the whole trace, gzip undone; NULL until loaded */
  size_t length;
  bool made; /* from `synth`, else from the file */
  hec_synth_options synth;
} hec_sweep_trace;

enum { HEC_SWEEP_ROWS_MAX = 1000000, HEC_SWEEP_VALUES_MAX = 16384 /* of an axis */, HEC_SWEEP_TRACES_MAX = 4096 };

typedef struct {
  hec_arena arena;
  const hec_sweep_kind *kind; /* of its rows */
  hec_json *json;
  const char *origin;
  const char *text; /* [length] the spec itself */
  size_t length;
  struct {
    hec_sweep_value *value; /* [n] */
    int32_t n, capacity;
  } axis[HEC_SWEEP_AXES];
  hec_sweep_trace *traces; /* [axis[HEC_AXIS_trace].n] */
  int32_t trace_capacity;
  int64_t n;       /* configurations, at most HEC_SWEEP_ROWS_MAX */
  int64_t per_job; /* of them per job */
  uint64_t digest; /* of everything that rows depend on; 0 until loaded */
} hec_sweep;       /* zero-initialise; free in every case */

/* Reads a spec: keys, names, ranges and the size of the product; no trace, no cluster file. Every error names file,
 * line and field. `text` is copied. */
hec_status hec_sweep_parse(const char *text, size_t length, const char *origin, hec_sweep *sweep) HEC_MUST_USE;
hec_status hec_sweep_read(const char *path, hec_sweep *sweep) HEC_MUST_USE;
/* Of the sources of all that rows are computed by (tools/front/sweep/source_digest.cmake), the same for every
 * compiler. A version would not do: it stands for many builds while a program is worked on. */
extern const char hec_source_digest[];

/* Reads every model, cluster and trace into memory and sees that they can be used. Traces are read to their end, so a
 * bad record is found here. `digest` sums it all up with `tool` (the program's name and version) and `sources`
 * (hec_source_digest). So rows of another build are neither taken over nor merged. No file is opened after this. */
hec_status hec_sweep_load(hec_sweep *sweep, const char *tool, const char *sources) HEC_MUST_USE;
void hec_sweep_free(hec_sweep *sweep);

/* Which value of an axis a configuration has. */
const hec_sweep_value *hec_sweep_at(const hec_sweep *sweep, int64_t index, hec_sweep_axis axis);
/* Whether its rows have that axis: an iteration has no layout, a training step no schedule. */
bool hec_sweep_has(const hec_sweep *sweep, int64_t axis);
/* The options of its job; `solver` and what no axis says are left alone. */
void hec_sweep_options(const hec_sweep *sweep, int64_t index, hec_job_options *options, hec_training_args *training);
static inline const hec_policy *hec_sweep_policy(const hec_sweep *sweep, int64_t index) {
  return hec_sweep_at(sweep, index, HEC_AXIS_policy)->policy;
}
static inline int32_t hec_sweep_policies(const hec_sweep *sweep) {
  return sweep->axis[HEC_AXIS_policy].n;
}
/* Whether a configuration belongs to shard `i` of `n`. Whole groups where there are many, so that a trace is read by
 * few shards. They are scattered, so that shards take about as long as each other. */
bool hec_sweep_mine(const hec_sweep *sweep, int64_t index, int32_t i, int32_t n);

/* ---- Rows ---- */

/* What a row of iterations says. Ratios to other rows of its group are made when all are there. */
#define HEC_SWEEP_SUMMARY_VALUE(id, ...) HEC_SWEEP_##id,
typedef enum {
  HEC_SWEEP_RANKS_USED,
  HEC_SWEEP_TOKENS_USED,
  HEC_SWEEP_TRAINED,
  HEC_SWEEP_SYNTHETIC,
  HEC_SWEEP_ITERATIONS,
  HEC_SUMMARY_VALUE_LIST(HEC_SWEEP_SUMMARY_VALUE) /* HEC_SWEEP_MEDIAN, ... */
  HEC_SWEEP_BYTES,                                /* [HEC_N_TRAFFIC] */
  HEC_SWEEP_VALUES = HEC_SWEEP_BYTES + HEC_N_TRAFFIC
} hec_sweep_result;

enum { HEC_SWEEP_NAME_BYTES = 64, HEC_SWEEP_COLUMNS_MAX = 48 };
typedef struct {
  char *why;                                                       /* it could not run; NULL: it did */
  char model[HEC_SWEEP_NAME_BYTES], cluster[HEC_SWEEP_NAME_BYTES]; /* what they call themselves */
  char schedule[HEC_SWEEP_NAME_BYTES];                             /* that it ran under */
  double value[HEC_SWEEP_COLUMNS_MAX];                             /* [columns of the kind] NAN: nothing to say */
} hec_sweep_row;

typedef struct {
  const hec_sweep *sweep;
  hec_sweep_row **row; /* [sweep->n] NULL: not done */
} hec_sweep_rows;
hec_sweep_rows hec_sweep_rows_new(const hec_sweep *sweep);
void hec_sweep_rows_free(hec_sweep_rows *rows);
/* Copies the row, texts without control characters; the first one of an index stays. */
void hec_sweep_rows_set(hec_sweep_rows *rows, int64_t index, const hec_sweep_row *from);

/* What it ran under; of a row that could not run what it would have, "" where that would have been chosen. */
const char *hec_sweep_schedule(const hec_sweep_rows *rows, int64_t index);

/* The cluster of a row that ran. */
hec_status hec_sweep_cluster(const hec_sweep_rows *rows, int64_t index, hec_arena *arena,
                             hec_cluster *cluster) HEC_MUST_USE;
/* All rows must be there. */
hec_report_maps hec_sweep_maps(const hec_sweep_rows *rows, hec_arena *arena);
/* A ratio or value of a row as CSV and JSON have it; NAN: none. */
double hec_sweep_value_of(const hec_sweep_rows *rows, int64_t index, int32_t column);
/* The row that its speedup_vs_ep is over; -1: none ran. */
int64_t hec_sweep_baseline(const hec_sweep_rows *rows, int64_t index);
/* The page of the maps. */
void hec_sweep_page(const hec_sweep_rows *rows, const char *tool, hec_text *out);
void hec_sweep_csv(const hec_sweep_rows *rows, hec_text *out);
void hec_sweep_json(const hec_sweep_rows *rows, const char *tool, hec_text *out);

/* ---- Journal ---- */

typedef struct {
  int file;
  const char *path;
} hec_sweep_journal;

/* Opens or begins the journal of a shard; rows found in it go to `rows`. A torn last line is cut off. A journal of
 * another sweep or shard, or one that is in use: HEC_BAD_INPUT. */
hec_status hec_sweep_journal_open(const char *path, const char *tool, int32_t shard, int32_t n_shards,
                                  hec_sweep_rows *rows, hec_sweep_journal *journal) HEC_MUST_USE;
/* Appends finished rows with one write. */
hec_status hec_sweep_journal_add(hec_sweep_journal *journal, const hec_sweep_rows *rows, const int64_t *index,
                                 int32_t n) HEC_MUST_USE;
void hec_sweep_journal_close(hec_sweep_journal *journal, bool remove);

/* The text of a part: the header and the shard's rows in order. */
void hec_sweep_part(const hec_sweep_rows *rows, const char *tool, int32_t shard, int32_t n_shards, hec_text *out);
/* Reads parts of one sweep back, all shards once; the sweep comes from the first. Frees nothing of `sweep` and `rows`,
 * which the caller does in every case. */
hec_status hec_sweep_merge(const char *const *paths, int32_t n, const char *tool, hec_sweep *sweep,
                           hec_sweep_rows *rows) HEC_MUST_USE;

/* ---- Running ---- */

typedef struct {
  int32_t n_threads, shard, n_shards;
  const struct hec_solver *solver;                                                           /* NULL: none */
  hec_sweep_journal *journal;                                                                /* NULL: none */
  void (*progress)(int64_t done, int64_t of, int64_t before, double seconds, void *context); /* NULL: none; of this
                                 shard; `before`: rows that were there at the start */
  void *progress_context;
  _Atomic int64_t
      *done; /* NULL: none; rows that are there, those of the journal once written: for a signal's handler */
} hec_sweep_run_options;

/* Computes the rows of the shard that are not there. Memory: per thread one job and one comparison of some policies. */
hec_status hec_sweep_run(hec_sweep_rows *rows, const hec_sweep_run_options *options) HEC_MUST_USE;
