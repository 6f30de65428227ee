/* What the executor does to memory beside products, as a share of the rate at which the device copies one large piece:
 *
 *   copy      to = from                                   reads 4, writes 4 bytes per float
 *   permute   row j = h2[token j]                         4 and 4 per float of the rows
 *   combine   x[token] += weight row                      4 per float of the rows, 4 and 4 per float of x
 *   add       to += from, a list                          8 and 4
 *   adam      params, first, second; gradients cleared    16 and 16
 *
 * Bytes are those that the formula names: a permute that reads a token once for all its experts may be above 1.
 * Everything is as large as the copy, so that no cache holds it. */
#include "tools/common/gpu_bench_parts.h"

#include "runtime/exec/model.h"

enum { WIDTH = 1024, SMALL_WIDTH = 64, TOP_K = 2, EXPERTS = 32, LIST = 32 };

typedef struct {
  hec_piece copy, add[LIST];
  hec_moments adam[LIST];
  hec_assignments assignments;
  float *tokens; /* [n_tokens, width], then the rows */
  float **row;   /* [n] */
  int32_t width;
} memory;

static void run_copy(hec_processor *on, const void *with) {
  const memory *m = with;
  on->math->copy(on, &m->copy, 1);
}

static void run_add(hec_processor *on, const void *with) {
  const memory *m = with;
  on->math->add(on, m->add, LIST);
}

static void run_adam(hec_processor *on, const void *with) {
  const memory *m = with;
  const hec_adam adam = {.rate = 1e-4F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F};
  on->math->adam(on, &adam, 1, m->adam, LIST);
}

static void run_permute(hec_processor *on, const void *with) {
  const memory *m = with;
  on->math->permute(on, &m->assignments, m->tokens, m->width, m->row);
}

static void run_combine(hec_processor *on, const void *with) {
  const memory *m = with;
  on->math->combine(on, &m->assignments, m->row, m->width, m->tokens);
}

/* n floats and as many behind them, cut into lists. */
static void set_lists(hec_gpu_session *s, int64_t n, memory *m) {
  float *second_half = s->space + n;
  m->copy = (hec_piece){s->space, second_half, n};
  int64_t part = n / LIST, quarter = n / 2, moments = quarter / LIST;
  for (int64_t i = 0; i < LIST; i++) {
    m->add[i] = (hec_piece){s->space + i * part, second_half + i * part, part};
    float *at = s->space + i * moments;
    m->adam[i] = (hec_moments){at, at + quarter, at + 2 * quarter, at + 3 * quarter, moments, true};
  }
}

/* Assignment j is of token j mod n_tokens, as in replay; experts have equally many. */
static void set_assignments(hec_gpu_session *s, int32_t n_tokens, memory *m) {
  hec_assignments *a = &m->assignments;
  int32_t n = n_tokens * TOP_K;
  *a = (hec_assignments){.n = n, .n_tokens = n_tokens, .capacity = n};
  a->expert_at = HEC_NEW(&s->arena, int32_t, EXPERTS + 1);
  a->token = HEC_NEW(&s->arena, int32_t, n);
  m->row = HEC_NEW(&s->arena, float *, n);
  m->tokens = s->space;
  float *rows = s->space + (int64_t)n_tokens * m->width;
  a->weight = rows + (int64_t)n * m->width;
  a->weight_grad = a->weight + n;
  for (int32_t e = 0; e <= EXPERTS; e++)
    a->expert_at[e] = (int32_t)((int64_t)n * e / EXPERTS);
  for (int32_t j = 0; j < n; j++) {
    a->token[j] = j % n_tokens;
    m->row[j] = rows + (int64_t)j * m->width;
  }
}

hec_status hec_gpu_memory(const hec_gpu_bench *bench, hec_gpu_results *results) {
  hec_gpu_session s;
  memory m = {.width = bench->small ? SMALL_WIDTH : WIDTH};
  HEC_TRY(hec_gpu_session_open(bench, &(hec_gpu_setting){.precision = HEC_CUDA_FP32, .grouped = true}, &s));
  int64_t n = s.n_space / 2 / (2 * LIST) * (2 * LIST); /* as lists want it */
  int32_t n_tokens = (int32_t)(s.n_space / ((1 + TOP_K) * (int64_t)m.width + 2 * TOP_K));
  set_lists(&s, n, &m);
  set_assignments(&s, n_tokens, &m);
  double floats = (double)n, token_floats = (double)n_tokens * m.width;
  const hec_gpu_case cases[] = {
      {"copy", false, 8 * floats, -1, 0, run_copy, &m},
      {"permute", false, 8 * TOP_K * token_floats, 0, HEC_GPU_REQUIRED, run_permute, &m},
      {"combine", false, (4 * TOP_K + 8) * token_floats, 0, HEC_GPU_REQUIRED, run_combine, &m},
      {"add", false, 12 * floats, 0, HEC_GPU_REQUIRED, run_add, &m},
      {"adam", false, 16 * floats, 0, HEC_GPU_REQUIRED, run_adam, &m}};
  hec_status status = n_tokens > 0 && n > 0 ? hec_gpu_time(&s, "memory", cases, sizeof cases / sizeof *cases, results)
                                            : hec_fail(HEC_FAILED, "the device has no memory to spare");
  hec_gpu_session_close(&s);
  return status;
}
