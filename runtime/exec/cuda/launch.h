/* Kernels are written once and compiled twice. nvcc compiles them for devices. A C++ compiler compiles them for the
 * CPU. There a stand-in of the tests runs the threads of a block (cuda_emulation.h; its target includes it first).
 * Kernels may use only what both have. That is threadIdx, blockIdx, blockDim and gridDim, shuffles of floats among all
 * 32 lanes, __syncthreads. Also HEC_SHARED arrays of a fixed size, 64-bit integers, and float32 without contraction.
 * */
#pragma once
#ifdef __CUDACC__
#include <cuda_runtime.h>

#define HEC_LAUNCH(kernel, blocks, threads, stream, ...) kernel<<<blocks, threads, 0, stream>>>(__VA_ARGS__)
#define HEC_SHARED __shared__
#define HEC_ARCHITECTURES __CUDA_ARCH_LIST__ /* 800, 900: ascending */
#else
#include <cuda_runtime_api.h> /* HEC_LAUNCH, HEC_SHARED, threadIdx and the like: of the stand-in */
#ifndef HEC_ARCHITECTURES
#define HEC_ARCHITECTURES 800
#endif
#endif
