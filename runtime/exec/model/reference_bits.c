/* Exact mode once more, in double, with the magnitude of every sum.
 *
 * A tensor holds values and, per element, the sum of the absolute values of the terms that made it. It also holds the
 * unit: the largest power of two of which every term is a multiple. A partial sum in any order is a multiple of the
 * unit and not above the sum of magnitudes. So it is exact in float32 when magnitude / unit <= 2^24. The unit of a
 * product's terms is the product of the operands' units. An operand's unit is measured: the lowest bit set in any
 * of its values.
 *
 * The step, h = x and no softmax (model.h):
 *     a = mask(q k^T) v    x1 = x + a Wo    y = x1 + sum_j w_j E_j(x1) + S(x1)    and its gradients
 * in loops that skip zeros: O(nonzeros), shorter than the dense step. */
#include "runtime/exec/model/reference_bits.h"

#include "runtime/exec/model/model_parts.h"

#include <math.h>
#include <string.h>

typedef struct {
  double *value, *sum; /* [n] */
  int64_t n;
  double unit; /* INFINITY: no term yet */
} tensor;

typedef struct {
  const hec_bits_step *step;
  const hec_model *model;
  hec_model_widths w;
  hec_arena *arena;
  int32_t bits;
  tensor block, experts, block_grads, expert_grads; /* experts: one tensor */
} counter;

/* ---- Tensors ---- */

static tensor tensor_new(counter *c, int64_t n) {
  return (tensor){
      .value = HEC_NEW(c->arena, double, n + 1), .sum = HEC_NEW(c->arena, double, n + 1), .n = n, .unit = INFINITY};
}

static double unit_of(double value) {
  int exponent;
  double fraction = frexp(fabs(value), &exponent); /* value = fraction * 2^exponent, 53 bits */
  uint64_t mantissa = (uint64_t)ldexp(fraction, 53);
  int zeros = 0;
  for (; mantissa % 2 == 0; mantissa /= 2)
    zeros++;
  return ldexp(1, exponent - 53 + zeros);
}

/* The sums are complete: count their bits; from now on the tensor is an operand, with the unit of its values. */
static void tensor_done(counter *c, tensor *t) {
  double max = 0, unit = INFINITY;
  for (int64_t i = 0; i < t->n; i++) {
    max = t->sum[i] > max ? t->sum[i] : max;
    if (t->value[i] != 0)
      unit = fmin(unit, unit_of(t->value[i]));
  }
  int exponent = 0;
  if (max > 0)
    (void)frexp(max / t->unit, &exponent); /* 2^(exponent - 1) <= most / unit < 2^exponent */
  c->bits = exponent > c->bits ? exponent : c->bits;
  t->unit = unit;
}

static tensor tensor_of(counter *c, const float *from, int64_t n) {
  tensor t = tensor_new(c, n);
  for (int64_t i = 0; i < n; i++) {
    t.value[i] = (double)from[i];
    t.sum[i] = fabs(t.value[i]);
    if (from[i] != 0)
      t.unit = fmin(t.unit, unit_of(t.value[i]));
  }
  return t;
}

static void add_term(tensor *to, int64_t at, double term) {
  to->value[at] += term;
  to->sum[at] += fabs(term);
}

static void add_tensor(tensor *to, const tensor *from) {
  for (int64_t i = 0; i < to->n; i++)
    add_term(to, i, from->value[i]);
  to->unit = fmin(to->unit, from->unit);
}

/* A matrix inside a tensor: element (i, j) at `at + i row + j column`. */
typedef struct {
  const tensor *of;
  int64_t at, row, column;
} matrix;

static matrix packed(const tensor *of, int64_t at, int64_t row) {
  return (matrix){of, at, row, 1};
}
static matrix transposed(matrix m) {
  return (matrix){m.of, m.at, m.column, m.row};
}

/* to [m, n] (at `at`, rows `row` apart) += a [m, k] b [k, n]. */
typedef struct {
  int64_t at, row;
  int32_t m, n, k;
} place;
static void multiply(tensor *to, place p, matrix a, matrix b) {
  for (int64_t i = 0; i < p.m; i++)
    for (int64_t l = 0; l < p.k; l++) {
      double factor = a.of->value[a.at + i * a.row + l * a.column];
      if (factor == 0)
        continue;
      for (int64_t j = 0; j < p.n; j++)
        add_term(to, p.at + i * p.row + j, factor * b.of->value[b.at + l * b.row + j * b.column]);
    }
  to->unit = fmin(to->unit, a.of->unit * b.of->unit);
}

/* ---- Attention ---- */

typedef struct {
  tensor x0, q, k, v, attended, x1;
} stream;

/* mask(rows keys^T) of one head in one sequence: scores, and their gradients. Keys that are seen in a row go together. */
static tensor pairs(counter *c, place p, matrix rows, matrix keys) {
  tensor t = tensor_new(c, (int64_t)p.m * p.m);
  const hec_moe *moe = &c->model->moe;
  hec_attention kind = hec_moe_dense_attention(moe, 0) ? HEC_ATTENTION_CAUSAL : moe->attention; /* one layer */
  int32_t head = (int32_t)(rows.at % c->w.q) / c->w.head;
  for (int32_t i = 0; i < p.m; i++)
    for (int32_t j = 0, n; j < p.m; j += n) {
      bool seen = hec_attention_sees(kind, moe->s2, head, i, j);
      for (n = 1; j + n < p.m && hec_attention_sees(kind, moe->s2, head, i, j + n) == seen; n++)
        continue;
      matrix to = {keys.of, keys.at + j * keys.row, keys.row, keys.column};
      if (seen)
        multiply(&t, (place){(int64_t)i * p.m + j, p.m, 1, n, p.k},
                 (matrix){rows.of, rows.at + i * rows.row, rows.row, 1}, transposed(to));
    }
  tensor_done(c, &t);
  return t;
}

typedef void head_function(counter *c, const stream *s, stream *d, place p, int64_t q_at, int64_t kv_at);

static void attend(counter *c, const stream *s, stream *d, place p, int64_t q_at, int64_t kv_at) {
  tensor scores = pairs(c, p, packed(&s->q, q_at, c->w.q), packed(&s->k, kv_at, c->w.kv));
  multiply(&d->attended, (place){q_at, c->w.q, p.m, p.k, p.m}, packed(&scores, 0, p.m), packed(&s->v, kv_at, c->w.kv));
}

static void attend_backward(counter *c, const stream *s, stream *d, place p, int64_t q_at, int64_t kv_at) {
  tensor scores = pairs(c, p, packed(&s->q, q_at, c->w.q), packed(&s->k, kv_at, c->w.kv));
  tensor dscores = pairs(c, p, packed(&d->attended, q_at, c->w.q), packed(&s->v, kv_at, c->w.kv));
  place keys = {kv_at, c->w.kv, p.m, p.k, p.m};
  multiply(&d->v, keys, transposed(packed(&scores, 0, p.m)), packed(&d->attended, q_at, c->w.q));
  multiply(&d->k, keys, transposed(packed(&dscores, 0, p.m)), packed(&s->q, q_at, c->w.q));
  multiply(&d->q, (place){q_at, c->w.q, p.m, p.k, p.m}, packed(&dscores, 0, p.m), packed(&s->k, kv_at, c->w.kv));
}

static void each_head(counter *c, head_function *function, const stream *s, stream *d) {
  int32_t length = c->model->moe.seq_len;
  for (int32_t first = 0; first < c->step->tokens; first += length) {
    int32_t n = c->step->tokens - first < length ? c->step->tokens - first : length;
    for (int32_t head = 0; head < c->model->moe.n_heads; head++) {
      hec_arena_mark mark = hec_arena_save(c->arena);
      function(c, s, d, (place){.m = n, .k = c->w.head}, (int64_t)first * c->w.q + (int64_t)head * c->w.head,
               (int64_t)first * c->w.kv + (int64_t)(head / c->w.per_group) * c->w.head);
      hec_arena_rewind(c->arena, mark);
    }
  }
}

static stream stream_new(counter *c) {
  int64_t t = c->step->tokens;
  return (stream){.x0 = tensor_new(c, t * c->w.d),
                  .q = tensor_new(c, t * c->w.q),
                  .k = tensor_new(c, t * c->w.kv),
                  .v = tensor_new(c, t * c->w.kv),
                  .attended = tensor_new(c, t * c->w.q),
                  .x1 = tensor_new(c, t * c->w.d)};
}

static void attention(counter *c, stream *s) {
  hec_block_layout at = hec_model_block(c->model);
  int32_t t = c->step->tokens, d = c->w.d, q = c->w.q, kv = c->w.kv;
  multiply(&s->q, (place){0, q, t, q, d}, packed(&s->x0, 0, d), packed(&c->block, at.q, q));
  multiply(&s->k, (place){0, kv, t, kv, d}, packed(&s->x0, 0, d), packed(&c->block, at.k, kv));
  multiply(&s->v, (place){0, kv, t, kv, d}, packed(&s->x0, 0, d), packed(&c->block, at.v, kv));
  tensor_done(c, &s->q);
  tensor_done(c, &s->k);
  tensor_done(c, &s->v);
  each_head(c, attend, s, s);
  tensor_done(c, &s->attended);
  add_tensor(&s->x1, &s->x0);
  multiply(&s->x1, (place){0, d, t, d, q}, packed(&s->attended, 0, q), packed(&c->block, at.o, d));
  tensor_done(c, &s->x1);
}

static void attention_backward(counter *c, const stream *s, stream *g) {
  hec_block_layout at = hec_model_block(c->model);
  int32_t t = c->step->tokens, d = c->w.d, q = c->w.q, kv = c->w.kv;
  multiply(&c->block_grads, (place){at.o, d, q, d, t}, transposed(packed(&s->attended, 0, q)), packed(&g->x1, 0, d));
  multiply(&g->attended, (place){0, q, t, q, d}, packed(&g->x1, 0, d), transposed(packed(&c->block, at.o, d)));
  tensor_done(c, &g->attended);
  each_head(c, attend_backward, s, g);
  const struct {
    tensor *gradient;
    int64_t at;
    int32_t width;
  } parts[] = {{&g->q, at.q, q}, {&g->k, at.k, kv}, {&g->v, at.v, kv}};
  add_tensor(&g->x0, &g->x1);
  for (int i = 0; i < 3; i++) {
    int32_t width = parts[i].width;
    tensor_done(c, parts[i].gradient);
    multiply(&c->block_grads, (place){parts[i].at, width, d, width, t}, transposed(packed(&s->x0, 0, d)),
             packed(parts[i].gradient, 0, width));
    multiply(&g->x0, (place){0, d, t, d, width}, packed(parts[i].gradient, 0, width),
             transposed(packed(&c->block, parts[i].at, width)));
  }
  tensor_done(c, &g->x0);
}

/* ---- Feed-forward networks ---- */

/* One FFN on rows of the stream; row i is token[i] and counts weight[i]. */
typedef struct {
  const tensor *params;
  tensor *grads;
  int64_t at; /* of the parameters in both */
  int32_t f, n;
  const int32_t *token;
  const float *weight;
} network;

static tensor gather(counter *c, const network *net, const tensor *from, bool weighted) {
  int64_t d = c->w.d;
  tensor t = tensor_new(c, net->n * d);
  for (int64_t i = 0; i < net->n * d; i++)
    add_term(&t, i, from->value[net->token[i / d] * d + i % d] * (weighted ? (double)net->weight[i / d] : 1));
  t.unit = weighted ? from->unit / 4 : from->unit;
  tensor_done(c, &t);
  return t;
}

/* What forward leaves for backward: z (two matrices), or gate and up; and the product. */
typedef struct {
  tensor in, part[2], product;
} inner;

static inner inner_of(counter *c, const network *net, const tensor *x1) {
  int32_t last = c->model->moe.n_ffn_matrices - 1, d = c->w.d, f = net->f;
  inner v = {.in = gather(c, net, x1, false), .product = tensor_new(c, (int64_t)net->n * f)};
  for (int32_t i = 0; i < last; i++) {
    v.part[i] = tensor_new(c, (int64_t)net->n * f);
    multiply(&v.part[i], (place){0, f, net->n, f, d}, packed(&v.in, 0, d),
             packed(net->params, net->at + (int64_t)i * d * f, f));
    tensor_done(c, &v.part[i]);
  }
  for (int64_t i = 0; i < (int64_t)net->n * f; i++) {
    double z = v.part[0].value[i];
    add_term(&v.product, i, z > 0 ? last == 2 ? z * v.part[1].value[i] : z : 0);
  }
  v.product.unit = v.part[0].unit * (last == 2 ? v.part[1].unit : 1);
  tensor_done(c, &v.product);
  return v;
}

static void add_rows(counter *c, const network *net, const tensor *rows, bool weighted, tensor *to) {
  int64_t d = c->w.d;
  for (int64_t i = 0; i < net->n * d; i++)
    add_term(to, net->token[i / d] * d + i % d, rows->value[i] * (weighted ? (double)net->weight[i / d] : 1));
  to->unit = fmin(to->unit, weighted ? rows->unit / 4 : rows->unit);
}

static void network_forward(counter *c, const network *net, const tensor *x1, tensor *y) {
  int32_t last = c->model->moe.n_ffn_matrices - 1, d = c->w.d, f = net->f;
  inner v = inner_of(c, net, x1);
  tensor out = tensor_new(c, (int64_t)net->n * d);
  multiply(&out, (place){0, d, net->n, d, f}, packed(&v.product, 0, f),
           packed(net->params, net->at + (int64_t)last * d * f, d));
  tensor_done(c, &out);
  add_rows(c, net, &out, true, y);
}

static void network_backward(counter *c, const network *net, const tensor *x1, const tensor *dy, tensor *dx1) {
  int32_t last = c->model->moe.n_ffn_matrices - 1, d = c->w.d, f = net->f;
  int64_t down = net->at + (int64_t)last * d * f, n = (int64_t)net->n * f;
  inner v = inner_of(c, net, x1);
  tensor dout = gather(c, net, dy, true), dproduct = tensor_new(c, n), din = tensor_new(c, (int64_t)net->n * d);
  multiply(net->grads, (place){down, d, f, d, net->n}, transposed(packed(&v.product, 0, f)), packed(&dout, 0, d));
  multiply(&dproduct, (place){0, f, net->n, f, d}, packed(&dout, 0, d), transposed(packed(net->params, down, d)));
  tensor_done(c, &dproduct);
  for (int32_t part = 0; part < last; part++) {
    tensor dz = tensor_new(c, n);
    int64_t at = net->at + (int64_t)part * d * f;
    for (int64_t i = 0; i < n; i++)
      if (v.part[0].value[i] > 0)
        add_term(&dz, i, dproduct.value[i] * (last == 2 ? v.part[1 - part].value[i] : 1));
    dz.unit = dproduct.unit * (last == 2 ? v.part[1 - part].unit : 1);
    tensor_done(c, &dz);
    multiply(net->grads, (place){at, f, d, f, net->n}, transposed(packed(&v.in, 0, d)), packed(&dz, 0, f));
    multiply(&din, (place){0, d, net->n, d, f}, packed(&dz, 0, f), transposed(packed(net->params, at, f)));
  }
  tensor_done(c, &din);
  add_rows(c, net, &din, false, dx1);
}

/* ---- The step ---- */

/* Every network of the block for one rank's tokens: routed ones, then shared ones (all tokens, weight 1). */
typedef void network_function(counter *c, const network *net, stream *s, stream *g);

static void each_network(counter *c, const hec_assignments *a, network_function *function, stream *s, stream *g) {
  const hec_model *m = c->model;
  int32_t *all = HEC_NEW(c->arena, int32_t, c->step->tokens);
  float *ones = HEC_NEW(c->arena, float, c->step->tokens);
  for (int32_t t = 0; t < c->step->tokens; t++)
    all[t] = t, ones[t] = 1;
  for (int32_t i = 0; i < m->n_experts + m->moe.n_shared_experts; i++) {
    hec_arena_mark mark = hec_arena_save(c->arena);
    int32_t shared = i - m->n_experts, at = shared < 0 ? a->expert_at[i] : 0;
    network net = {.params = &c->block,
                   .grads = &c->block_grads,
                   .f = m->moe.d_ffn_shared,
                   .n = c->step->tokens,
                   .at = hec_model_block(m).shared + shared * hec_ffn_size(m, m->moe.d_ffn_shared),
                   .token = all,
                   .weight = ones};
    if (shared < 0)
      net = (network){.params = &c->experts,
                      .grads = &c->expert_grads,
                      .f = m->moe.d_ffn,
                      .n = a->expert_at[i + 1] - at,
                      .at = i * hec_model_expert_size(m),
                      .token = a->token + at,
                      .weight = a->weight + at};
    function(c, &net, s, g);
    hec_arena_rewind(c->arena, mark);
  }
}

/* g->x0 serves as y, then as the gradient of the input; g->x1 as dx1 with dy in it from the start (residual). */
static void run_forward(counter *c, const network *net, stream *s, stream *y) {
  network_forward(c, net, &s->x1, &y->x1);
}
static void run_backward(counter *c, const network *net, stream *s, stream *g) {
  network_backward(c, net, &s->x1, &g->attended, &g->x1);
}

static bool same(const tensor *t, const float *floats) {
  for (int64_t i = 0; i < t->n; i++)
    if (t->value[i] != (double)floats[i])
      return false;
  return true;
}

/* Forward and backward of one micro-batch and rank; true when outputs and input gradients are those of the floats. */
static bool run(counter *c, int32_t micro_batch, int32_t rank, hec_assignments *a) {
  const hec_bits_step *p = c->step;
  int64_t n = (int64_t)p->tokens * c->w.d, at = ((int64_t)micro_batch * p->n_ranks + rank) * n;
  float *data = HEC_NEW(c->arena, float, n + 1);
  stream s = stream_new(c), y = stream_new(c), g = stream_new(c);
  const uint32_t *counts = hec_load_row(&p->loads[micro_batch], 0, rank);
  hec_assign_forced(&(hec_token_row){counts, c->model->n_experts, p->tokens, 0, rank}, a);
  hec_assign_weights(&hec_processor_cpu, c->model, NULL, a);
  hec_model_input(c->model, p->step, micro_batch, rank, p->tokens, data);
  s.x0 = tensor_of(c, data, n);
  attention(c, &s);
  add_tensor(&y.x1, &s.x1);
  each_network(c, a, run_forward, &s, &y);
  tensor_done(c, &y.x1);
  bool equal = same(&y.x1, p->outputs + at);
  if (!p->train)
    return equal;
  hec_model_output_gradient(c->model, p->step, micro_batch, rank, p->tokens, data);
  tensor dy = tensor_of(c, data, n), dattended = g.attended;
  add_tensor(&g.x1, &dy);
  g.attended = dy;
  each_network(c, a, run_backward, &s, &g);
  g.attended = dattended;
  tensor_done(c, &g.x1);
  attention_backward(c, &s, &g);
  return equal && same(&g.x0, p->input_grads + at);
}

int32_t hec_bits_of_step(const hec_bits_step *step) {
  const hec_model *m = step->model;
  HEC_ASSERT(m->exact && m->n_blocks == 1);
  HEC_SCOPED(hec_arena) arena = {0};
  counter c = {.step = step, .model = m, .w = hec_model_widths_of(m), .arena = &arena};
  int64_t block = hec_model_block(m).size, experts = m->n_experts * hec_model_expert_size(m), max = 0;
  c.block = tensor_of(&c, step->block, block);
  c.experts = tensor_of(&c, step->experts, experts);
  c.block_grads = tensor_new(&c, block);
  c.expert_grads = tensor_new(&c, experts);
  for (int32_t mb = 0; mb < step->n_micro_batches; mb++)
    for (int32_t rank = 0; rank < step->n_ranks; rank++) {
      int64_t n = 0;
      for (int32_t e = 0; e < m->n_experts; e++)
        n += hec_load_row(&step->loads[mb], 0, rank)[e];
      max = n > max ? n : max;
    }
  hec_assignments a = hec_assignments_new(&arena, m, (int32_t)max, NULL);
  bool equal = true;
  for (int32_t mb = 0; mb < step->n_micro_batches; mb++)
    for (int32_t rank = 0; rank < step->n_ranks; rank++) {
      hec_arena_mark mark = hec_arena_save(&arena);
      equal = run(&c, mb, rank, &a) && equal;
      hec_arena_rewind(&arena, mark);
    }
  tensor_done(&c, &c.block_grads);
  tensor_done(&c, &c.expert_grads);
  if (step->train)
    equal = same(&c.block_grads, step->block_grads) && same(&c.expert_grads, step->expert_grads) && equal;
  HEC_ASSERT(equal || c.bits > 24);
  return c.bits;
}
