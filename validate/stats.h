/* Small statistics over positive ratios. */
#ifndef HEC_VALIDATE_STATS_H
#define HEC_VALIDATE_STATS_H
#include <stdint.h>

/* n >= 1. The geometric mean needs positive values; NAN when one is not. */
double hec_geo_mean(const double *value, int32_t n);
double hec_least(const double *value, int32_t n);
double hec_most(const double *value, int32_t n);

/* |ln(ours / reference)|: 0 for equal, symmetric in over and under. NAN unless both are positive and finite. */
double hec_log_distance(double ours, double reference);

/* Do both lie on the same side of 1 (who wins)? A value within `tolerance` of 1 lies on neither. */
int32_t hec_side_of_one(double value, double tolerance); /* -1, 0, 1 */

#endif
