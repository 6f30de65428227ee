/* The arithmetic of a CUDA device: calls of processor.h turned into launches on the selected stream. What each of them
 * computes is in processor_cpu.c. Lists of assignments are made on the host (by token: counting sort, O(n + tokens)) and
 * sent (lists_cuda.c). */
#include "runtime/exec/cuda/kernels.h"
#include "runtime/exec/cuda/own.h"
#include "runtime/exec/math/math.h"
#include "runtime/exec/model/model.h"

#include <string.h>

/* Heads of attention in one call: as many products as fill a device at the sizes of models. */
enum { BATCH = HEC_BATCH_MAX };

/* NULL: it has failed. Streams belong to devices, and a thread may have been on another one in between. */
static hec_cuda_own *ready(hec_processor *on) {
  hec_cuda_own *own = hec_cuda_own_of(on);
  return !own->failed && hec_cuda_ok(own, cudaSetDevice(own->options.device), "cudaSetDevice") ? own : NULL;
}

static cudaStream_t stream_of(hec_cuda_own *own) {
  return hec_cuda_selected(own)->stream;
}

static void started(hec_cuda_own *own, int32_t error, const char *what) {
  (void)hec_cuda_ok(own, (cudaError_t)error, what);
}

/* ---- Numbers ---- */

static void copy_across(hec_processor *on, float *to, const float *from, int64_t n, enum cudaMemcpyKind kind) {
  hec_cuda_own *own = ready(on);
  if (!own || n <= 0)
    return;
  size_t bytes = (size_t)n * sizeof *to;
  if (hec_cuda_ok(own, cudaMemcpyAsync(to, from, bytes, kind, stream_of(own)), "a copy between host and device"))
    (void)hec_cuda_ok(own, cudaStreamSynchronize(stream_of(own)), "work before a copy between host and device");
}

static void to_device(hec_processor *on, float *to, const float *from, int64_t n) {
  copy_across(on, to, from, n, cudaMemcpyHostToDevice);
}

static void to_host(hec_processor *on, float *to, const float *from, int64_t n) {
  copy_across(on, to, from, n, cudaMemcpyDeviceToHost);
}

/* Zero bytes are 0.0F. */
static void zero(hec_processor *on, float *at, int64_t n) {
  hec_cuda_own *own = ready(on);
  if (own && n > 0)
    (void)hec_cuda_ok(own, cudaMemsetAsync(at, 0, (size_t)n * sizeof *at, stream_of(own)), "zero");
}

static void scale(hec_processor *on, float *x, float factor, int64_t n) {
  hec_cuda_own *own = ready(on);
  if (own)
    started(own, hec_cuda_scale(stream_of(own), x, factor, n), "scale");
}

/* A single one by the runtime, which also knows of memory of other devices. */
static void copy(hec_processor *on, const hec_piece *list, int32_t n) {
  hec_cuda_own *own = ready(on);
  if (!own || n <= 0)
    return;
  if (n > 1)
    started(own, hec_cuda_copy(stream_of(own), list, n), "copy");
  else if (list->n > 0)
    (void)hec_cuda_ok(
        own,
        cudaMemcpyAsync(list->to, list->from, (size_t)list->n * sizeof *list->to, cudaMemcpyDefault, stream_of(own)),
        "copy");
}

static void add(hec_processor *on, const hec_piece *list, int32_t n) {
  hec_cuda_own *own = ready(on);
  if (own)
    started(own, hec_cuda_add(stream_of(own), list, n), "add");
}

static void gemm(hec_processor *on, const hec_gemm *list, int32_t n) {
  hec_cuda_own *own = ready(on);
  if (own)
    hec_cuda_gemm(own, list, n);
}

static void adam(hec_processor *on, const hec_adam *with, int64_t step, const hec_moments *list, int32_t n) {
  hec_cuda_own *own = ready(on);
  if (own)
    started(own, hec_cuda_adam(stream_of(own), with, hec_adam_step_of(with, step), list, n), "adam");
}

/* ---- Rows ---- */

static void norm(hec_processor *on, const hec_norm *of, float *y) {
  hec_cuda_own *own = ready(on);
  if (own)
    started(own, hec_cuda_norm(stream_of(own), of, y), "norm");
}

static void norm_backward(hec_processor *on, const hec_norm *of, const float *dy, float *dx, float *dgain) {
  hec_cuda_own *own = ready(on);
  if (own)
    started(own, hec_cuda_norm_backward(stream_of(own), of, dy, dx, dgain), "norm, backward");
}

static void softmax(hec_processor *on, const hec_scores *scores) {
  hec_cuda_own *own = ready(on);
  if (own)
    started(own, hec_cuda_softmax(stream_of(own), scores), "softmax");
}

static void softmax_backward(hec_processor *on, const hec_scores *scores, float *d) {
  hec_cuda_own *own = ready(on);
  if (own)
    started(own, hec_cuda_softmax_backward(stream_of(own), scores, d), "softmax, backward");
}

static void activate(hec_processor *on, const hec_inner_rows *list, int32_t n) {
  hec_cuda_own *own = ready(on);
  if (own)
    started(own, hec_cuda_activate(stream_of(own), list, n, false), "activate");
}

static void activate_backward(hec_processor *on, const hec_inner_rows *list, int32_t n) {
  hec_cuda_own *own = ready(on);
  if (own)
    started(own, hec_cuda_activate(stream_of(own), list, n, true), "activate, backward");
}

/* ---- Assignments ---- */

/* What a call wants to have on the device. */
typedef struct {
  bool tokens, experts, by_token, balance;
  float *const *row, *const *output;
  int32_t n_experts, d;
} wanted;

/* By token, ascending: token_at [n_tokens + 1] is where a token's begin. While the list is filled it is where its next
 * one goes, which in the end is where the next token's begin. */
static void sort_by_token(const hec_assignments *a, int32_t *token_at, int32_t *by_token) {
  memset(token_at, 0, (size_t)(a->n_tokens + 1) * sizeof *token_at);
  for (int32_t j = 0; j < a->n; j++)
    token_at[a->token[j] + 1]++;
  for (int32_t t = 0; t < a->n_tokens; t++)
    token_at[t + 1] += token_at[t];
  for (int32_t j = 0; j < a->n; j++)
    by_token[token_at[a->token[j]]++] = j;
  memmove(token_at + 1, token_at, (size_t)a->n_tokens * sizeof *token_at);
  token_at[0] = 0;
}

static const void *send_bytes(hec_cuda_list *list, const void *from, size_t bytes) {
  const void *there;
  void *here = hec_cuda_list_take(list, bytes, &there);
  if (bytes > 0)
    memcpy(here, from, bytes);
  return there;
}

static const int32_t *send_experts(hec_cuda_list *list, const hec_assignments *a, int32_t n_experts) {
  const void *there;
  int32_t *expert = hec_cuda_list_take(list, (size_t)a->n * sizeof *expert, &there);
  for (int32_t e = 0; e < n_experts; e++)
    for (int32_t j = a->expert_at[e]; j < a->expert_at[e + 1]; j++)
      expert[j] = e;
  return there;
}

/* False: failed. */
static bool send_choices(hec_cuda_own *own, const hec_assignments *a, const wanted *w, hec_cuda_choices *c) {
  size_t ints = (size_t)a->n * sizeof(int32_t), rows = (size_t)a->n * sizeof(float *);
  size_t offsets = (size_t)(a->n_tokens + 1) * sizeof(int32_t), balance = (size_t)w->n_experts * sizeof(float);
  hec_cuda_list list;
  if (!hec_cuda_list_open(own,
                          3 * hec_cuda_list_room(ints) + hec_cuda_list_room(offsets) + 2 * hec_cuda_list_room(rows) +
                              hec_cuda_list_room(balance),
                          &list))
    return false;
  *c = (hec_cuda_choices){.n = a->n,
                          .n_tokens = a->n_tokens,
                          .n_experts = w->n_experts,
                          .d = w->d,
                          .weight = a->weight,
                          .weight_grad = a->weight_grad};
  if (w->tokens)
    c->token = send_bytes(&list, a->token, ints);
  if (w->balance && a->balance)
    c->balance = send_bytes(&list, a->balance, balance);
  if (w->experts)
    c->expert = send_experts(&list, a, w->n_experts);
  if (w->row)
    c->row = send_bytes(&list, w->row, rows);
  if (w->output)
    c->output = send_bytes(&list, w->output, rows);
  if (w->by_token) {
    const void *token_at, *by_token;
    int32_t *at = hec_cuda_list_take(&list, offsets, &token_at);
    sort_by_token(a, at, hec_cuda_list_take(&list, ints, &by_token));
    c->token_at = token_at;
    c->by_token = by_token;
  }
  return hec_cuda_list_send(own, &list);
}

static void weigh(hec_processor *on, hec_assignments *a, const float *probabilities, int32_t n_experts, bool exact) {
  hec_cuda_own *own = ready(on);
  hec_cuda_choices c;
  if (own && a->n > 0 && send_choices(own, a, &(wanted){.tokens = true, .experts = true, .n_experts = n_experts}, &c))
    started(own, hec_cuda_weigh(stream_of(own), &c, probabilities, exact), "weigh");
}

static void choice_gradient(hec_processor *on, const hec_assignments *a, int32_t n_experts, float *dp) {
  hec_cuda_own *own = ready(on);
  hec_cuda_choices c;
  if (own &&
      send_choices(own, a, &(wanted){.experts = true, .by_token = true, .balance = true, .n_experts = n_experts}, &c))
    started(own, hec_cuda_choice_gradient(stream_of(own), &c, dp), "the gradient of choices");
}

static void permute(hec_processor *on, const hec_assignments *a, const float *h2, int32_t d, float *const *row) {
  hec_cuda_own *own = ready(on);
  hec_cuda_choices c;
  if (own && a->n > 0 && send_choices(own, a, &(wanted){.tokens = true, .row = row, .d = d}, &c))
    started(own, hec_cuda_permute(stream_of(own), &c, h2), "permute");
}

static void combine(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *x) {
  hec_cuda_own *own = ready(on);
  hec_cuda_choices c;
  if (own && a->n > 0 && send_choices(own, a, &(wanted){.by_token = true, .row = row, .d = d}, &c))
    started(own, hec_cuda_gather(stream_of(own), &c, x), "combine");
}

static void uncombine(hec_processor *on, hec_assignments *a, const float *dx, float *const *output, int32_t d,
                      float *const *row) {
  hec_cuda_own *own = ready(on);
  hec_cuda_choices c;
  if (own && a->n > 0 && send_choices(own, a, &(wanted){.tokens = true, .row = row, .output = output, .d = d}, &c))
    started(own, hec_cuda_uncombine(stream_of(own), &c, dx), "uncombine");
}

static void unpermute(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *dh2) {
  hec_cuda_own *own = ready(on);
  hec_cuda_choices c;
  if (!own || a->n <= 0 || !send_choices(own, a, &(wanted){.by_token = true, .row = row, .d = d}, &c))
    return;
  c.weight = NULL; /* as they are */
  started(own, hec_cuda_gather(stream_of(own), &c, dh2), "unpermute");
}

const hec_arithmetic hec_cuda_arithmetic = {
    .name = "CUDA",
    .batch = BATCH,
    .to_device = to_device,
    .to_host = to_host,
    .zero = zero,
    .scale = scale,
    .copy = copy,
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
