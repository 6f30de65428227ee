/* Published times under a given imbalance (the load of the busiest rank over the mean), relative to the balanced run of
 * the same set-up. Form: CSV with id, model, gpus, gpu_type, ep, phase, r_max_over_mean, metric, value. Rows whose ids
 * differ in their last part only are one set-up, and the one of least imbalance is its base. */
#ifndef HEC_VALIDATE_IMBALANCE_H
#define HEC_VALIDATE_IMBALANCE_H
#include "validate/doc.h"
#include "validate/stats.h"
#include "validate/training/training_case.h"

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

#endif
