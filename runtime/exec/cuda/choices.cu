/* Assignments: rows of tokens to and from the rows of experts. Sums over the assignments of a token run over lists by
 * token, in ascending order, one thread to a number. That is the order of the CPU, without atomics. A warp has a row
 * of d floats, in fours where they are aligned. O(n d), weigh O(n), choice_gradient O(n_tokens n_experts) + O(n
 * n_experts). */
#include "runtime/exec/cuda/kernels.h"

#include "runtime/exec/cuda/pieces.h"

/* ---- Weights ---- */

static __global__ void weigh_each(hec_cuda_choices c, const float *probabilities, bool exact) {
  int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; j < c.n; j += step) {
    int64_t token = c.token[j], turn = (token + j / c.n_tokens) % 3;
    float power = turn == 0 ? 1.0F : turn == 1 ? 0.5F : 0.25F;
    c.weight[j] = exact ? power : probabilities[token * c.n_experts + c.expert[j]];
    c.weight_grad[j] = 0;
  }
}

int32_t hec_cuda_weigh(cudaStream_t stream, const hec_cuda_choices *c, const float *probabilities, bool exact) {
  if (c->n <= 0)
    return 0;
  HEC_LAUNCH(weigh_each, blocks_for(c->n, THREADS), THREADS, stream, *c, probabilities, exact);
  return launched();
}

/* A thread to a number of dp, which looks through the few assignments of its token. */
static __global__ void choice_gradient_each(hec_cuda_choices c, float *dp) {
  int64_t n = static_cast<int64_t>(c.n_tokens) * c.n_experts, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    int64_t token = i / c.n_experts, expert = i % c.n_experts;
    float sum = c.balance ? c.balance[expert] : 0;
    for (int32_t k = c.token_at[token]; k < c.token_at[token + 1]; k++)
      if (c.expert[c.by_token[k]] == expert)
        sum += c.weight_grad[c.by_token[k]];
    dp[i] = sum;
  }
}

int32_t hec_cuda_choice_gradient(cudaStream_t stream, const hec_cuda_choices *c, float *dp) {
  int64_t n = static_cast<int64_t>(c->n_tokens) * c->n_experts;
  if (n <= 0)
    return 0;
  HEC_LAUNCH(choice_gradient_each, blocks_for(n, THREADS), THREADS, stream, *c, dp);
  return launched();
}

/* ---- Rows ---- */

static __global__ void permute_rows(hec_cuda_choices c, const float *h2) {
  place p = place_of();
  for (int64_t r = p.row; r < c.n; r += p.n_warps) {
    const float *from = h2 + static_cast<int64_t>(c.token[r]) * c.d;
    float *to = c.row[r];
    bool wide = is_aligned(from) && is_aligned(to);
    for (int64_t i = p.lane_at; i < c.d; i += 4 * WARP)
      store(to, i, c.d, wide, load(from, i, c.d, wide, 0));
  }
}

int32_t hec_cuda_permute(cudaStream_t stream, const hec_cuda_choices *c, const float *h2) {
  if (c->n <= 0 || c->d <= 0)
    return 0;
  HEC_LAUNCH(permute_rows, blocks_for(c->n, ROWS_PER_BLOCK), THREADS, stream, *c, h2);
  return launched();
}

/* Each lane reads its numbers of output before it writes the same ones of row, which may be in the same place. */
static __global__ void uncombine_rows(hec_cuda_choices c, const float *dx) {
  place p = place_of();
  for (int64_t r = p.row; r < c.n; r += p.n_warps) {
    const float *gradient = dx + static_cast<int64_t>(c.token[r]) * c.d, *output = c.output[r];
    float *row = c.row[r], weight = c.weight[r];
    bool wide = is_aligned(gradient) && is_aligned(output) && is_aligned(row);
    quad sums = {{0, 0, 0, 0}};
    for (int64_t i = p.lane_at; i < c.d; i += 4 * WARP) {
      quad g = load(gradient, i, c.d, wide, 0), o = load(output, i, c.d, wide, 0);
      for (int j = 0; j < 4; j++) {
        sums.at[j] += g.at[j] * o.at[j];
        g.at[j] = weight * g.at[j];
      }
      store(row, i, c.d, wide, g);
    }
    float sum = sum_of_warp(sums);
    if (p.lane_at == 0)
      c.weight_grad[r] = sum;
  }
}

int32_t hec_cuda_uncombine(cudaStream_t stream, const hec_cuda_choices *c, const float *dx) {
  if (c->n <= 0)
    return 0;
  HEC_LAUNCH(uncombine_rows, blocks_for(c->n, ROWS_PER_BLOCK), THREADS, stream, *c, dx);
  return launched();
}

static __global__ void gather_rows(hec_cuda_choices c, float *to) {
  place p = place_of();
  for (int64_t t = p.row; t < c.n_tokens; t += p.n_warps) {
    int32_t begin = c.token_at[t], end = c.token_at[t + 1];
    float *x = to + t * c.d;
    bool wide = is_aligned(x);
    for (int32_t k = begin; k < end; k++)
      wide = wide && is_aligned(c.row[c.by_token[k]]);
    for (int64_t i = p.lane_at; begin < end && i < c.d; i += 4 * WARP) {
      quad sum = load(x, i, c.d, wide, 0);
      for (int32_t k = begin; k < end; k++) {
        int32_t j = c.by_token[k];
        quad term = load(c.row[j], i, c.d, wide, 0);
        for (int m = 0; m < 4; m++)
          sum.at[m] += c.weight ? c.weight[j] * term.at[m] : term.at[m];
      }
      store(x, i, c.d, wide, sum);
    }
  }
}

int32_t hec_cuda_gather(cudaStream_t stream, const hec_cuda_choices *c, float *x) {
  if (c->n <= 0 || c->d <= 0)
    return 0;
  HEC_LAUNCH(gather_rows, blocks_for(c->n_tokens, ROWS_PER_BLOCK), THREADS, stream, *c, x);
  return launched();
}
