/* The contract between the program and its CUDA plug-in. The program never links CUDA, cuBLAS or NCCL: backend_nccl.c
 * loads hecate-cuda.so, which does. The plug-in takes no symbol from the program and shows one of its own. Plain C and no
 * header of hecate or CUDA, so that the compiler of kernels.cu (C++) reads it too.
 *
 * Errors are CUDA's numbers, 0: done; describe() has the words. A stream carries out what it is given in order, after the
 * call has returned; an error of that work may come back from any later call. Arrays are memory of the device that the
 * thread uses; sizes count floats and may be zero, with NULL for what is empty. Arrays of one call do not overlap.
 *
 * To add a device function: a member at the end of its table. HEC_CUDA_LAYOUT then changes by itself; where only the
 * meaning changes, raise HEC_CUDA_REVISION. */
#ifndef HEC_EXEC_CUDA_PLUGIN_H
#define HEC_EXEC_CUDA_PLUGIN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- What there is ---- */

enum { HEC_CUDA_DEVICES_MAX = 32, HEC_CUDA_TEXT_BYTES = 256 };

typedef struct {
  char name[HEC_CUDA_TEXT_BYTES]; /* "NVIDIA H200" */
  int32_t major, minor;           /* compute capability */
  int32_t n_processors;           /* streaming multiprocessors */
  bool fits;                      /* the plug-in has code for it */
  int64_t memory_bytes;           /* in all, not what is free */
} hec_cuda_device_info;

typedef struct {
  int32_t n_devices;                                  /* that can be seen, at most HEC_CUDA_DEVICES_MAX; 0: none */
  hec_cuda_device_info devices[HEC_CUDA_DEVICES_MAX]; /* [n_devices] */
  /* As their makers count: CUDA 13000 = 13.0 (driver 0: none), NCCL 22809 = 2.28.9, cuBLAS 130001 = 13.0.1. Known
   * without a driver too. */
  int32_t driver_version, runtime_version, nccl_version, cublas_version;
  char why[2 * HEC_CUDA_TEXT_BYTES]; /* why no device can be used; "" when one can */
} hec_cuda_probe;

/* ---- Device memory and streams ---- */

typedef struct CUstream_st *hec_cuda_stream; /* what CUDA calls cudaStream_t; NULL: its default stream */

typedef struct {
  int32_t (*use)(int32_t device);               /* by this thread, in all that follows */
  int32_t (*allocate)(size_t bytes, void **at); /* aligned to 256 bytes; 0 bytes: NULL. The caller releases */
  int32_t (*release)(void *at);                 /* waits for the device; NULL is fine */
  int32_t (*open_stream)(hec_cuda_stream *stream);
  int32_t (*close_stream)(hec_cuda_stream stream);
  int32_t (*wait)(hec_cuda_stream stream); /* until all that it was given is done; reports errors of that work */
  /* Host or device on either side. Host memory that is not pinned: the call may wait until the bytes are read. */
  int32_t (*move)(hec_cuda_stream stream, void *to, const void *from, size_t bytes);
} hec_cuda_device;

/* ---- Kernels: the functions of math.h on a device ---- */

/* to += from, n floats. */
typedef struct {
  float *to;
  const float *from;
  int64_t n;
} hec_cuda_addition;

/* One step of Adam: hec_math_adam_step makes rate and correct. Changes params, first, second [n]; reads grads [n]. */
typedef struct {
  float rate, correct, beta1, beta2, epsilon;
  float *params, *first, *second;
  const float *grads;
  int64_t n;
} hec_cuda_adam;

/* y = gain * x * scale, scale [rows] = 1 / sqrt(mean(x^2) + 1e-6) of each row; x, y [rows, d], gain [d]. */
typedef struct {
  const float *x, *gain;
  float *y, *scale;
  int64_t rows, d;
} hec_cuda_norm;

/* In place, x [rows, n]: row i becomes the softmax of its first visible + (i % period) * stride numbers, followed by
 * zeros. linear: those numbers stay as they are. period >= 1; a row that sees less than 0 or more than n sees 0 or n. */
typedef struct {
  float *x;
  int64_t rows, n, visible, stride, period;
  bool linear;
} hec_cuda_softmax;

/* Same input, same bytes, whatever the alignment: zero, copy, add, axpy, scale and adam give the bytes of the CPU's
 * version; norm and softmax sum in an order of their own, which n alone decides. */
typedef struct {
  int32_t (*zero)(hec_cuda_stream stream, float *x, int64_t n);
  int32_t (*copy)(hec_cuda_stream stream, float *to, const float *from, int64_t n);
  /* In the order of the list, also where several add to the same numbers. The list may go when the call returns. */
  int32_t (*add)(hec_cuda_stream stream, const hec_cuda_addition *list, int32_t n);
  int32_t (*axpy)(hec_cuda_stream stream, float *to, float factor, const float *from,
                  int64_t n); /* to += factor from */
  int32_t (*scale)(hec_cuda_stream stream, float *x, float factor, int64_t n);
  int32_t (*adam)(hec_cuda_stream stream, const hec_cuda_adam *adam);
  int32_t (*norm)(hec_cuda_stream stream, const hec_cuda_norm *norm);
  int32_t (*softmax)(hec_cuda_stream stream, const hec_cuda_softmax *softmax);
} hec_cuda_kernels;

/* ---- The plug-in ---- */

typedef struct {
  uint64_t layout; /* HEC_CUDA_LAYOUT of its build; stays the first member in every version */
  /* True: a device can be used; else probe->why says why not. Opens no socket and no context on a device, but starts the
   * driver, after which forked children cannot use it. As often as wanted. */
  bool (*probe)(hec_cuda_probe *probe);
  void (*close)(void);                    /* at the end of the program; streams and memory are the caller's */
  const char *(*describe)(int32_t error); /* "out of memory"; static */
  const hec_cuda_device *device;
  const hec_cuda_kernels *kernels;
} hec_cuda_plugin;

/* The one exported symbol. */
typedef const hec_cuda_plugin *hec_cuda_plugin_entry(void);
#define HEC_CUDA_PLUGIN_SYMBOL "hecate_cuda_plugin"

/* Of the program: the plug-in, once backend nccl has loaded it (backend.h, available); NULL before, and where it cannot
 * be loaded. */
const hec_cuda_plugin *hec_cuda_plugin_of(void);

#define HEC_CUDA_REVISION 1
/* Changes with the size of every table and struct that crosses the border. */
#define HEC_CUDA_LAYOUT                                                                                                \
  ((uint64_t)HEC_CUDA_REVISION << 56 ^ (uint64_t)sizeof(hec_cuda_plugin) << 48 ^                                       \
   (uint64_t)sizeof(hec_cuda_device) << 40 ^ (uint64_t)sizeof(hec_cuda_kernels) << 32 ^                                \
   (uint64_t)sizeof(hec_cuda_softmax) << 24 ^ (uint64_t)sizeof(hec_cuda_adam) << 16 ^                                  \
   (uint64_t)sizeof(hec_cuda_norm) << 8 ^ (uint64_t)sizeof(hec_cuda_addition) << 4 ^ (uint64_t)sizeof(hec_cuda_probe))

#endif
