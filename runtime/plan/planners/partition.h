/* Experts in as many groups as there are ranks, sums as equal as can be: the first problem of MoETuner. */
#pragma once
#include "runtime/plan/milp.h"

typedef struct {
  int32_t n_items, n_parts;
  int32_t *part;  /* [n_items] result */
  uint64_t *sum;  /* [n_parts] result */
  int32_t *count; /* [n_parts] result: at most ceil(n_items / n_parts), at least 1 where there are items enough */
  double *key;    /* scratch [n_items] */
  int32_t *order; /* scratch [n_items] */
  uint64_t units; /* inner steps of the last one */
} hec_partition;

hec_partition hec_partition_new(hec_arena *arena, int32_t n_items, int32_t n_parts);
/* A heuristic; what comes below starts from it. */
void hec_partition_make(hec_partition *partition, const uint64_t *weight);
/* n_parts times the sum over parts of |sum - mean|. */
uint64_t hec_partition_deviation(const hec_partition *partition);

/* ---- partition_exact.c: the programme itself, for a solver ---- */

typedef struct {
  bool listed;         /* few enough sets of items fit a part: the programme chooses among all of them */
  int32_t min;         /* items of a part, at least */
  hec_milp milp;       /* no columns: too large to solve */
  int32_t *chosen;     /* scratch [n_items] */
  uint64_t *ascending; /* scratch [n_items] */
} hec_partition_exact;

typedef struct {
  uint64_t bound; /* no partition deviates less */
  bool proven;    /* nor less than the one at hand */
  bool improved;  /* the solver's is at hand */
  bool tried;     /* a solver was asked */
} hec_partition_verdict;

/* Memory for the programme, up to some MB; with solver NULL next to none. */
hec_partition_exact hec_partition_exact_new(hec_arena *arena, int32_t n_items, int32_t n_parts,
                                            const hec_solver *solver);
/* After hec_partition_make: puts a better partition in its place where the solver finds one; where it finds none better
 * the heuristic's stays. Without a solver the bound alone. */
hec_partition_verdict hec_partition_improve(hec_partition_exact *exact, hec_partition *partition,
                                            const uint64_t *weight, const hec_solver *solver);
