/* A post cut into steps, for links that send and receive in groups: what one rank gives the link step after step. A plain
 * post is one step. Of a chained one chunk c of a message of hop h moves in step c + h, everywhere. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/exec/transport/transport.h"

/* Part of a segment of message `message` of the sends or receives. */
typedef struct {
  bool sends;
  int32_t message, peer;
  float *at;
  int64_t n; /* floats, at least 1 */
} hec_link_piece;

/* How far the messages are; its arrays are on the arena. */
typedef struct {
  const hec_post *post;
  int32_t step, n_steps;
  struct hec_link_cursor *sends, *receives; /* [n_sends], [n_receives] */
  hec_link_piece *pieces;                   /* of the step: room for the largest */
  size_t n_pieces, capacity;
} hec_link_steps;

/* Segments are whole floats, chunk_bytes is a multiple of 4. O(messages) */
void hec_link_steps_begin(hec_link_steps *steps, const hec_post *post, hec_arena *arena);
/* Fills in pieces [n_pieces] of the next step, sends first, each list in the order of the post and of its segments. Skips
 * steps in which this rank has none. False: that was the last. O(messages + pieces) */
bool hec_link_steps_next(hec_link_steps *steps);
/* Frees what does not stand on the arena. */
void hec_link_steps_free(hec_link_steps *steps);
