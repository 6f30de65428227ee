/* A stand-in for CUDA, cuBLAS and NCCL in tests of the plug-in on machines without a GPU. Its own C files and kernels run,
 * on the CPU, over functions that behave as badly as the real ones may.
 *
 *   order    work is queued and done as late as possible: only while some thread of the host waits or asks, in a random
 *            order among the streams that can go on (work_queue.h). A missing event shows as a wrong number or NaN
 *   memory   of a device cannot be touched by the host (it crashes); new memory is NaN; freed memory is never given out
 *            again; unpinned memory is read at the call, pinned memory when the copy is done (fake_memory.c)
 *   misuse   destroyed streams, freed memory that queued work uses, grids that do not fit: words and abort()
 *   time     of events: work of a stream takes 100 ns and more, begins after it was queued and after what it waits for
 *
 * Environment:
 *   FAKE_CUDA_DEVICES=n     devices, default 1          FAKE_CUDA_MEMORY=bytes  of each, default 16 GiB
 *   FAKE_CUDA_SEED=n        of the random order, default 1
 *   FAKE_CUDA_PATIENCE=s    a wait in which nothing can happen ends the test after s seconds, default 10
 *   FAKE_CUDA_FAIL=call:k,...   the k-th call of that function (of any thread) fails: cudaMalloc and cudaHostAlloc with
 *                           out of memory, others with their library's unknown error. launch:k: the k-th kernel that
 *                           runs fails, which breaks its device for good (cudaErrorLaunchFailure)
 *   FAKE_NCCL_FAIL=rank:r,after:n   the communicator of rank r breaks (ncclRemoteError) after n groups
 *   FAKE_CUDA_LOG=file      one line per call that queues or orders work: "device stream call what", streams and events
 *                           numbered from 1 as they were made, 0 the default stream:
 *                             0 2 launch norm_rows 16x256           0 2 cudaMemcpyAsync put 4096
 *                             0 2 cudaEventRecord 7                 0 3 cudaStreamWaitEvent 7
 *                             0 2 cublasGemmEx 1 64x32x16 N T       0 4 nccl 1 send 2 1024 receive 0 512
 *                           (products: how many, m x n x k of the first one and its forms; copies: put, fetch, move,
 *                           host; nccl: own rank, then each message's peer and bytes)
 *
 * Everything is under one lock; the thread that waits does the work. CUDA's functions are in fake_runtime.c and
 * fake_copy.c, cuBLAS' in fake_blas.c (over fake_product.c), NCCL's in fake_nccl.c (over fake_groups.c); below them are
 * fake_queue.c, fake_memory.c, fake_grid_run.c and fake_base.c. */
#pragma once
#include "tests/cuda/fake_grid.h"
#include "tests/support/work_queue.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_DEVICES_MAX = 32 };

/* ---- The lock, failures on request, the log ---- */

/* Every call of the libraries is between these; enter reads the environment the first time. */
void fake_enter(void);
void fake_leave(void);
bool fake_fails(const char *call); /* FAKE_CUDA_FAIL names this call of it */
void fake_log(cudaStream_t stream, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t fake_setting(const char *name, int64_t otherwise);

/* ---- Streams and their work ---- */

cudaStream_t fake_stream_open(int32_t device);
cudaStream_t fake_stream_of(cudaStream_t given); /* the default stream for NULL; dies where there is no such stream */
/* hec_queue_work, with what it uses checked against what is allocated. */
void fake_queue(cudaStream_t stream, const hec_queue_piece *work);
void fake_check_uses(const hec_queue_piece *work);
void fake_queue_kernel(cudaStream_t stream, const fake_kernel *kernel);
/* Calls visit for all work that is queued. */
void fake_visit(void (*visit)(hec_queue_piece *work, void *context), void *context);

/* ---- Devices ---- */

int32_t fake_n_devices(void);
int32_t fake_device(void); /* of the calling thread */
void fake_use_device(int32_t device);
/* What has broken a device: every later call on it returns this. */
cudaError_t fake_broken(int32_t device);
void fake_break(int32_t device, cudaError_t error);
void fake_enable_peer(int32_t device, int32_t peer); /* kernels of `device` reach the memory of `peer` */
uint32_t fake_reach(int32_t device);                 /* a bit for every device, its own too */

/* ---- Calls of the runtime ---- */

/* fake_enter and what the call must return at once, cudaSuccess to go on; `failure`: where FAKE_CUDA_FAIL names it. */
cudaError_t fake_begin_call(const char *call, cudaError_t failure);
/* fake_leave; what the call returns: its own error or what has broken the device, kept for cudaGetLastError. */
cudaError_t fake_end_call(cudaError_t error);

/* ---- Memory ---- */

typedef enum { FAKE_PAGEABLE, FAKE_PINNED, FAKE_DEVICE } fake_place;
void *fake_memory_take(int32_t device, size_t bytes); /* NULL: no more */
bool fake_memory_give(void *at);                      /* false: it is not the beginning of anything allocated */
void *fake_pinned_take(size_t bytes);
bool fake_pinned_give(void *at);
/* Where memory is, and whose; dies where it is a device's and not all of it is allocated. */
fake_place fake_place_of(const void *at, size_t bytes, const char *call, int32_t *device);
size_t fake_memory_used(int32_t device);
size_t fake_memory_total(void);
void fake_memory_open(uint32_t devices); /* the memory of these can be touched, that of others not (seldom: large) */
/* The name of what runs, for words about a crash in it; NULL: nothing does. */
void fake_memory_running(const char *name);
