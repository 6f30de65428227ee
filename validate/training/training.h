/* Published training runs against predictions: `hecate-validate training`.
 *
 * A row of the table becomes a layout, a recipe and a batch. Its CSV columns are id, model, gpus, gpu_type, tp, pp,
 * vpp, ep, etp, cp, dp, seq, global_batch, micro_batch, precision, metric, value, notes, source. What a row does not
 * state comes from rules that hold for all rows of a source (validate/training/rules/rules.json). A row that cannot be
 * expressed keeps its reason. */
#ifndef HEC_VALIDATE_TRAINING_H
#define HEC_VALIDATE_TRAINING_H
#include "models/training/band.h"
#include "validate/doc.h"
#include "validate/stats.h"
#include "validate/training/imbalance.h"

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

#endif
