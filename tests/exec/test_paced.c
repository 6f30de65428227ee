/* TCP at the pace of the links. Never faster than the cluster says, links divided among what crosses them, connections
 * that are cut, and too few open files. Of times only lower bounds are checked, which a busy machine keeps too. */
#define _GNU_SOURCE /* SO_MAX_PACING_RATE */
#include "tests/exec/launch_case.h"
#include "tests/exec/transport_case.h"
#include "tests/support/test.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

HEC_TEST_ARENA(arena)
static hec_cluster cluster;

static hec_launch_options paced_options(int32_t n_ranks, const char *line) {
  hec_launch_options options = hec_test_options(n_ranks, false);
  ck_assert_int_eq(hec_cluster_parse_line(line, &arena, &cluster), HEC_OK);
  options.transport = &hec_transport_paced;
  options.cluster = &cluster;
  options.memory_bytes = 64 << 20;
  return options;
}

typedef struct {
  int64_t bytes;
  double seconds_min;
  int32_t n_senders; /* ranks 0 .. n - 1 each send to rank n + own number */
} flows;

static hec_status run_flows(hec_rank *rank, void *context) {
  const flows *f = context;
  bool sends = rank->rank < f->n_senders;
  hec_segment segment = {rank->memory, f->bytes};
  hec_message message = {.peer = sends ? rank->rank + f->n_senders : rank->rank - f->n_senders,
                         .n_segments = 1,
                         .segments = &segment,
                         .bytes = f->bytes,
                         .after = -1};
  hec_post post = {.lane = HEC_LANE_TOKEN};
  if (sends)
    post = (hec_post){.lane = HEC_LANE_TOKEN, .sends = &message, .n_sends = 1};
  else
    post = (hec_post){.lane = HEC_LANE_TOKEN, .receives = &message, .n_receives = 1};
  int64_t start_ns;
  HEC_TRY(hec_rank_start_together(rank, &start_ns));
  HEC_TRY(hec_test_finish_post(rank, &post));
  double seconds = (double)(hec_clock_ns() - start_ns) * 1e-9; /* of either end */
  HEC_TRY(hec_rank_barrier(rank));
  return seconds >= f->seconds_min ? HEC_OK
                                   : hec_rank_fail(rank, "%.3f s, at least %.3f expected", seconds, f->seconds_min);
}

/* 8 MB: 0.2 s at 40 MB/s, 0.16 s within a node at 50 MB/s. One tenth is allowed for the first burst and the buffers. */
HEC_TEST_LOOP(links_set_the_pace, 2) {
  static const struct {
    const char *cluster;
    flows flows;
  } cases[] = {
      {"2x1 nic=40M flops=1T mem=1G", {8000000, 0.18, 1}},
      {"1x2 nvlink=50M flops=1T mem=1G eff=1", {8000000, 0.144, 1}},
  };
  flows f = cases[_i].flows;
  hec_launch_options options = paced_options(2 * f.n_senders, cases[_i].cluster);
  hec_test_launch(&options, run_flows, &f);
}

/* The pace that the connection with unsent bytes is held to, bytes/s; 0: none has any. */
static uint32_t pace_of_unsent(void) {
  for (int fd = 3; fd < 1000; fd++) {
    int unsent = 0;
    uint32_t rate;
    socklen_t bytes = sizeof rate;
    if (ioctl(fd, SIOCOUTQNSD, &unsent) == 0 && unsent > 0 &&
        getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &bytes) == 0)
      return rate;
  }
  return 0;
}

static hec_status await_pace(hec_rank *rank, hec_post *post, uint32_t pace) {
  int64_t until_ns = hec_clock_ns() + rank->limit_ns;
  for (bool done = false; pace_of_unsent() != pace;) {
    if (done || hec_clock_ns() > until_ns)
      return hec_rank_fail(rank, "never at %u bytes/s", pace);
    HEC_TRY(rank->transport->wait(rank, hec_clock_ns() + 1000000));
    HEC_TRY(rank->transport->test(rank, post, &done));
  }
  return HEC_OK;
}

/* Ranks 0 and 1 of a node send one message each to ranks 2 and 3 of another one. These grant them and then hold still.
 * Rank 0 goes at the whole pace of the NIC until rank 1's is under way too, then both at half of it. */
static hec_status run_shared(hec_rank *rank, void *context) {
  const uint32_t *whole = context;
  bool sends = rank->rank < 2, done = false;
  hec_segment segment = {rank->memory, 32 << 20};
  hec_message message = {
      .peer = (rank->rank + 2) % 4, .n_segments = 1, .segments = &segment, .bytes = 32 << 20, .after = -1};
  hec_post post = {.lane = HEC_LANE_TOKEN};
  *(sends ? &post.sends : &post.receives) = &message;
  *(sends ? &post.n_sends : &post.n_receives) = 1;
  for (int32_t pair = 0; pair < 2; pair++) {
    if (rank->rank % 2 == pair)
      HEC_TRY(rank->transport->start(rank, &post));
    if (sends && rank->rank <= pair)
      HEC_TRY(await_pace(rank, &post, *whole / (1 + (uint32_t)pair)));
    HEC_TRY(hec_rank_barrier(rank));
  }
  while (!done) {
    HEC_TRY(rank->transport->wait(rank, hec_clock_ns() + 1000000));
    HEC_TRY(rank->transport->test(rank, &post, &done));
  }
  return hec_rank_barrier(rank);
}

HEC_TEST(flows_share_a_link_evenly) {
  hec_launch_options options = paced_options(4, "2x2 nvlink=4G nic=400M flops=1T mem=1G");
  options.limit_s = 60;
  const int32_t *links;
  double slowest = 1e18;
  for (int32_t i = 0, n = hec_cluster_route(&cluster, 0, 2, &links); i < n; i++)
    slowest = cluster.links[links[i]].bandwidth < slowest ? cluster.links[links[i]].bandwidth : slowest;
  ck_assert_double_eq_tol(slowest, 4e8, 1);
  hec_test_launch(&options, run_shared, &(uint32_t){(uint32_t)slowest});
}

/* Nothing moves before the other end has posted: the source's post is not done while rank 1 stays away. */
static hec_status run_early_source(hec_rank *rank, void *context) {
  (void)context;
  hec_segment segment = {rank->memory, 100};
  hec_message message = {.peer = 1 - rank->rank, .n_segments = 1, .segments = &segment, .bytes = 100, .after = -1};
  hec_post send = {.sends = &message, .n_sends = 1}, receive = {.receives = &message, .n_receives = 1};
  if (rank->rank == 0) {
    bool done = false;
    HEC_TRY(rank->transport->start(rank, &send));
    HEC_TRY(hec_rank_barrier(rank));
    HEC_TRY(rank->transport->test(rank, &send, &done));
    if (done || message.moved > 0)
      return hec_rank_fail(rank, "bytes left before the other end had posted");
    HEC_TRY(hec_rank_barrier(rank));
    while (!done) {
      HEC_TRY(rank->transport->wait(rank, hec_clock_ns() + rank->limit_ns));
      HEC_TRY(rank->transport->test(rank, &send, &done));
    }
    return hec_rank_barrier(rank);
  }
  HEC_TRY(hec_rank_barrier(rank));
  HEC_TRY(hec_rank_barrier(rank));
  HEC_TRY(hec_test_finish_post(rank, &receive));
  return hec_rank_barrier(rank);
}

HEC_TEST(both_ends_must_have_posted) {
  hec_launch_options options = paced_options(2, "2x1 nic=1G flops=1T mem=1G");
  hec_test_launch(&options, run_early_source, NULL);
}

/* Bytes are under way while both ranks compute: a buffer of 32 KiB would want 128 looks of either end. Ranks look in step, so
 * one that is kept from its core does not make the other look in vain. The kernel has at least as long as they compute. */
static hec_status run_seldom(hec_rank *rank, void *context) {
  (void)context;
  enum { BYTES = 4 << 20, LOOKS = 24 };
  hec_segment segments[2] = {{rank->memory, BYTES}, {rank->memory + BYTES, BYTES}};
  hec_message messages[2];
  for (int32_t i = 0; i < 2; i++)
    messages[i] =
        (hec_message){.peer = 1 - rank->rank, .n_segments = 1, .segments = &segments[i], .bytes = BYTES, .after = -1};
  hec_post post = {.sends = messages, .n_sends = 1, .receives = messages + 1, .n_receives = 1};
  bool done = false;
  HEC_TRY(rank->transport->start(rank, &post));
  for (int32_t looks = 0; looks < LOOKS; looks++) {
    struct timespec computing = {.tv_nsec = 10 * 1000 * 1000};
    HEC_TRY(hec_rank_barrier(rank));
    (void)nanosleep(&computing, NULL);
    if (!done)
      HEC_TRY(rank->transport->test(rank, &post, &done));
  }
  return done ? HEC_OK
              : hec_rank_fail(rank, "%d looks moved %lld bytes of 2 x %d", LOOKS, (long long)hec_post_moved(&post),
                              BYTES);
}

HEC_TEST(bytes_move_while_ranks_compute) {
  hec_launch_options options = paced_options(2, "1x2 nvlink=1G flops=1T mem=1G eff=1");
  hec_test_launch(&options, run_seldom, NULL);
}

/* Rank 1 shuts every TCP connection that it has. */
static hec_status run_cut(hec_rank *rank, void *context) {
  (void)context;
  hec_test_at_dispatch(rank); /* before the barrier, which rank 1 may leave first */
  HEC_TRY(hec_rank_barrier(rank));
  for (int fd = 3; rank->rank == 1 && fd < 1000; fd++) {
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    if (getpeername(fd, (struct sockaddr *)&address, &bytes) == 0 && address.ss_family == AF_INET)
      (void)shutdown(fd, SHUT_RDWR);
  }
  for (;;)
    HEC_TRY(hec_rank_barrier(rank));
}

HEC_TEST(a_cut_connection_names_the_peer) {
  hec_launch_options options = hec_test_options(3, false);
  options.transport = &hec_transport_paced;
  const char *text = hec_test_launch_fails(&options, run_cut, NULL);
  /* rank 1 or a peer of it notices first */
  ck_assert_msg(strstr(text, ", in " HEC_TEST_DISPATCH ": the connection with rank ") != NULL, "%s", text);
  ck_assert_msg(strstr(text, "rank 1") != NULL && strstr(text, " was cut (") != NULL, "%s", text);
}

static hec_status run_barrier(hec_rank *rank, void *context) {
  (void)context;
  return hec_rank_barrier(rank);
}

HEC_TEST(open_files_are_limited) {
  hec_launch_options options = hec_test_options(8, false);
  options.transport = &hec_transport_paced;
  struct rlimit limit = {.rlim_cur = 20, .rlim_max = 1000}; /* raised where it may be */
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
  hec_test_launch(&options, run_barrier, NULL);
  limit = (struct rlimit){.rlim_cur = 50, .rlim_max = 50};
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ck_assert_str_eq(hec_test_launch_fails(&options, run_barrier, NULL),
                   "8 ranks over TCP need 156 open files each process, the limit is 50 (ulimit -Hn)");
}
