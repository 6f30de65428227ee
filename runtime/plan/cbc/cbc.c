/* CBC 2.10 by its C interface: branch and cut over the linear programmes of CLP.
 *
 * The library is looked for when a planner first asks for it, with dlopen and local to its handle. So nothing of it
 * (it is C++) is linked, and no process that solves nothing has it. Debian's brings OpenBLAS along. Where this process
 * has opened one already (runtime/exec/math/cpu_math.c), the loader takes that, which has the same name. Opened here
 * first, it gets one thread too, and its kernels are those that it chooses itself. Whoever multiplies matrices later
 * must live with that and says so. So programs that do both open the arithmetic first.
 *
 * Declared here as the C interface documents them are the functions that are used: no header is needed. Index vectors
 * of columns are int (COIN_BIG_INDEX 0, as Debian and COIN-OR build it).
 *
 * What would let two runs differ is fixed: one thread, the seeds, no limit of time. Gaps are zero, so that "proven"
 * means optimal up to CBC's tolerance. That is 1e-7 on a constraint and 1e-5 on the cost: whoever writes the programme
 * scales it. Cuts and strong branching are off: on the programmes of planners a node is ten times as fast without, and
 * as many are needed.
 *
 * CLP prints some lines whatever it is told, and standard output belongs to reports: while CBC works, it goes nowhere.
 * Because of that, and since CBC promises nothing to threads, one solves at a time. Its memory is its own, freed before
 * this returns. */
#include "runtime/plan/cbc/cbc.h"

#include "runtime/base/status.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The library ---- */

typedef struct Cbc_Model Cbc_Model;

/* Result, name without "Cbc_", parameters. */
#define CBC_FUNCTIONS(X)                                                                                               \
  X(Cbc_Model *, newModel, (void))                                                                                     \
  X(void, deleteModel, (Cbc_Model *))                                                                                  \
  X(void, loadProblem,                                                                                                 \
    (Cbc_Model *, int n_columns, int n_rows, const int *start, const int *index, const double *value,                  \
     const double *column_min, const double *column_max, const double *cost, const double *row_min,                    \
     const double *row_max))                                                                                           \
  X(void, setInteger, (Cbc_Model *, int column))                                                                       \
  X(void, setParameter, (Cbc_Model *, const char *name, const char *value))                                            \
  X(void, setLogLevel, (Cbc_Model *, int level))                                                                       \
  X(void, setMaximumNodes, (Cbc_Model *, int nodes))                                                                   \
  X(int, solve, (Cbc_Model *))                                                                                         \
  X(const double *, bestSolution, (Cbc_Model *))                                                                       \
  X(int, isProvenOptimal, (Cbc_Model *))                                                                               \
  X(int, getNodeCount, (Cbc_Model *))                                                                                  \
  X(double, getObjValue, (Cbc_Model *))                                                                                \
  X(double, getBestPossibleObjValue, (Cbc_Model *))

#define FIELD(result, name, parameters) result(*name) parameters;
static struct { CBC_FUNCTIONS(FIELD) } cbc; /* written under the lock, before anybody solves */
#undef FIELD

/* By the version of their interface: another one may take other arguments. */
static const char *const files[] = {"libCbcSolver.so.3"};
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static bool looked, there;

/* dlsym gives an object pointer; POSIX promises that it may be used as a function's, ISO C needs the detour. */
static bool find(void *handle, const char *name, void *function, size_t bytes) {
  void *symbol = dlsym(handle, name);
  memcpy(function, &symbol, bytes);
  return symbol != NULL;
}

/* C++ without memory throws, which would end in an abort here. */
static void no_memory(void) {
  hec_no_memory(0);
}

/* A library that lacks one of the functions is not it. What was opened stays open: it may have threads of its own. */
static bool open_library(const char *file) {
  void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  void (*set_threads)(int) = NULL;
  void *(*set_new_handler)(void (*handler)(void)) = NULL; /* std::set_new_handler */
  bool complete = handle != NULL;
#define FIND(result, name, parameters) complete = complete && find(handle, "Cbc_" #name, &cbc.name, sizeof cbc.name);
  CBC_FUNCTIONS(FIND)
#undef FIND
  if (complete && find(handle, "_ZSt15set_new_handlerPFvvE", &set_new_handler, sizeof set_new_handler))
    (void)set_new_handler(no_memory);
  if (complete && find(handle, "openblas_set_num_threads", &set_threads, sizeof set_threads))
    set_threads(1);
  return complete;
}

static bool ready(void) {
  (void)pthread_mutex_lock(&one_at_a_time);
  for (size_t i = 0; !looked && !there && i < sizeof files / sizeof *files; i++)
    there = open_library(files[i]);
  looked = true;
  bool found = there;
  (void)pthread_mutex_unlock(&one_at_a_time);
  return found;
}

/* ---- One programme ---- */

static void load(Cbc_Model *model, const hec_milp *m) {
  int *start = hec_malloc((size_t)m->n_columns + 1, sizeof *start);
  for (int32_t c = 0; c <= m->n_columns; c++)
    start[c] = (int)m->at[c];
  cbc.loadProblem(model, m->n_columns, m->n_rows, start, m->row, m->value, NULL, m->upper, m->cost, m->min, m->max);
  free(start);
  for (int32_t c = 0; c < m->n_columns; c++)
    if (m->integer[c])
      cbc.setInteger(model, c);
}

static void choose(Cbc_Model *model, int64_t nodes_max) {
  static const char *const fixed[][2] = {
      {"threads", "0"}, {"randomSeed", "1"}, {"randomCbcSeed", "1"},   {"ratioGap", "0"},         {"allowableGap", "0"},
      {"log", "0"},     {"slogLevel", "0"},  {"strongBranching", "0"}, {"trustPseudoCosts", "0"}, {"cutsOnOff", "off"}};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    cbc.setParameter(model, fixed[i][0], fixed[i][1]);
  cbc.setLogLevel(model, 0);
  cbc.setMaximumNodes(model, nodes_max < INT_MAX ? (int)nodes_max : INT_MAX);
}

/* Where it cannot be silenced it is not asked. */
static bool solve_silently(Cbc_Model *model) {
  (void)fflush(stdout);
  int kept = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY);
  bool silent = kept >= 0 && nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0;
  if (silent) {
    (void)cbc.solve(model);
    (void)fflush(stdout);
    int back = dup2(kept, STDOUT_FILENO);
    HEC_ASSERT(back >= 0);
  }
  if (kept >= 0)
    (void)close(kept);
  if (nowhere >= 0)
    (void)close(nowhere);
  return silent;
}

static hec_milp_answer solve(hec_milp *m, int64_t nodes_max) {
  HEC_ASSERT(there && m->at[m->n_columns] < INT_MAX);
  (void)pthread_mutex_lock(&one_at_a_time);
  Cbc_Model *model = cbc.newModel();
  load(model, m);
  choose(model, nodes_max);
  bool solved = solve_silently(model);
  const double *x = solved ? cbc.bestSolution(model) : NULL;
  hec_milp_answer answer = {.found = x != NULL,
                            .proven = solved && x && cbc.isProvenOptimal(model),
                            .bound = -HEC_MILP_FREE,
                            .n_nodes = cbc.getNodeCount(model)};
  double bound = answer.proven ? cbc.getObjValue(model) : cbc.getBestPossibleObjValue(model);
  if (x && bound > -HEC_MILP_FREE && bound < HEC_MILP_FREE)
    answer.bound = bound;
  if (x)
    memcpy(m->x, x, (size_t)m->n_columns * sizeof *m->x);
  cbc.deleteModel(model);
  (void)pthread_mutex_unlock(&one_at_a_time);
  return answer;
}

const hec_solver *hec_solver_cbc(void) {
  static const hec_solver solver = {"CBC", solve, ready};
  return &solver;
}
