/* Products as the executor asks for them, as a share of one dense product with as many rows:
 *
 *   dense      C [R, f] = A [R, d] W [d, f]
 *   skewed     C_e [r_e, f] = A_e [r_e, d] W_e [d, f] for all experts e, one list; r_e as log-normal popularity (sigma 1)
 *              draws them, sum r_e = R
 *   even       the same with r_e = R / experts: what the other weights alone cost
 *   dense and skewed gradient      G_e [d, f] = A_e^T C_e
 *   scores     q k^T of the heads of one sequence, a block of queries after the other; values: P v likewise
 *
 * FLOP are 2 m n k of what is asked for: what a device rounds up to is not useful. Operands are float32 in memory in every
 * precision, so weights are read in full whatever the products are rounded to. */
#include "tools/bench/gpu_session.h"
#include "traces/synth.h"

#include <stdio.h>
#include <string.h>

enum { EXPERTS_MAX = 32, BLOCKS_MAX = 64, DENSE = 0, DENSE_GRADIENT = 3 };

typedef struct {
  int32_t experts, rows, d, f;        /* of the experts */
  int32_t heads, head, length, block; /* of attention; block: queries at a time */
} shape;

/* Width and inner width of the FFN of common models; heads as GPT-MoE-S has them, 128 queries as the model's blocks. */
static const shape large = {32, 16384, 1024, 4096, 12, 64, 2048, 128}, small = {8, 256, 32, 128, 2, 16, 64, 32};

typedef struct {
  hec_gemm list[EXPERTS_MAX];
  int32_t n;
} products;

typedef struct {
  hec_gemm list[BLOCKS_MAX][HEC_BATCH_MAX];
  int32_t n_blocks, n_heads;
} heads;

static void run_products(hec_processor *on, const void *with) {
  const products *p = with;
  on->math->gemm(on, p->list, p->n);
}

static void run_heads(hec_processor *on, const void *with) {
  const heads *h = with;
  for (int32_t b = 0; b < h->n_blocks; b++)
    on->math->gemm(on, h->list[b], h->n_heads);
}

/* ---- Experts ---- */

static int64_t expert_floats(const shape *s) {
  return (int64_t)s->rows * s->d + (int64_t)s->experts * s->d * s->f + (int64_t)s->rows * s->f;
}

/* rows [experts]: log-normal, or even. */
static hec_status draw_rows(const shape *s, uint32_t *rows) {
  enum { TOP_K = 2 };
  HEC_SCOPED(hec_arena) arena = {0};
  hec_synth_options options = hec_synth_defaults();
  options.workload = "lognormal";
  options.n_layers = options.n_sources = 1;
  options.n_experts = s->experts;
  options.top_k = TOP_K;
  options.tokens = s->rows / TOP_K;
  options.n_iterations = 1;
  options.sigma = 1;
  HEC_TRY(hec_synth_check(&options));
  HEC_OPENED(hec_synth) *synth = NULL;
  HEC_TRY(hec_synth_new(&options, &synth));
  hec_load load = hec_load_new(&arena, 1, 1, s->experts);
  hec_synth_next(synth, &load);
  memcpy(rows, load.counts, (size_t)s->experts * sizeof *rows);
  return HEC_OK;
}

/* Products of expert after expert; gradient: by the weights. n 1: one product with all rows. */
static void set_products(const shape *s, float *space, const uint32_t *rows, int32_t n, bool gradient, products *out) {
  float *a = space, *w = a + (int64_t)s->rows * s->d, *c = w + (int64_t)s->experts * s->d * s->f;
  out->n = n;
  for (int32_t e = 0; e < n; e++) {
    int32_t r = (int32_t)rows[e];
    out->list[e] = gradient ? (hec_gemm){.m = s->d, .n = s->f, .k = r, .transpose_a = true, .a = a, .b = c, .c = w}
                            : (hec_gemm){.m = r, .n = s->f, .k = s->d, .a = a, .b = w, .c = c};
    out->list[e].alpha = 1;
    a += (int64_t)r * s->d;
    w += (int64_t)s->d * s->f;
    c += (int64_t)r * s->f;
  }
}

/* ---- Attention ---- */

static int64_t attention_floats(const shape *s) {
  return (int64_t)s->heads * ((int64_t)2 * s->length * s->head + (int64_t)s->block * s->length);
}

/* q (or the output) and k (or v) [length, heads * head], scores [heads, block, length]. */
static void set_heads(const shape *s, float *space, bool values, heads *out) {
  int32_t width = s->heads * s->head;
  float *q = space, *k = q + (int64_t)s->length * width, *scores = k + (int64_t)s->length * width;
  out->n_blocks = s->length / s->block;
  out->n_heads = s->heads;
  HEC_ASSERT(out->n_blocks <= BLOCKS_MAX && out->n_heads <= HEC_BATCH_MAX);
  for (int32_t b = 0; b < out->n_blocks; b++)
    for (int32_t h = 0; h < s->heads; h++) {
      float *rows = q + (int64_t)b * s->block * width + h * s->head, *of = k + h * s->head;
      float *at = scores + (int64_t)h * s->block * s->length;
      out->list[b][h] =
          values ? (hec_gemm){.m = s->block, .n = s->head, .k = s->length, .a = at, .b = of, .c = rows, .ldc = width}
                 : (hec_gemm){.m = s->block,
                              .n = s->length,
                              .k = s->head,
                              .transpose_b = true,
                              .a = rows,
                              .b = of,
                              .c = at,
                              .lda = width};
      out->list[b][h].ldb = width;
      out->list[b][h].alpha = 1;
    }
}

/* ---- The section ---- */

typedef struct {
  products dense, skewed, even, dense_gradient, skewed_gradient;
  heads scores, values;
} all_products;

static hec_status set_all(const shape *s, float *space, all_products *p) {
  uint32_t rows[EXPERTS_MAX], even[EXPERTS_MAX], one = (uint32_t)s->rows;
  HEC_TRY(draw_rows(s, rows));
  for (int32_t e = 0; e < s->experts; e++)
    even[e] = one / (uint32_t)s->experts;
  set_products(s, space, &one, 1, false, &p->dense);
  set_products(s, space, rows, s->experts, false, &p->skewed);
  set_products(s, space, even, s->experts, false, &p->even);
  set_products(s, space, &one, 1, true, &p->dense_gradient);
  set_products(s, space, rows, s->experts, true, &p->skewed_gradient);
  set_heads(s, space, false, &p->scores);
  set_heads(s, space, true, &p->values);
  return HEC_OK;
}

static hec_status run_all(hec_gpu_session *session, const shape *s, const char *section, double required,
                          hec_gpu_results *results) {
  all_products *p = HEC_NEW(&session->arena, all_products, 1);
  HEC_TRY(set_all(s, session->space, p));
  double flop = 2.0 * s->rows * s->d * s->f, head_flop = 2.0 * s->heads * s->length * s->length * s->head;
  const hec_gpu_case cases[] = {{"dense", true, flop, -1, 0, run_products, &p->dense},
                                {"skewed experts", true, flop, DENSE, required, run_products, &p->skewed},
                                {"even experts", true, flop, DENSE, 0, run_products, &p->even},
                                {"dense gradient", true, flop, -1, 0, run_products, &p->dense_gradient},
                                {"skewed gradient", true, flop, DENSE_GRADIENT, 0, run_products, &p->skewed_gradient},
                                {"attention scores", true, head_flop, DENSE, 0, run_heads, &p->scores},
                                {"attention values", true, head_flop, DENSE, 0, run_heads, &p->values}};
  return hec_gpu_time(session, section, cases, sizeof cases / sizeof *cases, results);
}

hec_status hec_gpu_products(const hec_gpu_bench *bench, hec_gpu_results *results) {
  static const char *const names[] = {[HEC_FP32] = "fp32", [HEC_TF32] = "tf32", [HEC_BF16] = "bf16"};
  const shape *s = bench->small ? &small : &large;
  int64_t experts = expert_floats(s), attention = attention_floats(s);
  for (int32_t i = 0; i < 6; i++) {
    hec_gpu_setting setting = {(hec_precision)(i / 2), i % 2 == 0, experts > attention ? experts : attention};
    hec_gpu_session session;
    char section[32];
    (void)snprintf(section, sizeof section, "%s, %s", names[i / 2], setting.grouped ? "grouped" : "one by one");
    HEC_TRY(hec_gpu_session_open(bench, &setting, &session));
    hec_status status = run_all(&session, s, section, setting.grouped ? HEC_GPU_REQUIRED : 0, results);
    hec_gpu_session_close(&session);
    HEC_TRY(status);
  }
  return HEC_OK;
}
