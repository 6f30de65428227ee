/* X-MoE's gate (Chi et al., arXiv:2204.09179): cosines on a sphere of few dimensions, so that tokens do not gather around
 * the experts' vectors.
 *
 *     z = h2 W [T, r]   c[t, e] = (z_t . m_e) / (|z_t| |m_e|)   p = softmax(k c), k = 1 / temperature   top-k, w_e = p_e
 *
 * Parameters: W [d, r], m [E, r], and where the temperature is learned theta, k = exp(theta). rank r: E / 2 unless said
 * (the paper), at least 2: on a line every cosine is 1 or -1. A learned temperature begins at 0.5 and stays above 0.01: Tutel's CosineTopKGate
 * (tutel/gates/cosine_top.py), whose init_t and clamp these are; below, theta has no gradient.
 *
 * Backward, y = z / |z|, u = m / |m|, |x| = sqrt(x . x + 1e-12), dl the gradient by k c:
 *     dtheta += k sum dl c    dc = k dl    dy = dc u    dz = (dy - y (y . dy)) / |z|
 *     du = dc^T y    dm += (du - u (u . du)) / |m|    dW += h2^T dz    dh2 += dz W^T
 * y, u and c are made again: nothing more is kept from forward to backward. O(T (d + E) r). */
#include "runtime/exec/model/gate.h"

#include "runtime/exec/math/fast_exp.h"

#include <math.h>

static const float theta_first = 0.69314718F; /* ln(1 / 0.5) */
static const float theta_max = 4.6051702F;    /* ln(1 / 0.01) */

static int32_t rank_of(const hec_model *model) {
  int32_t rank = model->gate_options.rank > 0 ? model->gate_options.rank : model->n_experts / 2;
  return model->gate_options.rank > 0 || rank > 2 ? rank : 2;
}

static bool learned(const hec_model *model) {
  return !(model->gate_options.temperature > 0);
}

static int64_t theta_at(const hec_model *model) {
  return ((int64_t)model->moe.d_model + model->n_experts) * rank_of(model);
}

static int64_t size(const hec_model *model) {
  return theta_at(model) + learned(model);
}

/* Of a learned one what it begins with: it takes ln(5) / rate steps, all of them the same way, to pass HEC_CHECK_SHARP. */
static double sharpest(const hec_model *model) {
  return learned(model) ? (double)hec_fast_exp(theta_first) : 1 / model->gate_options.temperature;
}

static float sharpness(const hec_gate_pass *p) {
  if (!learned(p->model))
    return (float)(1 / p->model->gate_options.temperature);
  float theta = p->params[theta_at(p->model)];
  return hec_fast_exp(theta < theta_max ? theta : theta_max);
}

static void init(const hec_model *model, float *params) {
  if (learned(model))
    params[theta_at(model)] = theta_first;
}

/* What score and backward make: y [T, r], u [E, r] and the norms that were divided by. */
typedef struct {
  float *y, *u, *z_norm, *m_norm, *end;
} sphere;

static void normalise(float *rows, int32_t n, int32_t rank, float *norm) {
  for (int32_t i = 0; i < n; i++, rows += rank) {
    norm[i] = sqrtf(hec_math_dot(rows, rows, rank) + 1e-12F);
    hec_math_scale(rows, 1 / norm[i], rank);
  }
}

static sphere sphere_of(const hec_gate_pass *p, float *memory) {
  int32_t rank = rank_of(p->model), d = p->model->moe.d_model, experts = p->model->n_experts;
  sphere s = {.y = memory};
  s.u = s.y + (int64_t)p->tokens * rank;
  s.z_norm = s.u + (int64_t)experts * rank;
  s.m_norm = s.z_norm + p->tokens;
  s.end = s.m_norm + experts;
  const hec_arithmetic *math = p->on->math;
  math->gemm(p->on, &(hec_gemm){.m = p->tokens, .n = rank, .k = d, .a = p->h2, .b = p->params, .c = s.y, .alpha = 1},
             1);
  math->copy(p->on, &(hec_piece){s.u, p->params + (int64_t)d * rank, (int64_t)experts * rank}, 1);
  normalise(s.y, p->tokens, rank, s.z_norm);
  normalise(s.u, experts, rank, s.m_norm);
  return s;
}

/* to = alpha y u^T [T, E]. */
static void cosines(const hec_gate_pass *p, const sphere *s, float alpha, float *to) {
  p->on->math->gemm(p->on,
                    &(hec_gemm){.m = p->tokens,
                                .n = p->model->n_experts,
                                .k = rank_of(p->model),
                                .transpose_b = true,
                                .a = s->y,
                                .b = s->u,
                                .c = to,
                                .alpha = alpha},
                    1);
}

static void score(const hec_gate_pass *p) {
  sphere s = sphere_of(p, p->scratch);
  cosines(p, &s, sharpness(p), p->affinity);
  p->on->math->softmax(
      p->on,
      &(hec_scores){
          .x = p->affinity, .rows = p->tokens, .n = p->model->n_experts, .visible = p->model->n_experts, .period = 1});
}

/* From the gradient by unit vectors to that by what was normalised, in place. */
static void normalise_back(float *d, const float *unit, const float *norm, int32_t n, int32_t rank) {
  for (int32_t i = 0; i < n; i++, d += rank, unit += rank) {
    float along = hec_math_dot(d, unit, rank);
    for (int32_t k = 0; k < rank; k++)
      d[k] = (d[k] - unit[k] * along) / norm[i];
  }
}

static void temperature_gradient(const hec_gate_pass *p, const sphere *s, const float *dl, float *grads) {
  int64_t n = (int64_t)p->tokens * p->model->n_experts, at = theta_at(p->model);
  if (!learned(p->model) || !(p->params[at] < theta_max))
    return;
  cosines(p, s, sharpness(p), s->end);
  grads[at] += hec_math_dot(dl, s->end, n);
}

static void backward(const hec_gate_pass *p, const hec_assignments *a, float *grads, float *dh2) {
  int32_t rank = rank_of(p->model), d = p->model->moe.d_model, n = p->model->n_experts, tokens = p->tokens;
  float *dl = p->scratch;
  sphere s = sphere_of(p, dl + (int64_t)tokens * n);
  const hec_arithmetic *math = p->on->math;
  math->choice_gradient(p->on, a, n, dl);
  hec_gate_softmax_back(p, dl);
  temperature_gradient(p, &s, dl, grads);
  float *dy = s.end, *du = dy + (int64_t)tokens * rank, sharp = sharpness(p);
  const hec_gemm to_units[] = {
      {.m = tokens, .n = rank, .k = n, .a = dl, .b = s.u, .c = dy, .alpha = sharp},
      {.m = n, .n = rank, .k = tokens, .transpose_a = true, .a = dl, .b = s.y, .c = du, .alpha = sharp}};
  math->gemm(p->on, to_units, 2);
  normalise_back(dy, s.y, s.z_norm, tokens, rank);
  normalise_back(du, s.u, s.m_norm, n, rank);
  math->add(p->on, &(hec_piece){grads + (int64_t)d * rank, du, (int64_t)n * rank}, 1);
  const hec_gemm out[] = {
      {.m = d, .n = rank, .k = tokens, .transpose_a = true, .a = p->h2, .b = dy, .c = grads, .alpha = 1, .beta = 1},
      {.m = tokens, .n = d, .k = rank, .transpose_b = true, .a = dy, .b = p->params, .c = dh2, .alpha = 1, .beta = 1}};
  math->gemm(p->on, out, 2);
}

/* The sphere, and after it the cosines or the gradients by unit vectors. */
static int64_t scratch(const hec_model *model, int32_t tokens) {
  int64_t rows = (int64_t)tokens + model->n_experts, units = rows * rank_of(model);
  int64_t cosine = (int64_t)tokens * model->n_experts;
  return units + rows + (units > cosine ? units : cosine);
}

static hec_status check(const hec_model *model, int32_t tokens) {
  (void)tokens;
  if (rank_of(model) > model->moe.d_model)
    return hec_fail(HEC_BAD_INPUT, "`gate` xmoe: rank: expected at most the width (%d), found %d",
                    (int)model->moe.d_model, (int)rank_of(model));
  return HEC_OK;
}

static const hec_option options[] = {{.name = "rank",
                                      .at = offsetof(hec_gate_options, rank),
                                      .min = 2,
                                      .max = 1 << 16,
                                      .help = "dimensions of the sphere, at most `d_model`",
                                      .initial = "half the experts, at least 2"},
                                     {.name = "temperature",
                                      .type = HEC_OPTION_REAL,
                                      .at = offsetof(hec_gate_options, temperature),
                                      .min = 1e-2,
                                      .max = 1e3,
                                      .help = "divides the cosines",
                                      .initial = "learned, from 0.5 down to 0.01"},
                                     {0}};

const hec_gate hec_gate_xmoe = {
    .name = "xmoe",
    .summary = "top-k of a softmax of cosines in few dimensions, over a temperature that is learned or fixed",
    .source = "X-MoE, arXiv:2204.09179",
    .options = options,
    .biased = true,
    .sharpness = sharpest,
    .check = check,
    .size = size,
    .scratch = scratch,
    .init = init,
    .score = score,
    .choose = hec_gate_choose_top_k,
    .backward = backward,
};
