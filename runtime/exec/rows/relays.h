/* Where token rows stand that pass this rank on their way (token_route.h): neither its own nor computed here. For each chunk
 * they stand twice, in the order in which they come and in that in which they go on; towards the experts
 *
 *   RELAYED   by (source, destination, expert)     filled by the exchange inside the node
 *   ALIGNED   by (destination, source, expert)     emptied by the exchange between nodes
 *
 * and the other way round on the way back. Of the two exchanges, the messages of a pair of ranks have, in this order,
 *
 *   inside, s -> q    rows that q computes, by expert; then those that rest there, by (destination, expert)
 *   between, q -> d   q's own rows, by expert; then those that rested there, by (source, expert)
 *
 * so both ends agree without a word. Where cuts must agree too, for links, they are at experts. Rows that come to rest
 * are cut at destinations instead: at both ends one run each. */
#pragma once
#include "runtime/exec/rows/rows.h"
#include "runtime/program/token_route.h"

/* `rows` rows that pass, from row relayed and from row aligned of the chunk's two buffers on. */
typedef struct {
  int32_t source, rank, expert, rows, relayed, aligned;
} hec_relay_run;

typedef struct hec_relays {
  int32_t *over_to;   /* [n_ranks] relay of this rank's rows for d; of those that stay, this rank */
  int32_t *over_from; /* [n_ranks] relay of s's rows for this rank */
  int32_t *at;        /* [degree + 1] runs of each chunk */
  hec_relay_run *run; /* [n] by (chunk, rank, source, expert) */
  int32_t *by_source; /* [n] the same by (chunk, source, rank, expert): indices into run */
} hec_relays;

/* On `arena`. O(cells + degree * ranks). */
const hec_relays *hec_relays_make(hec_arena *arena, const hec_rows_cells *of, const hec_token_route *route,
                                  const hec_problem *problem, int32_t rank);
