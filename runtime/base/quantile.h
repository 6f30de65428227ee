/* Sorted values, and what stands at a share of their way: the only quantile, so that a median is the same everywhere. GSL has
 * the same, but libhecate is built without it. */
#pragma once
#include <stdint.h>

/* Ascending. No value may be NAN. */
void hec_values_sort(double *values, int64_t n);

/* Quantile q in [0, 1] of n >= 1 sorted values, by linear interpolation between two of them (GSL's and numpy's default). */
double hec_values_quantile(const double *sorted, int64_t n, double q);
