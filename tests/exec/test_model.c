/* The model's pieces. What can be made, what fits, where assignments go. And every value and gradient of a block
 * against an oracle in double (gradients by central differences of it). */
#include "models/memory_cost.h"
#include "runtime/exec/model/reference.h"
#include "tests/exec/model_oracle.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ONCE(hec_math_open)
HEC_TEST_ARENA(arena)

/* Of its own, so that a sanitizer sees a step beyond; freed with the test's process. */
static float *floats(int64_t n) {
  static struct block {
    struct block *next;
    float x[];
  } * all;
  size_t bytes = ((size_t)n + 1) * sizeof(float);
  struct block *b = malloc(sizeof *b + bytes);
  ck_assert_ptr_nonnull(b);
  b->next = all;
  all = b;
  return memset(b->x, 0xFF, bytes); /* not a number: what is read must have been written */
}

static double *doubles(const float *from, int64_t n) {
  double *x = HEC_NEW(&arena, double, n + 1);
  for (int64_t i = 0; i < n; i++)
    x[i] = (double)from[i];
  return x;
}

/* ---- Shapes ---- */

HEC_TEST(kept_values_fit_the_law) {
  uint64_t random = 1;
  for (int i = 0; i < 2000; i++) {
    hec_model model = hec_oracle_random_model(&random, false);
    for (int32_t tokens = 0; tokens < 40; tokens += 13) {
      int64_t size = hec_block_kept_size(&model, tokens);
      ck_assert_double_le(4 * (double)size, hec_memory_cost_of(&model.moe, tokens, true).activation_layer);
      float *memory = floats(size);
      hec_block_kept kept = hec_block_kept_at(&model, 0, tokens, memory);
      float *const parts[] = {kept.x0,       kept.scale1, kept.q,      kept.k,  kept.v,
                              kept.attended, kept.x1,     kept.scale2, kept.h2, kept.probabilities};
      for (int p = 0; p < 10; p++)
        ck_assert(parts[p] >= memory && parts[p] <= memory + size);
    }
  }
}

HEC_TEST(layout_is_the_parameter_count) {
  uint64_t random = 2;
  for (int i = 0; i < 500; i++) {
    hec_model model = hec_oracle_random_model(&random, false);
    ck_assert(hec_moe_block_params(&model.moe) == (double)hec_model_block(&model).size);
    ck_assert(hec_moe_expert_params(&model.moe) == (double)hec_model_expert_size(&model));
    ck_assert_int_eq(model.moe.dtype_bytes, 4);
    ck_assert_int_eq(model.moe.n_layers, model.n_blocks);
  }
}

/* One field made wrong in a good shape, and the word that the message must have. */
HEC_TEST(shapes_that_cannot_be_executed) {
  hec_moe good, moe;
  hec_model model = {.n_experts = -7};
  ck_assert_int_eq(hec_moe_load("tiny", &good), HEC_OK);
  ck_assert_int_eq(hec_model_make(&good, false, 1, &model), HEC_OK);
  static const char *const words[] = {"parameter count", "shards",     "capacity",           "kv_heads",
                                      "d_model",         "exact mode", "cannot be executed", "top_k"};
  for (int i = 0; i < 8; i++) {
    moe = good;
    if (i == 0)
      moe.attention_params = 10;
    else if (i == 1) {
      moe.attention = HEC_ATTENTION_S2;
      moe.s2.shards = moe.n_heads + 1;
    } else if (i == 2)
      moe.capacity_factor = 1;
    else if (i == 3)
      moe.n_kv_heads = 3;
    else if (i == 4)
      moe.d_model = 3;
    else if (i == 6)
      moe.d_ffn = 1 << 24;
    else if (i == 7)
      moe.top_k = 9;
    model.n_experts = -7;
    ck_assert_int_eq(hec_model_make(&moe, i == 5, 1, &model), HEC_BAD_INPUT);
    ck_assert_msg(strstr(hec_last_error(), words[i]) != NULL, "%s", hec_last_error());
    ck_assert_int_eq(model.n_experts, -7);
  }
}

/* ---- Initial values ---- */

HEC_TEST(initial_values) {
  hec_moe moe;
  hec_model model, other;
  ck_assert_int_eq(hec_moe_load("tiny", &moe), HEC_OK);
  ck_assert_int_eq(hec_model_make(&moe, false, 5, &model), HEC_OK);
  other = model;
  other.seed = 6;
  enum { T = 50, D = 64 };
  float x[T * D], y[T * D], z[2 * T * D];
  double mean = 0, square = 0;
  hec_model_input(&model, 3, 1, 1, T, x);
  hec_model_input(&model, 3, 1, 0, 2 * T, z);
  ck_assert(memcmp(x, z + T * D, sizeof x) == 0);
  for (int i = 0; i < 2 * T * D; i++) {
    mean += (double)z[i] / (2 * T * D);
    square += (double)(z[i] * z[i]) / (2 * T * D);
  }
  ck_assert_double_eq_tol(mean, 0, 0.05);
  ck_assert_double_eq_tol(square, 1, 0.06);
  for (int i = 0; i < 5; i++) { /* seed, step, micro-batch, rank, kind: all count */
    if (i == 4)
      hec_model_output_gradient(&model, 3, 1, 1, T, y);
    else
      hec_model_input(i == 0 ? &other : &model, i == 1 ? 4 : 3, i == 2 ? 0 : 1, i == 3 ? 2 : 1, T, y);
    for (int j = 0; j < 20; j++)
      ck_assert(x[j] != y[j]);
  }
  /* One value, forever: a change of the generator is a change of every exact result. */
  ck_assert_msg(x[0] == 0x1.7d44860000000p-2F, "found %a", (double)x[0]); /* computed apart, from the definition */
}

HEC_TEST_LOOP(the_stream_stays_of_order_one, 2) {
  hec_moe moe;
  hec_model model;
  ck_assert_int_eq(hec_moe_load("tiny", &moe), HEC_OK);
  moe.n_layers = moe.n_moe_layers = 4 * (1 + 2 * _i);
  ck_assert_int_eq(hec_model_make(&moe, false, 5, &model), HEC_OK);
  enum { T = 128 };
  hec_load load = hec_load_new(&arena, model.n_blocks, 1, model.n_experts);
  for (int32_t i = 0; i < model.n_blocks * model.n_experts; i++)
    load.counts[i] = T * 2 / 8;
  HEC_OPENED(hec_reference) *reference = hec_reference_new(&model, 1, T, true);
  hec_reference_step(reference, 1, &load, 1);
  const float *out = hec_reference_output(reference, 0, 0), *in = hec_reference_input_gradient(reference, 0, 0);
  double root = sqrt((double)hec_math_dot(out, out, T * 64) / (T * 64));
  double back = sqrt((double)hec_math_dot(in, in, T * 64) / (T * 64));
  ck_assert_double_ge(root, 1);
  ck_assert_double_le(root, 2);
  ck_assert_double_ge(back, 1);
  ck_assert_double_le(back, 2);
}

/* ---- Assignments ---- */

static int32_t random_shape(uint64_t *random, hec_model *model, hec_load *load, int32_t max) {
  int32_t tokens = 1 + (int32_t)hec_test_below(random, (uint64_t)max);
  *model = hec_oracle_random_model(random, false);
  *load = hec_oracle_random_load(&arena, random, model, 1, tokens);
  return tokens;
}

HEC_TEST(forced_assignments) {
  uint64_t random = 3;
  for (int i = 0; i < 500; i++) {
    hec_model model;
    hec_load load;
    int32_t tokens = random_shape(&random, &model, &load, 12), n = 0, seen[64][12] = {{0}}, all[12] = {0};
    hec_assignments a = hec_assignments_new(&arena, &model, tokens * model.top_k, NULL);
    hec_assign_forced(&(hec_token_row){load.counts, model.n_experts, tokens, i % 3, i}, &a);
    for (int32_t e = 0; e < model.n_experts; e++) {
      ck_assert_int_eq(a.expert_at[e], n);
      n += (int32_t)load.counts[e];
      for (int32_t j = a.expert_at[e]; j < n; j++) {
        ck_assert(a.token[j] >= 0 && a.token[j] < tokens);
        all[a.token[j]]++;
        ck_assert_int_le(++seen[e][a.token[j]], ((int32_t)load.counts[e] + tokens - 1) / tokens);
      }
    }
    ck_assert_int_eq(a.n, n);
    ck_assert_int_eq(a.expert_at[model.n_experts], n);
    for (int32_t t = 0; t < tokens; t++) /* tokens share the work evenly */
      ck_assert(all[t] >= n / tokens && all[t] <= (n + tokens - 1) / tokens);
  }
}

HEC_TEST(no_tokens_no_assignments) {
  uint64_t random = 4;
  hec_model model = hec_oracle_random_model(&random, false);
  uint32_t none[8] = {0};
  hec_assignments a = hec_assignments_new(&arena, &model, 0, NULL);
  hec_assign_forced(&(hec_token_row){none, model.n_experts, 0, 0, 0}, &a);
  ck_assert_int_eq(a.n, 0);
  hec_assign_forced(&(hec_token_row){none, model.n_experts, 5, 0, 0}, &a);
  ck_assert_int_eq(a.expert_at[model.n_experts], 0);
  hec_assign_top_k(&model, NULL, NULL, 0, &a);
  ck_assert_int_eq(a.n, 0);
}

HEC_TEST(top_k_and_ties) {
  uint64_t random = 5;
  for (int i = 0; i < 400; i++) {
    hec_model model = hec_oracle_random_model(&random, false);
    int32_t tokens = 1 + (int32_t)hec_test_below(&random, 9), n = model.n_experts;
    float p[9 * 8];
    for (int32_t j = 0; j < tokens * n; j++) /* few values: many ties; sometimes none at all */
      p[j] = i % 5 == 0 && hec_test_below(&random, 3) == 0 ? NAN : (float)hec_test_below(&random, 3) / 4;
    hec_assignments a = hec_assignments_new(&arena, &model, tokens * model.top_k, NULL);
    hec_assign_top_k(&model, p, NULL, tokens, &a);
    hec_assign_weights(&hec_processor_cpu, &model, p, &a);
    ck_assert_int_eq(a.n, tokens * model.top_k);
    int32_t j = 0;
    for (int32_t e = 0; e < n; e++) {
      ck_assert_int_eq(a.expert_at[e], j);
      for (int32_t t = 0; t < tokens; t++) {
        int32_t before = 0; /* experts that this token prefers to e */
        for (int32_t other = 0; other < n; other++) {
          float v = p[t * n + other] >= 0 ? p[t * n + other] : -1, own = p[t * n + e] >= 0 ? p[t * n + e] : -1;
          before += v > own || (v == own && other < e);
        }
        if (before >= model.top_k)
          continue;
        ck_assert_int_eq(a.token[j], t);
        ck_assert(a.weight[j] == p[t * n + e] || isnan(p[t * n + e]));
        j++;
      }
    }
    ck_assert_int_eq(a.expert_at[n], j);
  }
}

/* ---- Values and gradients ---- */

typedef struct {
  hec_oracle oracle;
  hec_reference *reference;
  double *blocks, *experts, *x;
  float *dx;
} comparison;

static double loss_at(comparison *c, double *where, double value) {
  double before = *where;
  *where = value;
  double loss = hec_oracle_loss(&c->oracle, c->x, c->dx);
  *where = before;
  return loss;
}

/* A few elements of a gradient [n] against differences by values [n]; `scale`: of the gradients of this tensor. */
static void check_gradient(comparison *c, uint64_t *random, const float *gradient, double *values, int64_t n) {
  double scale = 1e-3, step = 1e-5;
  for (int64_t i = 0; i < n; i++)
    scale = fmax(scale, fabs((double)gradient[i]));
  for (int i = 0; i < 3 && n > 0; i++) {
    int64_t at = (int64_t)hec_test_below(random, (uint64_t)n);
    double up = loss_at(c, values + at, values[at] + step), down = loss_at(c, values + at, values[at] - step);
    ck_assert_double_eq_tol((double)gradient[at], (up - down) / (2 * step), 3e-5 * scale);
  }
}

static void check_block(comparison *c, uint64_t *random, int32_t layer) {
  const hec_model *m = c->oracle.model;
  hec_block_layout at = hec_model_block(m);
  const int64_t parts[] = {at.q, at.k, at.v, at.o, at.norm1, at.norm2, at.gate, at.shared, at.size};
  hec_reference_state state = hec_reference_block(c->reference, layer);
  for (int i = 0; i < 8; i++)
    check_gradient(c, random, state.grads + parts[i], c->blocks + layer * at.size + parts[i], parts[i + 1] - parts[i]);
  for (int32_t e = 0; e < m->n_experts; e++) {
    state = hec_reference_expert(c->reference, layer, e);
    check_gradient(c, random, state.grads, c->experts + ((int64_t)layer * m->n_experts + e) * state.n, state.n);
  }
}

HEC_TEST_LOOP(blocks_against_the_oracle, 8) {
  uint64_t random = 100 + (uint64_t)_i;
  for (int i = 0; i < 12; i++) {
    hec_model model;
    hec_load load;
    int32_t tokens = random_shape(&random, &model, &load, 20), d = model.moe.d_model;
    if (i % 4 == 0)
      model.activation = HEC_RELU;
    HEC_OPENED(hec_reference) *reference = hec_reference_new(&model, 1, tokens, true);
    comparison c = {.reference = reference};
    c.blocks = doubles(hec_reference_block(reference, 0).params, model.n_blocks * hec_model_block(&model).size);
    c.experts = doubles(hec_reference_expert(reference, 0, 0).params,
                        (int64_t)model.n_blocks * model.n_experts * hec_model_expert_size(&model));
    hec_reference_step(reference, 1, &load, 1);
    float *x = floats((int64_t)tokens * d);
    c.dx = floats((int64_t)tokens * d);
    hec_model_input(&model, 1, 0, 0, tokens, x);
    hec_model_output_gradient(&model, 1, 0, 0, tokens, c.dx);
    c.x = doubles(x, (int64_t)tokens * d);
    c.oracle = (hec_oracle){
        .model = &model, .blocks = c.blocks, .experts = c.experts, .load = &load, .rank = 0, .tokens = tokens};
    double *out = doubles(x, (int64_t)tokens * d);
    hec_oracle_forward(&c.oracle, out);
    for (int64_t j = 0; j < (int64_t)tokens * d; j++)
      ck_assert_double_eq_tol((double)hec_reference_output(reference, 0, 0)[j], out[j], 5e-6 * (1 + fabs(out[j])));
    for (int32_t layer = 0; layer < model.n_blocks; layer++)
      check_block(&c, &random, layer);
    check_gradient(&c, &random, hec_reference_input_gradient(reference, 0, 0), c.x, (int64_t)tokens * d);
  }
}

/* ---- What attention computes ---- */

static int64_t n_products; /* of numbers, in products whose result or operand are scores */
static void counting_gemm(hec_processor *on, const hec_gemm *list, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    n_products += list[i].lda != 0 ? (int64_t)list[i].m * list[i].n * list[i].k : 0; /* projections are packed */
  hec_processor_cpu.math->gemm(on, list, n);
}

/* Forward of one block on garbage; returns the stream, counts the products. */
static float *attended(hec_moe moe, int32_t tokens) {
  hec_arithmetic counting = *hec_processor_cpu.math;
  counting.gemm = counting_gemm;
  hec_processor on = {.math = &counting};
  hec_model model;
  ck_assert_msg(hec_model_make(&moe, false, 3, &model) == HEC_OK, "%s", hec_last_error());
  float *params = floats(hec_model_block(&model).size), *x = floats((int64_t)tokens * moe.d_model),
        *memory = floats(hec_block_kept_size(&model, tokens)),
        *scratch = floats(hec_model_scratch_size(&model, tokens));
  hec_block_kept kept = hec_block_kept_at(&model, 0, tokens, memory);
  hec_model_init_block(&model, 0, params);
  hec_model_input(&model, 1, 0, 0, tokens, x);
  n_products = 0;
  hec_block_attention(&on, &model, params, tokens, x, &kept, scratch);
  return x;
}

/* The executor computes what the law charges. The pairs that are seen, and beyond them at most the triangle above the
 * diagonal of its blocks of 128 queries. One shard, or a window over everything, is causal attention. */
HEC_TEST_LOOP(attention_computes_what_is_charged, 5) {
  static const char *const kinds[] = {"full", "causal", "s2:shards=4,local=16,block=16",
                                      "s2:shards=3,local=400,block=200", "s2:shards=2,local=1,block=1"};
  static const int32_t blocks[] = {0, 128, 16, 128, 1}; /* of queries */
  enum { L = 500, TOKENS = 2 * L };
  hec_moe moe;
  ck_assert_int_eq(hec_moe_load("tiny", &moe), HEC_OK);
  moe.seq_len = L;
  int64_t exact = 0;
  ck_assert_ptr_null(hec_attention_read(kinds[_i], &moe.attention, &moe.s2));
  for (int32_t h = 0; h < moe.n_heads; h++)
    exact += TOKENS / L * hec_attention_pairs(moe.attention, hec_s2_of(moe.s2, moe.n_heads), h, L);
  (void)attended(moe, TOKENS);
  ck_assert_int_eq(n_products % (2 * moe.d_head), 0); /* scores and values */
  int64_t pairs = n_products / (2 * moe.d_head);
  ck_assert_int_ge(pairs, exact);
  ck_assert_int_le(pairs, exact + (int64_t)moe.n_heads * TOKENS * blocks[_i] / 2);
}

HEC_TEST_LOOP(s2_that_sees_everything_is_causal, 4) {
  static const char *const kinds[] = {"s2:shards=1,local=16,block=16", "s2:shards=1,local=150,block=150",
                                      "s2:shards=4,local=512,block=256", "s2:shards=4,local=8,block=8,dense=1"};
  enum { TOKENS = 450 };
  hec_moe moe;
  ck_assert_int_eq(hec_moe_load("tiny", &moe), HEC_OK);
  moe.seq_len = 300;
  float *causal = attended(moe, TOKENS);
  ck_assert_ptr_null(hec_attention_read(kinds[_i], &moe.attention, &moe.s2));
  float *same = attended(moe, TOKENS);
  moe.s2 = (hec_s2){.shards = 4, .local = 8, .block = 8};
  float *other = attended(moe, TOKENS);
  double worst = 0, apart = 0;
  for (int i = 0; i < TOKENS * moe.d_model; i++) {
    worst = fmax(worst, fabs((double)(same[i] - causal[i])));
    apart = fmax(apart, fabs((double)(other[i] - causal[i])));
  }
  ck_assert_msg(worst < 1e-5 && apart > 1e-3, "%g, %g", worst, apart);
}

/* The pieces with memory of exactly the promised sizes (a sanitizer sees a step beyond), on garbage. The same bits as
 * the reference, which has its own memory. Once head by head, once on a processor that takes all heads together. */
HEC_TEST_LOOP(promised_sizes_are_enough, 2) {
  hec_arithmetic wide = *hec_processor_cpu.math;
  wide.batch = HEC_BATCH_MAX;
  hec_processor together = {.math = &wide}, *on = _i == 0 ? &hec_processor_cpu : &together;
  uint64_t random = 9;
  for (int i = 0; i < 60; i++) {
    hec_model model;
    hec_load load;
    int32_t tokens = random_shape(&random, &model, &load, 30), d = model.moe.d_model;
    model.n_blocks = model.moe.n_layers = model.moe.n_moe_layers = load.n_layers = 1;
    int64_t n = (int64_t)tokens * d, size = hec_model_block(&model).size;
    float *params = floats(size), *grads = floats(size), *x = floats(n), *dx = floats(n), *dh2 = floats(n);
    float *memory = floats(hec_block_kept_size(&model, tokens)),
          *scratch = floats(hec_model_scratch_size(&model, tokens));
    hec_block_kept kept = hec_block_kept_at(&model, 0, tokens, memory);
    hec_assignments a = hec_assignments_new(&arena, &model, tokens * model.top_k, NULL);
    uint32_t none[8] = {0};
    hec_model_init_block(&model, 0, params);
    hec_model_input(&model, 1, 0, 0, tokens, x);
    hec_model_output_gradient(&model, 1, 0, 0, tokens, dx);
    memset(grads, 0, (size_t)size * sizeof *grads);
    memset(dh2, 0, (size_t)n * sizeof *dh2);
    hec_block_attention(on, &model, params, tokens, x, &kept, scratch);
    hec_block_gate(on, &model, params, tokens, x, &kept, scratch);
    hec_block_shared(on, &model, params, tokens, kept.h2, x, scratch);
    hec_assign_forced(&(hec_token_row){none, model.n_experts, tokens, 0, 0}, &a);
    hec_block_shared_backward(on, &model, params, grads, tokens, kept.h2, dx, dh2, scratch);
    hec_block_gate_backward(on, &model, params, grads, tokens, dh2, dx, &a, &kept, scratch);
    hec_block_attention_backward(on, &model, params, grads, tokens, dx, &kept, scratch);
    memset(load.counts, 0, (size_t)model.n_experts * sizeof *load.counts);
    HEC_OPENED(hec_reference) *reference = hec_reference_new(&model, 1, tokens, true);
    hec_reference_step(reference, 1, &load, 1);
    ck_assert(memcmp(x, hec_reference_output(reference, 0, 0), (size_t)n * sizeof *x) == 0);
    ck_assert(memcmp(dx, hec_reference_input_gradient(reference, 0, 0), (size_t)n * sizeof *x) == 0);
    ck_assert(memcmp(grads, hec_reference_block(reference, 0).grads, (size_t)size * sizeof *x) == 0);
  }
}

static void forward(const hec_model *model, const float *params, int32_t n, const float *in, float *inner, float *out) {
  hec_experts_forward(&hec_processor_cpu, model,
                      &(hec_expert_rows){.params = params, .n = n, .in = in, .inner = inner, .out = out}, 1);
}

static void backward(const hec_model *model, const float *params, float *grads, bool first, int32_t n, const float *in,
                     float *inner, float *dout, float *din) {
  const hec_expert_rows rows = {params, grads, first, n, in, inner, dout, din};
  hec_experts_backward(&hec_processor_cpu, model, &rows, 1);
}

HEC_TEST(an_expert_without_rows) {
  uint64_t random = 10;
  for (int i = 0; i < 20; i++) {
    hec_model model = hec_oracle_random_model(&random, false);
    int64_t size = hec_model_expert_size(&model);
    float *params = floats(size), *grads = floats(size);
    hec_model_init_expert(&model, 0, 0, params);
    forward(&model, params, 0, NULL, NULL, NULL);
    backward(&model, params, grads, true, 0, NULL, NULL, NULL, NULL);
    for (int64_t j = 0; j < size; j++)
      ck_assert(grads[j] == 0);
    grads[0] = 3;
    backward(&model, params, grads, false, 0, NULL, NULL, NULL, NULL);
    ck_assert(grads[0] == 3);
  }
}

/* Experts of one call give the bits that each gives alone, more of them than go into one list of products. */
HEC_TEST(experts_together) {
  enum { EXPERTS = 70 };
  uint64_t random = 13;
  for (int i = 0; i < 4; i++) {
    hec_model model = hec_oracle_random_model(&random, false);
    int32_t d = model.moe.d_model, width = model.moe.n_ffn_matrices * model.moe.d_ffn;
    int64_t size = hec_model_expert_size(&model);
    hec_expert_rows alone[EXPERTS], together[EXPERTS];
    for (int32_t e = 0; e < EXPERTS; e++) {
      int32_t n = (int32_t)hec_test_below(&random, 6);
      float *params = floats(size), *in = floats((int64_t)n * d);
      hec_model_init_expert(&model, 0, e, params);
      hec_model_input(&model, 1, 0, e, n, in);
      for (int k = 0; k < 2; k++) {
        float *grads = floats(size), *inner = floats((int64_t)n * width);
        (k ? together : alone)[e] =
            (hec_expert_rows){params, grads, true, n, in, inner, floats((int64_t)n * d), floats((int64_t)n * d)};
      }
      hec_experts_forward(&hec_processor_cpu, &model, &alone[e], 1);
      hec_experts_backward(&hec_processor_cpu, &model, &alone[e], 1);
    }
    hec_experts_forward(&hec_processor_cpu, &model, together, EXPERTS);
    hec_experts_backward(&hec_processor_cpu, &model, together, EXPERTS);
    for (int32_t e = 0; e < EXPERTS; e++) {
      hec_expert_rows *a = &alone[e], *b = &together[e];
      size_t rows = (size_t)a->n * (size_t)d * sizeof(float);
      ck_assert(memcmp(a->grads, b->grads, (size_t)size * sizeof(float)) == 0);
      ck_assert(memcmp(a->out, b->out, rows) == 0 && memcmp(a->din, b->din, rows) == 0);
    }
  }
}

/* Two calls that add give what one call on all rows gives; `first` forgets what was there. */
HEC_TEST(expert_gradients_add_up) {
  uint64_t random = 11;
  for (int i = 0; i < 40; i++) {
    hec_model model = hec_oracle_random_model(&random, false);
    int32_t d = model.moe.d_model, width = model.moe.n_ffn_matrices * model.moe.d_ffn;
    int32_t n = 2 + (int32_t)hec_test_below(&random, 20), cut = 1 + (int32_t)hec_test_below(&random, (uint64_t)n - 1);
    int64_t size = hec_model_expert_size(&model);
    float *params = floats(size), *whole = floats(size), *parts = floats(size);
    float *in = floats((int64_t)n * d), *dout = floats((int64_t)n * d), *out = floats((int64_t)n * d);
    float *inner = floats((int64_t)n * width), *din = floats((int64_t)n * d), *din2 = floats((int64_t)n * d);
    hec_model_init_expert(&model, 0, 1, params);
    hec_model_input(&model, 1, 0, 0, n, in);
    hec_model_output_gradient(&model, 1, 0, 0, n, dout);
    forward(&model, params, n, in, inner, out);
    backward(&model, params, whole, true, n, in, inner, dout, din);
    forward(&model, params, n, in, inner, out);
    backward(&model, params, parts, true, cut, in, inner, dout, din2);
    backward(&model, params, parts, false, n - cut, in + (int64_t)cut * d, inner + (int64_t)cut * width,
             dout + (int64_t)cut * d, din2 + (int64_t)cut * d);
    ck_assert_double_le(hec_relative_error(parts, whole, size), 1e-6);
    ck_assert_double_le(hec_relative_error(din2, din, (int64_t)n * d), 1e-6);
  }
}

HEC_TEST(rows_travel) {
  uint64_t random = 12;
  hec_model model = hec_oracle_random_model(&random, false);
  enum { T = 3, N = 5, D = 4 };
  hec_assignments a = hec_assignments_new(&arena, &model, N, NULL);
  static const int32_t token[N] = {2, 0, 1, 2, 2}, at[N] = {4, 2, 0, 3, 1}; /* rows lie in any order */
  float h2[T * D], rows[N * D], *row[N], x[T * D] = {0}, dh2[T * D] = {0}, out[N * D], *outs[N];
  a.n = N, a.n_tokens = T;
  for (int i = 0; i < T * D; i++)
    h2[i] = (float)(i + 1);
  for (int j = 0; j < N; j++) {
    a.token[j] = token[j];
    a.weight[j] = (float)(j + 1);
    row[j] = rows + (ptrdiff_t)at[j] * D;
    outs[j] = out + (ptrdiff_t)at[j] * D;
  }
  hec_processor_cpu.math->permute(&hec_processor_cpu, &a, h2, D, row);
  for (int j = 0; j < N; j++)
    ck_assert(memcmp(row[j], h2 + (ptrdiff_t)token[j] * D, D * sizeof *h2) == 0);
  hec_processor_cpu.math->combine(&hec_processor_cpu, &a, row, D, x);
  hec_processor_cpu.math->unpermute(&hec_processor_cpu, &a, row, D, dh2);
  static const float weights[T] = {2, 3, 1 + 4 + 5}, times[T] = {1, 1, 3};
  for (int i = 0; i < T * D; i++) {
    ck_assert(x[i] == weights[i / D] * h2[i]);
    ck_assert(dh2[i] == times[i / D] * h2[i]);
  }
  memcpy(out, rows, sizeof out);
  hec_processor_cpu.math->uncombine(&hec_processor_cpu, &a, h2, outs, D, outs); /* in place */
  for (int j = 0; j < N; j++) {
    ck_assert(a.weight_grad[j] == hec_math_dot(row[j], row[j], D));
    for (int i = 0; i < D; i++)
      ck_assert(outs[j][i] == (float)(j + 1) * row[j][i]);
  }
}
