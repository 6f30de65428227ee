/* Published training runs against predictions: `hecate-validate training`.
 *
 * A row of the table becomes a layout, a recipe and a batch. Its CSV columns are id, model, gpus, gpu_type, tp, pp,
 * vpp, ep, etp, cp, dp, seq, global_batch, micro_batch, precision, metric, value, notes, source. What a row does not
 * state comes from rules that hold for all rows of a source (validate/training/rules/rules.json). A row that cannot be
 * expressed keeps its reason. */
#pragma once
#include "models/json.h"
#include "models/training/band.h"
#include "sim/training.h"
#include "validate/device/case_file.h"
#include "validate/doc.h"
#include "validate/stats.h"

/* One published run: what its row says, what it is predicted as. */
typedef struct {
  int32_t line; /* the header is line 1 */
  const char *id, *model, *gpu, *metric, *notes, *source;
  const char *why_not;        /* NULL: predicted */
  double measured, predicted; /* in the row's metric */
  double error;               /* of the step time: predicted over measured - 1 */
  hec_training set_up;
  hec_training_result result;
  double default_error; /* `error` with the default recipe in place of the row's, of its precision */
  int32_t family;
} hec_training_case;

/* Published times under a given imbalance (the load of the busiest rank over the mean), relative to the balanced run of
 * the same set-up. Form: CSV with id, model, gpus, gpu_type, ep, phase, r_max_over_mean, metric, value. Rows whose ids
 * differ in their last part only are one set-up, and the one of least imbalance is its base. */
typedef struct {
  const char *id, *model, *gpu;
  const char *why_not;                        /* NULL: predicted */
  double imbalance, value;                    /* value: time */
  double measured, predicted;                 /* time over that of the base */
  double forward_s;                           /* predicted, of all layers */
  double measured_slope_s, predicted_slope_s; /* of a base: seconds per unit of imbalance, by least squares; else NAN */
} hec_imbalance_row;

typedef struct {
  hec_arena arena;
  int32_t n;
  hec_imbalance_row *rows; /* [n] malloc */
  size_t capacity;
  hec_error error; /* of predicted over measured, bases left out */
} hec_imbalance_table;

hec_status hec_imbalance_judge(const char *path, const hec_step_constants *constants,
                               hec_imbalance_table *table) HEC_MUST_USE;
void hec_imbalance_table_free(hec_imbalance_table *table);
void hec_imbalance_report(const hec_imbalance_table *table, hec_doc *doc);

typedef struct {
  const char *source, *model, *gpu;
  int32_t rows; /* predicted */
  hec_error error;
  double anchored,
      anchored_p90; /* errors left when one factor is taken from another run of the same recipe; NAN: none */
  double rank;      /* Spearman's, of tokens/s/GPU; NAN below 3 rows */
} hec_training_family;

typedef struct {
  hec_arena arena;
  const char *file;
  int32_t n, n_families, n_predicted;
  hec_training_case *cases; /* [n] in the order of the file; malloc */
  size_t capacity;
  hec_training_family *families; /* [n_families] as first met */
  hec_error error;               /* of all */
  int32_t n_anchored;
  double anchored; /* median of families' medians */
  hec_step_constants constants;
  const char *fitted_part; /* the constants were fitted to rows whose ids contain it; NULL: not here */
  int32_t fitted_rows;
  const hec_imbalance_table *imbalance; /* of the report; NULL: none */
  bool details;                         /* of the report: every row */
} hec_training_table;

/* `constants`: NULL for those fitted. */
hec_status hec_training_judge(const char *path, const hec_step_constants *constants,
                              hec_training_table *table) HEC_MUST_USE;
/* Fills in families and sums from cases (training_sums.c). */
void hec_training_sum_up(hec_training_table *table);
/* The error of `row` that is left when one factor is taken from `anchor`; NAN: they are not two runs of one recipe. */
double hec_training_left(const hec_training_table *table, int32_t anchor, int32_t row);

/* The bands that an answer states (models/training/band.h) beside what published runs show (training_bands.c). */
typedef struct {
  int32_t n;         /* runs, or pairs of runs */
  double half, nine; /* as in hec_band, computed */
  double inside;     /* share between 1 / nine and nine of the stated band */
} hec_band_seen;
hec_band_seen hec_training_band_seen(const hec_training_table *table, hec_band_kind kind);
void hec_training_bands_report(const hec_training_table *table, hec_doc *doc);

void hec_training_table_free(hec_training_table *table);
void hec_training_report(const void *of, hec_doc *doc); /* of a hec_training_table */

/* Peak memory that notes of published runs state, beside the predicted one. */
/* GiB in "peak allocated 45.63 GiB", "167.93 GiB" or "peak 46.0 GB" (1e9 bytes); NAN: none. */
double hec_training_gib_measured(const char *notes);
/* Of a predicted row: what its notes speak of, tensors alone ("allocated") or what was taken from the device. */
double hec_training_gib_predicted(const hec_training_case *c);

/* Of the peaks of runs like those of hec_peak_bands[fsdp]: how many, and how much too low the worst was predicted. */
hec_peak_band hec_training_peaks_seen(const hec_training_case *cases, int32_t n_cases, bool fsdp);

/* A short table of the rows that have one, for people; the rows of the document have the same two members. */
void hec_training_memory_report(const hec_training_case *cases, int32_t n_cases, hec_doc *doc);

/* What the columns of a published run mean, and what its row leaves open: the rules of rules/rules.json. */
typedef struct {
  hec_json *json;
  hec_arena *arena;
  struct hec_rule_model {
    const char *name; /* of the rule: preset and layers */
    hec_moe moe;
  } * models; /* [n_models] as they are met */
  int32_t n_models;
  struct hec_rule_gpu {
    const char *name;
    const hec_gpu_laws *laws;
  } * gpus; /* [n_gpus] */
  int32_t n_gpus;
} hec_training_rules;

hec_status hec_training_rules_open(hec_arena *arena, hec_training_rules *rules) HEC_MUST_USE;
void hec_training_rules_close(hec_training_rules *rules);

/* Model and device of the current row, or why_not. */
hec_status hec_training_rules_device(hec_training_rules *rules, const hec_case_file *csv,
                                     hec_training_case *c) HEC_MUST_USE;
/* Fills in the whole set-up of the current row, or why_not. */
hec_status hec_training_rules_apply(hec_training_rules *rules, const hec_case_file *csv,
                                    hec_training_case *c) HEC_MUST_USE;

/* Global constants of a training step, fitted to published runs. */
/* in_step, nic and hidden, so that the mean |ln(predicted / measured)| of the rows whose id contains `part` is least: one constant
 * after the other on a grid of hundredths, until none moves. The same input gives the same constants. HEC_BAD_INPUT: no such
 * row can be predicted. *rows: how many counted. */
hec_status hec_training_fit(const char *path, const char *part, hec_step_constants *constants,
                            int32_t *rows) HEC_MUST_USE;
