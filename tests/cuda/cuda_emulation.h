/* What lets a C++ compiler read kernels (it is included before all else, fake.cmake): CUDA's words for them, on the grids
 * of fake_grid.h. The threads of a block run one after the other, each until it waits for others (a shuffle, a barrier),
 * in ascending order. Blocks run in ascending order as well, which no device promises: a kernel that needs another one is
 * not found out here. */
#pragma once
#include "tests/cuda/fake_grid.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>
#include <tuple>

#define threadIdx fake_thread_at
#define blockIdx fake_block_at
#define blockDim fake_block_size
#define gridDim fake_grid_size
#define warpSize FAKE_WARP

#ifndef __CUDA_ARCH_LIST__
#define __CUDA_ARCH_LIST__ 800, 900
#endif
#undef __launch_bounds__
#define __launch_bounds__(...)

/* Memory that the threads of a block share: HEC_SHARED float sums[32]; blocks run one after the other. */
#define HEC_SHARED static

namespace hec_fake {

template <typename Value> inline uint32_t bits_of(Value value) {
  static_assert(sizeof(Value) == sizeof(uint32_t), "shuffles of 32 bits only");
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

template <typename Value> inline Value value_of(uint32_t bits) {
  Value value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* A kernel's arguments as they were when it was launched. */
template <typename Body, typename... Arguments> struct closure {
  Body body;
  std::tuple<Arguments...> arguments;
  static void run(void *at) {
    closure *self = static_cast<closure *>(at);
    std::apply(self->body, self->arguments);
  }
  static void drop(void *at) { delete static_cast<closure *>(at); }
};

template <typename Body, typename... Arguments>
void launch(const char *name, size_t blocks, size_t threads, cudaStream_t stream, Body body,
            const Arguments &...arguments) {
  using Closure = closure<Body, Arguments...>;
  fake_kernel kernel = {name,
                        Closure::run,
                        Closure::drop,
                        new Closure{body, std::tuple<Arguments...>(arguments...)},
                        sizeof(Closure),
                        static_cast<unsigned>(blocks),
                        static_cast<unsigned>(threads)};
  fake_launch(&kernel, stream);
}

} // namespace hec_fake

/* kernel<<<blocks, threads, 0, stream>>>(arguments...); `kernel` may be a template that its arguments choose from. */
#define HEC_LAUNCH(kernel, blocks, threads, stream, ...)                                                               \
  hec_fake::launch(                                                                                                    \
      #kernel, (blocks), (threads), (stream), [](const auto &...given) { kernel(given...); }, __VA_ARGS__)

template <typename Value> inline Value __shfl_xor_sync(uint32_t mask, Value value, int lane_mask) {
  return hec_fake::value_of<Value>(fake_shuffle_xor(mask, hec_fake::bits_of(value), lane_mask));
}
template <typename Value> inline Value __shfl_sync(uint32_t mask, Value value, int lane) {
  return hec_fake::value_of<Value>(fake_shuffle(mask, hec_fake::bits_of(value), lane));
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
  return fake_ballot(mask, predicate);
}
inline void __syncwarp(uint32_t mask = 0xFFFFFFFFU) {
  fake_sync_warp(mask);
}
inline void __syncthreads() {
  fake_sync_threads();
}

/* Only one thread runs at a time. */
template <typename Value> inline Value atomicAdd(Value *at, Value term) {
  Value before = *at;
  *at = before + term;
  return before;
}

/* Call it where a device would stop with a misaligned address. */
inline void hec_check_aligned(const void *at, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(at) % bytes != 0)
    fake_misaligned(at, bytes);
}
