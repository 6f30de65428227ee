/* CUDA's streams and kernels as work_queue.h has them, and devices that break. */
#include "tests/cuda/fake.h"

#include <stdlib.h>

static cudaStream_t defaults[FAKE_DEVICES_MAX];
static int32_t n_streams;
static int32_t broken[FAKE_DEVICES_MAX]; /* cudaError_t */

/* ---- Streams ---- */

/* Never freed, so that addresses of ended streams are not those of new ones. */
static cudaStream_t open_as(int32_t number, int32_t device) {
  cudaStream_t stream = calloc(1, sizeof *stream);
  if (!stream)
    hec_queue_die("no memory");
  *stream = (struct CUstream_st){.number = number, .device = device, .broken = &broken[device]};
  hec_queue_open(stream);
  return stream;
}

cudaStream_t fake_stream_open(int32_t device) {
  return open_as(++n_streams, device);
}

cudaStream_t fake_stream_of(cudaStream_t given) {
  if (given == NULL || given == cudaStreamLegacy || given == cudaStreamPerThread) {
    cudaStream_t *own = &defaults[fake_device()];
    return *own ? *own : (*own = open_as(0, fake_device()));
  }
  for (cudaStream_t s = hec_queue_streams(); s; s = s->next)
    if (s == given && !s->destroyed)
      return s;
  hec_queue_die("%p is not a stream, or one that was destroyed", (void *)given);
}

void fake_check_uses(const hec_queue_piece *work) {
  int32_t device = -1;
  for (int i = 0; i < HEC_QUEUE_RANGES_MAX; i++)
    if (work->uses[i].bytes > 0)
      (void)fake_place_of(work->uses[i].at, work->uses[i].bytes, work->name, &device);
}

void fake_queue(cudaStream_t stream, const hec_queue_piece *work) {
  if (broken[stream->device] == cudaSuccess)
    fake_check_uses(work);
  (void)hec_queue_work(stream, work);
}

void fake_visit(void (*visit)(hec_queue_piece *work, void *context), void *context) {
  for (cudaStream_t s = hec_queue_streams(); s; s = s->next)
    for (hec_queue_piece *w = s->first; w; w = w->next)
      visit(w, context);
}

cudaError_t fake_broken(int32_t device) {
  return (cudaError_t)broken[device];
}

void fake_break(int32_t device, cudaError_t error) {
  hec_queue_break(&broken[device], (int32_t)error);
}

/* ---- Kernels ---- */

static void run_kernel(hec_queue_piece *work) {
  if (fake_fails("launch")) {
    fake_break(work->stream->device, cudaErrorLaunchFailure);
    return;
  }
  fake_grid_run(work->own);
}

static void drop_kernel(hec_queue_piece *work) {
  fake_kernel *kernel = work->own;
  kernel->drop(kernel->closure);
  free(kernel);
}

void fake_queue_kernel(cudaStream_t stream, const fake_kernel *kernel) {
  fake_kernel *own = malloc(sizeof *own);
  if (!own)
    hec_queue_die("no memory");
  *own = *kernel;
  fake_log(stream, "launch %s %ux%u", kernel->name, kernel->blocks, kernel->threads);
  fake_queue(stream, &(hec_queue_piece){.name = kernel->name,
                                        .run = run_kernel,
                                        .drop = drop_kernel,
                                        .own = own,
                                        .closure = kernel->closure,
                                        .closure_bytes = kernel->closure_bytes,
                                        .is_kernel = true});
}
