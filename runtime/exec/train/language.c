/* Embedding, final norm, head, cross entropy. With N the factor, p = softmax(z), s = 1 / sqrt(mean(x^2) + 1e-6):
 *
 *     dz = N (p - onehot(next))   dhead += h^T dz   dh = dz head^T   dx = s (dh - h mean(h dh))
 *
 * O(T d V) by two GEMMs; the rest is O(T (d + V)). Kept: h [T, d], s [T], p [T, V], dh [T, d]. */
#include "runtime/exec/train/language.h"

#include <math.h>
#include <string.h>

hec_status hec_language_make(const hec_moe *moe, int32_t vocabulary, float rate, uint64_t seed, hec_model *model) {
  HEC_ASSERT(vocabulary >= 2 && vocabulary <= HEC_SYMBOLS_MAX);
  HEC_TRY(hec_model_make(moe, false, seed, model));
  model->moe.vocabulary = vocabulary;
  model->adam.rate = rate;
  model->adam.epsilon = 1e-8F;
  return HEC_OK;
}

static int64_t half(const hec_model *model) {
  return (int64_t)model->moe.vocabulary * model->moe.d_model;
}

int64_t hec_language_size(const hec_model *model) {
  return 2 * half(model);
}

int64_t hec_language_kept(const hec_model *model, int32_t tokens) {
  return (int64_t)tokens * (2 * (int64_t)model->moe.d_model + 1 + model->moe.vocabulary);
}

typedef struct {
  float *normed, *dnormed, *scale, *p;
} kept;

static kept kept_at(const hec_language *l) {
  int64_t stream = (int64_t)l->tokens * l->model->moe.d_model;
  return (kept){l->kept, l->kept + stream, l->kept + 2 * stream, l->kept + 2 * stream + l->tokens};
}

void hec_language_embed(const hec_language *l, const uint8_t *ids, float *x) {
  int64_t d = l->model->moe.d_model;
  for (int32_t t = 0; t < l->tokens; t++)
    memcpy(x + t * d, l->params + ids[t] * d, (size_t)d * sizeof *x);
}

void hec_language_embed_backward(const hec_language *l, const uint8_t *ids, const float *dx) {
  int64_t d = l->model->moe.d_model;
  for (int32_t t = 0; t < l->tokens; t++)
    hec_math_add(l->grads + ids[t] * d, dx + t * d, d);
}

/* In double: it is a number for people, and p may vanish. */
static double loss_of(const float *z, int32_t n, int32_t next) {
  double max = (double)z[0], sum = 0;
  for (int32_t v = 1; v < n; v++)
    max = (double)z[v] > max ? (double)z[v] : max;
  for (int32_t v = 0; v < n; v++)
    sum += exp((double)z[v] - max);
  return log(sum) + max - (double)z[next];
}

double hec_language_head(const hec_language *l, const uint8_t *next, const float *x) {
  int32_t d = l->model->moe.d_model, v = l->model->moe.vocabulary;
  kept k = kept_at(l);
  double loss = 0;
  for (int32_t t = 0; t < l->tokens; t++) {
    const float *row = x + (int64_t)t * d;
    k.scale[t] = 1 / sqrtf(hec_math_dot(row, row, d) / (float)d + 1e-6F);
    for (int32_t i = 0; i < d; i++)
      k.normed[(int64_t)t * d + i] = row[i] * k.scale[t];
  }
  hec_math_gemm(&(hec_gemm){
      .m = l->tokens, .n = v, .k = d, .a = k.normed, .b = l->params + half(l->model), .c = k.p, .alpha = 1});
  for (int32_t t = 0; t < l->tokens; t++) {
    loss += loss_of(k.p + (int64_t)t * v, v, next[t]);
    hec_math_softmax(k.p + (int64_t)t * v, v);
  }
  return loss;
}

void hec_language_head_backward(const hec_language *l, const uint8_t *next, float factor, float *dx) {
  int32_t d = l->model->moe.d_model, v = l->model->moe.vocabulary;
  kept k = kept_at(l);
  for (int32_t t = 0; t < l->tokens; t++)
    k.p[(int64_t)t * v + next[t]] -= 1;
  hec_math_gemm(&(hec_gemm){.m = d,
                            .n = v,
                            .k = l->tokens,
                            .transpose_a = true,
                            .a = k.normed,
                            .b = k.p,
                            .c = l->grads + half(l->model),
                            .alpha = factor,
                            .beta = 1});
  hec_math_gemm(&(hec_gemm){.m = l->tokens,
                            .n = d,
                            .k = v,
                            .transpose_b = true,
                            .a = k.p,
                            .b = l->params + half(l->model),
                            .c = k.dnormed,
                            .alpha = factor});
  for (int32_t t = 0; t < l->tokens; t++) {
    const float *h = k.normed + (int64_t)t * d, *dh = k.dnormed + (int64_t)t * d;
    float mean = hec_math_dot(h, dh, d) / (float)d;
    for (int32_t i = 0; i < d; i++)
      dx[(int64_t)t * d + i] = k.scale[t] * (dh[i] - h[i] * mean);
  }
}
