/* Activations, and what products need around them: operands rounded to bfloat16, results without terms. Over lists
 * (tiles.h); the bytes of the CPU. */
#include "runtime/exec/cuda/kernels.h"

#include "runtime/exec/cuda/tiles.h"
#include "runtime/exec/math/fast_exp.h"

#include <string.h>

/* ---- Activations ---- */

static constexpr float gelu_a = 1.5957691216F, gelu_b = 0.044715F; /* 2 sqrt(2 / pi) */

/* Elements are numbered row by row, [rows, f]. They are taken in fours only where f is a multiple of four and x
 * aligned. So four of them are of one row, side by side in every matrix. The formulas are those of processor_cpu.c. */
struct activation_piece {
  float *x;
  int32_t f, n_matrices;
  hec_activation kind;
  bool backward;

  __device__ float act(float z) const {
    if (kind == HEC_RELU)
      return z > 0 ? z : 0;
    return z * hec_fast_sigmoid(kind == HEC_SILU ? z : gelu_a * (z + gelu_b * (z * z * z)));
  }
  /* d * act'(z) */
  __device__ float act_backward(float d, float z) const {
    if (kind == HEC_RELU)
      return z > 0 ? d : 0;
    if (kind == HEC_SILU) {
      float s = hec_fast_sigmoid(z);
      return d * (s + z * s * (1 - s));
    }
    float square = z * z, s = hec_fast_sigmoid(gelu_a * (z + gelu_b * (z * square)));
    return d * (s + z * s * (1 - s) * gelu_a * (1 + 3 * gelu_b * square));
  }
  __device__ float *first_of(int64_t i) const { return x + i / f * f * n_matrices + i % f; }

  __device__ void one(int64_t i) const {
    float *gate = first_of(i), *up = gate + f, *last = gate + static_cast<int64_t>(n_matrices - 1) * f;
    if (!backward) {
      float value = act(*gate);
      *last = n_matrices == 3 ? value * *up : value;
    } else if (n_matrices == 2) {
      *gate = act_backward(*last, *gate);
    } else {
      float d = *last, value = act(*gate);
      *gate = act_backward(d * *up, *gate);
      *up = d * value;
    }
  }
  __device__ void four(int64_t i) const {
    float *at = first_of(i), *last_at = at + static_cast<int64_t>(n_matrices - 1) * f;
    quad gate = quad_at(at), up = quad_at(at + f), last = up;
    if (backward && n_matrices == 3)
      last = quad_at(last_at);
    for (int j = 0; j < 4; j++) {
      float value = act(gate.at[j]), d = last.at[j];
      if (!backward)
        last.at[j] = n_matrices == 3 ? value * up.at[j] : value;
      else
        gate.at[j] = act_backward(n_matrices == 3 ? d * up.at[j] : d, gate.at[j]);
      up.at[j] = d * value;
    }
    if (!backward)
      quad_at(last_at) = last;
    else
      quad_at(at) = gate;
    if (backward && n_matrices == 3)
      quad_at(at + f) = up;
  }
};

int32_t hec_cuda_activate(cudaStream_t stream, const hec_inner_rows *list, int32_t n, bool backward) {
  return start_list<activation_piece>(
      stream, list, n, [backward](const hec_inner_rows &of, activation_piece *piece, range *r) {
        *piece = activation_piece{of.x, of.f, of.n_matrices, of.kind, backward};
        *r = range_of(static_cast<int64_t>(of.rows) * of.f, of.x, of.f % 4 == 0 && is_aligned(of.x));
      });
}

/* ---- Matrices ---- */

/* Round to nearest, ties to even, on the bits: half of the last place that stays, less one if it is even, carries. NaN
 * stays one: the carry could make it an infinity, so it gets a bit that stays instead. */
static __device__ uint16_t rounded(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  uint32_t up = bits + 0x7FFFU + (bits >> 16 & 1U);
  return static_cast<uint16_t>((nan ? bits | 0x400000U : up) >> 16);
}

/* Four of them, stored at once. */
struct alignas(8) quarters {
  uint16_t at[4];
};

struct round_piece {
  const float *x;
  uint16_t *to;
  int64_t columns, stride, to_stride;
  __device__ void one(int64_t i) const {
    to[i / columns * to_stride + i % columns] = rounded(x[i / columns * stride + i % columns]);
  }
  __device__ void four(int64_t i) const {
    quad v = quad_at(x + i / columns * stride + i % columns);
    quarters r;
    for (int j = 0; j < 4; j++)
      r.at[j] = rounded(v.at[j]);
    *reinterpret_cast<quarters *>(to + i / columns * to_stride + i % columns) = r;
  }
};

int32_t hec_cuda_round(cudaStream_t stream, const hec_cuda_matrix *list, int32_t n) {
  return start_list<round_piece>(stream, list, n, [](const hec_cuda_matrix &of, round_piece *piece, range *r) {
    bool wide = of.columns % 4 == 0 && of.stride % 4 == 0 && of.to_stride % 4 == 0 && is_aligned(of.x) &&
                reinterpret_cast<uintptr_t>(of.to) % sizeof(quarters) == 0;
    *piece = round_piece{of.x, of.to, of.columns, of.stride, of.to_stride};
    *r = range_of(of.rows * of.columns, of.x, wide);
  });
}

/* Rare: products without terms. */
struct scale_matrix_piece {
  float *x;
  int64_t columns, stride;
  float factor;
  __device__ void one(int64_t i) const {
    float *at = x + i / columns * stride + i % columns;
    *at = factor == 0 ? 0 : factor * *at;
  }
  __device__ void four(int64_t i) const {
    for (int j = 0; j < 4; j++)
      one(i + j);
  }
};

int32_t hec_cuda_scale_matrices(cudaStream_t stream, const hec_cuda_matrix *list, int32_t n) {
  return start_list<scale_matrix_piece>(stream, list, n,
                                        [](const hec_cuda_matrix &of, scale_matrix_piece *piece, range *r) {
                                          *piece = scale_matrix_piece{of.x, of.columns, of.stride, of.factor};
                                          *r = range_of(of.rows * of.columns, of.x, false);
                                        });
}
