/* What kernels are made of (C++): grids, loads and stores of four floats, and sums of a warp. All kernels are bound by
 * memory, so what counts is that every byte is moved once and in wide pieces.
 *
 * Indices are 64 bits wide: 16 GiB hold more floats than 32 bits count. The size of a grid is capped and loops do the
 * rest, so that any size is one launch. */
#pragma once
#include "runtime/exec/cuda/launch.h"

#include <stdint.h>

enum { THREADS = 256, WARP = 32, ROWS_PER_BLOCK = THREADS / WARP };

/* Loaded and stored by one instruction, where it is aligned to its size. */
struct alignas(16) quad {
  float at[4];
};

static inline __device__ quad &quad_at(float *x) {
  return *reinterpret_cast<quad *>(x);
}

static inline __device__ const quad &quad_at(const float *x) {
  return *reinterpret_cast<const quad *>(x);
}

static inline __host__ __device__ bool is_aligned(const float *x) {
  return reinterpret_cast<uintptr_t>(x) % sizeof(quad) == 0;
}

/* For `items` pieces of work of `per_block` each. At most eight blocks to an SM (that many threads fit), on more SMs than
 * any device has (H200: 132). */
static inline unsigned blocks_for(int64_t items, int64_t per_block) {
  const int64_t blocks_max = 2048;
  int64_t blocks = (items + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < blocks_max ? blocks : blocks_max);
}

/* Of the launch before it. What is not ready is no error of a launch: somebody asked for an event. */
static inline int32_t launched() {
  cudaError_t error = cudaGetLastError();
  return error == cudaErrorNotReady ? 0 : static_cast<int32_t>(error);
}

/* ---- A warp to a row ----
 *
 * Lane l has the numbers i with (i / 4) mod 32 = l, in four partial sums by i mod 4. A butterfly of shuffles adds them
 * up. Neither alignment nor the size of the grid changes the order. No shared memory, no barrier. */

/* This warp's first row, how many warps there are, and the first number of this lane in a row. */
struct place {
  int64_t row, n_warps;
  int lane_at;
};
static inline __device__ place place_of() {
  return place{static_cast<int64_t>(blockIdx.x) * ROWS_PER_BLOCK + threadIdx.x / WARP,
               static_cast<int64_t>(gridDim.x) * ROWS_PER_BLOCK, 4 * static_cast<int>(threadIdx.x % WARP)};
}

/* Four numbers of a row of n from i on, `fill` behind its end. */
static inline __device__ quad load(const float *row, int64_t i, int64_t n, bool wide, float fill) {
  quad v;
  if (wide && i + 4 <= n)
    return quad_at(row + i);
  for (int j = 0; j < 4; j++)
    v.at[j] = i + j < n ? row[i + j] : fill;
  return v;
}

static inline __device__ void store(float *row, int64_t i, int64_t n, bool wide, const quad &v) {
  if (wide && i + 4 <= n) {
    quad_at(row + i) = v;
    return;
  }
  for (int j = 0; j < 4 && i + j < n; j++)
    row[i + j] = v.at[j];
}

/* Every lane gets the same bits: at each step both lanes of a pair add the same two numbers. All 32 lanes come here. */
static inline __device__ float sum_of_warp(const quad &partial) {
  float sum = (partial.at[0] + partial.at[2]) + (partial.at[1] + partial.at[3]);
  for (int width = WARP / 2; width > 0; width /= 2)
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, width);
  return sum;
}
