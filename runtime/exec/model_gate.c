/* Norm and gate:  h2 = rmsnorm(x1; g2)   l = h2 Wg   p = softmax(l)
 *
 *     dp[t, e] = sum of weight_grad over the token's assignments to e (+ balance[e])
 *     dl = p (dp - sum_e p dp)    dWg += h2^T dl    dh2 += dl Wg^T    dx += norm's gradient of dh2
 *
 * Exact mode: h2 = x1, the weights do not depend on p, so Wg has no gradient. */
#include "runtime/exec/model_parts.h"

#include <string.h>

static void copy(float *to, const float *from, int64_t n) {
  if (n > 0)
    memcpy(to, from, (size_t)n * sizeof *to);
}

void hec_block_gate(const hec_model *model, const float *params, int32_t tokens, const float *x,
                    const hec_block_kept *kept) {
  hec_block_layout at = hec_model_block(model);
  int32_t d = model->moe.d_model, experts = model->n_experts;
  copy(kept->x1, x, (int64_t)tokens * d);
  if (model->exact)
    copy(kept->h2, x, (int64_t)tokens * d);
  else
    hec_math_norm(x, params + at.norm2, kept->h2, kept->scale2, tokens, d);
  hec_math_gemm(&(hec_gemm){
      .m = tokens, .n = experts, .k = d, .a = kept->h2, .b = params + at.gate, .c = kept->probabilities, .alpha = 1});
  for (int32_t t = 0; t < tokens; t++)
    hec_math_softmax(kept->probabilities + (int64_t)t * experts, experts);
}

/* dl [T, E] from the weights' gradients. */
static void logits_gradient(const hec_model *model, int32_t tokens, const hec_assignments *a, const float *p,
                            float *dl) {
  int32_t experts = model->n_experts;
  if (tokens > 0 && !a->balance)
    memset(dl, 0, (size_t)tokens * (size_t)experts * sizeof *dl);
  for (int32_t t = 0; a->balance && t < tokens; t++)
    copy(dl + (int64_t)t * experts, a->balance, experts);
  for (int32_t e = 0; e < experts; e++)
    for (int32_t j = a->expert_at[e]; j < a->expert_at[e + 1]; j++)
      dl[(int64_t)a->token[j] * experts + e] += a->weight_grad[j];
  for (int32_t t = 0; t < tokens; t++, p += experts, dl += experts) {
    float mean = hec_math_dot(p, dl, experts);
    for (int32_t e = 0; e < experts; e++)
      dl[e] = p[e] * (dl[e] - mean);
  }
}

void hec_block_gate_backward(const hec_model *model, const float *params, float *grads, int32_t tokens, float *dh2,
                             float *dx, const hec_assignments *assignments, const hec_block_kept *kept,
                             float *scratch) {
  hec_block_layout at = hec_model_block(model);
  int32_t d = model->moe.d_model, experts = model->n_experts;
  if (model->exact) {
    hec_math_add(dx, dh2, (int64_t)tokens * d);
    return;
  }
  logits_gradient(model, tokens, assignments, kept->probabilities, scratch);
  hec_math_gemm(&(hec_gemm){.m = d,
                            .n = experts,
                            .k = tokens,
                            .transpose_a = true,
                            .a = kept->h2,
                            .b = scratch,
                            .c = grads + at.gate,
                            .alpha = 1,
                            .beta = 1});
  hec_math_gemm(&(hec_gemm){.m = tokens,
                            .n = d,
                            .k = experts,
                            .transpose_b = true,
                            .a = scratch,
                            .b = params + at.gate,
                            .c = dh2,
                            .alpha = 1,
                            .beta = 1});
  hec_math_norm_backward(kept->x1, params + at.norm2, kept->scale2, dh2, dx, grads + at.norm2, tokens, d);
}
