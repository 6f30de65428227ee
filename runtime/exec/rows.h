/* Where token rows stand. From the cells of a layer (who computes which assignments of whom), for one rank:
 *
 *   assigned rows   one per assignment of the rank's own tokens: those that leave, by (destination, expert), then those
 *                   that stay, by expert; within one expert in the order of the assignment list
 *   computed rows   one per assignment that the rank computes: by (expert, source), the layout of its experts' inputs
 *
 * A transfer from s to d is one run of s's assigned rows and, on d, one run of computed rows per expert: both sides agree
 * on the order (expert, position) without a word. */
#ifndef HEC_EXEC_ROWS_H
#define HEC_EXEC_ROWS_H
#include "runtime/base/arena.h"
#include "runtime/program/program.h"

/* `rows` rows of the pair (this rank, peer) from row `first` on. */
typedef struct {
  int32_t peer, expert, first, rows;
} hec_rows_run;

/* Ascending by (peer, expert); those of a peer are run[at[peer]] .. run[at[peer + 1]] - 1. */
typedef struct {
  hec_rows_run *run; /* [n] */
  int32_t *at, n;    /* [n_ranks + 1] */
} hec_rows_runs;

typedef struct {
  int32_t n_ranks, n_assigned, n_computed;
  int32_t *place;              /* [n_assigned] assigned row of assignment j of the list sorted by expert */
  int32_t *stays;              /* [n_assigned] computed row of assignment j, -1: it leaves */
  int32_t *leaving_at;         /* [n_ranks + 1] assigned rows leaving_at[d] .. leaving_at[d + 1] - 1 go to rank d */
  hec_rows_runs leave, arrive; /* of assigned rows, of computed rows: the same cuts at both ends */
} hec_rows;

/* cells: [n_cells] as in a program (by source, expert, rank). On `arena`. O(cells + assignments). */
hec_rows hec_rows_make(hec_arena *arena, const hec_cell *cells, int32_t n_cells, int32_t n_experts, int32_t n_ranks,
                       int32_t rank);

#endif
