/* Posts cut into steps, on a model of what carries the groups out: a rank's groups one after the other, nothing buffered.
 * A piece moves when both its ends stand in the groups that their ranks have come to. All pieces of the pair before it
 * must have moved. A group ends when all its pieces have. Posts come from hec_stage_bind: chains that cross in every
 * way, and plain pairs. All must end, and everybody must have what belongs there. */
#include "runtime/exec/link/link_steps.h"
#include "runtime/exec/stage.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

enum { RANKS = 7, ITEMS = 9, FLOATS = 40, PARTS = 3, TRANSFERS_MAX = ITEMS * RANKS, GROUPS_MAX = 200 };

/* Every rank has room for every item; an item is the same list of segments at every rank. */
typedef struct {
  int32_t n_ranks, n_items, n_transfers, n_chunks;
  int64_t parts[ITEMS][PARTS]; /* bytes */
  hec_transfer transfers[TRANSFERS_MAX];
  float memory[RANKS][ITEMS][FLOATS];
} exchange;

typedef struct {
  hec_link_piece *pieces;
  bool *moved;
  size_t n;
} group;

typedef struct {
  hec_post post;
  group groups[GROUPS_MAX];
  int32_t n_groups, at;
} side;

static uint64_t seed;
static void setup(void) {
  seed = 5;
}
HEC_TEST_FIXTURE(setup, NULL)
static int32_t below(int32_t n) {
  return (int32_t)hec_test_below(&seed, (uint64_t)n);
}

/* ---- Exchanges ---- */

static void make_item(exchange *x, int32_t item) {
  int64_t left = FLOATS;
  for (int32_t i = 0; i < PARTS; i++) {
    int64_t n = i == 0 ? 1 + below(FLOATS / 2) : below((int32_t)left + 1);
    x->parts[item][i] = 4 * n;
    left -= n;
  }
}

static int64_t bytes_of(const exchange *x, int32_t item) {
  return x->parts[item][0] + x->parts[item][1] + x->parts[item][2];
}

/* The item from rank to rank, in a chain or a tree; or (plain) from one to some others. */
static void send_item(exchange *x, int32_t item, bool chained) {
  int32_t member[RANKS], transfer_to[RANKS];
  hec_test_shuffle(&seed, member, x->n_ranks);
  transfer_to[0] = -1;
  for (int32_t k = 1; k < x->n_ranks; k++) {
    int32_t parent = !chained ? 0 : below(4) ? k - 1 : below(k);
    transfer_to[k] = x->n_transfers;
    x->transfers[x->n_transfers++] = (hec_transfer){.bytes = bytes_of(x, item),
                                                    .source = member[parent],
                                                    .destination = member[k],
                                                    .item = item,
                                                    .after = transfer_to[parent]};
  }
}

static exchange *new_exchange(bool chained) {
  exchange *x = HEC_NEW(&arena, exchange, 1);
  x->n_ranks = 2 + below(RANKS - 1);
  x->n_items = 1 + below(ITEMS);
  x->n_chunks = chained ? 2 + below(8) : 1;
  for (int32_t i = 0; i < x->n_items; i++) {
    make_item(x, i);
    send_item(x, i, chained);
  }
  return x;
}

/* ---- A rank's groups ---- */

typedef struct {
  exchange *x;
  int32_t rank;
} segments_of;

static int32_t segments(void *context, int32_t k, hec_segment *out) {
  const segments_of *of = context;
  int32_t item = of->x->transfers[k].item;
  float *at = of->x->memory[of->rank][item];
  for (int32_t i = 0; i < PARTS; i++) {
    out[i] = (hec_segment){at, of->x->parts[item][i]};
    at += out[i].bytes / 4;
  }
  return PARTS;
}

static void bind(exchange *x, int32_t rank, side *s) {
  hec_piece *additions;
  int32_t n_additions;
  segments_of of = {x, rank};
  hec_stage stage = {.transfers = x->transfers,
                     .n_transfers = x->n_transfers,
                     .n_chunks = x->n_chunks,
                     .rank = rank,
                     .n_segments = PARTS * x->n_transfers,
                     .segments = segments,
                     .context = &of};
  hec_stage_bind(&stage, &arena, &s->post, &additions, &n_additions);
  HEC_SCOPED(hec_link_steps) steps = {0};
  hec_link_steps_begin(&steps, &s->post, &arena);
  while (hec_link_steps_next(&steps)) {
    ck_assert(s->n_groups < GROUPS_MAX && steps.n_pieces > 0);
    group *g = &s->groups[s->n_groups++];
    *g =
        (group){HEC_NEW(&arena, hec_link_piece, steps.n_pieces), HEC_NEW(&arena, bool, steps.n_pieces), steps.n_pieces};
    memcpy(g->pieces, steps.pieces, steps.n_pieces * sizeof *g->pieces);
  }
  ck_assert(!hec_link_steps_next(&steps));
}

/* ---- The model ---- */

/* The first piece of the group that has not moved and goes to (or comes from) the peer; NULL: none. */
static bool *first_of(const group *g, bool sends, int32_t peer, hec_link_piece *out) {
  for (size_t i = 0; i < g->n; i++)
    if (!g->moved[i] && g->pieces[i].sends == sends && g->pieces[i].peer == peer) {
      *out = g->pieces[i];
      return &g->moved[i];
    }
  return NULL;
}

static bool move_pair(side *sides, int32_t source, int32_t destination) {
  side *s = &sides[source], *d = &sides[destination];
  hec_link_piece from, to;
  if (s->at == s->n_groups || d->at == d->n_groups)
    return false;
  bool *sent = first_of(&s->groups[s->at], true, destination, &from);
  bool *received = first_of(&d->groups[d->at], false, source, &to);
  if (!sent || !received)
    return false;
  ck_assert_int_eq(from.n, to.n);
  memcpy(to.at, from.at, (size_t)to.n * sizeof *to.at);
  return *sent = *received = true;
}

static bool end_group(side *s) {
  if (s->at == s->n_groups)
    return false;
  const group *g = &s->groups[s->at];
  for (size_t i = 0; i < g->n; i++)
    if (!g->moved[i])
      return false;
  s->at++;
  return true;
}

/* False: nothing can move, and somebody is not through. */
static bool run(const exchange *x, side *sides) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t i = 0; i < x->n_ranks * x->n_ranks; i++)
      moved |= move_pair(sides, i / x->n_ranks, i % x->n_ranks);
    for (int32_t r = 0; r < x->n_ranks; r++)
      moved |= end_group(&sides[r]);
  }
  for (int32_t r = 0; r < x->n_ranks; r++)
    if (sides[r].at < sides[r].n_groups)
      return false;
  return true;
}

/* Who has an item at first: the source of its first transfer. */
static int32_t owner_of(const exchange *x, int32_t item) {
  int32_t k = 0;
  while (x->transfers[k].item != item)
    k++;
  return x->transfers[k].source;
}

static void fill(exchange *x) {
  for (int32_t item = 0; item < x->n_items; item++)
    for (int32_t i = 0; i < bytes_of(x, item) / 4; i++)
      x->memory[owner_of(x, item)][item][i] = (float)(item * 1000 + i + 1);
}

static void expect_everywhere(const exchange *x) {
  for (int32_t r = 0; r < x->n_ranks; r++)
    for (int32_t item = 0; item < x->n_items; item++)
      for (int32_t i = 0; i < FLOATS; i++)
        if (x->memory[r][item][i] != (i < bytes_of(x, item) / 4 ? (float)(item * 1000 + i + 1) : 0))
          ck_abort_msg("rank %d, item %d, number %d", r, item, i);
}

HEC_TEST_LOOP(random_exchanges_end, 2) {
  int longest = 0;
  for (int times = 0; times < 400; times++) {
    exchange *x = new_exchange(_i == 1);
    side *sides = HEC_NEW(&arena, side, RANKS);
    for (int32_t r = 0; r < x->n_ranks; r++) {
      bind(x, r, &sides[r]);
      longest = sides[r].n_groups > longest ? sides[r].n_groups : longest;
      ck_assert(_i == 1 || sides[r].n_groups <= 1);
    }
    fill(x);
    ck_assert_msg(run(x, sides), "time %d: the ranks wait for each other", times);
    expect_everywhere(x);
    hec_arena_free(&arena);
  }
  ck_assert(_i == 0 ? longest == 1 : longest >= 10);
}

/* 0 -> 1 -> 2 in 3 chunks of 8 bytes, two segments of 12: what rank 1 is given, in full. */
HEC_TEST(one_chain) {
  float at[6];
  const hec_segment cut[] = {{at, 12}, {at + 3, 12}};
  hec_message receive = {.peer = 0, .n_segments = 2, .segments = cut, .bytes = 24, .after = -1, .hop = 0};
  hec_message send = {.peer = 2, .n_segments = 2, .segments = cut, .bytes = 24, .after = 0, .hop = 1};
  hec_post post = {.sends = &send, .receives = &receive, .n_sends = 1, .n_receives = 1, .chunk_bytes = 8};
  static const struct {
    int32_t step;
    bool sends;
    int32_t first, n;
  } expected[] = {{0, false, 0, 2}, {1, true, 0, 2}, {1, false, 2, 1}, {1, false, 3, 1},
                  {2, true, 2, 1},  {2, true, 3, 1}, {2, false, 4, 2}, {3, true, 4, 2}};
  HEC_SCOPED(hec_link_steps) steps = {0};
  size_t k = 0;
  hec_link_steps_begin(&steps, &post, &arena);
  for (int32_t step = 0; hec_link_steps_next(&steps); step++)
    for (size_t i = 0; i < steps.n_pieces; i++, k++) {
      const hec_link_piece *p = &steps.pieces[i];
      ck_assert(k < sizeof expected / sizeof *expected && expected[k].step == step);
      ck_assert(p->sends == expected[k].sends && p->at == at + expected[k].first && p->n == expected[k].n &&
                p->peer == (p->sends ? 2 : 0));
    }
  ck_assert_uint_eq(k, sizeof expected / sizeof *expected);
}

/* ---- Hops of transfers ---- */

static int32_t one_segment(void *context, int32_t k, hec_segment *out) {
  const int64_t *bytes = context;
  (void)k;
  *out = (hec_segment){NULL, *bytes};
  return 1;
}

/* 0 -> 1 -> 2 -> 3, 1 -> 4, and 4 -> 0 of its own. */
HEC_TEST(hops) {
  const hec_transfer transfers[] = {
      {.bytes = 64, .source = 0, .destination = 1, .after = -1},
      {.bytes = 64, .source = 1, .destination = 2, .after = 0},
      {.bytes = 64, .source = 2, .destination = 3, .after = 1},
      {.bytes = 64, .source = 1, .destination = 4, .after = 0},
      {.bytes = 64, .source = 4, .destination = 0, .after = -1},
  };
  static const int32_t hop_of[] = {0, 1, 2, 1, 0};
  int64_t bytes = 64;
  int32_t n_ends = 0;
  for (int32_t r = 0; r < 5; r++) {
    hec_post post = {.lane = HEC_LANE_PARAM};
    hec_piece *additions;
    int32_t n_additions, next_send = 0, next_receive = 0;
    hec_stage stage = {.transfers = transfers,
                       .n_transfers = 5,
                       .n_chunks = 4,
                       .rank = r,
                       .n_segments = 5,
                       .segments = one_segment,
                       .context = &bytes};
    hec_stage_bind(&stage, &arena, &post, &additions, &n_additions);
    for (int32_t k = 0; k < 5; k++) {
      if (transfers[k].source != r && transfers[k].destination != r)
        continue;
      const hec_message *m = transfers[k].source == r ? &post.sends[next_send++] : &post.receives[next_receive++];
      ck_assert_int_eq(m->hop, hop_of[k]);
      ck_assert(transfers[k].source != r || (m->after >= 0) == (hop_of[k] > 0));
      n_ends++;
    }
    ck_assert(next_send == post.n_sends && next_receive == post.n_receives);
  }
  ck_assert_int_eq(n_ends, 10);
}
