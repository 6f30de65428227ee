/* Which transfers of an exchange NCCL has in flight at once (law `nccl_rounds`). Shared by the event engine and bare flows.
 *
 * A rank walks its peers in rounds. In a round it sends to one rank and receives from one. All ranks have the same
 * round for the same transfer (ncclP2pSchedule in NCCL's src/init.cc; reference field.md 5.5):
 *
 *   nodes with G ranks each     round of (s, d) = a G + b,  a: place of (node(d) - node(s)) mod nodes, b: place of
 *                               (local(d) - local(s)) mod G, both in the quadratic order 0, 1, 3, 6, 10 .. (x(x+1)/2 mod the
 *                               next power of two, what is not below the number left out)
 *   nodes of unequal size       as one node of all ranks
 *
 * A round belongs to one of `slots` = channels / channels per peer sets of channels, the next one for each round. A set works
 * on `batch` rounds at a time and begins the next ones when all of these are done, sends and receives. Rounds in which the
 * rank has nothing to move are left out. So at most slots * batch rounds are in flight, and a large transfer delays what comes
 * later on its channels.
 *
 * A transfer runs when it is in flight at both ends. That never deadlocks. Take the unfinished transfer of the
 * earliest round: what stands before it in a slot is of earlier rounds and done. So it is in flight at both ends.
 *
 * Inferred: batches wait for all their rounds; how many channels a peer has does not depend on the size of the message.
 * Left out: transfers of 0 bytes (NCCL launches them), the grouping of ranks by eight in newer versions. */
#pragma once
#include "models/cluster.h"

typedef struct hec_rounds hec_rounds;

typedef struct {
  int32_t source, destination; /* ranks, not the same */
} hec_rounds_pair;

/* Called when transfer `transfer` is in flight at both ends from now on; each once. */
typedef void hec_rounds_start(void *context, int32_t transfer);

/* Transfers pair[0..n) between ranks 0..n_ranks-1, `per_node` to a node. On `arena`; `pair` is copied. Time and memory
 * O(transfers + ranks * slots + peers). Nothing starts yet. */
hec_rounds *hec_rounds_new(hec_arena *arena, int32_t n_ranks, int32_t per_node, hec_p2p p2p, int32_t n,
                           const hec_rounds_pair *pair);
/* The first batches. */
void hec_rounds_begin(hec_rounds *rounds, hec_rounds_start *start, void *context);
/* The transfer has ended; the batches that it was the last of are followed by the next ones. */
void hec_rounds_done(hec_rounds *rounds, int32_t transfer, hec_rounds_start *start, void *context);

/* The round of a transfer, 0 .. n_ranks-1 (0 would be to itself). For tests. */
int32_t hec_rounds_of(const hec_rounds *rounds, int32_t source, int32_t destination);
