/* Constants of a cost law from measured rows: robust, deterministic, cross-validated by whole shapes. */
#pragma once
#include "models/laws/cost_law.h"

#include <stdint.h>

typedef struct {
  const hec_cost_law *law;
  const hec_gpu_sheet *sheet;
  int32_t n;
  const void *const *work;  /* [n] of the law's type */
  const double *measured_s; /* [n] > 0 */
  const uint64_t *shape;    /* [n] */
} hec_fit_rows;

/* Minimises the mean of |log(predicted / measured)| over the constants whose bit in `pinned` is 0; the others keep what is in
 * `constants`. A switch is `high` where that lowers the mean by a tenth, else `off`: other constants can do most of what it does.
 * Constants that no row depends on keep it too: returns their bits. The result has four significant digits, so
 * that it is written as it was judged. */
uint32_t hec_law_fit_solve(const hec_fit_rows *rows, uint32_t pinned, double *constants);

/* predicted_s[i] of each row by constants that were fitted to the folds without its shape. Each shape is a fold of its
 * own where there are at most HEC_FIT_SHAPES_MAX of them. Otherwise shapes are spread over HEC_FIT_FOLDS folds by their
 * hash. */
enum { HEC_FIT_FOLDS = 5, HEC_FIT_SHAPES_MAX = 24 };
void hec_law_fit_cross(const hec_fit_rows *rows, double *predicted_s);

/* The law `collective` is fitted by linear least squares over all places where its ranges may change: its constants in the
 * same form. Called by hec_law_fit_solve. */
void hec_law_fit_ranges(const hec_fit_rows *rows, double *constants);
