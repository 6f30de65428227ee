/* What a call costs the host, and how fast a device gets through calls that have next to nothing to do. For the host it
 * is the clock around CALLS calls divided by their number. On the device it is from the event before to the event
 * behind. Permute and combine have the rows of 8192 tokens of GPT-MoE-S: what the host does there is in proportion to
 * the assignments. And how many events a second: marked on one stream and waited for by another, to and fro, until the
 * last one is reached. */
#include "tools/bench/gpu_session.h"

#include "runtime/exec/launch/rank.h"

enum { CALLS = 200, SMALL_CALLS = 10, LIST = 32, N = 256, SIDE = 16, CASES = 9 };
enum { TOKENS = 8192, WIDTH = 768, SMALL_TOKENS = 64, SMALL_WIDTH = 16 };

typedef struct {
  hec_piece pieces[LIST];
  hec_gemm products[LIST];
  hec_gpu_rows rows;
} calls;

typedef struct {
  const char *name;
  void (*run)(hec_processor *on, const calls *with);
} launch_case;

static void run_zero(hec_processor *on, const calls *with) {
  on->math->zero(on, with->pieces[0].to, N);
}
static void run_copy(hec_processor *on, const calls *with) {
  on->math->copy(on, with->pieces, 1);
}
static void run_copies(hec_processor *on, const calls *with) {
  on->math->copy(on, with->pieces, LIST);
}
static void run_adds(hec_processor *on, const calls *with) {
  on->math->add(on, with->pieces, LIST);
}
static void run_gemm(hec_processor *on, const calls *with) {
  on->math->gemm(on, with->products, 1);
}
static void run_gemms(hec_processor *on, const calls *with) {
  on->math->gemm(on, with->products, LIST);
}
static void run_mark(hec_processor *on, const calls *with) {
  (void)with;
  (void)on->streams->mark(on);
}

static void run_permute(hec_processor *on, const calls *with) {
  hec_gpu_rows_permute(on, &with->rows);
}
static void run_combine(hec_processor *on, const calls *with) {
  hec_gpu_rows_combine(on, &with->rows);
}

static const launch_case cases[CASES] = {{"zero", run_zero},
                                         {"copy of 1 piece", run_copy},
                                         {"copy of 32 pieces", run_copies},
                                         {"add of 32 pieces", run_adds},
                                         {"1 product", run_gemm},
                                         {"32 products", run_gemms},
                                         {"event", run_mark},
                                         {"permute of a layer", run_permute},
                                         {"combine of a layer", run_combine}};

static int32_t calls_of(const hec_gpu_session *s) {
  return s->bench->small ? SMALL_CALLS : CALLS;
}

static hec_status time_calls(hec_gpu_session *s, const launch_case *c, const calls *with, double *host_s,
                             double *device_s) {
  const hec_streams *streams = s->on->streams;
  int32_t n = calls_of(s);
  const hec_event *begin = streams->mark(s->on);
  int64_t before = hec_clock_ns();
  for (int32_t k = 0; k < n; k++)
    c->run(s->on, with);
  int64_t after = hec_clock_ns();
  const hec_event *end = streams->mark(s->on);
  HEC_TRY(hec_gpu_session_wait(s, end));
  *host_s = 1e-9 * (double)(after - before) / n;
  *device_s = 1e-9 * (double)(streams->when(s->on, end) - streams->when(s->on, begin)) / n;
  streams->restart(s->on);
  return HEC_OK;
}

static hec_status time_events(hec_gpu_session *s, double *per_s) {
  const hec_streams *streams = s->on->streams;
  const hec_event *last = NULL;
  int32_t n = calls_of(s);
  int64_t before = hec_clock_ns();
  for (int32_t k = 0; k < n; k++) {
    streams->select(s->on, k % 2);
    if (last)
      streams->after(s->on, last);
    last = streams->mark(s->on);
  }
  HEC_TRY(hec_gpu_session_wait(s, last));
  *per_s = n / (1e-9 * (double)(hec_clock_ns() - before));
  streams->restart(s->on);
  return HEC_OK;
}

static void set_calls(hec_gpu_session *s, calls *c) {
  bool small = s->bench->small;
  hec_gpu_rows_set(s, s->space + (int64_t)LIST * 3 * N, small ? SMALL_TOKENS : TOKENS, small ? SMALL_WIDTH : WIDTH,
                   &c->rows);
  for (int32_t i = 0; i < LIST; i++) {
    float *at = s->space + (int64_t)i * 3 * N;
    c->pieces[i] = (hec_piece){at, at + N, N};
    c->products[i] = (hec_gemm){.m = SIDE, .n = SIDE, .k = SIDE, .a = at, .b = at + N, .c = at + 2 * N, .alpha = 1};
  }
}

static hec_status run_all(hec_gpu_session *s, hec_gpu_results *results) {
  int32_t repeats = s->bench->repeats;
  calls *with = HEC_NEW(&s->arena, calls, 1);
  double *host = HEC_NEW(&s->arena, double, (int64_t)CASES *repeats),
         *device = HEC_NEW(&s->arena, double, (int64_t)CASES *repeats), *events = HEC_NEW(&s->arena, double, repeats);
  set_calls(s, with);
  for (int32_t r = -1; r < repeats; r++) { /* the first warms up */
    for (int32_t i = 0; i < CASES; i++) {
      int64_t at = (int64_t)i * repeats + (r < 0 ? 0 : r);
      HEC_TRY(time_calls(s, &cases[i], with, &host[at], &device[at]));
    }
    HEC_TRY(time_events(s, &events[r < 0 ? 0 : r]));
  }
  for (int32_t i = 0; i < CASES; i++)
    results->launches[results->n_launches++] =
        (hec_gpu_launch){cases[i].name, hec_bench_spread_of(host + (int64_t)i * repeats, repeats),
                         hec_bench_spread_of(device + (int64_t)i * repeats, repeats)};
  results->events_per_s = hec_bench_spread_of(events, repeats).median;
  return HEC_OK;
}

hec_status hec_gpu_launches(const hec_gpu_bench *bench, hec_gpu_results *results) {
  hec_gpu_session s;
  int64_t rows = bench->small ? hec_gpu_rows_floats(SMALL_TOKENS, SMALL_WIDTH) : hec_gpu_rows_floats(TOKENS, WIDTH);
  const hec_gpu_setting setting = {.precision = HEC_FP32, .grouped = true, .n_space = (int64_t)LIST * 3 * N + rows};
  HEC_TRY(hec_gpu_session_open(bench, &setting, &s));
  hec_status status = run_all(&s, results);
  hec_gpu_session_close(&s);
  return status;
}
