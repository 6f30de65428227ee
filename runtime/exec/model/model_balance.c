/* What evens the load of experts out: a loss, or a bias of the choice.
 *
 *     loss    coefficient E sum_e f_e q_e,   f_e = share of the assignments, q_e = mean over tokens of the probability of
 *             e (of affinities that do not sum to 1: of their share s_e / sum s). With g_e = coefficient E f_e / (n_ranks T)
 *             it is sum_e g_e sum_t q[t, e] over all tokens, and g its gradient by each q[t, e].
 *     bias    b_e += rate sign(mean load - load_e), compared as load_e E < all loads: integers, the same on every rank
 *
 * Where a capacity drops assignments, f_e is of those that were kept: the counts that all ranks know. An expert that
 * overflows then stands at its capacity, which is still the most that any has. O(T E) and O(R E). */
#include "runtime/exec/model/gate.h"
#include "runtime/exec/model/model_parts.h"

static double sum_of(const float *x, int32_t n) {
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += (double)x[i];
  return sum;
}

static double probability_sum(const hec_model *model, const float *probabilities, int32_t tokens, int32_t e) {
  double sum = 0;
  for (int32_t t = 0; t < tokens; t++) {
    const float *p = probabilities + (int64_t)t * model->n_experts;
    sum += model->gate->unnormalised ? (double)p[e] / sum_of(p, model->n_experts) : (double)p[e];
  }
  return sum;
}

double hec_assign_balance(const hec_model *model, const hec_balance *balance, const float *probabilities,
                          hec_assignments *a) {
  int32_t n_experts = model->n_experts;
  double all = 0, loss = 0;
  for (int64_t i = 0; i < (int64_t)balance->n_ranks * n_experts; i++)
    all += balance->counts[i];
  double factor = all > 0 ? (double)balance->coefficient * n_experts / (all * balance->n_ranks * a->n_tokens) : 0;
  for (int32_t e = 0; e < n_experts; e++) {
    double count = 0;
    for (int32_t r = 0; r < balance->n_ranks; r++)
      count += balance->counts[(int64_t)r * n_experts + e];
    a->balance[e] = (float)(factor * count);
    loss += factor * count * probability_sum(model, probabilities, a->n_tokens, e);
  }
  return loss;
}

static uint64_t load_of(const hec_load *loads, int32_t n, int32_t layer, int32_t expert) {
  uint64_t load = 0;
  for (int32_t i = 0; i < n; i++)
    for (int32_t r = 0; r < loads[i].n_sources; r++)
      load += hec_load_row(&loads[i], layer, r)[expert];
  return load;
}

void hec_bias_update(const hec_model *model, float rate, const hec_load *loads, int32_t n, float *bias) {
  uint64_t n_experts = (uint64_t)model->n_experts;
  for (int32_t layer = 0; layer < model->n_blocks; layer++, bias += n_experts) {
    uint64_t all = 0;
    for (int32_t e = 0; e < model->n_experts; e++)
      all += load_of(loads, n, layer, e);
    for (int32_t e = 0; e < model->n_experts; e++) {
      uint64_t scaled = load_of(loads, n, layer, e) * n_experts;
      bias[e] += scaled < all ? rate : scaled > all ? -rate : 0;
    }
  }
}
