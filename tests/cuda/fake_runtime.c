/* CUDA's runtime: the functions that the plug-in calls, over the queues of fake_queue.c.
 *
 * As CUDA does: cudaStreamWaitEvent is about the last record before the call and does nothing where there was none. Copies
 * from unpinned memory are read at the call, copies to it are done when it returns. The first failure of a device stays
 * for all later calls. Not as CUDA: the default stream waits for no other and no other waits for it. */
#include "tests/cuda/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNTIME_VERSION = CUDART_VERSION, PROCESSORS = 4 };

struct CUevent_st {
  int32_t number;
  bool destroyed, timed;
  hec_queue_mark *mark; /* of the last record; NULL: none yet */
  struct CUevent_st *next;
};

static struct CUevent_st *events;
static int32_t n_events;
static _Thread_local cudaError_t last_error;

/* ---- Errors ---- */

const char *cudaGetErrorString(cudaError_t error) {
  static const struct {
    cudaError_t error;
    const char *text;
  } words[] = {
      {cudaSuccess, "no error"},
      {cudaErrorInvalidValue, "invalid argument"},
      {cudaErrorMemoryAllocation, "out of memory"},
      {cudaErrorInvalidConfiguration, "invalid configuration argument"},
      {cudaErrorInvalidDevice, "invalid device ordinal"},
      {cudaErrorInvalidResourceHandle, "invalid resource handle"},
      {cudaErrorNoDevice, "no CUDA-capable device is detected"},
      {cudaErrorNotReady, "device not ready"},
      {cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"},
      {cudaErrorLaunchFailure, "unspecified launch failure"},
  };
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (words[i].error == error)
      return words[i].text;
  return "unknown error";
}

cudaError_t fake_begin_call(const char *call, cudaError_t failure) {
  fake_enter();
  if (fake_n_devices() == 0)
    return cudaErrorNoDevice;
  cudaError_t error = fake_broken(fake_device());
  return error == cudaSuccess && fake_fails(call) ? failure : error;
}

cudaError_t fake_end_call(cudaError_t error) {
  cudaError_t stays = fake_n_devices() > 0 ? fake_broken(fake_device()) : cudaSuccess;
  fake_leave();
  if (error == cudaSuccess)
    error = stays;
  if (error != cudaSuccess) /* cudaErrorNotReady too */
    last_error = error;
  return error;
}

cudaError_t cudaGetLastError(void) {
  fake_enter();
  cudaError_t stays = fake_n_devices() > 0 ? fake_broken(fake_device()) : cudaSuccess;
  fake_leave();
  cudaError_t error = stays != cudaSuccess ? stays : last_error;
  last_error = cudaSuccess;
  return error;
}

/* ---- Devices ---- */

cudaError_t cudaDriverGetVersion(int *version) {
  *version = RUNTIME_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = RUNTIME_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
  cudaError_t error = fake_begin_call("cudaGetDeviceCount", cudaErrorUnknown);
  *count = fake_n_devices();
  return fake_end_call(error);
}

static bool is_device(int device) {
  return device >= 0 && device < fake_n_devices();
}

cudaError_t cudaSetDevice(int device) {
  fake_enter(); /* also away from a broken device */
  if (!is_device(device))
    return fake_end_call(cudaErrorInvalidDevice);
  fake_use_device(device);
  return fake_end_call(fake_fails("cudaSetDevice") ? cudaErrorUnknown : cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
  cudaError_t error = fake_begin_call("cudaGetDeviceProperties", cudaErrorUnknown);
  if (!is_device(device))
    return fake_end_call(cudaErrorInvalidDevice);
  memset(properties, 0, sizeof *properties);
  (void)snprintf(properties->name, sizeof properties->name, "fake device (emulated on the CPU)");
  properties->major = 9;
  properties->multiProcessorCount = PROCESSORS;
  properties->totalGlobalMem = fake_memory_total();
  properties->warpSize = FAKE_WARP;
  properties->maxThreadsPerBlock = FAKE_THREADS_MAX;
  properties->unifiedAddressing = 1;
  properties->asyncEngineCount = 3;
  properties->pciBusID = device + 1;
  return fake_end_call(error);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  cudaError_t error = fake_begin_call("cudaDeviceEnablePeerAccess", cudaErrorUnknown);
  if (flags != 0 || !is_device(peer) || peer == fake_device())
    return fake_end_call(flags != 0 ? cudaErrorInvalidValue : cudaErrorInvalidDevice);
  if (fake_reach(fake_device()) >> peer & 1)
    return fake_end_call(cudaErrorPeerAccessAlreadyEnabled);
  fake_enable_peer(fake_device(), peer);
  return fake_end_call(error);
}

static void note_last(hec_queue_piece *work, void *context) {
  hec_queue_piece **last = context;
  if (work->stream->device == fake_device() && (!*last || work->queued_ns >= (*last)->queued_ns))
    *last = work;
}

cudaError_t cudaDeviceSynchronize(void) {
  cudaError_t error = fake_begin_call("cudaDeviceSynchronize", cudaErrorUnknown);
  if (error != cudaSuccess)
    return fake_end_call(error);
  for (;;) {
    hec_queue_piece *last = NULL;
    fake_visit(note_last, &last);
    if (!last)
      break;
    hec_queue_run_to(last->stream, last->position);
  }
  return fake_end_call(cudaSuccess);
}

/* ---- Memory ---- */

cudaError_t cudaMalloc(void **at, size_t bytes) {
  cudaError_t error = fake_begin_call("cudaMalloc", cudaErrorMemoryAllocation);
  *at = NULL;
  if (error == cudaSuccess && bytes > 0) {
    *at = fake_memory_take(fake_device(), bytes);
    error = *at ? cudaSuccess : cudaErrorMemoryAllocation;
  }
  return fake_end_call(error);
}

/* Frees on a broken device too, as its process' end would. */
cudaError_t cudaFree(void *at) {
  cudaError_t error = fake_begin_call("cudaFree", cudaErrorUnknown);
  if (at && !fake_memory_give(at))
    hec_queue_die("cudaFree: %p was not allocated, or is freed twice", at);
  return fake_end_call(error);
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags) {
  cudaError_t error = fake_begin_call("cudaHostAlloc", cudaErrorMemoryAllocation);
  (void)flags;
  *at = NULL;
  if (error == cudaSuccess && bytes > 0) {
    *at = fake_pinned_take(bytes);
    error = *at ? cudaSuccess : cudaErrorMemoryAllocation;
  }
  return fake_end_call(error);
}

cudaError_t cudaFreeHost(void *at) {
  cudaError_t error = fake_begin_call("cudaFreeHost", cudaErrorUnknown);
  if (at && !fake_pinned_give(at))
    hec_queue_die("cudaFreeHost: %p was not allocated, or is freed twice", at);
  return fake_end_call(error);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  cudaError_t error = fake_begin_call("cudaMemGetInfo", cudaErrorUnknown);
  *total = fake_memory_total();
  *free_bytes = *total - fake_memory_used(fake_device());
  return fake_end_call(error);
}

/* ---- Streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  cudaError_t error = fake_begin_call("cudaStreamCreate", cudaErrorMemoryAllocation);
  (void)flags;
  *stream = error == cudaSuccess ? fake_stream_open(fake_device()) : NULL;
  return fake_end_call(error);
}

/* Work that is queued is still done. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cudaError_t error = fake_begin_call("cudaStreamDestroy", cudaErrorUnknown);
  if (stream == NULL)
    return fake_end_call(cudaErrorInvalidResourceHandle);
  hec_queue_close(fake_stream_of(stream));
  return fake_end_call(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t given) {
  cudaError_t error = fake_begin_call("cudaStreamSynchronize", cudaErrorUnknown);
  if (error != cudaSuccess)
    return fake_end_call(error);
  cudaStream_t stream = fake_stream_of(given);
  hec_queue_run_to(stream, stream->queued);
  return fake_end_call(fake_broken(stream->device));
}

cudaError_t cudaStreamQuery(cudaStream_t given) {
  cudaError_t error = fake_begin_call("cudaStreamQuery", cudaErrorUnknown);
  if (error != cudaSuccess)
    return fake_end_call(error);
  cudaStream_t stream = fake_stream_of(given);
  hec_queue_run_some();
  error = fake_broken(stream->device);
  return fake_end_call(error == cudaSuccess && stream->first ? cudaErrorNotReady : error);
}

/* ---- Events ---- */

static cudaEvent_t event_of(cudaEvent_t given) {
  for (cudaEvent_t e = events; e; e = e->next)
    if (e == given && !e->destroyed)
      return e;
  hec_queue_die("%p is not an event, or one that was destroyed", (void *)given);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  cudaError_t error = fake_begin_call("cudaEventCreate", cudaErrorMemoryAllocation);
  *event = NULL;
  if (error != cudaSuccess)
    return fake_end_call(error);
  cudaEvent_t own = calloc(1, sizeof *own);
  if (!own)
    hec_queue_die("no memory");
  *own = (struct CUevent_st){.number = ++n_events, .timed = !(flags & cudaEventDisableTiming), .next = events};
  *event = events = own;
  return fake_end_call(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  cudaError_t error = fake_begin_call("cudaEventDestroy", cudaErrorUnknown);
  cudaEvent_t own = event_of(event);
  own->destroyed = true;
  hec_queue_mark_release(own->mark);
  own->mark = NULL;
  return fake_end_call(error);
}

cudaError_t cudaEventRecord(cudaEvent_t given, cudaStream_t on) {
  cudaError_t error = fake_begin_call("cudaEventRecord", cudaErrorUnknown);
  if (error != cudaSuccess)
    return fake_end_call(error);
  cudaEvent_t event = event_of(given);
  cudaStream_t stream = fake_stream_of(on);
  fake_log(stream, "cudaEventRecord %d", event->number);
  hec_queue_mark_release(event->mark);
  event->mark = hec_queue_mark_stream(stream);
  return fake_end_call(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t on, cudaEvent_t given, unsigned flags) {
  cudaError_t error = fake_begin_call("cudaStreamWaitEvent", cudaErrorUnknown);
  (void)flags;
  if (error != cudaSuccess)
    return fake_end_call(error);
  cudaEvent_t event = event_of(given);
  cudaStream_t stream = fake_stream_of(on);
  fake_log(stream, "cudaStreamWaitEvent %d", event->number);
  if (event->mark)
    hec_queue_wait_mark(stream, event->mark);
  return fake_end_call(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t given) {
  cudaError_t error = fake_begin_call("cudaEventQuery", cudaErrorUnknown);
  if (error != cudaSuccess)
    return fake_end_call(error);
  cudaEvent_t event = event_of(given);
  if (event->mark && !event->mark->done)
    hec_queue_run_some();
  return fake_end_call(event->mark && !event->mark->done ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t given) {
  cudaError_t error = fake_begin_call("cudaEventSynchronize", cudaErrorUnknown);
  if (error != cudaSuccess)
    return fake_end_call(error);
  const hec_queue_mark *mark = event_of(given)->mark;
  if (mark && !mark->done)
    hec_queue_run_to(mark->stream, mark->position);
  return fake_end_call(mark ? fake_broken(mark->stream->device) : cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
  cudaError_t error = fake_begin_call("cudaEventElapsedTime", cudaErrorUnknown);
  const struct CUevent_st *from = event_of(begin), *to = event_of(end);
  if (error != cudaSuccess)
    return fake_end_call(error);
  if (!from->timed || !to->timed || !from->mark || !to->mark)
    return fake_end_call(cudaErrorInvalidResourceHandle);
  if (!from->mark->done || !to->mark->done)
    return fake_end_call(cudaErrorNotReady);
  *ms = (float)((double)(to->mark->ns - from->mark->ns) * 1e-6);
  return fake_end_call(cudaSuccess);
}

/* ---- Kernels ---- */

void fake_launch(const fake_kernel *kernel, cudaStream_t given) {
  enum { PARAMETER_BYTES_MAX = 32764 };
  cudaError_t error = fake_begin_call("cudaLaunchKernel", cudaErrorUnknown);
  if (error == cudaSuccess && (kernel->blocks == 0 || kernel->threads == 0 || kernel->threads > FAKE_THREADS_MAX ||
                               kernel->blocks > INT32_MAX || kernel->closure_bytes > PARAMETER_BYTES_MAX))
    error = cudaErrorInvalidConfiguration;
  if (error == cudaSuccess)
    fake_queue_kernel(fake_stream_of(given), kernel);
  else
    kernel->drop(kernel->closure);
  (void)fake_end_call(error);
}
