/* See alltoallv.h. The program of an iteration, in two appended segments:
 *
 *     0 fill (compute lane) | own copy (compute lane), exchange (token lane) after it | look (compute lane) after both
 *
 * An operation that has nothing to do is left out. Pattern: word i of (s, d, iteration) has 23 bits of a mixed key,
 * with the sign and exponent of numbers in [1, 2). Devices copy floats, and these are never changed on the way as some
 * NaNs are.
 * A wrong byte passes with a chance of 2^-8, a wrong word of 2^-23. O(n^2 + bytes) per iteration. */
#include "runtime/exec/alltoallv.h"

#include "runtime/exec/exec_case.h"

#include <string.h>

enum { WORD = sizeof(float), BLOCK = 1 << 16, BREAKS = 0 };

typedef struct {
  const hec_alltoallv *job;
  const hec_exec_case *problem;
  double *seconds;            /* [iterations] shared */
  hec_alltoallv_check *check; /* shared */
} shared;

typedef struct {
  const hec_alltoallv *job;
  hec_rank *rank;
  hec_exec *exec;
  hec_program program;
  int32_t iteration;             /* warm-up and all */
  int32_t fill, own, move, look; /* operations; -1: left out */
  int64_t *send_at, *receive_at; /* [n + 1] bytes from the start of the buffer, by the other rank */
  char *send, *receive;
  uint32_t *block; /* [BLOCK] */
  hec_alltoallv_check found;
} runner;

static int64_t entry(const hec_traffic_matrix *m, int32_t s, int32_t d) {
  return m->bytes[(size_t)s * (size_t)m->n + (size_t)d];
}

static int64_t whole_words(int64_t bytes) {
  return (bytes + WORD - 1) / WORD * WORD;
}

/* Both buffers of a rank. */
static double buffers_of(const hec_traffic_matrix *m, int32_t rank) {
  double bytes = 0;
  for (int32_t p = 0; p < m->n; p++)
    bytes += (double)whole_words(entry(m, rank, p)) + (double)whole_words(entry(m, p, rank));
  return bytes;
}

double hec_alltoallv_bytes(const hec_traffic_matrix *matrix, double *max) {
  double sum = 0;
  *max = 0;
  for (int32_t r = 0; r < matrix->n; r++) {
    double bytes = buffers_of(matrix, r);
    *max = bytes > *max ? bytes : *max;
    sum += bytes;
  }
  return sum;
}

int64_t hec_alltoallv_rounded(const hec_traffic_matrix *matrix) {
  int64_t sum = 0;
  for (size_t i = 0; i < (size_t)matrix->n * (size_t)matrix->n; i++)
    sum += whole_words(matrix->bytes[i]) - matrix->bytes[i];
  return sum;
}

/* ---- The pattern ---- */

/* Words first .. first + n - 1 of what s sends to d. */
static void write_pattern(uint32_t *to, int64_t first, int32_t n, int32_t s, int32_t d, int32_t iteration) {
  uint32_t key = (uint32_t)s * 0x9e3779b1U ^ ((uint32_t)d + 1) * 0x85ebca77U ^ ((uint32_t)iteration + 1) * 0xc2b2ae3dU;
  for (int32_t i = 0; i < n; i++) {
    uint32_t x = key + (uint32_t)(first + i) * 0x27d4eb2fU;
    x = (x ^ x >> 15) * 0x2c1b3c6dU;
    x = (x ^ x >> 12) * 0x297a2d39U;
    to[i] = ((x ^ x >> 15) & 0x007fffffU) | 0x3f800000U;
  }
}

/* The last iteration on the rank that tests break. */
static bool breaks(const runner *r, hec_alltoallv_fault fault) {
  return r->job->fault == fault && r->rank->rank == BREAKS && r->iteration == r->job->warmup + r->job->iterations - 1;
}

static void fill(const runner *r) {
  hec_processor *on = r->rank->processor;
  const hec_traffic_matrix *m = r->job->matrix;
  int32_t me = r->rank->rank, n = m->n;
  if (breaks(r, HEC_ALLTOALLV_STALE))
    return;
  if (r->iteration == 0) /* pages are touched before anything is timed */
    on->math->zero(on, (float *)(void *)r->receive, r->receive_at[n] / WORD);
  for (int32_t d = 0; d < n; d++)
    for (int64_t at = 0, words = whole_words(entry(m, me, d)) / WORD; at < words; at += BLOCK) {
      int32_t some = (int32_t)(words - at < BLOCK ? words - at : BLOCK);
      write_pattern(r->block, at, some, me, d, r->iteration);
      if (breaks(r, HEC_ALLTOALLV_FLIPPED) && d == n - 1 && at + some == words)
        r->block[some - 1] ^= 1U << (8 * ((entry(m, me, d) - 1) % WORD));
      on->math->to_device(on, (float *)(void *)(r->send + r->send_at[d]) + at, (const float *)(const void *)r->block,
                          some);
    }
}

static void copy_own(const runner *r) {
  hec_processor *on = r->rank->processor;
  int32_t me = r->rank->rank;
  const hec_piece piece = {.to = (float *)(void *)(r->receive + r->receive_at[me]),
                           .from = (const float *)(const void *)(r->send + r->send_at[me]),
                           .n = whole_words(entry(r->job->matrix, me, me)) / WORD};
  if (!breaks(r, HEC_ALLTOALLV_NO_COPY))
    on->math->copy(on, &piece, 1);
}

static void compare(runner *r, const char *came, const char *wanted, int64_t n, int32_t source, int64_t offset) {
  r->found.compared += n;
  if (memcmp(came, wanted, (size_t)n) == 0)
    return;
  for (int64_t i = 0; i < n; i++) {
    if (came[i] == wanted[i])
      continue;
    if (r->found.wrong++ == 0) {
      r->found.rank = r->rank->rank;
      r->found.source = source;
      r->found.iteration = r->iteration;
      r->found.offset = offset + i;
    }
  }
}

static void look(runner *r) {
  hec_processor *on = r->rank->processor;
  const hec_traffic_matrix *m = r->job->matrix;
  uint32_t *wanted = r->block, *came = r->block + BLOCK;
  for (int32_t s = 0; s < m->n; s++) {
    int64_t bytes = entry(m, s, r->rank->rank), words = whole_words(bytes) / WORD;
    for (int64_t at = 0; at < words; at += BLOCK) {
      int32_t some = (int32_t)(words - at < BLOCK ? words - at : BLOCK);
      int64_t left = bytes - at * WORD, n = left < (int64_t)some * WORD ? left : (int64_t)some * WORD;
      write_pattern(wanted, at, some, s, r->rank->rank, r->iteration);
      on->math->to_host(on, (float *)(void *)came, (const float *)(const void *)(r->receive + r->receive_at[s]) + at,
                        some);
      compare(r, (const char *)came, (const char *)wanted, n, s, at * WORD);
    }
  }
}

/* ---- What the executor asks ---- */

static void bind(void *context, hec_exec *exec, hec_exec_op *op) {
  runner *r = context;
  int32_t me = r->rank->rank;
  if (op->id == r->fill) {
    r->send = hec_exec_tensor(exec, op, HEC_TENSOR_SEND);
    r->receive = hec_exec_tensor(exec, op, HEC_TENSOR_INPUT);
    op->n_steps = r->job->check || r->iteration == 0;
  } else {
    op->n_steps = op->id == r->own ? entry(r->job->matrix, me, me) > 0 : r->job->check;
  }
}

static void run(void *context, hec_exec *exec, hec_exec_op *op) {
  runner *r = context;
  (void)exec;
  if (op->id == r->fill)
    fill(r);
  else if (op->id == r->own)
    copy_own(r);
  else
    look(r);
}

/* Whose place a receive takes. */
static int32_t slot_of(const runner *r, int32_t source) {
  int32_t n = r->job->matrix->n;
  bool swapped = breaks(r, HEC_ALLTOALLV_EXCHANGED) && source >= n - 2;
  return swapped ? 2 * n - 3 - source : source;
}

static hec_segment place(void *context, hec_exec *exec, const hec_exec_op *op, const hec_transfer *t) {
  const runner *r = context;
  (void)exec, (void)op;
  bool sends = t->source == r->rank->rank;
  char *at = sends ? r->send + r->send_at[t->destination] : r->receive + r->receive_at[slot_of(r, t->source)];
  return (hec_segment){at, t->bytes};
}

/* ---- The program ---- */

static void add_hold(runner *r, hec_tensor tensor, bool received, int32_t last) {
  const hec_traffic_matrix *m = r->job->matrix;
  int32_t at = hec_program_local_bytes(&r->program, m->n);
  for (int32_t a = 0; a < m->n; a++)
    for (int32_t b = 0; b < m->n; b++)
      r->program.local_bytes[at + a] += (double)whole_words(received ? entry(m, b, a) : entry(m, a, b));
  (void)hec_program_hold(&r->program, (hec_hold){HEC_MEMORY_BUFFER, 0, 0, last, at, 1, tensor, 0, -1});
}

static int32_t add_local(runner *r, const int32_t *after, int32_t n) {
  return hec_program_add(&r->program, hec_exec_case_op(HEC_OP_LOCAL, HEC_LANE_COMPUTE, HEC_ROLE_PERMUTE), after, n);
}

/* Ascending by (source, destination). */
static int32_t add_transfers(runner *r) {
  hec_program *p = &r->program;
  const hec_traffic_matrix *m = r->job->matrix;
  size_t n = (size_t)m->n;
  HEC_RESERVE(p->transfers, p->transfers_capacity, n * n);
  for (int32_t s = 0; s < m->n; s++)
    for (int32_t d = 0; d < m->n; d++) {
      int64_t bytes = r->rank->link ? whole_words(entry(m, s, d)) : entry(m, s, d);
      if (s != d && bytes > 0)
        p->transfers[p->n_transfers++] =
            (hec_transfer){.bytes = bytes, .source = s, .destination = d, .item = -1, .after = -1};
    }
  return (int32_t)p->n_transfers;
}

static bool has_own(const hec_traffic_matrix *m) {
  for (int32_t p = 0; p < m->n; p++)
    if (entry(m, p, p) > 0)
      return true;
  return false;
}

static void begin_program(runner *r) {
  const hec_traffic_matrix *m = r->job->matrix;
  hec_program_clear(&r->program, m->n);
  hec_op op = hec_exec_case_op(HEC_OP_EXCHANGE, HEC_LANE_TOKEN, HEC_ROLE_DISPATCH);
  op.exchange.n_transfers = add_transfers(r);
  r->own = has_own(m) ? 1 : -1;
  r->move = op.exchange.n_transfers > 0 ? r->own < 0 ? 1 : 2 : -1;
  r->look = 1 + (r->own >= 0) + (r->move >= 0);
  add_hold(r, HEC_TENSOR_SEND, false, r->look);
  add_hold(r, HEC_TENSOR_INPUT, true, r->look);
  r->fill = add_local(r, NULL, 0);
}

static void add_timed(runner *r) {
  hec_op op = hec_exec_case_op(HEC_OP_EXCHANGE, HEC_LANE_TOKEN, HEC_ROLE_DISPATCH);
  op.exchange.n_transfers = (int32_t)r->program.n_transfers;
  if (r->own >= 0)
    (void)add_local(r, &r->fill, 1);
  if (r->move >= 0)
    (void)hec_program_add(&r->program, op, &r->fill, 1);
}

/* From the first begin to the last end of what moved bytes; 0: nothing did. */
static double seconds_of(const runner *r, const hec_timeline *t) {
  const hec_traffic_matrix *m = r->job->matrix;
  int64_t begin = INT64_MAX, end = 0;
  for (int32_t id = 1; id < r->look; id++)
    for (int32_t p = 0; p < m->n; p++) {
      size_t at = (size_t)id * (size_t)m->n + (size_t)p;
      if (t->begin_ps[at] < 0 || (id == r->own && entry(m, p, p) == 0))
        continue;
      begin = t->begin_ps[at] < begin ? t->begin_ps[at] : begin;
      end = t->end_ps[at] > end ? t->end_ps[at] : end;
    }
  return end > begin ? 1e-12 * (double)(end - begin) : 0;
}

/* *seconds on rank 0, *own_s on every rank. Time stamps count from the first start; the second is when all have filled. */
static hec_status iterate(runner *r, hec_timeline *timeline, double *seconds, double *own_s) {
  int64_t start_ns, filled_ns;
  hec_exec_restart(r->exec);
  HEC_TRY(hec_rank_start_together(r->rank, &start_ns));
  hec_exec_begin(r->exec, r->iteration, start_ns);
  begin_program(r);
  HEC_TRY(hec_exec_post(r->exec, &r->program));
  HEC_TRY(hec_exec_drain(r->exec));
  HEC_TRY(hec_rank_start_together(r->rank, &filled_ns));
  int64_t posted_ns = hec_clock_ns();
  add_timed(r);
  HEC_TRY(hec_exec_post(r->exec, &r->program));
  HEC_TRY(hec_exec_drain(r->exec));
  HEC_TRY(hec_rank_barrier(r->rank)); /* nobody looks while others still move */
  const int32_t after[2] = {r->own, r->move};
  int32_t looks = add_local(r, after, 2);
  HEC_ASSERT(looks == r->look);
  HEC_TRY(hec_exec_finish(r->exec, &r->program));
  HEC_TRY(hec_exec_timeline(r->exec, &r->program, timeline));
  *seconds = r->rank->rank == 0 ? seconds_of(r, timeline) : 0;
  int64_t end_ns = hec_exec_span_of(r->exec, 1, r->look).end_ns;
  *own_s = end_ns > posted_ns ? 1e-9 * (double)(end_ns - posted_ns) : 0;
  return HEC_OK;
}

/* ---- The launch ---- */

static void measure_places(runner *r, hec_arena *arena) {
  const hec_traffic_matrix *m = r->job->matrix;
  int32_t me = r->rank->rank;
  r->send_at = HEC_NEW(arena, int64_t, m->n + 1);
  r->receive_at = HEC_NEW(arena, int64_t, m->n + 1);
  for (int32_t p = 0; p < m->n; p++) {
    r->send_at[p + 1] = r->send_at[p] + whole_words(entry(m, me, p));
    r->receive_at[p + 1] = r->receive_at[p] + whole_words(entry(m, p, me));
  }
}

/* What all ranks found, on rank 0. */
static hec_status gather(const runner *r, hec_arena *arena, hec_alltoallv_check *sum) {
  int32_t n = r->rank->n_ranks;
  hec_alltoallv_check *all = HEC_NEW(arena, hec_alltoallv_check, n);
  HEC_TRY(hec_rank_gather(r->rank, &r->found, sizeof r->found, r->rank->rank == 0 ? all : NULL));
  hec_alltoallv_check first = {.rank = -1};
  for (int32_t p = 0; r->rank->rank == 0 && p < n; p++) {
    int64_t compared = first.compared + all[p].compared, wrong = first.wrong + all[p].wrong;
    if (all[p].wrong > 0 && (first.rank < 0 || all[p].iteration < first.iteration))
      first = all[p];
    first.compared = compared;
    first.wrong = wrong;
  }
  if (r->rank->rank == 0)
    *sum = first;
  return HEC_OK;
}

static hec_exec_options options_of(const hec_exec_case *c, hec_rank *rank, runner *r) {
  return (hec_exec_options){.problem = &c->problem,
                            .rank = rank,
                            .work = {.bind = bind, .run = run, .place = place, .context = r},
                            .n_slices = 1,
                            .expert_size = 16,
                            .n_micro_batches = 1};
}

static hec_status repeat(runner *r, double *all, double *own) {
  HEC_SCOPED(hec_timeline) timeline = {0};
  hec_status status = HEC_OK;
  for (int32_t i = -r->job->warmup; status == HEC_OK && i < r->job->iterations; i++, r->iteration++) {
    double seconds, own_s;
    status = iterate(r, &timeline, &seconds, &own_s);
    if (status == HEC_OK && i >= 0 && r->rank->rank == 0)
      all[i] = seconds;
    if (status == HEC_OK && i >= 0 && own)
      own[i] = own_s;
  }
  return status;
}

hec_status hec_alltoallv_on(const hec_alltoallv *job, const hec_exec_case *on, hec_rank *rank, double *seconds,
                            double *own, hec_alltoallv_check *check) {
  HEC_SCOPED(hec_arena) arena = {0};
  runner r = {.job = job, .rank = rank, .found = {.rank = -1}};
  r.block = HEC_NEW(&arena, uint32_t, 2 * BLOCK);
  measure_places(&r, &arena);
  hec_exec_options options = options_of(on, rank, &r);
  hec_status status = hec_exec_new(&options, &arena, &r.exec);
  if (status == HEC_OK)
    status = hec_exec_set_plan(r.exec, &on->plan, true);
  if (status == HEC_OK)
    status = repeat(&r, seconds, own);
  if (status == HEC_OK)
    status = gather(&r, &arena, check);
  hec_exec_free(r.exec);
  hec_program_free(&r.program);
  return status;
}

size_t hec_alltoallv_region(const hec_exec_case *on) {
  hec_exec_options options = options_of(on, NULL, NULL);
  return hec_exec_bytes(&options);
}

static hec_status body(hec_rank *rank, void *context) {
  const shared *s = context;
  return hec_alltoallv_on(s->job, s->problem, rank, s->seconds, NULL, s->check);
}

hec_status hec_alltoallv_run(const hec_alltoallv *job, const hec_backend *backend, hec_launch_options launch,
                             double *seconds, hec_alltoallv_check *check) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_exec_case problem;
  size_t bytes = (size_t)job->iterations * sizeof *seconds;
  shared s = {.job = job, .problem = &problem};
  HEC_TRY(hec_exec_case_make(job->matrix->n, &arena, &problem));
  s.seconds = hec_exec_case_share(bytes);
  s.check = hec_exec_case_share(sizeof *s.check);
  launch.n_ranks = job->matrix->n;
  launch.memory_bytes = hec_alltoallv_region(&problem);
  hec_status status = backend->launch(&launch, body, &s);
  if (status == HEC_OK && backend->speaks()) {
    memcpy(seconds, s.seconds, bytes);
    *check = *s.check;
  }
  return status;
}
