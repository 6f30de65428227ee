/* Attention with residual, per sequence of L <= seq_len tokens and per head (keys and values shared by `per_group`
 * heads):
 *
 *     S = q k^T / sqrt(dh)    P = softmax of S's rows over the visible keys    a = P v    x += a Wo
 *     dP = da v^T    dS = P (dP - rowsum(P dP)) / sqrt(dh)    dq = dS k    dk += dS^T q    dv += P^T da
 *
 * Visible: all keys of the sequence (full) or those up to the query (causal). Exact mode: P = S without scale and
 * softmax, dS = dP, both zero at keys that are not visible.
 * Scores exist for QUERIES queries at a time, in scratch, and are computed again in backward; causal blocks of queries
 * stop at their last visible key. O(T L dh heads) time, O(QUERIES L) scratch beside the rows. */
#include "runtime/exec/model_parts.h"

#include <math.h>
#include <string.h>

enum { QUERIES = 128 };

static int32_t longest(const hec_model *model, int32_t tokens) {
  return tokens < model->moe.seq_len ? tokens : model->moe.seq_len;
}

/* Rows in scratch: h1, its gradient, and those of attended, q, k, v; then two blocks of scores. */
int64_t hec_attention_scratch_size(const hec_model *model, int32_t tokens) {
  hec_model_widths w = hec_model_widths_of(model);
  int64_t rows = 2 * ((int64_t)w.d + w.q + w.kv);
  return rows * tokens + 2 * (int64_t)QUERIES * longest(model, tokens);
}

/* A block of queries of one head in one sequence. */
typedef struct {
  int64_t query, key;          /* first token of the block, of the sequence */
  int32_t n_queries, n_keys;   /* keys up to the last visible one */
  int32_t visible, stride;     /* keys that the first query sees; how many more each following one */
  int32_t q_column, kv_column; /* of the head */
} score_block;

typedef void block_function(const score_block *block, void *context);

/* Calls `function` for every block, in a fixed order. */
static void walk(const hec_model *model, int32_t tokens, block_function *function, void *context) {
  hec_model_widths w = hec_model_widths_of(model);
  bool causal = model->moe.attention == HEC_ATTENTION_CAUSAL;
  for (int64_t first = 0; first < tokens; first += model->moe.seq_len) {
    int32_t length = longest(model, (int32_t)(tokens - first));
    for (int32_t head = 0; head < model->moe.n_heads; head++) {
      for (int32_t at = 0; at < length; at += QUERIES) {
        int32_t n = length - at < QUERIES ? length - at : QUERIES;
        score_block block = {.query = first + at,
                             .key = first,
                             .n_queries = n,
                             .n_keys = causal ? at + n : length,
                             .visible = causal ? at + 1 : length,
                             .stride = causal ? 1 : 0,
                             .q_column = head * w.head,
                             .kv_column = head / w.per_group * w.head};
        function(&block, context);
      }
    }
  }
}

typedef struct {
  const hec_model *model;
  hec_model_widths w;
  const hec_block_kept *kept;
  float *scores, *dscores;         /* [QUERIES, L] */
  float *dattended, *dq, *dk, *dv; /* [T, ..] */
} attention;

static float score_scale(const attention *a) {
  return a->model->exact ? 1 : 1 / sqrtf((float)a->w.head);
}

/* P of a block into a->scores [n_queries, n_keys]. */
static void scores_of(const score_block *b, const attention *a) {
  hec_math_gemm(&(hec_gemm){.m = b->n_queries,
                            .n = b->n_keys,
                            .k = a->w.head,
                            .transpose_b = true,
                            .a = a->kept->q + b->query * a->w.q + b->q_column,
                            .b = a->kept->k + b->key * a->w.kv + b->kv_column,
                            .c = a->scores,
                            .alpha = score_scale(a),
                            .lda = a->w.q,
                            .ldb = a->w.kv});
  for (int32_t i = 0; i < b->n_queries; i++) {
    float *row = a->scores + (int64_t)i * b->n_keys;
    int32_t visible = b->visible + i * b->stride;
    if (!a->model->exact)
      hec_math_softmax(row, visible);
    memset(row + visible, 0, (size_t)(b->n_keys - visible) * sizeof *row);
  }
}

static void forward_block(const score_block *b, void *context) {
  const attention *a = context;
  scores_of(b, a);
  hec_math_gemm(&(hec_gemm){.m = b->n_queries,
                            .n = a->w.head,
                            .k = b->n_keys,
                            .a = a->scores,
                            .b = a->kept->v + b->key * a->w.kv + b->kv_column,
                            .c = a->kept->attended + b->query * a->w.q + b->q_column,
                            .alpha = 1,
                            .ldb = a->w.kv,
                            .ldc = a->w.q});
}

/* dS of a block from dP in a->dscores, in place. */
static void softmax_backward(const score_block *b, const attention *a) {
  for (int32_t i = 0; i < b->n_queries; i++) {
    float *d = a->dscores + (int64_t)i * b->n_keys;
    const float *p = a->scores + (int64_t)i * b->n_keys;
    int32_t visible = b->visible + i * b->stride;
    if (!a->model->exact) {
      float mean = hec_math_dot(p, d, visible);
      for (int32_t j = 0; j < visible; j++)
        d[j] = p[j] * (d[j] - mean);
    }
    memset(d + visible, 0, (size_t)(b->n_keys - visible) * sizeof *d);
  }
}

/* to [n_keys, head] += rows^T [n_keys, n_queries] from [n_queries, head]: dk and dv. */
static void add_to_keys(const score_block *b, const attention *a, const float *rows, const float *from, float *to,
                        float alpha) {
  hec_math_gemm(&(hec_gemm){.m = b->n_keys,
                            .n = a->w.head,
                            .k = b->n_queries,
                            .transpose_a = true,
                            .a = rows,
                            .b = from + b->query * a->w.q + b->q_column,
                            .c = to + b->key * a->w.kv + b->kv_column,
                            .alpha = alpha,
                            .beta = 1,
                            .ldb = a->w.q,
                            .ldc = a->w.kv});
}

static void backward_block(const score_block *b, void *context) {
  const attention *a = context;
  scores_of(b, a);
  add_to_keys(b, a, a->scores, a->dattended, a->dv, 1);
  hec_math_gemm(&(hec_gemm){.m = b->n_queries,
                            .n = b->n_keys,
                            .k = a->w.head,
                            .transpose_b = true,
                            .a = a->dattended + b->query * a->w.q + b->q_column,
                            .b = a->kept->v + b->key * a->w.kv + b->kv_column,
                            .c = a->dscores,
                            .alpha = 1,
                            .lda = a->w.q,
                            .ldb = a->w.kv});
  softmax_backward(b, a);
  hec_math_gemm(&(hec_gemm){.m = b->n_queries,
                            .n = a->w.head,
                            .k = b->n_keys,
                            .a = a->dscores,
                            .b = a->kept->k + b->key * a->w.kv + b->kv_column,
                            .c = a->dq + b->query * a->w.q + b->q_column,
                            .alpha = score_scale(a),
                            .ldb = a->w.kv,
                            .ldc = a->w.q});
  add_to_keys(b, a, a->dscores, a->kept->q, a->dk, score_scale(a));
}

/* ---- Projections ---- */

/* out [T, n] = in [T, d] W [d, n], or out += where `add`. */
static void project(int32_t tokens, int32_t d, int32_t n, const float *in, const float *matrix, float *out, bool add) {
  hec_math_gemm(
      &(hec_gemm){.m = tokens, .n = n, .k = d, .a = in, .b = matrix, .c = out, .alpha = 1, .beta = add ? 1.0F : 0.0F});
}

/* dW [d, n] += in^T dout;  din [T, d] = (add: +=) dout W^T. */
typedef struct {
  int32_t d, n;
  const float *in, *matrix, *dout;
  float *dmatrix, *din;
  bool add;
} projection_backward;
static void project_backward(int32_t tokens, const projection_backward *p) {
  hec_math_gemm(&(hec_gemm){.m = p->d,
                            .n = p->n,
                            .k = tokens,
                            .transpose_a = true,
                            .a = p->in,
                            .b = p->dout,
                            .c = p->dmatrix,
                            .alpha = 1,
                            .beta = 1});
  hec_math_gemm(&(hec_gemm){.m = tokens,
                            .n = p->d,
                            .k = p->n,
                            .transpose_b = true,
                            .a = p->dout,
                            .b = p->matrix,
                            .c = p->din,
                            .alpha = 1,
                            .beta = p->add ? 1.0F : 0.0F});
}

static void copy(float *to, const float *from, int64_t n) {
  if (n > 0)
    memcpy(to, from, (size_t)n * sizeof *to);
}

void hec_block_attention(const hec_model *model, const float *params, int32_t tokens, float *x,
                         const hec_block_kept *kept, float *scratch) {
  hec_block_layout at = hec_model_block(model);
  attention a = {.model = model, .w = hec_model_widths_of(model), .kept = kept};
  int32_t d = a.w.d;
  const float *h1 = kept->x0;
  copy(kept->x0, x, (int64_t)tokens * d);
  if (!model->exact) {
    hec_math_norm(x, params + at.norm1, scratch, kept->scale1, tokens, d);
    h1 = scratch;
  }
  a.scores = scratch + (int64_t)tokens * d;
  project(tokens, d, a.w.q, h1, params + at.q, kept->q, false);
  project(tokens, d, a.w.kv, h1, params + at.k, kept->k, false);
  project(tokens, d, a.w.kv, h1, params + at.v, kept->v, false);
  walk(model, tokens, forward_block, &a);
  project(tokens, a.w.q, d, kept->attended, params + at.o, x, true);
}

void hec_block_attention_backward(const hec_model *model, const float *params, float *grads, int32_t tokens, float *dx,
                                  const hec_block_kept *kept, float *scratch) {
  hec_block_layout at = hec_model_block(model);
  attention a = {.model = model, .w = hec_model_widths_of(model), .kept = kept};
  int32_t d = a.w.d;
  int64_t t = tokens;
  float *h1 = scratch, *dh1 = h1 + t * d;
  a.dattended = dh1 + t * d;
  a.dq = a.dattended + t * a.w.q;
  a.dk = a.dq + t * a.w.q;
  a.dv = a.dk + t * a.w.kv;
  a.scores = a.dv + t * a.w.kv;
  a.dscores = a.scores + QUERIES * (int64_t)longest(model, tokens);
  if (model->exact)
    copy(h1, kept->x0, t * d);
  else /* its scale is computed again too: the same bits */
    hec_math_norm(kept->x0, params + at.norm1, h1, kept->scale1, tokens, d);
  project_backward(tokens, &(projection_backward){.d = a.w.q,
                                                  .n = d,
                                                  .in = kept->attended,
                                                  .matrix = params + at.o,
                                                  .dout = dx,
                                                  .dmatrix = grads + at.o,
                                                  .din = a.dattended});
  if (t > 0)
    memset(a.dk, 0, (size_t)(2 * t * a.w.kv) * sizeof *a.dk);
  walk(model, tokens, backward_block, &a);
  project_backward(
      tokens,
      &(projection_backward){
          .d = d, .n = a.w.q, .in = h1, .matrix = params + at.q, .dout = a.dq, .dmatrix = grads + at.q, .din = dh1});
  project_backward(tokens, &(projection_backward){.d = d,
                                                  .n = a.w.kv,
                                                  .in = h1,
                                                  .matrix = params + at.k,
                                                  .dout = a.dk,
                                                  .dmatrix = grads + at.k,
                                                  .din = dh1,
                                                  .add = true});
  project_backward(tokens, &(projection_backward){.d = d,
                                                  .n = a.w.kv,
                                                  .in = h1,
                                                  .matrix = params + at.v,
                                                  .dout = a.dv,
                                                  .dmatrix = grads + at.v,
                                                  .din = dh1,
                                                  .add = true});
  if (model->exact)
    hec_math_add(dx, dh1, t * d);
  else
    hec_math_norm_backward(kept->x0, params + at.norm1, kept->scale1, dh1, dx, grads + at.norm1, tokens, d);
}
