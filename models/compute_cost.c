/* Closed-form compute times.
 *
 * FLOPs per token, forward (a multiply and an add are two):
 *     projections    2 * attention parameters                              (8 d^2 when heads * d_head = d, no GQA)
 *     scores         4 * context * heads * d_head, QK^T and AV             (4 s d with full attention, 2 s d causal;
 *                    context: keys that a query sees, counted in attention.c for every kind)
 *     expert         2 * n_ffn_matrices * d * f
 *     gate           2 * d * E
 * Bytes through HBM besides the GEMMs' own, in elements per token:
 *     norms          two, each reads and writes d                          4 d
 *     residuals      two additions with dropout, each reads 2 d, writes d  6 d
 *     attention      reads q, k, v, writes its output                      (2 heads + 2 kv_heads) d_head
 *     scores         only if not fused: written by QK^T, read and written  6 * heads * context
 *                    by the softmax, read and written by dropout, read by AV
 *     activation     plain: reads and writes f; gated: reads 2 f, writes f
 *     gate           fp32 logits written, read by the softmax,             12 E bytes
 *                    probabilities written
 *     embedding      a row read and written                                2 d
 *     head           logits written and read by the loss                   2 V */
#include "models/compute_cost.h"

/* Of an expert on a GPU. No product runs faster than this. Tiles are of a size that suits grouped products. An expert
 * that is there costs reading its weights. */
enum { EXPERT_TILE = 64 };

static hec_work_rate expert_rate_of(const hec_device *device, const hec_work_shape *shape) {
  const hec_gpu_laws *laws = device->gpu;
  double factor;
  hec_law_precision precision = hec_gpu_precision(laws, shape->dims.dtype_bytes, &factor);
  double in_step = device->in_step * factor;
  return (hec_work_rate){.speed = device->speed,
                         .flops_per_row = shape->flops_per_row,
                         .flops_s = laws->flops[precision] * device->speed / in_step,
                         .bytes_per_row = shape->bytes_per_row / factor,
                         .hbm_bandwidth = device->speed / (laws->grouped_byte_s[precision] * in_step),
                         .stream_s = shape->weight_bytes / (device->hbm_bandwidth * device->speed),
                         .tile = EXPERT_TILE,
                         .tiles_per_row = 1.0 / EXPERT_TILE,
                         .exact = shape->exact};
}

hec_work_rate hec_work_rate_of(const hec_device *device, const hec_work_shape *shape) {
  double n_gemms = (double)shape->n_gemms;
  const hec_curve *curve = NULL;
  if (device->measured && shape->kind != HEC_CURVE_NONE && !shape->exact)
    curve = hec_curves_find(device->measured, shape->kind, shape->backward, shape->flops_per_row, 0);
  if (device->gpu && !curve && shape->dims.part == HEC_WORK_EXPERT)
    return expert_rate_of(device, shape);
  if (device->gpu && !curve && shape->dims.part != HEC_WORK_OTHER && !shape->exact)
    return (hec_work_rate){.laws = device->gpu,
                           .dims = shape->dims,
                           .backward = shape->backward,
                           .bytes_per_row = shape->bytes_per_row / (shape->backward ? shape->dims.again ? 3 : 2 : 1),
                           .speed = device->speed / device->in_step};
  return (hec_work_rate){.curve = curve,
                         .speed = device->speed,
                         .flops_per_row = shape->flops_per_row,
                         .flops_s = device->flops * device->flops_efficiency * device->speed,
                         .bytes_per_row = shape->bytes_per_row,
                         .hbm_bandwidth = device->hbm_bandwidth,
                         .start_s = n_gemms * device->gemm_a_s,
                         .stream_s = n_gemms * device->gemm_c_s + shape->weight_bytes / device->hbm_bandwidth,
                         .tile = (double)device->gemm_tile,
                         .tiles_per_row = 1 / (double)device->gemm_tile,
                         .exact = shape->exact};
}

double hec_work_s(const hec_device *device, const hec_work_shape *shape, double rows) {
  hec_work_rate rate = hec_work_rate_of(device, shape);
  return hec_work_rate_s(&rate, rows);
}

double hec_work_experts_s(const hec_device *device, const hec_work_shape *shape, const int32_t *rows, int32_t n,
                          int32_t stride) {
  hec_work_rate rate = hec_work_rate_of(device, shape);
  if (device->gpu && !rate.curve && !shape->exact && shape->dims.part == HEC_WORK_EXPERT)
    return hec_gpu_experts_s(device->gpu, &shape->dims, rows, n, stride, shape->backward) * device->in_step /
           device->speed;
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += hec_work_rate_s(&rate, (double)rows[i * stride]);
  return sum;
}

/* A product x[rows, hidden] W[hidden, inter]. */
static hec_work_dims product_dims(const hec_moe *moe, double inter) {
  return (hec_work_dims){.part = HEC_WORK_GEMM,
                         .hidden = moe->d_model,
                         .inter = (int32_t)inter,
                         .dtype_bytes = moe->dtype_bytes,
                         .times = 1};
}

/* An FFN of inner width f. */
static hec_work_shape ffn_shape(const hec_moe *moe, double f) {
  double params = (double)moe->n_ffn_matrices * (double)moe->d_model * f;
  return (hec_work_shape){.kind = HEC_CURVE_NONE,
                          .flops_per_row = 2 * params,
                          .weight_bytes = params * (double)moe->dtype_bytes,
                          .bytes_per_row = (double)moe->n_ffn_matrices * f * (double)moe->dtype_bytes,
                          .n_gemms = moe->n_ffn_matrices,
                          .dims = {.part = HEC_WORK_FFN,
                                   .hidden = moe->d_model,
                                   .inter = (int32_t)f,
                                   .n_matrices = moe->n_ffn_matrices,
                                   .dtype_bytes = moe->dtype_bytes,
                                   .times = 1}};
}

/* The work of `n` equal operations. */
static hec_work_shape times(hec_work_shape shape, int32_t n) {
  shape.flops_per_row *= (double)n;
  shape.weight_bytes *= (double)n;
  shape.bytes_per_row *= (double)n;
  shape.n_gemms *= n;
  shape.dims.times *= (double)n;
  return shape;
}

hec_work_shape hec_work_expert(const hec_moe *moe) {
  hec_work_shape shape = ffn_shape(moe, (double)moe->d_ffn);
  shape.kind = HEC_CURVE_EXPERT;
  shape.dims.part = HEC_WORK_EXPERT;
  return shape;
}

hec_work_shape hec_work_shared(const hec_moe *moe) {
  hec_work_shape shape = times(ffn_shape(moe, (double)moe->d_ffn_shared), moe->n_shared_experts);
  shape.kind = HEC_CURVE_SHARED;
  return shape;
}

static hec_work_shape attention_shape(const hec_moe *moe, bool dense) {
  double d = (double)moe->d_model, heads = (double)moe->n_heads, d_head = (double)moe->d_head;
  double params = hec_moe_attention_params(moe), context = hec_moe_context(moe, dense),
         element = (double)moe->dtype_bytes;
  double elements = 10 * d + (2 * heads + 2 * (double)moe->n_kv_heads) * d_head;
  if (!moe->fused_attention)
    elements += 6 * heads * context;
  return (hec_work_shape){.kind = HEC_CURVE_ATTENTION,
                          .flops_per_row = (2 * params + 4 * context * heads * d_head) * moe->nonmoe_scale,
                          .weight_bytes = params * element * moe->nonmoe_scale,
                          .bytes_per_row = elements * element * moe->nonmoe_scale,
                          .n_gemms = 4, /* q k v together, QK^T, AV, output */
                          .dims = {.part = HEC_WORK_ATTENTION,
                                   .hidden = moe->d_model,
                                   .heads = moe->n_heads,
                                   .kv_heads = moe->n_kv_heads,
                                   .head_dim = moe->d_head,
                                   .seq = moe->seq_len,
                                   .context = context,
                                   .window = !dense && moe->attention == HEC_ATTENTION_S2 ? hec_s2_window(moe->s2) : 0,
                                   .projections = params / (2 * d * (heads + (double)moe->n_kv_heads) * d_head),
                                   .causal = moe->attention != HEC_ATTENTION_FULL,
                                   .fused = moe->fused_attention,
                                   .dtype_bytes = moe->dtype_bytes,
                                   .parts = 1,
                                   .scale = moe->nonmoe_scale,
                                   .times = 1}};
}

hec_work_shape hec_work_attention(const hec_moe *moe) {
  return attention_shape(moe, false);
}
hec_work_shape hec_work_dense_attention(const hec_moe *moe) {
  return attention_shape(moe, true);
}

hec_work_shape hec_work_gate(const hec_moe *moe) {
  double params = hec_moe_gate_params(moe);
  return (hec_work_shape){.kind = HEC_CURVE_GATE,
                          .flops_per_row = 2 * params,
                          .weight_bytes = params * (double)moe->dtype_bytes,
                          .bytes_per_row = 12 * (double)moe->n_experts,
                          .n_gemms = 1,
                          .dims = product_dims(moe, params / (double)moe->d_model)};
}

/* The work of two operations together; of both only the block has laws (block_shape). */
static hec_work_shape both(hec_work_shape a, hec_work_shape b) {
  return (hec_work_shape){.kind = HEC_CURVE_NONE,
                          .flops_per_row = a.flops_per_row + b.flops_per_row,
                          .weight_bytes = a.weight_bytes + b.weight_bytes,
                          .bytes_per_row = a.bytes_per_row + b.bytes_per_row,
                          .n_gemms = a.n_gemms + b.n_gemms};
}

hec_work_shape hec_work_dense_ffn(const hec_moe *moe) {
  return ffn_shape(moe, (double)moe->d_ffn_dense);
}

hec_work_shape hec_work_cut(hec_work_shape shape, int32_t parts) {
  shape.flops_per_row /= (double)parts;
  shape.weight_bytes /= (double)parts;
  shape.bytes_per_row /= (double)parts;
  shape.dims.parts *= parts;
  shape.dims.inter /= parts;
  shape.dims.heads /= parts;
  shape.dims.kv_heads /= parts;
  return shape;
}

/* Attention, as given, and FFN of a block without MoE. */
static hec_work_shape block_shape(const hec_moe *moe, hec_work_shape attention) {
  hec_work_shape ffn = hec_work_dense_ffn(moe), block = both(attention, ffn);
  block.dims = attention.dims;
  block.dims.part = HEC_WORK_BLOCK;
  block.dims.inter = ffn.dims.inter;
  block.dims.n_matrices = ffn.dims.n_matrices;
  return block;
}

hec_work_shape hec_work_dense_blocks(const hec_moe *moe) {
  int32_t n = moe->n_layers - moe->n_moe_layers;
  int32_t n_dense = hec_moe_n_dense_attention(moe, false) - hec_moe_n_dense_attention(moe, true);
  hec_work_shape blocks = times(block_shape(moe, hec_work_attention(moe)), n - n_dense);
  if (n_dense == 0)
    return blocks;
  hec_work_shape dense = times(block_shape(moe, hec_work_dense_attention(moe)), n_dense), all = both(blocks, dense);
  all.dims = n_dense < n ? blocks.dims : dense.dims; /* a GPU's laws take the mean over them */
  all.dims.times = dense.dims.times + blocks.dims.times;
  all.dims.window = 0;
  all.dims.context = (blocks.dims.times * blocks.dims.context + dense.dims.times * dense.dims.context) / all.dims.times;
  return all;
}

hec_work_shape hec_work_embedding(const hec_moe *moe) {
  if (moe->vocabulary == 0)
    return (hec_work_shape){.kind = HEC_CURVE_NONE};
  return (hec_work_shape){.kind = HEC_CURVE_NONE,
                          .bytes_per_row = 2 * (double)moe->d_model * (double)moe->dtype_bytes,
                          .dims = product_dims(moe, 0)};
}

hec_work_shape hec_work_head(const hec_moe *moe) {
  if (moe->vocabulary == 0)
    return (hec_work_shape){.kind = HEC_CURVE_NONE};
  double params = (double)moe->vocabulary * (double)moe->d_model, element = (double)moe->dtype_bytes;
  return (hec_work_shape){.kind = HEC_CURVE_NONE,
                          .flops_per_row = 2 * params,
                          .weight_bytes = params * element,
                          .bytes_per_row = 2 * (double)moe->vocabulary * element,
                          .n_gemms = 1,
                          .dims = product_dims(moe, (double)moe->vocabulary)};
}

hec_work_shape hec_work_backward(hec_work_shape forward) {
  hec_work_shape shape = times(forward, 2);
  shape.dims = forward.dims; /* the laws know how much longer backward takes */
  shape.backward = true;
  return shape;
}

hec_work_shape hec_work_backward_of(const hec_moe *moe, hec_work_shape forward) {
  hec_work_shape backward = hec_work_backward(forward);
  if (moe->recompute) {
    backward.flops_per_row += forward.flops_per_row;
    backward.bytes_per_row += forward.bytes_per_row;
    backward.n_gemms += forward.n_gemms;
    backward.dims.again = true;
  }
  return backward;
}

double hec_local_s(const hec_device *device, hec_curve_kind kind, bool backward, double bytes) {
  const hec_curve *curve = NULL;
  if (device->measured && kind != HEC_CURVE_NONE && bytes > 0)
    curve = hec_curves_find(device->measured, kind, backward, 0, 0);
  if (curve)
    return hec_curve_s(curve, bytes) / device->speed;
  return bytes > 0 ? device->launch_s + bytes / device->hbm_bandwidth : 0;
}

double hec_nonmoe_forward_s(const hec_moe *moe, hec_work_shape attention, const hec_cluster *cluster, int32_t n_ranks,
                            int32_t tokens) {
  HEC_ASSERT(n_ranks >= 1 && n_ranks <= cluster->n_devices);
  hec_work_shape gate = hec_work_gate(moe);
  double slowest = 0;
  for (int32_t r = 0; r < n_ranks; r++) {
    const hec_device *device = &cluster->devices[r];
    double s = hec_work_s(device, &attention, (double)tokens) + hec_work_s(device, &gate, (double)tokens);
    slowest = s > slowest ? s : slowest;
  }
  return slowest;
}
