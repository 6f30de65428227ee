/* TCP at the pace of the links: never faster than the cluster says, links divided among what crosses them, connections
 * that are cut, and too few open files. Only lower bounds of times are checked: a busy machine may be slower. */
#include "tests/exec/launch_case.h"
#include "tests/exec/transport_case.h"
#include "tests/support/test.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static hec_arena arena;
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

/* 8 MB: 0.2 s at 40 MB/s, 0.4 s where two flows share the 40 MB/s NIC of their node, 0.16 s within a node at 50 MB/s.
 * One tenth is allowed for the first burst and the buffers. */
HEC_TEST_LOOP(links_set_the_pace, 3) {
  static const struct {
    const char *cluster;
    flows flows;
  } cases[] = {
      {"2x1 nic=40M flops=1T mem=1G", {8000000, 0.18, 1}},
      {"2x2 nvlink=400M nic=40M flops=1T mem=1G", {8000000, 0.36, 2}},
      {"1x2 nvlink=50M flops=1T mem=1G eff=1", {8000000, 0.144, 1}},
  };
  flows f = cases[_i].flows;
  hec_launch_options options = paced_options(2 * f.n_senders, cases[_i].cluster);
  hec_test_launch(&options, run_flows, &f);
  hec_arena_free(&arena);
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
  hec_arena_free(&arena);
}

/* Bytes are under way while both ranks compute: a buffer of 32 KiB would want a look of either end for each. Looks at which
 * nothing had come are not counted: the other rank may be late on a busy machine. */
static hec_status run_seldom(hec_rank *rank, void *context) {
  (void)context;
  enum { BYTES = 4 << 20, LOOKS_MAX = 12 };
  hec_segment segments[2] = {{rank->memory, BYTES}, {rank->memory + BYTES, BYTES}};
  hec_message messages[2];
  for (int32_t i = 0; i < 2; i++)
    messages[i] =
        (hec_message){.peer = 1 - rank->rank, .n_segments = 1, .segments = &segments[i], .bytes = BYTES, .after = -1};
  hec_post post = {.sends = messages, .n_sends = 1, .receives = messages + 1, .n_receives = 1};
  for (int32_t k = 0; k < 4; k++) {
    int32_t looks = 0;
    int64_t moved = 0;
    HEC_TRY(hec_rank_barrier(rank));
    HEC_TRY(rank->transport->start(rank, &post));
    for (bool done = false; !done;) {
      struct timespec computing = {.tv_nsec = 10 * 1000 * 1000};
      (void)nanosleep(&computing, NULL);
      HEC_TRY(rank->transport->test(rank, &post, &done));
      looks += hec_post_moved(&post) != moved;
      moved = hec_post_moved(&post);
    }
    if (looks > LOOKS_MAX)
      return hec_rank_fail(rank, "%d looks for %d bytes", looks, BYTES);
  }
  return HEC_OK;
}

HEC_TEST(bytes_move_while_ranks_compute) {
  hec_launch_options options = paced_options(2, "1x2 nvlink=1G flops=1T mem=1G eff=1");
  hec_test_launch(&options, run_seldom, NULL);
  hec_arena_free(&arena);
}

/* Rank 1 shuts every TCP connection that it has. */
static hec_status run_cut(hec_rank *rank, void *context) {
  (void)context;
  HEC_TRY(hec_rank_barrier(rank));
  hec_test_at_dispatch(rank);
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
