/* Making the connections of tcp.h. Every rank listens on a port of its own on 127.0.0.1 and publishes it. It connects
 * to every other rank once per channel and says who it is:
 *
 *     hello   nonce (8 bytes) | source rank (4) | channel (4)         in the byte order of the machine
 *
 * Then it accepts as many. Connecting needs no accept at the other end (the kernel completes it while the backlog has
 * room), so nobody waits in a circle. A rank holds only its own ends, so the death of a peer is an end of file. */
#define _GNU_SOURCE /* TCP_CONGESTION, accept4 */
#include "runtime/exec/transport/tcp.h"

#include "runtime/base/arena.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct {
  uint64_t nonce;
  int32_t source, channel;
} hello;

enum { OTHER_FILES = 64 };

/* ---- Before the ranks ---- */

static hec_status raise_file_limit(const hec_launch_options *options) {
  rlim_t n = (rlim_t)options->n_ranks,
         need = 2 * (n - 1) * HEC_N_CHANNELS * (options->threads ? n : 1) + n + OTHER_FILES;
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
    return HEC_OK;
  if (limit.rlim_max < need)
    return hec_fail(HEC_FAILED, "%d ranks over TCP need %llu open files each process, the limit is %llu (ulimit -Hn)",
                    options->n_ranks, (unsigned long long)need, (unsigned long long)limit.rlim_max);
  limit.rlim_cur = need;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
    return hec_fail(HEC_FAILED, "cannot raise the limit on open files to %llu: %s", (unsigned long long)need,
                    strerror(errno));
  return HEC_OK;
}

hec_status hec_tcp_prepare(const hec_launch_options *options, hec_world *world) {
  HEC_TRY(raise_file_limit(options));
  size_t n_links = options->cluster ? (size_t)options->cluster->n_links : 0;
  HEC_TRY(hec_world_share(world, sizeof(hec_tcp_shared) + n_links * sizeof(int32_t), &world->transport));
  hec_tcp_shared *shared = world->transport;
  if (getrandom(&shared->nonce, sizeof shared->nonce, 0) != (ssize_t)sizeof shared->nonce)
    return hec_fail(HEC_FAILED, "no random numbers from the system: %s", strerror(errno));
  return HEC_OK;
}

/* ---- Sockets ---- */

/* Before connecting or listening (accepted sockets inherit). Small messages leave at once. Buffers are the kernel's to size
 * (setting them would also stop their growth): they carry the bytes on while the ranks compute. Cubic paces as told,
 * whatever the default of the machine; where it is not allowed, the default stays. */
static void set_up(int socket_fd) {
  int one = 1;
  (void)setsockopt(socket_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  (void)setsockopt(socket_fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", sizeof "cubic" - 1);
}

static struct sockaddr_in loopback(uint32_t port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

static hec_status listen_on(hec_rank *rank, int *listener) {
  struct sockaddr_in address = loopback(0);
  socklen_t bytes = sizeof address;
  *listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (*listener >= 0)
    set_up(*listener);
  if (*listener < 0 || bind(*listener, (struct sockaddr *)&address, bytes) != 0 ||
      listen(*listener, rank->n_ranks * HEC_N_CHANNELS) != 0 ||
      getsockname(*listener, (struct sockaddr *)&address, &bytes) != 0)
    return hec_rank_fail(rank, "cannot listen on 127.0.0.1: %s", strerror(errno));
  hec_tcp_shared *shared = rank->world->transport;
  atomic_store(&shared->port[rank->rank], ntohs(address.sin_port));
  for (int32_t r = 0; r < rank->n_ranks; r++)
    hec_world_ring(rank->world, r);
  return HEC_OK;
}

static hec_status wait_for_port(hec_rank *rank, int32_t peer, int64_t deadline_ns, uint32_t *port) {
  hec_tcp_shared *shared = rank->world->transport;
  hec_rank_waits_for(rank, peer);
  while ((*port = atomic_load(&shared->port[peer])) == 0) {
    if (hec_clock_ns() >= deadline_ns)
      return hec_rank_late(rank, peer, "connecting");
    HEC_TRY(hec_world_sleep(rank, deadline_ns));
  }
  hec_rank_waits_for(rank, -1);
  return HEC_OK;
}

/* Byte by byte, because the kernel does not pace the first ten segments of a connection: these are they. */
static bool say_hello(const hec_rank *rank, int fd, int32_t channel) {
  const hec_tcp_shared *shared = rank->world->transport;
  hello own = {.nonce = shared->nonce, .source = rank->rank, .channel = channel};
  for (size_t i = 0; i < sizeof own; i++)
    if (send(fd, (const char *)&own + i, 1, MSG_NOSIGNAL) != 1)
      return false;
  return true;
}

static hec_status connect_to(hec_rank *rank, int32_t peer, uint32_t port, int *ends) {
  struct sockaddr_in address = loopback(port);
  for (int32_t c = 0; c < HEC_N_CHANNELS; c++) {
    int fd = ends[c] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
      set_up(fd);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0 || !say_hello(rank, fd, c) ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
      return hec_rank_fail(rank, "cannot connect to rank %d: %s", peer, strerror(errno));
  }
  return HEC_OK;
}

/* Reads who it is; -1 for a stranger (also one who says nothing for a second). Else the place in hec_tcp_ends.in. */
static int32_t read_hello(const hec_rank *rank, int fd) {
  const hec_tcp_shared *shared = rank->world->transport;
  struct timeval second = {.tv_sec = 1};
  hello theirs;
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
  if (recv(fd, &theirs, sizeof theirs, MSG_WAITALL) != (ssize_t)sizeof theirs || theirs.nonce != shared->nonce ||
      theirs.source < 0 || theirs.source >= rank->n_ranks || theirs.channel < 0 || theirs.channel >= HEC_N_CHANNELS)
    return -1;
  return theirs.source * HEC_N_CHANNELS + theirs.channel;
}

static int32_t first_missing(const hec_rank *rank, const int *in) {
  for (int32_t i = 0; i < rank->n_ranks * HEC_N_CHANNELS; i++)
    if (in[i] < 0 && i / HEC_N_CHANNELS != rank->rank)
      return i / HEC_N_CHANNELS;
  return -1;
}

static hec_status accept_one(hec_rank *rank, int listener, int *in) {
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0)
    return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED
               ? HEC_OK
               : hec_rank_fail(rank, "cannot accept a connection: %s", strerror(errno));
  int32_t place = read_hello(rank, fd);
  if (place < 0 || in[place] >= 0) {
    (void)close(fd);
    return HEC_OK;
  }
  in[place] = fd;
  if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
    return hec_rank_fail(rank, "cannot set up a connection: %s", strerror(errno));
  return HEC_OK;
}

static hec_status accept_all(hec_rank *rank, int listener, int64_t deadline_ns, int *in) {
  struct pollfd events = {.fd = listener, .events = POLLIN};
  for (int32_t missing; (missing = first_missing(rank, in)) >= 0;) {
    HEC_TRY(hec_rank_check(rank));
    hec_rank_waits_for(rank, missing);
    hec_world_awake(rank, hec_clock_ns());
    if (hec_clock_ns() >= deadline_ns)
      return hec_rank_late(rank, missing, "connecting");
    if (poll(&events, 1, HEC_SLICE_MS) > 0)
      HEC_TRY(accept_one(rank, listener, in));
  }
  hec_rank_waits_for(rank, -1);
  return HEC_OK;
}

static hec_status connect_all(hec_rank *rank, int listener, hec_tcp_ends *ends) {
  int64_t deadline_ns = hec_clock_ns() + rank->limit_ns;
  for (int32_t step = 1; step < rank->n_ranks; step++) { /* not everybody to rank 0 first */
    int32_t peer = (rank->rank + step) % rank->n_ranks;
    uint32_t port;
    HEC_TRY(wait_for_port(rank, peer, deadline_ns, &port));
    HEC_TRY(connect_to(rank, peer, port, ends->out + (size_t)peer * HEC_N_CHANNELS));
  }
  return accept_all(rank, listener, deadline_ns, ends->in);
}

hec_status hec_tcp_connect(hec_rank *rank, hec_tcp_ends *ends) {
  size_t n = (size_t)rank->n_ranks * HEC_N_CHANNELS;
  ends->out = hec_malloc(n, sizeof *ends->out);
  ends->in = hec_malloc(n, sizeof *ends->in);
  for (size_t i = 0; i < n; i++)
    ends->out[i] = ends->in[i] = -1;
  int listener = -1;
  hec_status status = listen_on(rank, &listener);
  if (status == HEC_OK)
    status = connect_all(rank, listener, ends);
  if (listener >= 0)
    (void)close(listener);
  return status;
}

void hec_tcp_close(hec_rank *rank, hec_tcp_ends *ends) {
  for (int32_t i = 0; ends->out && i < rank->n_ranks * HEC_N_CHANNELS; i++) {
    if (ends->out[i] >= 0)
      (void)close(ends->out[i]);
    if (ends->in[i] >= 0)
      (void)close(ends->in[i]);
  }
  free(ends->out);
  free(ends->in);
  *ends = (hec_tcp_ends){0};
}
