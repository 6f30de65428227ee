/* Closed-form memory per rank.
 *
 * State: parameters * {dtype, gradient, optimizer} bytes. The usual 2 + 2 + 12 bytes are fp16 weights and gradients,
 * fp32 master weights and two Adam moments. These are the 16 bytes a parameter of ZeRO (Rajbhandari et al., SC 2020).
 *
 * Activations kept from forward to backward, per token, after Korthikanti et al., "Reducing activation recomputation in
 * large transformer models" (MLSys 2023); D = dtype bytes:
 *     attention part   D (4 d + (2 heads + 2 kv) d_head) + 2 d + 4 E: inputs and outputs of two norms, q, k, v, the
 *                      output projection's input; two dropout masks of a byte; gate probabilities in fp32
 *     scores           unless fused: heads * context * (2 D + 1): softmax output, dropout output and mask. Where s2
 *                      leaves some layers dense, an MoE layer is charged the mean over them: the sum is right
 *     FFN of width f   D * n_ffn_matrices * f: before and after the activation (gated: gate, up, product); its input d
 *                      is an expert's own copy (expert_row), but the norm's output for shared and dense FFNs
 *     head             D * 2 d + 4 V: final norm's input and output, logits in fp32
 *     returned row     D d per assignment: the gate's gradient is the product of an expert's output with the gradient
 *                      of the token's (as FastMoE, Tutel and DeepSpeed keep it; dispatching the weight beside the token
 *                      instead would save it)
 * With recomputation a block keeps its input (D d) and an expert row its input; the head is not recomputed. */
#include "models/memory_cost.h"

#include <stddef.h>

/* Kept per token by attention, norms and residuals of a block: the mean over n blocks. n_dense of them have dense
 * attention in a model with s2. */
static double attention_kept(const hec_moe *moe, int32_t n, int32_t n_dense) {
  double d = (double)moe->d_model, heads = (double)moe->n_heads, element = (double)moe->dtype_bytes;
  double kept = element * (4 * d + (2 * heads + 2 * (double)moe->n_kv_heads) * (double)moe->d_head) + 2 * d;
  if (moe->fused_attention || n == 0)
    return kept;
  double context = hec_moe_context(moe, false);
  if (n_dense > 0)
    context += (hec_moe_context(moe, true) - context) * (double)n_dense / (double)n;
  return kept + heads * context * (2 * element + 1);
}

static double ffn_kept(const hec_moe *moe, double f) {
  return (double)moe->dtype_bytes * (double)moe->n_ffn_matrices * f;
}

static void add_activations(const hec_moe *moe, double tokens, bool train, hec_memory_cost *cost) {
  double input = (double)moe->dtype_bytes * (double)moe->d_model;
  double shared = (double)moe->n_shared_experts * ffn_kept(moe, (double)moe->d_ffn_shared);
  int32_t n_rest = moe->n_layers - moe->n_moe_layers, n_dense = hec_moe_n_dense_attention(moe, true);
  double block = attention_kept(moe, moe->n_moe_layers, n_dense) + 4 * (double)moe->n_experts + shared;
  double dense = attention_kept(moe, n_rest, hec_moe_n_dense_attention(moe, false) - n_dense) +
                 ffn_kept(moe, (double)moe->d_ffn_dense);
  double head = moe->vocabulary > 0 ? 2 * input + 4 * (double)moe->vocabulary : 0;
  cost->activation_layer = tokens * (moe->recompute ? input : block);
  cost->activation_rest = train ? tokens * ((double)n_rest * (moe->recompute ? input : dense) + head) : 0;
  cost->expert_row = input + (moe->recompute ? 0 : ffn_kept(moe, (double)moe->d_ffn));
  cost->returned_row = train ? input : 0;
}

hec_memory_cost hec_memory_cost_of(const hec_moe *moe, int32_t tokens, bool train) {
  double expert = hec_moe_expert_params(moe), element = (double)moe->dtype_bytes;
  double dense = (double)moe->n_moe_layers * hec_moe_block_params(moe) +
                 (double)(moe->n_layers - moe->n_moe_layers) * hec_moe_dense_block_params(moe) +
                 hec_moe_embedding_params(moe);
  hec_memory_cost cost = {
      .expert_param = expert * element, .dense_param = dense * element, .token = (double)moe->d_model * element};
  add_activations(moe, (double)tokens, train, &cost);
  if (!train)
    return cost;
  cost.expert_grad = expert * moe->grad_bytes;
  cost.expert_optimizer = expert * moe->optimizer_bytes;
  cost.dense_grad = dense * moe->grad_bytes;
  cost.dense_optimizer = dense * moe->optimizer_bytes;
  return cost;
}
