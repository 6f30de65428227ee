/* Collectives of a device: which fit prices an operation on a number of ranks, and what is between fits. Exchanges of unequal
 * messages go over links that take their rates from the all-to-all fit (cluster_gpu.c).
 * Source of the twins: NCCL's ring all-gather and reduce-scatter send the same bytes over the same links in n - 1 steps. */
#include "models/gpu.h"

#include <stdio.h>

const char *const hec_collective_op_name[HEC_N_COLLECTIVE_OPS] = {"all_gather", "all_reduce", "all_to_all",
                                                                  "reduce_scatter"};
enum { RANKS_MAX = 72 }; /* of one NVLink domain */

double hec_collective_port_bytes(hec_collective_op op, int32_t ranks, double bytes) {
  double once = bytes * (double)(ranks - 1) / (double)ranks;
  return op == HEC_ALL_REDUCE ? 2 * once : once;
}

static const hec_law_fit *fit_of(const hec_gpu *gpu, hec_collective_op op, int32_t ranks) {
  char variant[32];
  (void)snprintf(variant, sizeof variant, "%s %d", hec_collective_op_name[op], (int)ranks);
  return hec_gpu_fit(gpu, "collective", variant);
}

static const hec_law_fit *fit_or_twin(const hec_gpu *gpu, hec_collective_op op, int32_t ranks) {
  const hec_law_fit *fit = fit_of(gpu, op, ranks);
  if (!fit && op == HEC_ALL_GATHER)
    fit = fit_of(gpu, HEC_REDUCE_SCATTER, ranks);
  if (!fit && op == HEC_REDUCE_SCATTER)
    fit = fit_of(gpu, HEC_ALL_GATHER, ranks);
  return fit;
}

static double fit_s(const hec_gpu *gpu, const hec_law_fit *fit, hec_collective_op op, int32_t ranks, double bytes) {
  const hec_collective_work work = {hec_collective_port_bytes(op, ranks, bytes)};
  return hec_law_fit_s(gpu, fit, &work);
}

double hec_gpu_collective_s(const hec_gpu *gpu, hec_collective_op op, int32_t ranks, double bytes,
                            hec_collective_how *how) {
  const hec_law_fit *own = fit_or_twin(gpu, op, ranks), *below = NULL, *above = NULL;
  int32_t low = 0, high = 0;
  *how = fit_of(gpu, op, ranks) ? HEC_COLLECTIVE_FITTED : HEC_COLLECTIVE_BETWEEN;
  if (own)
    return fit_s(gpu, own, op, ranks, bytes);
  for (int32_t n = 2; n <= RANKS_MAX; n++) {
    const hec_law_fit *fit = fit_or_twin(gpu, op, n);
    if (fit && n < ranks) {
      below = fit;
      low = n;
    }
    if (fit && n > ranks && !above) {
      above = fit;
      high = n;
    }
  }
  if (!below && !above) {
    *how = HEC_COLLECTIVE_NONE;
    return 0;
  }
  if (!below || !above)
    return fit_s(gpu, below ? below : above, op, ranks, bytes);
  double share = (hec_law_log2(ranks) - hec_law_log2(low)) / (hec_law_log2(high) - hec_law_log2(low));
  return (1 - share) * fit_s(gpu, below, op, ranks, bytes) + share * fit_s(gpu, above, op, ranks, bytes);
}
