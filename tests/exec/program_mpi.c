/* Started by test_mpi.sh under mpirun: one rank. What is to be done is the first argument.
 *
 *   posts SEED N   barrier, gather, broadcast and start_together many times over; then N random posts on each lane
 *                  (transport_case.h)
 *   large N BYTES  one message of so many bytes from every rank to the next, in N segments on the sender's side and one
 *                  on the receiver's; prints the time
 *   short | silent | stopped | killed | wrong    a fault of rank 1: it sends less than its peer expects, posts nothing,
 *                  stops, dies, returns a failure */
#include "runtime/base/arena.h"
#include "runtime/exec/backend.h"
#include "tests/exec/transport_case.h"
#include "tests/support/check_main.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  const char *what;
  uint64_t seed;
  int64_t n;
} job;

static uint64_t word_of(int64_t i, int32_t rank) {
  uint64_t state = (uint64_t)i * 1000 + (uint64_t)(rank + 1);
  return hec_test_random(&state);
}

static hec_status control(hec_rank *rank) {
  uint64_t all[256], word;
  int64_t last = 0;
  for (int64_t i = 0; i < 50; i++) {
    word = word_of(i, rank->rank);
    HEC_TRY(hec_rank_gather(rank, &word, sizeof word, rank->rank == 0 ? all : NULL));
    for (int32_t r = 0; rank->rank == 0 && r < rank->n_ranks; r++)
      if (all[r] != word_of(i, r))
        return hec_rank_fail(rank, "gather %lld: the word of rank %d is wrong", (long long)i, r);
    word = rank->rank == 0 ? word_of(i, -1) : 0;
    HEC_TRY(hec_rank_broadcast(rank, &word, sizeof word));
    if (word != word_of(i, -1))
      return hec_rank_fail(rank, "broadcast %lld is wrong", (long long)i);
    HEC_TRY(hec_rank_barrier(rank));
    int64_t start = 0;
    HEC_TRY(hec_rank_start_together(rank, &start));
    if (start <= last || hec_clock_ns() < start)
      return hec_rank_fail(rank, "a common start is not later than the one before, or not yet there");
    last = start;
  }
  return HEC_OK;
}

/* A pipeline stage asks for what it has sent when it sends again. Meanwhile a wait for something else lasts as long as it may,
 * though that post is complete. */
static hec_status asked_late(hec_rank *rank) {
  enum { WAITS = 1000, WAIT_NS = 1000000 };
  char out = 'x', in = 0;
  int32_t n = rank->n_ranks;
  hec_segment from = {&out, 1}, to = {&in, 1};
  hec_message send = {.peer = (rank->rank + 1) % n, .n_segments = 1, .segments = &from, .bytes = 1, .after = -1};
  hec_message receive = {.peer = (rank->rank + n - 1) % n, .n_segments = 1, .segments = &to, .bytes = 1, .after = -1};
  hec_post post = {.lane = HEC_LANE_GRAD, .sends = &send, .receives = &receive, .n_sends = 1, .n_receives = 1};
  bool lasted = n == 1;
  if (n > 1)
    HEC_TRY(rank->transport->start(rank, &post));
  HEC_TRY(hec_rank_barrier(rank));
  for (int32_t i = 0; i < WAITS && !lasted; i++) {
    int64_t until_ns = hec_clock_ns() + WAIT_NS;
    HEC_TRY(rank->transport->wait(rank, until_ns));
    lasted = hec_clock_ns() >= until_ns;
  }
  if (!lasted)
    return hec_rank_fail(rank, "waits return at once for a post that is complete");
  return n > 1 ? hec_rank_finish(rank, &post, "a post that is asked for late") : HEC_OK;
}

/* The bytes are evenly cut, with a byte between the segments. */
static hec_status large(hec_rank *rank, int64_t n_segments, int64_t bytes, bool less) {
  int32_t n = rank->n_ranks, next = (rank->rank + 1) % n, last = (rank->rank + n - 1) % n;
  char *out = hec_malloc((size_t)(bytes + n_segments), 1), *in = hec_malloc((size_t)bytes, 1);
  hec_segment *cut = hec_malloc((size_t)n_segments, sizeof *cut), whole = {in, bytes};
  for (int64_t s = 0, at = 0; s < n_segments; s++) {
    int64_t end = bytes / n_segments * (s + 1) + (s + 1 == n_segments ? bytes % n_segments : 0);
    cut[s] = (hec_segment){out + at + s, end - at};
    for (; at < end; at++)
      out[at + s] = (char)((at * 31 + (at >> 20)) % 127 + rank->rank);
  }
  memset(in, 0, (size_t)bytes);
  cut[n_segments - 1].bytes -= less;
  hec_message send = {.peer = next, .n_segments = (int32_t)n_segments, .segments = cut, .after = -1};
  send.bytes = bytes - less;
  hec_message receive = {.peer = last, .n_segments = 1, .segments = &whole, .bytes = bytes, .after = -1};
  hec_post post = {.lane = HEC_LANE_TOKEN, .sends = &send, .receives = &receive, .n_sends = 1, .n_receives = 1};
  HEC_TRY(hec_rank_barrier(rank));
  int64_t start_ns = hec_clock_ns();
  HEC_TRY(hec_test_finish_post(rank, &post));
  if (rank->rank == 0)
    printf("%.6f s\n", (double)(hec_clock_ns() - start_ns) * 1e-9);
  for (int64_t i = 0; i < bytes; i++)
    if (in[i] != (char)((i * 31 + (i >> 20)) % 127 + last))
      return hec_rank_fail(rank, "byte %lld is wrong", (long long)i);
  free(out);
  free(in);
  free(cut);
  return HEC_OK;
}

static hec_status body(hec_rank *rank, void *context) {
  const job *j = context;
  bool mine = rank->rank == 1;
  if (strcmp(j->what, "posts") == 0) {
    HEC_TRY(control(rank));
    HEC_TRY(asked_late(rank));
    return hec_transport_case_run(rank, &(hec_transport_case){j->seed, (int32_t)j->n, 15, -1});
  }
  if (strcmp(j->what, "large") == 0)
    return large(rank, (int64_t)j->seed, j->n, false);
  /* The script looks whether these are gone afterwards. */
  printf("pid %ld\n", (long)getpid());
  (void)fflush(stdout);
  HEC_TRY(hec_rank_barrier(rank));
  if (strcmp(j->what, "short") == 0)
    return large(rank, 2, 1000, mine);
  if (mine && strcmp(j->what, "stopped") == 0)
    (void)raise(SIGSTOP);
  if (mine && strcmp(j->what, "killed") == 0)
    (void)raise(SIGKILL);
  if (mine && strcmp(j->what, "wrong") == 0)
    return hec_fail(HEC_BAD_INPUT, "a failure of the body");
  char bytes[8];
  hec_segment segment = {bytes, sizeof bytes};
  hec_message receive = {.peer = 1, .n_segments = 1, .segments = &segment, .bytes = sizeof bytes, .after = -1};
  hec_post post = {.lane = HEC_LANE_GRAD, .receives = &receive, .n_receives = 1};
  /* silent: rank 1 waits in a barrier that the others never reach; they are the first to lose patience. */
  if (!mine)
    rank->limit_ns = 1000000000;
  return mine ? hec_rank_barrier(rank) : hec_test_finish_post(rank, &post);
}

int main(int n_arguments, char **arguments) {
  const hec_backend *mpi = hec_backend_find("mpi");
  hec_text why = {0};
  if (n_arguments < 2 || !mpi->available(&why)) {
    fprintf(stderr, "%s\n", n_arguments < 2 ? "usage: program_mpi WHAT [SEED [N]]" : why.data);
    return 77;
  }
  job j = {.what = arguments[1],
           .seed = n_arguments > 2 ? strtoull(arguments[2], NULL, 10) : 1,
           .n = n_arguments > 3 ? strtoll(arguments[3], NULL, 10) : 10};
  hec_launch_options options = {.memory_bytes = (size_t)HEC_N_LANES * (8 << 20)};
  hec_status status = mpi->ranks(&options.n_ranks);
  /* Twice: a launch leaves nothing behind that the next one trips over. */
  for (int i = 0; i < 2 && status == HEC_OK; i++)
    status = mpi->launch(&options, body, &j);
  if (status != HEC_OK)
    fprintf(stderr, "%s\n", hec_last_error());
  else if (mpi->speaks())
    printf("passed on %d ranks\n", options.n_ranks);
  mpi->close((int)status);
  return (int)status;
}
