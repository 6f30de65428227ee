/* Which token goes to which expert. On the host, with the probabilities where it can read them. Top-k O(T k E). */
#include "runtime/exec/model/gate.h"
#include "runtime/exec/model/model_parts.h"

#include <math.h>
#include <string.h>

hec_assignments hec_assignments_new(hec_arena *arena, const hec_model *model, int32_t capacity, float *weights) {
  float *at = weights ? weights : HEC_NEW(arena, float, 2 * (int64_t)capacity);
  return (hec_assignments){.capacity = capacity,
                           .expert_at = HEC_NEW(arena, int32_t, model->n_experts + 1),
                           .expert_first = HEC_NEW(arena, int32_t, model->n_experts),
                           .token = HEC_NEW(arena, int32_t, capacity),
                           .weight = at,
                           .weight_grad = at + capacity};
}

void hec_assign_forced(const hec_token_row *row, hec_assignments *out) {
  int32_t *order = out->expert_at, *first = out->expert_first; /* the offsets come after the order */
  hec_token_sets(row, first, order);
  int64_t n = 0;
  for (int32_t e = 0; e < row->n_experts; e++) {
    out->expert_at[e] = (int32_t)n;
    n += row->counts[e];
    HEC_ASSERT(n <= out->capacity);
    for (int32_t j = out->expert_at[e], t = first[e]; j < n; j++, t = t + 1 < row->tokens ? t + 1 : 0)
      out->token[j] = t;
  }
  out->expert_at[row->n_experts] = out->n = (int32_t)n;
  out->n_tokens = row->tokens;
  out->n_dropped = 0;
}

/* The best expert that comes after (value, expert) in the order of falling probability (plus bias), ties to the lower
 * expert. Not a number counts as below zero, so that a gate gone wild still chooses k experts. */
static int32_t next_best(const float *p, const float *bias, int32_t n_experts, float value, int32_t expert,
                         float *found) {
  int32_t best = -1;
  for (int32_t e = 0; e < n_experts; e++) {
    float v = (p[e] >= 0 ? p[e] : -1) + (bias ? bias[e] : 0);
    if ((v < value || (v == value && e > expert)) && (best < 0 || v > *found)) {
      best = e;
      *found = v;
    }
  }
  HEC_ASSERT(best >= 0);
  return best;
}

/* Counts, offsets, then the places: the choice is made twice rather than kept, so the list is sorted without scratch. */
void hec_assign_top_k(const hec_model *model, const float *probabilities, const float *bias, int32_t tokens,
                      hec_assignments *out) {
  int32_t n_experts = model->n_experts;
  int64_t n = (int64_t)tokens * model->top_k;
  HEC_ASSERT(n <= out->capacity);
  out->n = (int32_t)n;
  out->n_tokens = tokens;
  out->n_dropped = 0;
  memset(out->expert_at, 0, (size_t)(n_experts + 1) * sizeof *out->expert_at);
  for (int32_t t = 0; t < tokens; t++) {
    const float *p = probabilities + (int64_t)t * n_experts;
    float value = INFINITY;
    for (int32_t k = 0, expert = -1; k < model->top_k; k++) {
      expert = next_best(p, bias, n_experts, value, expert, &value);
      out->expert_at[expert + 1]++;
    }
  }
  for (int32_t e = 0; e < n_experts; e++)
    out->expert_at[e + 1] += out->expert_at[e];
  for (int32_t t = 0; t < tokens; t++) {
    const float *p = probabilities + (int64_t)t * n_experts;
    float value = INFINITY;
    for (int32_t k = 0, expert = -1; k < model->top_k; k++) {
      expert = next_best(p, bias, n_experts, value, expert, &value);
      out->token[out->expert_at[expert]++] = t;
    }
  }
  /* Each offset is now where the next expert begins. */
  memmove(out->expert_at + 1, out->expert_at, (size_t)n_experts * sizeof *out->expert_at);
  out->expert_at[0] = 0;
}

void hec_assign_weights(hec_processor *on, const hec_model *model, const float *probabilities, hec_assignments *a) {
  if (model->exact || !model->gate->weigh)
    on->math->weigh(on, a, probabilities, model->n_experts, model->exact);
  else
    model->gate->weigh(model, probabilities, a);
}
