/* Links between devices. Random programs run on 2 to 8 ranks whose devices carry calls out late and in the worst order
 * (queued_cpu.h): computing, exchanges of every kind on all lanes, memory written over right behind an exchange, memory
 * that goes from lane to lane, restarts. The oracle runs the same program step by step on plain arrays; all bytes must be
 * equal. Posts are gone as soon as the call returns. Then everything that can go wrong. */
#include "runtime/base/arena.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/device_link.h"
#include "runtime/exec/stage.h"
#include "tests/exec/launch_case.h"
#include "tests/support/check_main.h"
#include "tests/support/queued_cpu.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CELLS = 24, WIDTH = 6, N_STEPS = 70, EDGES_MOST = 48, SEGMENTS_MOST = 3, RANKS_MOST = 8 };

/* The memory of one rank: cells of every lane. */
typedef struct {
  float cell[HEC_N_LANES][CELLS][WIDTH];
} memory;

typedef struct {
  int32_t from, to, n; /* cells; n floats of them, perhaps none */
} part;

typedef struct {
  int32_t source, destination, n_parts;
  part parts[SEGMENTS_MOST];
  int32_t after, hop; /* edge that this one forwards, -1: none */
} edge;

typedef enum { COMPUTE, ACROSS, PLAIN, ADDING, CHAINED, RESTART, N_KINDS } kind;

typedef struct {
  kind kind;
  int32_t rank; /* COMPUTE, ACROSS, RESTART */
  int32_t lane, other, to, from;
  int32_t n_edges;
  edge edges[EDGES_MOST];
} step;

typedef struct {
  uint64_t seed;
  int32_t n_ranks, n_steps;
  bool adds; /* the link can add while it receives */
  step *steps;
  memory begin[RANKS_MOST], end[RANKS_MOST];
} program;

static uint64_t state;

static int32_t below(int32_t n) {
  return (int32_t)hec_test_below(&state, (uint64_t)n);
}

/* ---- Programs ---- */

/* Cells of a rank that are neither sent nor received in the exchange so far. */
typedef struct {
  bool used[RANKS_MOST][CELLS];
} uses;

/* A free cell, then used; -1: none. */
static int32_t take(uses *u, int32_t rank) {
  int32_t first = below(CELLS);
  for (int32_t i = 0; i < CELLS; i++) {
    int32_t c = (first + i) % CELLS;
    if (u->used[rank][c])
      continue;
    u->used[rank][c] = true;
    return c;
  }
  return -1;
}

static void cut(edge *e) {
  e->n_parts = 1 + below(SEGMENTS_MOST);
  for (int32_t i = 0; i < e->n_parts; i++)
    e->parts[i].n = i == 0 ? 1 + below(WIDTH) : below(WIDTH + 1);
}

static bool give_cells(uses *u, int32_t rank, edge *e, bool source) {
  for (int32_t i = 0; i < e->n_parts; i++) {
    int32_t c = take(u, rank);
    if (c < 0)
      return false;
    *(source ? &e->parts[i].from : &e->parts[i].to) = c;
  }
  return true;
}

static void make_pairs(step *s, int32_t n_ranks) {
  uses u = {0};
  for (int32_t source = 0; source < n_ranks; source++)
    for (int32_t destination = 0; destination < n_ranks; destination++) {
      edge e = {.source = source, .destination = destination, .after = -1};
      if (source == destination || below(n_ranks) > 1 || s->n_edges == EDGES_MOST)
        continue;
      cut(&e);
      if (give_cells(&u, source, &e, true) && give_cells(&u, destination, &e, false))
        s->edges[s->n_edges++] = e;
    }
}

/* What is added goes where what another sends is added too: the order matters. Sources send what they like. */
static void make_sums(step *s, int32_t n_ranks) {
  for (int32_t destination = 0; destination < n_ranks; destination++) {
    edge like = {.destination = destination, .after = -1};
    cut(&like);
    for (int32_t i = 0; i < like.n_parts; i++)
      like.parts[i].to = below(CELLS / 2);
    for (int32_t source = 0; source < n_ranks; source++) {
      edge e = like;
      if (source == destination || below(3) == 0 || s->n_edges == EDGES_MOST)
        continue;
      e.source = source;
      for (int32_t i = 0; i < e.n_parts; i++)
        e.parts[i].from = CELLS / 2 + below(CELLS / 2);
      s->edges[s->n_edges++] = e;
    }
  }
}

/* Trees over some ranks: who has it sends it on, from where it came to stand. */
static void make_trees(step *s, int32_t n_ranks) {
  uses u = {0};
  for (int32_t n = 1 + below(3); n > 0; n--) {
    int32_t member[RANKS_MOST], edge_of[RANKS_MOST], n_members = 1;
    edge like = {0};
    cut(&like);
    member[0] = below(n_ranks);
    edge_of[0] = -1;
    if (!give_cells(&u, member[0], &like, true))
      return;
    for (int32_t k = 1; k < n_ranks; k++) {
      int32_t parent = below(3) ? n_members - 1 : below(n_members), up = edge_of[parent];
      edge e = like;
      e.source = member[parent];
      e.destination = (member[0] + k) % n_ranks;
      e.after = up;
      e.hop = up < 0 ? 0 : s->edges[up].hop + 1;
      for (int32_t i = 0; up >= 0 && i < e.n_parts; i++)
        e.parts[i].from = s->edges[up].parts[i].to;
      if (s->n_edges == EDGES_MOST || !give_cells(&u, e.destination, &e, false))
        return;
      member[n_members] = e.destination;
      edge_of[n_members++] = s->n_edges;
      s->edges[s->n_edges++] = e;
    }
  }
}

/* Half of the ranks write over what they have sent, at once. */
static void overwrite(program *p, const step *exchange) {
  for (int32_t i = 0; i < exchange->n_edges && p->n_steps < N_STEPS; i++)
    if (below(2))
      p->steps[p->n_steps++] = (step){.kind = COMPUTE,
                                      .rank = exchange->edges[i].source,
                                      .lane = exchange->lane,
                                      .to = exchange->edges[i].parts[0].from,
                                      .from = below(CELLS)};
}

static void make_step(program *p) {
  step *s = &p->steps[p->n_steps++];
  *s = (step){.kind = (kind)below(N_KINDS), .rank = below(p->n_ranks)};
  if (s->kind == RESTART && below(4))
    s->kind = PLAIN;
  if (s->kind == ADDING && !p->adds)
    s->kind = CHAINED;
  s->lane = s->kind == COMPUTE ? below(HEC_N_LANES) : HEC_LANE_TOKEN + below(HEC_N_LANES - HEC_LANE_TOKEN);
  s->other = (s->lane + 1 + below(HEC_N_LANES - 1)) % HEC_N_LANES;
  s->to = below(CELLS);
  s->from = below(CELLS);
  if (s->kind == PLAIN)
    make_pairs(s, p->n_ranks);
  else if (s->kind == ADDING)
    make_sums(s, p->n_ranks);
  else if (s->kind == CHAINED)
    make_trees(s, p->n_ranks);
  if (s->n_edges > 0)
    overwrite(p, s);
}

static void fill(memory *m) {
  float *all = &m->cell[0][0][0];
  for (size_t i = 0; i < sizeof *m / sizeof *all; i++)
    all[i] = (float)(hec_test_uniform(&state) - 0.5);
}

/* ---- The oracle ---- */

static void compute(hec_processor *on, float *to, const float *from) {
  if (to != from)
    on->math->add(on, &(hec_piece){to, from, WIDTH}, 1);
  on->math->scale(on, to, 0.75F, WIDTH);
}

/* What one edge brings. `seen`: the memory of its source, before the exchange unless it forwards. */
static void apply(program *p, const step *s, const edge *e, const memory *seen) {
  for (int32_t i = 0; i < e->n_parts; i++) {
    float *to = p->end[e->destination].cell[s->lane][e->parts[i].to];
    const float *from = seen->cell[s->lane][e->parts[i].from];
    for (int32_t k = 0; k < e->parts[i].n; k++)
      to[k] = s->kind == ADDING ? to[k] + from[k] : from[k];
  }
}

static void apply_all(program *p, const step *s) {
  static memory before[RANKS_MOST];
  memcpy(before, p->end, sizeof before);
  for (int32_t i = 0; i < s->n_edges; i++)
    apply(p, s, &s->edges[i], (s->edges[i].after < 0 ? before : p->end) + s->edges[i].source);
}

static void run_oracle(program *p) {
  memcpy(p->end, p->begin, sizeof p->end);
  for (const step *s = p->steps; s < p->steps + p->n_steps; s++) {
    memory *m = &p->end[s->rank];
    if (s->kind == COMPUTE)
      compute(&hec_processor_cpu, m->cell[s->lane][s->to], m->cell[s->lane][s->from]);
    else if (s->kind == ACROSS)
      compute(&hec_processor_cpu, m->cell[s->lane][s->to], m->cell[s->other][s->from]);
    else
      apply_all(p, s);
  }
}

static program *new_program(uint64_t seed, int32_t n_ranks, bool adds) {
  program *p = hec_malloc(1, sizeof *p);
  *p = (program){.seed = seed, .n_ranks = n_ranks, .adds = adds, .steps = hec_malloc(N_STEPS, sizeof(step))};
  state = seed * 1000 + (uint64_t)n_ranks;
  for (int32_t r = 0; r < n_ranks; r++)
    fill(&p->begin[r]);
  while (p->n_steps < N_STEPS)
    make_step(p);
  run_oracle(p);
  return p;
}

static void free_program(program *p) {
  free(p->steps);
  free(p);
}

/* ---- One rank ---- */

/* A post with its lists, in one block. */
typedef struct {
  hec_post post;
  hec_message sends[EDGES_MOST], receives[EDGES_MOST];
  hec_segment segments[2 * EDGES_MOST][SEGMENTS_MOST];
} own_post;

static hec_message message_of(own_post *x, memory *m, const step *s, const edge *e, bool sends) {
  hec_segment *segments = x->segments[x->post.n_sends + x->post.n_receives];
  int64_t bytes = 0;
  for (int32_t i = 0; i < e->n_parts; i++) {
    const part *at = &e->parts[i];
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

static own_post *new_post(const step *s, int32_t rank, memory *m) {
  int32_t receive_of[EDGES_MOST];
  own_post *x = hec_malloc(1, sizeof *x);
  *x = (own_post){.post = {.lane = s->lane,
                           .sends = x->sends,
                           .receives = x->receives,
                           .chunk_bytes = s->kind == CHAINED ? 8 : 0,
                           .add = s->kind == ADDING}};
  for (int32_t i = 0; i < s->n_edges; i++) {
    const edge *e = &s->edges[i];
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

static hec_status exchange(hec_rank *rank, memory *m, const step *s) {
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

static hec_status run_step(hec_rank *rank, memory *m, const step *s) {
  hec_processor *on = rank->processor;
  bool mine = s->rank == rank->rank;
  if (mine && s->kind == RESTART)
    on->streams->restart(on);
  if (s->kind == RESTART)
    return HEC_OK;
  if (s->kind == ACROSS && mine)
    order(on, s->lane, s->other);
  on->streams->select(on, s->lane);
  if (s->kind != COMPUTE && s->kind != ACROSS)
    return exchange(rank, m, s);
  if (mine)
    compute(on, m->cell[s->lane][s->to], m->cell[s->kind == ACROSS ? s->other : s->lane][s->from]);
  if (mine && s->kind == ACROSS)
    order(on, s->other, s->lane);
  return HEC_OK;
}

static void pause_ns(long ns) {
  (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static hec_status run_steps(hec_rank *rank, const program *p) {
  uint64_t own = p->seed * 31 + (uint64_t)rank->rank;
  memory *m = (memory *)(void *)rank->memory;
  hec_processor *on = rank->processor;
  on->math->to_device(on, &m->cell[0][0][0], &p->begin[rank->rank].cell[0][0][0], sizeof *m / sizeof(float));
  on->streams->restart(on);
  for (int32_t i = 0; i < p->n_steps; i++) {
    HEC_TRY(run_step(rank, m, &p->steps[i]));
    if (hec_test_below(&own, 16) == 0)
      pause_ns(20000);
    if (hec_test_below(&own, 8) == 0)
      (void)on->streams->reached(on, on->streams->mark(on));
  }
  on->streams->restart(on);
  memory *now = hec_malloc(1, sizeof *now);
  on->math->to_host(on, &now->cell[0][0][0], &m->cell[0][0][0], sizeof *m / sizeof(float));
  bool right = memcmp(now, &p->end[rank->rank], sizeof *m) == 0;
  free(now);
  HEC_TRY(hec_rank_barrier(rank));
  const char *error = on->streams->error(on);
  if (error)
    return hec_rank_fail(rank, "the device failed: %s", error);
  return right ? HEC_OK : hec_rank_fail(rank, "wrong numbers with seed %d", (int)p->seed);
}

typedef hec_status ranks_work(hec_rank *rank, void *context);

/* A rank with a device and a link; ends both in every case. */
static hec_status with_device(hec_rank *rank, ranks_work *work, void *context, uint64_t seed) {
  rank->processor = hec_queued_cpu_new(seed * 64 + (uint64_t)rank->rank);
  rank->link = &hec_device_link_local;
  hec_status status = rank->link->open(rank);
  if (status == HEC_OK)
    status = work(rank, context);
  rank->link->close(rank, status != HEC_OK);
  hec_queued_cpu_free(rank->processor);
  rank->processor = &hec_processor_cpu;
  return status;
}

static hec_status work_steps(hec_rank *rank, void *context) {
  rank->serial = ((const program *)context)->seed % 4 == 0; /* exchanges by turns */
  return run_steps(rank, context);
}
static hec_status run_program(hec_rank *rank, void *context) {
  return with_device(rank, work_steps, context, ((const program *)context)->seed);
}

static hec_launch_options link_options(int32_t n_ranks) {
  hec_launch_options options = hec_test_options(n_ranks, true);
  options.link = &hec_device_link_local;
  return options;
}

START_TEST(random_programs) {
  hec_math_open();
  for (uint64_t seed = 1; seed <= 10; seed++) {
    int32_t n_ranks = 2 + _i;
    program *p = new_program(seed, n_ranks, true);
    hec_launch_options options = link_options(n_ranks);
    hec_test_launch(&options, run_program, p);
    free_program(p);
  }
}
END_TEST

/* The programs hold what they should: every kind, forwarding over several hops, sums of several ranks, memory that is sent
 * and then written over. */
START_TEST(programs_hold_everything) {
  int n[N_KINDS] = {0}, far = 0, shared = 0;
  hec_math_open();
  for (uint64_t seed = 1; seed <= 10; seed++) {
    program *p = new_program(seed, 5, true);
    for (const step *s = p->steps; s < p->steps + p->n_steps; s++) {
      n[s->kind]++;
      for (int32_t i = 0; i < s->n_edges; i++) {
        far += s->edges[i].hop >= 2;
        shared += i > 0 && s->kind == ADDING && s->edges[i].destination == s->edges[i - 1].destination;
      }
    }
    free_program(p);
  }
  for (int k = 0; k < N_KINDS; k++)
    ck_assert_int_ge(n[k], 5);
  ck_assert(far > 20 && shared > 50);
}
END_TEST

/* ---- Backend nccl, on devices that are an imitation (tests/cuda/fake.h) ---- */

static hec_status run_on_backend(hec_rank *rank, void *context) {
  const program *p = context;
  if (!rank->link || !rank->processor->streams || rank->memory_bytes < sizeof(memory))
    return hec_rank_fail(rank, "the backend has not brought what it should");
  rank->serial = p->adds && p->seed % 4 == 0;
  return run_steps(rank, p);
}

/* False, and said once: it is not built. */
static bool imitate(const char *test, const char *n_devices) {
  if (access(HEC_BINARY_DIR "/fake/hecate-cuda.so", F_OK) != 0) {
    hec_test_skip(test, "the plug-in over the imitation is not built");
    return false;
  }
  (void)setenv("HECATE_PLUGINS", HEC_BINARY_DIR "/fake", 1);
  (void)setenv("FAKE_CUDA_DEVICES", n_devices, 1);
  hec_math_open();
  hec_text why = {0};
  ck_assert_msg(hec_backend_nccl.available(&why), "%s", why.data);
  hec_text_free(&why);
  return true;
}

static void launch_on_backend(const hec_device_link *link, uint64_t seed, int32_t n_ranks) {
  program *p = new_program(seed, n_ranks, link->adds);
  hec_launch_options options = hec_test_options(n_ranks, true);
  const hec_device_link *chosen;
  options.link = link;
  ck_assert_int_eq(hec_backend_nccl.link(link->name, n_ranks, &chosen), HEC_OK);
  ck_assert_ptr_eq(chosen, link);
  if (hec_backend_nccl.launch(&options, run_on_backend, p) != HEC_OK)
    ck_abort_msg("%s, seed %d: %s", link->name, (int)seed, hec_last_error());
  free_program(p);
}

START_TEST(programs_on_one_device) {
  if (imitate("exec.device_link/one_device", "1"))
    for (uint64_t seed = 1; seed <= 6; seed++)
      launch_on_backend(&hec_device_link_local, seed, 1 + (int32_t)seed);
}
END_TEST

START_TEST(programs_on_several_devices) {
  if (imitate("exec.device_link/several_devices", "3"))
    for (uint64_t seed = 1; seed <= 6; seed++)
      launch_on_backend(&hec_device_link_local, seed, 1 + (int32_t)seed);
}
END_TEST

START_TEST(programs_over_nccl) {
  if (imitate("exec.device_link/nccl", "8"))
    for (uint64_t seed = 1; seed <= 21; seed++)
      launch_on_backend(&hec_device_link_nccl, seed, 1 + (int32_t)seed % 8);
}
END_TEST

START_TEST(links_of_ranks_and_devices) {
  const hec_device_link *link;
  if (!imitate("exec.device_link/choice", "2"))
    return;
  ck_assert_int_eq(hec_backend_nccl.link(NULL, 2, &link), HEC_OK);
  ck_assert_ptr_eq(link, &hec_device_link_nccl);
  ck_assert_int_eq(hec_backend_nccl.link(NULL, 3, &link), HEC_OK);
  ck_assert_ptr_eq(link, &hec_device_link_local);
  ck_assert_int_eq(hec_backend_nccl.link("local", 2, &link), HEC_OK);
  ck_assert_ptr_eq(link, &hec_device_link_local);
  ck_assert_int_eq(hec_backend_nccl.link("nccl", 3, &link), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "--transport nccl: expected at most one rank to a device, found 3 ranks and 2 "
                                     "devices; local shares devices");
  ck_assert_int_eq(hec_backend_nccl.link("shm", 2, &link), HEC_BAD_INPUT);
}
END_TEST

/* ---- What goes wrong ---- */

/* Rank `absent` does something else instead of an exchange round the circle (every rank sends to the next). */
typedef struct {
  int32_t absent;
  bool fails;
  int64_t bytes[3]
               [2]; /* by rank: of its send's two segments; its receive's are those that the rank before should send */
} fault;

static hec_status circle(hec_rank *rank, const fault *f) {
  int32_t n = rank->n_ranks, next = (rank->rank + 1) % n, before = (rank->rank + n - 1) % n;
  hec_segment *segments = hec_malloc(4, sizeof *segments);
  for (int32_t i = 0; i < 4; i++)
    segments[i] = (hec_segment){rank->memory + 1024 * i, i < 2 ? f->bytes[rank->rank][i] : 64};
  int64_t bytes = segments[0].bytes + segments[1].bytes;
  hec_message send = {.peer = next, .n_segments = 2, .segments = segments, .bytes = bytes, .after = -1};
  hec_message receive = {.peer = before, .n_segments = 2, .segments = segments + 2, .bytes = 128, .after = -1};
  hec_post post = {.lane = HEC_LANE_TOKEN, .sends = &send, .n_sends = 1, .receives = &receive, .n_receives = 1};
  hec_status status = rank->link->exchange(rank, &post);
  memset(segments, 0x5A, 4 * sizeof *segments);
  free(segments);
  return status;
}

static hec_status work_fault(hec_rank *rank, void *context) {
  const fault *f = context;
  fault good = {.absent = -1, .bytes = {{64, 64}, {64, 64}, {64, 64}}};
  hec_test_at_dispatch(rank);
  for (int i = 0; i < 3; i++)
    HEC_TRY(circle(rank, &good));
  if (rank->rank == f->absent && f->fails)
    return hec_rank_fail(rank, "on purpose");
  if (rank->rank == f->absent) {
    while (hec_rank_check(rank) == HEC_OK)
      pause_ns(1000000);
    return HEC_FAILED;
  }
  HEC_TRY(circle(rank, f));
  return hec_rank_barrier(rank);
}
static hec_status run_fault(hec_rank *rank, void *context) {
  return with_device(rank, work_fault, context, 1);
}

static const char *launch_fault(fault *f) {
  hec_launch_options options = link_options(3);
  options.limit_s = f->fails ? 20 : 0.3;
  hec_math_open();
  return hec_test_launch_fails(&options, run_fault, f);
}

START_TEST(a_rank_that_never_comes) {
  fault f = {.absent = _i, .bytes = {{64, 64}, {64, 64}, {64, 64}}};
  char expected[64];
  int64_t begin_ns = hec_clock_ns();
  const char *text = launch_fault(&f);
  (void)snprintf(expected, sizeof expected, "waited 0.3 s for rank %d in an exchange between devices", _i);
  ck_assert_msg(strstr(text, expected) != NULL && strstr(text, HEC_TEST_DISPATCH) != NULL, "%s", text);
  ck_assert(hec_clock_ns() - begin_ns < 5000000000);
}
END_TEST

START_TEST(a_rank_that_fails) {
  fault f = {.absent = _i, .fails = true, .bytes = {{64, 64}, {64, 64}, {64, 64}}};
  char expected[128];
  int64_t begin_ns = hec_clock_ns();
  const char *text = launch_fault(&f);
  (void)snprintf(expected, sizeof expected, "rank %d, in " HEC_TEST_DISPATCH ": on purpose", _i);
  ck_assert_str_eq(text, expected);
  ck_assert(hec_clock_ns() - begin_ns < 5000000000);
}
END_TEST

/* One sends too much, too little, or the same in other segments; others are in the middle of an exchange with it. */
START_TEST(sizes_that_disagree) {
  static const struct {
    int64_t bytes[2];
    const char *says;
  } cases[] = {
      {{64, 60},
       "rank 0, in " HEC_TEST_DISPATCH ": rank 2 sends a message of another size than the 128 bytes expected "
       "on channel 1"},
      {{64, 68}, "rank 2 sends a message of another size than the 128 bytes expected on channel 1"},
      {{60, 68}, "rank 2 sends a message of 128 bytes in segments of other sizes than expected on channel 1"},
  };
  fault f = {.absent = -1, .fails = true, .bytes = {{64, 64}, {64, 64}, {cases[_i].bytes[0], cases[_i].bytes[1]}}};
  for (int times = 0; times < 20; times++) {
    const char *text = launch_fault(&f);
    ck_assert_msg(strstr(text, cases[_i].says) != NULL, "%s", text);
  }
}
END_TEST

/* ---- What goes wrong on devices ---- */

/* Until the device is through, as the executor waits for it. */
static hec_status wait_for_device(hec_rank *rank) {
  hec_processor *on = rank->processor;
  const hec_event *event = on->streams->mark(on);
  int64_t deadline_ns = hec_clock_ns() + rank->limit_ns;
  while (!on->streams->reached(on, event)) {
    HEC_TRY(hec_rank_check(rank));
    if (rank->link->check)
      HEC_TRY(rank->link->check(rank));
    if (hec_clock_ns() > deadline_ns)
      return hec_rank_fail(rank, "waited too long for the device");
    pause_ns(20000);
  }
  const char *error = on->streams->error(on);
  return error ? hec_rank_fail(rank, "the device failed: %s", error) : HEC_OK;
}

/* Circles over every lane and sums; one rank may fail in the middle. */
static hec_status run_circles(hec_rank *rank, void *context) {
  fault good = {.absent = -1, .bytes = {{64, 64}, {64, 64}, {64, 64}}};
  const fault *f = context;
  hec_test_at_dispatch(rank);
  for (int i = 0; i < 6; i++) {
    if (i == 3 && rank->rank == f->absent)
      return hec_rank_fail(rank, "on purpose");
    rank->processor->streams->select(rank->processor, HEC_LANE_TOKEN);
    HEC_TRY(circle(rank, &good));
    if (rank->link->allreduce)
      HEC_TRY(rank->link->allreduce(rank, HEC_LANE_TOKEN, (float *)(void *)rank->memory, 5));
    HEC_TRY(wait_for_device(rank));
  }
  return HEC_OK;
}

/* The text of the failure, NULL: all went well. It must come soon. */
static const char *circles_on_backend(const hec_device_link *link, int32_t absent) {
  fault f = {.absent = absent};
  hec_launch_options options = hec_test_options(3, true);
  int64_t begin_ns = hec_clock_ns();
  options.link = link;
  options.limit_s = 5;
  hec_status status = hec_backend_nccl.launch(&options, run_circles, &f);
  ck_assert(hec_clock_ns() - begin_ns < 9000000000);
  return status == HEC_OK ? NULL : hec_last_error();
}

/* The others wait on the device for messages that never come. */
START_TEST(a_rank_fails_on_a_device) {
  if (!imitate("exec.device_link/rank_fails", "3"))
    return;
  for (int i = 0; hec_device_links[i]; i++) {
    ck_assert_ptr_null(circles_on_backend(hec_device_links[i], -1));
    const char *text = circles_on_backend(hec_device_links[i], 1);
    ck_assert_msg(text && strcmp(text, "rank 1, in " HEC_TEST_DISPATCH ": on purpose") == 0, "%s", text);
  }
}
END_TEST

static const struct {
  const char *variable, *value, *says; /* says NULL: nothing need go wrong */
} breaks[] = {
    {"FAKE_NCCL_FAIL", "rank:1,after:9", "rank 1, in " HEC_TEST_DISPATCH ": NCCL, lane token: "},
    {"FAKE_NCCL_FAIL", "rank:2,after:1", "rank 2, in connecting the devices: NCCL, lane "},
    {"FAKE_CUDA_FAIL", "ncclGetUniqueId:2", "rank 0, in connecting the devices: NCCL, lane intra-node: "},
    {"FAKE_CUDA_FAIL", "ncclCommInitRank:5", "in connecting the devices: NCCL, lane intra-node: opening a com"},
    {"FAKE_CUDA_FAIL", "ncclSend:9", "NCCL, lane "},
    {"FAKE_CUDA_FAIL", "ncclRecv:30", "NCCL, lane "},
    {"FAKE_CUDA_FAIL", "ncclGroupEnd:20", "NCCL, lane "},
    {"FAKE_CUDA_FAIL", "ncclAllReduce:14", "NCCL, lane "},
    {"FAKE_CUDA_FAIL", "cudaMemGetInfo:2", ": the device's memory: "},
    {"FAKE_CUDA_FAIL", "cudaStreamCreate:8", "in opening the device: device "},
    {"FAKE_CUDA_FAIL", "cudaMalloc:2", "in opening the device: device "},
    {"FAKE_CUDA_FAIL", "cudaEventCreate:7", NULL},
    {"FAKE_CUDA_FAIL", "ncclCommFinalize:2", NULL},
    {"FAKE_CUDA_FAIL", "cudaStreamWaitEvent:3", NULL},
    {"FAKE_CUDA_FAIL", "launch:2", NULL},
};
enum { N_BREAKS = sizeof breaks / sizeof *breaks };

/* Whatever fails, every rank ends, and what is said names it. Over NCCL; from N_BREAKS on over local. */
START_TEST(calls_that_fail) {
  bool local = _i >= N_BREAKS;
  int k = _i % N_BREAKS;
  (void)setenv(breaks[k].variable, breaks[k].value, 1);
  if (!imitate("exec.device_link/calls_that_fail", "3"))
    return;
  const char *text = circles_on_backend(local ? &hec_device_link_local : &hec_device_link_nccl, -1);
  bool of_nccl = strstr(breaks[k].value, "nccl") || strstr(breaks[k].variable, "NCCL");
  ck_assert_msg(!local || !of_nccl || !text, "%s", text);
  if (breaks[k].says && !(local && of_nccl))
    ck_assert_msg(text && strstr(text, breaks[k].says), "%s=%s: %s", breaks[k].variable, breaks[k].value,
                  text ? text : "nothing went wrong");
}
END_TEST

/* A post without messages is nobody's business. */
static hec_status work_empty(hec_rank *rank, void *context) {
  hec_post post = {.lane = HEC_LANE_GRAD};
  (void)context;
  return rank->rank == 0 ? rank->link->exchange(rank, &post) : HEC_OK;
}
static hec_status run_empty(hec_rank *rank, void *context) {
  return with_device(rank, work_empty, context, 1);
}

START_TEST(an_empty_post) {
  hec_launch_options options = link_options(2);
  hec_test_launch(&options, run_empty, NULL);
}
END_TEST

/* A device that fails ends no host's exchange: the executor finds the error. */
static hec_status work_broken(hec_rank *rank, void *context) {
  fault good = {.absent = -1, .bytes = {{64, 64}, {64, 64}, {64, 64}}};
  (void)context;
  for (int i = 0; i < 5; i++) {
    if (i == 2 && rank->rank == 1)
      hec_queued_cpu_break(rank->processor, "out of order");
    HEC_TRY(circle(rank, &good));
  }
  rank->processor->streams->restart(rank->processor);
  if ((rank->processor->streams->error(rank->processor) != NULL) != (rank->rank == 1))
    return hec_rank_fail(rank, "an error of another device");
  return hec_rank_barrier(rank);
}
static hec_status run_broken(hec_rank *rank, void *context) {
  return with_device(rank, work_broken, context, 3);
}

START_TEST(a_broken_device) {
  hec_launch_options options = link_options(3);
  hec_math_open();
  hec_test_launch(&options, run_broken, NULL);
}
END_TEST

START_TEST(processes_are_refused) {
  hec_launch_options options = link_options(2);
  options.threads = false;
  ck_assert_int_eq(hec_launch(&options, run_empty, NULL), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "link local: its ranks are threads of one process");
}
END_TEST

/* ---- Hops of transfers ---- */

static int32_t one_segment(void *context, int32_t k, hec_segment *out) {
  const int64_t *bytes = context;
  (void)k;
  *out = (hec_segment){NULL, *bytes};
  return 1;
}

/* 0 -> 1 -> 2 -> 3, 1 -> 4, and 4 -> 0 of its own. */
START_TEST(hops) {
  const hec_transfer transfers[] = {
      {.bytes = 64, .source = 0, .destination = 1, .after = -1},
      {.bytes = 64, .source = 1, .destination = 2, .after = 0},
      {.bytes = 64, .source = 2, .destination = 3, .after = 1},
      {.bytes = 64, .source = 1, .destination = 4, .after = 0},
      {.bytes = 64, .source = 4, .destination = 0, .after = -1},
  };
  static const int32_t hop_of[] = {0, 1, 2, 1, 0};
  int64_t bytes = 64;
  hec_arena arena = {0};
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
  hec_arena_free(&arena);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("exec.device_link");
  TCase *c = tcase_create("device_link");
  tcase_set_timeout(c, 200);
  tcase_add_loop_test(c, random_programs, 0, RANKS_MOST - 1);
  tcase_add_test(c, programs_hold_everything);
  tcase_add_test(c, programs_on_one_device);
  tcase_add_test(c, programs_on_several_devices);
  tcase_add_test(c, programs_over_nccl);
  tcase_add_test(c, links_of_ranks_and_devices);
  tcase_add_loop_test(c, a_rank_that_never_comes, 0, 3);
  tcase_add_loop_test(c, a_rank_that_fails, 0, 3);
  tcase_add_loop_test(c, sizes_that_disagree, 0, 3);
  tcase_add_test(c, a_rank_fails_on_a_device);
  tcase_add_loop_test(c, calls_that_fail, 0, 2 * N_BREAKS);
  tcase_add_test(c, an_empty_post);
  tcase_add_test(c, a_broken_device);
  tcase_add_test(c, processes_are_refused);
  tcase_add_test(c, hops);
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
