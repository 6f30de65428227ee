/* Closed-form compute times. A device that names a GPU is priced by that GPU's laws (gpu_compute.h), every other by a law of a
 * few constants. Source of the latter: reference policies.md 0.3 and 4.13 (tiles and weight streaming). */
#pragma once
#include "models/cluster.h"
#include "models/gpu_compute.h"
#include "models/moe.h"

#include <stdint.h>

/* What one row (token) of a compute operation costs: `n_gemms` GEMMs that together take flops_per_row and stream
 * weight_bytes once, and bytes_per_row of element-wise traffic. */
typedef struct {
  double flops_per_row, weight_bytes, bytes_per_row;
  int32_t n_gemms;
  hec_curve_kind kind; /* what it is, where it could have been measured; HEC_CURVE_NONE: by the law alone */
  bool backward;
  bool exact;         /* no tiles, no streaming, no fixed cost: the `ideal` reference row */
  hec_work_dims dims; /* what a GPU's laws need */
} hec_work_shape;

/* rows == 0 costs nothing. Seconds:
 *   max(n_gemms*a + ceil(rows/tile)*tile*flops_per_row/(flops*eff*speed), n_gemms*c + weight_bytes/hbm)
 *     + rows*bytes_per_row/hbm or, where the device has a measured curve of the shape, the curve's time / speed; or, of
 *     a GPU, in_step times its laws. One expert of a GPU alone is the first formula with constants that its laws give.
 *     Experts of a rank share their waves, so they have a time together only (hec_work_experts_s). Planners use that
 *     first formula: it is a sum over experts. */
double hec_work_s(const hec_device *device, const hec_work_shape *shape, double rows);

/* Seconds of the experts that a rank computes: rows[0], rows[stride], ... of n experts. */
double hec_work_experts_s(const hec_device *device, const hec_work_shape *shape, const int32_t *rows, int32_t n,
                          int32_t stride);

/* The same in two steps, for many operations of one shape on one device. */
typedef struct {
  const hec_curve *curve;   /* NULL: the law */
  const hec_gpu_laws *laws; /* NULL: not this shape on this device */
  hec_work_dims dims;
  bool backward;
  double speed;                  /* with laws: over in_step */
  double flops_per_row, flops_s; /* FLOP/s that the device reaches */
  double bytes_per_row, hbm_bandwidth;
  double start_s, stream_s; /* of all GEMMs: launch, and streaming the weights */
  double tile, tiles_per_row;
  bool exact;
} hec_work_rate;
hec_work_rate hec_work_rate_of(const hec_device *device, const hec_work_shape *shape);

static inline double hec_work_rate_s(const hec_work_rate *rate, double rows) {
  if (rows <= 0)
    return 0;
  if (rate->curve)
    return hec_curve_s(rate->curve, rows) / rate->speed;
  if (rate->laws)
    return hec_gpu_work_s(rate->laws, &rate->dims, rate->bytes_per_row, rows, rate->backward) / rate->speed;
  double elementwise_s = rows * rate->bytes_per_row / rate->hbm_bandwidth;
  if (rate->exact)
    return rows * rate->flops_per_row / rate->flops_s + elementwise_s;
  double tiles = (double)(int64_t)(rows * rate->tiles_per_row); /* rounding: the number needed or up to two less */
  while (tiles * rate->tile < rows)
    tiles++;
  double math_s = rate->start_s + tiles * rate->tile * rate->flops_per_row / rate->flops_s;
  return (math_s > rate->stream_s ? math_s : rate->stream_s) + elementwise_s;
}

/* Forward shapes, per token of the rank. A backward operation has twice the flops, bytes and GEMMs. */
hec_work_shape hec_work_expert(const hec_moe *moe); /* one routed expert, per assignment */
hec_work_shape hec_work_shared(const hec_moe *moe); /* the shared experts together */
/* Attention of a block with norms, residuals, softmax; * nonmoe_scale. Of the model's kind, and of the layers that s2
 * leaves dense (hec_moe_dense_attention), which for other kinds is the same. */
hec_work_shape hec_work_attention(const hec_moe *moe);
hec_work_shape hec_work_dense_attention(const hec_moe *moe);
hec_work_shape hec_work_gate(const hec_moe *moe);
hec_work_shape
hec_work_dense_blocks(const hec_moe *moe); /* all blocks without MoE together (0 rows cost if there are none) */
hec_work_shape hec_work_dense_ffn(const hec_moe *moe);    /* of one of them */
hec_work_shape hec_work_embedding(const hec_moe *moe);    /* a row of the table per token; no GEMM */
hec_work_shape hec_work_head(const hec_moe *moe);         /* logits and loss */
hec_work_shape hec_work_backward(hec_work_shape forward); /* flops, bytes and GEMMs doubled */
/* A part of `parts` over `parts` times the rows: as many FLOPs, a part of the weights (tensor parallelism). */
hec_work_shape hec_work_cut(hec_work_shape shape, int32_t parts);
/* A backward operation, with the forward done again first where the model recomputes. */
hec_work_shape hec_work_backward_of(const hec_moe *moe, hec_work_shape forward);

/* Seconds of an operation that moves `bytes` through HBM (permute, reduce, optimizer; kind NONE: any other); 0 bytes cost
 * nothing. launch + bytes / hbm, or the measured curve's time / speed. */
double hec_local_s(const hec_device *device, hec_curve_kind kind, bool backward, double bytes);

/* Forward time of the non-MoE part of one MoE block on the slowest device: attention (as given: one of the two above) and
 * gate. The window of FSSDP. */
double hec_nonmoe_forward_s(const hec_moe *moe, hec_work_shape attention, const hec_cluster *cluster, int32_t n_ranks,
                            int32_t tokens);

/* Simulated time ends here (26 days): a longer duration counts as this much, so that sums of two fit in 64 bits. */
#define HEC_TIME_END_PS (INT64_C(1) << 61)

static inline int64_t hec_seconds_to_ps(double seconds) {
  double ps = seconds * 1e12 + 0.5;
  return ps < (double)HEC_TIME_END_PS ? (int64_t)ps : HEC_TIME_END_PS;
}

static inline int64_t hec_time_after(int64_t begin_ps, int64_t duration_ps) {
  int64_t end = begin_ps + duration_ps;
  return end < HEC_TIME_END_PS ? end : HEC_TIME_END_PS;
}
