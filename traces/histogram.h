/* Percentiles of any number of values in fixed memory: bins of stated resolution, exact smallest and largest value. */
#pragma once
#include "runtime/base/arena.h"

#include <stdbool.h>

typedef struct {
  bool relative; /* bins of 2^-13 relative width from 2^-10 to 2^22; else of 1e-4 absolute width from -1 to 1 */
  uint64_t *bins;
  uint64_t n;
  double min, max; /* exact */
} hec_histogram;

#define HEC_HISTOGRAM_RESOLUTION 1e-4 /* relative or absolute: a percentile is at most this far off (half a bin) */

hec_histogram hec_histogram_new(hec_arena *arena, bool relative);
void hec_histogram_add(hec_histogram *histogram, double value);
/* Linear interpolation between order statistics: position q * (n - 1). NaN when empty. */
double hec_histogram_quantile(const hec_histogram *histogram, double q);
