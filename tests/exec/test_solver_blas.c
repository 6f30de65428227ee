/* The solver's library brings a BLAS of its own, which must be the one that this process multiplies with. In either
 * order one OpenBLAS, one thread, products as before, the environment as it was. And nobody has it who solves nothing. */
#include "runtime/exec/math/math.h"
#include "runtime/plan/cbc/cbc.h"
#include "tests/support/test.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)

/* Files of this process whose name begins so, each once: a file's mappings follow each other. */
static int n_files(const char *begin) {
  char line[4096], last[4096] = "";
  int n = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  if (!maps)
    return -1;
  while (fgets(line, sizeof line, maps)) {
    const char *name = strrchr(line, '/');
    if (!name || strncmp(name + 1, begin, strlen(begin)) != 0 || strcmp(name, last) == 0)
      continue;
    memcpy(last, name, strlen(name) + 1);
    n++;
  }
  (void)fclose(maps);
  return n;
}

/* Least 3 x + 2 y with x + y >= 3, y <= 2 and both whole: x = 1, y = 2. */
static void solve(const hec_solver *solver) {
  hec_milp milp = hec_milp_new(&arena, 2, 1, 2);
  hec_milp_clear(&milp);
  int32_t row = hec_milp_row(&milp, 3, HEC_MILP_FREE);
  (void)hec_milp_column(&milp, 3, 10, true);
  hec_milp_entry(&milp, row, 1);
  (void)hec_milp_column(&milp, 2, 2, true);
  hec_milp_entry(&milp, row, 1);
  hec_milp_answer answer = solver->solve(&milp, 1000);
  ck_assert(answer.found && answer.proven);
  ck_assert_double_eq_tol(answer.bound, 7, 1e-6);
  ck_assert_double_eq_tol(milp.x[0], 1, 1e-6);
  ck_assert_double_eq_tol(milp.x[1], 2, 1e-6);
}

static void multiply(void) {
  enum { N = 67 };
  static float a[N * N], b[N * N], c[N * N];
  uint64_t random = 5;
  for (int i = 0; i < N * N; i++) {
    a[i] = (float)(2 * hec_test_uniform(&random) - 1);
    b[i] = (float)(2 * hec_test_uniform(&random) - 1);
  }
  hec_math_gemm(&(hec_gemm){.m = N, .n = N, .k = N, .a = a, .b = b, .c = c, .alpha = 1});
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) {
      double sum = 0;
      for (int p = 0; p < N; p++)
        sum += (double)a[i * N + p] * (double)b[p * N + j];
      ck_assert_double_eq_tol((double)c[i * N + j], sum, 1e-4);
    }
}

static const hec_solver *solver_or_skip(const char *test) {
  const hec_solver *solver = hec_solver_ready(hec_solver_cbc());
  if (!solver)
    hec_test_skip(test, "no CBC on this machine (Debian: coinor-libcbc3)");
  return solver;
}

/* Of the OpenBLAS in this process, if there is one. */
static void one_thread(void) {
  void *handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD), *symbol;
  int (*threads)(void) = NULL;
  if (handle && (symbol = dlsym(handle, "openblas_get_num_threads")) != NULL)
    memcpy(&threads, &symbol, sizeof threads);
  ck_assert(!threads || threads() == 1);
}

HEC_TEST(who_solves_nothing_has_no_solver) {
  ck_assert_ptr_nonnull(hec_solver_cbc());
  ck_assert_int_eq(n_files("libCbc"), 0);
  hec_math_open();
  multiply();
  ck_assert_int_eq(n_files("libCbc"), 0);
}

/* As in hecate-run: the core that hecate chose stays. */
HEC_TEST(products_then_solver) {
  char name[256];
  int had_core = getenv("OPENBLAS_CORETYPE") != NULL, had_threads = getenv("OPENBLAS_NUM_THREADS") != NULL;
  hec_math_open();
  multiply();
  (void)snprintf(name, sizeof name, "%s", hec_math_library());
  int n = n_files("libopenblas");
  bool opened = strncmp(name, "OpenBLAS", 8) == 0;
  ck_assert_int_eq(n, opened);
  const hec_solver *solver = solver_or_skip("solver_blas.products_then_solver");
  if (!solver)
    return;
  solve(solver);
  ck_assert_int_ge(n_files("libCbc"), 1);
  ck_assert_int_le(n_files("libopenblas"), 1);
  ck_assert_str_eq(name, hec_math_library());
  ck_assert_ptr_null(strstr(name, "another library"));
  multiply();
  solve(solver);
  one_thread();
  ck_assert_int_eq(had_core, getenv("OPENBLAS_CORETYPE") != NULL);
  ck_assert_int_eq(had_threads, getenv("OPENBLAS_NUM_THREADS") != NULL);
}

/* What no tool does: the library is what it is, and its name says that hecate did not choose. */
HEC_TEST(solver_then_products) {
  const hec_solver *solver = solver_or_skip("solver_blas.solver_then_products");
  if (!solver)
    return;
  solve(solver);
  bool brought = n_files("libopenblas") == 1;
  one_thread();
  hec_math_open();
  if (brought)
    ck_assert_ptr_nonnull(strstr(hec_math_library(), "another library had opened it), 1 thread"));
  ck_assert_int_le(n_files("libopenblas"), 1);
  multiply();
  solve(solver);
  multiply();
  one_thread();
}
