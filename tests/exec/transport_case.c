/* Random posts for transports.
 *
 * A post is a list of edges (source, destination, bytes) that all ranks derive from one seed. Every rank cuts its ends
 * into segments of its own. Four kinds: scattered pairs; trees, where ranks forward what arrives in chunks; sums, where a
 * rank adds what several others send, in their order. And crowds of small messages between the same pairs. Lanes run
 * their lists of posts independently, so several are in progress at once. The oracle is the content: a function of
 * (edge, position), and for sums the additions in order, bit for bit. */
#include "tests/exec/transport_case.h"

#include "runtime/base/arena.h"
#include "tests/support/check_main.h"

#include <string.h>

enum { MAX_EDGES = 512, MAX_CUTS = 5, HOLE = 16 };

typedef struct {
  int32_t source, destination;
  int64_t bytes;
  uint64_t key;   /* of its content */
  int32_t parent; /* edge whose bytes this one forwards; -1 */
  int32_t block;  /* edges with one number share the destination's block (sums) */
} edge;

typedef struct {
  hec_transport_kind kind;
  int64_t chunk_bytes;
  int32_t n_edges;
  edge edges[MAX_EDGES];
} problem;

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
    hec_test_shuffle(state, member, n_ranks);
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
      int64_t n = p->kind == HEC_TEST_CROWDS ? (int64_t)hec_test_below(state, 8) : (int64_t)hec_test_below(state, 2);
      for (; s != d && n > 0; n--) {
        int64_t bytes =
            p->kind == HEC_TEST_SUMS ? sum_bytes : random_size(state, p->kind == HEC_TEST_CROWDS ? 5 : log_bytes);
        add_edge(p, state, (edge){s, d, bytes, 0, -1, p->kind == HEC_TEST_SUMS ? -1 - d : p->n_edges});
      }
    }
  }
  p->chunk_bytes = p->kind == HEC_TEST_CROWDS ? 1 + (int64_t)hec_test_below(state, 9) : 0;
}

static void make_problem(problem *p, const hec_transport_case *c, const hec_transport *transport, int32_t n_ranks,
                         int32_t lane, int32_t index) {
  uint64_t state = c->seed + (uint64_t)lane * 1000003 + (uint64_t)index * 7919;
  *p = (problem){.kind = c->only >= 0 ? (hec_transport_kind)c->only
                                      : (hec_transport_kind)hec_test_below(&state, HEC_TEST_N_TRANSPORT_KINDS)};
  if (p->kind == HEC_TEST_SUMS && !transport->adds)
    p->kind = HEC_TEST_SCATTERED;
  if (n_ranks == 1)
    return;
  if (p->kind == HEC_TEST_TREES)
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

/* Memory of one edge, with a hole of HOLE bytes somewhere that no message may touch. */
typedef struct {
  char *at;
  int64_t bytes, hole;
} block;

static char *byte_in(const block *b, int64_t i) {
  return b->at + i + (i >= b->hole ? HOLE : 0);
}

static float *float_in(const block *b, int64_t i) {
  return (float *)(void *)byte_in(b, 4 * i);
}

static void fill(const problem *p, const edge *e, const block *b) {
  for (int64_t i = 0; p->kind != HEC_TEST_SUMS && i < e->bytes; i++)
    *byte_in(b, i) = (char)byte_of(e->key, i);
  for (int64_t i = 0; p->kind == HEC_TEST_SUMS && i < e->bytes / 4; i++)
    *float_in(b, i) = float_of(e->key, i);
}

/* ---- One rank's end of a post ---- */

typedef struct {
  problem problem;
  hec_post post;
  hec_message sends[MAX_EDGES], receives[MAX_EDGES];
  hec_segment segments[2 * MAX_EDGES][MAX_CUTS + 1];
  int32_t n_cut;
  block block[MAX_EDGES]; /* of the edge at this rank */
  char *memory;
  int64_t used, bytes;
  int32_t next; /* post to start */
  bool busy;
} lane_state;

static block take(lane_state *l, int64_t bytes, uint64_t *own) {
  block b = {l->memory + l->used, bytes, 4 * (int64_t)hec_test_below(own, (uint64_t)bytes / 4 + 1)};
  l->used += (bytes + HOLE + 127) / 64 * 64;
  HEC_ASSERT(l->used <= l->bytes);
  memset(b.at, 0, (size_t)bytes + HOLE);
  memset(b.at + b.hole, 0xa5, HOLE);
  return b;
}

/* Up to MAX_CUTS segments, some empty, and one more where the hole cuts one in two. */
static hec_message cut(lane_state *l, uint64_t *own, int32_t peer, int32_t e) {
  const block *b = &l->block[e];
  int64_t at = 0, unit = l->problem.kind == HEC_TEST_SUMS ? 4 : 1;
  hec_segment *segments = l->segments[l->n_cut++];
  int32_t n = 0, n_cuts = 1 + (int32_t)hec_test_below(own, MAX_CUTS);
  for (int32_t i = 0; i < n_cuts; i++) {
    int64_t left = b->bytes - at, end = b->bytes;
    if (i < n_cuts - 1)
      end = at + (int64_t)hec_test_below(own, (uint64_t)(left / unit) + 1) * unit;
    if (at < b->hole && end > b->hole) {
      segments[n++] = (hec_segment){byte_in(b, at), b->hole - at};
      at = b->hole;
    }
    segments[n++] = (hec_segment){byte_in(b, at), end - at};
    at = end;
  }
  return (hec_message){.peer = peer, .n_segments = n, .segments = segments, .bytes = b->bytes, .after = -1};
}

/* The block where a receive of this rank puts edge e: shared by the edges of a sum. */
static block receiving_block(lane_state *l, int32_t rank, int32_t e, uint64_t *own) {
  const edge *edges = l->problem.edges;
  for (int32_t i = 0; i < e; i++)
    if (edges[i].destination == rank && edges[i].block == edges[e].block)
      return l->block[i];
  return take(l, edges[e].bytes, own);
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
                       .add = p->kind == HEC_TEST_SUMS};
  for (int32_t e = 0; e < p->n_edges; e++) {
    if (p->edges[e].destination == rank) {
      l->block[e] = receiving_block(l, rank, e, own);
      receive_of[e] = l->post.n_receives;
      l->receives[l->post.n_receives++] = cut(l, own, p->edges[e].source, e);
    } else if (p->edges[e].source == rank) {
      int32_t parent = p->edges[e].parent;
      l->block[e] = parent >= 0 ? l->block[parent] : take(l, p->edges[e].bytes, own);
      if (parent < 0)
        fill(p, &p->edges[e], &l->block[e]);
      l->sends[l->post.n_sends] = cut(l, own, p->edges[e].destination, e);
      l->sends[l->post.n_sends++].after = parent >= 0 ? receive_of[parent] : -1;
    }
  }
}

/* Sums: the first edge of the block checks them all. */
static bool sum_is_right(const problem *p, int32_t first, const block *b) {
  for (int64_t i = 0; i < p->edges[first].bytes / 4; i++) {
    float sum = 0;
    for (int32_t e = first; e < p->n_edges; e++)
      if (p->edges[e].block == p->edges[first].block)
        sum += float_of(p->edges[e].key, i);
    if (memcmp(&sum, float_in(b, i), sizeof sum) != 0)
      return false;
  }
  return true;
}

static bool edge_is_right(const problem *p, int32_t e, const block *b) {
  for (int32_t i = 0; i < HOLE; i++)
    if ((uint8_t)b->at[b->hole + i] != 0xa5)
      return false;
  if (p->kind == HEC_TEST_SUMS)
    return sum_is_right(p, e, b);
  for (int64_t i = 0; i < p->edges[e].bytes; i++)
    if ((uint8_t)*byte_in(b, i) != byte_of(p->edges[e].key, i))
      return false;
  return true;
}

static hec_status check_post(hec_rank *rank, const lane_state *l, int32_t number) {
  const problem *p = &l->problem;
  int32_t summed = 0; /* the block of this rank's sum is one: check it once */
  for (int32_t e = 0; e < p->n_edges; e++) {
    if (p->edges[e].destination != rank->rank || (p->kind == HEC_TEST_SUMS && summed++ > 0))
      continue;
    if (!edge_is_right(p, e, &l->block[e]))
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
static hec_status step(hec_rank *rank, const hec_transport_case *c, lane_state *l, int32_t number, uint64_t *own) {
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

static hec_status run_lanes(hec_rank *rank, const hec_transport_case *c, lane_state *lanes) {
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

hec_status hec_transport_case_run(hec_rank *rank, const hec_transport_case *c) {
  lane_state *lanes = hec_malloc(HEC_N_LANES, sizeof *lanes);
  memset(lanes, 0, HEC_N_LANES * sizeof *lanes);
  for (int32_t i = 0; i < HEC_N_LANES; i++) {
    lanes[i].bytes = (int64_t)rank->memory_bytes / HEC_N_LANES / 64 * 64;
    lanes[i].memory = rank->memory + i * lanes[i].bytes;
  }
  hec_status status = run_lanes(rank, c, lanes);
  free(lanes);
  return status == HEC_OK ? hec_rank_barrier(rank) : status;
}

hec_status hec_test_finish_post(hec_rank *rank, hec_post *post) {
  int64_t until = hec_clock_ns() + rank->limit_ns;
  HEC_TRY(rank->transport->start(rank, post));
  for (bool done = false; !done;) {
    HEC_TRY(rank->transport->test(rank, post, &done));
    if (hec_clock_ns() > until)
      return hec_rank_fail(rank, "waited %.3g s for rank %d", (double)rank->limit_ns * 1e-9,
                           post->n_receives > 0 ? post->receives[0].peer : post->sends[0].peer);
    if (!done)
      HEC_TRY(rank->transport->wait(rank, until));
  }
  return HEC_OK;
}
