/* hecate-bench gpu over an imitated device whose clock is told what everything takes. Bytes and FLOP at rates of its own,
 * and an overhead per call. The benchmark must find exactly these rates (no two are alike). So it counts bytes, FLOP and
 * calls as the device does, compares each with the right one, and hides the host's time. Numbers are not computed. */
#include "runtime/base/status.h"
#include "runtime/exec/launch/rank.h"
#include "runtime/exec/model/model.h"
#include "tests/support/test.h"
#include "tools/bench/gpu_bench.h"

#include <math.h>
#include <string.h>

enum { EVENTS_MAX = 4096, SPACE_MAX = 64 << 20 };

struct hec_event {
  double at_ns;
};

/* What everything takes, in ns per byte or FLOP; and what was asked for. */
static struct {
  double copy, permute, combine, add, adam, dense, list, listed; /* listed: of a list, not grouped */
  double call_ns, event_ns, idle_ns;                             /* idle: before the first call after a restart */
  const char *open_fails, *allocate_fails, *error;
  int32_t fails_after; /* calls until `error`; 0: never */
} law;

typedef struct {
  double now_ns[HEC_STREAMS];
  struct hec_event events[EVENTS_MAX];
  int32_t n_events, stream, n_calls;
  bool grouped, idle;
  float *space;
  size_t bytes;
  int64_t farthest; /* floats of the space that calls reached */
} device;

static int32_t n_open, n_opened;
static int64_t free_memory;
static hec_processor processor;
static device *dev;

static void spend(hec_processor *on, double ns) {
  device *d = on->own;
  d->now_ns[d->stream] += ns + law.call_ns + (d->idle ? law.idle_ns : 0);
  d->idle = false;
  d->n_calls++;
}

/* Everything that a call touches lies in the memory that was allocated. */
static void touch(hec_processor *on, const float *at, int64_t n) {
  device *d = on->own;
  ck_assert(at >= d->space && n >= 0 && at + n <= d->space + d->bytes / sizeof(float));
  d->farthest = at + n - d->space > d->farthest ? at + n - d->space : d->farthest;
}

static void to_device(hec_processor *on, float *to, const float *from, int64_t n) {
  touch(on, to, n);
  memcpy(to, from, (size_t)n * sizeof *to);
  ck_assert(from[0] != from[1] && fabsf(from[n - 1]) <= 1); /* numbers, not zeros */
}

static void zero(hec_processor *on, float *at, int64_t n) {
  touch(on, at, n);
  spend(on, 0);
}

static void copy(hec_processor *on, const hec_piece *list, int32_t n) {
  double bytes = 0;
  for (int32_t i = 0; i < n; i++) {
    touch(on, list[i].to, list[i].n);
    touch(on, list[i].from, list[i].n);
    bytes += 8.0 * (double)list[i].n;
  }
  spend(on, law.copy * bytes);
}

static void add(hec_processor *on, const hec_piece *list, int32_t n) {
  double bytes = 0;
  for (int32_t i = 0; i < n; i++) {
    touch(on, list[i].to, list[i].n);
    touch(on, list[i].from, list[i].n);
    ck_assert(i == 0 || list[i].to >= list[i - 1].to + list[i - 1].n);
    bytes += 12.0 * (double)list[i].n;
  }
  spend(on, law.add * bytes);
}

static void adam(hec_processor *on, const hec_adam *with, int64_t step, const hec_moments *list, int32_t n) {
  double bytes = 0;
  ck_assert(with->rate > 0 && step == 1);
  for (int32_t i = 0; i < n; i++) {
    const float *const at[] = {list[i].params, list[i].grads, list[i].first, list[i].second};
    for (int32_t k = 0; k < 4; k++)
      touch(on, at[k], list[i].n);
    bytes += (list[i].clear ? 32.0 : 28.0) * (double)list[i].n;
  }
  spend(on, law.adam * bytes);
}

static double row_bytes(hec_processor *on, const hec_assignments *a, int32_t d, float *const *row) {
  ck_assert(a->expert_at[0] == 0 && a->n > 0);
  touch(on, a->weight, a->n);
  touch(on, a->weight_grad, a->n);
  for (int32_t j = 0; j < a->n; j++) {
    ck_assert(a->token[j] >= 0 && a->token[j] < a->n_tokens);
    touch(on, row[j], d);
  }
  return 4.0 * a->n * d;
}

static void permute(hec_processor *on, const hec_assignments *a, const float *h2, int32_t d, float *const *row) {
  touch(on, h2, (int64_t)a->n_tokens * d);
  ck_assert(row[0] >= h2 + (int64_t)a->n_tokens * d);
  spend(on, law.permute * 2 * row_bytes(on, a, d, row));
}

static void combine(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *x) {
  touch(on, x, (int64_t)a->n_tokens * d);
  spend(on, law.combine * (row_bytes(on, a, d, row) + 8.0 * a->n_tokens * d));
}

static void touch_matrix(hec_processor *on, const float *at, int64_t rows, int64_t columns, int32_t stride) {
  ck_assert(stride == 0 || stride >= columns);
  if (rows > 0)
    touch(on, at, (rows - 1) * (stride ? stride : columns) + columns);
}

static void gemm(hec_processor *on, const hec_gemm *list, int32_t n) {
  device *d = on->own;
  double flop = 0;
  for (int32_t i = 0; i < n; i++) {
    const hec_gemm *g = &list[i];
    touch_matrix(on, g->a, g->transpose_a ? g->k : g->m, g->transpose_a ? g->m : g->k, g->lda);
    touch_matrix(on, g->b, g->transpose_b ? g->n : g->k, g->transpose_b ? g->k : g->n, g->ldb);
    touch_matrix(on, g->c, g->m, g->n, g->ldc);
    ck_assert(g->alpha == 1 && g->beta == 0);
    flop += 2.0 * g->m * g->n * g->k;
  }
  spend(on, flop * (n == 1 ? law.dense : d->grouped ? law.list : law.listed));
}

/* ---- Streams ---- */

static void select_stream(hec_processor *on, int32_t stream) {
  ((device *)on->own)->stream = stream;
}

static const hec_event *mark(hec_processor *on) {
  device *d = on->own;
  ck_assert_int_lt(d->n_events, EVENTS_MAX);
  d->now_ns[d->stream] += law.event_ns;
  d->events[d->n_events].at_ns = d->now_ns[d->stream];
  return &d->events[d->n_events++];
}

static void after(hec_processor *on, const hec_event *event) {
  device *d = on->own;
  d->now_ns[d->stream] = fmax(d->now_ns[d->stream], event->at_ns);
}

static bool reached(hec_processor *on, const hec_event *event) {
  (void)on, (void)event;
  return true;
}

static int64_t when(hec_processor *on, const hec_event *event) {
  (void)on;
  return (int64_t)event->at_ns;
}

static void restart(hec_processor *on) {
  device *d = on->own;
  d->n_events = d->stream = 0;
  d->idle = true;
}

static const char *error(hec_processor *on) {
  device *d = on->own;
  return law.fails_after > 0 && d->n_calls >= law.fails_after ? law.error : NULL;
}

static const hec_arithmetic math = {.name = "imitated",
                                    .batch = HEC_BATCH_MAX,
                                    .to_device = to_device,
                                    .zero = zero,
                                    .copy = copy,
                                    .add = add,
                                    .gemm = gemm,
                                    .adam = adam,
                                    .permute = permute,
                                    .combine = combine};
static const hec_streams streams = {.select = select_stream,
                                    .mark = mark,
                                    .after = after,
                                    .reached = reached,
                                    .when = when,
                                    .restart = restart,
                                    .error = error};

/* ---- The device ---- */

static const char *open_device(const hec_cuda_options *options, hec_processor **on) {
  if (law.open_fails)
    return law.open_fails;
  ck_assert_int_eq(options->device, 1);
  ck_assert(options->clock_ns == hec_clock_ns && !options->serial);
  dev = calloc(1, sizeof *dev);
  ck_assert_ptr_nonnull(dev);
  dev->grouped = options->grouped;
  processor = (hec_processor){&math, &streams, dev};
  *on = &processor;
  n_open++;
  n_opened++;
  return NULL;
}

static void close_device(hec_processor *on) {
  device *d = on->own;
  free(d->space);
  free(d);
  n_open--;
}

static const char *free_bytes(hec_processor *on, int64_t *bytes) {
  (void)on;
  *bytes = free_memory;
  return NULL;
}

static const char *allocate(hec_processor *on, size_t bytes, void **at) {
  device *d = on->own;
  if (law.allocate_fails)
    return law.allocate_fails;
  ck_assert_ptr_null(d->space);
  ck_assert_uint_le(bytes, SPACE_MAX);
  *at = d->space = malloc(bytes);
  d->bytes = bytes;
  return *at ? NULL : "no memory";
}

static const hec_cuda_device table = {
    .open = open_device, .close = close_device, .free_bytes = free_bytes, .allocate = allocate};

static hec_status run(int32_t repeats, hec_gpu_results *results) {
  const hec_gpu_bench bench = {.device = &table, .index = 1, .repeats = repeats, .small = true};
  return hec_gpu_bench_run(&bench, results);
}

static void set_law(void) {
  memset(&law, 0, sizeof law);
  law.copy = 0.31, law.permute = 0.37, law.combine = 0.41, law.add = 0.43, law.adam = 0.47;
  law.dense = 0.53, law.list = 0.59, law.listed = 0.83;
  law.idle_ns = 1e6;
  free_memory = (int64_t)1 << 32;
  n_open = n_opened = 0;
}

static const hec_gpu_rate *find(const hec_gpu_results *r, const char *section, const char *name) {
  for (int32_t i = 0; i < r->n_rates; i++)
    if (strcmp(r->rates[i].section, section) == 0 && strcmp(r->rates[i].name, name) == 0)
      return &r->rates[i];
  ck_abort_msg("no row %s of %s", name, section);
  return NULL;
}

static void expect_near(const char *what, double found, double wanted) {
  ck_assert_msg(fabs(found / wanted - 1) < 1e-4, "%s: found %g, expected %g", what, found, wanted);
}

/* A row of a rate, and of its share where it has one. */
static void expect_rate(const hec_gpu_results *r, const char *section, const char *name, double ns_each, double base) {
  const hec_gpu_rate *row = find(r, section, name);
  const double all[] = {row->rate.low, row->rate.median, row->rate.high};
  for (int32_t k = 0; k < 3; k++)
    expect_near(name, all[k], 1e9 / ns_each);
  ck_assert((row->base != NULL) == (base > 0));
  if (base > 0)
    expect_near(name, row->share.median, base / ns_each);
}

HEC_TEST(finds_the_rates_of_the_device) {
  hec_gpu_results *r = calloc(1, sizeof *r);
  static const char *const precisions[] = {"fp32", "tf32", "bf16"};
  char section[32];
  set_law();
  ck_assert_ptr_nonnull(r);
  ck_ok(run(3, r));
  expect_rate(r, "memory", "copy", law.copy, 0);
  expect_rate(r, "memory", "permute", law.permute, law.copy);
  expect_rate(r, "memory", "combine", law.combine, law.copy);
  expect_rate(r, "memory", "add", law.add, law.copy);
  expect_rate(r, "memory", "adam", law.adam, law.copy);
  for (int32_t i = 0; i < 6; i++) {
    double list = i % 2 ? law.listed : law.list;
    (void)snprintf(section, sizeof section, "%s, %s", precisions[i / 2], i % 2 ? "one by one" : "grouped");
    expect_rate(r, section, "dense", law.dense, 0);
    expect_rate(r, section, "skewed experts", list, law.dense);
    expect_rate(r, section, "even experts", list, law.dense);
    expect_rate(r, section, "dense gradient", law.dense, 0);
    expect_rate(r, section, "skewed gradient", list, law.dense);
    expect_rate(r, section, "attention scores", list, law.dense);
    expect_rate(r, section, "attention values", list, law.dense);
    ck_assert_str_eq(find(r, section, "skewed gradient")->base, "dense gradient");
    ck_assert(find(r, section, "skewed experts")->required == (i % 2 ? 0 : HEC_GPU_REQUIRED));
    ck_assert(find(r, section, "even experts")->required == 0);
  }
  ck_assert_int_eq(r->n_rates, 5 + 6 * 7);
  ck_assert_int_eq(n_opened, 8);
  ck_assert_int_eq(n_open, 0);
  free(r);
}

HEC_TEST(what_calls_cost_the_device) {
  hec_gpu_results *r = calloc(1, sizeof *r);
  set_law();
  ck_assert_ptr_nonnull(r);
  law.copy = law.add = law.dense = law.list = 1e-12;
  law.permute = law.combine = law.adam = law.listed = 1e-12;
  law.call_ns = 3000, law.event_ns = 1700, law.idle_ns = 0;
  ck_ok(run(1, r));
  ck_assert_int_eq(r->n_launches, 9);
  for (int32_t i = 0; i < r->n_launches; i++) {
    const hec_gpu_launch *l = &r->launches[i];
    bool event = strcmp(l->name, "event") == 0;
    /* 10 calls and the event behind them */
    ck_assert_msg(fabs(l->device_s.median - (event ? 1.7e-6 : 3e-6) - 1.7e-6 / 10) < 1e-8, "%s: %g", l->name,
                  l->device_s.median);
    ck_assert_double_gt(l->host_s.median, 0); /* the host's own time: nothing to hold it to */
  }
  ck_assert(r->events_per_s > 0);
  free(r);
}

/* A quarter of what is free, when that is less than the piece. */
HEC_TEST(takes_half_of_the_free_memory_at_most) {
  hec_gpu_results *r = calloc(1, sizeof *r);
  set_law();
  ck_assert_ptr_nonnull(r);
  free_memory = 1 << 20;
  ck_ok(run(1, r));
  expect_near("bytes of the copy", find(r, "memory", "copy")->amount, 2 * (1 << 18));
  free_memory = 100;
  ck_assert_int_eq(run(1, r), HEC_FAILED);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "no memory to spare"));
  ck_assert_int_eq(n_open, 0);
  free(r);
}

HEC_TEST(failures_are_said_in_the_devices_words) {
  hec_gpu_results *r = calloc(1, sizeof *r);
  ck_assert_ptr_nonnull(r);
  set_law();
  law.open_fails = "all CUDA-capable devices are busy";
  ck_assert_int_eq(run(1, r), HEC_FAILED);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), law.open_fails));
  set_law();
  law.allocate_fails = "out of memory";
  ck_assert_int_eq(run(1, r), HEC_FAILED);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "out of memory"));
  ck_assert_int_eq(n_open, 0);
  for (int32_t calls = 1; calls < 100; calls += 7) {
    set_law();
    law.error = "an illegal memory access was encountered";
    law.fails_after = calls;
    ck_assert_int_eq(run(1, r), HEC_FAILED);
    ck_assert_ptr_nonnull(strstr(hec_last_error(), law.error));
    ck_assert_int_eq(n_open, 0);
  }
  free(r);
}
