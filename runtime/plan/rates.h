/* The few rates that published planners reason with: one number per kind, from the problem's cluster. */
#pragma once
#include "models/gpu.h"

typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */

typedef struct {
  double assignment_s; /* forward of one assignment on the slowest device, at its large-GEMM rate */
  double port;         /* bytes/s into a device inside its node */
  double node;         /* bytes/s into a node, all NICs; with one node in use: port */
  double rank;         /* bytes/s of a rank's share of `node`; with one node in use: port */
  /* The same three for rows of assignments, as the problem's dispatcher carries them. They are bytes of assignments
   * (bytes.token each) over what its kernels take, the mean of there and back. Tokens are spread evenly over the experts.
   * Without a dispatcher they are the three above. */
  double token_port, token_node, token_rank;
} hec_rates;

hec_rates hec_rates_of(const hec_problem *problem);

/* The dispatcher's GPU as a rank has it: --slow leaves less of its port and its NIC. Uplinks are not in the law. */
hec_gpu hec_dispatch_gpu(const hec_problem *problem, int32_t rank);
