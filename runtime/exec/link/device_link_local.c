/* Ranks are threads of one process and read each other's devices. An exchange is copies (or additions) by the
 * receiver, straight out of the sender's memory. Events of the two processors order them. Only hosts wait for hosts,
 * in three short handshakes of each pair (source, destination) with something to send on this lane:
 *
 *     source                                        destination
 *     1 mark `ready`, offer the post        --->    wait for the offers of all sources; after(ready); copy
 *     3 after(taken): may be written over   <---  2 mark `taken`, show it
 *       close                               --->  4 wait until all sources have closed
 *
 * The third is there because an event ends with a restart of its processor. Until the source has used `taken`, the
 * destination must not get that far. Then nothing of the exchange is looked at any more, so the post may go.
 *
 * A chained post forwards whole messages, not chunks: a send with after >= 0 is ready when that receive is on the stream.
 * Each pass takes the receives whose sends are ready, in one list of copies, and marks one event for all that forward
 * them. Devices then work on a message in chains of copies; only host threads see the order in which they came.
 *
 * It cannot deadlock. Let exchange x be the one of smallest id that some rank has not left. All its ranks are in it or
 * will come, since they wait for nothing else. Each offers before it waits, so every wait for offers ends. A send is
 * ready once the receive it forwards is on the stream: by induction over hops all are. Hence every destination shows
 * `taken`, every source closes, and all leave. On the devices an event is only ever waited for after it was marked.
 *
 * Failure: a rank that leaves early must not take away what another just looks at (its post, its events). Who looks
 * says so first (`looks`), then asks whether the other is gone. Who leaves looks at nothing any more, says that it is
 * gone (`gone`), then waits until the others look no more (Dekker). They soon do: their waits end with the failure.
 *
 * O(ranks + messages + segments) per exchange, times the passes where it is chained; ranks^2 * lanes pairs. */
#include "runtime/base/arena.h"
#include "runtime/exec/launch/world.h"
#include "runtime/exec/link/device_link.h"
#include "runtime/exec/stage.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

typedef _Atomic(const hec_event *) event_cell;

enum { SOURCE, DESTINATION };

/* What a source shows a destination on a lane, and back. Counts are of exchanges in which there is something to send. */
typedef struct {
  alignas(64) _Atomic uint64_t offered; /* by the source, with post and ready */
  _Atomic uint64_t taken;               /* by the destination, with done */
  _Atomic uint64_t closed;              /* by the source */
  atomic_bool looks[2], gone[2];        /* by SOURCE, by DESTINATION */
  const hec_post *post;
  event_cell *ready;     /* [n_sends] of the post; NULL: not yet */
  const hec_event *done; /* what was sent may be written over */
} pair;

/* A receive: the send it belongs to. */
typedef struct {
  const hec_message *from;
  event_cell *ready;
  bool taken;
} match;

/* The ranks that some messages go to or come from, each once. */
typedef struct {
  int32_t n, rank[HEC_RANKS_MAX];
} peers;

typedef struct {
  peers sources, destinations;                /* of the exchange in progress */
  int32_t next[HEC_RANKS_MAX];                /* next send of a source that is for this rank */
  const hec_event *waited_for[HEC_RANKS_MAX]; /* the event of a source that the stream waits for already */
  hec_piece *pieces;
  match *matches;    /* [n_receives] */
  event_cell *ready; /* [n_sends] */
  size_t pieces_capacity, matches_capacity, ready_capacity;
} local;

static pair *pair_of(const hec_rank *rank, int32_t source, int32_t destination, int32_t lane) {
  pair *all = rank->world->link;
  return all + ((size_t)source * (size_t)rank->n_ranks + (size_t)destination) * HEC_N_LANES + (size_t)lane;
}
static pair *to_peer(const hec_rank *rank, const hec_post *post, int32_t destination) {
  return pair_of(rank, rank->rank, destination, post->lane);
}
static pair *from_peer(const hec_rank *rank, const hec_post *post, int32_t source) {
  return pair_of(rank, source, rank->rank, post->lane);
}

static uint64_t count_of(const _Atomic uint64_t *count) {
  return atomic_load_explicit(count, memory_order_acquire);
}
static void count_up(_Atomic uint64_t *count) {
  atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_release);
}

static void list_peers(const hec_rank *rank, const hec_message *list, int32_t n, peers *out) {
  bool seen[HEC_RANKS_MAX];
  memset(seen, 0, (size_t)rank->n_ranks * sizeof *seen);
  out->n = 0;
  for (int32_t i = 0; i < n; i++) {
    if (!seen[list[i].peer])
      out->rank[out->n++] = list[i].peer;
    seen[list[i].peer] = true;
  }
}

/* ---- Open and close ---- */

static hec_status prepare(const hec_launch_options *options, hec_world *world) {
  size_t n = (size_t)options->n_ranks;
  if (!options->threads)
    return hec_fail(HEC_BAD_INPUT, "link local: its ranks are threads of one process");
  return hec_world_share(world, n * n * HEC_N_LANES * sizeof(pair), &world->link);
}

static hec_status open(hec_rank *rank) {
  HEC_ASSERT(rank->processor->streams && rank->world->link);
  local *own = hec_malloc(1, sizeof *own);
  *own = (local){0};
  rank->link_own = own;
  return HEC_OK;
}

static void close(hec_rank *rank, bool failed) {
  local *own = rank->link_own;
  (void)failed; /* what is on the streams ends by itself */
  if (!own)
    return;
  free(own->pieces);
  free(own->matches);
  free(own->ready);
  free(own);
  rank->link_own = NULL;
}

/* ---- Waiting for hosts ---- */

/* How long to wait yet. */
typedef struct {
  int64_t deadline_ns;
  uint32_t turns;
} patience;

static patience full_patience(const hec_rank *rank) {
  return (patience){hec_clock_ns() + rank->limit_ns, hec_rank_turns(rank)};
}

/* One sleep. In virtual time the others compute one by one: a turn that has ended is progress. */
static hec_status sleep_for(hec_rank *rank, int32_t peer, patience *left) {
  hec_rank_waits_for(rank, peer);
  HEC_TRY(hec_rank_check(rank));
  if (hec_rank_turns(rank) != left->turns)
    *left = full_patience(rank);
  if (hec_clock_ns() >= left->deadline_ns)
    return hec_rank_late(rank, peer, "an exchange between devices");
  return hec_world_sleep(rank, left->deadline_ns);
}

/* Until `peer` has brought the count to n. */
static hec_status wait_for(hec_rank *rank, int32_t peer, const _Atomic uint64_t *count, uint64_t n) {
  patience left = full_patience(rank);
  while (count_of(count) < n)
    HEC_TRY(sleep_for(rank, peer, &left));
  return HEC_OK;
}

/* Before a look at what the other end shows. */
static hec_status look(hec_rank *rank, pair *p, int me, int32_t peer) {
  atomic_store(&p->looks[me], true);
  if (!atomic_load(&p->gone[1 - me]))
    return HEC_OK;
  atomic_store(&p->looks[me], false);
  return hec_rank_fail(rank, "rank %d has left the exchange", peer); /* it failed, and said so first */
}

static void leave(pair *p, int me) {
  atomic_store(&p->gone[me], true);
  while (atomic_load(&p->looks[1 - me]))
    (void)sched_yield();
}

/* After a failure: this rank looks at nothing any more, then nobody at what it showed. */
static void leave_all(hec_rank *rank, const local *own, const hec_post *post) {
  const peers *to = &own->destinations, *from = &own->sources;
  for (int32_t i = 0; i < to->n; i++)
    atomic_store(&to_peer(rank, post, to->rank[i])->looks[SOURCE], false);
  for (int32_t i = 0; i < from->n; i++)
    atomic_store(&from_peer(rank, post, from->rank[i])->looks[DESTINATION], false);
  for (int32_t i = 0; i < to->n; i++)
    leave(to_peer(rank, post, to->rank[i]), SOURCE);
  for (int32_t i = 0; i < from->n; i++)
    leave(from_peer(rank, post, from->rank[i]), DESTINATION);
}

/* ---- Sending ---- */

static void check_message(const hec_rank *rank, const hec_message *m) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < m->n_segments; i++) {
    HEC_ASSERT(m->segments[i].bytes >= 0 && m->segments[i].bytes % (int64_t)sizeof(float) == 0);
    bytes += m->segments[i].bytes;
  }
  HEC_ASSERT(m->peer >= 0 && m->peer < rank->n_ranks && m->peer != rank->rank && bytes == m->bytes && bytes >= 1);
}

static void check_post(const hec_rank *rank, const hec_post *post) {
  HEC_ASSERT(post->lane >= 0 && post->lane < HEC_N_LANES);
  for (int32_t i = 0; i < post->n_sends; i++) {
    const hec_message *m = &post->sends[i];
    check_message(rank, m);
    HEC_ASSERT(m->after < 0 || (m->after < post->n_receives && post->receives[m->after].bytes == m->bytes));
  }
  for (int32_t i = 0; i < post->n_receives; i++)
    check_message(rank, &post->receives[i]);
}

static void offer(hec_rank *rank, local *own, const hec_post *post) {
  HEC_RESERVE(own->ready, own->ready_capacity, post->n_sends);
  const hec_event *now = post->n_sends > 0 ? rank->processor->streams->mark(rank->processor) : NULL;
  for (int32_t i = 0; i < post->n_sends; i++)
    atomic_init(&own->ready[i], post->sends[i].after < 0 ? now : NULL);
  for (int32_t i = 0; i < own->destinations.n; i++) {
    pair *p = to_peer(rank, post, own->destinations.rank[i]);
    p->post = post;
    p->ready = own->ready;
    count_up(&p->offered);
    hec_world_ring(rank->world, own->destinations.rank[i]);
  }
}

/* What was sent may be written over once all destinations have taken it. */
static hec_status wait_until_taken(hec_rank *rank, const local *own, const hec_post *post) {
  for (int32_t i = 0; i < own->destinations.n; i++) {
    int32_t peer = own->destinations.rank[i];
    pair *p = to_peer(rank, post, peer);
    HEC_TRY(wait_for(rank, peer, &p->taken, count_of(&p->offered)));
    HEC_TRY(look(rank, p, SOURCE, peer));
    rank->processor->streams->after(rank->processor, p->done);
    atomic_store(&p->looks[SOURCE], false);
    count_up(&p->closed);
    hec_world_ring(rank->world, peer);
  }
  return HEC_OK;
}

/* ---- Receiving ---- */

static hec_status disagree(hec_rank *rank, const hec_post *post, const hec_message *m) {
  return hec_rank_fail(rank, "rank %d sends a message of another size than the %lld bytes expected on channel %d",
                       m->peer, (long long)m->bytes, post->lane);
}

static hec_status check_sizes(hec_rank *rank, const hec_post *post, const hec_message *m, const hec_message *from) {
  if (from->bytes != m->bytes)
    return disagree(rank, post, m);
  bool same = from->n_segments == m->n_segments;
  for (int32_t i = 0; same && i < m->n_segments; i++)
    same = from->segments[i].bytes == m->segments[i].bytes;
  return same ? HEC_OK
              : hec_rank_fail(rank,
                              "rank %d sends a message of %lld bytes in segments of other sizes than expected on "
                              "channel %d",
                              m->peer, (long long)m->bytes, post->lane);
}

/* The next send of the peer's post to this rank, NULL: there is none. */
static const hec_message *next_send(const hec_rank *rank, local *own, int32_t peer, const hec_post *of) {
  int32_t *i = &own->next[peer];
  while (*i < of->n_sends && of->sends[*i].peer != rank->rank)
    ++*i;
  return *i < of->n_sends ? &of->sends[(*i)++] : NULL;
}

/* Until all sources have come; what they show may then be looked at until show_taken. */
static hec_status wait_for_offers(hec_rank *rank, local *own, const hec_post *post) {
  for (int32_t i = 0; i < own->sources.n; i++) {
    int32_t peer = own->sources.rank[i];
    pair *p = from_peer(rank, post, peer);
    HEC_TRY(wait_for(rank, peer, &p->offered, count_of(&p->taken) + 1));
    HEC_TRY(look(rank, p, DESTINATION, peer));
    own->next[peer] = 0;
    own->waited_for[peer] = NULL;
  }
  return HEC_OK;
}

/* Finds the send of every receive: those of a pair follow each other in the order of the posts. */
static hec_status match_all(hec_rank *rank, local *own, const hec_post *post) {
  HEC_RESERVE(own->matches, own->matches_capacity, post->n_receives);
  for (int32_t i = 0; i < post->n_receives; i++) {
    const hec_message *m = &post->receives[i];
    const pair *p = from_peer(rank, post, m->peer);
    const hec_message *from = next_send(rank, own, m->peer, p->post);
    if (!from)
      return disagree(rank, post, m);
    HEC_TRY(check_sizes(rank, post, m, from));
    own->matches[i] = (match){from, &p->ready[from - p->post->sends], false};
  }
  for (int32_t i = 0; i < own->sources.n; i++) {
    int32_t peer = own->sources.rank[i];
    if (next_send(rank, own, peer, from_peer(rank, post, peer)->post))
      return hec_rank_fail(rank, "rank %d sends more messages than the expected ones on channel %d", peer, post->lane);
  }
  return HEC_OK;
}

static int32_t add_pieces(local *own, int32_t n, const hec_message *m, const hec_message *from) {
  HEC_RESERVE(own->pieces, own->pieces_capacity, n + m->n_segments);
  for (int32_t i = 0; i < m->n_segments; i++)
    if (m->segments[i].bytes > 0)
      own->pieces[n++] =
          (hec_piece){m->segments[i].at, from->segments[i].at, m->segments[i].bytes / (int64_t)sizeof(float)};
  return n;
}

/* The stream waits for an event of a source, once. */
static void after(hec_rank *rank, local *own, int32_t source, const hec_event *event) {
  if (own->waited_for[source] != event)
    rank->processor->streams->after(rank->processor, event);
  own->waited_for[source] = event;
}

/* Sends that forward what was just taken. */
static void offer_forwarded(hec_rank *rank, const local *own, const hec_post *post) {
  const hec_event *now = NULL;
  for (int32_t i = 0; i < post->n_sends; i++) {
    int32_t forwards = post->sends[i].after;
    if (forwards < 0 || !own->matches[forwards].taken ||
        atomic_load_explicit(&own->ready[i], memory_order_relaxed) != NULL)
      continue;
    now = now ? now : rank->processor->streams->mark(rank->processor);
    atomic_store_explicit(&own->ready[i], now, memory_order_release);
    hec_world_ring(rank->world, post->sends[i].peer);
  }
}

/* What is ready now, noted as taken, and the stream waits for it; returns how many receives that are. Additions keep
 * their order. */
static int32_t collect(hec_rank *rank, local *own, const hec_post *post, int32_t *n_pieces) {
  int32_t n_taken = 0;
  *n_pieces = 0;
  for (int32_t i = 0; i < post->n_receives; i++) {
    match *m = &own->matches[i];
    const hec_event *event = m->taken ? NULL : atomic_load_explicit(m->ready, memory_order_acquire);
    if (!event && !m->taken && post->add)
      break;
    if (!event)
      continue;
    after(rank, own, post->receives[i].peer, event);
    *n_pieces = add_pieces(own, *n_pieces, &post->receives[i], m->from);
    m->taken = true;
    n_taken++;
  }
  return n_taken;
}

/* Copies or adds what was collected. In virtual time in a turn, which waits for the device but for no host: events of
 * others were reached when their turns ended. */
static hec_status move(hec_rank *rank, const local *own, const hec_post *post, int32_t n_pieces) {
  hec_processor *on = rank->processor;
  if (rank->serial)
    HEC_TRY(hec_rank_take_turn(rank));
  (post->add ? on->math->add : on->math->copy)(on, own->pieces, n_pieces);
  if (!rank->serial)
    return HEC_OK;
  hec_status status = hec_device_wait(rank, "the device");
  hec_rank_end_turn(rank);
  return status;
}

static int32_t first_missing(const local *own, const hec_post *post) {
  int32_t i = 0;
  while (own->matches[i].taken)
    i++;
  return post->receives[i].peer;
}

static hec_status take_all(hec_rank *rank, local *own, const hec_post *post) {
  patience patient = full_patience(rank);
  for (int32_t left = post->n_receives; left > 0;) {
    int32_t n_pieces, n = collect(rank, own, post, &n_pieces);
    if (n == 0) {
      HEC_TRY(sleep_for(rank, first_missing(own, post), &patient));
      continue;
    }
    HEC_TRY(move(rank, own, post, n_pieces));
    offer_forwarded(rank, own, post);
    patient = full_patience(rank);
    left -= n;
  }
  return HEC_OK;
}

static void show_taken(hec_rank *rank, const local *own, const hec_post *post) {
  const hec_event *done = own->sources.n > 0 ? rank->processor->streams->mark(rank->processor) : NULL;
  for (int32_t i = 0; i < own->sources.n; i++) {
    pair *p = from_peer(rank, post, own->sources.rank[i]);
    atomic_store(&p->looks[DESTINATION], false);
    p->done = done;
    count_up(&p->taken);
    hec_world_ring(rank->world, own->sources.rank[i]);
  }
}

static hec_status wait_until_closed(hec_rank *rank, const local *own, const hec_post *post) {
  for (int32_t i = 0; i < own->sources.n; i++) {
    pair *p = from_peer(rank, post, own->sources.rank[i]);
    HEC_TRY(wait_for(rank, own->sources.rank[i], &p->closed, count_of(&p->taken)));
  }
  return HEC_OK;
}

/* ---- Both ---- */

static hec_status run(hec_rank *rank, local *own, const hec_post *post) {
  offer(rank, own, post);
  HEC_TRY(wait_for_offers(rank, own, post));
  HEC_TRY(match_all(rank, own, post));
  HEC_TRY(take_all(rank, own, post));
  show_taken(rank, own, post);
  HEC_TRY(wait_until_taken(rank, own, post));
  return wait_until_closed(rank, own, post);
}

static hec_status exchange(hec_rank *rank, hec_post *post) {
  local *own = rank->link_own;
  check_post(rank, post);
  if (hec_post_is_empty(post))
    return HEC_OK;
  HEC_TRY(hec_rank_check(rank));
  list_peers(rank, post->sends, post->n_sends, &own->destinations);
  list_peers(rank, post->receives, post->n_receives, &own->sources);
  hec_status status = run(rank, own, post);
  hec_rank_waits_for(rank, -1);
  if (status != HEC_OK) {
    leave_all(rank, own, post);
    return status;
  }
  hec_post_set_moved(post);
  return HEC_OK;
}

const hec_device_link hec_device_link_local = {
    .name = "local",
    .summary = "ranks of one process read each other's devices, or share one",
    .adds = true,
    .prepare = prepare,
    .open = open,
    .exchange = exchange,
    .allreduce = NULL,
    .check = NULL,
    .close = close,
};
