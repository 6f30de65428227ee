/* TCP over loopback at the pace of the cluster's links: a real network stack with real queues and wake-ups.
 *
 * Connections (tcp.h): one per ordered pair and channel. For every message, in the order of the post:
 *
 *     destination -> source   header, 8 bytes: the size it expects, sent when it posts
 *     source -> destination   the bytes, once the header is there
 *
 * So bytes move only when both ends have posted: else an early source would hide a socket buffer's worth. And two ends
 * that disagree about a size notice. A send is done when its last byte has left the socket's buffer, not when it went
 * in: its port is busy until then. The kernel carries on what is in the buffers (some MiB, as it likes) while the
 * ranks compute. Beyond that a message needs both ranks to look.
 *
 * Pace: SO_MAX_PACING_RATE of a message's socket is the min over the links of its route of bandwidth / flows. Here
 * flows is the number of messages of all ranks now crossing that link. It is counted in shared memory, and read
 * whenever the source looks, every PACE_MS while it waits. So every link is divided evenly among what crosses it. What
 * a flow cannot use because it is slower elsewhere is not given to others, so this is at most max-min. The kernel
 * paces whole packets of up to 64 KiB. The last one of a message arrives without having waited for its own time: that
 * much is early. With what a socket may send at once some 60 to 100 kB pass unpaced, so that small exchanges beat the
 * links. Latencies of the links are not imitated: loopback has its own (about 25 us). Nothing leaves faster than a core
 * copies (0.9 GB/s per pair where this was written), so faster links are not paced in effect. Without a cluster nothing
 * is.
 *
 * A connection that ends names its peer, unless a failure that explains it becomes known shortly after. */
#define _GNU_SOURCE /* ppoll, SO_MAX_PACING_RATE */
#include "runtime/base/arena.h"
#include "runtime/exec/stage.h"
#include "runtime/exec/transport/tcp.h"

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

enum { HEADER_BYTES = 8, N_VECTORS = 16, EXPLAIN_MS = 300, PACE_MS = 1 };

static const double rate_max = 4.29e9; /* SO_MAX_PACING_RATE is 32 bits wide; all ones: no limit */

typedef struct {
  int32_t segment;
  int64_t offset; /* into the segment */
  int64_t header; /* bytes of the header sent (receives); HEADER_BYTES: the source has it */
  int64_t handed; /* sends: bytes that the socket has */
  bool granted;   /* sends: the header has come */
} cursor;

typedef struct {
  hec_post *post; /* NULL: none in progress */
  cursor *sends, *receives;
  size_t sends_capacity, receives_capacity;
  int32_t first_send, first_receive; /* all before are done */
} lane;

/* The source's end of a connection. */
typedef struct {
  int64_t header; /* being read */
  int32_t got;
  uint32_t rate; /* as set; 0: never */
} source_end;

typedef struct {
  lane lanes[HEC_N_CHANNELS];
  hec_tcp_ends ends;
  source_end *sources;   /* [n_ranks * HEC_N_CHANNELS] */
  struct pollfd *events; /* [2 * n_ranks * HEC_N_CHANNELS] */
  uint64_t pass;
  uint64_t stop[HEC_RANKS_MAX]; /* == pass: an earlier message of this pair is not through */
} mover;

static size_t end_of(int32_t peer, const hec_post *post) {
  return (size_t)peer * HEC_N_CHANNELS + (size_t)post->lane;
}

static hec_status open_paced(hec_rank *rank) {
  size_t n = (size_t)rank->n_ranks * HEC_N_CHANNELS;
  mover *own = hec_malloc(1, sizeof *own);
  *own = (mover){.sources = hec_malloc(n, sizeof *own->sources), .events = hec_malloc(2 * n, sizeof *own->events)};
  memset(own->sources, 0, n * sizeof *own->sources);
  rank->channels = own;
  return hec_tcp_connect(rank, &own->ends);
}

static void close_paced(hec_rank *rank) {
  mover *own = rank->channels;
  if (!own)
    return;
  hec_tcp_close(rank, &own->ends);
  for (int32_t i = 0; i < HEC_N_CHANNELS; i++) {
    free(own->lanes[i].sends);
    free(own->lanes[i].receives);
  }
  free(own->sources);
  free(own->events);
  free(own);
  rank->channels = NULL;
}

/* ---- Pace ---- */

/* One message more or less (`change`) on the links from this rank to `peer`. */
static void count_flow(const hec_rank *rank, int32_t peer, int32_t change) {
  hec_tcp_shared *shared = rank->world->transport;
  const int32_t *links;
  for (int32_t i = 0, n = rank->cluster ? hec_cluster_route(rank->cluster, rank->rank, peer, &links) : 0; i < n; i++)
    (void)atomic_fetch_add_explicit(&shared->flows[links[i]], change, memory_order_relaxed);
}

static void pace(const hec_rank *rank, int32_t peer, int fd, source_end *end) {
  if (!rank->cluster)
    return;
  const hec_tcp_shared *shared = rank->world->transport;
  const int32_t *links;
  double rate = rate_max;
  for (int32_t i = 0, n = hec_cluster_route(rank->cluster, rank->rank, peer, &links); i < n; i++) {
    int32_t flows = atomic_load_explicit(&shared->flows[links[i]], memory_order_relaxed);
    double share = rank->cluster->links[links[i]].bandwidth / (flows > 1 ? flows : 1);
    rate = share < rate ? share : rate;
  }
  uint32_t wanted = rate < rate_max ? (rate > 1 ? (uint32_t)rate : 1) : UINT32_MAX;
  if (wanted != end->rate)
    (void)setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &wanted, sizeof wanted);
  end->rate = wanted;
}

/* ---- Bytes ---- */

/* A connection ended. The peer may have died or failed, which others are about to tell: then that is the failure. */
static hec_status cut(hec_rank *rank, int32_t peer, int error) {
  for (int ms = 0; ms < EXPLAIN_MS; ms++) {
    HEC_TRY(hec_rank_check(rank));
    (void)poll(NULL, 0, 1);
  }
  return hec_rank_fail(rank, "the connection with rank %d was cut (%s)", peer,
                       error ? strerror(error) : "closed at the other end");
}

static bool would_block(int error) {
  return error == EAGAIN || error == EINTR || error == ENOBUFS;
}

/* The next `bytes` of a message from its cursor on, as far as the vectors go. */
static struct msghdr vectors_at(const hec_message *m, const cursor *c, int64_t bytes, struct iovec *vectors) {
  size_t n = 0;
  int64_t offset = c->offset;
  for (int32_t i = c->segment; i < m->n_segments && bytes > 0 && n < N_VECTORS; i++, offset = 0) {
    int64_t length = m->segments[i].bytes - offset;
    length = length < bytes ? length : bytes;
    if (length > 0)
      vectors[n++] = (struct iovec){(char *)m->segments[i].at + offset, (size_t)length};
    bytes -= length;
  }
  return (struct msghdr){.msg_iov = vectors, .msg_iovlen = n};
}

static void advance(const hec_message *m, cursor *c, int64_t bytes) {
  for (c->offset += bytes; c->segment < m->n_segments && c->offset >= m->segments[c->segment].bytes; c->segment++)
    c->offset -= m->segments[c->segment].bytes;
}

/* Sends what is left of the header of a receive. */
static hec_status send_header(hec_rank *rank, int fd, const hec_message *m, cursor *c) {
  if (c->header == HEADER_BYTES)
    return HEC_OK;
  ssize_t n = send(fd, (const char *)&m->bytes + c->header, (size_t)(HEADER_BYTES - c->header), MSG_NOSIGNAL);
  if (n < 0)
    return would_block(errno) ? HEC_OK : cut(rank, m->peer, errno);
  c->header += n;
  return HEC_OK;
}

/* Reads until nothing is there or the message is whole; *progress is set when bytes came. */
static hec_status receive(hec_rank *rank, int fd, hec_message *m, cursor *c, bool *progress) {
  while (m->moved < m->bytes) {
    struct iovec vectors[N_VECTORS];
    struct msghdr header = vectors_at(m, c, m->bytes - m->moved, vectors);
    ssize_t n = recvmsg(fd, &header, 0);
    if (n < 0 && would_block(errno))
      return HEC_OK;
    if (n <= 0)
      return cut(rank, m->peer, n < 0 ? errno : 0);
    advance(m, c, n);
    m->moved += n;
    *progress = true;
  }
  return HEC_OK;
}

/* Reads the destination's header. */
static hec_status read_grant(hec_rank *rank, int fd, const hec_message *m, cursor *c, source_end *end) {
  ssize_t n = recv(fd, (char *)&end->header + end->got, (size_t)(HEADER_BYTES - end->got), 0);
  if (n < 0 && would_block(errno))
    return HEC_OK;
  if (n <= 0)
    return cut(rank, m->peer, n < 0 ? errno : 0);
  end->got += (int32_t)n;
  if (end->got < HEADER_BYTES)
    return HEC_OK;
  end->got = 0;
  if (end->header != m->bytes)
    return hec_rank_fail(rank, "rank %d expects a message of another size (%lld bytes) than the %lld bytes sent",
                         m->peer, (long long)end->header, (long long)m->bytes);
  c->granted = true;
  count_flow(rank, m->peer, 1);
  return HEC_OK;
}

/* POLLOUT when nothing is unsent (true), or when there is room (false). */
static void wake_when_drained(int fd, bool drained) {
  unsigned max = drained ? 1 : UINT_MAX;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &max, sizeof max);
}

static bool is_drained(int fd) {
  int unsent = 0;
  return ioctl(fd, SIOCOUTQNSD, &unsent) != 0 || unsent == 0;
}

static hec_status transmit(hec_rank *rank, mover *own, const hec_post *post, hec_message *m, cursor *c) {
  size_t at = end_of(m->peer, post);
  int fd = own->ends.out[at];
  if (!c->granted)
    HEC_TRY(read_grant(rank, fd, m, c, &own->sources[at]));
  if (!c->granted)
    return HEC_OK;
  pace(rank, m->peer, fd, &own->sources[at]);
  for (int64_t ready = hec_post_ready(post, m); c->handed < ready;) {
    struct iovec vectors[N_VECTORS];
    struct msghdr header = vectors_at(m, c, ready - c->handed, vectors);
    ssize_t n = sendmsg(fd, &header, MSG_NOSIGNAL);
    if (n < 0)
      return would_block(errno) ? HEC_OK : cut(rank, m->peer, errno);
    advance(m, c, n);
    c->handed += n;
    if (c->handed == m->bytes)
      wake_when_drained(fd, true);
  }
  if (c->handed < m->bytes || !is_drained(fd))
    return HEC_OK;
  m->moved = m->bytes;
  wake_when_drained(fd, false);
  count_flow(rank, m->peer, -1);
  return HEC_OK;
}

/* ---- Posts ---- */

static hec_status receive_all(hec_rank *rank, mover *own, lane *l, bool *progress) {
  hec_post *post = l->post;
  own->pass++;
  for (int32_t i = l->first_receive; i < post->n_receives; i++) {
    hec_message *m = &post->receives[i];
    cursor *c = &l->receives[i];
    int fd = own->ends.in[end_of(m->peer, post)];
    bool first = own->stop[m->peer] != own->pass;
    if (first && m->moved < m->bytes)
      HEC_TRY(receive(rank, fd, m, c, progress));
    if (m->moved < m->bytes)
      own->stop[m->peer] = own->pass;
    else if (i == l->first_receive)
      l->first_receive++;
  }
  return HEC_OK;
}

/* Headers run ahead of the bytes, in the same order. */
static hec_status send_headers(hec_rank *rank, mover *own, lane *l) {
  hec_post *post = l->post;
  own->pass++;
  for (int32_t i = l->first_receive; i < post->n_receives; i++) {
    hec_message *m = &post->receives[i];
    if (own->stop[m->peer] != own->pass)
      HEC_TRY(send_header(rank, own->ends.in[end_of(m->peer, post)], m, &l->receives[i]));
    if (l->receives[i].header < HEADER_BYTES)
      own->stop[m->peer] = own->pass;
  }
  return HEC_OK;
}

static hec_status send_all(hec_rank *rank, mover *own, lane *l) {
  hec_post *post = l->post;
  own->pass++;
  for (int32_t i = l->first_send; i < post->n_sends; i++) {
    hec_message *m = &post->sends[i];
    if (m->moved < m->bytes && own->stop[m->peer] != own->pass)
      HEC_TRY(transmit(rank, own, post, m, &l->sends[i]));
    if (m->moved < m->bytes)
      own->stop[m->peer] = own->pass;
    else if (i == l->first_send)
      l->first_send++;
  }
  return HEC_OK;
}

static hec_status start_paced(hec_rank *rank, hec_post *post) {
  mover *own = rank->channels;
  lane *l = &own->lanes[post->lane];
  HEC_ASSERT(!l->post && !post->add);
  HEC_RESERVE(l->sends, l->sends_capacity, post->n_sends);
  HEC_RESERVE(l->receives, l->receives_capacity, post->n_receives);
  for (int32_t i = 0; i < post->n_sends; i++) {
    HEC_ASSERT(post->sends[i].after < 0 || post->chunk_bytes > 0);
    post->sends[i].moved = 0;
    l->sends[i] = (cursor){0};
  }
  for (int32_t i = 0; i < post->n_receives; i++) {
    post->receives[i].moved = 0;
    l->receives[i] = (cursor){0};
  }
  l->first_send = l->first_receive = 0;
  l->post = post;
  post->state = l;
  return send_headers(rank, own, l);
}

static hec_status test_paced(hec_rank *rank, hec_post *post, bool *done) {
  mover *own = rank->channels;
  lane *l = post->state;
  HEC_ASSERT(l && l->post == post);
  HEC_TRY(hec_rank_check(rank));
  HEC_TRY(send_headers(rank, own, l));
  for (bool progress = true; progress;) {
    progress = false;
    HEC_TRY(receive_all(rank, own, l, &progress));
    HEC_TRY(send_all(rank, own, l));
    progress &= post->chunk_bytes > 0; /* what came may be forwarded */
  }
  *done = l->first_send == post->n_sends && l->first_receive == post->n_receives;
  if (*done) {
    l->post = NULL;
    post->state = NULL;
  }
  return HEC_OK;
}

/* ---- Waiting ---- */

/* What the lane waits for: the first unfinished message of each pair. Returns the number of events now; *sends: bytes are on
 * their way, whose pace may have to change. */
static nfds_t add_events(mover *own, const lane *l, nfds_t n, bool *sends) {
  const hec_post *post = l->post;
  own->pass++;
  for (int32_t i = l->first_receive; i < post->n_receives; i++) {
    const hec_message *m = &post->receives[i];
    if (m->moved == m->bytes || own->stop[m->peer] == own->pass)
      continue;
    own->stop[m->peer] = own->pass;
    bool headers = l->receives[i].header < HEADER_BYTES;
    own->events[n++] = (struct pollfd){.fd = own->ends.in[end_of(m->peer, post)],
                                       .events = (short)(headers ? POLLIN | POLLOUT : POLLIN)};
  }
  own->pass++;
  for (int32_t i = l->first_send; i < post->n_sends; i++) {
    const hec_message *m = &post->sends[i];
    if (m->moved == m->bytes || own->stop[m->peer] == own->pass)
      continue;
    own->stop[m->peer] = own->pass;
    *sends = *sends || l->sends[i].granted;
    int64_t ready = hec_post_ready(post, m);
    bool waits_for_bytes = l->sends[i].granted && l->sends[i].handed == ready && ready < m->bytes;
    if (!waits_for_bytes)
      own->events[n++] = (struct pollfd){.fd = own->ends.out[end_of(m->peer, post)],
                                         .events = (short)(l->sends[i].granted ? POLLOUT : POLLIN)};
  }
  return n;
}

static hec_status wait_paced(hec_rank *rank, int64_t until_ns) {
  mover *own = rank->channels;
  nfds_t n = 0;
  bool sends = false;
  for (int32_t i = 0; i < HEC_N_CHANNELS; i++)
    if (own->lanes[i].post)
      n = add_events(own, &own->lanes[i], n, &sends);
  if (sends && rank->cluster) { /* spurious, for the next look at the pace */
    int64_t look_ns = hec_clock_ns() + (int64_t)PACE_MS * 1000000;
    until_ns = look_ns < until_ns ? look_ns : until_ns;
  }
  for (;;) {
    HEC_TRY(hec_rank_check(rank));
    int64_t now_ns = hec_clock_ns(), left_ns = until_ns - now_ns, slice_ns = (int64_t)HEC_SLICE_MS * 1000000;
    hec_world_awake(rank, now_ns);
    if (left_ns <= 0)
      return HEC_OK;
    struct timespec sleep = {.tv_nsec = (long)(left_ns < slice_ns ? left_ns : slice_ns)};
    if (ppoll(own->events, n, &sleep, NULL) > 0)
      return HEC_OK;
  }
}

const hec_transport hec_transport_paced = {
    .name = "paced",
    .summary = "TCP over loopback at the rates of the cluster's links, without their latency; the first 60 to 100 kB "
               "pass unpaced",
    .mind = "paced: links without latency, and some 60 to 100 kB pass unpaced: small exchanges beat the links imitated",
    .law = "alpha_beta",
    .prepare = hec_tcp_prepare,
    .open = open_paced,
    .start = start_paced,
    .test = test_paced,
    .wait = wait_paced,
    .close = close_paced,
};
