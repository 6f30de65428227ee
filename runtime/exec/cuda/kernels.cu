/* The arithmetic of math.c on a device. All of it is bound by memory, so what counts is that every byte is moved once and
 * in wide pieces:
 *
 *   element by element   a grid-stride loop over pieces of four floats (128 bits a thread), which must be aligned in all
 *                        arrays at once: where all have the same offset, the floats before the first aligned one and
 *                        after the last go one by one, else all do. Each result depends on its own index only, so who
 *                        computes it does not matter, and the compiler is told not to contract a * b + c (plugin.cmake):
 *                        the bytes are those of the CPU
 *   additions            many in one launch, cut into tiles of equal size that the blocks take in turn. Those that go to
 *                        the same numbers are one sum, of which each thread adds all terms in the order of the list
 *   rows                 a warp to a row: lane l has the numbers i with (i / 4) mod 32 = l, in four partial sums by
 *                        i mod 4, which a butterfly of shuffles adds up. Neither alignment nor the size of the grid
 *                        changes the order. No shared memory, no barrier
 *
 * Indices are 64 bits wide: 16 GiB hold more floats than 32 bits count. The size of a grid is capped and the loops do the
 * rest, so that any size is one launch. */
#include "runtime/exec/cuda/kernels.h"

#include "runtime/exec/cuda/launch.h"
#include "runtime/exec/fast_exp.h"

#include <math.h>

enum { THREADS = 256, WARP = 32, ROWS_PER_BLOCK = THREADS / WARP };
/* Blocks of a launch, at most: eight to an SM (that many threads fit), on more SMs than any device has (H200: 132). */
static const int64_t BLOCKS_MOST = 2048;

/* Loaded and stored by one instruction, where it is aligned to its size. */
struct alignas(16) quad {
  float at[4];
};

static __device__ quad &quad_at(float *x) {
  return *reinterpret_cast<quad *>(x);
}

static __device__ const quad &quad_at(const float *x) {
  return *reinterpret_cast<const quad *>(x);
}

static __host__ __device__ bool is_aligned(const float *x) {
  return reinterpret_cast<uintptr_t>(x) % sizeof(quad) == 0;
}

/* For `items` pieces of work of `per_block` each. */
static unsigned blocks_for(int64_t items, int64_t per_block) {
  int64_t blocks = (items + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST);
}

/* Of the launch before it. */
static int32_t launched() {
  return static_cast<int32_t>(cudaGetLastError());
}

/* ---- Element by element ---- */

/* Elements [head, head + 4 quads) go in fours, the other ones of [0, n) alone. */
struct range {
  int64_t n, head, quads;
};

static bool same_offset(const float *a, const float *b) {
  return (reinterpret_cast<uintptr_t>(a) - reinterpret_cast<uintptr_t>(b)) % sizeof(quad) == 0;
}

/* For a call on these arrays; the same one may be given again. */
static range range_of(int64_t n, const float *a, const float *b, const float *c, const float *d) {
  range r = {n, 0, 0};
  if (same_offset(a, b) && same_offset(a, c) && same_offset(a, d)) {
    size_t past = reinterpret_cast<uintptr_t>(a) % sizeof(quad); /* bytes behind the last aligned place */
    int64_t head = past ? static_cast<int64_t>((sizeof(quad) - past) / sizeof(float)) : 0;
    r.head = head < n ? head : n;
    r.quads = (n - r.head) / 4;
  }
  return r;
}

template <typename Operation> static __global__ void each(Operation operation, range r) {
  int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < r.quads; i += step)
    operation.four(r.head + 4 * i);
  for (int64_t i = first; i < r.n - 4 * r.quads; i += step)
    operation.one(i < r.head ? i : i + 4 * r.quads);
}

template <typename Operation>
static int32_t start_each(cudaStream_t stream, const Operation &operation, const range &r) {
  int64_t alone = r.n - 4 * r.quads, items = r.quads > alone ? r.quads : alone;
  if (r.n <= 0)
    return 0; /* a grid of no blocks is an error */
  HEC_LAUNCH(each, blocks_for(items, THREADS), THREADS, stream, operation, r);
  return launched();
}

struct axpy_operation {
  float *to;
  const float *from;
  float factor;
  __device__ void one(int64_t i) const { to[i] += factor * from[i]; }
  __device__ void four(int64_t i) const {
    quad sum = quad_at(to + i), term = quad_at(from + i);
    for (int j = 0; j < 4; j++)
      sum.at[j] += factor * term.at[j];
    quad_at(to + i) = sum;
  }
};

struct scale_operation {
  float *x;
  float factor;
  __device__ void one(int64_t i) const { x[i] *= factor; }
  __device__ void four(int64_t i) const {
    quad v = quad_at(x + i);
    for (int j = 0; j < 4; j++)
      v.at[j] *= factor;
    quad_at(x + i) = v;
  }
};

/* hec_math_adam, operation for operation; rest = 1 - beta in float32, as there. */
struct adam_operation {
  hec_cuda_adam adam;
  float rest1, rest2;
  __device__ void update(float *param, float grad, float *first, float *second) const {
    float m = adam.beta1 * *first + rest1 * grad;
    float v = adam.beta2 * *second + rest2 * (grad * grad);
    *first = m;
    *second = v;
    *param -= adam.rate * m / (sqrtf(v * adam.correct) + adam.epsilon);
  }
  __device__ void one(int64_t i) const { update(adam.params + i, adam.grads[i], adam.first + i, adam.second + i); }
  __device__ void four(int64_t i) const {
    quad param = quad_at(adam.params + i), grad = quad_at(adam.grads + i);
    quad first = quad_at(adam.first + i), second = quad_at(adam.second + i);
    for (int j = 0; j < 4; j++)
      update(&param.at[j], grad.at[j], &first.at[j], &second.at[j]);
    quad_at(adam.params + i) = param;
    quad_at(adam.first + i) = first;
    quad_at(adam.second + i) = second;
  }
};

/* The runtime's own are as fast as kernels can be, and know of memory of other devices. Zero bytes are 0.0F. */
int32_t hec_cuda_zero(cudaStream_t stream, float *x, int64_t n) {
  if (n <= 0)
    return 0;
  return static_cast<int32_t>(cudaMemsetAsync(x, 0, static_cast<size_t>(n) * sizeof *x, stream));
}

int32_t hec_cuda_copy(cudaStream_t stream, float *to, const float *from, int64_t n) {
  if (n <= 0)
    return 0;
  size_t bytes = static_cast<size_t>(n) * sizeof *to;
  return static_cast<int32_t>(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

int32_t hec_cuda_axpy(cudaStream_t stream, float *to, float factor, const float *from, int64_t n) {
  return start_each(stream, axpy_operation{to, from, factor}, range_of(n, to, from, to, from));
}

int32_t hec_cuda_scale(cudaStream_t stream, float *x, float factor, int64_t n) {
  return start_each(stream, scale_operation{x, factor}, range_of(n, x, x, x, x));
}

int32_t hec_cuda_adam_apply(cudaStream_t stream, const hec_cuda_adam *adam) {
  adam_operation operation = {*adam, 1 - adam->beta1, 1 - adam->beta2};
  return start_each(stream, operation, range_of(adam->n, adam->params, adam->grads, adam->first, adam->second));
}

/* ---- Additions ---- */

/* What one launch holds: its parameters go with it (the host's list may go at once, nothing is allocated or copied), and
 * 4 KB of them are possible everywhere. */
enum { SUMS_MOST = 64, TERMS_MOST = 240, TILE = 4 * 4 * THREADS };

/* to[i] += term_0[i] + term_1[i] + ..., from the left. */
struct sum {
  float *to;
  int64_t n, tile_at;       /* its first tile */
  int16_t term_at, n_terms; /* in `terms` of the batch */
  bool wide;                /* all of its arrays are aligned */
};

struct sum_batch {
  sum sums[SUMS_MOST]; /* ascending by tile_at */
  const float *terms[TERMS_MOST];
  int64_t n_tiles;
  int32_t n_sums;
};
static_assert(sizeof(sum_batch) <= 4096, "parameters of a kernel");

/* The last one that begins at or before the tile. */
static __device__ const sum &sum_of_tile(const sum_batch &batch, int64_t tile) {
  int low = 0, high = batch.n_sums - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (batch.sums[middle].tile_at <= tile)
      low = middle;
    else
      high = middle - 1;
  }
  return batch.sums[low];
}

static __global__ void add_tiles(const __grid_constant__ sum_batch batch) {
  for (int64_t tile = blockIdx.x; tile < batch.n_tiles; tile += gridDim.x) {
    const sum &s = sum_of_tile(batch, tile);
    const float *const *terms = batch.terms + s.term_at;
    int64_t begin = (tile - s.tile_at) * TILE, end = begin + TILE < s.n ? begin + TILE : s.n;
    int64_t quads_end = s.wide ? begin + (end - begin) / 4 * 4 : begin;
    for (int64_t i = begin + 4 * threadIdx.x; i < quads_end; i += 4 * THREADS) {
      quad v = quad_at(s.to + i);
      for (int k = 0; k < s.n_terms; k++) {
        quad term = quad_at(terms[k] + i);
        for (int j = 0; j < 4; j++)
          v.at[j] += term.at[j];
      }
      quad_at(s.to + i) = v;
    }
    for (int64_t i = quads_end + threadIdx.x; i < end; i += THREADS) {
      float v = s.to[i];
      for (int k = 0; k < s.n_terms; k++)
        v += terms[k][i];
      s.to[i] = v;
    }
  }
}

/* A batch while it is filled: which of its sums a term belongs to is known at once, where it stands only at the end. */
struct filling {
  sum_batch batch;
  const float *term[TERMS_MOST]; /* [n] in the order of the list */
  int32_t sum_of[TERMS_MOST];
  int32_t n;
};

static int32_t start_sums(cudaStream_t stream, filling *f) {
  sum_batch *batch = &f->batch;
  int64_t n_tiles = 0;
  int term_at = 0;
  if (f->n == 0)
    return 0;
  for (int32_t s = 0; s < batch->n_sums; s++) {
    sum *one = &batch->sums[s];
    one->tile_at = n_tiles;
    one->term_at = static_cast<int16_t>(term_at);
    n_tiles += (one->n + TILE - 1) / TILE;
    term_at += one->n_terms;
    one->n_terms = 0;
  }
  for (int32_t i = 0; i < f->n; i++) {
    sum *one = &batch->sums[f->sum_of[i]];
    batch->terms[one->term_at + one->n_terms++] = f->term[i];
  }
  batch->n_tiles = n_tiles;
  HEC_LAUNCH(add_tiles, blocks_for(n_tiles, 1), THREADS, stream, *batch);
  f->n = batch->n_sums = 0;
  return launched();
}

/* The sum of the batch that the addition belongs to: n_sums for a new one; -1: it shares numbers with one that has other
 * bounds, so it must come in a later launch. */
static int32_t sum_for(const sum_batch *batch, const hec_cuda_addition *a) {
  for (int32_t s = 0; s < batch->n_sums; s++) {
    const sum *one = &batch->sums[s];
    if (one->to == a->to && one->n == a->n)
      return s;
    if (a->to < one->to + one->n && one->to < a->to + a->n)
      return -1;
  }
  return batch->n_sums;
}

/* O(list * SUMS_MOST) on the host, mostly comparisons of neighbours in a cache. */
int32_t hec_cuda_add(cudaStream_t stream, const hec_cuda_addition *list, int32_t n) {
  filling f;
  f.n = f.batch.n_sums = 0;
  for (int32_t i = 0; i < n; i++) {
    if (list[i].n <= 0)
      continue;
    int32_t s = sum_for(&f.batch, &list[i]);
    if (s < 0 || s == SUMS_MOST || f.n == TERMS_MOST) {
      int32_t error = start_sums(stream, &f);
      if (error != 0)
        return error;
      s = 0;
    }
    sum *one = &f.batch.sums[s];
    if (s == f.batch.n_sums) {
      *one = sum{list[i].to, list[i].n, 0, 0, 0, is_aligned(list[i].to)};
      f.batch.n_sums++;
    }
    one->n_terms++;
    one->wide = one->wide && is_aligned(list[i].from);
    f.term[f.n] = list[i].from;
    f.sum_of[f.n++] = s;
  }
  return start_sums(stream, &f);
}

/* ---- Rows ---- */

/* Four numbers of a row of n from i on, `fill` behind its end. */
static __device__ quad load(const float *row, int64_t i, int64_t n, bool wide, float fill) {
  quad v;
  if (wide && i + 4 <= n)
    return quad_at(row + i);
  for (int j = 0; j < 4; j++)
    v.at[j] = i + j < n ? row[i + j] : fill;
  return v;
}

static __device__ void store(float *row, int64_t i, int64_t n, bool wide, const quad &v) {
  if (wide && i + 4 <= n) {
    quad_at(row + i) = v;
    return;
  }
  for (int j = 0; j < 4 && i + j < n; j++)
    row[i + j] = v.at[j];
}

/* Every lane gets the same bits: at each step both lanes of a pair add the same two numbers. */
static __device__ float sum_of_warp(const quad &partial) {
  float sum = (partial.at[0] + partial.at[2]) + (partial.at[1] + partial.at[3]);
  for (int width = WARP / 2; width > 0; width /= 2)
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, width);
  return sum;
}

static __device__ float most_of_warp(float most) {
  for (int width = WARP / 2; width > 0; width /= 2)
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFU, most, width));
  return most;
}

/* This warp's first row, how many warps there are, and the first number of this lane in a row. */
struct place {
  int64_t row, n_warps;
  int lane_at;
};
static __device__ place place_of() {
  return place{static_cast<int64_t>(blockIdx.x) * ROWS_PER_BLOCK + threadIdx.x / WARP,
               static_cast<int64_t>(gridDim.x) * ROWS_PER_BLOCK, 4 * static_cast<int>(threadIdx.x % WARP)};
}

static __global__ void norm_rows(hec_cuda_norm norm) {
  place p = place_of();
  for (int64_t r = p.row; r < norm.rows; r += p.n_warps) {
    const float *x = norm.x + r * norm.d;
    float *y = norm.y + r * norm.d;
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

int32_t hec_cuda_norm_apply(cudaStream_t stream, const hec_cuda_norm *norm) {
  if (norm->rows <= 0)
    return 0;
  HEC_LAUNCH(norm_rows, blocks_for(norm->rows, ROWS_PER_BLOCK), THREADS, stream, *norm);
  return launched();
}

/* What x becomes: exp(x - most) factor, or x itself. */
struct softmax_row {
  float most, factor;
};

/* Of the first n numbers of a row, n >= 1. Exponentials are computed twice (here and when they are stored): that costs
 * less than storing them in between. */
static __device__ softmax_row softmax_of(const float *x, int64_t n, bool wide, int lane_at) {
  float most = -INFINITY;
  for (int64_t i = lane_at; i < n; i += 4 * WARP) {
    quad v = load(x, i, n, wide, -INFINITY);
    for (int j = 0; j < 4; j++)
      most = fmaxf(most, v.at[j]);
  }
  most = most_of_warp(most);
  quad sums = {{0, 0, 0, 0}};
  for (int64_t i = lane_at; i < n; i += 4 * WARP) {
    quad v = load(x, i, n, wide, 0);
    for (int j = 0; j < 4; j++)
      sums.at[j] += i + j < n ? hec_fast_exp(v.at[j] - most) : 0;
  }
  return softmax_row{most, 1 / sum_of_warp(sums)};
}

static __global__ void softmax_rows(hec_cuda_softmax softmax) {
  place p = place_of();
  for (int64_t r = p.row; r < softmax.rows; r += p.n_warps) {
    float *x = softmax.x + r * softmax.n;
    bool wide = is_aligned(x);
    int64_t sees = softmax.visible + r % softmax.period * softmax.stride;
    sees = sees < 0 ? 0 : sees < softmax.n ? sees : softmax.n;
    softmax_row row = {0, 1};
    if (!softmax.linear && sees > 0)
      row = softmax_of(x, sees, wide, p.lane_at);
    /* A linear row is stored over itself as far as it is seen: one path, and its bits stay. */
    for (int64_t i = p.lane_at; i < softmax.n; i += 4 * WARP) {
      quad v = load(x, i, softmax.n, wide, 0);
      for (int j = 0; j < 4; j++) {
        float value = softmax.linear ? v.at[j] : hec_fast_exp(v.at[j] - row.most) * row.factor;
        v.at[j] = i + j < sees ? value : 0;
      }
      store(x, i, softmax.n, wide, v);
    }
  }
}

int32_t hec_cuda_softmax_apply(cudaStream_t stream, const hec_cuda_softmax *softmax) {
  if (softmax->rows <= 0 || softmax->n <= 0)
    return 0;
  HEC_LAUNCH(softmax_rows, blocks_for(softmax->rows, ROWS_PER_BLOCK), THREADS, stream, *softmax);
  return launched();
}

/* ---- For whom ---- */

int32_t hec_cuda_capability_min(void) {
  static const int32_t compiled_for[] = {HEC_ARCHITECTURES};
  return compiled_for[0] / 10;
}
