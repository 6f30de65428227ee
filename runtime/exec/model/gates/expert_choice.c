/* Expert choice (Zhou et al., arXiv:2202.09368): experts choose tokens, so each has the same number of them.
 *
 *     p = softmax(h2 Wg)   every expert takes the C = floor(capacity k S / E) tokens of a group of S in which its p is
 *     largest (ties to the lower token)   w = p; gradients as for any softmax
 *
 * A token has any number of experts from 0 to E; the report says how many had none. capacity: 1 unless said.
 *
 * The group: the tokens of one rank and micro-batch, or of a smaller group where one is said. Not all ranks' tokens:
 * that would need everybody's affinities before anybody can go on. E numbers a token would go through the network ahead
 * of each dispatch, where the program gathers E counts a rank. And every rank sends each expert the same this way, so
 * the exchange is even too. The paper leaves the batch of a choice open. With a group that divides the tokens of every
 * number of ranks, the result is the same for all of them.
 *
 * Not causal: whether a token gets an expert depends on the tokens after it, whose text a language model is to predict.
 * Its training loss may profit from that, and decoding token by token cannot choose so. Losses are not to be compared
 * with those of other gates.
 *
 * Tokens may be alike: the same character in the same place. Their p differ by rounding alone, which depends on how many
 * rows a product has. So it depends on the number of ranks, too. Therefore p is compared by its first 13 bits, and alike are alike.
 * The C-th largest is found bit by bit of the float's pattern: O(22 T E), nothing is moved. */
#include "runtime/exec/model/gate.h"

#include <string.h>

static int32_t capacity_of(const hec_model *model, int32_t group) {
  double factor = model->gate_options.capacity > 0 ? model->gate_options.capacity : 1;
  double exact = factor * model->top_k * group / model->n_experts;
  return exact < group ? (int32_t)exact : group;
}

enum { DROPPED_BITS = 10, ORDER_BITS = 32 - DROPPED_BITS }; /* of 23 behind the first */

/* Ordered as p is where p >= 0, rounded; below these whatever is no number. */
static uint32_t order_of(float p) {
  uint32_t bits;
  memcpy(&bits, &p, sizeof bits);
  return p >= 0 ? ((bits + (1U << (DROPPED_BITS - 1))) >> DROPPED_BITS) + 1 : 0;
}

static int32_t at_least(const float *column, int32_t n, int64_t stride, uint32_t value) {
  int32_t count = 0;
  for (int32_t t = 0; t < n; t++)
    count += order_of(column[t * stride]) >= value;
  return count;
}

/* Marks the `max` best of a column. */
static void take(const float *column, int32_t n, int64_t stride, int32_t max, uint8_t *chosen) {
  uint32_t min = 0; /* the largest that at least `max` reach */
  for (uint32_t bit = 1U << (ORDER_BITS - 1); bit > 0; bit >>= 1)
    if (at_least(column, n, stride, min | bit) >= max)
      min |= bit;
  int32_t equal = max - at_least(column, n, stride, min + 1);
  for (int32_t t = 0; t < n; t++) {
    uint32_t order = order_of(column[t * stride]);
    chosen[t * stride] = order > min || (order == min && equal-- > 0);
  }
}

static void choose(const hec_model *model, const hec_gate_call *call, const float *affinity, int32_t tokens,
                   hec_assignments *out) {
  int64_t n = model->n_experts;
  int32_t size = hec_gate_group(model, tokens), capacity = capacity_of(model, size);
  uint8_t *chosen = HEC_NEW(call->arena, uint8_t, tokens * n);
  for (int32_t at = 0; at < tokens; at += size)
    for (int32_t e = 0; e < n; e++)
      take(affinity + at * n + e, size, n, capacity, chosen + at * n + e);
  hec_gate_list(model, chosen, tokens, out);
}

static hec_status check(const hec_model *model, int32_t tokens) {
  int32_t group = hec_gate_group(model, tokens);
  if (group > 0 && capacity_of(model, group) < 1)
    return hec_fail(
        HEC_BAD_INPUT,
        "`gate` expert-choice: expected a group in which each of %d experts gets a token, found %d tokens x "
        "top-k %d",
        (int)model->n_experts, (int)group, (int)model->top_k);
  if (model->gate_options.capacity > 1)
    return hec_fail(HEC_BAD_INPUT, "`gate` expert-choice: capacity: expected at most 1 (raise `top_k`), found %g",
                    model->gate_options.capacity);
  return HEC_OK;
}

const hec_gate hec_gate_expert_choice = {
    .name = "expert-choice",
    .summary = "every expert takes the tokens that fit it best, the same number each; not causal",
    .source = "Zhou et al., arXiv:2202.09368",
    .caution =
        "expert choice is not causal: what a token gets depends on later ones, so this loss compares with no other",
    .options = hec_gate_capacity_options,
    .varies = true,
    .balanced = true,
    .check = check,
    .score = hec_gate_softmax_score,
    .choose = choose,
    .backward = hec_gate_softmax_backward,
};
