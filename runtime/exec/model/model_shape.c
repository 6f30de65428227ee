/* The model's shape: what can be executed, where parameters, kept values and scratch lie. All O(1).
 *
 * Kept per token and block: x0 d, q and attended h*dh each, k and v kv*dh each, x1 d, h2 d, probabilities E, two norm
 * scales. That is 3 d + 2 (h + kv) dh + E + 2 floats. The law of models/memory_cost.c allows 4 d + 2 (h + kv) dh + d/2
 * + E. */
#include "runtime/exec/model/gate.h"
#include "runtime/exec/model/model_parts.h"

#include "models/memory_cost.h"

/* Adam's epsilon. The first update of an element divides its gradient by its own size. Where the gradient's sum nearly
 * cancels, rounding would decide the sign of a full step. Replay's gradients are of order 0.1 to 100 (the output
 * gradient is normal) with errors of order 1e-6 of that. epsilon = 1e-3 is below the gradients and damps just those
 * elements. reference.c derives what is left; 1e-5 leaves ten times as much. Training takes an Adam of its own. */
static const hec_adam adam = {.rate = 1e-3F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-3F};

enum { WIDTH_MAX = 1 << 24 }; /* of a matrix, so that every GEMM's sizes are int32_t */

static hec_status check_widths(const hec_moe *moe) {
  int64_t heads = (int64_t)moe->n_heads * moe->d_head, f = (int64_t)moe->n_ffn_matrices * moe->d_ffn;
  int64_t shared = (int64_t)moe->n_ffn_matrices * moe->d_ffn_shared;
  if (heads > WIDTH_MAX || f > WIDTH_MAX || shared > WIDTH_MAX)
    return hec_fail(HEC_BAD_INPUT, "%s: matrices wider than %d cannot be executed", moe->name, (int)WIDTH_MAX);
  return HEC_OK;
}

hec_status hec_model_make(const hec_moe *moe, bool exact, uint64_t seed, hec_model *model) {
  HEC_TRY(hec_moe_check(moe, moe->name));
  if (moe->attention_params > 0)
    return hec_fail(HEC_BAD_INPUT, "%s: attention given as a parameter count cannot be executed; give heads and d_head",
                    moe->name);
  if (moe->gate_params > 0)
    return hec_fail(HEC_BAD_INPUT, "%s: a gate given as a parameter count cannot be executed", moe->name);
  if (moe->capacity_factor > 0)
    return hec_fail(HEC_BAD_INPUT, "%s: a capacity factor cannot be executed: tokens are never dropped", moe->name);
  if (moe->n_heads % moe->n_kv_heads != 0)
    return hec_fail(HEC_BAD_INPUT, "%s: kv_heads: expected a divisor of heads (%d), found %d", moe->name,
                    (int)moe->n_heads, (int)moe->n_kv_heads);
  if (moe->d_model < 4)
    return hec_fail(HEC_BAD_INPUT, "%s: d_model: expected at least 4 to be executed, found %d", moe->name,
                    (int)moe->d_model);
  if (exact && moe->n_moe_layers != 1)
    return hec_fail(HEC_BAD_INPUT, "%s: exact mode: expected one MoE layer, found %d", moe->name,
                    (int)moe->n_moe_layers);
  HEC_TRY(check_widths(moe));
  hec_model made = {.moe = *moe, .exact = exact, .seed = seed, .adam = adam, .gate = &hec_gate_softmax};
  made.moe.n_layers = moe->n_moe_layers;
  made.moe.dtype_bytes = 4;
  made.moe.grad_bytes = 4;
  made.moe.optimizer_bytes = 8;
  made.moe.vocabulary = 0;
  made.moe.s2 = hec_s2_of(moe->s2, moe->n_heads);
  made.n_blocks = moe->n_moe_layers;
  made.n_experts = moe->n_experts;
  made.top_k = moe->top_k;
  made.activation = exact ? HEC_RELU : moe->n_ffn_matrices == 3 ? HEC_SILU : HEC_GELU;
  *model = made;
  return HEC_OK;
}

hec_model_widths hec_model_widths_of(const hec_model *model) {
  const hec_moe *moe = &model->moe;
  return (hec_model_widths){.d = moe->d_model,
                            .q = moe->n_heads * moe->d_head,
                            .kv = moe->n_kv_heads * moe->d_head,
                            .head = moe->d_head,
                            .per_group = moe->n_heads / moe->n_kv_heads,
                            .experts = model->n_experts};
}

hec_block_layout hec_model_block(const hec_model *model) {
  hec_model_widths w = hec_model_widths_of(model);
  hec_block_layout at = {.q = 0};
  at.k = at.q + (int64_t)w.d * w.q;
  at.v = at.k + (int64_t)w.d * w.kv;
  at.o = at.v + (int64_t)w.d * w.kv;
  at.norm1 = at.o + (int64_t)w.q * w.d;
  at.norm2 = at.norm1 + w.d;
  at.gate = at.norm2 + w.d;
  at.shared = at.gate + hec_gate_size(model);
  at.size = at.shared + model->moe.n_shared_experts * hec_ffn_size(model, model->moe.d_ffn_shared);
  HEC_ASSERT((double)at.size == hec_moe_block_params(&model->moe));
  return at;
}

int64_t hec_ffn_size(const hec_model *model, int32_t f) {
  return (int64_t)model->moe.n_ffn_matrices * model->moe.d_model * f;
}

int64_t hec_model_expert_size(const hec_model *model) {
  return hec_ffn_size(model, model->moe.d_ffn);
}

int64_t hec_block_kept_size(const hec_model *model, int32_t tokens) {
  hec_model_widths w = hec_model_widths_of(model);
  int32_t parts = hec_model_parts(model);
  int64_t size = (2 * (int64_t)w.d + w.experts + 1) * tokens;
  size += ((int64_t)w.d + 2 * ((int64_t)w.q + w.kv) + 1) * parts * tokens;
  HEC_ASSERT(parts > 1 || model->moe.recompute ||
             4 * (double)size <= hec_memory_cost_of(&model->moe, tokens, true).activation_layer);
  return size;
}

static float *take(float **memory, int64_t n) {
  float *at = *memory;
  *memory += n;
  return at;
}

hec_block_kept hec_block_kept_at(const hec_model *model, int32_t layer, int32_t tokens, float *memory) {
  hec_model_widths w = hec_model_widths_of(model);
  int64_t t = tokens, all = t * hec_model_parts(model);
  hec_block_kept kept = {.layer = layer, .x0 = take(&memory, all * w.d)};
  kept.q = take(&memory, all * w.q);
  kept.k = take(&memory, all * w.kv);
  kept.v = take(&memory, all * w.kv);
  kept.attended = take(&memory, all * w.q);
  kept.x1 = take(&memory, t * w.d);
  kept.h2 = take(&memory, t * w.d);
  kept.probabilities = take(&memory, t * w.experts);
  kept.scale1 = take(&memory, all);
  kept.scale2 = take(&memory, t);
  return kept;
}

int64_t hec_model_scratch_size(const hec_model *model, int32_t tokens) {
  hec_model_widths w = hec_model_widths_of(model);
  int64_t gate = hec_gate_scratch_size(model, tokens), stream = (int64_t)tokens * w.d;
  int64_t sizes[] = {hec_attention_scratch_size(model, tokens),
                     (int64_t)tokens * w.experts + (gate > stream ? gate : stream),
                     (int64_t)tokens * model->moe.n_ffn_matrices * model->moe.d_ffn_shared};
  int64_t max = 0;
  for (int i = 0; i < 3; i++)
    max = sizes[i] > max ? sizes[i] : max;
  return max;
}
