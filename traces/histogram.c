/* A relative bin is the exponent and the first 13 bits of the mantissa of the double. So no logarithm is needed: width
 * 2^-13 = 1.2e-4, the middle is off by at most 6.1e-5. Values below 2^-10 share a bin. Adding is O(1), a quantile
 * O(bins), memory 2 MiB (relative) or 160 kB. */
#include "traces/histogram.h"

#include "runtime/base/status.h"

#include <math.h>
#include <string.h>

enum { MANTISSA_BITS = 13, EXPONENT_MIN = -10, EXPONENT_MAX = 22, N_ABSOLUTE = 20001 };
enum { N_RELATIVE = ((EXPONENT_MAX - EXPONENT_MIN) << MANTISSA_BITS) + 1 };

static int n_bins(const hec_histogram *histogram) {
  return histogram->relative ? N_RELATIVE : N_ABSOLUTE;
}

hec_histogram hec_histogram_new(hec_arena *arena, bool relative) {
  hec_histogram histogram = {.relative = relative, .n = 0};
  histogram.bins = HEC_NEW(arena, uint64_t, n_bins(&histogram));
  return histogram;
}

static int64_t bin_of(const hec_histogram *histogram, double value) {
  int64_t bin = 0;
  if (histogram->relative) {
    int64_t bits = 0;
    if (value > 0)
      memcpy(&bits, &value, sizeof bits);
    bin = (bits >> (52 - MANTISSA_BITS)) - ((int64_t)(1023 + EXPONENT_MIN) << MANTISSA_BITS) + 1;
  } else {
    bin = (int64_t)((value + 1) * 1e4 + 0.5);
  }
  int64_t last = n_bins(histogram) - 1;
  return bin < 0 ? 0 : bin > last ? last : bin;
}

static double middle_of(const hec_histogram *histogram, int64_t bin) {
  double value = (double)bin * 1e-4 - 1;
  if (histogram->relative) {
    int64_t bits = (bin - 1 + ((int64_t)(1023 + EXPONENT_MIN) << MANTISSA_BITS)) << (52 - MANTISSA_BITS);
    bits |= (int64_t)1 << (51 - MANTISSA_BITS);
    memcpy(&value, &bits, sizeof value);
    value = bin == 0 ? 0 : value;
  }
  return value < histogram->min ? histogram->min : value > histogram->max ? histogram->max : value;
}

void hec_histogram_add(hec_histogram *histogram, double value) {
  HEC_ASSERT(value - value == 0);
  bool first = histogram->n == 0;
  histogram->min = first || value < histogram->min ? value : histogram->min;
  histogram->max = first || value > histogram->max ? value : histogram->max;
  histogram->bins[bin_of(histogram, value)]++;
  histogram->n++;
}

/* The k-th smallest, k from 0. */
static double order_statistic(const hec_histogram *histogram, uint64_t k) {
  if (k == 0)
    return histogram->min;
  if (k + 1 >= histogram->n)
    return histogram->max;
  uint64_t n_below = 0;
  int64_t bin = 0;
  while (n_below + histogram->bins[bin] <= k)
    n_below += histogram->bins[bin++];
  return middle_of(histogram, bin);
}

double hec_histogram_quantile(const hec_histogram *histogram, double q) {
  if (histogram->n == 0)
    return NAN;
  double position = q * (double)(histogram->n - 1);
  uint64_t k = (uint64_t)position;
  double below = order_statistic(histogram, k), above = order_statistic(histogram, k + 1);
  return below + (position - (double)k) * (above - below);
}
