/* The CPU as a processor: math.h, row by row. Everything is O(what it touches). */
#include "runtime/exec/math/processor.h"

#include "runtime/exec/math/fast_exp.h"
#include "runtime/exec/model/model.h"

#include <string.h>

static void zero(hec_processor *on, float *at, int64_t n) {
  (void)on;
  if (n > 0)
    memset(at, 0, (size_t)n * sizeof *at);
}

static void move(hec_processor *on, float *to, const float *from, int64_t n) {
  (void)on;
  if (n > 0)
    memcpy(to, from, (size_t)n * sizeof *to);
}

static void copy(hec_processor *on, const hec_piece *list, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    move(on, list[i].to, list[i].from, list[i].n);
}

static void scale(hec_processor *on, float *x, float factor, int64_t n) {
  (void)on;
  hec_math_scale(x, factor, n);
}

static void add(hec_processor *on, const hec_piece *list, int32_t n) {
  (void)on;
  for (int32_t i = 0; i < n; i++)
    hec_math_add(list[i].to, list[i].from, list[i].n);
}

static void gemm(hec_processor *on, const hec_gemm *list, int32_t n) {
  (void)on;
  for (int32_t i = 0; i < n; i++)
    hec_math_gemm(&list[i]);
}

static void norm(hec_processor *on, const hec_norm *of, float *y) {
  (void)on;
  hec_math_norm(of->x, of->gain, y, of->scale, of->rows, of->d);
}

static void norm_backward(hec_processor *on, const hec_norm *of, const float *dy, float *dx, float *dgain) {
  (void)on;
  hec_math_norm_backward(of->x, of->gain, of->scale, dy, dx, dgain, of->rows, of->d);
}

static void adam(hec_processor *on, const hec_adam *with, int64_t step, const hec_moments *list, int32_t n) {
  for (const hec_moments *of = list; of < list + n; of++) {
    hec_math_adam(with, step, of->params, of->grads, of->first, of->second, of->n);
    if (of->clear)
      zero(on, of->grads, of->n);
  }
}

/* ---- Scores ---- */

static int32_t visible(const hec_scores *s, int64_t i) {
  return s->visible + (int32_t)(i % s->period) * s->stride;
}

static void hide(const hec_scores *s, float *row, int32_t n) {
  memset(row + n, 0, (size_t)(s->n - n) * sizeof *row);
}

static void softmax(hec_processor *on, const hec_scores *s) {
  (void)on;
  for (int64_t i = 0; i < s->rows; i++) {
    float *row = s->x + i * s->n;
    int32_t n = visible(s, i);
    if (!s->linear)
      hec_math_softmax(row, n);
    hide(s, row, n);
  }
}

static void softmax_backward(hec_processor *on, const hec_scores *s, float *gradient) {
  (void)on;
  for (int64_t i = 0; i < s->rows; i++) {
    float *d = gradient + i * s->n;
    const float *p = s->x + i * s->n;
    int32_t n = visible(s, i);
    float mean = s->linear ? 0 : hec_math_dot(p, d, n);
    for (int32_t j = 0; !s->linear && j < n; j++)
      d[j] = p[j] * (d[j] - mean);
    hide(s, d, n);
  }
}

/* ---- Activations ---- */

static const float gelu_a = 1.5957691216F, gelu_b = 0.044715F; /* 2 sqrt(2 / pi) */

/* out = act(x) elementwise. */
static void act(hec_activation kind, const float *restrict x, float *restrict out, int32_t n) {
  if (kind == HEC_RELU)
    for (int32_t i = 0; i < n; i++)
      out[i] = x[i] > 0 ? x[i] : 0;
  else if (kind == HEC_SILU)
    for (int32_t i = 0; i < n; i++)
      out[i] = x[i] * hec_fast_sigmoid(x[i]);
  else
    for (int32_t i = 0; i < n; i++)
      out[i] = x[i] * hec_fast_sigmoid(gelu_a * (x[i] + gelu_b * (x[i] * x[i] * x[i])));
}

/* x = d * act'(x) elementwise. */
static void act_backward(hec_activation kind, const float *restrict d, float *restrict x, int32_t n) {
  if (kind == HEC_RELU)
    for (int32_t i = 0; i < n; i++)
      x[i] = x[i] > 0 ? d[i] : 0;
  else if (kind == HEC_SILU)
    for (int32_t i = 0; i < n; i++) {
      float s = hec_fast_sigmoid(x[i]);
      x[i] = d[i] * (s + x[i] * s * (1 - s));
    }
  else
    for (int32_t i = 0; i < n; i++) {
      float square = x[i] * x[i], s = hec_fast_sigmoid(gelu_a * (x[i] + gelu_b * (x[i] * square)));
      x[i] = d[i] * (s + x[i] * s * (1 - s) * gelu_a * (1 + 3 * gelu_b * square));
    }
}

static void activate_rows(const hec_inner_rows *inner) {
  int32_t f = inner->f, last = inner->n_matrices - 1;
  for (int32_t i = 0; i < inner->rows; i++) {
    float *row = inner->x + (int64_t)i * inner->n_matrices * f, *product = row + (int64_t)last * f;
    act(inner->kind, row, product, f);
    for (int32_t j = 0; last == 2 && j < f; j++)
      product[j] *= row[f + j];
  }
}

static void activate(hec_processor *on, const hec_inner_rows *list, int32_t n) {
  (void)on;
  for (int32_t i = 0; i < n; i++)
    activate_rows(&list[i]);
}

/* du = dproduct act(g) needs act(g), which the product no longer holds: `up` and `product` trade places. */
static void three_backward(hec_activation kind, float *row, int32_t f) {
  float *up = row + f, *product = row + 2 * (int64_t)f, block[64];
  for (int32_t j = 0; j < f; j++) {
    float d = product[j];
    product[j] = d * up[j];
    up[j] = d;
  }
  for (int32_t at = 0; at < f; at += 64) {
    int32_t n = f - at < 64 ? f - at : 64;
    act(kind, row + at, block, n);
    for (int32_t j = 0; j < n; j++)
      up[at + j] *= block[j];
  }
  act_backward(kind, product, row, f);
}

static void activate_rows_backward(const hec_inner_rows *inner) {
  int32_t f = inner->f;
  for (int32_t i = 0; i < inner->rows; i++) {
    float *row = inner->x + (int64_t)i * inner->n_matrices * f;
    if (inner->n_matrices == 2)
      act_backward(inner->kind, row + f, row, f);
    else
      three_backward(inner->kind, row, f);
  }
}

static void activate_backward(hec_processor *on, const hec_inner_rows *list, int32_t n) {
  (void)on;
  for (int32_t i = 0; i < n; i++)
    activate_rows_backward(&list[i]);
}

/* ---- Assignments ---- */

/* Exact: 1, 1/2, 1/4 by turns of (token + place), place = which of the token's assignments it is when tokens are dealt
 * round by round. */
static void weigh(hec_processor *on, hec_assignments *a, const float *probabilities, int32_t n_experts, bool exact) {
  static const float powers[] = {1, 0.5F, 0.25F};
  (void)on;
  for (int32_t e = 0; e < n_experts; e++)
    for (int32_t j = a->expert_at[e]; j < a->expert_at[e + 1]; j++) {
      int32_t token = a->token[j];
      a->weight[j] =
          exact ? powers[((int64_t)token + j / a->n_tokens) % 3] : probabilities[(int64_t)token * n_experts + e];
      a->weight_grad[j] = 0;
    }
}

static void choice_gradient(hec_processor *on, const hec_assignments *a, int32_t n_experts, float *dp) {
  if (!a->balance)
    zero(on, dp, (int64_t)a->n_tokens * n_experts);
  for (int32_t t = 0; a->balance && t < a->n_tokens; t++)
    move(on, dp + (int64_t)t * n_experts, a->balance, n_experts);
  for (int32_t e = 0; e < n_experts; e++)
    for (int32_t j = a->expert_at[e]; j < a->expert_at[e + 1]; j++)
      dp[(int64_t)a->token[j] * n_experts + e] += a->weight_grad[j];
}

static void permute(hec_processor *on, const hec_assignments *a, const float *h2, int32_t d, float *const *row) {
  for (int32_t j = 0; j < a->n; j++)
    move(on, row[j], h2 + (int64_t)a->token[j] * d, d);
}

static void combine(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *x) {
  (void)on;
  for (int32_t j = 0; j < a->n; j++)
    hec_math_axpy(x + (int64_t)a->token[j] * d, a->weight[j], row[j], d);
}

static void uncombine(hec_processor *on, hec_assignments *a, const float *dx, float *const *output, int32_t d,
                      float *const *row) {
  (void)on;
  for (int32_t j = 0; j < a->n; j++) {
    const float *gradient = dx + (int64_t)a->token[j] * d;
    a->weight_grad[j] = hec_math_dot(gradient, output[j], d);
    for (int32_t i = 0; i < d; i++)
      row[j][i] = a->weight[j] * gradient[i];
  }
}

static void unpermute(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *dh2) {
  (void)on;
  for (int32_t j = 0; j < a->n; j++)
    hec_math_add(dh2 + (int64_t)a->token[j] * d, row[j], d);
}

static const hec_arithmetic arithmetic = {
    .name = "CPU",
    .batch = 1, /* the scores of one head stay in the cache */
    .to_device = move,
    .to_host = move,
    .zero = zero,
    .copy = copy,
    .scale = scale,
    .add = add,
    .gemm = gemm,
    .norm = norm,
    .norm_backward = norm_backward,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .activate = activate,
    .activate_backward = activate_backward,
    .adam = adam,
    .weigh = weigh,
    .choice_gradient = choice_gradient,
    .permute = permute,
    .combine = combine,
    .uncombine = uncombine,
    .unpermute = unpermute,
};

hec_processor hec_processor_cpu = {.math = &arithmetic, .streams = NULL};
