/* The few rates that published planners reason with: one number per kind, from the problem's cluster. */
#ifndef HEC_PLAN_RATES_H
#define HEC_PLAN_RATES_H
typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */

typedef struct {
  double assignment_s; /* forward of one assignment on the slowest device, at its large-GEMM rate */
  double port;         /* bytes/s into a device inside its node */
  double node;         /* bytes/s into a node, all NICs; with one node in use: port */
  double rank;         /* bytes/s of a rank's share of `node`; with one node in use: port */
} hec_rates;

hec_rates hec_rates_of(const hec_problem *problem);

#endif
