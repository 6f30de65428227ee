/* Collectives of the launch, written once on start, test and wait of the control channel.
 *
 *   barrier     dissemination (Hensgen, Finkel, Manber 1988): in round k rank r tells r + 2^k and hears from r - 2^k;
 *               ceil(log2 n) rounds
 *   gather      every rank to rank 0, broadcast rank 0 to every rank; one round per HEC_CONTROL_BYTES
 *
 * Where peers read the sender's memory in place, what is sent stands in the control memory behind the region meanwhile. */
#include "runtime/exec/launch/world.h"

#include <errno.h>
#include <string.h>
#include <time.h>

enum { START_AHEAD_NS = 100000, START_AHEAD_PER_RANK_NS = 50000, START_AHEAD_MAX_NS = 1000000, SPIN_NS = 50000 };

int32_t hec_post_missing_peer(const hec_post *post) {
  for (int32_t i = 0; i < post->n_receives; i++)
    if (post->receives[i].moved < post->receives[i].bytes)
      return post->receives[i].peer;
  for (int32_t i = 0; i < post->n_sends; i++)
    if (post->sends[i].moved < post->sends[i].bytes)
      return post->sends[i].peer;
  return -1;
}

int64_t hec_post_moved(const hec_post *post) {
  int64_t moved = 0;
  for (int32_t i = 0; i < post->n_receives; i++)
    moved += post->receives[i].moved;
  for (int32_t i = 0; i < post->n_sends; i++)
    moved += post->sends[i].moved;
  return moved;
}

hec_status hec_rank_finish(hec_rank *rank, hec_post *post, const char *what) {
  int64_t deadline_ns = hec_clock_ns() + rank->limit_ns, moved = 0;
  for (bool done = false;;) {
    HEC_TRY(rank->transport->test(rank, post, &done));
    if (done) {
      hec_rank_waits_for(rank, -1);
      return HEC_OK;
    }
    int32_t peer = hec_post_missing_peer(post);
    hec_rank_waits_for(rank, peer);
    int64_t now_ns = hec_clock_ns(), total = hec_post_moved(post) + hec_rank_turns(rank);
    if (total != moved)
      deadline_ns = now_ns + rank->limit_ns;
    moved = total;
    if (now_ns >= deadline_ns)
      return hec_rank_late(rank, peer, what);
    HEC_TRY(rank->transport->wait(rank, deadline_ns));
  }
}

static hec_status run(hec_rank *rank, hec_message *sends, int32_t n_sends, hec_message *receives, int32_t n_receives,
                      const char *what) {
  hec_post post = {
      .lane = HEC_CHANNEL_CONTROL, .sends = sends, .n_sends = n_sends, .receives = receives, .n_receives = n_receives};
  HEC_TRY(hec_rank_check(rank));
  if (n_sends == 0 && n_receives == 0)
    return HEC_OK;
  HEC_TRY(rank->transport->start(rank, &post));
  return hec_rank_finish(rank, &post, what);
}

static hec_message message(int32_t peer, const hec_segment *segment) {
  return (hec_message){.peer = peer, .n_segments = 1, .segments = segment, .bytes = segment->bytes, .after = -1};
}

static hec_status barrier(hec_rank *rank, const char *what) {
  hec_segment out = {hec_world_control(rank), 1}, in = {hec_world_control(rank) + 64, 1};
  for (int32_t distance = 1; distance < rank->n_ranks; distance *= 2) {
    hec_message send = message((rank->rank + distance) % rank->n_ranks, &out);
    hec_message receive = message((rank->rank - distance + rank->n_ranks) % rank->n_ranks, &in);
    HEC_TRY(run(rank, &send, 1, &receive, 1, what));
  }
  return hec_rank_check(rank);
}

hec_status hec_rank_barrier(hec_rank *rank) {
  return barrier(rank, "a barrier");
}

/* Bytes of the round that begins at `at`. */
static size_t round_bytes(const hec_rank *rank, size_t bytes, size_t at) {
  size_t left = bytes - at;
  return rank->transport->shares_memory && left > HEC_CONTROL_BYTES ? HEC_CONTROL_BYTES : left;
}

/* `data`, or a copy of it that peers may read. */
static hec_segment readable(hec_rank *rank, const char *data, size_t bytes) {
  if (!rank->transport->shares_memory)
    return (hec_segment){(void *)(uintptr_t)data, (int64_t)bytes};
  memcpy(hec_world_control(rank), data, bytes);
  return (hec_segment){hec_world_control(rank), (int64_t)bytes};
}

static hec_status gather_round(hec_rank *rank, const char *data, size_t bytes, char *all, size_t stride) {
  hec_segment segments[HEC_RANKS_MAX];
  hec_message messages[HEC_RANKS_MAX];
  if (rank->rank > 0) {
    segments[0] = readable(rank, data, bytes);
    messages[0] = message(0, &segments[0]);
    return run(rank, messages, 1, NULL, 0, "a gather");
  }
  memcpy(all, data, bytes);
  for (int32_t r = 1; r < rank->n_ranks; r++) {
    segments[r] = (hec_segment){all + (size_t)r * stride, (int64_t)bytes};
    messages[r - 1] = message(r, &segments[r]);
  }
  return run(rank, NULL, 0, messages, rank->n_ranks - 1, "a gather");
}

hec_status hec_rank_gather(hec_rank *rank, const void *data, size_t bytes, void *all) {
  HEC_ASSERT(rank->rank > 0 || all || bytes == 0);
  for (size_t at = 0; at < bytes; at += round_bytes(rank, bytes, at))
    HEC_TRY(gather_round(rank, (const char *)data + at, round_bytes(rank, bytes, at),
                         rank->rank == 0 ? (char *)all + at : NULL, bytes));
  return hec_rank_check(rank);
}

static hec_status broadcast_round(hec_rank *rank, char *data, size_t bytes) {
  hec_message messages[HEC_RANKS_MAX];
  if (rank->rank > 0) {
    hec_segment segment = {data, (int64_t)bytes};
    messages[0] = message(0, &segment);
    return run(rank, NULL, 0, messages, 1, "a broadcast");
  }
  hec_segment segment = readable(rank, data, bytes);
  for (int32_t r = 1; r < rank->n_ranks; r++)
    messages[r - 1] = message(r, &segment);
  return run(rank, messages, rank->n_ranks - 1, NULL, 0, "a broadcast");
}

hec_status hec_rank_broadcast(hec_rank *rank, void *data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += round_bytes(rank, bytes, at))
    HEC_TRY(broadcast_round(rank, (char *)data + at, round_bytes(rank, bytes, at)));
  return hec_rank_check(rank);
}

/* ---- Starting together ---- */

static void sleep_until(int64_t ns) {
  struct timespec end = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
    ;
}

hec_status hec_rank_start_together(hec_rank *rank, int64_t *start_ns) {
  HEC_TRY(barrier(rank, "a barrier before a common start"));
  if (rank->world->n_local < rank->n_ranks) {
    *start_ns = hec_clock_ns();
    return HEC_OK;
  }
  int64_t ahead_ns = START_AHEAD_NS + (int64_t)START_AHEAD_PER_RANK_NS * rank->n_ranks;
  int64_t start = hec_clock_ns() + (ahead_ns < START_AHEAD_MAX_NS ? ahead_ns : START_AHEAD_MAX_NS);
  HEC_TRY(hec_rank_broadcast(rank, &start, sizeof start));
  if (hec_clock_ns() < start - SPIN_NS)
    sleep_until(start - SPIN_NS);
  while (hec_clock_ns() < start)
    ;
  *start_ns = start;
  return HEC_OK;
}
