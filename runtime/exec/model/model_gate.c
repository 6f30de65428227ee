/* Norm and gate:  h2 = rmsnorm(x1; g2)   affinities = gate(h2)
 *
 *     dh2 += what the gate adds    dx += norm's gradient of dh2
 *
 * Exact mode: h2 = x1, the weights do not depend on the gate, which has no gradient. */
#include "runtime/exec/model/gate.h"
#include "runtime/exec/model/model_parts.h"

void hec_block_gate(hec_processor *on, const hec_model *model, const float *params, int32_t tokens, const float *x,
                    const hec_block_kept *kept, float *scratch) {
  hec_block_layout at = hec_model_block(model);
  int32_t d = model->moe.d_model;
  on->math->copy(on, &(hec_piece){kept->x1, x, (int64_t)tokens * d}, 1);
  if (model->exact)
    on->math->copy(on, &(hec_piece){kept->h2, x, (int64_t)tokens * d}, 1);
  else
    on->math->norm(on, &(hec_norm){x, params + at.norm2, kept->scale2, tokens, d}, kept->h2);
  model->gate->score(&(hec_gate_pass){on, model, params + at.gate, tokens, kept->h2, kept->probabilities, scratch});
}

void hec_block_gate_backward(hec_processor *on, const hec_model *model, const float *params, float *grads,
                             int32_t tokens, float *dh2, float *dx, const hec_assignments *assignments,
                             const hec_block_kept *kept, float *scratch) {
  hec_block_layout at = hec_model_block(model);
  int32_t d = model->moe.d_model;
  if (model->exact) {
    on->math->add(on, &(hec_piece){dx, dh2, (int64_t)tokens * d}, 1);
    return;
  }
  const hec_gate_pass pass = {on, model, params + at.gate, tokens, kept->h2, kept->probabilities, scratch};
  model->gate->backward(&pass, assignments, grads + at.gate, dh2);
  on->math->norm_backward(on, &(hec_norm){kept->x1, params + at.norm2, kept->scale2, tokens, d}, dh2, dx,
                          grads + at.norm2);
}
