/* Groups of experts to ranks, layer after layer, so that few tokens change rank between layers: the second problem of
 * MoETuner. */
#pragma once
#include "runtime/plan/milp.h"
#include "runtime/plan/planners/assignment.h"

typedef struct {
  int32_t n_layers, n;   /* n groups in each layer, n ranks */
  double *seconds;       /* [n * n] in: of one token from rank to rank, 0 on the diagonal */
  uint64_t *flow;        /* [(n_layers - 1) * n * n] in: tokens from group a of layer l to group b of layer l + 1 */
  int32_t *rank;         /* [n_layers * n] in: a start; result */
  int32_t *start;        /* scratch [n_layers * n] */
  hec_assignment assign; /* scratch */
  uint64_t units;
} hec_chain;

hec_chain hec_chain_new(hec_arena *arena, int32_t n_layers, int32_t n);
/* A heuristic, never worse than the start; what comes below starts from it. */
void hec_chain_make(hec_chain *chain);
/* The sum over layers of the slowest pair of ranks, in seconds; *all: of all pairs. */
double hec_chain_seconds(const hec_chain *chain, double *all);

/* ---- chain_exact.c: the programme itself, for a solver ---- */

typedef struct {
  bool listed;      /* few enough bijections: the programme chooses among all pairs of them */
  int32_t n_orders; /* n!, where listed */
  int32_t *order;   /* [n_orders * n] */
  hec_milp milp;    /* no columns: too large to solve */
  uint64_t *flow;   /* scratch [n * n] */
  int32_t *best;    /* scratch [n_layers * n] */
} hec_chain_exact;

typedef struct {
  double bound_s;               /* no bijections take less */
  bool proven, improved, tried; /* as of hec_partition_verdict */
} hec_chain_verdict;

hec_chain_exact hec_chain_exact_new(hec_arena *arena, int32_t n_layers, int32_t n, const hec_solver *solver);
/* After hec_chain_make, as hec_partition_improve. */
hec_chain_verdict hec_chain_improve(hec_chain_exact *exact, hec_chain *chain, const hec_solver *solver);
