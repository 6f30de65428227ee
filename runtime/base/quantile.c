/* Quantile q lies at the rank q (n - 1) of the sorted values, linear between two of them. It is definition 7 of Hyndman and Fan, The
 * American Statistician 50, 1996. O(n log n) to sort, O(1) each. */
#include "runtime/base/quantile.h"

#include "runtime/base/status.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void hec_values_sort(double *values, int64_t n) {
  qsort(values, (size_t)n, sizeof *values, by_value);
}

double hec_values_quantile(const double *sorted, int64_t n, double q) {
  HEC_ASSERT(n >= 1 && q >= 0 && q <= 1);
  double rank = q * (double)(n - 1);
  int64_t below = (int64_t)rank;
  if (rank == (double)below || sorted[below] == sorted[below + 1]) /* also the last, and infinite ones */
    return sorted[below];
  return sorted[below] + (rank - (double)below) * (sorted[below + 1] - sorted[below]);
}
