/* See model_oracle.h: definitions written out, O(tokens * parameters) and worse. */
#include "tests/exec/model_oracle.h"
#include "tests/exec/gate_oracle.h"
#include "tests/support/check_main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *zeros(int64_t n) {
  double *x = calloc((size_t)n + 1, sizeof *x);
  ck_assert_ptr_nonnull(x);
  return x;
}

static void normalise(const hec_model *m, const double *x, const double *gain, double *y) {
  double square = 0;
  for (int32_t i = 0; i < m->moe.d_model; i++)
    square += x[i] * x[i];
  for (int32_t i = 0; i < m->moe.d_model; i++)
    y[i] = m->exact ? x[i] : gain[i] * x[i] / sqrt(square / m->moe.d_model + 1e-6);
}

static double column(const double *row, const double *matrix, int32_t n, int32_t width, int32_t j) {
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += row[i] * matrix[(int64_t)i * width + j];
  return sum;
}

static double activation(const hec_model *m, double x) {
  if (m->activation == HEC_RELU)
    return x > 0 ? x : 0;
  if (m->activation == HEC_SILU)
    return x / (1 + exp(-x));
  return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

/* Whether place t of a sequence sees place u <= t under s2, as the kernels of arXiv:2407.17678 write it. */
static bool s2_sees(const hec_moe *moe, int32_t head, int32_t t, int32_t u) {
  int32_t from = t / moe->s2.block, to = u / moe->s2.block;
  return (from - to) * moe->s2.block < moe->s2.local || (to + head + 1) % moe->s2.shards == 0;
}

typedef struct {
  const double *q, *k, *v;
  int32_t layer;
} projected;

/* What token t gets from one head: sum over visible u of P(t, u) v_u. */
static void attend(const hec_oracle *o, const projected *of, int32_t t, int32_t head, double *out) {
  const hec_moe *moe = &o->model->moe;
  int32_t dh = moe->d_head, group = head / (moe->n_heads / moe->n_kv_heads), first = t / moe->seq_len * moe->seq_len;
  int32_t end = moe->attention != HEC_ATTENTION_FULL ? t + 1 : first + moe->seq_len, n = 0;
  bool sharded = moe->attention == HEC_ATTENTION_S2 &&
                 (moe->s2.dense == 0 || (moe->n_layers - 1 - of->layer) % moe->s2.dense != 0);
  end = end > o->tokens ? o->tokens : end;
  double *p = zeros(end - first);
  int32_t *seen = calloc((size_t)(end - first), sizeof *seen);
  ck_assert_ptr_nonnull(seen);
  for (int32_t u = first; u < end; u++) {
    if (sharded && !s2_sees(moe, head, t - first, u - first))
      continue;
    for (int32_t i = 0; i < dh; i++)
      p[n] +=
          of->q[((int64_t)t * moe->n_heads + head) * dh + i] * of->k[((int64_t)u * moe->n_kv_heads + group) * dh + i];
    p[n] /= o->model->exact ? 1 : sqrt((double)dh);
    seen[n++] = u;
  }
  if (!o->model->exact)
    hec_oracle_soften(p, n);
  for (int32_t i = 0; i < dh; i++) {
    out[i] = 0;
    for (int32_t j = 0; j < n; j++)
      out[i] += p[j] * of->v[((int64_t)seen[j] * moe->n_kv_heads + group) * dh + i];
  }
  free(p), free(seen);
}

static void attention(const hec_oracle *o, int32_t layer, const double *params, double *x) {
  const hec_moe *moe = &o->model->moe;
  hec_block_layout at = hec_model_block(o->model);
  int32_t d = moe->d_model, wide = moe->n_heads * moe->d_head, narrow = moe->n_kv_heads * moe->d_head;
  double *q = zeros((int64_t)o->tokens * wide), *k = zeros((int64_t)o->tokens * narrow),
         *v = zeros((int64_t)o->tokens * narrow), *h = zeros(d), *a = zeros(wide);
  for (int32_t t = 0; t < o->tokens; t++) {
    normalise(o->model, x + (int64_t)t * d, params + at.norm1, h);
    for (int32_t j = 0; j < wide; j++)
      q[(int64_t)t * wide + j] = column(h, params + at.q, d, wide, j);
    for (int32_t j = 0; j < narrow; j++) {
      k[(int64_t)t * narrow + j] = column(h, params + at.k, d, narrow, j);
      v[(int64_t)t * narrow + j] = column(h, params + at.v, d, narrow, j);
    }
  }
  for (int32_t t = 0; t < o->tokens; t++) {
    for (int32_t head = 0; head < moe->n_heads; head++)
      attend(o, &(projected){q, k, v, layer}, t, head, a + (int64_t)head * moe->d_head);
    for (int32_t j = 0; j < d; j++)
      x[(int64_t)t * d + j] += column(a, params + at.o, wide, d, j);
  }
  free(q), free(k), free(v), free(h), free(a);
}

/* y += weight * ffn(h). */
static void feed(const hec_model *m, const double *params, int32_t f, const double *h, double weight, double *y) {
  int32_t d = m->moe.d_model;
  int64_t size = (int64_t)d * f;
  double *inner = zeros(f);
  for (int32_t j = 0; j < f; j++) {
    inner[j] = activation(m, column(h, params, d, f, j));
    if (m->moe.n_ffn_matrices == 3)
      inner[j] *= column(h, params + size, d, f, j);
  }
  for (int32_t j = 0; j < d; j++)
    y[j] += weight * column(inner, params + (m->moe.n_ffn_matrices - 1) * size, f, d, j);
  free(inner);
}

/* Tokens of the assignments by expert. */
static int32_t *tokens_of(const hec_oracle *o, const uint32_t *counts, int32_t layer) {
  int32_t n_experts = o->model->n_experts, n = 0, j = 0;
  int32_t *first = calloc(2 * (size_t)n_experts, sizeof *first);
  ck_assert_ptr_nonnull(first);
  if (!o->choices)
    hec_token_sets(&(hec_token_row){counts, n_experts, o->tokens, layer, o->rank}, first, first + n_experts);
  for (int32_t e = 0; e < n_experts; e++)
    n += (int32_t)counts[e];
  int32_t *token = calloc((size_t)n + 1, sizeof *token);
  ck_assert_ptr_nonnull(token);
  for (int32_t e = 0; e < n_experts; e++)
    for (int32_t i = 0; i < (int32_t)counts[e]; i++, j++)
      token[j] = o->choices ? o->choices[(int64_t)layer * o->tokens * o->model->top_k + j] : (first[e] + i) % o->tokens;
  free(first);
  return token;
}

/* Experts of each token among the assignments [T, E]. */
static bool *chosen_of(const hec_oracle *o, const uint32_t *counts, const int32_t *token) {
  const hec_model *m = o->model;
  bool *chosen = calloc((size_t)o->tokens * (size_t)m->n_experts + 1, sizeof *chosen);
  ck_assert_ptr_nonnull(chosen);
  int64_t j = 0;
  for (int32_t e = 0; e < m->n_experts; e++)
    for (uint32_t i = 0; i < counts[e]; i++, j++)
      chosen[token[j] * m->n_experts + e] = true;
  return chosen;
}

static void experts(const hec_oracle *o, int32_t layer, const double *params, const double *own, double *x) {
  const uint32_t *counts = hec_load_row(o->load, layer, o->rank);
  const hec_model *m = o->model;
  hec_block_layout at = hec_model_block(m);
  int32_t d = m->moe.d_model, f = m->moe.d_ffn_shared, n_experts = m->n_experts;
  double *h = zeros((int64_t)o->tokens * d), *p = zeros((int64_t)o->tokens * n_experts);
  for (int32_t t = 0; t < o->tokens; t++) {
    double *row = h + (int64_t)t * d, *affinity = p + (int64_t)t * n_experts;
    normalise(m, x + (int64_t)t * d, params + at.norm2, row);
    hec_oracle_affinities(m, params + at.gate, row, affinity);
    for (int32_t e = 0; o->probability_sums && e < n_experts; e++)
      o->probability_sums[layer * n_experts + e] += hec_oracle_probability(m, affinity, e);
    for (int32_t s = 0; s < m->moe.n_shared_experts; s++)
      feed(m, params + at.shared + (int64_t)s * m->moe.n_ffn_matrices * d * f, f, row, 1, x + (int64_t)t * d);
  }
  int32_t *token = tokens_of(o, counts, layer);
  bool *chosen = chosen_of(o, counts, token);
  int64_t j = 0;
  for (int32_t e = 0; e < n_experts; e++)
    for (uint32_t i = 0; i < counts[e]; i++, j++) {
      int64_t t = token[j];
      double weight = m->exact ? ldexp(1, -(int)((t + j / o->tokens) % 3))
                               : hec_oracle_weight(m, p + t * n_experts, chosen + t * n_experts, e);
      feed(m, own + e * hec_model_expert_size(m), m->moe.d_ffn, h + t * d, weight, x + t * d);
    }
  free(h), free(p), free(chosen), free(token);
}

void hec_oracle_forward(const hec_oracle *o, double *x) {
  int64_t block = hec_model_block(o->model).size, expert = o->model->n_experts * hec_model_expert_size(o->model);
  for (int32_t layer = 0; layer < o->model->n_blocks; layer++) {
    attention(o, layer, o->blocks + layer * block, x);
    experts(o, layer, o->blocks + layer * block, o->experts + layer * expert, x);
  }
}

double hec_oracle_loss(const hec_oracle *o, const double *x, const float *dx) {
  int64_t n = (int64_t)o->tokens * o->model->moe.d_model;
  double loss = 0, *out = zeros(n);
  memcpy(out, x, (size_t)n * sizeof *out);
  hec_oracle_forward(o, out);
  for (int64_t i = 0; i < n; i++)
    loss += out[i] * (double)dx[i];
  free(out);
  return loss;
}

void hec_oracle_random_s2(uint64_t *random, int32_t block_max, hec_moe *moe) {
  moe->attention = HEC_ATTENTION_S2;
  moe->s2.shards = 1 + (int32_t)hec_test_below(random, (uint64_t)moe->n_heads);
  moe->s2.block = 1 + (int32_t)hec_test_below(random, (uint64_t)block_max);
  moe->s2.local = moe->s2.block * (1 + (int32_t)hec_test_below(random, 2));
  moe->s2.dense = (int32_t)hec_test_below(random, 4);
  if (hec_test_below(random, 4) == 0) { /* a window */
    moe->s2.shards = HEC_S2_NO_SHARDS;
    moe->s2.block = 1;
  }
}

hec_model hec_oracle_random_model(uint64_t *random, bool exact) {
  hec_moe moe = {.name = "random", .nonmoe_scale = 1, .dtype_bytes = 2, .micro_batches = 1, .tokens_per_rank = 8};
  moe.n_layers = moe.n_moe_layers = exact ? 1 : 1 + (int32_t)hec_test_below(random, 3);
  moe.d_model = 4 + (int32_t)hec_test_below(random, 14);
  moe.d_ffn = 1 + (int32_t)hec_test_below(random, 20);
  moe.d_ffn_dense = moe.d_ffn;
  moe.d_ffn_shared = 1 + (int32_t)hec_test_below(random, 9);
  moe.n_ffn_matrices = 2 + (int32_t)hec_test_below(random, 2);
  moe.n_experts = 1 + (int32_t)hec_test_below(random, 6);
  moe.top_k = 1 + (int32_t)hec_test_below(random, (uint64_t)moe.n_experts);
  moe.n_shared_experts = (int32_t)hec_test_below(random, 3);
  moe.n_kv_heads = 1 + (int32_t)hec_test_below(random, 2);
  moe.n_heads = moe.n_kv_heads * (1 + (int32_t)hec_test_below(random, 2));
  moe.d_head = 1 + (int32_t)hec_test_below(random, 5);
  moe.seq_len = 1 + (int32_t)hec_test_below(random, 9);
  moe.attention = hec_test_below(random, 2) ? HEC_ATTENTION_FULL : HEC_ATTENTION_CAUSAL;
  if (hec_test_below(random, 3) == 0)
    hec_oracle_random_s2(random, 3, &moe);
  moe.fused_attention = hec_test_below(random, 2);
  hec_model model;
  ck_assert_msg(hec_model_make(&moe, exact, hec_test_random(random), &model) == HEC_OK, "%s", hec_last_error());
  return model;
}

hec_load hec_oracle_random_load(hec_arena *arena, uint64_t *random, const hec_model *model, int32_t n_ranks,
                                int32_t tokens) {
  hec_load load = hec_load_new(arena, model->n_blocks, n_ranks, model->n_experts);
  for (int32_t layer = 0; layer < model->n_blocks; layer++)
    for (int32_t rank = 0; rank < n_ranks; rank++) {
      int32_t n = hec_test_below(random, 6) == 0 ? 0 : tokens * model->top_k;
      for (int32_t i = 0; i < n; i++) {
        uint64_t a = hec_test_below(random, (uint64_t)model->n_experts), b = hec_test_below(random, a + 1);
        hec_load_row(&load, layer, rank)[b]++; /* lower experts get more */
      }
    }
  return load;
}
