/* Timing on a device. One reading of a case: the case once, an event, the case `calls` times, an event. The first call
 * is there so that the device has something to do while the host gives it the others. What is read is the device's
 * time, as long as the host gives work faster than it is done. `calls` is chosen in a first reading so that a reading
 * takes a millisecond or more: events are exact to about half a microsecond.
 *
 * Cases are read by turns, `repeats` times after one that warms up (and lets the device allocate what it keeps). A share
 * is the ratio of two rates of one turn. */
#include "tools/bench/gpu_session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SECOND_NS = 1000000000, LIMIT_S = 60, CALLS_MAX = 64, FILL = 1000003 /* prime: rows are not alike */ };
#define READING_S 1e-3
#define SMALL_READING_S 1e-5 /* nobody reads such numbers */
static const int64_t piece_bytes = (int64_t)1 << 30, small_piece_bytes = (int64_t)1 << 20;

static hec_status device_failed(const char *what, const char *why) {
  return hec_fail(HEC_FAILED, "the device: %s: %s", what, why);
}

/* ---- Sessions ---- */

/* splitmix64 (Steele et al., OOPSLA 2014), in [-1, 1): zeros would be multiplied at less power than numbers. */
static void draw(float *x, int64_t n) {
  uint64_t state = 1;
  for (int64_t i = 0; i < n; i++) {
    uint64_t z = state += 0x9E3779B97F4A7C15U;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    x[i] = (float)((z ^ z >> 31) >> 40) * 0x1p-23F - 1;
  }
}

static void fill(hec_gpu_session *s) {
  int64_t n = s->n_space < FILL ? s->n_space : FILL;
  float *host = HEC_NEW(&s->arena, float, n);
  draw(host, n);
  s->on->math->to_device(s->on, s->space, host, n);
  for (int64_t at = n; at < s->n_space; at += n)
    s->on->math->copy(s->on, &(hec_piece){s->space + at, s->space, s->n_space - at < n ? s->n_space - at : n}, 1);
}

/* Two pieces of 1 GiB, or of a quarter each of what is free. */
static const char *choose_space(hec_gpu_session *s) {
  int64_t free_bytes, bytes = s->bench->small ? small_piece_bytes : piece_bytes;
  const char *why = s->bench->device->free_bytes(s->on, &free_bytes);
  if (!why)
    s->n_space = 2 * (bytes < free_bytes / 4 ? bytes : free_bytes / 4) / (int64_t)sizeof(float);
  return why;
}

/* HEC_FAILED with the device's words when it has failed. */
static hec_status check_session(hec_gpu_session *session) {
  const char *why = session->on->streams->error(session->on);
  return why ? device_failed("it failed", why) : HEC_OK;
}

hec_status hec_gpu_session_open(const hec_gpu_bench *bench, const hec_gpu_setting *setting, hec_gpu_session *session) {
  hec_cuda_options options = {
      .device = bench->index, .precision = setting->precision, .grouped = setting->grouped, .clock_ns = hec_clock_ns};
  *session = (hec_gpu_session){.bench = bench, .n_space = setting->n_space};
  const char *why = bench->device->open(&options, &session->on);
  if (why)
    return device_failed("it cannot be opened", why);
  void *at = NULL;
  why = session->n_space > 0 ? NULL : choose_space(session);
  if (!why)
    why = bench->device->allocate(session->on, (size_t)session->n_space * sizeof(float), &at);
  hec_status status = why ? device_failed("no memory", why) : HEC_OK;
  if (status == HEC_OK) {
    session->space = at;
    fill(session);
    session->on->streams->restart(session->on);
    status = check_session(session);
  }
  if (status != HEC_OK)
    hec_gpu_session_close(session);
  return status;
}

void hec_gpu_session_close(hec_gpu_session *session) {
  session->bench->device->close(session->on);
  hec_arena_free(&session->arena);
}

hec_status hec_gpu_session_wait(hec_gpu_session *session, const hec_event *event) {
  int64_t until = hec_clock_ns() + (int64_t)LIMIT_S * SECOND_NS;
  while (!session->on->streams->reached(session->on, event))
    if (hec_clock_ns() > until)
      return hec_fail(HEC_FAILED, "the device was not done after %d s", LIMIT_S);
  return check_session(session);
}

/* ---- Readings ---- */

static hec_status read_case(hec_gpu_session *s, const hec_gpu_case *c, int32_t calls, double *seconds) {
  const hec_streams *streams = s->on->streams;
  c->run(s->on, c->with);
  const hec_event *begin = streams->mark(s->on);
  for (int32_t k = 0; k < calls; k++)
    c->run(s->on, c->with);
  const hec_event *end = streams->mark(s->on);
  HEC_TRY(hec_gpu_session_wait(s, end));
  int64_t ns = streams->when(s->on, end) - streams->when(s->on, begin);
  streams->restart(s->on);
  if (ns <= 0)
    return hec_fail(HEC_FAILED, "the device's clock: %s took %d ns", c->name, (int)ns);
  *seconds = 1e-9 * (double)ns / calls;
  return HEC_OK;
}

static hec_status choose_calls(hec_gpu_session *s, const hec_gpu_case *c, int32_t *calls) {
  double seconds = 0;
  HEC_TRY(read_case(s, c, 1, &seconds));
  double wanted = ceil((s->bench->small ? SMALL_READING_S : READING_S) / seconds);
  *calls = wanted < CALLS_MAX ? (int32_t)wanted : CALLS_MAX;
  return HEC_OK;
}

/* rates [n][repeats] per second. */
static void add_row(const char *section, const hec_gpu_case *cases, int32_t i, const double *rates, int32_t repeats,
                    hec_arena *arena, hec_gpu_results *results) {
  HEC_ASSERT(results->n_rates < HEC_GPU_RATES_MAX);
  const hec_gpu_case *c = &cases[i];
  hec_gpu_rate *row = &results->rates[results->n_rates++];
  double *values = HEC_NEW(arena, double, repeats);
  const double *own = rates + (int64_t)i * repeats;
  *row = (hec_gpu_rate){.name = c->name, .flops = c->flops, .amount = c->amount, .required = c->required};
  (void)snprintf(row->section, sizeof row->section, "%s", section);
  memcpy(values, own, (size_t)repeats * sizeof *values);
  row->rate = hec_bench_spread_of(values, repeats);
  if (c->base < 0)
    return;
  row->base = cases[c->base].name;
  for (int32_t r = 0; r < repeats; r++)
    values[r] = own[r] / rates[(int64_t)c->base * repeats + r];
  row->share = hec_bench_spread_of(values, repeats);
}

hec_status hec_gpu_time(hec_gpu_session *session, const char *section, const hec_gpu_case *cases, int32_t n,
                        hec_gpu_results *results) {
  int32_t repeats = session->bench->repeats;
  int32_t *calls = HEC_NEW(&session->arena, int32_t, n);
  double *rates = HEC_NEW(&session->arena, double, (int64_t)n *repeats), seconds = 0;
  for (int32_t i = 0; i < n; i++)
    HEC_TRY(choose_calls(session, &cases[i], &calls[i]));
  for (int32_t r = -1; r < repeats; r++)
    for (int32_t i = 0; i < n; i++) {
      HEC_TRY(read_case(session, &cases[i], calls[i], &seconds));
      rates[(int64_t)i * repeats + (r < 0 ? 0 : r)] = cases[i].amount / seconds;
    }
  for (int32_t i = 0; i < n; i++)
    add_row(section, cases, i, rates, repeats, &session->arena, results);
  return HEC_OK;
}

hec_status hec_gpu_bench_run(const hec_gpu_bench *bench, hec_gpu_results *results) {
  HEC_ASSERT(bench->repeats >= 1);
  *results = (hec_gpu_results){.n_rates = 0};
  HEC_TRY(hec_gpu_memory(bench, results));
  HEC_TRY(hec_gpu_products(bench, results));
  return hec_gpu_launches(bench, results);
}
