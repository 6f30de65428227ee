/* Copies, factors, Adam and additions, over lists (tiles.h). Additions to the same numbers are one sum. A thread adds
 * all its terms in the order of the list. So what is added to is read and written once. */
#include "runtime/exec/cuda/kernels.h"

#include "runtime/exec/cuda/tiles.h"

#include <math.h>

/* ---- Copies, factors, Adam ---- */

struct copy_piece {
  float *to;
  const float *from;
  __device__ void one(int64_t i) const { to[i] = from[i]; }
  __device__ void four(int64_t i) const { quad_at(to + i) = quad_at(from + i); }
};

int32_t hec_cuda_copy(cudaStream_t stream, const hec_piece *list, int32_t n) {
  return start_list<copy_piece>(stream, list, n, [](const hec_piece &of, copy_piece *piece, range *r) {
    *piece = copy_piece{of.to, of.from};
    *r = range_of(of.n, of.to, same_offset(of.to, of.from));
  });
}

struct scale_piece {
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

int32_t hec_cuda_scale(cudaStream_t stream, float *x, float factor, int64_t n) {
  return start_list<scale_piece>(stream, &n, 1, [x, factor](int64_t all, scale_piece *piece, range *r) {
    *piece = scale_piece{x, factor};
    *r = range_of(all, x, true);
  });
}

/* hec_math_adam, operation for operation; rest = 1 - beta in float32, as there. */
struct adam_piece {
  float *params, *grads, *first, *second;
  float beta1, beta2, rest1, rest2, rate, correct, epsilon;
  bool clear;
  __device__ void update(float *param, float *grad, float *m, float *v) const {
    *m = beta1 * *m + rest1 * *grad;
    *v = beta2 * *v + rest2 * (*grad * *grad);
    *param -= rate * *m / (sqrtf(*v * correct) + epsilon);
    *grad = clear ? 0 : *grad;
  }
  __device__ void one(int64_t i) const {
    float grad = grads[i];
    update(params + i, &grad, first + i, second + i);
    if (clear)
      grads[i] = grad;
  }
  __device__ void four(int64_t i) const {
    quad param = quad_at(params + i), grad = quad_at(grads + i), m = quad_at(first + i), v = quad_at(second + i);
    for (int j = 0; j < 4; j++)
      update(&param.at[j], &grad.at[j], &m.at[j], &v.at[j]);
    quad_at(params + i) = param;
    quad_at(first + i) = m;
    quad_at(second + i) = v;
    if (clear)
      quad_at(grads + i) = grad;
  }
};

int32_t hec_cuda_adam(cudaStream_t stream, const hec_adam *adam, hec_adam_step by, const hec_moments *list, int32_t n) {
  return start_list<adam_piece>(stream, list, n, [adam, by](const hec_moments &of, adam_piece *piece, range *r) {
    *piece = adam_piece{of.params,       of.grads,        of.first, of.second,  adam->beta1,   adam->beta2,
                        1 - adam->beta1, 1 - adam->beta2, by.rate,  by.correct, adam->epsilon, of.clear};
    *r = range_of(of.n, of.params,
                  same_offset(of.params, of.grads) && same_offset(of.params, of.first) &&
                      same_offset(of.params, of.second));
  });
}

/* ---- Additions ---- */

/* to[i] += term_0[i] + term_1[i] + ..., from the left. */
struct sum {
  float *to;
  range r;
  int64_t tile_at;
  int16_t term_at, n_terms; /* in `terms` of the batch */
  bool wide;
};

/* What one launch holds. */
enum { SUMS_MAX = 40, TERMS_MAX = 240 };
struct sum_batch {
  sum sums[SUMS_MAX]; /* ascending by tile_at */
  const float *terms[TERMS_MAX];
  int64_t n_tiles;
  int32_t n_sums;
};
static_assert(sizeof(sum_batch) <= PARAMETER_BYTES, "parameters of a kernel");

struct sum_piece {
  float *to;
  const float *const *terms;
  int n_terms;
  __device__ void one(int64_t i) const {
    float v = to[i];
    for (int k = 0; k < n_terms; k++)
      v += terms[k][i];
    to[i] = v;
  }
  __device__ void four(int64_t i) const {
    quad v = quad_at(to + i);
    for (int k = 0; k < n_terms; k++) {
      quad term = quad_at(terms[k] + i);
      for (int j = 0; j < 4; j++)
        v.at[j] += term.at[j];
    }
    quad_at(to + i) = v;
  }
};

static __global__ void add_tiles(const __grid_constant__ sum_batch batch) {
  for (int64_t tile = blockIdx.x; tile < batch.n_tiles; tile += gridDim.x) {
    const sum &s = entry_of(batch.sums, batch.n_sums, tile);
    work_on(sum_piece{s.to, batch.terms + s.term_at, s.n_terms}, s.r, tile - s.tile_at);
  }
}

/* A batch while it is filled: which of its sums a term belongs to is known at once, where it stands only at the end. */
struct filling {
  sum_batch batch;
  const float *term[TERMS_MAX]; /* [n] in the order of the list */
  int32_t sum_of[TERMS_MAX];
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
    one->r = range_of(one->r.n, one->to, one->wide);
    one->tile_at = n_tiles;
    one->term_at = static_cast<int16_t>(term_at);
    n_tiles += tiles_of(one->r);
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
 * bounds. So it must come in a later launch. */
static int32_t sum_for(const sum_batch *batch, const hec_piece *a) {
  for (int32_t s = 0; s < batch->n_sums; s++) {
    const sum *one = &batch->sums[s];
    if (one->to == a->to && one->r.n == a->n)
      return s;
    if (a->to < one->to + one->r.n && one->to < a->to + a->n)
      return -1;
  }
  return batch->n_sums;
}

/* O(list * SUMS_MAX) on the host, mostly comparisons of neighbours in a cache. */
int32_t hec_cuda_add(cudaStream_t stream, const hec_piece *list, int32_t n) {
  filling f;
  f.n = f.batch.n_sums = 0;
  for (int32_t i = 0; i < n; i++) {
    if (list[i].n <= 0)
      continue;
    int32_t s = sum_for(&f.batch, &list[i]);
    if (s < 0 || s == SUMS_MAX || f.n == TERMS_MAX) {
      int32_t error = start_sums(stream, &f);
      if (error != 0)
        return error;
      s = 0;
    }
    sum *one = &f.batch.sums[s];
    if (s == f.batch.n_sums) {
      *one = sum{list[i].to, {list[i].n, 0, 0}, 0, 0, 0, true};
      f.batch.n_sums++;
    }
    one->n_terms++;
    one->wide = one->wide && same_offset(one->to, list[i].from);
    f.term[f.n] = list[i].from;
    f.sum_of[f.n++] = s;
  }
  return start_sums(stream, &f);
}

/* ---- For whom ---- */

int32_t hec_cuda_capability_min(void) {
  static const int32_t compiled_for[] = {HEC_ARCHITECTURES};
  return compiled_for[0] / 10;
}
