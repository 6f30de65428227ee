/* DeepSeek-V3's gate (arXiv:2412.19437, section 2.1.2): affinities that do not compete, normalised over the chosen.
 *
 *     s = sigmoid(h2 Wg)   C = the k best by s_e + bias_e   w_e = s_e / S, S = 1e-20 + sum of s over C
 *
 *     ds_e = (dw_e - sum over C of w dw) / S for e in C
 *     of a balance loss by q_e = s_e / A, A = sum of all s:  ds_e += (g_e - sum_e q g) / A
 *     dl = ds s (1 - s)
 *
 * 1e-20 is of the published inference code (model.py). Not here: its factor on the weights (routed_scaling_factor, 2.5),
 * which belongs to one size of model, and the limit on nodes per token. With k = 1 every weight is 1 and the gate learns
 * nothing from the loss: so it is in the original. O(T d E). */
#include "runtime/exec/model/gate.h"

#include "runtime/exec/math/fast_exp.h"

static void score(const hec_gate_pass *pass) {
  hec_gate_linear(pass);
  int64_t n = (int64_t)pass->tokens * pass->model->n_experts;
  for (int64_t i = 0; i < n; i++)
    pass->affinity[i] = hec_fast_sigmoid(pass->affinity[i]);
}

/* S of every token; added by ascending expert, as the list is sorted. */
static void sums(const hec_model *model, const float *affinity, const hec_assignments *a, float *sum) {
  for (int32_t t = 0; t < a->n_tokens; t++)
    sum[t] = 1e-20F;
  for (int32_t e = 0; e < model->n_experts; e++)
    for (int32_t j = a->expert_at[e]; j < a->expert_at[e + 1]; j++)
      sum[a->token[j]] += affinity[(int64_t)a->token[j] * model->n_experts + e];
}

static void weigh(const hec_model *model, const float *affinity, hec_assignments *a) {
  float *sum = a->weight_grad; /* until it is zeroed: every token has k >= 1 of its places */
  HEC_ASSERT(a->n_tokens <= a->capacity);
  sums(model, affinity, a, sum);
  for (int32_t e = 0; e < model->n_experts; e++)
    for (int32_t j = a->expert_at[e]; j < a->expert_at[e + 1]; j++)
      a->weight[j] = affinity[(int64_t)a->token[j] * model->n_experts + e] / sum[a->token[j]];
  for (int32_t j = 0; j < a->capacity; j++)
    a->weight_grad[j] = 0;
}

/* A balance loss by a token's shares. */
static void share_gradient(const float *s, const float *g, int32_t n, float *ds) {
  float all = 0, mean = 0;
  for (int32_t e = 0; e < n; e++)
    all += s[e];
  for (int32_t e = 0; e < n; e++)
    mean += s[e] / all * g[e];
  for (int32_t e = 0; e < n; e++)
    ds[e] = (g[e] - mean) / all;
}

static void backward(const hec_gate_pass *pass, const hec_assignments *a, float *grads, float *dh2) {
  int32_t experts = pass->model->n_experts, tokens = pass->tokens;
  float *ds = pass->scratch, *sum = ds + (int64_t)tokens * experts, *mean = sum + tokens;
  const float *s = pass->affinity;
  for (int64_t i = 0; i < (int64_t)tokens * experts; i++)
    ds[i] = 0;
  for (int32_t t = 0; a->balance && t < tokens; t++)
    share_gradient(s + (int64_t)t * experts, a->balance, experts, ds + (int64_t)t * experts);
  sums(pass->model, s, a, sum);
  for (int32_t t = 0; t < tokens; t++)
    mean[t] = 0;
  for (int32_t j = 0; j < a->n; j++)
    mean[a->token[j]] += a->weight[j] * a->weight_grad[j];
  for (int32_t e = 0; e < experts; e++)
    for (int32_t j = a->expert_at[e]; j < a->expert_at[e + 1]; j++)
      ds[(int64_t)a->token[j] * experts + e] += (a->weight_grad[j] - mean[a->token[j]]) / sum[a->token[j]];
  for (int64_t i = 0; i < (int64_t)tokens * experts; i++)
    ds[i] *= s[i] * (1 - s[i]);
  hec_gate_linear_backward(pass, ds, grads, dh2);
}

static int64_t scratch(const hec_model *model, int32_t tokens) {
  (void)model;
  return 2 * (int64_t)tokens;
}

const hec_gate hec_gate_sigmoid = {
    .name = "sigmoid",
    .summary = "the k experts of the largest sigmoid, weights normalised over them",
    .source = "DeepSeek-V3, arXiv:2412.19437",
    .unnormalised = true,
    .biased = true,
    .scratch = scratch,
    .score = score,
    .choose = hec_gate_choose_top_k,
    .weigh = weigh,
    .backward = backward,
};
