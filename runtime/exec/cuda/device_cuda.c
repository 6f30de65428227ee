/* Devices as processors: opened, closed, and their memory. */
#include "runtime/exec/cuda/own.h"

#include <stdlib.h>
#include <string.h>

static void close_processor(hec_processor *on) {
  hec_cuda_own *own = hec_cuda_own_of(on);
  (void)cudaSetDevice(own->options.device);
  hec_cuda_streams_close(own);
  hec_cuda_free_blocks(own, true);
  (void)cudaGetLastError(); /* of a device that has failed: clear the sticky error */
  free(own);
}

static const char *open_processor(const hec_cuda_options *options, hec_processor **on) {
  *on = NULL;
  cudaError_t error = cudaSetDevice(options->device);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return hec_cuda_words("the device cannot be used", cudaGetErrorString(error));
  }
  hec_cuda_own *own = calloc(1, sizeof *own);
  if (!own)
    return "no memory";
  own->options = *options;
  own->processor = (hec_processor){.math = &hec_cuda_arithmetic, .streams = &hec_cuda_streams_table, .own = own};
  if (!hec_cuda_streams_open(own) || !hec_cuda_lists_open(own) || !hec_cuda_gemm_open(own)) {
    const char *words = hec_cuda_words("the device cannot be used", own->error);
    close_processor(&own->processor);
    return words;
  }
  *on = &own->processor;
  return NULL;
}

static const char *free_bytes(hec_processor *on, int64_t *bytes) {
  size_t left = 0, all = 0;
  cudaError_t error = cudaSetDevice(hec_cuda_own_of(on)->options.device);
  if (error == cudaSuccess)
    error = cudaMemGetInfo(&left, &all);
  *bytes = (int64_t)left;
  return error == cudaSuccess ? NULL : hec_cuda_words("the device's memory", cudaGetErrorString(error));
}

static const char *allocate(hec_processor *on, size_t bytes, void **at) {
  hec_cuda_own *own = hec_cuda_own_of(on);
  *at = NULL;
  if (bytes == 0)
    return NULL;
  cudaError_t error = cudaSetDevice(own->options.device);
  if (error == cudaSuccess)
    *at = hec_cuda_allocate(own, bytes, false, &error);
  return error == cudaSuccess ? NULL : hec_cuda_words("memory of the device", cudaGetErrorString(error));
}

/* Several processors of a device may ask. */
static const char *reach(hec_processor *on, int32_t device) {
  hec_cuda_own *own = hec_cuda_own_of(on);
  if (own->options.device == device)
    return NULL;
  cudaError_t error = cudaSetDevice(own->options.device);
  if (error == cudaSuccess)
    error = cudaDeviceEnablePeerAccess(device, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled)
    error = cudaSuccess;
  (void)cudaGetLastError();
  return error == cudaSuccess ? NULL : hec_cuda_words("memory of another device", cudaGetErrorString(error));
}

const hec_cuda_device hec_cuda_device_table = {
    .open = open_processor,
    .close = close_processor,
    .free_bytes = free_bytes,
    .allocate = allocate,
    .reach = reach,
};
