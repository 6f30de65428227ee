/* The contract between the program and its CUDA plug-in. The program never links CUDA, cuBLAS or NCCL: backend_nccl.c
 * loads hecate-cuda.so, which does. The plug-in takes no symbol from the program and shows one of its own. Of the
 * program's headers it uses types only (processor.h), in its kernels too, which a C++ compiler reads.
 *
 * Calls that can fail return NULL on success, else words for the failure: static, or of the thread's last failure.
 *
 * To add a function: a member at the end of its table. HEC_CUDA_LAYOUT then changes by itself; where only the meaning
 * changes, raise HEC_CUDA_REVISION. */
#pragma once
#include "runtime/exec/math/processor.h"

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

/* ---- A device as a processor ---- */

typedef struct {
  int32_t device;
  hec_precision precision;
  bool grouped;              /* products of a list in one grouped call where cuBLAS has one; else one after the other */
  bool serial;               /* all streams are one: nothing runs beside anything else */
  int64_t (*clock_ns)(void); /* hec_clock_ns */
} hec_cuda_options;

typedef struct {
  /* The processor; the calling thread is the one that uses it. Its `own` is the plug-in's. Close frees everything that
   * was allocated with it, also when the device has failed. */
  const char *(*open)(const hec_cuda_options *options, hec_processor **on);
  void (*close)(hec_processor *on);
  const char *(*free_bytes)(hec_processor *on, int64_t *bytes);        /* of the device's memory, now */
  const char *(*allocate)(hec_processor *on, size_t bytes, void **at); /* aligned to 256 bytes, not initialised */
  /* Lets the processor read and write what is allocated on another device; fails where the machine cannot. */
  const char *(*reach)(hec_processor *on, int32_t device);
} hec_cuda_device;

/* ---- Messages between devices (NCCL) ---- */

typedef struct {
  char bytes[128];
} hec_cuda_id;
typedef struct hec_cuda_communicator hec_cuda_communicator;

/* Communicators never block the host but in `open`, which all its ranks call together. It gives up at until_ns (on the
 * clock of the processor's options) or when stop(context) is true. A later call may have to wait for NCCL's own thread.
 * It gives up after as long as `open` had, or when stop(context) is true, so context stays until `close`. */
typedef struct {
  const char *(*make_id)(hec_cuda_id *id); /* by one rank, which gives it to the others; opens a listening socket */
  const char *(*open)(hec_processor *on, const hec_cuda_id *id, int32_t n_ranks, int32_t rank, int64_t until_ns,
                      bool (*stop)(void *context), void *context, hec_cuda_communicator **out);
  /* Messages between begin and end go together; those of a pair in the order of the calls. On the processor's selected
   * stream. n floats, at least 1. */
  const char *(*begin)(hec_cuda_communicator *by);
  const char *(*send)(hec_cuda_communicator *by, int32_t peer, const float *from, int64_t n);
  const char *(*receive)(hec_cuda_communicator *by, int32_t peer, float *to, int64_t n);
  const char *(*end)(hec_cuda_communicator *by);
  const char *(*allreduce)(hec_cuda_communicator *by, float *at, int64_t n); /* sum, in place */
  const char *(*check)(hec_cuda_communicator *by);                           /* errors that came meanwhile */
  void (*close)(hec_cuda_communicator *by, bool abort); /* abort: ends messages on their way, whatever their peers do */
} hec_cuda_messages;

/* ---- The plug-in ---- */

typedef struct {
  uint64_t layout; /* HEC_CUDA_LAYOUT of its build; stays the first member in every version */
  /* True: a device can be used; else probe->why says why not. Opens no socket and no context on a device, but starts the
   * driver, after which forked children cannot use it. As often as wanted. */
  bool (*probe)(hec_cuda_probe *probe);
  const hec_cuda_device *device;
  const hec_cuda_messages *messages;
} hec_cuda_plugin;

/* The one exported symbol. */
typedef const hec_cuda_plugin *hec_cuda_plugin_entry(void);
#define HEC_CUDA_PLUGIN_SYMBOL "hecate_cuda_plugin"

/* Of the program: the plug-in, once backend nccl has loaded it (backend.h, available); NULL before, and where it cannot
 * be loaded. */
const hec_cuda_plugin *hec_cuda_plugin_of(void);

#define HEC_CUDA_REVISION 2
/* Changes with the size of every table and struct that crosses the border. */
#define HEC_CUDA_LAYOUT                                                                                                \
  ((uint64_t)HEC_CUDA_REVISION << 56 ^ (uint64_t)sizeof(hec_cuda_plugin) << 48 ^                                       \
   (uint64_t)sizeof(hec_cuda_device) << 40 ^ (uint64_t)sizeof(hec_cuda_messages) << 32 ^                               \
   (uint64_t)sizeof(hec_arithmetic) << 24 ^ (uint64_t)sizeof(hec_streams) << 16 ^                                      \
   (uint64_t)sizeof(hec_cuda_options) << 8 ^ (uint64_t)sizeof(hec_gemm) << 4 ^ (uint64_t)sizeof(hec_cuda_probe))
