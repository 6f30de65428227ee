/* Collectives of a device: which fit prices an operation on a number of ranks, and what is between fits. Exchanges of unequal
 * messages go over links that take their rates from the all-to-all fit (cluster_gpu.c).
 * Source of the twins: NCCL's ring all-gather and reduce-scatter send the same bytes over the same links in n - 1 steps. */
#include "models/gpu.h"

#include <string.h>

const char *const hec_collective_op_name[HEC_N_COLLECTIVE_OPS] = {"all_gather", "all_reduce", "all_to_all",
                                                                  "reduce_scatter"};
enum { RANKS_MAX = 72 }; /* of one NVLink domain */

double hec_collective_port_bytes(hec_collective_op op, int32_t ranks, double bytes) {
  double once = bytes * (double)(ranks - 1) / (double)ranks;
  return op == HEC_ALL_REDUCE ? 2 * once : once;
}

/* The fit for so many ranks, and those for the next fewer and next more. One of the operation itself goes before its twin's. */
typedef struct {
  const hec_law_fit *at, *below, *above;
  int32_t low, high; /* ranks of below and above */
  bool own;          /* `at` is of the operation itself */
} neighbours;

static hec_collective_op twin_of(hec_collective_op op) {
  return op == HEC_ALL_GATHER ? HEC_REDUCE_SCATTER : op == HEC_REDUCE_SCATTER ? HEC_ALL_GATHER : op;
}

/* Ranks of a variant such as "all_gather 8"; 0: of another operation. */
static int32_t ranks_of(const char *variant, hec_collective_op op) {
  size_t n = strlen(hec_collective_op_name[op]);
  if (strncmp(variant, hec_collective_op_name[op], n) != 0 || variant[n] != ' ')
    return 0;
  int32_t ranks = 0; /* strtol took a tenth of a search of layouts */
  for (const char *at = variant + n + 1; *at >= '0' && *at <= '9' && ranks <= RANKS_MAX; at++)
    ranks = 10 * ranks + *at - '0';
  return ranks <= RANKS_MAX ? ranks : 0;
}

static void meet(neighbours *found, const hec_law_fit *fit, int32_t n, int32_t ranks, bool own) {
  if (n == ranks && (own || !found->at)) {
    found->at = fit;
    found->own = own;
  }
  if (n < ranks && (n > found->low || (n == found->low && own))) {
    found->below = fit;
    found->low = n;
  }
  if (n > ranks && (!found->above || n < found->high || (n == found->high && own))) {
    found->above = fit;
    found->high = n;
  }
}

static neighbours neighbours_of(const hec_gpu *gpu, hec_collective_op op, int32_t ranks) {
  neighbours found = {0};
  for (int32_t i = 0; i < gpu->n_fits; i++) {
    const hec_law_fit *fit = &gpu->fits[i];
    if (fit->law != &hec_cost_law_collective)
      continue;
    int32_t own = ranks_of(fit->variant, op), n = own > 0 ? own : ranks_of(fit->variant, twin_of(op));
    if (n > 1)
      meet(&found, fit, n, ranks, own > 0);
  }
  return found;
}

static double fit_s(const hec_gpu *gpu, const hec_law_fit *fit, hec_collective_op op, int32_t ranks, double bytes) {
  const hec_collective_work work = {hec_collective_port_bytes(op, ranks, bytes)};
  return hec_law_fit_s(gpu, fit, &work);
}

double hec_gpu_collective_s(const hec_gpu *gpu, hec_collective_op op, int32_t ranks, double bytes,
                            hec_collective_how *how) {
  neighbours near = neighbours_of(gpu, op, ranks);
  *how = near.own ? HEC_COLLECTIVE_FITTED : HEC_COLLECTIVE_BETWEEN;
  if (near.at)
    return fit_s(gpu, near.at, op, ranks, bytes);
  if (!near.below && !near.above) {
    *how = HEC_COLLECTIVE_NONE;
    return 0;
  }
  if (!near.below || !near.above)
    return fit_s(gpu, near.below ? near.below : near.above, op, ranks, bytes);
  double share = (hec_law_log2(ranks) - hec_law_log2(near.low)) / (hec_law_log2(near.high) - hec_law_log2(near.low));
  return (1 - share) * fit_s(gpu, near.below, op, ranks, bytes) + share * fit_s(gpu, near.above, op, ranks, bytes);
}
