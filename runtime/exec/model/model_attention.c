/* Attention with residual, per sequence of L <= seq_len tokens and per head (keys and values shared by `per_group`
 * heads):
 *
 *     S = q k^T / sqrt(dh)    P = softmax of S's rows over the visible keys    a = P v    x += a Wo
 *     dP = da v^T    dS = P (dP - rowsum(P dP)) / sqrt(dh)    dq = dS k    dk += dS^T q    dv += P^T da
 *
 * Visible: all keys of the sequence (full), those up to the query (causal), or of those the local window and the head's
 * shard (s2, models/attention.h). Exact mode: P = S without scale and softmax, dS = dP, both zero at keys that are not
 * visible.
 * Scores exist for QUERIES queries and as many heads as the device wants at a time, in scratch. They are computed
 * again in backward. Causal blocks of queries stop at their last visible key. With s2 a block of queries lies in one
 * block of the mask. So all of them see the same blocks of their head's shard out of the window. The columns of the
 * scores are those blocks, one product each, then the window up to the last query. Nothing else is computed; heads go
 * one by one, because they have different columns. O(T context dh heads) time, O(QUERIES L heads) scratch beside the
 * rows. */
#include "runtime/exec/model/model_parts.h"

#include <math.h>

enum { QUERIES = 128 };

static int32_t longest(const hec_model *model, int32_t tokens) {
  return tokens < model->moe.seq_len ? tokens : model->moe.seq_len;
}

static int64_t scores_size(const hec_model *model, int32_t tokens) {
  int64_t heads = model->moe.n_heads < HEC_BATCH_MAX ? model->moe.n_heads : HEC_BATCH_MAX;
  return heads * QUERIES * longest(model, tokens);
}

/* Rows in scratch: h1, its gradient, and those of attended, q, k, v; then two blocks of scores. */
int64_t hec_attention_scratch_size(const hec_model *model, int32_t tokens) {
  hec_model_widths w = hec_model_widths_of(model);
  int64_t rows = 2 * ((int64_t)w.d + w.q + w.kv);
  return rows * hec_model_parts(model) * tokens + 2 * scores_size(model, tokens);
}

typedef struct {
  hec_processor *on;
  const hec_model *model;
  hec_model_widths w;
  const hec_block_kept *kept;
  float *scores, *dscores;         /* [heads of a block, QUERIES, L] */
  float *dattended, *dq, *dk, *dv; /* [T, ..] */
} attention;

/* A block of queries of some heads in one sequence, and the keys that are columns of its scores, in ascending order. */
typedef struct {
  int64_t query, key;        /* first token of the block, of the sequence */
  int32_t n_queries, n_keys; /* keys up to the last visible one */
  int32_t visible, stride;   /* keys that the first query sees; how many more each following one */
  int32_t head, n_heads;
  int32_t n_far, far, far_step,
      far_size; /* s2: blocks of far_size keys from key `far` of the sequence on, far_step apart */
  int32_t near; /* the key from which all are there */
} score_block;

/* Columns whose keys stand together. */
typedef struct {
  int32_t key, column, n; /* key: of the sequence */
} key_piece;
static key_piece piece_at(const score_block *b, int32_t index) {
  int32_t column = index * b->far_size;
  if (index < b->n_far)
    return (key_piece){b->far + index * b->far_step, column, b->far_size};
  return (key_piece){b->near, column, b->n_keys - column};
}

typedef void block_function(const attention *a, const score_block *block);

/* What s2 leaves of the keys of a block of causal attention whose first query is the sequence's `at`. */
static void leave_out(hec_s2 s2, int32_t at, score_block *b) {
  int32_t block = at / s2.block, out = block - s2.local / s2.block, shard = hec_s2_shard(s2, b->head);
  if (out < 0)
    return;
  b->n_far = out >= shard ? (out - shard) / s2.shards + 1 : 0;
  b->far = shard * s2.block;
  b->far_step = s2.shards * s2.block;
  b->far_size = s2.block;
  b->near = (out + 1) * s2.block;
  int32_t gone = b->near - b->n_far * s2.block;
  b->n_keys -= gone;
  b->visible -= gone;
}

/* Calls `function` for every block of the rows begin .. begin + tokens - 1, in a fixed order: sequences, heads, queries. */
static void walk_part(const attention *a, int64_t begin, int32_t tokens, block_function *function) {
  const hec_moe *moe = &a->model->moe;
  bool sharded = moe->attention == HEC_ATTENTION_S2 && !hec_moe_dense_attention(moe, a->kept->layer);
  bool causal = moe->attention != HEC_ATTENTION_FULL;
  int32_t batch = sharded ? 1 : a->on->math->batch;
  for (int64_t first = begin, end = begin + tokens; first < end; first += moe->seq_len) {
    int32_t length = longest(a->model, (int32_t)(end - first));
    for (int32_t head = 0; head < moe->n_heads; head += batch)
      for (int32_t at = 0, n; at < length; at += n) {
        n = length - at < QUERIES ? length - at : QUERIES;
        if (sharded && moe->s2.block - at % moe->s2.block < n)
          n = moe->s2.block - at % moe->s2.block;
        score_block block = {.query = first + at,
                             .key = first,
                             .n_queries = n,
                             .n_keys = causal ? at + n : length,
                             .visible = causal ? at + 1 : length,
                             .stride = causal ? 1 : 0,
                             .head = head,
                             .n_heads = moe->n_heads - head < batch ? moe->n_heads - head : batch};
        if (sharded)
          leave_out(moe->s2, at, &block);
        function(a, &block);
      }
  }
}

/* Sequences begin anew with every rank's tokens. */
static void walk(const attention *a, int32_t tokens, block_function *function) {
  for (int64_t part = 0; part < hec_model_parts(a->model); part++)
    walk_part(a, part * tokens, tokens, function);
}

static float score_scale(const attention *a) {
  return a->model->exact ? 1 : 1 / sqrtf((float)a->w.head);
}

/* ---- Products of a block, head by head ---- */

/* Where head `index` of the block has its rows of queries, of keys, its scores. */
static int64_t query_at(const attention *a, const score_block *b, int32_t index) {
  return b->query * a->w.q + (int64_t)(b->head + index) * a->w.head;
}
static int64_t key_at(const attention *a, const score_block *b, key_piece piece, int32_t index) {
  return (b->key + piece.key) * a->w.kv + (int64_t)((b->head + index) / a->w.per_group) * a->w.head;
}
static int64_t score_at(const score_block *b, key_piece piece, int32_t index) {
  return (int64_t)index * b->n_queries * b->n_keys + piece.column;
}

/* scores [n_queries, n_keys] = alpha from [n_queries, head] to [n_keys, head]^T. */
static void multiply_rows(const attention *a, const score_block *b, const float *from, const float *to, float *scores,
                          float alpha) {
  for (int32_t part = 0; part <= b->n_far; part++) {
    key_piece piece = piece_at(b, part);
    hec_gemm list[HEC_BATCH_MAX];
    for (int32_t i = 0; i < b->n_heads; i++)
      list[i] = (hec_gemm){.m = b->n_queries,
                           .n = piece.n,
                           .k = a->w.head,
                           .transpose_b = true,
                           .a = from + query_at(a, b, i),
                           .b = to + key_at(a, b, piece, i),
                           .c = scores + score_at(b, piece, i),
                           .alpha = alpha,
                           .lda = a->w.q,
                           .ldb = a->w.kv,
                           .ldc = b->n_keys};
    a->on->math->gemm(a->on, list, b->n_heads);
  }
}

/* to [n_queries, head] = alpha scores from [n_keys, head]. */
static void sum_keys(const attention *a, const score_block *b, const float *scores, const float *from, float *to,
                     float alpha) {
  for (int32_t part = 0; part <= b->n_far; part++) {
    key_piece piece = piece_at(b, part);
    hec_gemm list[HEC_BATCH_MAX];
    for (int32_t i = 0; i < b->n_heads; i++)
      list[i] = (hec_gemm){.m = b->n_queries,
                           .n = a->w.head,
                           .k = piece.n,
                           .a = scores + score_at(b, piece, i),
                           .b = from + key_at(a, b, piece, i),
                           .c = to + query_at(a, b, i),
                           .alpha = alpha,
                           .beta = part > 0 ? 1.0F : 0.0F,
                           .lda = b->n_keys,
                           .ldb = a->w.kv,
                           .ldc = a->w.q};
    a->on->math->gemm(a->on, list, b->n_heads);
  }
}

/* The same of heads that do not share keys with each other: those at `turn` in their groups. */
static void add_to_keys_in_turn(const attention *a, const score_block *b, key_piece piece, int32_t turn,
                                const hec_gemm *of) {
  hec_gemm list[HEC_BATCH_MAX];
  int32_t n = 0;
  for (int32_t i = 0; i < b->n_heads; i++) {
    if ((b->head + i) % a->w.per_group != turn)
      continue;
    list[n] = *of;
    list[n].a += score_at(b, piece, i);
    list[n].b += query_at(a, b, i);
    list[n++].c += key_at(a, b, piece, i);
  }
  a->on->math->gemm(a->on, list, n);
}

/* to [n_keys, head] += alpha scores^T from [n_queries, head]: dk and dv. Heads that share keys go one after the other. */
static void add_to_keys(const attention *a, const score_block *b, const float *scores, const float *from, float *to,
                        float alpha) {
  for (int32_t part = 0; part <= b->n_far; part++) {
    key_piece piece = piece_at(b, part);
    hec_gemm of = {.m = piece.n,
                   .n = a->w.head,
                   .k = b->n_queries,
                   .transpose_a = true,
                   .a = scores,
                   .b = from,
                   .c = to,
                   .alpha = alpha,
                   .beta = 1,
                   .lda = b->n_keys,
                   .ldb = a->w.q,
                   .ldc = a->w.kv};
    for (int32_t turn = 0; turn < a->w.per_group; turn++)
      add_to_keys_in_turn(a, b, piece, turn, &of);
  }
}

static hec_scores scores_of(const attention *a, const score_block *b) {
  return (hec_scores){.x = a->scores,
                      .rows = (int64_t)b->n_heads * b->n_queries,
                      .n = b->n_keys,
                      .visible = b->visible,
                      .stride = b->stride,
                      .period = b->n_queries,
                      .linear = a->model->exact};
}

/* P of a block into a->scores. */
static void probabilities(const attention *a, const score_block *b) {
  hec_scores scores = scores_of(a, b);
  multiply_rows(a, b, a->kept->q, a->kept->k, a->scores, score_scale(a));
  a->on->math->softmax(a->on, &scores);
}

static void forward_block(const attention *a, const score_block *b) {
  probabilities(a, b);
  sum_keys(a, b, a->scores, a->kept->v, a->kept->attended, 1);
}

static void backward_block(const attention *a, const score_block *b) {
  hec_scores scores = scores_of(a, b);
  probabilities(a, b);
  add_to_keys(a, b, a->scores, a->dattended, a->dv, 1);
  multiply_rows(a, b, a->dattended, a->kept->v, a->dscores, 1);
  a->on->math->softmax_backward(a->on, &scores, a->dscores);
  sum_keys(a, b, a->dscores, a->kept->k, a->dq, score_scale(a));
  add_to_keys(a, b, a->dscores, a->kept->q, a->dk, score_scale(a));
}

/* ---- Projections ---- */

/* out [T, n] = in [T, d] W [d, n], or out += where `add`. */
static void project(hec_processor *on, int32_t tokens, int32_t d, int32_t n, const float *in, const float *matrix,
                    float *out, bool add) {
  on->math->gemm(
      on,
      &(hec_gemm){.m = tokens, .n = n, .k = d, .a = in, .b = matrix, .c = out, .alpha = 1, .beta = add ? 1.0F : 0.0F},
      1);
}

/* dW [d, n] += in^T dout;  din [T, d] = (add: +=) dout W^T. */
typedef struct {
  int32_t d, n;
  const float *in, *matrix, *dout;
  float *dmatrix, *din;
  bool add;
} projection_backward;
static void project_backward(hec_processor *on, int32_t tokens, const projection_backward *p) {
  const hec_gemm both[] = {{.m = p->d,
                            .n = p->n,
                            .k = tokens,
                            .transpose_a = true,
                            .a = p->in,
                            .b = p->dout,
                            .c = p->dmatrix,
                            .alpha = 1,
                            .beta = 1},
                           {.m = tokens,
                            .n = p->d,
                            .k = p->n,
                            .transpose_b = true,
                            .a = p->dout,
                            .b = p->matrix,
                            .c = p->din,
                            .alpha = 1,
                            .beta = p->add ? 1.0F : 0.0F}};
  on->math->gemm(on, both, 2);
}

static attention attention_of(hec_processor *on, const hec_model *model, const hec_block_kept *kept) {
  return (attention){.on = on, .model = model, .w = hec_model_widths_of(model), .kept = kept};
}

static hec_norm norm_of(const hec_model *model, const float *params, const hec_block_kept *kept, int32_t rows) {
  return (hec_norm){kept->x0, params + hec_model_block(model).norm1, kept->scale1, rows, model->moe.d_model};
}

/* From kept.x0 to out [rows, d], of all rows: out = attended Wo, or += where `add`. */
static void forward(attention *a, const float *params, int32_t tokens, float *out, bool add, float *scratch) {
  hec_processor *on = a->on;
  const hec_block_kept *kept = a->kept;
  hec_block_layout at = hec_model_block(a->model);
  int32_t d = a->w.d, rows = tokens * hec_model_parts(a->model);
  const float *h1 = kept->x0;
  if (!a->model->exact) {
    hec_norm norm = norm_of(a->model, params, kept, rows);
    on->math->norm(on, &norm, scratch);
    h1 = scratch;
  }
  a->scores = scratch + (int64_t)rows * d;
  project(on, rows, d, a->w.q, h1, params + at.q, kept->q, false);
  project(on, rows, d, a->w.kv, h1, params + at.k, kept->k, false);
  project(on, rows, d, a->w.kv, h1, params + at.v, kept->v, false);
  walk(a, tokens, forward_block);
  project(on, rows, a->w.q, d, kept->attended, params + at.o, out, add);
}

void hec_block_attention(hec_processor *on, const hec_model *model, const float *params, int32_t tokens, float *x,
                         const hec_block_kept *kept, float *scratch) {
  attention a = attention_of(on, model, kept);
  on->math->copy(on, &(hec_piece){kept->x0, x, (int64_t)tokens * a.w.d}, 1);
  forward(&a, params, tokens, x, true, scratch);
}

void hec_block_part_attention(hec_processor *on, const hec_model *model, const float *params, int32_t tokens,
                              float *partial, const hec_block_kept *kept, float *scratch) {
  attention a = attention_of(on, model, kept);
  forward(&a, params, tokens, partial, false, scratch);
}

/* From dx, of the output, to dh1, of the norm's output: [rows, d], of all rows; dh1 NULL: in scratch. Returns dh1. */
static float *backward(attention *a, const hec_block_part *part, const float *dx, float *dh1, float *scratch) {
  hec_processor *on = a->on;
  const hec_block_kept *kept = a->kept;
  const float *params = part->params;
  float *grads = part->grads, *h1 = scratch;
  hec_block_layout at = hec_model_block(a->model);
  int32_t d = a->w.d, rows = part->tokens * hec_model_parts(a->model);
  int64_t t = rows;
  dh1 = dh1 ? dh1 : h1 + t * d;
  a->dattended = h1 + 2 * t * d;
  a->dq = a->dattended + t * a->w.q;
  a->dk = a->dq + t * a->w.q;
  a->dv = a->dk + t * a->w.kv;
  a->scores = a->dv + t * a->w.kv;
  a->dscores = a->scores + scores_size(a->model, part->tokens);
  hec_norm norm = norm_of(a->model, params, kept, rows);
  if (a->model->exact)
    on->math->copy(on, &(hec_piece){h1, kept->x0, t * d}, 1);
  else /* its scale is computed again too: the same bits */
    on->math->norm(on, &norm, h1);
  project_backward(on, rows,
                   &(projection_backward){.d = a->w.q,
                                          .n = d,
                                          .in = kept->attended,
                                          .matrix = params + at.o,
                                          .dout = dx,
                                          .dmatrix = grads + at.o,
                                          .din = a->dattended});
  on->math->zero(on, a->dk, 2 * t * a->w.kv);
  walk(a, part->tokens, backward_block);
  const projection_backward into[] = {
      {d, a->w.q, h1, params + at.q, a->dq, grads + at.q, dh1, false},
      {d, a->w.kv, h1, params + at.k, a->dk, grads + at.k, dh1, true},
      {d, a->w.kv, h1, params + at.v, a->dv, grads + at.v, dh1, true},
  };
  for (int i = 0; i < 3; i++)
    project_backward(on, rows, &into[i]);
  return dh1;
}

void hec_block_part_attention_backward(hec_processor *on, const hec_model *model, const hec_block_part *part,
                                       const float *dx, float *partial, const hec_block_kept *kept, float *scratch) {
  attention a = attention_of(on, model, kept);
  (void)backward(&a, part, dx, partial, scratch);
}

void hec_block_part_attention_end(hec_processor *on, const hec_model *model, const hec_block_part *part,
                                  bool is_backward, const float *partial, float *x, const hec_block_kept *kept) {
  int64_t n = (int64_t)part->tokens * model->moe.d_model;
  const float *sum = partial + part->member * n;
  if (!is_backward || model->exact) {
    on->math->add(on, &(hec_piece){x, sum, n}, 1);
    return;
  }
  hec_norm norm = norm_of(model, part->params, kept, part->tokens);
  norm.x += part->member * n;
  norm.scale += (int64_t)part->member * part->tokens;
  on->math->norm_backward(on, &norm, sum, x, part->grads + hec_model_block(model).norm1);
}

void hec_block_attention_backward(hec_processor *on, const hec_model *model, const float *params, float *grads,
                                  int32_t tokens, float *dx, const hec_block_kept *kept, float *scratch) {
  attention a = attention_of(on, model, kept);
  hec_block_part whole = {.params = params, .grads = grads, .tokens = tokens};
  float *dh1 = backward(&a, &whole, dx, NULL, scratch);
  hec_block_part_attention_end(on, model, &whole, true, dh1, dx, kept);
}
