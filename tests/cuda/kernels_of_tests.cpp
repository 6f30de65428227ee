#include "tests/cuda/kernels_of_tests.h"
#include "runtime/exec/cuda/launch.h"

struct alignas(16) wide {
  float at[4];
};

static __global__ void add(float *x, float term, int64_t n) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    x[i] += term;
}

template <typename Number> static __global__ void copy(Number *to, const Number *from, int64_t n) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    to[i] = from[i];
}

static __global__ void row_sums(const float *x, float *sums, int64_t rows, int n) {
  int lane = static_cast<int>(threadIdx.x % 32);
  int64_t row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, n_warps = gridDim.x * (blockDim.x / 32);
  for (; row < rows; row += n_warps) {
    float sum = 0;
    for (int i = lane; i < n; i += 32)
      sum += x[row * n + i];
    for (int width = 16; width > 0; width /= 2)
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, width);
    if (lane == 31)
      sums[row] = sum;
  }
}

static __global__ void reverse(float *x, int n) {
  HEC_SHARED float all[1024];
  int i = static_cast<int>(threadIdx.x);
  for (int twice = 0; twice < 3; twice++) {
    all[i] = x[i];
    __syncthreads();
    x[i] = all[n - 1 - i];
    __syncthreads();
  }
}

static __global__ void lost_lane(float *x) {
  if (threadIdx.x < 16)
    *x += __shfl_xor_sync(0xFFFFFFFFU, *x, 1);
}

static __global__ void lost_barrier(int from) {
  if (static_cast<int>(threadIdx.x) >= from)
    __syncthreads();
}

static __global__ void small_warp(float *x) {
  *x += __shfl_xor_sync(0xFFFFFFFFU, *x, 1);
}

static __global__ void load_wide(float *x) {
  const wide &v = *reinterpret_cast<const wide *>(x);
  x[0] = v.at[3];
}

static __global__ void nothing(int) {}

void test_add(cudaStream_t stream, float *x, float term, int64_t n) {
  HEC_LAUNCH(add, 3, 64, stream, x, term, n);
}
void test_copy(cudaStream_t stream, float *to, const float *from, int64_t n) {
  HEC_LAUNCH(copy, 3, 64, stream, to, from, n);
}
void test_row_sums(cudaStream_t stream, const float *x, float *sums, int64_t rows, int n) {
  HEC_LAUNCH(row_sums, 5, 128, stream, x, sums, rows, n);
}
void test_reverse(cudaStream_t stream, float *x, int n) {
  HEC_LAUNCH(reverse, 1, static_cast<unsigned>(n), stream, x, n);
}
void test_lost_lane(cudaStream_t stream, float *x) {
  HEC_LAUNCH(lost_lane, 1, 32, stream, x);
}
void test_lost_barrier(cudaStream_t stream) {
  HEC_LAUNCH(lost_barrier, 1, 64, stream, 32);
}
void test_small_warp(cudaStream_t stream, float *x) {
  HEC_LAUNCH(small_warp, 1, 16, stream, x);
}
void test_wide(cudaStream_t stream, float *x) {
  HEC_LAUNCH(load_wide, 1, 1, stream, x);
}
void test_grid(cudaStream_t stream, unsigned blocks, unsigned threads) {
  HEC_LAUNCH(nothing, blocks, threads, stream, 0);
}
