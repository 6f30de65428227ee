/* Cost laws of GPU work: what a kernel or a collective costs on a device, in closed form with a few constants.
 *
 * A law is one file and one row of HEC_COST_LAW_LIST. It takes a device's data sheet, constants that were fitted to
 * published measurements (models/gpu.h says to which, and with what error) and the work. Constants are shares of
 * data-sheet rates wherever that makes sense, so that a device without measurements can take those of its sister.
 * Laws use + - * / sqrt and comparisons only, so that every machine computes the same. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { HEC_LAW_BF16, HEC_LAW_FP8, HEC_LAW_PRECISIONS } hec_law_precision;

/* Data sheet. Rates are dense (without sparsity) and one-way. */
typedef struct {
  double flops[HEC_LAW_PRECISIONS]; /* FLOP/s; 0: the device cannot */
  bool mx;                          /* products in fp8 with a scale for every 32 values (MXFP8) */
  int32_t sms;
  double hbm_bandwidth, memory_bytes;
  double nvlink_bandwidth; /* bytes/s and direction, to the devices of its domain */
  int32_t nvlink_ranks;    /* devices of one domain: a node, or more where NVLink goes across nodes */
  double nic_bandwidth;    /* bytes/s and direction, per device */
  double launch_s;         /* one kernel launch */
} hec_gpu_sheet;

typedef struct {
  const char *name, *unit;
  const char *meaning;
  double low, start, high; /* where a fit looks, and where it begins; low 0: a switch, `off` or `high` */
  double off;              /* the value at which its term does nothing; < 0: the law needs it */
} hec_law_constant;

enum { HEC_LAW_CONSTANTS_MAX = 16 };

typedef struct {
  const char *name, *summary, *formula, *source;
  const char *range; /* what it was fitted on, and what it does not cover */
  int32_t n_constants;
  const hec_law_constant *constants; /* [n_constants] */
  uint32_t of_sm;                    /* bit i: constant i is a rate of the SMs, in HBM rates; see hec_gpu_scale */
  size_t work_size;
  /* Seconds. `work` is the law's own type of models/laws/work.h. */
  double (*seconds)(const hec_gpu_sheet *sheet, const double *constants, const void *work);
} hec_cost_law;

#define HEC_COST_LAW_LIST(X)                                                                                           \
  X(gemm)                                                                                                              \
  X(grouped)                                                                                                           \
  X(attention)                                                                                                         \
  X(memory)                                                                                                            \
  X(collective)                                                                                                        \
  X(dispatch)
#define HEC_COST_LAW_DECLARE(name) extern const hec_cost_law hec_cost_law_##name;
HEC_COST_LAW_LIST(HEC_COST_LAW_DECLARE)
#undef HEC_COST_LAW_DECLARE

extern const hec_cost_law *const hec_cost_laws[]; /* ends with NULL */
const hec_cost_law *hec_cost_law_find(const char *name);

/* Logarithm to base 2: exact at powers of two, linear between them. */
static inline double hec_law_log2(int32_t n) {
  double at = 0;
  int32_t power = 1;
  for (; power * 2 <= n; power *= 2)
    at += 1;
  return at + (double)(n - power) / (double)power;
}

/* Time of two things that overlap in part: the larger root of (t - a)(t - b) = share * a * b.
 * share 0: max(a, b), perfect overlap. share 1: a + b, no overlap. A p-norm does the same job but needs pow(); this needs
 * one sqrt, and its constant has a meaning. */
static inline double hec_overlap(double a, double b, double share) {
  double half = 0.5 * (a - b);
  return 0.5 * (a + b) + sqrt(half * half + share * a * b);
}

/* Pieces of size `piece` that cover `whole`: both are whole numbers > 0. */
static inline double hec_pieces(int64_t whole, int64_t piece) {
  return (double)((whole + piece - 1) / piece);
}

/* Waves of x = blocks / SMs: a share `quantised` of the blocks waits for whole waves; one wave is never less than a block. */
static inline double hec_waves(double x, double quantised) {
  double whole = (double)(int64_t)x;
  whole += whole < x ? 1 : 0;
  return quantised * whole + (1 - quantised) * (x > 1 ? x : 1);
}
