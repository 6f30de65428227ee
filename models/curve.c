/* Piecewise-linear look-up, O(log n) in the points; finding a curve is a scan of a short list. */
#include "models/curve.h"

#include "runtime/base/status.h"

#include <stddef.h>

enum { ROWS, BYTES, SECONDS };
#define TEXT(name, text, unit) text,
#define UNIT(name, text, unit) unit,
const char *const hec_curve_name[HEC_N_CURVE_KINDS] = {HEC_CURVE_LIST(TEXT)};
static const int units[HEC_N_CURVE_KINDS] = {HEC_CURVE_LIST(UNIT)};

bool hec_curve_has_rows(hec_curve_kind kind) {
  return units[kind] == ROWS;
}

bool hec_curve_is_exchange(hec_curve_kind kind) {
  return units[kind] == SECONDS;
}

bool hec_curve_has_ranks(hec_curve_kind kind) {
  return kind == HEC_CURVE_ALLREDUCE || kind == HEC_CURVE_COUNTS;
}

double hec_curve_s(const hec_curve *curve, double x) {
  HEC_ASSERT(curve->n >= 1 && x > 0);
  const double *at = curve->x, *s = curve->seconds;
  if (x <= at[0])
    return hec_curve_has_rows(curve->kind) ? s[0] : s[0] * (x / at[0]);
  if (curve->n == 1)
    return s[0] * (x / at[0]);
  int32_t low = 0, high = curve->n - 1; /* the segment low..high holds x, or is the last */
  while (high - low > 1) {
    int32_t middle = (low + high) / 2;
    if (at[middle] <= x)
      low = middle;
    else
      high = middle;
  }
  return s[low] + (s[high] - s[low]) * ((x - at[low]) / (at[high] - at[low]));
}

static bool same(double a, double b) {
  double difference = a > b ? a - b : b - a;
  return difference <= 1e-9 * (a > b ? a : b);
}

const hec_curve *hec_curves_find(const hec_curves *measured, hec_curve_kind kind, bool backward, double flops_per_row,
                                 int32_t ranks) {
  for (int32_t i = 0; measured && i < measured->n; i++) {
    const hec_curve *c = &measured->curves[i];
    if (c->kind == kind && c->backward == backward &&
        (!hec_curve_has_rows(kind) || same(c->flops_per_row, flops_per_row)) &&
        (!hec_curve_has_ranks(kind) || c->ranks == ranks))
      return c;
  }
  return NULL;
}
