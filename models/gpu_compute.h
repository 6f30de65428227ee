/* What a model's compute costs on a GPU, by the cost laws of models/laws/ and the constants of a device (models/gpu.h).
 *
 *   dense      GEMM law of each product + attention law + memory law of the kernels between (norms, residuals, activation)
 *   experts    the faster of two: the grouped law over the rows of every expert, or the GEMM law of each expert in
 *              turn. Frameworks do the second with large loads (grouped_gemm over cuBLAS,
 *              github.com/tgale96/grouped_gemm)
 *   backward   two GEMMs for each of the forward, attention `backward` times its forward (about 3), twice the bytes
 *
 * Times are of kernels alone. What a kernel takes in a training step is hec_device.in_step times that (cluster.h).
 * float32 counts as twice the time of bf16: half the rate (TF32), twice the bytes. Tables have no float32. */
#pragma once
#include "models/gpu.h"

/* Kernels that read and write each byte once: a launch, then bytes at a rate. */
typedef struct {
  double launch_s, byte_s;
} hec_gpu_kernel;

typedef struct hec_gpu_laws {
  hec_gpu gpu;
  const hec_law_fit *gemm[HEC_LAW_PRECISIONS], *grouped[HEC_LAW_PRECISIONS], *attention;
  hec_gpu_kernel add, norm, activation;      /* of bf16 */
  double grouped_byte_s[HEC_LAW_PRECISIONS]; /* element-wise part of the grouped law, by bytes */
  double grouped_row_s[HEC_LAW_PRECISIONS];  /* and by rows */
  double flops[HEC_LAW_PRECISIONS];          /* FLOP/s that no expert layer exceeds */
} hec_gpu_laws;

/* Reads a device and chooses its fits: the first of each law that suits training (bf16, CUTLASS or what there is). *laws is
 * NULL where the device has no GEMM law: it is known by its data sheet only, which *gpu has. A preset is read once, for all. */
hec_status hec_gpu_laws_load(const char *spec, hec_arena *arena, const hec_gpu **gpu,
                             const hec_gpu_laws **laws) HEC_MUST_USE;

/* What the laws need of an operation. Sizes are of this rank's part. */
typedef enum {
  HEC_WORK_OTHER,
  HEC_WORK_GEMM,
  HEC_WORK_ATTENTION,
  HEC_WORK_FFN,
  HEC_WORK_BLOCK,
  HEC_WORK_EXPERT
} hec_work_part;
typedef struct {
  hec_work_part part;                /* OTHER: by FLOPs and bytes alone */
  int32_t hidden, inter, n_matrices; /* GEMM: x[rows, hidden] W[hidden, inter]; FFN: width, inner width, 2 or 3 */
  int32_t heads, kv_heads, head_dim, seq;
  double context;     /* keys that a query sees */
  int32_t window;     /* of a sliding window; 0: none */
  double projections; /* their parameters over those of q, k, v and output: 1 but for low-rank forms */
  bool causal, fused;
  double core;    /* factor on attention's core, or on the activation of experts; 0: 1 */
  bool quantised;             /* fp8: who made the numbers has made them fp8, no kernel of its own does */
  int32_t context_parts;      /* of context parallelism: a rank has this part of every sequence's queries; 0: all */
  int32_t dtype_bytes, parts; /* parts: of tensor parallelism; rows of norms are divided by them */
  double scale;               /* factor on attention (hec_moe.nonmoe_scale) */
  double times;               /* so many of them */
  bool again;                 /* backward: the forward is done again first */
} hec_work_dims;

/* Seconds of `rows` rows. `bytes_per_row`: element-wise traffic, where the part has no law of its own for it. */
double hec_gpu_work_s(const hec_gpu_laws *laws, const hec_work_dims *dims, double bytes_per_row, double rows,
                      bool backward);

/* Seconds of the experts of a rank: rows[0], rows[stride], ... of `n` experts, n with stride int32s between. */
double hec_gpu_experts_s(const hec_gpu_laws *laws, const hec_work_dims *dims, const int32_t *rows, int32_t n,
                         int32_t stride, bool backward);

/* Seconds between the products of experts, forward: the activation, and what a row costs beside its bytes. */
double hec_gpu_activation_s(const hec_gpu_laws *laws, const hec_work_dims *dims, hec_law_precision precision,
                            double rows);

/* FLOP/s of dense products in their best tile, all of it math. */
double hec_gpu_dense_flops(const hec_gpu_laws *laws, hec_law_precision precision);

/* The precision whose laws price numbers of `dtype_bytes`, and the factor on their time. */
hec_law_precision hec_gpu_precision(const hec_gpu_laws *laws, int32_t dtype_bytes, double *factor);
