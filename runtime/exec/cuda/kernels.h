/* Kernels of the CUDA plug-in, started on a stream: each function is the member of hec_cuda_kernels (plugin.h) of its
 * name, which says what it computes. Returned: CUDA's error number, 0 when the work is on the stream. */
#ifndef HEC_EXEC_CUDA_KERNELS_H
#define HEC_EXEC_CUDA_KERNELS_H
#include "runtime/exec/cuda/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

int32_t hec_cuda_zero(hec_cuda_stream stream, float *x, int64_t n);
int32_t hec_cuda_copy(hec_cuda_stream stream, float *to, const float *from, int64_t n);
int32_t hec_cuda_add(hec_cuda_stream stream, const hec_cuda_addition *list, int32_t n);
int32_t hec_cuda_axpy(hec_cuda_stream stream, float *to, float factor, const float *from, int64_t n);
int32_t hec_cuda_scale(hec_cuda_stream stream, float *x, float factor, int64_t n);
int32_t hec_cuda_adam_apply(hec_cuda_stream stream, const hec_cuda_adam *adam);
int32_t hec_cuda_norm_apply(hec_cuda_stream stream, const hec_cuda_norm *norm);
int32_t hec_cuda_softmax_apply(hec_cuda_stream stream, const hec_cuda_softmax *softmax);

/* The lowest compute capability that the kernels were compiled for: 80 = 8.0. */
int32_t hec_cuda_capability_min(void);

#ifdef __cplusplus
}
#endif

#endif
