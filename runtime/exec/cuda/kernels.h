/* Kernels of the CUDA plug-in, started on a stream: each function is the member of hec_cuda_kernels (plugin.h) of its
 * name, which says what it computes. Returned: CUDA's error number, 0 when the work is on the stream. */
#ifndef HEC_EXEC_CUDA_KERNELS_H
#define HEC_EXEC_CUDA_KERNELS_H
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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

int32_t hec_cuda_zero(cudaStream_t stream, float *x, int64_t n);
int32_t hec_cuda_copy(cudaStream_t stream, float *to, const float *from, int64_t n);
int32_t hec_cuda_add(cudaStream_t stream, const hec_cuda_addition *list, int32_t n);
int32_t hec_cuda_axpy(cudaStream_t stream, float *to, float factor, const float *from, int64_t n);
int32_t hec_cuda_scale(cudaStream_t stream, float *x, float factor, int64_t n);
int32_t hec_cuda_adam_apply(cudaStream_t stream, const hec_cuda_adam *adam);
int32_t hec_cuda_norm_apply(cudaStream_t stream, const hec_cuda_norm *norm);
int32_t hec_cuda_softmax_apply(cudaStream_t stream, const hec_cuda_softmax *softmax);

/* The lowest compute capability that the kernels were compiled for: 80 = 8.0. */
int32_t hec_cuda_capability_min(void);

#ifdef __cplusplus
}
#endif

#endif
