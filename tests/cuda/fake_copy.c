/* Copies and fills of CUDA's runtime (fake_runtime.c), by where the memory is. */
#include "tests/cuda/fake.h"

#include <stdlib.h>
#include <string.h>

static const int64_t BYTES_PER_NS = 64; /* of the fake's clock */

typedef struct {
  char *to;
  const char *from;
  size_t bytes;
  int value;
  char staged[]; /* of unpinned memory */
} copy;

static void run_copy(hec_queue_piece *work) {
  const copy *c = work->own;
  memmove(c->to, c->from, c->bytes);
}

static void run_fill(hec_queue_piece *work) {
  const copy *c = work->own;
  memset(c->to, c->value, c->bytes);
}

static copy *new_copy(void *to, const void *from, size_t bytes, bool staged) {
  copy *c = malloc(sizeof *c + (staged ? bytes : 0));
  if (!c)
    hec_queue_die("no memory");
  *c = (copy){to, from, bytes, 0};
  if (staged) {
    memcpy(c->staged, from, bytes);
    c->from = c->staged;
  }
  return c;
}

static bool fits(enum cudaMemcpyKind kind, bool to_device, bool from_device) {
  switch (kind) {
  case cudaMemcpyHostToHost:
    return !to_device && !from_device;
  case cudaMemcpyHostToDevice:
    return to_device && !from_device;
  case cudaMemcpyDeviceToHost:
    return !to_device && from_device;
  case cudaMemcpyDeviceToDevice:
    return to_device && from_device;
  default:
    return kind == cudaMemcpyDefault;
  }
}

static const char *direction(bool to_device, bool from_device) {
  static const char *const names[2][2] = {{"host", "fetch"}, {"put", "move"}};
  return names[to_device][from_device];
}

/* The call's error, or cudaSuccess when the copy is queued; *waits: the call returns when it is done. */
static cudaError_t queue_copy(const hec_queue_piece *work, cudaStream_t stream, enum cudaMemcpyKind kind, bool *waits) {
  void *to = (void *)work->uses[0].at;
  const void *from = work->uses[1].at;
  size_t bytes = work->uses[0].bytes;
  int32_t device;
  fake_place to_place = fake_place_of(to, bytes, work->name, &device);
  fake_place from_place = fake_place_of(from, bytes, work->name, &device);
  if (!fits(kind, to_place == FAKE_DEVICE, from_place == FAKE_DEVICE))
    return cudaErrorInvalidValue;
  hec_queue_piece own = *work;
  own.run = run_copy;
  own.own = new_copy(to, from, bytes, from_place == FAKE_PAGEABLE);
  own.cost_ns = (int64_t)bytes / BYTES_PER_NS;
  if (to_place == FAKE_PAGEABLE)
    own.uses[0].bytes = 0;
  if (from_place == FAKE_PAGEABLE)
    own.uses[1].bytes = 0;
  *waits = to_place == FAKE_PAGEABLE;
  fake_log(stream, "%s %s %zu", work->name, direction(to_place == FAKE_DEVICE, from_place == FAKE_DEVICE), bytes);
  fake_queue(stream, &own);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t on) {
  cudaError_t error = fake_begin_call("cudaMemcpyAsync", cudaErrorUnknown);
  if (error != cudaSuccess || bytes == 0)
    return fake_end_call(error);
  cudaStream_t stream = fake_stream_of(on);
  bool waits = false;
  error = queue_copy(&(hec_queue_piece){.name = "cudaMemcpyAsync", .uses = {{to, bytes}, {from, bytes}}}, stream, kind,
                     &waits);
  if (error == cudaSuccess && waits) {
    hec_queue_run_to(stream, stream->queued);
    error = fake_broken(stream->device);
  }
  return fake_end_call(error);
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t on) {
  cudaError_t error = fake_begin_call("cudaMemsetAsync", cudaErrorUnknown);
  if (error != cudaSuccess || bytes == 0)
    return fake_end_call(error);
  int32_t device;
  if (fake_place_of(at, bytes, "cudaMemsetAsync", &device) == FAKE_PAGEABLE)
    return fake_end_call(cudaErrorInvalidValue);
  cudaStream_t stream = fake_stream_of(on);
  copy *c = new_copy(at, NULL, bytes, false);
  c->value = value;
  fake_log(stream, "cudaMemsetAsync %zu", bytes);
  fake_queue(stream, &(hec_queue_piece){.name = "cudaMemsetAsync",
                                        .run = run_fill,
                                        .own = c,
                                        .uses = {{at, bytes}},
                                        .cost_ns = (int64_t)bytes / BYTES_PER_NS});
  return fake_end_call(cudaSuccess);
}
