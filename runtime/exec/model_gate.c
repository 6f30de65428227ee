/* Norm and gate:  h2 = rmsnorm(x1; g2)   l = h2 Wg   p = softmax(l)
 *
 *     dp[t, e] = sum of weight_grad over the token's assignments to e (+ balance[e])
 *     dl = p (dp - sum_e p dp)    dWg += h2^T dl    dh2 += dl Wg^T    dx += norm's gradient of dh2
 *
 * Exact mode: h2 = x1, the weights do not depend on p, so Wg has no gradient. */
#include "runtime/exec/model_parts.h"

static hec_scores rows_of(float *x, int32_t tokens, int32_t experts) {
  return (hec_scores){.x = x, .rows = tokens, .n = experts, .visible = experts, .period = 1};
}

void hec_block_gate(hec_processor *on, const hec_model *model, const float *params, int32_t tokens, const float *x,
                    const hec_block_kept *kept) {
  hec_block_layout at = hec_model_block(model);
  int32_t d = model->moe.d_model, experts = model->n_experts;
  hec_scores scores = rows_of(kept->probabilities, tokens, experts);
  on->math->copy(on, &(hec_piece){kept->x1, x, (int64_t)tokens * d}, 1);
  if (model->exact)
    on->math->copy(on, &(hec_piece){kept->h2, x, (int64_t)tokens * d}, 1);
  else
    on->math->norm(on, &(hec_norm){x, params + at.norm2, kept->scale2, tokens, d}, kept->h2);
  on->math->gemm(on,
                 &(hec_gemm){.m = tokens,
                             .n = experts,
                             .k = d,
                             .a = kept->h2,
                             .b = params + at.gate,
                             .c = kept->probabilities,
                             .alpha = 1},
                 1);
  on->math->softmax(on, &scores);
}

void hec_block_gate_backward(hec_processor *on, const hec_model *model, const float *params, float *grads,
                             int32_t tokens, float *dh2, float *dx, const hec_assignments *assignments,
                             const hec_block_kept *kept, float *scratch) {
  hec_block_layout at = hec_model_block(model);
  int32_t d = model->moe.d_model, experts = model->n_experts;
  hec_scores scores = rows_of(kept->probabilities, tokens, experts);
  if (model->exact) {
    on->math->add(on, &(hec_piece){dx, dh2, (int64_t)tokens * d}, 1);
    return;
  }
  on->math->choice_gradient(on, assignments, experts, scratch);
  on->math->softmax_backward(on, &scores, scratch);
  const hec_gemm both[] = {{.m = d,
                            .n = experts,
                            .k = tokens,
                            .transpose_a = true,
                            .a = kept->h2,
                            .b = scratch,
                            .c = grads + at.gate,
                            .alpha = 1,
                            .beta = 1},
                           {.m = tokens,
                            .n = d,
                            .k = experts,
                            .transpose_b = true,
                            .a = scratch,
                            .b = params + at.gate,
                            .c = dh2,
                            .alpha = 1,
                            .beta = 1}};
  on->math->gemm(on, both, 2);
  on->math->norm_backward(on, &(hec_norm){kept->x1, params + at.norm2, kept->scale2, tokens, d}, dh2, dx,
                          grads + at.norm2);
}
