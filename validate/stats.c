/* geo_mean = exp(1/n sum ln x_i); log distance = |ln(a/b)|. libm is allowed here: these numbers are reported, no plan
 * depends on them. tau-b = (C - D) / sqrt((P - Ta) (P - Tb)) over P = n (n - 1) / 2 pairs. C are in the same and D in
 * opposite order, Ta and Tb alike in a and in b (Kendall, Biometrika 33, 1945).
 * O(n), O(n log n) for quantiles, O(n^2) for pairs. */
#include "validate/stats.h"

#include "runtime/base/arena.h"
#include "runtime/base/quantile.h"
#include "runtime/base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double hec_mean(const double *value, int32_t n) {
  HEC_ASSERT(n >= 1);
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += value[i];
  return sum / n;
}

double hec_geo_mean(const double *value, int32_t n) {
  HEC_ASSERT(n >= 1);
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += value[i] > 0 ? log(value[i]) : NAN;
  return exp(sum / (double)n);
}

double hec_min(const double *value, int32_t n) {
  HEC_ASSERT(n >= 1);
  double min = value[0];
  for (int32_t i = 1; i < n; i++)
    min = value[i] < min ? value[i] : min;
  return min;
}

double hec_max(const double *value, int32_t n) {
  HEC_ASSERT(n >= 1);
  double max = value[0];
  for (int32_t i = 1; i < n; i++)
    max = value[i] > max ? value[i] : max;
  return max;
}

double hec_log_distance(double ours, double reference) {
  if (!(ours > 0) || !(reference > 0) || isinf(ours) || isinf(reference))
    return NAN;
  return fabs(log(ours / reference));
}

int32_t hec_side_of_one(double value, double tolerance) {
  return value > 1 + tolerance ? 1 : value < 1 - tolerance ? -1 : 0;
}

/* ---- Quantiles and errors ---- */

double hec_quantile(const double *x, int32_t n, double q) {
  HEC_ASSERT(n >= 1 && q >= 0 && q <= 1);
  double *sorted = hec_malloc((size_t)n, sizeof *sorted);
  memcpy(sorted, x, (size_t)n * sizeof *sorted);
  for (int32_t i = 0; i < n; i++)
    HEC_ASSERT(!isnan(x[i]));
  hec_values_sort(sorted, n);
  double value = hec_values_quantile(sorted, n, q);
  free(sorted);
  return value;
}

hec_error hec_error_of(const double *predicted, const double *measured, int32_t n) {
  HEC_ASSERT(n >= 0);
  double *off = hec_malloc((size_t)n + 1, sizeof *off);
  hec_error e = {.n = 0, .median = NAN, .p90 = NAN, .worst = NAN, .bias = NAN};
  for (int32_t i = 0; i < n; i++)
    if (measured[i] > 0)
      off[e.n++] = predicted[i] / measured[i] - 1;
  if (e.n > 0) {
    e.bias = hec_median(off, e.n);
    for (int32_t i = 0; i < e.n; i++)
      off[i] = fabs(off[i]);
    e.median = hec_median(off, e.n);
    e.p90 = hec_quantile(off, e.n, 0.9);
    e.worst = hec_max(off, e.n);
  }
  free(off);
  return e;
}

/* ---- Rankings ---- */

static int32_t order_of(double x, double y) {
  return (x > y) - (x < y);
}

double hec_kendall_tau(const double *a, const double *b, int32_t n) {
  int64_t balance = 0, apart_a = 0, apart_b = 0; /* C - D, P - Ta, P - Tb */
  for (int32_t i = 0; i < n; i++) {
    HEC_ASSERT(!isnan(a[i]) && !isnan(b[i]));
    for (int32_t j = 0; j < i; j++) {
      int32_t in_a = order_of(a[i], a[j]), in_b = order_of(b[i], b[j]);
      balance += in_a * in_b;
      apart_a += in_a != 0;
      apart_b += in_b != 0;
    }
  }
  if (apart_b == 0)
    return 1;
  return apart_a == 0 ? 0 : (double)balance / sqrt((double)apart_a * (double)apart_b);
}

double hec_regret(const double *a, const double *b, int32_t n, int32_t *chosen, int32_t *best) {
  HEC_ASSERT(n >= 1);
  *chosen = *best = 0;
  for (int32_t i = 0; i < n; i++) {
    HEC_ASSERT(!isnan(a[i]) && b[i] > 0);
    int32_t order = order_of(a[i], a[*chosen]);
    if (order < 0 || (order == 0 && b[i] > b[*chosen]))
      *chosen = i;
    if (b[i] < b[*best])
      *best = i;
  }
  return b[*chosen] / b[*best] - 1;
}
