/* The fake of cuBLAS: its products are those of plain double loops, its refusals those of NVIDIA's tables. */
#include "tests/cuda/child.h"
#include "tests/support/test.h"

#include <cublas_v2.h>
#include <math.h>
#include <signal.h>
#include <string.h>

enum { MAX = 70 * 90, LD = 75 };

static uint64_t state = 5;

static float uniform(void) { /* splitmix64, as in tests/support */
  uint64_t z = state += 0x9E3779B97F4A7C15U;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
  z = (z ^ z >> 27) * 0x94D049BB133111EBU;
  return (float)((z ^ z >> 31) >> 40) * 0x1p-23F - 1;
}

static float *upload(float *host, int n, cudaStream_t stream) {
  float *at = child_floats(n);
  for (int i = 0; i < n; i++)
    host[i] = uniform();
  EXPECT(cudaMemcpyAsync(at, host, (size_t)n * sizeof *host, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  return at;
}

static double error_of(const float *found, const float *a, const float *b, const float *c, int m, int n, int k,
                       int form, float alpha, float beta) {
  double error = 0, size = 0;
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      double sum = 0;
      for (int l = 0; l < k; l++)
        sum += (double)a[form & 1 ? i * LD + l : l * LD + i] * (double)b[form & 2 ? l * LD + j : j * LD + l];
      double expected = (double)alpha * sum + (double)beta * (double)c[j * LD + i];
      error += pow((double)found[j * LD + i] - expected, 2);
      size += expected * expected;
    }
  return sqrt(error / size);
}

/* All forms, beta 0 over poison, and the roundings: an error of about 2^-24, 2^-11 and 2^-9. */
static int forms(const void *context) {
  (void)context;
  static float a[LD * LD], b[LD * LD], c[LD * LD], found[LD * LD];
  static const struct {
    cublasComputeType_t compute;
    cublasMath_t mode;
    double min, max;
  } kinds[] = {{CUBLAS_COMPUTE_32F, CUBLAS_DEFAULT_MATH, 0, 1e-6},
               {CUBLAS_COMPUTE_32F, CUBLAS_TF32_TENSOR_OP_MATH, 1e-5, 1e-3},
               {CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_DEFAULT_MATH, 1e-5, 1e-3},
               {CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_DEFAULT_MATH, 1e-4, 1e-2}};
  cudaStream_t stream = child_stream();
  cublasHandle_t handle;
  EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS && cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
  float *on_a = upload(a, LD * LD, stream), *on_b = upload(b, LD * LD, stream);
  for (int form = 0; form < 4; form++)
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
      float alpha = 0.5F, beta = form == 1 ? 0 : 2;
      float *on_c = beta == 0 ? child_floats(LD * LD) : upload(c, LD * LD, stream);
      EXPECT(cublasSetMathMode(handle, kinds[kind].mode) == CUBLAS_STATUS_SUCCESS);
      EXPECT(cublasGemmEx(handle, form & 1 ? CUBLAS_OP_T : CUBLAS_OP_N, form & 2 ? CUBLAS_OP_T : CUBLAS_OP_N, 70, 37,
                          66, &alpha, on_a, CUDA_R_32F, LD, on_b, CUDA_R_32F, LD, &beta, on_c, CUDA_R_32F, LD,
                          kinds[kind].compute, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
      alpha = 77; /* was read at the call */
      child_read(found, on_c, LD * LD, stream);
      double error = error_of(found, a, b, c, 70, 37, 66, form, 0.5F, beta);
      EXPECT(error >= kinds[kind].min && error <= kinds[kind].max);
      EXPECT(beta != 0 || isnan(found[70])); /* between the columns */
    }
  return 0;
}

/* Two groups of different sizes; pointers are read when the work is done. */
static int groups(const void *context) {
  static float a[LD * LD], b[LD * LD], c[LD * LD], found[LD * LD];
  bool on_host = *(const bool *)context;
  cudaStream_t stream = child_stream();
  cublasHandle_t handle;
  EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS && cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
  float *on_a = upload(a, LD * LD, stream), *on_b = upload(b, LD * LD, stream), *on_c = child_floats(3 * LD * LD);
  float *pointers[9] = {on_a, on_b, on_a, on_b, on_a, on_b, on_c, on_c + LD * LD, on_c + 2 * LD * LD};
  float **on_pointers = NULL;
  EXPECT(cudaMalloc((void **)&on_pointers, sizeof pointers) == cudaSuccess);
  const float **list = (const float **)(on_host ? pointers : on_pointers);
  const cublasOperation_t forms_of[2] = {CUBLAS_OP_N, CUBLAS_OP_T};
  int m[2] = {30, 70}, n[2] = {20, 40}, k[2] = {10, 50}, ld[2] = {LD, LD}, sizes[2] = {2, 1};
  float alpha[2] = {1, 0.5F}, beta[2] = {0, 0};
  EXPECT(cudaMemcpyAsync(on_pointers, pointers, sizeof pointers, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  EXPECT(cublasSgemmGroupedBatched(handle, forms_of, forms_of, m, n, k, alpha, list, ld, list + 3, ld, beta,
                                   (float *const *)(uintptr_t)(list + 6), ld, 2, sizes) == CUBLAS_STATUS_SUCCESS);
  m[0] = sizes[0] = 0; /* were read at the call */
  for (int i = 0; i < 3; i++) {
    child_read(found, pointers[6 + i], LD * LD, stream);
    const float *left = i == 1 ? b : a, *right = i == 1 ? a : b;
    EXPECT(error_of(found, left, right, c, i < 2 ? 30 : 70, i < 2 ? 20 : 40, i < 2 ? 10 : 50, i < 2 ? 0 : 3,
                    i < 2 ? 1 : 0.5F, 0) < 1e-6);
  }
  return 0;
}

/* A pointer to the host's memory in the list. */
static int host_matrix(const void *context) {
  (void)context;
  float x[4] = {0}, alpha = 1, beta = 0, *y = child_floats(4);
  cublasHandle_t handle;
  EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  (void)cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &alpha, x, 2, y, 2, &beta, y, 2);
  return (int)cudaDeviceSynchronize();
}

static cublasStatus_t try_types(cublasHandle_t handle, cudaDataType in, cudaDataType out, cublasComputeType_t compute,
                                bool grouped) {
  int m = 4, ld = 4, size = 0;
  float alpha = 1, beta = 0;
  cublasOperation_t form = CUBLAS_OP_N;
  if (grouped)
    return cublasGemmGroupedBatchedEx(handle, &form, &form, &m, &m, &m, &alpha, NULL, in, &ld, NULL, in, &ld, &beta,
                                      NULL, out, &ld, 1, &size, compute);
  return cublasGemmBatchedEx(handle, form, form, m, m, m, &alpha, NULL, in, ld, NULL, in, ld, &beta, NULL, out, ld, 0,
                             compute, CUBLAS_GEMM_DEFAULT);
}

static int refusals(const void *context) {
  (void)context;
  static const struct {
    cudaDataType in, out;
    cublasComputeType_t compute;
    bool one, grouped;
  } table[] = {
      {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, true, true},
      {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC, true, true},
      {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, true, true},
      {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_16BF, true, false},
      {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, true, true},
      {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, true, false},
      {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, false, false},
      {CUDA_R_32F, CUDA_R_16BF, CUBLAS_COMPUTE_32F, false, false},
  };
  cublasHandle_t handle;
  EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    cublasStatus_t one = try_types(handle, table[i].in, table[i].out, table[i].compute, false);
    cublasStatus_t grouped = try_types(handle, table[i].in, table[i].out, table[i].compute, true);
    EXPECT(one == (table[i].one ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED));
    EXPECT(grouped == (table[i].grouped ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED));
  }
  float alpha = 1;
  EXPECT(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, 2, 2, 5, &alpha, NULL, 4, NULL, 5, &alpha, NULL, 2) ==
         CUBLAS_STATUS_INVALID_VALUE); /* the leading dimension of a */
  return cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS ? 0 : 1;
}

/* A workspace belongs to the products that run: what else stands there is lost. */
static int workspace(const void *context) {
  (void)context;
  float alpha = 1, beta = 0, host[4] = {1, 2, 3, 4}, *x = child_floats(64), *y = child_floats(4);
  cudaStream_t stream = child_stream();
  cublasHandle_t handle;
  EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS && cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
  EXPECT(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  EXPECT(cublasSetWorkspace(handle, x, 256) == CUBLAS_STATUS_SUCCESS);
  EXPECT(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &alpha, x, 2, x, 2, &beta, y, 2) ==
         CUBLAS_STATUS_SUCCESS);
  child_read(host, y, 4, stream);
  EXPECT(isnan(host[0]));
  return 0;
}

static int create_fails(const void *context) {
  (void)context;
  cublasHandle_t handle;
  EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_ALLOC_FAILED && handle == NULL);
  return 0;
}

HEC_TEST(products) {
  static const char *const second[] = {"FAKE_CUDA_FAIL=cublasCreate:2", NULL};
  const bool yes = true, no = false;
  child_exits(NULL, forms, NULL, 0);
  child_exits(NULL, groups, &no, 0);
  child_dies(NULL, groups, &yes, SIGABRT, "in the memory of the host");
  child_dies(NULL, host_matrix, NULL, SIGABRT, "in the memory of the host");
  child_exits(NULL, refusals, NULL, 0);
  child_exits(NULL, workspace, NULL, 0);
  child_exits(second, create_fails, NULL, 0);
}
