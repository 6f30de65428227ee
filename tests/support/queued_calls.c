/* The arithmetic as calls for later: what each is given is kept, with copies of all that describes it; then the CPU does it. */
#include "tests/support/queued_own.h"

#include <string.h>

static hec_processor *const cpu = &hec_processor_cpu;

typedef hec_queued_arguments arguments;

static void record(hec_processor *on, const char *name, void (*run)(void *of), const arguments *with) {
  hec_queued_record(on, name, run, with, HEC_QUEUED_GOES_ON);
}

static void record_list(hec_processor *on, const char *name, void (*run)(void *of), const void *list, int32_t n,
                        size_t bytes) {
  arguments w = {.length = n};
  w.list = hec_queued_keep(&w, list, n, bytes);
  record(on, name, run, &w);
}

/* n_experts < 0: the call does not look at what is by expert. */
static void record_choice(hec_processor *on, const char *name, void (*run)(void *of), arguments w,
                          const hec_assignments *a, int32_t n_experts) {
  w.choice = *a;
  w.choice.token = hec_queued_keep(&w, a->token, a->n, sizeof *a->token);
  w.choice.expert_at = NULL;
  w.choice.balance = NULL;
  if (n_experts >= 0) {
    w.choice.expert_at = hec_queued_keep(&w, a->expert_at, n_experts + 1, sizeof *a->expert_at);
    w.choice.balance = hec_queued_keep(&w, a->balance, n_experts, sizeof *a->balance);
  }
  w.row = hec_queued_keep(&w, w.row, a->n, sizeof *w.row);
  w.other = hec_queued_keep(&w, w.other, a->n, sizeof *w.other);
  record(on, name, run, &w);
}

/* Carries out a call of the CPU's: CALL(name, its arguments behind the processor), of `w`. */
#define CALL(name, ...)                                                                                                \
  static void run_##name(void *of) {                                                                                   \
    arguments *w = of;                                                                                                 \
    cpu->math->name(cpu, __VA_ARGS__);                                                                                 \
  }

/* The library that multiplies says nothing to thread sanitizer. */
#ifdef __SANITIZE_THREAD__
extern void __tsan_read_range(const void *at, unsigned long bytes);
extern void __tsan_write_range(void *at, unsigned long bytes);

static void look_at(const float *at, int32_t rows, int32_t columns, int32_t length) {
  for (int64_t i = 0; i < rows; i++)
    __tsan_read_range(at + i * (length ? length : columns), (unsigned long)columns * sizeof *at);
}
static void *looked_at(void *products, int32_t n) {
  const hec_gemm *list = products;
  for (const hec_gemm *g = list; g < list + n; g++) {
    look_at(g->a, g->transpose_a ? g->k : g->m, g->transpose_a ? g->m : g->k, g->lda);
    look_at(g->b, g->transpose_b ? g->n : g->k, g->transpose_b ? g->k : g->n, g->ldb);
    for (int64_t i = 0; i < g->m; i++)
      __tsan_write_range(g->c + i * (g->ldc ? g->ldc : g->n), (unsigned long)g->n * sizeof *g->c);
  }
  return products;
}
#else
static void *looked_at(void *products, int32_t n) {
  (void)n;
  return products;
}
#endif

CALL(zero, w->to, w->n)
CALL(scale, w->to, w->factor, w->n)
CALL(copy, w->list, w->length)
CALL(add, w->list, w->length)
CALL(gemm, looked_at(w->list, w->length), w->length)
CALL(activate, w->list, w->length)
CALL(activate_backward, w->list, w->length)
CALL(norm, &w->norm, w->to)
CALL(norm_backward, &w->norm, w->from, w->to, w->second)
CALL(softmax, &w->scores)
CALL(softmax_backward, &w->scores, w->to)
CALL(adam, &w->adam, w->n, w->list, w->length)
CALL(weigh, &w->choice, w->from, w->length, w->exact)
CALL(choice_gradient, &w->choice, w->length, w->to)
CALL(permute, &w->choice, w->from, w->d, w->row)
CALL(combine, &w->choice, w->row, w->d, w->to)
CALL(uncombine, &w->choice, w->from, w->other, w->d, w->row)
CALL(unpermute, &w->choice, w->row, w->d, w->to)

static void zero(hec_processor *on, float *at, int64_t n) {
  record(on, "zero", run_zero, &(arguments){.to = at, .n = n});
}
static void scale(hec_processor *on, float *x, float factor, int64_t n) {
  record(on, "scale", run_scale, &(arguments){.to = x, .factor = factor, .n = n});
}
static void copy(hec_processor *on, const hec_piece *list, int32_t n) {
  record_list(on, "copy", run_copy, list, n, sizeof *list);
}
static void add(hec_processor *on, const hec_piece *list, int32_t n) {
  record_list(on, "add", run_add, list, n, sizeof *list);
}
static void gemm(hec_processor *on, const hec_gemm *list, int32_t n) {
  record_list(on, "gemm", run_gemm, list, n, sizeof *list);
}
static void activate(hec_processor *on, const hec_inner_rows *list, int32_t n) {
  record_list(on, "activate", run_activate, list, n, sizeof *list);
}
static void activate_backward(hec_processor *on, const hec_inner_rows *list, int32_t n) {
  record_list(on, "activate_backward", run_activate_backward, list, n, sizeof *list);
}
static void norm(hec_processor *on, const hec_norm *of, float *y) {
  record(on, "norm", run_norm, &(arguments){.norm = *of, .to = y});
}
static void norm_backward(hec_processor *on, const hec_norm *of, const float *dy, float *dx, float *dgain) {
  record(on, "norm_backward", run_norm_backward, &(arguments){.norm = *of, .from = dy, .to = dx, .second = dgain});
}
static void softmax(hec_processor *on, const hec_scores *scores) {
  record(on, "softmax", run_softmax, &(arguments){.scores = *scores});
}
static void softmax_backward(hec_processor *on, const hec_scores *scores, float *d) {
  record(on, "softmax_backward", run_softmax_backward, &(arguments){.scores = *scores, .to = d});
}
static void adam(hec_processor *on, const hec_adam *with, int64_t at_step, const hec_moments *list, int32_t n) {
  arguments w = {.adam = *with, .n = at_step, .length = n};
  w.list = hec_queued_keep(&w, list, n, sizeof *list);
  record(on, "adam", run_adam, &w);
}
static void weigh(hec_processor *on, hec_assignments *a, const float *probabilities, int32_t n_experts, bool exact) {
  record_choice(on, "weigh", run_weigh, (arguments){.from = probabilities, .length = n_experts, .exact = exact}, a,
                n_experts);
}
static void choice_gradient(hec_processor *on, const hec_assignments *a, int32_t n_experts, float *dp) {
  record_choice(on, "choice_gradient", run_choice_gradient, (arguments){.length = n_experts, .to = dp}, a, n_experts);
}
static void permute(hec_processor *on, const hec_assignments *a, const float *h2, int32_t d, float *const *row) {
  record_choice(on, "permute", run_permute, (arguments){.from = h2, .d = d, .row = row}, a, -1);
}
static void combine(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *x) {
  record_choice(on, "combine", run_combine, (arguments){.to = x, .d = d, .row = row}, a, -1);
}
static void uncombine(hec_processor *on, hec_assignments *a, const float *dx, float *const *output, int32_t d,
                      float *const *row) {
  record_choice(on, "uncombine", run_uncombine, (arguments){.from = dx, .d = d, .other = output, .row = row}, a, -1);
}
static void unpermute(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *dh2) {
  record_choice(on, "unpermute", run_unpermute, (arguments){.to = dh2, .d = d, .row = row}, a, -1);
}

/* ---- Between host and device ---- */

static void to_device(hec_processor *on, float *to, const float *from, int64_t n) {
  arguments w = {.to = to, .n = n * (int64_t)sizeof *to};
  w.from = hec_queued_keep(&w, from, n, sizeof *from);
  hec_queued_record(on, "to_device", hec_queued_run_move, &w, HEC_QUEUED_ASKS);
}
static void to_host(hec_processor *on, float *to, const float *from, int64_t n) {
  const arguments w = {.to = to, .n = n * (int64_t)sizeof *to, .from = from};
  hec_queued_record(on, "to_host", hec_queued_run_move, &w, HEC_QUEUED_WAITS);
}

const hec_arithmetic hec_queued_arithmetic = {
    .name = "CPU, queued",
    .batch = 2,
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
