/* Kernels of the CUDA plug-in, started on a stream. They compute what processor.h says of the calls of their names, on
 * memory of the device. Lists are on the host and may go when a function returns, unless it says that they are on the
 * device. Returned: CUDA's error number, 0 when the work is on the stream. */
#pragma once
#include "runtime/exec/math/processor.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Element by element (kernels.cu, layers.cu): the bytes of the CPU ---- */

int32_t hec_cuda_copy(cudaStream_t stream, const hec_piece *list, int32_t n);
int32_t hec_cuda_add(cudaStream_t stream, const hec_piece *list, int32_t n);
int32_t hec_cuda_scale(cudaStream_t stream, float *x, float factor, int64_t n);
int32_t hec_cuda_adam(cudaStream_t stream, const hec_adam *adam, hec_adam_step by, const hec_moments *list, int32_t n);
int32_t hec_cuda_activate(cudaStream_t stream, const hec_inner_rows *list, int32_t n, bool backward);

/* Matrices, rows of `columns` numbers, `stride` and `to_stride` from one row to the next. round: to bfloat16, to the
 * nearest, ties to even; an infinity where it is nearer than the largest number; NaN stays one. scale: x *= factor in
 * place (`to` is not used), zeros where factor == 0. */
typedef struct {
  float *x;
  uint16_t *to;
  int64_t rows, columns, stride, to_stride;
  float factor;
} hec_cuda_matrix;
int32_t hec_cuda_round(cudaStream_t stream, const hec_cuda_matrix *list, int32_t n);
int32_t hec_cuda_scale_matrices(cudaStream_t stream, const hec_cuda_matrix *list, int32_t n);

/* ---- Rows (rows.cu) ---- */

int32_t hec_cuda_norm(cudaStream_t stream, const hec_norm *norm, float *y);
int32_t hec_cuda_norm_backward(cudaStream_t stream, const hec_norm *norm, const float *dy, float *dx, float *dgain);
int32_t hec_cuda_softmax(cudaStream_t stream, const hec_scores *scores);
int32_t hec_cuda_softmax_backward(cudaStream_t stream, const hec_scores *scores, float *d);

/* ---- Assignments (choices.cu) ---- */

/* hec_assignments on the device. by_token: all assignments, those of token t are by_token[token_at[t] ..
 * token_at[t + 1]), ascending. Members that a call does not need may be NULL. */
typedef struct {
  int32_t n, n_tokens, n_experts, d;
  const int32_t *token, *expert;      /* [n] */
  const int32_t *token_at, *by_token; /* [n_tokens + 1], [n] */
  float *const *row, *const *output;  /* [n] */
  float *weight, *weight_grad;        /* [n] */
  const float *balance;               /* [n_experts] */
} hec_cuda_choices;
int32_t hec_cuda_weigh(cudaStream_t stream, const hec_cuda_choices *c, const float *probabilities, bool exact);
int32_t hec_cuda_choice_gradient(cudaStream_t stream, const hec_cuda_choices *c, float *dp);
int32_t hec_cuda_permute(cudaStream_t stream, const hec_cuda_choices *c, const float *h2);
int32_t hec_cuda_uncombine(cudaStream_t stream, const hec_cuda_choices *c, const float *dx);
/* x[token] += weight row: combine; weight NULL, += row: unpermute. */
int32_t hec_cuda_gather(cudaStream_t stream, const hec_cuda_choices *c, float *x);

/* ---- For whom ---- */

/* The lowest compute capability that the kernels were compiled for: 80 = 8.0. */
int32_t hec_cuda_capability_min(void);

#ifdef __cplusplus
}
#endif
