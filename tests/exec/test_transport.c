/* Transports: every row of the table moves random posts, in both forms of ranks.
 *
 * A post is a list of edges (source, destination, bytes) that all ranks derive from one seed; every rank cuts its ends
 * into segments of its own. Four kinds: scattered pairs; trees, where ranks forward what arrives in chunks; sums, where a
 * rank adds what several others send, in their order; and crowds of small messages between the same pairs. Lanes run
 * their lists of posts independently, so several are in progress at once. The oracle is the content: a function of
 * (edge, position), and for sums the additions in order, bit for bit. */
#include "runtime/base/arena.h"
#include "tests/exec/launch_case.h"
#include "tests/support/check_main.h"

#include <string.h>

enum { MAX_EDGES = 512, MAX_CUTS = 5, LANE_BYTES = 48 << 20, N_KINDS = 4 };

typedef enum { SCATTERED, TREES, SUMS, CROWDS } kind;

typedef struct {
  int32_t source, destination;
  int64_t bytes;
  uint64_t key;   /* of its content */
  int32_t parent; /* edge whose bytes this one forwards; -1 */
  int32_t block;  /* edges with one number share the destination's block (sums) */
} edge;

typedef struct {
  kind kind;
  int64_t chunk_bytes;
  int32_t n_edges;
  edge edges[MAX_EDGES];
} problem;

typedef struct {
  uint64_t seed;
  int32_t n_posts;   /* per lane */
  int32_t log_bytes; /* sizes are below 2 to this */
  int32_t only;      /* a kind, -1: all */
} test_case;

/* ---- Problems: the same on every rank ---- */

static int64_t random_size(uint64_t *state, int32_t log_bytes) {
  uint64_t below = (uint64_t)1 << (1 + hec_test_below(state, (uint64_t)log_bytes));
  return 1 + (int64_t)hec_test_below(state, below);
}

static void add_edge(problem *p, uint64_t *state, edge e) {
  HEC_ASSERT(p->n_edges < MAX_EDGES);
  if (e.key == 0)
    e.key = hec_test_random(state) | 1;
  p->edges[p->n_edges++] = e;
}

static void make_trees(problem *p, uint64_t *state, int32_t n_ranks, int32_t log_bytes) {
  int32_t member[16];
  for (uint64_t n = 1 + hec_test_below(state, 4); n > 0; n--) {
    int32_t n_members = 2 + (int32_t)hec_test_below(state, (uint64_t)n_ranks - 1);
    for (int32_t i = 0; i < n_ranks; i++)
      member[i] = i;
    for (int32_t i = n_ranks - 1; i > 0; i--) {
      int32_t j = (int32_t)hec_test_below(state, (uint64_t)i + 1), kept = member[i];
      member[i] = member[j];
      member[j] = kept;
    }
    int32_t edge_of[16] = {-1}; /* that brought the bytes to the k-th member */
    int64_t bytes = random_size(state, log_bytes);
    uint64_t key = hec_test_random(state) | 1;
    for (int32_t k = 1; k < n_members; k++) {
      int32_t from = (int32_t)hec_test_below(state, (uint64_t)k);
      edge_of[k] = p->n_edges;
      add_edge(p, state, (edge){member[from], member[k], bytes, key, edge_of[from], p->n_edges});
    }
  }
  p->chunk_bytes = 1 + (int64_t)hec_test_below(state, (uint64_t)1 << (3 + hec_test_below(state, 15)));
}

static void make_pairs(problem *p, uint64_t *state, int32_t n_ranks, int32_t log_bytes) {
  for (int32_t d = 0; d < n_ranks; d++) {
    int64_t sum_bytes = 4 * random_size(state, log_bytes - 2);
    for (int32_t s = 0; s < n_ranks; s++) {
      int64_t n = p->kind == CROWDS ? (int64_t)hec_test_below(state, 8) : (int64_t)hec_test_below(state, 2);
      for (; s != d && n > 0; n--) {
        int64_t bytes = p->kind == SUMS ? sum_bytes : random_size(state, p->kind == CROWDS ? 5 : log_bytes);
        add_edge(p, state, (edge){s, d, bytes, 0, -1, p->kind == SUMS ? -1 - d : p->n_edges});
      }
    }
  }
  p->chunk_bytes = p->kind == CROWDS ? 1 + (int64_t)hec_test_below(state, 9) : 0;
}

static void make_problem(problem *p, const test_case *c, const hec_transport *transport, int32_t n_ranks, int32_t lane,
                         int32_t index) {
  uint64_t state = c->seed + (uint64_t)lane * 1000003 + (uint64_t)index * 7919;
  *p = (problem){.kind = c->only >= 0 ? (kind)c->only : (kind)hec_test_below(&state, N_KINDS)};
  if (p->kind == SUMS && !transport->adds)
    p->kind = SCATTERED;
  if (p->kind == TREES)
    make_trees(p, &state, n_ranks, c->log_bytes);
  else
    make_pairs(p, &state, n_ranks, c->log_bytes);
}

/* ---- Contents ---- */

static uint8_t byte_of(uint64_t key, int64_t i) {
  uint64_t x = ((uint64_t)i + key) * 0x9e3779b97f4a7c15u;
  return (uint8_t)(x >> 56);
}

static float float_of(uint64_t key, int64_t i) {
  return (float)((int32_t)byte_of(key, i) - 100) / 7 + (float)byte_of(key, i + 1) * 1000;
}

static void fill(const problem *p, const edge *e, char *at) {
  for (int64_t i = 0; p->kind != SUMS && i < e->bytes; i++)
    at[i] = (char)byte_of(e->key, i);
  for (int64_t i = 0; p->kind == SUMS && i < e->bytes / 4; i++)
    ((float *)(void *)at)[i] = float_of(e->key, i);
}

/* ---- One rank's end of a post ---- */

typedef struct {
  problem problem;
  hec_post post;
  hec_message sends[MAX_EDGES], receives[MAX_EDGES];
  hec_segment segments[2 * MAX_EDGES][MAX_CUTS];
  int32_t n_cut;
  char *block[MAX_EDGES]; /* of the edge at this rank */
  char *memory;
  int64_t used;
  int32_t next; /* post to start */
  bool busy;
} lane_state;

static char *take(lane_state *l, int64_t bytes) {
  char *at = l->memory + l->used;
  l->used += (bytes + 127) / 64 * 64;
  HEC_ASSERT(l->used <= LANE_BYTES);
  return at;
}

/* Up to MAX_CUTS consecutive segments, some empty. */
static hec_message cut(lane_state *l, uint64_t *own, int32_t peer, int32_t e) {
  int64_t left = l->problem.edges[e].bytes, unit = l->problem.kind == SUMS ? 4 : 1;
  char *at = l->block[e];
  hec_segment *segments = l->segments[l->n_cut++];
  int32_t n = 1 + (int32_t)hec_test_below(own, MAX_CUTS);
  for (int32_t i = 0; i < n; i++) {
    int64_t bytes = i == n - 1 ? left : (int64_t)hec_test_below(own, (uint64_t)(left / unit) + 1) * unit;
    segments[i] = (hec_segment){at, bytes};
    at += bytes;
    left -= bytes;
  }
  return (hec_message){
      .peer = peer, .n_segments = n, .segments = segments, .bytes = l->problem.edges[e].bytes, .after = -1};
}

/* The block where a receive of this rank puts edge e: shared by the edges of a sum. */
static char *receiving_block(lane_state *l, int32_t rank, int32_t e) {
  const edge *edges = l->problem.edges;
  for (int32_t i = 0; i < e; i++)
    if (edges[i].destination == rank && edges[i].block == edges[e].block)
      return l->block[i];
  char *at = take(l, edges[e].bytes);
  memset(at, 0, (size_t)edges[e].bytes);
  return at;
}

static void make_post(lane_state *l, int32_t rank, int32_t number, uint64_t *own) {
  static _Thread_local int32_t receive_of[MAX_EDGES];
  problem *p = &l->problem;
  l->used = 0;
  l->n_cut = 0;
  l->post = (hec_post){.lane = number,
                       .sends = l->sends,
                       .receives = l->receives,
                       .chunk_bytes = p->chunk_bytes,
                       .add = p->kind == SUMS};
  for (int32_t e = 0; e < p->n_edges; e++) {
    if (p->edges[e].destination == rank) {
      l->block[e] = receiving_block(l, rank, e);
      receive_of[e] = l->post.n_receives;
      l->receives[l->post.n_receives++] = cut(l, own, p->edges[e].source, e);
    } else if (p->edges[e].source == rank) {
      int32_t parent = p->edges[e].parent;
      l->block[e] = parent >= 0 ? l->block[parent] : take(l, p->edges[e].bytes);
      if (parent < 0)
        fill(p, &p->edges[e], l->block[e]);
      l->sends[l->post.n_sends] = cut(l, own, p->edges[e].destination, e);
      l->sends[l->post.n_sends++].after = parent >= 0 ? receive_of[parent] : -1;
    }
  }
}

/* Sums: the first edge of the block checks them all. */
static bool sum_is_right(const problem *p, int32_t first, const char *block) {
  const float *at = (const float *)(const void *)block;
  for (int64_t i = 0; i < p->edges[first].bytes / 4; i++) {
    float sum = 0;
    for (int32_t e = first; e < p->n_edges; e++)
      if (p->edges[e].block == p->edges[first].block)
        sum += float_of(p->edges[e].key, i);
    if (memcmp(&sum, &at[i], sizeof sum) != 0)
      return false;
  }
  return true;
}

static bool edge_is_right(const problem *p, int32_t e, const char *block) {
  if (p->kind == SUMS)
    return sum_is_right(p, e, block);
  for (int64_t i = 0; i < p->edges[e].bytes; i++)
    if ((uint8_t)block[i] != byte_of(p->edges[e].key, i))
      return false;
  return true;
}

static hec_status check_post(hec_rank *rank, const lane_state *l, int32_t number) {
  const problem *p = &l->problem;
  int32_t summed = 0; /* the block of this rank's sum is one: check it once */
  for (int32_t e = 0; e < p->n_edges; e++) {
    if (p->edges[e].destination != rank->rank || (p->kind == SUMS && summed++ > 0))
      continue;
    if (!edge_is_right(p, e, l->block[e]))
      return hec_rank_fail(rank, "lane %d, post %d of kind %d: edge %d from %d (%lld bytes) is wrong", number,
                           l->next - 1, (int)p->kind, e, p->edges[e].source, (long long)p->edges[e].bytes);
  }
  for (int32_t i = 0; i < l->post.n_sends + l->post.n_receives; i++) {
    const hec_message *m = i < l->post.n_sends ? &l->sends[i] : &l->receives[i - l->post.n_sends];
    if (m->moved != m->bytes)
      return hec_rank_fail(rank, "a finished post with a message that is not");
  }
  return HEC_OK;
}

/* One step of a lane: starts the next post or looks at the one in progress. *idle: nothing left. */
static hec_status step(hec_rank *rank, const test_case *c, lane_state *l, int32_t number, uint64_t *own) {
  if (!l->busy && l->next < c->n_posts) {
    make_problem(&l->problem, c, rank->transport, rank->n_ranks, number, l->next++);
    make_post(l, rank->rank, number, own);
    if (l->post.n_sends + l->post.n_receives == 0)
      return HEC_OK;
    HEC_TRY(rank->transport->start(rank, &l->post));
    l->busy = true;
  }
  bool done = false;
  if (l->busy)
    HEC_TRY(rank->transport->test(rank, &l->post, &done));
  l->busy = l->busy && !done;
  return done ? check_post(rank, l, number) : HEC_OK;
}

static hec_status run_lanes(hec_rank *rank, const test_case *c, lane_state *lanes) {
  uint64_t own = c->seed * 31 + (uint64_t)rank->rank;
  int64_t deadline_ns = hec_clock_ns() + rank->limit_ns;
  for (bool open = true; open;) {
    bool all_busy = true;
    open = false;
    for (int32_t i = 0; i < HEC_N_LANES; i++) {
      HEC_TRY(step(rank, c, &lanes[i], i, &own));
      open |= lanes[i].busy || lanes[i].next < c->n_posts;
      all_busy &= lanes[i].busy || lanes[i].next == c->n_posts;
    }
    if (hec_clock_ns() > deadline_ns)
      return hec_rank_fail(rank, "the posts did not end");
    if (open && all_busy)
      HEC_TRY(rank->transport->wait(rank, deadline_ns));
  }
  return HEC_OK;
}

static hec_status run_posts(hec_rank *rank, void *context) {
  lane_state *lanes = hec_malloc(HEC_N_LANES, sizeof *lanes);
  memset(lanes, 0, HEC_N_LANES * sizeof *lanes);
  for (int32_t i = 0; i < HEC_N_LANES; i++)
    lanes[i].memory = rank->memory + (int64_t)i * LANE_BYTES;
  hec_status status = run_lanes(rank, context, lanes);
  free(lanes);
  return status == HEC_OK ? hec_rank_barrier(rank) : status;
}

static void launch_posts(const char *name, int32_t n_ranks, bool threads, test_case c) {
  hec_launch_options options = hec_test_options(n_ranks, threads);
  options.transport = hec_transport_find(name);
  options.memory_bytes = (size_t)HEC_N_LANES * LANE_BYTES;
  options.limit_s = 60;
  hec_test_launch(&options, run_posts, &c);
}

/* ---- Cases ---- */

START_TEST(random_posts) {
  for (uint64_t seed = 1; seed <= 3; seed++)
    for (int32_t n_ranks = 2; n_ranks <= 8; n_ranks += n_ranks < 4 ? 1 : 2)
      launch_posts("shm", n_ranks, _i == 1, (test_case){seed, 10, 15, -1});
}
END_TEST

START_TEST(every_kind_alone) {
  for (int32_t k = 0; k < N_KINDS; k++)
    launch_posts("shm", 5, _i == 1, (test_case){77, 12, 12, k});
}
END_TEST

START_TEST(large_messages) {
  launch_posts("shm", 2, _i == 1, (test_case){5, 4, 22, SCATTERED});
  launch_posts("shm", 3, _i == 1, (test_case){6, 4, 22, TREES});
  launch_posts("shm", 3, _i == 1, (test_case){7, 4, 22, SUMS});
}
END_TEST

START_TEST(every_transport) {
  for (int i = 0; hec_transports[i]; i++) {
    ck_assert_ptr_eq(hec_transport_find(hec_transports[i]->name), hec_transports[i]);
    for (int32_t n_ranks = 2; n_ranks <= 8; n_ranks += 2)
      launch_posts(hec_transports[i]->name, n_ranks, _i == 1, (test_case){9, 8, 15, -1});
    launch_posts(hec_transports[i]->name, 5, _i == 1, (test_case){8, 8, 20, TREES});
    launch_posts(hec_transports[i]->name, 3, _i == 1, (test_case){11, 3, 22, SCATTERED});
  }
  ck_assert_ptr_null(hec_transport_find("pigeons"));
}
END_TEST

/* Two ends that disagree about a size say so. */
static hec_status run_disagreeing(hec_rank *rank, void *context) {
  const int64_t *bytes = context;
  hec_segment segment = {rank->memory, bytes[rank->rank]};
  hec_message message = {
      .peer = 1 - rank->rank, .n_segments = 1, .segments = &segment, .bytes = segment.bytes, .after = -1};
  hec_post post = {.sends = &message, .n_sends = 1};
  if (rank->rank == 1)
    post = (hec_post){.receives = &message, .n_receives = 1};
  HEC_TRY(rank->transport->start(rank, &post));
  for (bool done = false; !done;) {
    HEC_TRY(rank->transport->test(rank, &post, &done));
    if (!done)
      HEC_TRY(rank->transport->wait(rank, hec_clock_ns() + 1000000));
  }
  return hec_rank_barrier(rank);
}

START_TEST(sizes_that_disagree_are_noticed) {
  int64_t cases[][2] = {{100, 99}, {99, 100}, {1, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int t = 0; hec_transports[t]; t++) {
      hec_launch_options options = hec_test_options(2, _i == 1);
      options.transport = hec_transports[t];
      const char *text = hec_test_launch_fails(&options, run_disagreeing, cases[i]);
      ck_assert_msg(strstr(text, "of another size") != NULL, "%s", text);
    }
  }
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("exec.transport");
  TCase *cases = tcase_create("transport");
  tcase_set_timeout(cases, 200);
  tcase_add_loop_test(cases, random_posts, 0, 2);
  tcase_add_loop_test(cases, every_kind_alone, 0, 2);
  tcase_add_loop_test(cases, large_messages, 0, 2);
  tcase_add_loop_test(cases, every_transport, 0, 2);
  tcase_add_loop_test(cases, sizes_that_disagree_are_noticed, 0, 2);
  suite_add_tcase(suite, cases);
  return suite;
}

HEC_TEST_MAIN(make_suite)
