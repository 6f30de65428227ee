/* Feed-forward networks: routed and shared experts.
 *
 *     two matrices     z = h W1, out = act(z) W2                       inner row: z | act(z)
 *     three            g = h Wg, u = h Wu, out = (act(g) u) Wd         inner row: g | u | act(g) u   (SwiGLU, Shazeer 2020)
 *
 *     relu(x) = max(x, 0)    silu(x) = x s(x)    gelu(x) = x s(2 sqrt(2/pi) (x + 0.044715 x^3))   (tanh form, Hendrycks
 *     and Gimpel 2016), s = the logistic function
 *
 * Backward needs no memory of its own: dact(z) takes the place of act(z), then dz that of z. A GEMM pass each for the
 * gradients of a matrix and of its input. */
#include "runtime/exec/fast_exp.h"
#include "runtime/exec/model_parts.h"

#include <string.h>

static const float gelu_a = 1.5957691216F, gelu_b = 0.044715F; /* 2 sqrt(2 / pi) */

/* out = act(x) elementwise. */
static void activate(hec_activation kind, const float *restrict x, float *restrict out, int32_t n) {
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
static void activate_backward(hec_activation kind, const float *restrict d, float *restrict x, int32_t n) {
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

/* Column `place` of the inner rows, and the parameters of matrix `place`. */
static int32_t inner_width(const hec_ffn *ffn) {
  return ffn->model->moe.n_ffn_matrices * ffn->f;
}
static int64_t matrix_at(const hec_ffn *ffn, int32_t place) {
  return (int64_t)place * ffn->model->moe.d_model * ffn->f;
}

static void into_inner(const hec_ffn *ffn, const float *params, const float *in, float *inner, int32_t place) {
  hec_math_gemm(&(hec_gemm){.m = ffn->n,
                            .n = ffn->f,
                            .k = ffn->model->moe.d_model,
                            .a = in,
                            .b = params + matrix_at(ffn, place),
                            .c = inner + place * ffn->f,
                            .alpha = 1,
                            .ldc = inner_width(ffn)});
}

static void fill_inner(const hec_ffn *ffn, const float *params, const float *in, float *inner) {
  int32_t width = inner_width(ffn), f = ffn->f, last = ffn->model->moe.n_ffn_matrices - 1;
  for (int32_t place = 0; place < last; place++)
    into_inner(ffn, params, in, inner, place);
  for (int32_t i = 0; i < ffn->n; i++) {
    float *row = inner + (int64_t)i * width, *product = row + last * f;
    activate(ffn->model->activation, row, product, f);
    for (int32_t j = 0; last == 2 && j < f; j++)
      product[j] *= row[f + j];
  }
}

void hec_ffn_forward(const hec_ffn *ffn, const float *params, const float *in, float *inner, float *out, float keep) {
  int32_t width = inner_width(ffn), f = ffn->f, last = ffn->model->moe.n_ffn_matrices - 1;
  fill_inner(ffn, params, in, inner);
  hec_math_gemm(&(hec_gemm){.m = ffn->n,
                            .n = ffn->model->moe.d_model,
                            .k = f,
                            .a = inner + last * f,
                            .b = params + matrix_at(ffn, last),
                            .c = out,
                            .alpha = 1,
                            .beta = keep,
                            .lda = width});
}

/* dproduct in the last place becomes dz (two matrices) or dg and du (three) in the first places. */
static void inner_backward(const hec_ffn *ffn, float *row) {
  int32_t f = ffn->f;
  float *product = row + (ffn->model->moe.n_ffn_matrices - 1) * f;
  if (ffn->model->moe.n_ffn_matrices == 2) {
    activate_backward(ffn->model->activation, product, row, f);
    return;
  }
  /* du = dproduct act(g) needs act(g), which the product no longer holds: `up` and `product` trade places. */
  float *up = row + f;
  for (int32_t j = 0; j < f; j++) {
    float d = product[j];
    product[j] = d * up[j];
    up[j] = d;
  }
  float block[64];
  for (int32_t at = 0; at < f; at += 64) {
    int32_t n = f - at < 64 ? f - at : 64;
    activate(ffn->model->activation, row + at, block, n);
    for (int32_t j = 0; j < n; j++)
      up[at + j] *= block[j];
  }
  activate_backward(ffn->model->activation, product, row, f);
}

void hec_ffn_backward(const hec_ffn *ffn, const float *params, const float *in, float *inner, const float *dout,
                      const hec_ffn_gradient *to) {
  int32_t width = inner_width(ffn), f = ffn->f, d = ffn->model->moe.d_model;
  int32_t last = ffn->model->moe.n_ffn_matrices - 1;
  hec_gemm down = {.m = f,
                   .n = d,
                   .k = ffn->n,
                   .transpose_a = true,
                   .a = inner + last * f,
                   .b = dout,
                   .c = to->grads + matrix_at(ffn, last),
                   .alpha = 1,
                   .beta = to->keep_grads,
                   .lda = width};
  hec_math_gemm(&down);
  hec_math_gemm(&(hec_gemm){.m = ffn->n,
                            .n = f,
                            .k = d,
                            .transpose_b = true,
                            .a = dout,
                            .b = params + matrix_at(ffn, last),
                            .c = inner + last * f,
                            .alpha = 1,
                            .ldc = width});
  for (int32_t i = 0; i < ffn->n; i++)
    inner_backward(ffn, inner + (int64_t)i * width);
  for (int32_t place = 0; place < last; place++) {
    hec_math_gemm(&(hec_gemm){.m = d,
                              .n = f,
                              .k = ffn->n,
                              .transpose_a = true,
                              .a = in,
                              .b = inner + place * f,
                              .c = to->grads + matrix_at(ffn, place),
                              .alpha = 1,
                              .beta = to->keep_grads,
                              .ldb = width});
    hec_math_gemm(&(hec_gemm){.m = ffn->n,
                              .n = d,
                              .k = f,
                              .transpose_b = true,
                              .a = inner + place * f,
                              .b = params + matrix_at(ffn, place),
                              .c = to->din,
                              .alpha = 1,
                              .beta = place > 0 ? 1 : to->keep_din,
                              .lda = width});
  }
}

/* ---- Routed ---- */

void hec_expert_forward(const hec_model *model, const float *params, int32_t n, const float *in, float *inner,
                        float *out) {
  hec_ffn_forward(&(hec_ffn){.model = model, .f = model->moe.d_ffn, .n = n}, params, in, inner, out, 0);
}

void hec_expert_backward(const hec_model *model, const float *params, float *grads, bool first, int32_t n,
                         const float *in, float *inner, const float *dout, float *din) {
  hec_ffn_backward(&(hec_ffn){.model = model, .f = model->moe.d_ffn, .n = n}, params, in, inner, dout,
                   &(hec_ffn_gradient){.grads = grads, .din = din, .keep_grads = first ? 0.0F : 1.0F});
}

/* ---- Shared ---- */

void hec_block_shared(const hec_model *model, const float *params, int32_t tokens, const float *h2, float *x,
                      float *scratch) {
  hec_ffn ffn = {.model = model, .f = model->moe.d_ffn_shared, .n = tokens};
  const float *own = params + hec_model_block(model).shared;
  for (int32_t s = 0; s < model->moe.n_shared_experts; s++, own += hec_ffn_size(model, ffn.f))
    hec_ffn_forward(&ffn, own, h2, scratch, x, 1);
}

void hec_block_shared_backward(const hec_model *model, const float *params, float *grads, int32_t tokens,
                               const float *h2, const float *dx, float *dh2, float *scratch) {
  hec_ffn ffn = {.model = model, .f = model->moe.d_ffn_shared, .n = tokens};
  int64_t at = hec_model_block(model).shared;
  for (int32_t s = 0; s < model->moe.n_shared_experts; s++, at += hec_ffn_size(model, ffn.f)) {
    fill_inner(&ffn, params + at, h2, scratch);
    hec_ffn_backward(&ffn, params + at, h2, scratch, dx,
                     &(hec_ffn_gradient){.grads = grads + at, .din = dh2, .keep_grads = 1, .keep_din = 1});
  }
}
