/* Blocks of threads on one thread of the host: what cuda_emulation.h needs of the fake (fake_grid_run.c, fake_queue.c).
 * C and C++ read it. */
#pragma once
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FAKE_WARP = 32, FAKE_THREADS_MAX = 1024 };

struct fake_dimensions {
  unsigned x, y, z;
};

/* Of the thread that runs now; kernels know them under CUDA's names. */
extern struct fake_dimensions fake_thread_at, fake_block_at, fake_block_size, fake_grid_size;

/* A kernel with its arguments: body(closure) is one thread of it. */
typedef struct {
  const char *name;
  void (*body)(void *closure);
  void (*drop)(void *closure); /* frees it */
  void *closure;
  size_t closure_bytes;
  unsigned blocks, threads;
} fake_kernel;

/* Queues it on the stream and owns the closure. A grid that no device takes is an error, found by cudaGetLastError. */
void fake_launch(const fake_kernel *kernel, cudaStream_t stream);

/* Runs it to its end, block after block. */
void fake_grid_run(const fake_kernel *kernel);

/* For threads of a kernel. The value of lane (own ^ lane_mask), or of lane `lane`. */
uint32_t fake_shuffle_xor(uint32_t mask, uint32_t value, int lane_mask);
uint32_t fake_shuffle(uint32_t mask, uint32_t value, int lane);
uint32_t fake_ballot(uint32_t mask, int predicate);
void fake_sync_warp(uint32_t mask);
void fake_sync_threads(void);
/* Ends the test: a thread is about to touch `bytes` at a place that they are not aligned to. */
void fake_misaligned(const void *at, size_t bytes);

#ifdef __cplusplus
}
#endif
