/* Streams and events of a CUDA processor (hec_streams).
 *
 * Events come from a pool that grows and is given back as a whole at restart. Times: an event has a time on the device's
 * clock, of which CUDA tells differences. Restart lets a base event be reached while the host looks on. The host reads
 * its clock before and after. Of several rounds it keeps the one in which both readings are closest. The base is then
 * taken to be in their middle; any event is at base_ns + (event - base). Differences are float milliseconds: below one
 * microsecond of error in the first ten seconds after restart.
 *
 * Nothing but restart waits. serial: all streams are the first one, so every event of the past is reached before what
 * follows, and nothing else changes. */
#include "runtime/exec/cuda/own.h"

#include <stdio.h>
#include <stdlib.h>

enum { CLOCK_ROUNDS = 8 };

/* ---- Errors ---- */

void hec_cuda_fail(hec_cuda_own *own, const char *what, const char *why) {
  if (own->failed)
    return;
  own->failed = true;
  (void)snprintf(own->error, sizeof own->error, "%s: %s", what, why);
}

bool hec_cuda_ok(hec_cuda_own *own, cudaError_t error, const char *what) {
  if (error != cudaSuccess)
    hec_cuda_fail(own, what, cudaGetErrorString(error));
  return error == cudaSuccess;
}

const char *hec_cuda_words(const char *what, const char *why) {
  static _Thread_local char words[HEC_CUDA_TEXT_BYTES];
  (void)snprintf(words, sizeof words, "%s: %s", what, why);
  return words;
}

static const char *error_of(hec_processor *on) {
  const hec_cuda_own *own = hec_cuda_own_of(on);
  return own->failed ? own->error : NULL;
}

/* ---- Events ---- */

static int64_t group_size(int32_t group) {
  return (int64_t)HEC_CUDA_EVENTS_FIRST << group;
}

/* Event i of the pool. */
static hec_event *event_at(hec_cuda_own *own, int64_t i) {
  int32_t group = 0;
  for (; i >= group_size(group); group++)
    i -= group_size(group);
  return &own->groups[group][i];
}

static bool add_group(hec_cuda_own *own) {
  int32_t group = 0;
  while (group < HEC_CUDA_EVENT_GROUPS_MAX && own->groups[group])
    group++;
  if (group < HEC_CUDA_EVENT_GROUPS_MAX)
    own->groups[group] = calloc((size_t)group_size(group), sizeof(hec_event));
  if (group < HEC_CUDA_EVENT_GROUPS_MAX && own->groups[group])
    return true;
  hec_cuda_fail(own, "events", "no memory");
  return false;
}

/* One that is not in use; NULL: failed. */
static hec_event *take_event(hec_cuda_own *own) {
  int64_t room = 0;
  for (int32_t group = 0; group < HEC_CUDA_EVENT_GROUPS_MAX && own->groups[group]; group++)
    room += group_size(group);
  if (own->n_events == room && !add_group(own))
    return NULL;
  hec_event *event = event_at(own, own->n_events);
  if (own->n_events == own->n_events_made) {
    if (!hec_cuda_ok(own, cudaEventCreateWithFlags(&event->event, cudaEventDefault), "an event"))
      return NULL;
    own->n_events_made++;
  }
  own->n_events++;
  return event;
}

static const hec_event *mark(hec_processor *on) {
  hec_cuda_own *own = hec_cuda_own_of(on);
  hec_event *event = own->failed ? NULL : take_event(own);
  if (!event || !hec_cuda_ok(own, cudaEventRecord(event->event, hec_cuda_selected(own)->stream), "marking an event"))
    return &own->none;
  return event;
}

static void after(hec_processor *on, const hec_event *event) {
  hec_cuda_own *own = hec_cuda_own_of(on);
  if (!own->failed && event->event)
    (void)hec_cuda_ok(own, cudaStreamWaitEvent(hec_cuda_selected(own)->stream, event->event, 0),
                      "waiting for an event");
}

static bool reached(hec_processor *on, const hec_event *event) {
  hec_cuda_own *own = hec_cuda_own_of(on);
  if (own->failed || !event->event)
    return true;
  cudaError_t error = cudaEventQuery(event->event);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError(); /* no failure: the next launch shall not take it for its own */
    return false;
  }
  (void)hec_cuda_ok(own, error, "work before an event");
  return true;
}

static int64_t when(hec_processor *on, const hec_event *event) {
  hec_cuda_own *own = hec_cuda_own_of(on);
  float ms = 0;
  if (own->failed || !event->event ||
      !hec_cuda_ok(own, cudaEventElapsedTime(&ms, own->base[0], event->event), "the time of an event"))
    return own->options.clock_ns();
  return own->base_ns + (int64_t)((double)ms * 1e6);
}

/* ---- Streams ---- */

static void select_stream(hec_processor *on, int32_t stream) {
  hec_cuda_own_of(on)->selected = stream;
}

static int32_t n_streams(const hec_cuda_own *own) {
  return own->options.serial ? 1 : HEC_STREAMS;
}

/* One round: how long the host was in doubt; its middle. -1: failed. */
static int64_t clock_round(hec_cuda_own *own, cudaEvent_t event, int64_t *middle_ns) {
  int64_t before = own->options.clock_ns();
  if (!hec_cuda_ok(own, cudaEventRecord(event, own->lines[0].stream), "the clock") ||
      !hec_cuda_ok(own, cudaEventSynchronize(event), "the clock"))
    return -1;
  int64_t after_ns = own->options.clock_ns();
  *middle_ns = before + (after_ns - before) / 2;
  return after_ns - before;
}

static void set_clock(hec_cuda_own *own) {
  int64_t shortest = INT64_MAX;
  for (int i = 0; i < CLOCK_ROUNDS && !own->failed; i++) {
    int64_t middle_ns, doubt = clock_round(own, own->base[1], &middle_ns);
    if (doubt < 0 || doubt >= shortest)
      continue;
    cudaEvent_t best = own->base[1];
    own->base[1] = own->base[0];
    own->base[0] = best;
    own->base_ns = middle_ns;
    shortest = doubt;
  }
}

static void restart(hec_processor *on) {
  hec_cuda_own *own = hec_cuda_own_of(on);
  for (int32_t i = 0; i < n_streams(own); i++) {
    cudaError_t error = cudaStreamSynchronize(own->lines[i].stream);
    if (!own->failed)
      (void)hec_cuda_ok(own, error, "work on a stream");
  }
  own->selected = 0;
  own->n_events = 0;
  hec_cuda_lists_rewind(own);
  if (own->failed)
    return;
  hec_cuda_free_blocks(own, false);
  set_clock(own);
}

bool hec_cuda_streams_open(hec_cuda_own *own) {
  for (int32_t i = 0; i < n_streams(own); i++) /* not with the default stream, which waits for all others */
    if (!hec_cuda_ok(own, cudaStreamCreateWithFlags(&own->lines[i].stream, cudaStreamNonBlocking), "a stream"))
      return false;
  for (int i = 0; i < 2; i++)
    if (!hec_cuda_ok(own, cudaEventCreateWithFlags(&own->base[i], cudaEventDefault), "an event"))
      return false;
  set_clock(own);
  return !own->failed;
}

/* Also after a failure: then some of this is refused, and there is nothing else to do about it. */
void hec_cuda_streams_close(hec_cuda_own *own) {
  for (int32_t i = 0; i < HEC_STREAMS; i++)
    if (own->lines[i].stream) {
      (void)cudaStreamSynchronize(own->lines[i].stream);
      (void)(own->lines[i].blas ? cublasDestroy(own->lines[i].blas) : CUBLAS_STATUS_SUCCESS);
      (void)cudaStreamDestroy(own->lines[i].stream);
    }
  for (int64_t i = 0; i < own->n_events_made; i++)
    (void)cudaEventDestroy(event_at(own, i)->event);
  for (int32_t group = 0; group < HEC_CUDA_EVENT_GROUPS_MAX; group++)
    free(own->groups[group]);
  for (int i = 0; i < 2; i++)
    if (own->base[i])
      (void)cudaEventDestroy(own->base[i]);
}

/* ---- Memory of the host ---- */

static void *host_memory(hec_processor *on, size_t bytes) {
  cudaError_t error;
  return bytes > 0 ? hec_cuda_allocate(hec_cuda_own_of(on), bytes, true, &error) : NULL;
}

static void copy_bytes(hec_processor *on, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  hec_cuda_own *own = hec_cuda_own_of(on);
  if (!own->failed && bytes > 0)
    (void)hec_cuda_ok(own, cudaMemcpyAsync(to, from, bytes, kind, hec_cuda_selected(own)->stream),
                      "a copy between host and device");
}

static void put(hec_processor *on, void *to, const void *from, size_t bytes) {
  copy_bytes(on, to, from, bytes, cudaMemcpyHostToDevice);
}

static void fetch(hec_processor *on, void *to, const void *from, size_t bytes) {
  copy_bytes(on, to, from, bytes, cudaMemcpyDeviceToHost);
}

const hec_streams hec_cuda_streams_table = {
    .select = select_stream,
    .mark = mark,
    .after = after,
    .reached = reached,
    .when = when,
    .restart = restart,
    .error = error_of,
    .host_memory = host_memory,
    .put = put,
    .fetch = fetch,
};
