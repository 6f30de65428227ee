/* Small kernels for the tests of the fake. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void test_add(cudaStream_t stream, float *x, float term, int64_t n);                       /* x += term */
void test_copy(cudaStream_t stream, float *to, const float *from, int64_t n);              /* number by number */
void test_row_sums(cudaStream_t stream, const float *x, float *sums, int64_t rows, int n); /* a warp to a row */
void test_reverse(cudaStream_t stream, float *x, int n);                                   /* one block, n <= 1024 */
void test_lost_lane(cudaStream_t stream, float *x);                                        /* half of a warp shuffles */
void test_lost_barrier(cudaStream_t stream);         /* half of a block comes to a barrier */
void test_small_warp(cudaStream_t stream, float *x); /* a shuffle among 16 threads */
void test_wide(cudaStream_t stream, float *x);       /* loads 16 bytes at once */
void test_grid(cudaStream_t stream, unsigned blocks, unsigned threads);

#ifdef __cplusplus
}
#endif
