/* Steps by hop. Groups of a rank are carried out one after the other, each when all its peers have come to the group
 * that answers it. That is like a barrier between those ranks. So the order of groups must be one that all ranks have
 * in common.
 *
 *   chunk c of a message of hop h moves in step c + h
 *
 * Time is cut into the same steps everywhere, and both ends of a message agree on c and h. By induction over steps,
 * when all ranks have done the steps before s: every piece of step s has its other end in step s. What it forwards came
 * in step s - 1, in an earlier group of the same stream. So every step ends, and nothing is sent before it is there.
 *
 * Loops of each rank's own over its chunks (receive chunk c, send it on, next) have no such order. Take chains that
 * cross, 0 -> 1 -> 2 and 1 -> 0 -> 2. Rank 0 would first send the chunk of its own chain, and rank 1 that of its own.
 * Each group would wait for one that comes later.
 *
 * Within a step pieces of a pair follow each other in the order of the post, which is the same at both ends. */
#include "runtime/exec/link/link_steps.h"

#include <stdlib.h>

struct hec_link_cursor {
  int32_t segment;
  int64_t offset; /* bytes into the segment */
  int64_t through;
};

/* Bytes that move in one step. */
static int64_t unit(const hec_post *post, const hec_message *m) {
  return post->chunk_bytes > 0 ? post->chunk_bytes : m->bytes;
}

static int32_t last_step(const hec_post *post, const hec_message *list, int32_t n) {
  int64_t last = 0;
  for (int32_t i = 0; i < n; i++) {
    int64_t end = (post->chunk_bytes > 0 ? list[i].hop : 0) + (list[i].bytes - 1) / unit(post, &list[i]) + 1;
    last = end > last ? end : last;
  }
  HEC_ASSERT(last <= INT32_MAX);
  return (int32_t)last;
}

void hec_link_steps_begin(hec_link_steps *steps, const hec_post *post, hec_arena *arena) {
  HEC_ASSERT(post->chunk_bytes % (int64_t)sizeof(float) == 0);
  int32_t sends = last_step(post, post->sends, post->n_sends);
  int32_t receives = last_step(post, post->receives, post->n_receives);
  *steps = (hec_link_steps){.post = post,
                            .n_steps = sends > receives ? sends : receives,
                            .sends = HEC_NEW(arena, struct hec_link_cursor, post->n_sends),
                            .receives = HEC_NEW(arena, struct hec_link_cursor, post->n_receives),
                            .pieces = steps->pieces,
                            .capacity = steps->capacity};
}

/* The next n bytes of a message. */
static void cut(hec_link_steps *steps, const hec_message *m, struct hec_link_cursor *c, int64_t n,
                hec_link_piece like) {
  while (n > 0) {
    const hec_segment *segment = &m->segments[c->segment];
    int64_t left = segment->bytes - c->offset, take = left < n ? left : n;
    HEC_ASSERT(segment->bytes % (int64_t)sizeof(float) == 0);
    if (take > 0) {
      HEC_RESERVE(steps->pieces, steps->capacity, steps->n_pieces + 1);
      like.at = (float *)(void *)((char *)segment->at + c->offset);
      like.n = take / (int64_t)sizeof(float);
      steps->pieces[steps->n_pieces++] = like;
    }
    c->offset += take;
    c->through += take;
    n -= take;
    if (c->offset == segment->bytes) {
      c->segment++;
      c->offset = 0;
    }
  }
}

static void cut_all(hec_link_steps *steps, bool sends) {
  const hec_post *post = steps->post;
  const hec_message *list = sends ? post->sends : post->receives;
  struct hec_link_cursor *cursors = sends ? steps->sends : steps->receives;
  int32_t n = sends ? post->n_sends : post->n_receives;
  for (int32_t i = 0; i < n; i++) {
    int64_t left = list[i].bytes - cursors[i].through, max = unit(post, &list[i]);
    if (left > 0 && (post->chunk_bytes == 0 || list[i].hop <= steps->step))
      cut(steps, &list[i], &cursors[i], left < max ? left : max,
          (hec_link_piece){.sends = sends, .message = i, .peer = list[i].peer});
  }
}

bool hec_link_steps_next(hec_link_steps *steps) {
  steps->n_pieces = 0;
  for (; steps->step < steps->n_steps && steps->n_pieces == 0; steps->step++) {
    cut_all(steps, true);
    cut_all(steps, false);
  }
  return steps->n_pieces > 0;
}

void hec_link_steps_free(hec_link_steps *steps) {
  free(steps->pieces);
  *steps = (hec_link_steps){0};
}
