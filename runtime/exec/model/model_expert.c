/* Feed-forward networks: routed and shared experts.
 *
 *     two matrices     z = h W1, out = act(z) W2                       inner row: z | act(z)
 *     three            g = h Wg, u = h Wu, out = (act(g) u) Wd         inner row: g | u | act(g) u   (SwiGLU, Shazeer 2020)
 *
 *     relu(x) = max(x, 0)    silu(x) = x s(x)    gelu(x) = x s(2 sqrt(2/pi) (x + 0.044715 x^3))   (tanh form, Hendrycks
 *     and Gimpel 2016), s = the logistic function
 *
 * Backward needs no memory of its own: dact(z) takes the place of act(z), then dz that of z. A GEMM pass each for the
 * gradients of a matrix and of its input. Networks of one call are worked on matrix by matrix, so that a device gets the
 * products of all of them at once. */
#include "runtime/exec/model/model_parts.h"

enum { GROUP = 64 }; /* networks that go through a list of products together */

static int32_t last_of(const hec_ffn *ffn) {
  return ffn->model->moe.n_ffn_matrices - 1;
}
static int32_t inner_width(const hec_ffn *ffn) {
  return ffn->model->moe.n_ffn_matrices * ffn->f;
}
/* Parameters of matrix `place`; its columns of the inner rows begin at place * f. */
static int64_t matrix_at(const hec_ffn *ffn, int32_t place) {
  return (int64_t)place * ffn->model->moe.d_model * ffn->f;
}
static hec_inner_rows inner_rows(const hec_ffn *ffn, const hec_expert_rows *of) {
  return (hec_inner_rows){.x = of->inner,
                          .rows = of->n,
                          .f = ffn->f,
                          .n_matrices = ffn->model->moe.n_ffn_matrices,
                          .kind = ffn->model->activation};
}

typedef void activate_function(hec_processor *on, const hec_inner_rows *list, int32_t n);

static void each_inner(const hec_ffn *ffn, const hec_expert_rows *list, int32_t n, activate_function *function) {
  hec_inner_rows inner[GROUP];
  for (int32_t i = 0; i < n; i++)
    inner[i] = inner_rows(ffn, &list[i]);
  function(ffn->on, inner, n);
}

/* A list of products, one of each network. */
typedef hec_gemm product_function(const hec_ffn *ffn, const hec_expert_rows *of, int32_t place);

static void multiply(const hec_ffn *ffn, const hec_expert_rows *list, int32_t n, product_function *product,
                     int32_t place) {
  hec_gemm products[GROUP];
  for (int32_t i = 0; i < n; i++)
    products[i] = product(ffn, &list[i], place);
  ffn->on->math->gemm(ffn->on, products, n);
}

/* ---- Forward ---- */

/* inner = rows W, or of gradients rows W^T; and the same out of inner rows. */
static hec_gemm to_inner(const hec_ffn *ffn, const hec_expert_rows *of, int32_t place, const float *rows, bool back) {
  return (hec_gemm){.m = of->n,
                    .n = ffn->f,
                    .k = ffn->model->moe.d_model,
                    .transpose_b = back,
                    .a = rows,
                    .b = of->params + matrix_at(ffn, place),
                    .c = of->inner + (int64_t)place * ffn->f,
                    .alpha = 1,
                    .ldc = inner_width(ffn)};
}
static hec_gemm from_inner(const hec_ffn *ffn, const hec_expert_rows *of, int32_t place, float *rows, bool back) {
  return (hec_gemm){.m = of->n,
                    .n = ffn->model->moe.d_model,
                    .k = ffn->f,
                    .transpose_b = back,
                    .a = of->inner + (int64_t)place * ffn->f,
                    .b = of->params + matrix_at(ffn, place),
                    .c = rows,
                    .alpha = 1,
                    .beta = back && place > 0 ? 1 : ffn->keep, /* gradients of all but the last matrix are summed */
                    .lda = inner_width(ffn)};
}

static hec_gemm into_inner(const hec_ffn *ffn, const hec_expert_rows *of, int32_t place) {
  return to_inner(ffn, of, place, of->in, false);
}
static hec_gemm out_of_inner(const hec_ffn *ffn, const hec_expert_rows *of, int32_t place) {
  return from_inner(ffn, of, place, of->out, false);
}

static void fill_inner(const hec_ffn *ffn, const hec_expert_rows *list, int32_t n) {
  for (int32_t place = 0; place < last_of(ffn); place++)
    multiply(ffn, list, n, into_inner, place);
  each_inner(ffn, list, n, ffn->on->math->activate);
}

static void forward(const hec_ffn *ffn, const hec_expert_rows *list, int32_t n) {
  fill_inner(ffn, list, n);
  multiply(ffn, list, n, out_of_inner, last_of(ffn));
}

/* ---- Backward ---- */

/* grads (+)= rows^T gradients, of the last matrix and of those before. */
static hec_gemm last_grads(const hec_ffn *ffn, const hec_expert_rows *of, int32_t place) {
  return (hec_gemm){.m = ffn->f,
                    .n = ffn->model->moe.d_model,
                    .k = of->n,
                    .transpose_a = true,
                    .a = of->inner + (int64_t)place * ffn->f,
                    .b = of->out,
                    .c = of->grads + matrix_at(ffn, place),
                    .alpha = 1,
                    .beta = of->first ? 0.0F : 1.0F,
                    .lda = inner_width(ffn)};
}
static hec_gemm first_grads(const hec_ffn *ffn, const hec_expert_rows *of, int32_t place) {
  return (hec_gemm){.m = ffn->model->moe.d_model,
                    .n = ffn->f,
                    .k = of->n,
                    .transpose_a = true,
                    .a = of->in,
                    .b = of->inner + (int64_t)place * ffn->f,
                    .c = of->grads + matrix_at(ffn, place),
                    .alpha = 1,
                    .beta = of->first ? 0.0F : 1.0F,
                    .ldb = inner_width(ffn)};
}

static hec_gemm inner_gradient(const hec_ffn *ffn, const hec_expert_rows *of, int32_t place) {
  return to_inner(ffn, of, place, of->out, true);
}
static hec_gemm in_gradient(const hec_ffn *ffn, const hec_expert_rows *of, int32_t place) {
  return from_inner(ffn, of, place, of->din, true);
}

static void backward(const hec_ffn *ffn, const hec_expert_rows *list, int32_t n) {
  multiply(ffn, list, n, last_grads, last_of(ffn));
  multiply(ffn, list, n, inner_gradient, last_of(ffn));
  each_inner(ffn, list, n, ffn->on->math->activate_backward);
  for (int32_t place = 0; place < last_of(ffn); place++) {
    multiply(ffn, list, n, first_grads, place);
    multiply(ffn, list, n, in_gradient, place);
  }
}

/* ---- Routed ---- */

typedef void pass_function(const hec_ffn *ffn, const hec_expert_rows *list, int32_t n);

static void in_groups(hec_processor *on, const hec_model *model, const hec_expert_rows *list, int32_t n,
                      pass_function *pass) {
  const hec_ffn ffn = {.on = on, .model = model, .f = model->moe.d_ffn};
  for (int32_t i = 0; i < n; i += GROUP)
    pass(&ffn, list + i, n - i < GROUP ? n - i : GROUP);
}

void hec_experts_forward(hec_processor *on, const hec_model *model, const hec_expert_rows *list, int32_t n) {
  in_groups(on, model, list, n, forward);
}

void hec_experts_backward(hec_processor *on, const hec_model *model, const hec_expert_rows *list, int32_t n) {
  in_groups(on, model, list, n, backward);
}

/* ---- Shared: one after the other, since they add to the same rows ---- */

void hec_block_shared(hec_processor *on, const hec_model *model, const float *params, int32_t tokens, const float *h2,
                      float *x, float *scratch) {
  const hec_ffn ffn = {.on = on, .model = model, .f = model->moe.d_ffn_shared, .keep = 1};
  const float *own = params + hec_model_block(model).shared;
  for (int32_t s = 0; s < model->moe.n_shared_experts; s++, own += hec_ffn_size(model, ffn.f))
    forward(&ffn, &(hec_expert_rows){.params = own, .n = tokens, .in = h2, .inner = scratch, .out = x}, 1);
}

void hec_block_shared_backward(hec_processor *on, const hec_model *model, const float *params, float *grads,
                               int32_t tokens, const float *h2, float *dx, float *dh2, float *scratch) {
  const hec_ffn ffn = {.on = on, .model = model, .f = model->moe.d_ffn_shared, .keep = 1};
  int64_t at = hec_model_block(model).shared;
  for (int32_t s = 0; s < model->moe.n_shared_experts; s++, at += hec_ffn_size(model, ffn.f)) {
    const hec_expert_rows rows = {
        .params = params + at, .grads = grads + at, .n = tokens, .in = h2, .inner = scratch, .out = dx, .din = dh2};
    fill_inner(&ffn, &rows, 1);
    backward(&ffn, &rows, 1);
  }
}
