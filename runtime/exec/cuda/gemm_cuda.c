/* Products on cuBLAS. It stores by columns: what it calls C [n, m] is our C [m, n]. So C^T = op(B)^T op(A)^T is computed,
 * B first, with the same flags. Reference: cuBLAS, "cublasGemmEx", "cublasGemmBatchedEx", "cublasGemmGroupedBatchedEx".
 *
 *   one product                         cublasGemmEx
 *   several alike but for the arrays    cublasGemmBatchedEx
 *   others                              cublasGemmGroupedBatchedEx, each a group of one, where it is wanted and there is
 *                                       one for the types; else one after the other
 *
 * Precision: float32; TF32 (float32 operands, of which the tensor cores read 19 bits); BF16. For BF16 operands are
 * rounded into scratch by one launch for the list; sums and results are float32. Grouped products take bfloat16 only
 * where the result is bfloat16 too, so in that mode there are none. Products of several need arrays aligned to 16
 * bytes where tensor cores read them; where they are not, one after the other.
 *
 * C = beta C where there are no terms (k == 0). Everything of a list that cuBLAS may read later stays until restart. */
#include "runtime/exec/cuda/kernels.h"
#include "runtime/exec/cuda/own.h"

/* cuBLAS' recommendation for its largest devices; without one of its own a handle would allocate. */
static const size_t workspace_bytes = (size_t)32 << 20;

#define HAS_GROUPED (CUBLAS_VERSION >= 120500)

static bool blas_ok(hec_cuda_own *own, cublasStatus_t status, const char *what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    hec_cuda_fail(own, what, cublasGetStatusString(status));
  return status == CUBLAS_STATUS_SUCCESS;
}

/* Of the selected stream; NULL: failed. The stream first: setting it takes the workspace away. */
static cublasHandle_t handle_of(hec_cuda_own *own) {
  hec_cuda_line *line = hec_cuda_selected(own);
  cudaError_t error;
  if (line->blas)
    return line->blas;
  void *workspace = hec_cuda_allocate(own, workspace_bytes, false, &error);
  if (!hec_cuda_ok(own, error, "workspace of cuBLAS") || !blas_ok(own, cublasCreate(&line->blas), "cublasCreate") ||
      !blas_ok(own, cublasSetStream(line->blas, line->stream), "cublasSetStream") ||
      !blas_ok(own, cublasSetWorkspace(line->blas, workspace, workspace_bytes), "cublasSetWorkspace"))
    return NULL;
  return line->blas;
}

/* ---- Operands ---- */

/* A product as cuBLAS gets it: a and b float32 or bfloat16, row lengths filled in. */
typedef struct {
  hec_gemm of; /* a, b: not used */
  const void *a, *b;
} product;

static int64_t rows_of_a(const hec_gemm *g) {
  return g->transpose_a ? g->k : g->m;
}
static int64_t columns_of_a(const hec_gemm *g) {
  return g->transpose_a ? g->m : g->k;
}
static int64_t rows_of_b(const hec_gemm *g) {
  return g->transpose_b ? g->n : g->k;
}
static int64_t columns_of_b(const hec_gemm *g) {
  return g->transpose_b ? g->k : g->n;
}

static hec_gemm with_lengths(const hec_gemm *g) {
  hec_gemm full = *g;
  full.lda = g->lda ? g->lda : (int32_t)columns_of_a(g);
  full.ldb = g->ldb ? g->ldb : (int32_t)columns_of_b(g);
  full.ldc = g->ldc ? g->ldc : g->n;
  return full;
}

static bool is_empty(const hec_gemm *g) {
  return g->m <= 0 || g->n <= 0;
}

/* Rows of bfloat16 begin at 16 bytes. */
static int64_t rounded_length(int64_t columns) {
  return (columns + 7) / 8 * 8;
}

static size_t rounded_bytes(int64_t rows, int64_t columns) {
  size_t bytes = (size_t)(rows * rounded_length(columns)) * sizeof(uint16_t);
  return (bytes + 255) / 256 * 256;
}

/* The operand in bfloat16 from *at on, as part of a launch. */
static hec_cuda_matrix round_to(const float *x, int64_t rows, int64_t columns, int32_t stride, char **at) {
  hec_cuda_matrix m = {.x = (float *)(uintptr_t)x, /* read only */
                       .to = (uint16_t *)(void *)*at,
                       .rows = rows,
                       .columns = columns,
                       .stride = stride,
                       .to_stride = rounded_length(columns)};
  *at += rounded_bytes(rows, columns);
  return m;
}

/* Both operands of products of which at least one has terms; false: failed. */
static bool round_operands(hec_cuda_own *own, product *list, int32_t n) {
  size_t bytes = 0;
  for (int32_t i = 0; i < n; i++)
    bytes += rounded_bytes(rows_of_a(&list[i].of), columns_of_a(&list[i].of)) +
             rounded_bytes(rows_of_b(&list[i].of), columns_of_b(&list[i].of));
  char *at = hec_cuda_scratch(own, bytes);
  enum { AT_ONCE = 32 };
  for (int32_t i = 0; at && i < n; i += AT_ONCE) {
    hec_cuda_matrix matrices[2 * AT_ONCE];
    int32_t some = n - i < AT_ONCE ? n - i : AT_ONCE;
    for (int32_t j = 0; j < some; j++) {
      product *p = &list[i + j];
      matrices[2 * j] = round_to(p->a, rows_of_a(&p->of), columns_of_a(&p->of), p->of.lda, &at);
      matrices[2 * j + 1] = round_to(p->b, rows_of_b(&p->of), columns_of_b(&p->of), p->of.ldb, &at);
      p->a = matrices[2 * j].to;
      p->b = matrices[2 * j + 1].to;
      p->of.lda = (int32_t)matrices[2 * j].to_stride;
      p->of.ldb = (int32_t)matrices[2 * j + 1].to_stride;
    }
    cudaError_t error = (cudaError_t)hec_cuda_round(hec_cuda_selected(own)->stream, matrices, 2 * some);
    if (!hec_cuda_ok(own, error, "rounding operands"))
      return false;
  }
  return at != NULL;
}

/* ---- Calls ---- */

static cudaDataType_t type_of(const hec_cuda_own *own) {
  return own->options.precision == HEC_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasComputeType_t compute_of(const hec_cuda_own *own) {
  return own->options.precision == HEC_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static cublasOperation_t operation_of(bool transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

static void multiply(hec_cuda_own *own, cublasHandle_t blas, const product *p) {
  const hec_gemm *g = &p->of;
  cudaDataType_t type = type_of(own);
  (void)blas_ok(own,
                cublasGemmEx(blas, operation_of(g->transpose_b), operation_of(g->transpose_a), g->n, g->m, g->k,
                             &g->alpha, p->b, type, g->ldb, p->a, type, g->lda, &g->beta, g->c, CUDA_R_32F, g->ldc,
                             compute_of(own), CUBLAS_GEMM_DEFAULT),
                "cublasGemmEx");
}

/* Pointers of n products on their way: cuBLAS reads them on the device. */
typedef struct {
  const void *const *a, *const *b;
  void *const *c;
} pointers;

static pointers take_pointers(hec_cuda_list *list, const product *products, int32_t n) {
  const void *a_there, *b_there, *c_there;
  const void **a = hec_cuda_list_take(list, (size_t)n * sizeof *a, &a_there);
  const void **b = hec_cuda_list_take(list, (size_t)n * sizeof *b, &b_there);
  void **c = hec_cuda_list_take(list, (size_t)n * sizeof *c, &c_there);
  for (int32_t i = 0; i < n; i++) {
    a[i] = products[i].a;
    b[i] = products[i].b;
    c[i] = products[i].of.c;
  }
  return (pointers){a_there, b_there, (void *const *)(uintptr_t)c_there};
}

static size_t pointers_room(int32_t n) {
  return 3 * hec_cuda_list_room((size_t)n * sizeof(void *));
}

static void multiply_batch(hec_cuda_own *own, cublasHandle_t blas, const product *list, int32_t n) {
  const hec_gemm *g = &list->of;
  cudaDataType_t type = type_of(own);
  hec_cuda_list there;
  if (!hec_cuda_list_open(own, pointers_room(n), &there))
    return;
  pointers p = take_pointers(&there, list, n);
  if (hec_cuda_list_send(own, &there))
    (void)blas_ok(own,
                  cublasGemmBatchedEx(blas, operation_of(g->transpose_b), operation_of(g->transpose_a), g->n, g->m,
                                      g->k, &g->alpha, p.b, type, g->ldb, p.a, type, g->lda, &g->beta, p.c, CUDA_R_32F,
                                      g->ldc, n, compute_of(own), CUBLAS_GEMM_DEFAULT),
                  "cublasGemmBatchedEx");
}

#if HAS_GROUPED
/* What cuBLAS reads on the host, [n] each: not sent, but kept as long as what is. */
typedef struct {
  cublasOperation_t *transpose_a, *transpose_b;
  int *m, *n, *k, *lda, *ldb, *ldc, *size;
  float *alpha, *beta;
} groups;

static groups take_groups(hec_cuda_list *list, const product *products, int32_t n) {
  const void *nowhere;
  size_t ints = (size_t)n * sizeof(int), floats = (size_t)n * sizeof(float);
  groups g = {.transpose_a = hec_cuda_list_take(list, (size_t)n * sizeof(cublasOperation_t), &nowhere),
              .transpose_b = hec_cuda_list_take(list, (size_t)n * sizeof(cublasOperation_t), &nowhere),
              .m = hec_cuda_list_take(list, ints, &nowhere),
              .n = hec_cuda_list_take(list, ints, &nowhere),
              .k = hec_cuda_list_take(list, ints, &nowhere),
              .lda = hec_cuda_list_take(list, ints, &nowhere),
              .ldb = hec_cuda_list_take(list, ints, &nowhere),
              .ldc = hec_cuda_list_take(list, ints, &nowhere),
              .size = hec_cuda_list_take(list, ints, &nowhere),
              .alpha = hec_cuda_list_take(list, floats, &nowhere),
              .beta = hec_cuda_list_take(list, floats, &nowhere)};
  for (int32_t i = 0; i < n; i++) {
    const hec_gemm *of = &products[i].of;
    g.transpose_a[i] = operation_of(of->transpose_a);
    g.transpose_b[i] = operation_of(of->transpose_b);
    g.m[i] = of->m, g.n[i] = of->n, g.k[i] = of->k;
    g.lda[i] = of->lda, g.ldb[i] = of->ldb, g.ldc[i] = of->ldc;
    g.size[i] = 1;
    g.alpha[i] = of->alpha, g.beta[i] = of->beta;
  }
  return g;
}

static void multiply_groups(hec_cuda_own *own, cublasHandle_t blas, const product *list, int32_t n) {
  size_t column = hec_cuda_list_room((size_t)n * sizeof(cublasOperation_t)); /* the widest of eleven */
  hec_cuda_list there;
  if (!hec_cuda_list_open(own, pointers_room(n) + 11 * column, &there))
    return;
  pointers p = take_pointers(&there, list, n);
  if (!hec_cuda_list_send(own, &there))
    return;
  groups g = take_groups(&there, list, n);
  (void)blas_ok(own,
                cublasGemmGroupedBatchedEx(blas, g.transpose_b, g.transpose_a, g.n, g.m, g.k, g.alpha, p.b, CUDA_R_32F,
                                           g.ldb, p.a, CUDA_R_32F, g.lda, g.beta, p.c, CUDA_R_32F, g.ldc, n, g.size,
                                           compute_of(own)),
                "cublasGemmGroupedBatchedEx");
}
#else
static void multiply_groups(hec_cuda_own *own, cublasHandle_t blas, const product *list, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    multiply(own, blas, &list[i]);
}
#endif

/* ---- Lists ---- */

static bool alike(const hec_gemm *x, const hec_gemm *y) {
  return x->m == y->m && x->n == y->n && x->k == y->k && x->transpose_a == y->transpose_a &&
         x->transpose_b == y->transpose_b && x->alpha == y->alpha && x->beta == y->beta && x->lda == y->lda &&
         x->ldb == y->ldb && x->ldc == y->ldc;
}

static bool is_aligned(const void *at) {
  return (uintptr_t)at % 16 == 0;
}

static void multiply_all(hec_cuda_own *own, const product *list, int32_t n) {
  cublasHandle_t blas = handle_of(own);
  bool same = true, together = true;
  for (int32_t i = 0; i < n; i++) {
    same = same && alike(&list->of, &list[i].of);
    together = together && (own->options.precision == HEC_FP32 ||
                            (is_aligned(list[i].a) && is_aligned(list[i].b) && is_aligned(list[i].of.c)));
  }
  if (!blas)
    return;
  if (n > 1 && same && together)
    multiply_batch(own, blas, list, n);
  else if (n > 1 && HAS_GROUPED && own->options.grouped && together && own->options.precision != HEC_BF16)
    multiply_groups(own, blas, list, n);
  else
    for (int32_t i = 0; i < n && !own->failed; i++)
      multiply(own, blas, &list[i]);
}

static void scale_result(hec_cuda_own *own, const hec_gemm *g) {
  hec_cuda_matrix c = {.x = g->c, .rows = g->m, .columns = g->n, .stride = g->ldc, .factor = g->beta};
  cudaError_t error = (cudaError_t)hec_cuda_scale_matrices(hec_cuda_selected(own)->stream, &c, 1);
  (void)hec_cuda_ok(own, error, "a product without terms");
}

/* cublasCreate allocates and loads kernels, either of which may wait for the whole device. While messages of NCCL wait there
 * for ranks of this process that want to allocate too, that can be for good. So not when the first product comes. */
bool hec_cuda_gemm_open(hec_cuda_own *own) {
  return handle_of(own) != NULL;
}

void hec_cuda_gemm(hec_cuda_own *own, const hec_gemm *list, int32_t n) {
  hec_cuda_list room;
  const void *nowhere;
  int32_t n_left = 0;
  if (n <= 0 || !hec_cuda_list_open(own, (size_t)n * sizeof(product), &room))
    return;
  product *left = hec_cuda_list_take(&room, (size_t)n * sizeof *left, &nowhere);
  for (int32_t i = 0; i < n; i++) {
    hec_gemm g = with_lengths(&list[i]);
    if (is_empty(&g))
      continue;
    if (g.k > 0)
      left[n_left++] = (product){g, g.a, g.b};
    else
      scale_result(own, &g);
  }
  if (n_left > 0 && (own->options.precision != HEC_BF16 || round_operands(own, left, n_left)))
    multiply_all(own, left, n_left);
}
