/* geo_mean = exp(1/n sum ln x_i); log distance = |ln(a/b)|. O(n). libm is allowed here: these numbers are reported, no
 * plan depends on them. */
#include "validate/stats.h"

#include "runtime/base/status.h"

#include <math.h>

double hec_geo_mean(const double *value, int32_t n) {
  HEC_ASSERT(n >= 1);
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += value[i] > 0 ? log(value[i]) : NAN;
  return exp(sum / (double)n);
}

double hec_least(const double *value, int32_t n) {
  HEC_ASSERT(n >= 1);
  double least = value[0];
  for (int32_t i = 1; i < n; i++)
    least = value[i] < least ? value[i] : least;
  return least;
}

double hec_most(const double *value, int32_t n) {
  HEC_ASSERT(n >= 1);
  double most = value[0];
  for (int32_t i = 1; i < n; i++)
    most = value[i] > most ? value[i] : most;
  return most;
}

double hec_log_distance(double ours, double reference) {
  if (!(ours > 0) || !(reference > 0) || isinf(ours) || isinf(reference))
    return NAN;
  return fabs(log(ours / reference));
}

int32_t hec_side_of_one(double value, double tolerance) {
  return value > 1 + tolerance ? 1 : value < 1 - tolerance ? -1 : 0;
}
