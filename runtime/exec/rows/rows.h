/* Where token rows stand. From the cells of a layer (who computes which assignments of whom), for one rank:
 *
 *   assigned rows   one per assignment of the rank's own tokens: those that leave, by (chunk, destination, expert), then
 *                   those that stay, by (chunk, expert); within one cell in the order of the assignment list
 *   computed rows   one per assignment that the rank computes: by (chunk, expert, source), the layout of its experts' inputs
 *
 * A transfer of a chunk from s to d is one run of s's assigned rows. On d it is one run of computed rows per expert.
 * Both sides agree on the order (expert, position) without a message. A layer that is not cut is one chunk.
 *
 * In an expert-sharding group (problem.esp) a rank computes what arrived at any member. So computed rows are the
 * group's, by (chunk, expert, member it arrived at, source). They are the same rows at the same places on all members.
 */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/program/program.h"

/* `rows` rows of the pair (this rank, peer) from row `first` on. */
typedef struct {
  int32_t peer, expert, first, rows;
} hec_rows_run;

/* Ascending by (chunk, peer, expert), none of them empty; those of slot = chunk * n_ranks + peer are run[at[slot]] ..
 * run[at[slot + 1]] - 1. */
typedef struct {
  hec_rows_run *run; /* [n] */
  int32_t *at, n;    /* [n_slots + 1] */
} hec_rows_runs;

typedef struct {
  int32_t n_ranks, n_slots, n_assigned, n_computed;
  int32_t *place; /* [n_assigned] assigned row of assignment j of the list sorted by expert */
  int32_t *stays; /* [n_assigned] computed row of assignment j, -1: it leaves */
  int32_t
      *leaving_at; /* [n_slots + 1] assigned rows leaving_at[slot] .. leaving_at[slot + 1] - 1 go to the slot's rank */
  int32_t *computed_at; /* [degree + 1] computed rows of each chunk */
  /* [degree * n_experts * esp + 1] computed rows shelf_at[shelf] .. shelf_at[shelf + 1] - 1 of a chunk and expert arrived at
   * one member, shelf = (chunk * n_experts + expert) * esp + member. All of a rank's own at esp 1 */
  int32_t *shelf_at;
  hec_rows_runs leave, arrive;     /* of assigned rows, of computed rows: the same cuts at both ends */
  const struct hec_relays *relays; /* relays.h; NULL: no row passes a third rank */
} hec_rows;

/* As in a program: the cells by (source, expert, rank), `degree` times, each time with the rows of a chunk. */
typedef struct {
  const hec_cell *cells; /* [n_cells] */
  int32_t n_cells, degree, n_experts, n_ranks;
  int32_t esp; /* ranks of an expert-sharding group; 1: none */
} hec_rows_cells;

/* On `arena`. O(cells + degree * (ranks + experts * esp) + assignments). */
hec_rows hec_rows_make(hec_arena *arena, const hec_rows_cells *of, int32_t rank);
