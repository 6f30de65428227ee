/* Norms and softmax, forward and backward: a warp to a row (pieces.h), with the formulas of math.c. The gradient of the
 * gain is a sum over rows, by columns: a warp has four of them, its lanes every eighth row. Partial sums are by (row /
 * 8) mod 4, then shuffles. The order depends on the number of rows only. O(rows d), each row read twice. */
#include "runtime/exec/cuda/kernels.h"

#include "runtime/exec/cuda/pieces.h"
#include "runtime/exec/math/fast_exp.h"

#include <math.h>

/* ---- Norms ---- */

static __global__ void norm_rows(hec_norm norm, float *to) {
  place p = place_of();
  for (int64_t r = p.row; r < norm.rows; r += p.n_warps) {
    const float *x = norm.x + r * norm.d;
    float *y = to + r * norm.d;
    bool wide = is_aligned(x) && is_aligned(y) && is_aligned(norm.gain);
    quad squares = {{0, 0, 0, 0}};
    for (int64_t i = p.lane_at; i < norm.d; i += 4 * WARP) {
      quad v = load(x, i, norm.d, wide, 0);
      for (int j = 0; j < 4; j++)
        squares.at[j] += v.at[j] * v.at[j];
    }
    float s = 1 / sqrtf(sum_of_warp(squares) / static_cast<float>(norm.d) + 1e-6F);
    for (int64_t i = p.lane_at; i < norm.d; i += 4 * WARP) {
      quad v = load(x, i, norm.d, wide, 0), gain = load(norm.gain, i, norm.d, wide, 0);
      for (int j = 0; j < 4; j++)
        v.at[j] = gain.at[j] * (v.at[j] * s);
      store(y, i, norm.d, wide, v);
    }
    if (p.lane_at == 0)
      norm.scale[r] = s;
  }
}

int32_t hec_cuda_norm(cudaStream_t stream, const hec_norm *norm, float *y) {
  if (norm->rows <= 0)
    return 0;
  HEC_LAUNCH(norm_rows, blocks_for(norm->rows, ROWS_PER_BLOCK), THREADS, stream, *norm, y);
  return launched();
}

/* dx_i += s gain_i dy_i - x_i shrink,  shrink = s^3 / d sum_j gain_j dy_j x_j. */
static __global__ void norm_rows_backward(hec_norm norm, const float *from, float *to) {
  place p = place_of();
  for (int64_t r = p.row; r < norm.rows; r += p.n_warps) {
    const float *x = norm.x + r * norm.d, *dy = from + r * norm.d;
    float *dx = to + r * norm.d, s = norm.scale[r];
    bool wide = is_aligned(x) && is_aligned(dy) && is_aligned(dx) && is_aligned(norm.gain);
    quad along = {{0, 0, 0, 0}};
    for (int64_t i = p.lane_at; i < norm.d; i += 4 * WARP) {
      quad v = load(x, i, norm.d, wide, 0), g = load(dy, i, norm.d, wide, 0),
           gain = load(norm.gain, i, norm.d, wide, 0);
      for (int j = 0; j < 4; j++)
        along.at[j] += gain.at[j] * g.at[j] * v.at[j];
    }
    float shrink = sum_of_warp(along) * s * s * s / static_cast<float>(norm.d);
    for (int64_t i = p.lane_at; i < norm.d; i += 4 * WARP) {
      quad v = load(x, i, norm.d, wide, 0), g = load(dy, i, norm.d, wide, 0),
           gain = load(norm.gain, i, norm.d, wide, 0);
      quad sum = load(dx, i, norm.d, wide, 0);
      for (int j = 0; j < 4; j++)
        sum.at[j] += s * gain.at[j] * g.at[j] - v.at[j] * shrink;
      store(dx, i, norm.d, wide, sum);
    }
  }
}

enum { COLUMNS = 4, LANES_PER_COLUMN = WARP / COLUMNS };

/* dgain_i += sum_r dy_ri x_ri s_r: a warp takes four neighbouring columns, of which it reads 16 bytes a row. The other
 * half of what the memory gives is read by the next warp of the block at about the same time. */
static __global__ void norm_gain(hec_norm norm, const float *dy, float *dgain) {
  int64_t n_warps = static_cast<int64_t>(gridDim.x) * ROWS_PER_BLOCK;
  int lane = static_cast<int>(threadIdx.x % WARP);
  for (int64_t at = COLUMNS * (static_cast<int64_t>(blockIdx.x) * ROWS_PER_BLOCK + threadIdx.x / WARP); at < norm.d;
       at += COLUMNS * n_warps) {
    int64_t column = at + lane % COLUMNS;
    quad sums = {{0, 0, 0, 0}};
    for (int64_t first = lane / COLUMNS; column < norm.d && first < norm.rows; first += 4 * LANES_PER_COLUMN)
      for (int j = 0; j < 4; j++) {
        int64_t r = first + j * LANES_PER_COLUMN;
        if (r < norm.rows)
          sums.at[j] += dy[r * norm.d + column] * norm.x[r * norm.d + column] * norm.scale[r];
      }
    float sum = (sums.at[0] + sums.at[2]) + (sums.at[1] + sums.at[3]);
    for (int width = WARP / 2; width >= COLUMNS; width /= 2)
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, width);
    if (lane < COLUMNS && column < norm.d)
      dgain[column] += sum;
  }
}

int32_t hec_cuda_norm_backward(cudaStream_t stream, const hec_norm *norm, const float *dy, float *dx, float *dgain) {
  if (norm->rows <= 0 || norm->d <= 0)
    return 0;
  HEC_LAUNCH(norm_rows_backward, blocks_for(norm->rows, ROWS_PER_BLOCK), THREADS, stream, *norm, dy, dx);
  int32_t error = launched();
  if (error != 0)
    return error;
  HEC_LAUNCH(norm_gain, blocks_for(norm->d, COLUMNS * ROWS_PER_BLOCK), THREADS, stream, *norm, dy, dgain);
  return launched();
}

/* ---- Scores ---- */

static inline __device__ float max_of_warp(float largest) {
  for (int width = WARP / 2; width > 0; width /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, width));
  return largest;
}

static inline __device__ int64_t visible(const hec_scores &scores, int64_t row) {
  int64_t sees = scores.visible + row % scores.period * scores.stride;
  return sees < 0 ? 0 : sees < scores.n ? sees : scores.n;
}

/* What x becomes: exp(x - most) factor, or x itself. */
struct softmax_row {
  float largest, factor;
};

/* Of the first n numbers of a row, n >= 1. Exponentials are computed twice (here and when they are stored): that costs
 * less than storing them in between. */
static inline __device__ softmax_row softmax_of(const float *x, int64_t n, bool wide, int lane_at) {
  float largest = -INFINITY;
  for (int64_t i = lane_at; i < n; i += 4 * WARP) {
    quad v = load(x, i, n, wide, -INFINITY);
    for (int j = 0; j < 4; j++)
      largest = fmaxf(largest, v.at[j]);
  }
  largest = max_of_warp(largest);
  quad sums = {{0, 0, 0, 0}};
  for (int64_t i = lane_at; i < n; i += 4 * WARP) {
    quad v = load(x, i, n, wide, 0);
    for (int j = 0; j < 4; j++)
      sums.at[j] += i + j < n ? hec_fast_exp(v.at[j] - largest) : 0;
  }
  return softmax_row{largest, 1 / sum_of_warp(sums)};
}

static __global__ void softmax_rows(hec_scores scores) {
  place p = place_of();
  for (int64_t r = p.row; r < scores.rows; r += p.n_warps) {
    float *x = scores.x + r * scores.n;
    bool wide = is_aligned(x);
    int64_t sees = visible(scores, r);
    softmax_row row = {0, 1};
    if (!scores.linear && sees > 0)
      row = softmax_of(x, sees, wide, p.lane_at);
    /* A linear row is stored over itself as far as it is seen: one path, and its bits stay. */
    for (int64_t i = p.lane_at; i < scores.n; i += 4 * WARP) {
      quad v = load(x, i, scores.n, wide, 0);
      for (int j = 0; j < 4; j++) {
        float value = scores.linear ? v.at[j] : hec_fast_exp(v.at[j] - row.largest) * row.factor;
        v.at[j] = i + j < sees ? value : 0;
      }
      store(x, i, scores.n, wide, v);
    }
  }
}

int32_t hec_cuda_softmax(cudaStream_t stream, const hec_scores *scores) {
  if (scores->rows <= 0 || scores->n <= 0)
    return 0;
  HEC_LAUNCH(softmax_rows, blocks_for(scores->rows, ROWS_PER_BLOCK), THREADS, stream, *scores);
  return launched();
}

/* d_j = p_j (d_j - sum_k p_k d_k). */
static __global__ void softmax_rows_backward(hec_scores scores, float *gradient) {
  place place = place_of();
  for (int64_t r = place.row; r < scores.rows; r += place.n_warps) {
    const float *x = scores.x + r * scores.n;
    float *d = gradient + r * scores.n;
    bool wide = is_aligned(x) && is_aligned(d);
    int64_t sees = visible(scores, r);
    quad sums = {{0, 0, 0, 0}};
    for (int64_t i = place.lane_at; !scores.linear && i < sees; i += 4 * WARP) {
      quad p = load(x, i, sees, wide, 0), v = load(d, i, sees, wide, 0);
      for (int j = 0; j < 4; j++)
        sums.at[j] += p.at[j] * v.at[j];
    }
    float mean = sum_of_warp(sums);
    for (int64_t i = place.lane_at; i < scores.n; i += 4 * WARP) {
      quad p = load(x, i, scores.n, wide, 0), v = load(d, i, scores.n, wide, 0);
      for (int j = 0; j < 4; j++) {
        float value = scores.linear ? v.at[j] : p.at[j] * (v.at[j] - mean);
        v.at[j] = i + j < sees ? value : 0;
      }
      store(d, i, scores.n, wide, v);
    }
  }
}

int32_t hec_cuda_softmax_backward(cudaStream_t stream, const hec_scores *scores, float *d) {
  if (scores->rows <= 0 || scores->n <= 0)
    return 0;
  HEC_LAUNCH(softmax_rows_backward, blocks_for(scores->rows, ROWS_PER_BLOCK), THREADS, stream, *scores, d);
  return launched();
}
