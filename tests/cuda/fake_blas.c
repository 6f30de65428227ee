/* cuBLAS: the products that the plug-in calls, queued on the handle's stream. Arguments are checked as NVIDIA documents
 * them ("cuBLAS", 2.8.12 to 2.8.15 of release 13): sizes, leading dimensions, and the combinations of types. What is not
 * in its tables is refused, what is and has no use here (float16, float64, complex) ends the test.
 *
 * Factors are read at the call, arrays of pointers when the work is done: they are memory of the device. A workspace that
 * was given is filled with NaN by every product, and cublasSetStream forgets it, as documented. */
#include "tests/cuda/fake.h"
#include "tests/cuda/fake_product.h"

#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

enum { SCRIBBLE_BYTES = 4096 };
static const int64_t FLOP_PER_NS = 1000; /* of the fake's clock */

struct cublasContext {
  cudaStream_t stream;
  cublasMath_t mode;
  void *workspace;
  size_t workspace_bytes;
};

/* Products of one call. */
typedef struct {
  bool grouped;
  int32_t n_groups;
  char *workspace;
  size_t workspace_bytes;
  const void *const *a, *const *b; /* memory of the device; NULL: the products have their own */
  void *const *c;
  struct fake_group {
    fake_product product; /* of all of the group, but for a, b and c */
    int32_t n;
  } groups[];
} products;

typedef struct fake_group group;

/* ---- Handles ---- */

static cublasStatus_t begin(const char *call) {
  cudaError_t error = fake_begin_call(call, cudaSuccess);
  if (error == cudaErrorNoDevice)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

static cublasStatus_t end(cublasStatus_t status) {
  (void)fake_end_call(cudaSuccess);
  return status;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  cublasStatus_t status = begin("");
  *handle = NULL;
  if (status != CUBLAS_STATUS_SUCCESS || fake_fails("cublasCreate"))
    return end(status != CUBLAS_STATUS_SUCCESS ? status : CUBLAS_STATUS_ALLOC_FAILED);
  *handle = calloc(1, sizeof **handle);
  return end(*handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED);
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (!handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  fake_enter();
  handle->stream = fake_stream_of(stream);
  handle->workspace = NULL;
  handle->workspace_bytes = 0;
  fake_leave();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *at, size_t bytes) {
  int32_t device = -1;
  fake_enter();
  if (bytes > 0 && fake_place_of(at, bytes, "cublasSetWorkspace", &device) != FAKE_DEVICE)
    hec_queue_die("cublasSetWorkspace: memory of the host");
  fake_leave();
  if ((uintptr_t)at % 256 != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  handle->workspace = at;
  handle->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value) {
  *value = type == MAJOR_VERSION ? CUBLAS_VER_MAJOR : type == MINOR_VERSION ? CUBLAS_VER_MINOR : CUBLAS_VER_PATCH;
  return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  default:
    return "unknown status";
  }
}

/* ---- What is allowed ---- */

typedef struct {
  cudaDataType a, b, c;
  cublasComputeType_t compute;
  bool grouped;
} types;

/* The tables of GemmEx, GemmBatchedEx, GemmStridedBatchedEx on the one hand, of GemmGroupedBatchedEx on the other: of
 * bfloat16 to float is in the first only. */
static bool types_allowed(const types *t) {
  bool floats = t->a == CUDA_R_32F && t->c == CUDA_R_32F, from_half = t->a == CUDA_R_16BF;
  if (t->a != t->b)
    return false;
  switch (t->compute) {
  case CUBLAS_COMPUTE_32F:
    return floats || (from_half && (t->c == CUDA_R_16BF || (t->c == CUDA_R_32F && !t->grouped)));
  case CUBLAS_COMPUTE_32F_PEDANTIC:
    return floats || (from_half && !t->grouped && (t->c == CUDA_R_16BF || t->c == CUDA_R_32F));
  case CUBLAS_COMPUTE_32F_FAST_TF32:
    return floats;
  case CUBLAS_COMPUTE_32F_FAST_16BF:
    return floats && !t->grouped;
  default:
    hec_queue_die("cuBLAS: type of computation %d is not emulated", (int)t->compute);
  }
}

static void set_types(fake_product *p, const types *t, cublasMath_t mode) {
  p->half_in = t->a == CUDA_R_16BF;
  p->half_out = t->c == CUDA_R_16BF;
  p->rounding = FAKE_EXACT;
  if (t->compute == CUBLAS_COMPUTE_32F_FAST_16BF)
    p->rounding = FAKE_BF16;
  else if (t->compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
           (t->compute == CUBLAS_COMPUTE_32F && mode == CUBLAS_TF32_TENSOR_OP_MATH && !p->half_in))
    p->rounding = FAKE_TF32;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static bool sizes_allowed(const fake_product *p) {
  return p->m >= 0 && p->n >= 0 && p->k >= 0 && p->lda >= larger(1, p->transpose_a ? p->k : p->m) &&
         p->ldb >= larger(1, p->transpose_b ? p->n : p->k) && p->ldc >= larger(1, p->m);
}

/* ---- Doing it ---- */

static void check_matrix(const void *at, int64_t bytes, size_t unit, const char *name) {
  int32_t device = -1;
  if (bytes == 0)
    return;
  if ((uintptr_t)at % unit != 0)
    hec_queue_die("%s: a matrix at %p is not aligned to %zu bytes", name, at, unit);
  if (fake_place_of(at, (size_t)bytes, name, &device) == FAKE_PAGEABLE)
    hec_queue_die("%s: a matrix at %p is in the memory of the host", name, at);
}

/* What the grouped call asks of its pointers where it uses tensor cores. */
static size_t unit_of(const fake_product *p, bool grouped) {
  size_t size = p->half_in ? 2 : 4, row = (size_t)p->k * size;
  if (!grouped || (!p->half_in && p->rounding == FAKE_EXACT))
    return size;
  return row % 16 == 0 ? 16 : 4;
}

static void run_one(const fake_product *p, const char *name, bool grouped) {
  size_t unit = p->m > 0 && p->n > 0 ? unit_of(p, grouped) : 1;
  if (p->m == 0 || p->n == 0)
    return;
  check_matrix(p->a, fake_product_bytes_a(p), unit, name);
  check_matrix(p->b, fake_product_bytes_b(p), unit, name);
  check_matrix(p->c, fake_product_bytes_c(p), p->half_out && unit == 4 ? 2 : unit, name);
  fake_product_run(p);
}

static void run_products(hec_queue_piece *work) {
  const products *all = work->own;
  int64_t i = 0;
  if (all->workspace)
    memset(all->workspace, 0xFF, all->workspace_bytes < SCRIBBLE_BYTES ? all->workspace_bytes : SCRIBBLE_BYTES);
  for (int32_t g = 0; g < all->n_groups; g++)
    for (int32_t j = 0; j < all->groups[g].n; j++, i++) {
      fake_product p = all->groups[g].product;
      if (all->a) {
        p.a = all->a[i];
        p.b = all->b[i];
        p.c = all->c[i];
      }
      run_one(&p, work->name, all->grouped);
    }
}

static products *new_products(cublasHandle_t handle, int32_t n_groups) {
  products *all = calloc(1, sizeof *all + (size_t)n_groups * sizeof *all->groups);
  if (!all)
    hec_queue_die("no memory");
  all->n_groups = n_groups;
  all->workspace = handle->workspace;
  all->workspace_bytes = handle->workspace_bytes;
  return all;
}

static int64_t count(const products *all) {
  int64_t n = 0;
  for (int32_t g = 0; g < all->n_groups; g++)
    n += all->groups[g].n;
  return n;
}

static cublasStatus_t queue_products(cublasHandle_t handle, const char *name, products *all) {
  int64_t n = count(all);
  hec_queue_piece work = {
      .name = name, .run = run_products, .own = all, .uses = {{all->workspace, all->workspace_bytes}}};
  cudaStream_t stream = fake_stream_of(handle->stream);
  if (n == 0) {
    free(all);
    return CUBLAS_STATUS_SUCCESS;
  }
  const fake_product *p = &all->groups[0].product;
  for (int32_t g = 0; g < all->n_groups; g++)
    work.cost_ns += all->groups[g].n * 2 * all->groups[g].product.m * all->groups[g].product.n *
                    all->groups[g].product.k / FLOP_PER_NS;
  if (all->a) {
    work.uses[1] = (hec_queue_range){all->a, (size_t)n * sizeof *all->a};
    work.uses[2] = (hec_queue_range){all->c, (size_t)n * sizeof *all->c};
    check_matrix(all->a, (int64_t)work.uses[1].bytes, sizeof(void *), name);
    check_matrix(all->b, (int64_t)work.uses[1].bytes, sizeof(void *), name);
    check_matrix(all->c, (int64_t)work.uses[2].bytes, sizeof(void *), name);
  } else {
    work.uses[1] = (hec_queue_range){p->a, (size_t)fake_product_bytes_a(p)};
    work.uses[2] = (hec_queue_range){p->c, (size_t)fake_product_bytes_c(p)};
  }
  fake_log(stream, "%s %lld %lldx%lldx%lld %c %c", name, (long long)n, (long long)p->m, (long long)p->n,
           (long long)p->k, p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N');
  fake_queue(stream, &work);
  return CUBLAS_STATUS_SUCCESS;
}

/* Checks the one group of `all` and queues it. */
static cublasStatus_t finish(cublasHandle_t handle, const char *name, products *all, const types *t) {
  fake_product *p = &all->groups[0].product;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  set_types(p, t, handle->mode);
  if (!sizes_allowed(p) || all->groups[0].n < 0)
    status = CUBLAS_STATUS_INVALID_VALUE;
  else if (!types_allowed(t))
    status = CUBLAS_STATUS_NOT_SUPPORTED;
  else if (fake_fails(name))
    status = CUBLAS_STATUS_INTERNAL_ERROR;
  if (status == CUBLAS_STATUS_SUCCESS)
    return end(queue_products(handle, name, all));
  free(all);
  return end(status);
}

static float factor(const void *at) {
  float x;
  memcpy(&x, at, sizeof x);
  return x;
}

static fake_product product_of(cublasOperation_t form_a, cublasOperation_t form_b, int m, int n, int k,
                               const void *alpha, const void *beta) {
  return (fake_product){.transpose_a = form_a != CUBLAS_OP_N,
                        .transpose_b = form_b != CUBLAS_OP_N,
                        .m = m,
                        .n = n,
                        .k = k,
                        .alpha = factor(alpha),
                        .beta = factor(beta)};
}

/* ---- The calls ---- */

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t form_a, cublasOperation_t form_b, int m, int n,
                            int k, const void *alpha, const void *a, cudaDataType type_a, int lda, const void *b,
                            cudaDataType type_b, int ldb, const void *beta, void *c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  cublasStatus_t status = begin("");
  (void)algorithm;
  if (status != CUBLAS_STATUS_SUCCESS)
    return end(status);
  products *all = new_products(handle, 1);
  all->groups[0] = (group){product_of(form_a, form_b, m, n, k, alpha, beta), 1};
  fake_product *p = &all->groups[0].product;
  p->a = a;
  p->b = b;
  p->c = c;
  p->lda = lda;
  p->ldb = ldb;
  p->ldc = ldc;
  return finish(handle, "cublasGemmEx", all, &(types){type_a, type_b, type_c, compute, false});
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t form_a, cublasOperation_t form_b, int m, int n,
                              int k, const float *alpha, const float *a, int lda, const float *b, int ldb,
                              const float *beta, float *c, int ldc) {
  return cublasGemmEx(handle, form_a, form_b, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c,
                      CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t form_a, cublasOperation_t form_b, int m,
                                   int n, int k, const void *alpha, const void *const a[], cudaDataType type_a, int lda,
                                   const void *const b[], cudaDataType type_b, int ldb, const void *beta,
                                   void *const c[], cudaDataType type_c, int ldc, int n_products,
                                   cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  cublasStatus_t status = begin("");
  (void)algorithm;
  if (status != CUBLAS_STATUS_SUCCESS)
    return end(status);
  products *all = new_products(handle, 1);
  all->groups[0] = (group){product_of(form_a, form_b, m, n, k, alpha, beta), n_products};
  fake_product *p = &all->groups[0].product;
  all->a = a;
  all->b = b;
  all->c = c;
  p->lda = lda;
  p->ldb = ldb;
  p->ldc = ldc;
  return finish(handle, "cublasGemmBatchedEx", all, &(types){type_a, type_b, type_c, compute, false});
}

cublasStatus_t cublasGemmGroupedBatchedEx(cublasHandle_t handle, const cublasOperation_t form_a[],
                                          const cublasOperation_t form_b[], const int m[], const int n[], const int k[],
                                          const void *alpha, const void *const a[], cudaDataType_t type_a,
                                          const int lda[], const void *const b[], cudaDataType_t type_b,
                                          const int ldb[], const void *beta, void *const c[], cudaDataType_t type_c,
                                          const int ldc[], int n_groups, const int sizes[],
                                          cublasComputeType_t compute) {
  cublasStatus_t status = begin("");
  types t = {type_a, type_b, type_c, compute, true};
  if (status != CUBLAS_STATUS_SUCCESS || n_groups <= 0)
    return end(n_groups < 0 ? CUBLAS_STATUS_INVALID_VALUE : status);
  products *all = new_products(handle, n_groups);
  all->grouped = true;
  all->a = a;
  all->b = b;
  all->c = c;
  if (!types_allowed(&t))
    status = CUBLAS_STATUS_NOT_SUPPORTED;
  else if (fake_fails("cublasGemmGroupedBatchedEx"))
    status = CUBLAS_STATUS_INTERNAL_ERROR;
  for (int g = 0; g < n_groups; g++) {
    const float *alphas = alpha, *betas = beta;
    all->groups[g] = (group){product_of(form_a[g], form_b[g], m[g], n[g], k[g], alphas + g, betas + g), sizes[g]};
    fake_product *p = &all->groups[g].product;
    p->lda = lda[g];
    p->ldb = ldb[g];
    p->ldc = ldc[g];
    set_types(p, &t, handle->mode);
    if (!sizes_allowed(p) || sizes[g] < 0)
      status = CUBLAS_STATUS_INVALID_VALUE;
  }
  if (status == CUBLAS_STATUS_SUCCESS)
    return end(queue_products(handle, "cublasGemmGroupedBatchedEx", all));
  free(all);
  return end(status);
}

cublasStatus_t cublasSgemmGroupedBatched(cublasHandle_t handle, const cublasOperation_t form_a[],
                                         const cublasOperation_t form_b[], const int m[], const int n[], const int k[],
                                         const float alpha[], const float *const a[], const int lda[],
                                         const float *const b[], const int ldb[], const float beta[], float *const c[],
                                         const int ldc[], int n_groups, const int sizes[]) {
  return cublasGemmGroupedBatchedEx(handle, form_a, form_b, m, n, k, alpha, (const void *const *)a, CUDA_R_32F, lda,
                                    (const void *const *)b, CUDA_R_32F, ldb, beta, (void *const *)c, CUDA_R_32F, ldc,
                                    n_groups, sizes, CUBLAS_COMPUTE_32F);
}
