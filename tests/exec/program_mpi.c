/* Started by test_mpi.sh under mpirun: one rank. What is to be done is the first argument.
 *
 *   posts SEED N   N rounds: on a random subset of the lanes a queue of posts each, lanes advancing in an order of this
 *                  rank's own; every pair exchanges a random number of bytes (mostly none, 1 byte to a few 100 kB), cut
 *                  into random segments on either side. Every byte is a function of (round, lane, post, source, target,
 *                  place in the message); the bytes between the segments must not change
 *   chains SEED N  N rounds of chained posts: chains through random sequences of ranks, several at once, often through
 *                  the same pairs; each rank forwards what it receives
 *   control        barrier, gather, broadcast and start_together many times over
 *   large N BYTES  one message of so many bytes from every rank to the next, in N segments on the sender's side and one
 *                  on the receiver's; prints the time
 *   short | silent | stopped | killed | wrong    a fault of rank 1: it sends less than its peer expects, posts nothing,
 *                  stops, dies, returns a failure */
#include "runtime/base/arena.h"
#include "runtime/exec/backend.h"

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

static uint64_t mix(uint64_t x) { /* splitmix64 */
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

static uint64_t draw(uint64_t *state) {
  return mix((*state)++ * 0xd1342543de82ef95);
}

static uint64_t key_of(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return mix(mix(mix(mix(a) ^ b) ^ c) ^ d);
}

static unsigned char byte_at(uint64_t key, int64_t i) {
  return (unsigned char)(mix(key ^ (uint64_t)(i >> 3)) >> (8 * (i & 7)));
}

/* ---- A buffer: segments scattered over memory that is otherwise a known pattern ---- */

enum { GAP = 0xa5, SEGMENTS_MAX = 12 };

typedef struct {
  unsigned char *memory;
  int64_t memory_bytes;
  hec_segment segments[SEGMENTS_MAX];
  int32_t n_segments;
} buffer;

static buffer make_buffer(hec_arena *arena, int64_t bytes, uint64_t *random) {
  buffer b = {.n_segments = 1 + (int32_t)(draw(random) % SEGMENTS_MAX)};
  if (b.n_segments > bytes)
    b.n_segments = (int32_t)bytes;
  b.memory_bytes = bytes + 16 * (b.n_segments + 1);
  b.memory = hec_arena_alloc(arena, 1, (size_t)b.memory_bytes);
  memset(b.memory, GAP, (size_t)b.memory_bytes);
  int64_t at = (int64_t)(draw(random) % 16), left = bytes;
  for (int32_t i = 0; i < b.n_segments; i++) {
    int64_t most = left - (b.n_segments - 1 - i);
    int64_t take = i == b.n_segments - 1 ? left : 1 + (int64_t)(draw(random) % (uint64_t)most);
    b.segments[i] = (hec_segment){.at = b.memory + at, .bytes = take};
    at += take + (int64_t)(draw(random) % 3 ? draw(random) % 16 : 0); /* sometimes right behind the one before */
    left -= take;
  }
  return b;
}

static void fill(const buffer *b, uint64_t key) {
  int64_t at = 0;
  for (int32_t i = 0; i < b->n_segments; i++)
    for (int64_t j = 0; j < b->segments[i].bytes; j++)
      ((unsigned char *)b->segments[i].at)[j] = byte_at(key, at++);
}

/* Does the buffer hold the message, and the pattern everywhere else? */
static bool holds(const buffer *b, uint64_t key) {
  int64_t message_at = 0, memory_at = 0;
  for (int32_t i = 0; i <= b->n_segments; i++) {
    const hec_segment *s = &b->segments[i];
    unsigned char *end = i < b->n_segments ? s->at : b->memory + b->memory_bytes;
    for (; b->memory + memory_at < end; memory_at++)
      if (b->memory[memory_at] != GAP)
        return false;
    for (int64_t j = 0; i < b->n_segments && j < s->bytes; j++)
      if (b->memory[memory_at++] != byte_at(key, message_at++))
        return false;
  }
  return true;
}

/* ---- Posts ---- */

enum { POSTS_MAX = 4 };

typedef struct {
  hec_post post;
  buffer *in, *out; /* [n_receives], [n_sends] */
  uint64_t *in_key; /* [n_receives] */
} filled_post;

static void add_message(hec_arena *arena, filled_post *p, bool send, int32_t peer, int64_t bytes, uint64_t key,
                        uint64_t *random) {
  int32_t *n = send ? &p->post.n_sends : &p->post.n_receives;
  buffer *b = &(send ? p->out : p->in)[*n];
  *b = make_buffer(arena, bytes, random);
  (send ? p->post.sends : p->post.receives)[*n] =
      (hec_message){.peer = peer, .n_segments = b->n_segments, .segments = b->segments, .bytes = bytes, .after = -1};
  if (send)
    fill(b, key);
  else
    p->in_key[*n] = key;
  ++*n;
}

static filled_post empty_post(hec_arena *arena, int32_t lane, int32_t messages_max) {
  filled_post p = {.post.lane = lane};
  p.in = HEC_NEW(arena, buffer, messages_max);
  p.out = HEC_NEW(arena, buffer, messages_max);
  p.in_key = HEC_NEW(arena, uint64_t, messages_max);
  p.post.receives = HEC_NEW(arena, hec_message, messages_max);
  p.post.sends = HEC_NEW(arena, hec_message, messages_max);
  return p;
}

/* Bytes from one rank to another: a function of the key, the same on both sides. */
static int64_t size_of(uint64_t key) {
  uint64_t kind = key % 16;
  return kind < 8    ? 0
         : kind < 11 ? 1 + (int64_t)(mix(key) % 64)
                     : 1 + (int64_t)(mix(key) % ((uint64_t)1 << (kind + 3)));
}

static filled_post random_post(hec_rank *rank, hec_arena *arena, int32_t lane, uint64_t id, uint64_t *random) {
  int32_t n = rank->n_ranks, me = rank->rank;
  filled_post p = empty_post(arena, lane, n);
  for (int32_t i = 0; i < n; i++) {
    int32_t to = (me + i) % n, from = (me - i + n) % n;
    uint64_t out = key_of(id, (uint64_t)lane, (uint64_t)me, (uint64_t)to),
             in = key_of(id, (uint64_t)lane, (uint64_t)from, (uint64_t)me);
    if (i > 0 && size_of(out) > 0)
      add_message(arena, &p, true, to, size_of(out), out, random);
    if (i > 0 && size_of(in) > 0)
      add_message(arena, &p, false, from, size_of(in), in, random);
  }
  return p;
}

/* Chains: `n_hops` ranks in a random order; everybody draws all of them and takes what passes through itself. */
static filled_post random_chains(hec_rank *rank, hec_arena *arena, int32_t lane, uint64_t id, uint64_t *random) {
  enum { CHAINS = 6, RANKS = 64 };
  uint64_t common = key_of(id, (uint64_t)lane, 1, 2);
  filled_post p = empty_post(arena, lane, CHAINS);
  p.post.chunk_bytes = 1 + (int64_t)(draw(&common) % 20000);
  int32_t order[RANKS];
  for (int32_t chain = 0; chain < CHAINS; chain++) {
    int32_t n = rank->n_ranks, n_hops = 1 + (int32_t)(draw(&common) % (uint64_t)n);
    if (chain == 0 || draw(&common) % 2) { /* otherwise the order of the chain before */
      for (int32_t i = 0; i < n; i++)
        order[i] = i;
      for (int32_t i = n - 1; i > 0; i--) {
        int32_t j = (int32_t)(draw(&common) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
      }
    }
    int64_t bytes = 1 + (int64_t)(draw(&common) % 200000);
    uint64_t key = draw(&common);
    for (int32_t i = 0; i < n_hops; i++) {
      if (order[i] != rank->rank)
        continue;
      int32_t received = -1;
      if (i > 0) {
        add_message(arena, &p, false, order[i - 1], bytes, key, random);
        received = p.post.n_receives - 1;
      }
      if (i + 1 < n_hops) {
        add_message(arena, &p, true, order[i + 1], bytes, key, random);
        if (received >= 0) { /* forwards what arrives, out of the receive's own segments */
          hec_message *m = &p.post.sends[p.post.n_sends - 1], *r = &p.post.receives[received];
          m->after = received;
          m->segments = r->segments;
          m->n_segments = r->n_segments;
        }
      }
    }
  }
  return p;
}

static hec_status check(hec_rank *rank, const filled_post *p) {
  for (int32_t i = 0; i < p->post.n_receives; i++) {
    if (p->post.receives[i].moved != p->post.receives[i].bytes)
      return hec_rank_fail(rank, "lane %d: done, but a receive is not", p->post.lane);
    if (!holds(&p->in[i], p->in_key[i]))
      return hec_rank_fail(rank, "lane %d: a message from rank %d is wrong", p->post.lane, p->post.receives[i].peer);
  }
  return HEC_OK;
}

typedef struct {
  filled_post posts[POSTS_MAX];
  int32_t n, next; /* next: to be started, or under way */
  bool under_way;
} queue;

/* Runs the queues of all lanes side by side. */
static hec_status drive(hec_rank *rank, queue *queues, uint64_t *random) {
  int64_t until = hec_clock_ns() + rank->limit_ns;
  for (;;) {
    bool left = false;
    int32_t first = (int32_t)(draw(random) % HEC_N_LANES);
    for (int32_t i = 0; i < HEC_N_LANES; i++) {
      queue *q = &queues[(first + i) % HEC_N_LANES];
      if (q->next == q->n || draw(random) % 4 == 0) {
        left = left || q->next < q->n;
        continue;
      }
      filled_post *p = &q->posts[q->next];
      bool done = false;
      if (!q->under_way)
        HEC_TRY(rank->transport->start(rank, &p->post));
      q->under_way = true;
      HEC_TRY(rank->transport->test(rank, &p->post, &done));
      if (done) {
        HEC_TRY(check(rank, p));
        q->under_way = false;
        q->next++;
      }
      left = left || q->next < q->n;
    }
    if (!left)
      return HEC_OK;
    if (hec_clock_ns() > until)
      return hec_rank_fail(rank, "a post did not complete");
    HEC_TRY(rank->transport->wait(rank, hec_clock_ns() + 1000000));
  }
}

static hec_status rounds(hec_rank *rank, const job *j, bool chains) {
  hec_arena arena = {0};
  hec_status status = HEC_OK;
  for (int64_t round = 0; round < j->n && status == HEC_OK; round++) {
    uint64_t common = key_of(j->seed, (uint64_t)round, 3, 4), own = key_of(common, (uint64_t)rank->rank, 5, 6);
    queue queues[HEC_N_LANES] = {0};
    for (int32_t lane = 0; lane < HEC_N_LANES; lane++) {
      queues[lane].n = (int32_t)(draw(&common) % (POSTS_MAX + 1));
      for (int32_t i = 0; i < queues[lane].n; i++) {
        uint64_t id = draw(&common);
        queues[lane].posts[i] =
            chains ? random_chains(rank, &arena, lane, id, &own) : random_post(rank, &arena, lane, id, &own);
      }
    }
    status = drive(rank, queues, &own);
    hec_arena_rewind(&arena, (hec_arena_mark){0});
  }
  hec_arena_free(&arena);
  return status;
}

static hec_status control(hec_rank *rank, const job *j) {
  uint64_t all[256], word;
  int64_t last = 0;
  for (int64_t i = 0; i < j->n; i++) {
    word = key_of((uint64_t)i, (uint64_t)rank->rank, 0, 0);
    HEC_TRY(hec_rank_gather(rank, &word, sizeof word, rank->rank == 0 ? all : NULL));
    for (int32_t r = 0; rank->rank == 0 && r < rank->n_ranks; r++)
      if (all[r] != key_of((uint64_t)i, (uint64_t)r, 0, 0))
        return hec_rank_fail(rank, "gather %lld: the word of rank %d is wrong", (long long)i, r);
    word = rank->rank == 0 ? mix((uint64_t)i) : 0;
    HEC_TRY(hec_rank_broadcast(rank, &word, sizeof word));
    if (word != mix((uint64_t)i))
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

static hec_status exchange(hec_rank *rank, hec_post *post) {
  int64_t until = hec_clock_ns() + rank->limit_ns;
  HEC_TRY(rank->transport->start(rank, post));
  for (bool done = false; !done;) {
    HEC_TRY(rank->transport->test(rank, post, &done));
    if (hec_clock_ns() > until)
      return hec_rank_fail(rank, "waited %.3g s for rank %d", (double)rank->limit_ns * 1e-9, post->receives[0].peer);
    if (!done)
      HEC_TRY(rank->transport->wait(rank, until));
  }
  return HEC_OK;
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
  HEC_TRY(exchange(rank, &post));
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
  if (strcmp(j->what, "posts") == 0 || strcmp(j->what, "chains") == 0)
    return rounds(rank, j, j->what[0] == 'c');
  if (strcmp(j->what, "control") == 0)
    return control(rank, j);
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
  return mine ? hec_rank_barrier(rank) : exchange(rank, &post);
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
  hec_launch_options options = {.memory_bytes = 1 << 20};
  hec_status status = mpi->ranks(&options.n_ranks);
  /* Twice: a launch leaves nothing behind that the next one trips over. */
  for (int i = 0; i < 2 && status == HEC_OK; i++)
    status = mpi->launch(&options, body, &j);
  if (status != HEC_OK)
    fprintf(stderr, "%s\n", hec_last_error());
  else if (mpi->speaks())
    printf("passed on %d ranks\n", options.n_ranks);
  mpi->close();
  return (int)status;
}
