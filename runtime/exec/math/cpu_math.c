/* The door to CBLAS: which library multiplies matrices, and how fast it is allowed to be.
 *
 * OpenBLAS picks its kernels when it is loaded, by CPU model. A model that it does not know gets kernels of another age
 * (Prescott: SSE3, a fifth of the speed on a CPU with AVX-512). OPENBLAS_CORETYPE overrides the choice but is read at
 * load time only, so:
 *     1. a short-lived child loads the library and tells the core that it chose (a crash there costs nothing here)
 *     2. when that core has no AVX but the CPU has: OPENBLAS_CORETYPE = SkylakeX (AVX-512) or Haswell (AVX2)
 *     3. this process loads the library; the environment is put back
 * A core type in the user's environment is never touched. One thread always: ranks are the parallelism. A library may
 * be in the process already (a solver may have brought it along, runtime/plan/cbc). Then it keeps the core that it
 * chose, and the name says so: whoever needs both opens this first.
 *
 * The library stays local to its handle (RTLD_LOCAL), apart from the cblas_sgemm of GSL that this program is linked
 * with. That one is the fall-back, and HECATE_BLAS=gsl asks for it. */
#include "runtime/exec/math/math.h"

#include <dlfcn.h>
#include <gsl/gsl_cblas.h>
#include <gsl/gsl_version.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void gemm_function(enum CBLAS_ORDER, enum CBLAS_TRANSPOSE, enum CBLAS_TRANSPOSE, int, int, int, float,
                           const float *, int, const float *, int, float, float *, int);
typedef char *text_function(void);
typedef int count_function(void);
typedef void set_function(int);

/* Written by hec_math_open only. */
static struct {
  gemm_function *gemm;
  bool
      one_caller; /* built for one thread: its buffers are shared by all callers, so ranks that are threads take turns */
  char name[256];
} library;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static const char file[] = "libopenblas.so.0";

/* dlsym gives an object pointer; POSIX promises that it may be used as a function's, ISO C needs the detour. */
static void find(void *handle, const char *name, void *function, size_t bytes) {
  void *symbol = dlsym(handle, name);
  memcpy(function, &symbol, bytes);
}

/* ---- Which core ---- */

/* Loads the library in a child and reads the core's name. False: it cannot be loaded there. */
static bool probe(char *core, size_t size) {
  int ends[2];
  core[0] = '\0';
  if (pipe(ends) != 0)
    return false;
  pid_t child = fork();
  if (child == 0) {
    (void)alarm(20);
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    text_function *name = NULL;
    if (handle)
      find(handle, "openblas_get_corename", &name, sizeof name);
    const char *text = name ? name() : "";
    ssize_t written = write(ends[1], text, strlen(text));
    _exit(written > 0 ? 0 : 1);
  }
  (void)close(ends[1]);
  size_t length = 0;
  for (ssize_t n; child > 0 && length < size - 1 && (n = read(ends[0], core + length, size - 1 - length)) > 0;)
    length += (size_t)n;
  core[length] = '\0';
  (void)close(ends[0]);
  if (child > 0)
    (void)waitpid(child, NULL, 0);
  return length > 0;
}

/* Kernels without AVX: what OpenBLAS falls back to on a CPU that it does not know. */
static bool is_old(const char *core) {
  static const char *const old[] = {"Generic",      "Prescott", "Core2",     "Penryn", "Dunnington",
                                    "Nehalem",      "Atom",     "Barcelona", "Bobcat", "Opteron",
                                    "Opteron_SSE3", "Athlon",   "Nano",      "Unknown"};
  for (size_t i = 0; i < sizeof old / sizeof *old; i++)
    if (strcmp(core, old[i]) == 0)
      return true;
  return false;
}

/* The best kernels that this CPU can run, NULL when nothing better is known. */
static const char *better_core(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return "Haswell";
#endif
  return NULL;
}

/* ---- Loading ---- */

static void use_gsl(const char *why) {
  library.gemm = cblas_sgemm;
  (void)snprintf(library.name, sizeof library.name, "GSL CBLAS %s (slow: %s)", GSL_VERSION, why);
}

/* "OpenBLAS 0.3.21" of "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...". */
static void version_of(void *handle, char *version, size_t size) {
  text_function *config = NULL;
  find(handle, "openblas_get_config", &config, sizeof config);
  (void)snprintf(version, size, "%s", config ? config() : "OpenBLAS");
  char *end = strchr(version, ' ');
  if (end && (end = strchr(end + 1, ' ')) != NULL)
    *end = '\0';
}

/* `note`: how the core came about. */
static bool load(const char *note) {
  void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  gemm_function *gemm = NULL;
  text_function *core = NULL;
  count_function *count = NULL;
  set_function *set = NULL;
  if (!handle)
    return false;
  find(handle, "cblas_sgemm", &gemm, sizeof gemm);
  find(handle, "openblas_get_corename", &core, sizeof core);
  find(handle, "openblas_get_num_threads", &count, sizeof count);
  find(handle, "openblas_set_num_threads", &set, sizeof set);
  if (!gemm || gemm == cblas_sgemm || !core)
    return false; /* the handle stays open: unloading a library with threads of its own is not safe */
  if (set)
    set(1);
  char version[64];
  version_of(handle, version, sizeof version);
  int threads = count ? count() : 1;
  count_function *parallel = NULL;
  find(handle, "openblas_get_parallel", &parallel, sizeof parallel);
  library.gemm = gemm;
  library.one_caller = !parallel || parallel() == 0;
  (void)snprintf(library.name, sizeof library.name, "%s, core %s%s, %d thread%s", version, core(), note, threads,
                 threads == 1 ? "" : "s");
  return true;
}

static bool open_openblas(void) {
  char core[64], note[128] = "";
  if (dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD))
    return load(" (its own choice: another library had opened it)");
  bool own_threads = !getenv("OPENBLAS_NUM_THREADS"), own_core = false;
  if (own_threads)
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
  bool loads = probe(core, sizeof core);
  if (getenv("OPENBLAS_CORETYPE")) {
    (void)snprintf(note, sizeof note, " (set by OPENBLAS_CORETYPE)");
  } else if (loads && is_old(core) && better_core()) {
    own_core = true;
    (void)setenv("OPENBLAS_CORETYPE", better_core(), 1);
    (void)snprintf(note, sizeof note, " (set by hecate: detected %s)", core);
  }
  loads = loads && load(note);
  if (own_core)
    (void)unsetenv("OPENBLAS_CORETYPE");
  if (own_threads)
    (void)unsetenv("OPENBLAS_NUM_THREADS");
  return loads;
}

void hec_math_open(void) {
  const char *wanted = getenv("HECATE_BLAS");
  if (library.gemm)
    return;
  if (wanted && strcmp(wanted, "gsl") == 0)
    use_gsl("asked for by HECATE_BLAS");
  else if (!open_openblas())
    use_gsl("OpenBLAS was not found");
}

const char *hec_math_library(void) {
  HEC_ASSERT(library.gemm);
  return library.name;
}

/* ---- The product ---- */

static void scale_rows(float *c, int32_t m, int32_t n, int32_t ldc, float beta) {
  for (int32_t i = 0; i < m; i++) {
    float *row = c + (size_t)i * (size_t)ldc;
    if (beta == 0)
      memset(row, 0, (size_t)n * sizeof *row);
    else
      hec_math_scale(row, beta, n);
  }
}

void hec_math_gemm(const hec_gemm *g) {
  HEC_ASSERT(library.gemm);
  HEC_ASSERT(g->m >= 0 && g->n >= 0 && g->k >= 0);
  int32_t lda = g->lda ? g->lda : g->transpose_a ? g->m : g->k;
  int32_t ldb = g->ldb ? g->ldb : g->transpose_b ? g->k : g->n;
  int32_t ldc = g->ldc ? g->ldc : g->n;
  HEC_ASSERT(lda >= (g->transpose_a ? g->m : g->k) && ldb >= (g->transpose_b ? g->k : g->n) && ldc >= g->n);
  if (g->m == 0 || g->n == 0)
    return;
  if (g->k == 0) {
    scale_rows(g->c, g->m, g->n, ldc, g->beta);
    return;
  }
  if (library.one_caller)
    (void)pthread_mutex_lock(&turn);
  library.gemm(CblasRowMajor, g->transpose_a ? CblasTrans : CblasNoTrans, g->transpose_b ? CblasTrans : CblasNoTrans,
               g->m, g->n, g->k, g->alpha, g->a, lda, g->b, ldb, g->beta, g->c, ldc);
  if (library.one_caller)
    (void)pthread_mutex_unlock(&turn);
}
