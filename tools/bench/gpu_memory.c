/* What the executor does to memory beside products, as a share of the rate at which the device copies one large piece:
 *
 *   copy      to = from                                   reads 4, writes 4 bytes per float
 *   permute   row j = h2[token j]                         4 and 4 per float of the rows
 *   combine   x[token] += weight row                      4 per float of the rows, 4 and 4 per float of x
 *   add       to += from, a list                          8 and 4
 *   adam      params, first, second; gradients cleared    16 and 16
 *
 * Bytes are those that the formula names: a permute that reads a token once for all its experts may be above 1.
 * Everything is as large as the copy, so that no cache holds it. Rows are as wide as in large models. So the host,
 * which sorts assignments, is done before the device (what the host needs stands under launches). */
#include "tools/bench/gpu_session.h"

enum { WIDTH = 4096, SMALL_WIDTH = 64, EXPERTS = 32, LIST = 32 };

/* ---- Rows ---- */

int64_t hec_gpu_rows_floats(int32_t n_tokens, int32_t width) {
  return (int64_t)n_tokens * ((1 + HEC_GPU_TOP_K) * (int64_t)width + 2 * HEC_GPU_TOP_K);
}

void hec_gpu_rows_set(hec_gpu_session *session, float *at, int32_t n_tokens, int32_t width, hec_gpu_rows *rows) {
  hec_arena *arena = &session->arena;
  int32_t n = n_tokens * HEC_GPU_TOP_K;
  float *first = at + (int64_t)n_tokens * width;
  *rows = (hec_gpu_rows){.tokens = at, .row = HEC_NEW(arena, float *, n), .width = width};
  hec_assignments *a = &rows->assignments;
  *a = (hec_assignments){.n = n, .n_tokens = n_tokens, .capacity = n};
  a->expert_at = HEC_NEW(arena, int32_t, EXPERTS + 1);
  a->token = HEC_NEW(arena, int32_t, n);
  a->weight = first + (int64_t)n * width;
  a->weight_grad = a->weight + n;
  for (int32_t e = 0; e <= EXPERTS; e++)
    a->expert_at[e] = (int32_t)((int64_t)n * e / EXPERTS);
  for (int32_t j = 0; j < n; j++) {
    a->token[j] = j % n_tokens;
    rows->row[j] = first + (int64_t)j * width;
  }
}

void hec_gpu_rows_permute(hec_processor *on, const void *rows) {
  const hec_gpu_rows *r = rows;
  on->math->permute(on, &r->assignments, r->tokens, r->width, r->row);
}

void hec_gpu_rows_combine(hec_processor *on, const void *rows) {
  const hec_gpu_rows *r = rows;
  on->math->combine(on, &r->assignments, r->row, r->width, r->tokens);
}

/* ---- Lists ---- */

typedef struct {
  hec_piece copy, add[LIST];
  hec_moments adam[LIST];
} lists;

static void run_copy(hec_processor *on, const void *with) {
  const lists *l = with;
  on->math->copy(on, &l->copy, 1);
}

static void run_add(hec_processor *on, const void *with) {
  const lists *l = with;
  on->math->add(on, l->add, LIST);
}

static void run_adam(hec_processor *on, const void *with) {
  const lists *l = with;
  const hec_adam adam = {.rate = 1e-4F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F};
  on->math->adam(on, &adam, 1, l->adam, LIST);
}

/* n floats and as many behind them, in pieces. */
static void set_lists(const hec_gpu_session *s, int64_t n, lists *l) {
  float *second_half = s->space + n;
  l->copy = (hec_piece){s->space, second_half, n};
  int64_t piece = n / LIST, quarter = n / 2, moments = quarter / LIST;
  for (int64_t i = 0; i < LIST; i++) {
    float *at = s->space + i * moments;
    l->add[i] = (hec_piece){s->space + i * piece, second_half + i * piece, piece};
    l->adam[i] = (hec_moments){at, at + quarter, at + 2 * quarter, at + 3 * quarter, moments, true};
  }
}

hec_status hec_gpu_memory(const hec_gpu_bench *bench, hec_gpu_results *results) {
  hec_gpu_session s;
  hec_gpu_rows r;
  lists l;
  int32_t width = bench->small ? SMALL_WIDTH : WIDTH;
  HEC_TRY(hec_gpu_session_open(bench, &(hec_gpu_setting){.precision = HEC_FP32, .grouped = true}, &s));
  int64_t n = s.n_space / 2 / (2 * LIST) * (2 * LIST); /* a multiple of all pieces */
  int32_t n_tokens = (int32_t)(s.n_space / hec_gpu_rows_floats(1, width));
  hec_status status = HEC_OK;
  if (n == 0 || n_tokens == 0)
    status = hec_fail(HEC_FAILED, "the device has no memory to spare");
  if (status == HEC_OK) {
    set_lists(&s, n, &l);
    hec_gpu_rows_set(&s, s.space, n_tokens, width, &r);
    double floats = (double)n, token_floats = (double)n_tokens * width;
    const hec_gpu_case cases[] = {
        {"copy", false, 8 * floats, -1, 0, run_copy, &l},
        {"permute", false, 8 * HEC_GPU_TOP_K * token_floats, 0, HEC_GPU_REQUIRED, hec_gpu_rows_permute, &r},
        {"combine", false, (4 * HEC_GPU_TOP_K + 8) * token_floats, 0, HEC_GPU_REQUIRED, hec_gpu_rows_combine, &r},
        {"add", false, 12 * floats, 0, HEC_GPU_REQUIRED, run_add, &l},
        {"adam", false, 16 * floats, 0, HEC_GPU_REQUIRED, run_adam, &l}};
    status = hec_gpu_time(&s, "memory", cases, sizeof cases / sizeof *cases, results);
  }
  hec_gpu_session_close(&s);
  return status;
}
