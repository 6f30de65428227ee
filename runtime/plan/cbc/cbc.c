/* CBC 2.10 by its C interface: branch and cut over the linear programmes of CLP.
 *
 * What would let two runs differ is fixed: one thread, the seeds, no limit of time; gaps are zero, so that "proven"
 * means optimal up to CBC's tolerance (1e-7 on a constraint, 1e-5 on the cost: whoever writes the programme scales it). Cuts and
 * strong branching are off: on the programmes of planners a node is ten times as fast without, and as many are needed.
 *
 * CLP prints some lines whatever it is told, and standard output belongs to reports: while CBC works, it goes nowhere.
 * Because of that, and since CBC promises nothing to threads, one solves at a time. Its memory is its own, freed before
 * this returns. */
#include "runtime/plan/cbc/cbc.h"

#include "runtime/base/status.h"

#include <coin/Cbc_C_Interface.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void load(Cbc_Model *model, const hec_milp *m) {
  CoinBigIndex *start = hec_malloc((size_t)m->n_columns + 1, sizeof *start);
  for (int32_t c = 0; c <= m->n_columns; c++)
    start[c] = (CoinBigIndex)m->at[c];
  Cbc_loadProblem(model, m->n_columns, m->n_rows, start, m->row, m->value, NULL, m->upper, m->cost, m->least, m->most);
  free(start);
  for (int32_t c = 0; c < m->n_columns; c++)
    if (m->integer[c])
      Cbc_setInteger(model, c);
}

static void choose(Cbc_Model *model, int64_t nodes_max) {
  static const char *const fixed[][2] = {
      {"threads", "0"}, {"randomSeed", "1"}, {"randomCbcSeed", "1"},   {"ratioGap", "0"},         {"allowableGap", "0"},
      {"log", "0"},     {"slogLevel", "0"},  {"strongBranching", "0"}, {"trustPseudoCosts", "0"}, {"cutsOnOff", "off"}};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    Cbc_setParameter(model, fixed[i][0], fixed[i][1]);
  Cbc_setLogLevel(model, 0);
  Cbc_setMaximumNodes(model, nodes_max < INT_MAX ? (int)nodes_max : INT_MAX);
}

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* Where it cannot be silenced it is not asked. */
static bool solve_silently(Cbc_Model *model) {
  (void)fflush(stdout);
  int kept = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY);
  bool silent = kept >= 0 && nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0;
  if (silent) {
    (void)Cbc_solve(model);
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
  HEC_ASSERT(m->at[m->n_columns] < INT_MAX);
  (void)pthread_mutex_lock(&one_at_a_time);
  Cbc_Model *model = Cbc_newModel();
  load(model, m);
  choose(model, nodes_max);
  bool solved = solve_silently(model);
  const double *x = solved ? Cbc_bestSolution(model) : NULL;
  hec_milp_answer answer = {.found = x != NULL,
                            .proven = solved && x && Cbc_isProvenOptimal(model),
                            .bound = -HEC_MILP_FREE,
                            .n_nodes = Cbc_getNodeCount(model)};
  double bound = answer.proven ? Cbc_getObjValue(model) : Cbc_getBestPossibleObjValue(model);
  if (x && bound > -HEC_MILP_FREE && bound < HEC_MILP_FREE)
    answer.bound = bound;
  if (x)
    memcpy(m->x, x, (size_t)m->n_columns * sizeof *m->x);
  Cbc_deleteModel(model);
  (void)pthread_mutex_unlock(&one_at_a_time);
  return answer;
}

const hec_solver *hec_solver_cbc(void) {
  static const hec_solver cbc = {"CBC", solve};
  return &cbc;
}
