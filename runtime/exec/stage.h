/* One exchange of transfers as this rank's post: who sends what to whom is known, where the bytes stand the caller says.
 * Shared by the executor (parcels of a program) and the library's sparse collectives (buffers of the user). */
#pragma once
#include "models/link_cost.h"
#include "runtime/base/arena.h"
#include "runtime/exec/math/processor.h"
#include "runtime/exec/transport/transport.h"

static inline bool hec_post_is_empty(const hec_post *post) {
  return post->n_sends == 0 && post->n_receives == 0;
}

/* All of it has moved. */
static inline void hec_post_set_moved(hec_post *post) {
  for (int32_t i = 0; i < post->n_sends; i++)
    post->sends[i].moved = post->sends[i].bytes;
  for (int32_t i = 0; i < post->n_receives; i++)
    post->receives[i].moved = post->receives[i].bytes;
}

/* Bytes of a send that may leave now: all, or of a forwarded message the whole chunks that have arrived. */
static inline int64_t hec_post_ready(const hec_post *post, const hec_message *send) {
  if (send->after < 0)
    return send->bytes;
  int64_t moved = post->receives[send->after].moved;
  return moved == send->bytes ? moved : moved / post->chunk_bytes * post->chunk_bytes;
}

/* Appends a message of these segments, unless it is empty. */
void hec_message_add(hec_message *list, int32_t *n, int32_t peer, const hec_segment *segments, int32_t n_segments);

typedef struct {
  const hec_transfer *transfers; /* [n_transfers] of all ranks; one per pair, or a chain */
  int32_t n_transfers, n_chunks;
  int32_t rank;
  int32_t n_segments; /* of this rank's transfers together, at most */
  bool reduces;       /* what arrives is added to what is there */
  bool staged;        /* reduces: not by the transport: it lands in staging, to be added once all is there */
  char *staging;      /* staged: bytes of all that this rank receives, in the order of transfers; else not looked at */
  /* Segments of transfer k on this rank, its source or destination; returns their number. */
  int32_t (*segments)(void *context, int32_t k, hec_segment *out);
  void *context;
} hec_stage;

/* Fills post (lane excepted) and, where staged, what to add once it is done: additions [*n_additions], ascending by
 * source like the transfers. Everything on the arena. O(transfers + segments). */
void hec_stage_bind(const hec_stage *stage, hec_arena *arena, hec_post *post, hec_piece **additions,
                    int32_t *n_additions);
