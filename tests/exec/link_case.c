/* See link_case.h. */
#include "tests/exec/link_case.h"
#include "runtime/base/arena.h"
#include "tests/support/check_main.h"

#include <string.h>
#include <time.h>

static uint64_t state;

static int32_t below(int32_t n) {
  return (int32_t)hec_test_below(&state, (uint64_t)n);
}

/* ---- Programs ---- */

/* Cells of a rank that are neither sent nor received in the exchange so far. */
typedef struct {
  bool used[HEC_TEST_RANKS_MAX][HEC_TEST_CELLS];
} uses;

/* A free cell, then used; -1: none. */
static int32_t take(uses *u, int32_t rank) {
  int32_t first = below(HEC_TEST_CELLS);
  for (int32_t i = 0; i < HEC_TEST_CELLS; i++) {
    int32_t c = (first + i) % HEC_TEST_CELLS;
    if (u->used[rank][c])
      continue;
    u->used[rank][c] = true;
    return c;
  }
  return -1;
}

static void cut(hec_test_edge *e) {
  e->n_parts = 1 + below(HEC_TEST_SEGMENTS_MAX);
  for (int32_t i = 0; i < e->n_parts; i++)
    e->parts[i].n = i == 0 ? 1 + below(HEC_TEST_WIDTH) : below(HEC_TEST_WIDTH + 1);
}

static bool give_cells(uses *u, int32_t rank, hec_test_edge *e, bool source) {
  for (int32_t i = 0; i < e->n_parts; i++) {
    int32_t c = take(u, rank);
    if (c < 0)
      return false;
    *(source ? &e->parts[i].from : &e->parts[i].to) = c;
  }
  return true;
}

static void make_pairs(hec_test_step *s, int32_t n_ranks) {
  uses u = {0};
  for (int32_t source = 0; source < n_ranks; source++)
    for (int32_t destination = 0; destination < n_ranks; destination++) {
      hec_test_edge e = {.source = source, .destination = destination, .after = -1};
      if (source == destination || below(n_ranks) > 1 || s->n_edges == HEC_TEST_EDGES_MAX)
        continue;
      cut(&e);
      if (give_cells(&u, source, &e, true) && give_cells(&u, destination, &e, false))
        s->edges[s->n_edges++] = e;
    }
}

/* What is added goes where what another sends is added too: the order matters. Sources send what they like. */
static void make_sums(hec_test_step *s, int32_t n_ranks) {
  for (int32_t destination = 0; destination < n_ranks; destination++) {
    hec_test_edge like = {.destination = destination, .after = -1};
    cut(&like);
    for (int32_t i = 0; i < like.n_parts; i++)
      like.parts[i].to = below(HEC_TEST_CELLS / 2);
    for (int32_t source = 0; source < n_ranks; source++) {
      hec_test_edge e = like;
      if (source == destination || below(3) == 0 || s->n_edges == HEC_TEST_EDGES_MAX)
        continue;
      e.source = source;
      for (int32_t i = 0; i < e.n_parts; i++)
        e.parts[i].from = HEC_TEST_CELLS / 2 + below(HEC_TEST_CELLS / 2);
      s->edges[s->n_edges++] = e;
    }
  }
}

/* Trees over some ranks: who has it sends it on, from where it came to stand. */
static void make_trees(hec_test_step *s, int32_t n_ranks) {
  uses u = {0};
  for (int32_t n = 1 + below(3); n > 0; n--) {
    int32_t member[HEC_TEST_RANKS_MAX], edge_of[HEC_TEST_RANKS_MAX], n_members = 1;
    hec_test_edge like = {0};
    cut(&like);
    member[0] = below(n_ranks);
    edge_of[0] = -1;
    if (!give_cells(&u, member[0], &like, true))
      return;
    for (int32_t k = 1; k < n_ranks; k++) {
      int32_t parent = below(3) ? n_members - 1 : below(n_members), up = edge_of[parent];
      hec_test_edge e = like;
      e.source = member[parent];
      e.destination = (member[0] + k) % n_ranks;
      e.after = up;
      e.hop = up < 0 ? 0 : s->edges[up].hop + 1;
      for (int32_t i = 0; up >= 0 && i < e.n_parts; i++)
        e.parts[i].from = s->edges[up].parts[i].to;
      if (s->n_edges == HEC_TEST_EDGES_MAX || !give_cells(&u, e.destination, &e, false))
        return;
      member[n_members] = e.destination;
      edge_of[n_members++] = s->n_edges;
      s->edges[s->n_edges++] = e;
    }
  }
}

/* Half of the ranks write over what they have sent, at once. */
static void overwrite(hec_test_program *p, const hec_test_step *exchange) {
  for (int32_t i = 0; i < exchange->n_edges && p->n_steps < HEC_TEST_N_STEPS; i++)
    if (below(2))
      p->steps[p->n_steps++] = (hec_test_step){.kind = HEC_TEST_COMPUTE,
                                               .rank = exchange->edges[i].source,
                                               .lane = exchange->lane,
                                               .to = exchange->edges[i].parts[0].from,
                                               .from = below(HEC_TEST_CELLS)};
}

static void make_step(hec_test_program *p) {
  hec_test_step *s = &p->steps[p->n_steps++];
  *s = (hec_test_step){.kind = (hec_test_kind)below(HEC_TEST_N_KINDS), .rank = below(p->n_ranks)};
  if (s->kind == HEC_TEST_RESTART && below(4))
    s->kind = HEC_TEST_PLAIN;
  if (s->kind == HEC_TEST_ADDING && !p->adds)
    s->kind = HEC_TEST_CHAINED;
  s->lane = s->kind == HEC_TEST_COMPUTE ? below(HEC_N_LANES) : HEC_LANE_TOKEN + below(HEC_N_LANES - HEC_LANE_TOKEN);
  s->other = (s->lane + 1 + below(HEC_N_LANES - 1)) % HEC_N_LANES;
  s->to = below(HEC_TEST_CELLS);
  s->from = below(HEC_TEST_CELLS);
  if (s->kind == HEC_TEST_PLAIN)
    make_pairs(s, p->n_ranks);
  else if (s->kind == HEC_TEST_ADDING)
    make_sums(s, p->n_ranks);
  else if (s->kind == HEC_TEST_CHAINED)
    make_trees(s, p->n_ranks);
  if (s->n_edges > 0)
    overwrite(p, s);
}

static void fill(hec_test_memory *m) {
  float *all = &m->cell[0][0][0];
  for (size_t i = 0; i < sizeof *m / sizeof *all; i++)
    all[i] = (float)(hec_test_uniform(&state) - 0.5);
}

/* ---- The oracle ---- */

static void compute(hec_processor *on, float *to, const float *from) {
  if (to != from)
    on->math->add(on, &(hec_piece){to, from, HEC_TEST_WIDTH}, 1);
  on->math->scale(on, to, 0.75F, HEC_TEST_WIDTH);
}

/* What one edge brings. `seen`: the memory of its source, before the exchange unless it forwards. */
static void apply(hec_test_program *p, const hec_test_step *s, const hec_test_edge *e, const hec_test_memory *seen) {
  for (int32_t i = 0; i < e->n_parts; i++) {
    float *to = p->end[e->destination].cell[s->lane][e->parts[i].to];
    const float *from = seen->cell[s->lane][e->parts[i].from];
    for (int32_t k = 0; k < e->parts[i].n; k++)
      to[k] = s->kind == HEC_TEST_ADDING ? to[k] + from[k] : from[k];
  }
}

static void apply_all(hec_test_program *p, const hec_test_step *s) {
  static hec_test_memory before[HEC_TEST_RANKS_MAX];
  memcpy(before, p->end, sizeof before);
  for (int32_t i = 0; i < s->n_edges; i++)
    apply(p, s, &s->edges[i], (s->edges[i].after < 0 ? before : p->end) + s->edges[i].source);
}

static void run_oracle(hec_test_program *p) {
  memcpy(p->end, p->begin, sizeof p->end);
  for (const hec_test_step *s = p->steps; s < p->steps + p->n_steps; s++) {
    hec_test_memory *m = &p->end[s->rank];
    if (s->kind == HEC_TEST_COMPUTE)
      compute(&hec_processor_cpu, m->cell[s->lane][s->to], m->cell[s->lane][s->from]);
    else if (s->kind == HEC_TEST_ACROSS)
      compute(&hec_processor_cpu, m->cell[s->lane][s->to], m->cell[s->other][s->from]);
    else
      apply_all(p, s);
  }
}

hec_test_program *hec_test_program_new(uint64_t seed, int32_t n_ranks, bool adds) {
  hec_test_program *p = hec_malloc(1, sizeof *p);
  *p = (hec_test_program){
      .seed = seed, .n_ranks = n_ranks, .adds = adds, .steps = hec_malloc(HEC_TEST_N_STEPS, sizeof(hec_test_step))};
  state = seed * 1000 + (uint64_t)n_ranks;
  for (int32_t r = 0; r < n_ranks; r++)
    fill(&p->begin[r]);
  while (p->n_steps < HEC_TEST_N_STEPS)
    make_step(p);
  run_oracle(p);
  return p;
}

void hec_test_program_free(hec_test_program *p) {
  free(p->steps);
  free(p);
}

/* ---- One rank ---- */

/* A post with its lists, in one block. */
typedef struct {
  hec_post post;
  hec_message sends[HEC_TEST_EDGES_MAX], receives[HEC_TEST_EDGES_MAX];
  hec_segment segments[2 * HEC_TEST_EDGES_MAX][HEC_TEST_SEGMENTS_MAX];
} own_post;

static hec_message message_of(own_post *x, hec_test_memory *m, const hec_test_step *s, const hec_test_edge *e,
                              bool sends) {
  hec_segment *segments = x->segments[x->post.n_sends + x->post.n_receives];
  int64_t bytes = 0;
  for (int32_t i = 0; i < e->n_parts; i++) {
    const hec_test_part *at = &e->parts[i];
    segments[i] = (hec_segment){m->cell[s->lane][sends ? at->from : at->to], at->n * (int64_t)sizeof(float)};
    bytes += segments[i].bytes;
  }
  return (hec_message){.peer = sends ? e->destination : e->source,
                       .n_segments = e->n_parts,
                       .segments = segments,
                       .bytes = bytes,
                       .after = -1,
                       .hop = e->hop};
}

static own_post *new_post(const hec_test_step *s, int32_t rank, hec_test_memory *m) {
  int32_t receive_of[HEC_TEST_EDGES_MAX];
  own_post *x = hec_malloc(1, sizeof *x);
  *x = (own_post){.post = {.lane = s->lane,
                           .sends = x->sends,
                           .receives = x->receives,
                           .chunk_bytes = s->kind == HEC_TEST_CHAINED ? 8 : 0,
                           .add = s->kind == HEC_TEST_ADDING}};
  for (int32_t i = 0; i < s->n_edges; i++) {
    const hec_test_edge *e = &s->edges[i];
    if (e->destination == rank) {
      receive_of[i] = x->post.n_receives;
      x->receives[x->post.n_receives] = message_of(x, m, s, e, false);
      x->post.n_receives++;
    } else if (e->source == rank) {
      hec_message send = message_of(x, m, s, e, true);
      send.after = e->after < 0 ? -1 : receive_of[e->after];
      x->sends[x->post.n_sends++] = send;
    }
  }
  return x;
}

static hec_status exchange(hec_rank *rank, hec_test_memory *m, const hec_test_step *s) {
  own_post *x = new_post(s, rank->rank, m);
  hec_status status = rank->link->exchange(rank, &x->post);
  bool whole = true;
  for (int32_t i = 0; i < x->post.n_receives; i++)
    whole = whole && x->receives[i].moved == x->receives[i].bytes;
  memset(x, 0x5A, sizeof *x);
  free(x);
  return status != HEC_OK || whole ? status : hec_rank_fail(rank, "an exchange that has not moved everything");
}

/* Stream a goes on when b has come so far. */
static void order(hec_processor *on, int32_t a, int32_t b) {
  on->streams->select(on, b);
  const hec_event *event = on->streams->mark(on);
  on->streams->select(on, a);
  on->streams->after(on, event);
}

static hec_status run_step(hec_rank *rank, hec_test_memory *m, const hec_test_step *s) {
  hec_processor *on = rank->processor;
  bool mine = s->rank == rank->rank;
  if (mine && s->kind == HEC_TEST_RESTART)
    on->streams->restart(on);
  if (s->kind == HEC_TEST_RESTART)
    return HEC_OK;
  if (s->kind == HEC_TEST_ACROSS && mine)
    order(on, s->lane, s->other);
  on->streams->select(on, s->lane);
  if (s->kind != HEC_TEST_COMPUTE && s->kind != HEC_TEST_ACROSS)
    return exchange(rank, m, s);
  if (mine)
    compute(on, m->cell[s->lane][s->to], m->cell[s->kind == HEC_TEST_ACROSS ? s->other : s->lane][s->from]);
  if (mine && s->kind == HEC_TEST_ACROSS)
    order(on, s->other, s->lane);
  return HEC_OK;
}

void hec_test_pause_ns(long ns) {
  (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

hec_status hec_test_program_run(hec_rank *rank, const hec_test_program *p) {
  uint64_t own = p->seed * 31 + (uint64_t)rank->rank;
  hec_test_memory *m = (hec_test_memory *)(void *)rank->memory;
  hec_processor *on = rank->processor;
  on->math->to_device(on, &m->cell[0][0][0], &p->begin[rank->rank].cell[0][0][0], sizeof *m / sizeof(float));
  on->streams->restart(on);
  for (int32_t i = 0; i < p->n_steps; i++) {
    HEC_TRY(run_step(rank, m, &p->steps[i]));
    if (hec_test_below(&own, 16) == 0)
      hec_test_pause_ns(20000);
    if (hec_test_below(&own, 8) == 0)
      (void)on->streams->reached(on, on->streams->mark(on));
  }
  on->streams->restart(on);
  hec_test_memory *now = hec_malloc(1, sizeof *now);
  on->math->to_host(on, &now->cell[0][0][0], &m->cell[0][0][0], sizeof *m / sizeof(float));
  bool right = memcmp(&now->cell[0][0][0], &p->end[rank->rank].cell[0][0][0], sizeof *m) == 0;
  free(now);
  HEC_TRY(hec_rank_barrier(rank));
  const char *error = on->streams->error(on);
  if (error)
    return hec_rank_fail(rank, "the device failed: %s", error);
  return right ? HEC_OK : hec_rank_fail(rank, "wrong numbers with seed %d", (int)p->seed);
}

/* ---- Round the circle ---- */

const hec_test_fault hec_test_good = {.absent = -1, .bytes = {{64, 64}, {64, 64}, {64, 64}}};

hec_status hec_test_circle(hec_rank *rank, const hec_test_fault *f) {
  int32_t n = rank->n_ranks, next = (rank->rank + 1) % n, before = (rank->rank + n - 1) % n;
  hec_segment *segments = hec_malloc(4, sizeof *segments);
  for (int32_t i = 0; i < 4; i++)
    segments[i] = (hec_segment){rank->memory + (size_t)1024 * (size_t)i, i < 2 ? f->bytes[rank->rank][i] : 64};
  int64_t bytes = segments[0].bytes + segments[1].bytes;
  hec_message send = {.peer = next, .n_segments = 2, .segments = segments, .bytes = bytes, .after = -1};
  hec_message receive = {.peer = before, .n_segments = 2, .segments = segments + 2, .bytes = 128, .after = -1};
  hec_post post = {.lane = HEC_LANE_TOKEN, .sends = &send, .n_sends = 1, .receives = &receive, .n_receives = 1};
  hec_status status = rank->link->exchange(rank, &post);
  memset(segments, 0x5A, 4 * sizeof *segments);
  free(segments);
  return status;
}
