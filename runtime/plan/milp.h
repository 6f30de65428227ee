/* A mixed-integer linear programme, minimised, and who solves it. Planners write the programme and are handed the
 * solver (in hec_problem), so that they, the executors and libhecate link no solver. */
#pragma once
#include "runtime/base/arena.h"

#include <stdbool.h>

/* minimise cost x, row_lower <= A x <= row_upper, 0 <= x <= upper; A by column. Filled column after column. */
typedef struct {
  int32_t n_columns, n_rows, columns_max, rows_max;
  int64_t entries_max;
  int64_t *at;          /* [columns_max + 1] where a column's entries begin */
  int32_t *row;         /* [entries_max] */
  double *value;        /* [entries_max] */
  double *cost, *upper; /* [columns_max] */
  uint8_t *integer;     /* [columns_max] */
  double *min;          /* [rows_max] */
  double *max;          /* [rows_max] */
  double *x;            /* [columns_max] solution */
} hec_milp;

#define HEC_MILP_FREE 1e30 /* no limit */

typedef struct {
  bool found, proven; /* x holds a solution; none is better */
  double bound;       /* no solution costs less; -HEC_MILP_FREE: nothing known */
  int64_t n_nodes;
} hec_milp_answer;

/* The same programme gives the same answer: one thread, a fixed seed, a limit of nodes and none of time. */
typedef struct hec_solver {
  const char *name;
  hec_milp_answer (*solve)(hec_milp *milp, int64_t nodes_max);
  /* Opens what it needs, at the first call; false: it is not on this machine. NULL: it always is ready. */
  bool (*ready)(void);
} hec_solver;

/* `solver` when it can be asked, NULL when there is none: what planners begin with. */
const hec_solver *hec_solver_ready(const hec_solver *solver);

hec_milp hec_milp_new(hec_arena *arena, int32_t columns_max, int32_t rows_max, int64_t entries_max);
void hec_milp_clear(hec_milp *milp);
int32_t hec_milp_row(hec_milp *milp, double min, double max);
int32_t hec_milp_column(hec_milp *milp, double cost, double upper, bool integer);
void hec_milp_entry(hec_milp *milp, int32_t row, double value); /* of the newest column */
