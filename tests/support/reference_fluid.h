/* A plain max-min fluid solver to check sim/fluid against: long double, nothing incremental, everything recomputed from
 * the flows at every start and finish. Slow (O(events * steps * flows * route)) and obvious. */
#pragma once
#include <stdint.h>

typedef struct {
  const int32_t *links; /* [n_links] */
  int32_t n_links;
  double amount, cap, start; /* cap: INFINITY when none */
} hec_reference_flow;

/* finish[f] in seconds. `capacity`: per link id. */
void hec_reference_fluid(int32_t n_flows, const hec_reference_flow *flows, int32_t n_links, const double *capacity,
                         double *finish);
