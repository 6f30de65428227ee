/* A group's rank is the launch's with two things changed. A transport around it shifts the numbers of peers. The world
 * begins at the group's first rank. Every table by rank is the launch's from there on. A post is copied
 * for the launch's transport, which sees the launch's peers, and its progress is copied back. */
#include "runtime/exec/launch/group.h"

#include "runtime/base/arena.h"
#include "runtime/exec/launch/world.h"

#include <stdlib.h>

typedef struct {
  hec_post post; /* as the launch's transport sees it */
  hec_message *sends, *receives;
  size_t sends_capacity, receives_capacity;
} shifted;

struct hec_group {
  hec_rank own;      /* as the group sees it */
  hec_rank *outside; /* as the launch does */
  int32_t first;
  hec_world world;
  hec_transport transport;
  shifted lane[HEC_N_CHANNELS];
};

static hec_group *group_of(const hec_rank *rank) {
  return rank->channels;
}

static void shift(const hec_group *group, const hec_message *from, int32_t n, hec_message *to) {
  for (int32_t i = 0; i < n; i++) {
    to[i] = from[i];
    to[i].peer += group->first;
  }
}

static void copy_moved(const hec_message *from, int32_t n, hec_message *to) {
  for (int32_t i = 0; i < n; i++)
    to[i].moved = from[i].moved;
}

static void copy_progress(const shifted *s, hec_post *post) {
  copy_moved(s->sends, post->n_sends, post->sends);
  copy_moved(s->receives, post->n_receives, post->receives);
}

static hec_status start(hec_rank *rank, hec_post *post) {
  hec_group *group = group_of(rank);
  shifted *s = &group->lane[post->lane];
  HEC_RESERVE(s->sends, s->sends_capacity, post->n_sends);
  HEC_RESERVE(s->receives, s->receives_capacity, post->n_receives);
  shift(group, post->sends, post->n_sends, s->sends);
  shift(group, post->receives, post->n_receives, s->receives);
  s->post = *post;
  s->post.sends = s->sends;
  s->post.receives = s->receives;
  HEC_TRY(group->outside->transport->start(group->outside, &s->post));
  copy_progress(s, post);
  return HEC_OK;
}

static hec_status test(hec_rank *rank, hec_post *post, bool *done) {
  hec_group *group = group_of(rank);
  shifted *s = &group->lane[post->lane];
  HEC_TRY(group->outside->transport->test(group->outside, &s->post, done));
  copy_progress(s, post);
  return HEC_OK;
}

static hec_status wait(hec_rank *rank, int64_t until_ns) {
  hec_rank *outside = group_of(rank)->outside;
  return outside->transport->wait(outside, until_ns);
}

hec_group *hec_group_new(hec_rank *rank, int32_t first, int32_t n_ranks) {
  HEC_ASSERT(first >= 0 && n_ranks > 0 && first + n_ranks <= rank->n_ranks);
  HEC_ASSERT(rank->rank >= first && rank->rank < first + n_ranks && !rank->link);
  hec_group *group = hec_malloc(1, sizeof *group);
  *group =
      (hec_group){.own = *rank, .outside = rank, .first = first, .world = *rank->world, .transport = *rank->transport};
  group->world.n_ranks = n_ranks;
  group->world.base += first;
  group->world.first -= first;
  group->world.slots += first;
  group->transport.start = start;
  group->transport.test = test;
  group->transport.wait = wait;
  group->own.rank -= first;
  group->own.n_ranks = n_ranks;
  group->own.world = &group->world;
  group->own.transport = &group->transport;
  group->own.channels = group;
  return group;
}

hec_rank *hec_group_rank(hec_group *group) {
  return &group->own;
}

void hec_group_free(hec_group *group) {
  for (int32_t i = 0; group && i < HEC_N_CHANNELS; i++) {
    free(group->lane[i].sends);
    free(group->lane[i].receives);
  }
  free(group);
}
