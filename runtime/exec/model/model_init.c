/* Initial values and data: functions of (seed, what, where) alone, made of integers and + * only. So every rank of
 * every machine makes the same bits.
 *
 * Random numbers are counted, not drawn. Value i of stream (seed, what, a, b, c) is a hash (splitmix64's finaliser,
 * Steele et al., OOPSLA 2014) of key + i * golden ratio. A normal is the sum of the four 16-bit parts of one hash,
 * centred and scaled to variance 1. That is Irwin-Hall: tails end at 3.5 sigma, which serves here, and no libm is
 * asked.
 *
 * Random mode: matrices of n rows have variance 1 / n. Those that write into the stream (Wo, the experts' last) are
 * smaller by sqrt(2 blocks), as in GPT-2 (Radford et al.). So the stream stays of order 1. Gains are near 1, and data
 * is normal.
 *
 * Exact mode: every nonzero is +1 or -1 and there are few, so that sums stay short (reference.h gives the bound):
 *     x, dx      one in eight elements of a token, at least two
 *     Wq         one per row;  Wk the same place (in its group) in every second row, so that queries meet keys;
 *     Wv, Wo     one per row in one row of four
 *     W1, Wg, Wu one per column;  the last matrix one per row in min(d, f) rows
 *     the gate's Wg one per row (it has no gradient); g1, g2 are ones (not used) */
#include "runtime/exec/model/gate.h"
#include "runtime/exec/model/model_parts.h"
#include "runtime/exec/train/language.h"

#include <string.h>

enum { WHAT_BLOCK = 1, WHAT_EXPERT, WHAT_INPUT, WHAT_OUTPUT_GRADIENT, WHAT_ENDS, WHAT_WINDOW, WHAT_CHOICE };

static const uint64_t golden = 0x9E3779B97F4A7C15U;

static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

static uint64_t key_of(uint64_t seed, int what, int64_t a, int64_t b, int64_t c) {
  uint64_t key = mix(seed + golden * (uint64_t)what);
  key = mix(key ^ (golden * ((uint64_t)a + 1)));
  key = mix(key ^ (golden * ((uint64_t)b + 1)));
  return mix(key ^ (golden * ((uint64_t)c + 1)));
}

static uint64_t value_at(uint64_t key, int64_t i) {
  return mix(key + golden * ((uint64_t)i + 1));
}

static float normal_at(uint64_t key, int64_t i) {
  uint64_t z = value_at(key, i);
  int32_t sum = (int32_t)(z & 0xFFFF) + (int32_t)(z >> 16 & 0xFFFF) + (int32_t)(z >> 32 & 0xFFFF) + (int32_t)(z >> 48);
  return (float)(sum - 2 * 0xFFFF) * (1.7320508F / 65536);
}

static void fill_normal(uint64_t key, float mean, float deviation, float *to, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    to[i] = mean + deviation * normal_at(key, i);
}

/* 1 / sqrt(n) by Newton's iteration in double: the same bits everywhere. */
static float inverse_root(double n) {
  double root = n > 1 ? n : 1;
  for (int i = 0; i < 64; i++)
    root = (root + n / root) / 2;
  return (float)(1 / root);
}

static float sign_of(uint64_t hash) {
  return hash >> 63 ? 1 : -1;
}

static void zero(float *to, int64_t n) {
  if (n > 0)
    memset(to, 0, (size_t)n * sizeof *to);
}

/* ---- Random mode ---- */

static void random_ffn(const hec_model *model, uint64_t key, int32_t f, float *params) {
  int64_t d = model->moe.d_model, first = (int64_t)(model->moe.n_ffn_matrices - 1) * d * f;
  fill_normal(key, 0, inverse_root((double)d), params, first);
  fill_normal(mix(key), 0, inverse_root(2.0 * hec_model_whole_blocks(model) * f), params + first, d * f);
}

static void random_block(const hec_model *model, uint64_t key, float *params) {
  hec_model_widths w = hec_model_widths_of(model);
  hec_block_layout at = hec_model_block(model);
  float in = inverse_root((double)w.d);
  fill_normal(key + 1, 1, 0.125F, params + at.norm1, w.d);
  fill_normal(key + 2, 0, in, params + at.q, at.o - at.q);
  fill_normal(key + 3, 0, inverse_root(2.0 * hec_model_whole_blocks(model) * w.q), params + at.o, at.norm1 - at.o);
  fill_normal(key + 4, 1, 0.125F, params + at.norm2, w.d);
  fill_normal(key + 5, 0, in, params + at.gate, at.shared - at.gate);
  if (model->gate->init)
    model->gate->init(model, params + at.gate);
}

/* ---- Exact mode ---- */

/* One nonzero in each column of [rows, columns]. */
static void one_per_column(uint64_t key, int32_t rows, int32_t columns, float *matrix) {
  for (int32_t c = 0; c < columns; c++) {
    uint64_t z = value_at(key, c);
    matrix[(int64_t)(z % (uint32_t)rows) * columns + c] = sign_of(z);
  }
}

/* One nonzero in every step-th row. */
static void one_per_row(uint64_t key, int32_t rows, int32_t columns, int32_t step, float *matrix) {
  for (int32_t r = 0; r < rows; r += step) {
    uint64_t z = value_at(key, r);
    matrix[(int64_t)r * columns + (int64_t)(z % (uint32_t)columns)] = sign_of(z);
  }
}

static void exact_ffn(const hec_model *model, uint64_t key, int32_t f, float *params) {
  int32_t d = model->moe.d_model, last = model->moe.n_ffn_matrices - 1;
  zero(params, hec_ffn_size(model, f));
  for (int32_t place = 0; place < last; place++)
    one_per_column(key + (uint64_t)place, d, f, params + (int64_t)place * d * f);
  one_per_row(key + 2, f, d, f > d ? (f + d - 1) / d : 1, params + (int64_t)last * d * f);
}

static void exact_query_key(const hec_model_widths *w, uint64_t key, float *query, float *keys) {
  for (int32_t r = 0; r < w->d; r++) {
    uint64_t z = value_at(key, r);
    int32_t column = (int32_t)(z % (uint32_t)w->q), head = column / w->head;
    query[(int64_t)r * w->q + column] = sign_of(z);
    if (r % 2 == 0)
      keys[(int64_t)r * w->kv + head / w->per_group * w->head + column % w->head] = sign_of(mix(z));
  }
}

static void exact_block(const hec_model *model, uint64_t key, float *params) {
  hec_model_widths w = hec_model_widths_of(model);
  hec_block_layout at = hec_model_block(model);
  zero(params, at.shared);
  for (int32_t i = 0; i < w.d; i++)
    params[at.norm1 + i] = params[at.norm2 + i] = 1;
  exact_query_key(&w, key + 1, params + at.q, params + at.k);
  one_per_row(key + 2, w.d, w.kv, 4, params + at.v);
  one_per_row(key + 3, w.q, w.d, 4, params + at.o);
  one_per_row(key + 4, w.d, w.experts, 1, params + at.gate);
}

/* Nonzeros in a row of d: one in each of n equal stretches. */
static void exact_row(uint64_t hash, int32_t d, float *row) {
  int32_t n = d / 8 > 2 ? d / 8 : 2, stretch = d / n;
  for (int32_t i = 0; i < n; i++) {
    uint64_t z = value_at(hash, i);
    row[i * stretch + (int32_t)(z % (uint32_t)stretch)] = sign_of(z);
  }
}

/* ---- What the header declares ---- */

void hec_model_init_block(const hec_model *model, int32_t layer, float *params) {
  uint64_t key = key_of(model->seed, WHAT_BLOCK, layer, 0, 0);
  int64_t at = hec_model_block(model).shared;
  if (model->exact)
    exact_block(model, key, params);
  else
    random_block(model, key, params);
  for (int32_t s = 0; s < model->moe.n_shared_experts; s++, at += hec_ffn_size(model, model->moe.d_ffn_shared)) {
    uint64_t own = key_of(model->seed, WHAT_BLOCK, layer, 1, s);
    (model->exact ? exact_ffn : random_ffn)(model, own, model->moe.d_ffn_shared, params + at);
  }
}

void hec_model_init_expert(const hec_model *model, int32_t layer, int32_t expert, float *params) {
  uint64_t key = key_of(model->seed, WHAT_EXPERT, layer, expert, 0);
  (model->exact ? exact_ffn : random_ffn)(model, key, model->moe.d_ffn, params);
}

/* Rows of the stream; the token's number counts over ranks. */
static void fill_rows(const hec_model *model, uint64_t key, int64_t first, int32_t tokens, float *rows) {
  int64_t d = model->moe.d_model;
  if (!model->exact) {
    for (int64_t i = 0; i < tokens * d; i++)
      rows[i] = normal_at(key, first * d + i);
    return;
  }
  zero(rows, tokens * d);
  for (int64_t t = 0; t < tokens; t++)
    exact_row(value_at(key, first + t), model->moe.d_model, rows + t * d);
}

void hec_model_input(const hec_model *model, int64_t step, int32_t micro_batch, int32_t rank, int32_t tokens,
                     float *x) {
  uint64_t key = key_of(model->seed, WHAT_INPUT, step, micro_batch, 0);
  fill_rows(model, key, (int64_t)rank * tokens, tokens, x);
}

void hec_model_output_gradient(const hec_model *model, int64_t step, int32_t micro_batch, int32_t rank, int32_t tokens,
                               float *dx) {
  uint64_t key = key_of(model->seed, WHAT_OUTPUT_GRADIENT, step, micro_batch, 0);
  fill_rows(model, key, (int64_t)rank * tokens, tokens, dx);
}

/* ---- What language.h declares ---- */

/* The stream begins with size 1, logits begin with size 1. */
void hec_language_init(const hec_model *model, float *params) {
  uint64_t key = key_of(model->seed, WHAT_ENDS, 0, 0, 0);
  int64_t head = (int64_t)model->moe.vocabulary * model->moe.d_model;
  fill_normal(key + 1, 0, 1, params, head);
  fill_normal(key + 2, 0, inverse_root((double)model->moe.d_model), params + head, head);
}

int64_t hec_language_window(const hec_model *model, int64_t step, int64_t sequence, int64_t n) {
  uint64_t key = key_of(model->seed, WHAT_WINDOW, step, sequence, 0);
  return (int64_t)(key % (uint64_t)n);
}

/* ---- What gate.h declares ---- */

float hec_gate_random(const hec_model *model, int64_t step, int32_t layer, int64_t token) {
  return (float)(value_at(key_of(model->seed, WHAT_CHOICE, step, layer, 0), token) >> 40) * (1.0F / (1 << 24));
}
