/* Shared memory: nothing is staged. A channel (source, destination, lane) is a ring of pieces, each an address and a
 * length in the source's region:
 *
 *     source      pieces[head % N] = segment or part of one; head += 1 (release)
 *     destination copies from the address into its own segments, one memcpy (or addition) per overlap of the two cuts;
 *                 when a piece is used up, tail += 1 (release)
 *     a send is done when tail has passed its last piece: until then the destination may read its memory
 *
 * One writer for head, one for tail, indices only grow. Pieces never span messages and a message's last piece is marked,
 * so that two ends which disagree about a size notice. Messages of a pair follow each other in the order of the post.
 *
 * Bells: the source rings when it pushed. The destination rings when it used up a message's last piece (the send is
 * done), or when there is room in the ring again. A source that found it full hears of it. So whoever sleeps has
 * nothing to do.
 *
 * Chained posts: a piece is at most one chunk. A pass takes at most one chunk from each receive before forwarding. A
 * forwarding send offers whole chunks of what has arrived. Adding: receives strictly in order, so that sums have one
 * order whatever arrives first. Cost: O(messages not done) per test, one copy of every byte. */
#include "runtime/exec/transport/shm.h"
#include "runtime/base/arena.h"
#include "runtime/exec/launch/world.h"
#include "runtime/exec/stage.h"

#include <stdlib.h>
#include <string.h>

enum { N_PIECES = 64 };

typedef struct {
  char *at;
  int64_t bytes;
  bool last; /* of its message */
} piece;

typedef struct {
  alignas(64) _Atomic uint64_t head; /* pieces pushed, by the source */
  alignas(64) _Atomic uint64_t tail; /* pieces used up, by the destination */
  alignas(64) piece pieces[N_PIECES];
} channel;

/* Where a message stands at this rank's end. */
typedef struct {
  int32_t segment;
  int64_t offset;  /* into the segment */
  int64_t through; /* bytes of the message pushed (sends) or copied (receives) */
  int64_t taken;   /* receives: bytes of the piece in hand that are used */
  uint64_t end;    /* sends: tail from which on the message is done */
} cursor;

typedef struct {
  hec_post *post; /* NULL: none in progress */
  cursor *sends, *receives;
  size_t sends_capacity, receives_capacity;
  int32_t first_send, first_receive; /* all before are done */
} lane;

typedef struct {
  lane lanes[HEC_N_CHANNELS];
  uint64_t pass;
  uint64_t send_stop[HEC_RANKS_MAX]; /* == pass: an earlier message to this peer is not through */
  uint64_t receive_stop[HEC_RANKS_MAX];
  bool ring[HEC_RANKS_MAX];
} mover;

static channel *channel_of(const hec_rank *rank, int32_t source, int32_t destination, int32_t number) {
  size_t n = (size_t)rank->n_ranks;
  channel *all = rank->world->transport;
  return all + (((size_t)source * n + (size_t)destination) * HEC_N_CHANNELS + (size_t)number);
}

hec_status hec_shm_prepare(const struct hec_launch_options *options, hec_world *world) {
  size_t n = (size_t)options->n_ranks;
  return hec_world_share(world, n * n * HEC_N_CHANNELS * sizeof(channel), &world->transport);
}

hec_status hec_shm_open(hec_rank *rank) {
  mover *own = hec_malloc(1, sizeof *own);
  *own = (mover){0};
  rank->channels = own;
  return HEC_OK;
}

void hec_shm_close(hec_rank *rank) {
  mover *own = rank->channels;
  for (int32_t i = 0; own && i < HEC_N_CHANNELS; i++) {
    free(own->lanes[i].sends);
    free(own->lanes[i].receives);
  }
  free(own);
  rank->channels = NULL;
}

/* ---- Sending ---- */

/* Offers what is ready while there is room; returns whether anything was pushed. */
static bool push(channel *to, const hec_post *post, const hec_message *m, cursor *c) {
  int64_t ready = hec_post_ready(post, m), before = c->through;
  uint64_t head = atomic_load_explicit(&to->head, memory_order_relaxed);
  while (c->through < ready && head - atomic_load_explicit(&to->tail, memory_order_acquire) < N_PIECES) {
    const hec_segment *segment = &m->segments[c->segment];
    int64_t n = segment->bytes - c->offset;
    if (n == 0) {
      c->segment++;
      c->offset = 0;
      continue;
    }
    if (n > ready - c->through)
      n = ready - c->through;
    if (post->chunk_bytes > 0 && n > post->chunk_bytes - c->through % post->chunk_bytes)
      n = post->chunk_bytes - c->through % post->chunk_bytes;
    to->pieces[head % N_PIECES] = (piece){(char *)segment->at + c->offset, n, c->through + n == m->bytes};
    c->offset += n;
    c->through += n;
    atomic_store_explicit(&to->head, ++head, memory_order_release);
  }
  c->end = head;
  return c->through > before;
}

static bool push_all(const hec_rank *rank, mover *own, lane *l) {
  hec_post *post = l->post;
  bool progress = false;
  for (int32_t i = l->first_send; i < post->n_sends; i++) {
    hec_message *m = &post->sends[i];
    cursor *c = &l->sends[i];
    channel *to = channel_of(rank, rank->rank, m->peer, post->lane);
    if (c->through < m->bytes && own->send_stop[m->peer] != own->pass && push(to, post, m, c))
      progress = own->ring[m->peer] = true;
    if (c->through < m->bytes)
      own->send_stop[m->peer] = own->pass;
    else if (m->moved < m->bytes && atomic_load_explicit(&to->tail, memory_order_acquire) >= c->end)
      m->moved = m->bytes;
    if (i == l->first_send && m->moved == m->bytes)
      l->first_send++;
  }
  return progress;
}

/* ---- Receiving ---- */

static void add_floats(float *restrict to, const float *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    to[i] += from[i];
}

static hec_status disagree(hec_rank *rank, const hec_post *post, const hec_message *m) {
  return hec_rank_fail(rank, "rank %d sends a message of another size than the %lld bytes expected on channel %d",
                       m->peer, (long long)m->bytes, post->lane);
}

/* Copies up to `budget` bytes of message m out of `from`. *rings: the source has something to hear. */
static hec_status pull(hec_rank *rank, const hec_post *post, hec_message *m, cursor *c, bool *rings) {
  channel *from = channel_of(rank, m->peer, rank->rank, post->lane);
  uint64_t tail = atomic_load_explicit(&from->tail, memory_order_relaxed);
  int64_t budget = post->chunk_bytes > 0 ? post->chunk_bytes : m->bytes;
  while (m->moved < m->bytes && budget > 0) {
    if (tail == atomic_load_explicit(&from->head, memory_order_acquire))
      return HEC_OK;
    const piece *p = &from->pieces[tail % N_PIECES];
    const hec_segment *segment = &m->segments[c->segment];
    int64_t n = p->bytes - c->taken, room = segment->bytes - c->offset;
    n = n < room ? n : room;
    n = n < budget ? n : budget;
    char *to = (char *)segment->at + c->offset;
    if (post->add)
      add_floats((float *)(void *)to, (const float *)(const void *)(p->at + c->taken), n / (int64_t)sizeof(float));
    else
      memcpy(to, p->at + c->taken, (size_t)n);
    c->taken += n;
    c->offset += n;
    m->moved += n;
    budget -= n;
    if (c->offset == segment->bytes) {
      c->segment++;
      c->offset = 0;
    }
    bool whole = m->moved == m->bytes, used = c->taken == p->bytes;
    if (whole ? !used || !p->last : used && p->last)
      return disagree(rank, post, m);
    if (used) {
      c->taken = 0;
      atomic_store_explicit(&from->tail, ++tail, memory_order_release);
      *rings |= whole || tail == atomic_load_explicit(&from->head, memory_order_relaxed);
    }
  }
  return HEC_OK;
}

static hec_status pull_all(hec_rank *rank, mover *own, lane *l, bool *progress) {
  hec_post *post = l->post;
  for (int32_t i = l->first_receive; i < post->n_receives; i++) {
    hec_message *m = &post->receives[i];
    int64_t before = m->moved;
    if (before < m->bytes && own->receive_stop[m->peer] != own->pass)
      HEC_TRY(pull(rank, post, m, &l->receives[i], &own->ring[m->peer]));
    *progress |= m->moved > before;
    if (m->moved < m->bytes) {
      own->receive_stop[m->peer] = own->pass;
      if (post->add)
        break;
    } else if (i == l->first_receive) {
      l->first_receive++;
    }
  }
  return HEC_OK;
}

/* ---- Posts ---- */

static void ring_peers(hec_rank *rank, mover *own) {
  for (int32_t r = 0; r < rank->n_ranks; r++) {
    if (own->ring[r])
      hec_world_ring(rank->world, r);
    own->ring[r] = false;
  }
}

static void check_message(const hec_rank *rank, const hec_post *post, const hec_message *m) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < m->n_segments; i++) {
    HEC_ASSERT(m->segments[i].bytes >= 0 && (!post->add || m->segments[i].bytes % (int64_t)sizeof(float) == 0));
    bytes += m->segments[i].bytes;
  }
  HEC_ASSERT(m->peer >= 0 && m->peer < rank->n_ranks && m->peer != rank->rank && bytes == m->bytes && bytes >= 1);
}

/* Fresh cursors; O(segments). */
static void begin(const hec_rank *rank, lane *l, hec_post *post) {
  HEC_ASSERT(!l->post && (!post->add || post->chunk_bytes % (int64_t)sizeof(float) == 0));
  HEC_RESERVE(l->sends, l->sends_capacity, post->n_sends);
  HEC_RESERVE(l->receives, l->receives_capacity, post->n_receives);
  for (int32_t i = 0; i < post->n_sends; i++) {
    hec_message *m = &post->sends[i];
    check_message(rank, post, m);
    HEC_ASSERT(m->after < 0 ||
               (m->after < post->n_receives && post->chunk_bytes > 0 && post->receives[m->after].bytes == m->bytes));
    m->moved = 0;
    l->sends[i] = (cursor){0};
  }
  for (int32_t i = 0; i < post->n_receives; i++) {
    check_message(rank, post, &post->receives[i]);
    post->receives[i].moved = 0;
    l->receives[i] = (cursor){0};
  }
  l->first_send = l->first_receive = 0;
  l->post = post;
}

static hec_status move(hec_rank *rank, mover *own, lane *l) {
  bool progress;
  do {
    progress = false;
    own->pass++;
    HEC_TRY(pull_all(rank, own, l, &progress));
    progress |= push_all(rank, own, l);
    ring_peers(rank, own);
  } while (progress && l->post->chunk_bytes > 0);
  return HEC_OK;
}

hec_status hec_shm_start(hec_rank *rank, hec_post *post) {
  mover *own = rank->channels;
  lane *l = &own->lanes[post->lane];
  begin(rank, l, post);
  post->state = l;
  own->pass++;
  (void)push_all(rank, own, l);
  ring_peers(rank, own);
  return HEC_OK;
}

hec_status hec_shm_test(hec_rank *rank, hec_post *post, bool *done) {
  lane *l = post->state;
  HEC_ASSERT(l && l->post == post);
  HEC_TRY(hec_rank_check(rank));
  HEC_TRY(move(rank, rank->channels, l));
  *done = l->first_send == post->n_sends && l->first_receive == post->n_receives;
  if (*done) {
    l->post = NULL;
    post->state = NULL;
  }
  return HEC_OK;
}

hec_status hec_shm_wait(hec_rank *rank, int64_t until_ns) {
  return hec_world_sleep(rank, until_ns);
}

const hec_transport hec_transport_shm = {
    .name = "shm",
    .summary = "one copy through shared memory, as fast as the machine",
    .shares_memory = true,
    .adds = true,
    .prepare = hec_shm_prepare,
    .open = hec_shm_open,
    .start = hec_shm_start,
    .test = hec_shm_test,
    .wait = hec_shm_wait,
    .close = hec_shm_close,
};
