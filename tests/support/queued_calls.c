/* The arithmetic as recorded calls: each is a function that carries it out on the CPU, and one that records it with copies
 * of all that describes it. */
#include "runtime/base/arena.h"
#include "tests/support/queued_own.h"

#include <string.h>

static hec_processor *const cpu = &hec_processor_cpu;

static void *keep(hec_queued_operation *op, const void *from, int64_t n, size_t bytes) {
  if (!from)
    return NULL;
  HEC_ASSERT(op->n_copies < HEC_QUEUED_COPIES_MOST && n >= 0);
  void *copy = hec_malloc((size_t)n + 1, bytes);
  memcpy(copy, from, (size_t)n * bytes);
  return op->copies[op->n_copies++] = copy;
}

/* n_experts < 0: the call does not look at what is by expert. */
static void keep_choice(hec_queued_operation *op, const hec_assignments *a, int32_t n_experts) {
  op->with.choice = *a;
  op->with.choice.token = keep(op, a->token, a->n, sizeof *a->token);
  op->with.choice.expert_at = n_experts < 0 ? NULL : keep(op, a->expert_at, n_experts + 1, sizeof *a->expert_at);
  op->with.choice.balance = n_experts < 0 ? NULL : keep(op, a->balance, n_experts, sizeof *a->balance);
}

/* ---- Calls: what carries each out, and what records it ---- */

static void run_zero(hec_queued_arguments *w) {
  cpu->math->zero(cpu, w->to, w->n);
}
static void zero(hec_processor *on, float *at, int64_t n) {
  hec_queued_operation *op = hec_queued_record(on, "zero", run_zero);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.to = at, .n = n};
  hec_queued_unlock();
}

static void run_scale(hec_queued_arguments *w) {
  cpu->math->scale(cpu, w->to, w->factor, w->n);
}
static void scale(hec_processor *on, float *x, float factor, int64_t n) {
  hec_queued_operation *op = hec_queued_record(on, "scale", run_scale);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.to = x, .factor = factor, .n = n};
  hec_queued_unlock();
}

/* Those that take a list. */
static void record_list(hec_processor *on, const char *name, void (*run)(hec_queued_arguments *with), const void *list,
                        int32_t n, size_t bytes) {
  hec_queued_operation *op = hec_queued_record(on, name, run);
  if (!op)
    return;
  op->with.list = keep(op, list, n, bytes);
  op->with.length = n;
  hec_queued_unlock();
}

static void run_copy(hec_queued_arguments *w) {
  cpu->math->copy(cpu, w->list, w->length);
}
static void copy(hec_processor *on, const hec_piece *list, int32_t n) {
  record_list(on, "copy", run_copy, list, n, sizeof *list);
}

static void run_add(hec_queued_arguments *w) {
  cpu->math->add(cpu, w->list, w->length);
}
static void add(hec_processor *on, const hec_piece *list, int32_t n) {
  record_list(on, "add", run_add, list, n, sizeof *list);
}

/* The library that multiplies says nothing to thread sanitizer. */
#ifdef __SANITIZE_THREAD__
extern void __tsan_read_range(const void *at, unsigned long bytes);
extern void __tsan_write_range(void *at, unsigned long bytes);

static void look_at(const float *at, int32_t rows, int32_t columns, int32_t length) {
  for (int64_t i = 0; i < rows; i++)
    __tsan_read_range(at + i * (length ? length : columns), (unsigned long)columns * sizeof *at);
}
static void look_at_products(const hec_gemm *list, int32_t n) {
  for (const hec_gemm *g = list; g < list + n; g++) {
    look_at(g->a, g->transpose_a ? g->k : g->m, g->transpose_a ? g->m : g->k, g->lda);
    look_at(g->b, g->transpose_b ? g->n : g->k, g->transpose_b ? g->k : g->n, g->ldb);
    for (int64_t i = 0; i < g->m; i++)
      __tsan_write_range(g->c + i * (g->ldc ? g->ldc : g->n), (unsigned long)g->n * sizeof *g->c);
  }
}
#else
static void look_at_products(const hec_gemm *list, int32_t n) {
  (void)list;
  (void)n;
}
#endif

static void run_gemm(hec_queued_arguments *w) {
  look_at_products(w->list, w->length);
  cpu->math->gemm(cpu, w->list, w->length);
}
static void gemm(hec_processor *on, const hec_gemm *list, int32_t n) {
  record_list(on, "gemm", run_gemm, list, n, sizeof *list);
}

static void run_activate(hec_queued_arguments *w) {
  cpu->math->activate(cpu, w->list, w->length);
}
static void activate(hec_processor *on, const hec_inner_rows *list, int32_t n) {
  record_list(on, "activate", run_activate, list, n, sizeof *list);
}

static void run_activate_backward(hec_queued_arguments *w) {
  cpu->math->activate_backward(cpu, w->list, w->length);
}
static void activate_backward(hec_processor *on, const hec_inner_rows *list, int32_t n) {
  record_list(on, "activate_backward", run_activate_backward, list, n, sizeof *list);
}

static void run_norm(hec_queued_arguments *w) {
  cpu->math->norm(cpu, &w->norm, w->to);
}
static void norm(hec_processor *on, const hec_norm *of, float *y) {
  hec_queued_operation *op = hec_queued_record(on, "norm", run_norm);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.norm = *of, .to = y};
  hec_queued_unlock();
}

static void run_norm_backward(hec_queued_arguments *w) {
  cpu->math->norm_backward(cpu, &w->norm, w->from, w->to, w->second);
}
static void norm_backward(hec_processor *on, const hec_norm *of, const float *dy, float *dx, float *dgain) {
  hec_queued_operation *op = hec_queued_record(on, "norm_backward", run_norm_backward);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.norm = *of, .from = dy, .to = dx, .second = dgain};
  hec_queued_unlock();
}

static void run_softmax(hec_queued_arguments *w) {
  cpu->math->softmax(cpu, &w->scores);
}
static void softmax(hec_processor *on, const hec_scores *scores) {
  hec_queued_operation *op = hec_queued_record(on, "softmax", run_softmax);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.scores = *scores};
  hec_queued_unlock();
}

static void run_softmax_backward(hec_queued_arguments *w) {
  cpu->math->softmax_backward(cpu, &w->scores, w->to);
}
static void softmax_backward(hec_processor *on, const hec_scores *scores, float *d) {
  hec_queued_operation *op = hec_queued_record(on, "softmax_backward", run_softmax_backward);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.scores = *scores, .to = d};
  hec_queued_unlock();
}

static void run_adam(hec_queued_arguments *w) {
  cpu->math->adam(cpu, &w->adam, w->n, w->list, w->length);
}
static void adam(hec_processor *on, const hec_adam *with, int64_t at_step, const hec_moments *list, int32_t n) {
  hec_queued_operation *op = hec_queued_record(on, "adam", run_adam);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.adam = *with, .n = at_step, .length = n, .list = keep(op, list, n, sizeof *list)};
  hec_queued_unlock();
}

static void run_weigh(hec_queued_arguments *w) {
  cpu->math->weigh(cpu, &w->choice, w->from, w->length, w->exact);
}
static void weigh(hec_processor *on, hec_assignments *a, const float *probabilities, int32_t n_experts, bool exact) {
  hec_queued_operation *op = hec_queued_record(on, "weigh", run_weigh);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.from = probabilities, .length = n_experts, .exact = exact};
  keep_choice(op, a, n_experts);
  hec_queued_unlock();
}

static void run_choice_gradient(hec_queued_arguments *w) {
  cpu->math->choice_gradient(cpu, &w->choice, w->length, w->to);
}
static void choice_gradient(hec_processor *on, const hec_assignments *a, int32_t n_experts, float *dp) {
  hec_queued_operation *op = hec_queued_record(on, "choice_gradient", run_choice_gradient);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.length = n_experts, .to = dp};
  keep_choice(op, a, n_experts);
  hec_queued_unlock();
}

static void run_permute(hec_queued_arguments *w) {
  cpu->math->permute(cpu, &w->choice, w->from, w->d, w->row);
}
static void permute(hec_processor *on, const hec_assignments *a, const float *h2, int32_t d, float *const *row) {
  hec_queued_operation *op = hec_queued_record(on, "permute", run_permute);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.from = h2, .d = d, .row = keep(op, row, a->n, sizeof *row)};
  keep_choice(op, a, -1);
  hec_queued_unlock();
}

static void run_combine(hec_queued_arguments *w) {
  cpu->math->combine(cpu, &w->choice, w->row, w->d, w->to);
}
static void combine(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *x) {
  hec_queued_operation *op = hec_queued_record(on, "combine", run_combine);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.to = x, .d = d, .row = keep(op, row, a->n, sizeof *row)};
  keep_choice(op, a, -1);
  hec_queued_unlock();
}

static void run_uncombine(hec_queued_arguments *w) {
  cpu->math->uncombine(cpu, &w->choice, w->from, w->other, w->d, w->row);
}
static void uncombine(hec_processor *on, hec_assignments *a, const float *dx, float *const *output, int32_t d,
                      float *const *row) {
  hec_queued_operation *op = hec_queued_record(on, "uncombine", run_uncombine);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.from = dx, .d = d};
  op->with.other = keep(op, output, a->n, sizeof *output);
  op->with.row = keep(op, row, a->n, sizeof *row);
  keep_choice(op, a, -1);
  hec_queued_unlock();
}

static void run_unpermute(hec_queued_arguments *w) {
  cpu->math->unpermute(cpu, &w->choice, w->row, w->d, w->to);
}
static void unpermute(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *dh2) {
  hec_queued_operation *op = hec_queued_record(on, "unpermute", run_unpermute);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.to = dh2, .d = d, .row = keep(op, row, a->n, sizeof *row)};
  keep_choice(op, a, -1);
  hec_queued_unlock();
}

/* ---- Between host and device ---- */

static void run_move(hec_queued_arguments *w) {
  if (w->n > 0)
    memcpy(w->to, w->from, (size_t)w->n);
}

static void to_device(hec_processor *on, float *to, const float *from, int64_t n) {
  hec_queued_operation *op = hec_queued_record(on, "to_device", run_move);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.to = to, .n = n * (int64_t)sizeof *to, .from = keep(op, from, n, sizeof *from)};
  hec_queued_step(3);
  hec_queued_unlock();
}

static void to_host(hec_processor *on, float *to, const float *from, int64_t n) {
  hec_queued_operation *op = hec_queued_record(on, "to_host", run_move);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.to = to, .n = n * (int64_t)sizeof *to, .from = from};
  hec_queued_drain_selected(on);
  hec_queued_unlock();
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
