/* Sparse collectives of the public interface. Random items against plain loops, by processes and by threads, every way,
 * on clusters of one and of several nodes. Buffers are inside and outside the region, gathers and scatters at once.
 * Mistakes: a code and a message, the run ends for all. */
#include "runtime/exec/launch/rank.h"
#include "runtime/exec/package/hecate.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

enum { RANKS_MAX = 8, ITEMS_MAX = 12, FLOATS_MAX = 3000, ROUNDS = 6, LIMIT_S = 100 };

static const char *const machines[] = {
    NULL, "1x8 nvlink=300G@2us flops=312T mem=40G", "2x4 nvlink=300G@2us nic=5G@5us flops=312T mem=40G",
    "4x2 nvlink=100G@1us nic=1G@50us flops=100T mem=32G", "8x1 nic=12G@5us flops=10T mem=32G"};
static const char *const ways[] = {NULL, "direct", "two_level", "chain"};

/* One round, the same on every rank. */
typedef struct {
  int32_t expert[ITEMS_MAX], owner[ITEMS_MAX], receiver_at[ITEMS_MAX + 1], receiver[ITEMS_MAX * RANKS_MAX];
  hec_sparse_items items;
  int32_t floats;
} round_case;

typedef struct {
  uint64_t seed;
  bool exact; /* whole numbers: any order of summation gives the same */
} job;

static void random_items(uint64_t *seed, int32_t ranks, round_case *c) {
  int32_t n = ranks > 1 ? (int32_t)hec_test_below(seed, ITEMS_MAX + 1) : 0, expert = 0;
  c->receiver_at[0] = 0;
  for (int32_t i = 0; i < n; i++) {
    int32_t at = c->receiver_at[i], dense = (int32_t)hec_test_below(seed, 3);
    c->expert[i] = expert += 1 + (int32_t)hec_test_below(seed, 3);
    c->owner[i] = (int32_t)hec_test_below(seed, (uint64_t)ranks);
    for (int32_t r = 0; r < ranks; r++)
      if (r != c->owner[i] && (dense == 2 || hec_test_below(seed, 2) == 0))
        c->receiver[at++] = r;
    if (at == c->receiver_at[i])
      c->receiver[at++] = c->owner[i] == 0 ? 1 : 0;
    c->receiver_at[i + 1] = at;
  }
  c->items = (hec_sparse_items){n, c->expert, c->owner, c->receiver_at, c->receiver};
  c->floats = hec_test_below(seed, 8) ? (int32_t)hec_test_below(seed, FLOATS_MAX) : 0;
}

static float value(const job *j, int32_t item, int32_t rank, int32_t k) {
  int32_t whole = (item * 31 + rank * 7 + k) % 997;
  return j->exact ? (float)whole : (float)whole * 0.37f + (float)(k % 11) * 1e-5f;
}

static bool takes_part(const round_case *c, int32_t i, int32_t rank) {
  bool part = c->owner[i] == rank;
  for (int32_t k = c->receiver_at[i]; k < c->receiver_at[i + 1]; k++)
    part = part || c->receiver[k] == rank;
  return part;
}

/* Owner's own, then the receivers ascending. */
static float sum_of(const job *j, const round_case *c, int32_t i, int32_t k) {
  float sum = value(j, i, c->owner[i], k);
  for (int32_t r = c->receiver_at[i]; r < c->receiver_at[i + 1]; r++)
    sum += value(j, i, c->receiver[r], k);
  return sum;
}

typedef struct {
  void *params[ITEMS_MAX];
  float *grads[ITEMS_MAX];
  float *inside[2 * ITEMS_MAX], *outside[2 * ITEMS_MAX];
} buffers;

static void fill(const job *j, const round_case *c, int32_t rank, uint64_t *own_seed, buffers *b) {
  for (int32_t i = 0; i < c->items.n_items; i++) {
    bool part = takes_part(c, i, rank);
    for (int32_t half = 0; half < 2; half++) {
      int32_t slot = 2 * i + half;
      float *at = hec_test_below(own_seed, 2) ? b->inside[slot] : b->outside[slot];
      for (int32_t k = 0; k < c->floats; k++)
        at[k] = half == 1 || c->owner[i] == rank ? value(j, i, rank, k) : -1;
      at[c->floats] = 12345; /* nothing is written behind */
      if (half == 0)
        b->params[i] = part ? at : NULL;
      else
        b->grads[i] = part ? at : NULL;
    }
  }
}

static int verify(const job *j, const round_case *c, hec_comm *comm, const buffers *b) {
  int32_t me = hec_comm_rank(comm);
  for (int32_t i = 0; i < c->items.n_items; i++) {
    if (!takes_part(c, i, me))
      continue;
    const float *params = b->params[i], *grads = b->grads[i];
    if (params[c->floats] != 12345 || grads[c->floats] != 12345)
      return hec_comm_fail(comm, "something was written behind a buffer");
    for (int32_t k = 0; k < c->floats; k++) {
      if (params[k] != value(j, i, c->owner[i], k))
        return hec_comm_fail(comm, "a gathered number differs");
      if (c->owner[i] == me && grads[k] != sum_of(j, c, i, k))
        return hec_comm_fail(comm, "a sum differs");
    }
  }
  return HECATE_OK;
}

#define TRY(call)                                                                                                      \
  do {                                                                                                                 \
    int code_ = (call);                                                                                                \
    if (code_ != HECATE_OK)                                                                                            \
      return code_;                                                                                                    \
  } while (0)

static int move(hec_comm *comm, const round_case *c, const buffers *b, int32_t how) {
  size_t bytes = (size_t)c->floats * sizeof(float);
  if (how == 0) {
    TRY(hec_sparse_all_gather(comm, &c->items, bytes, b->params));
    return hec_sparse_reduce_scatter(comm, &c->items, (size_t)c->floats, b->grads);
  }
  /* Both at once; ranks wait in different orders, some after looking. */
  int32_t first = (hec_comm_rank(comm) + how) % 2, done = 0;
  TRY(hec_sparse_all_gather_start(comm, &c->items, bytes, b->params));
  TRY(hec_sparse_reduce_scatter_start(comm, &c->items, (size_t)c->floats, b->grads));
  for (int32_t i = 0; i < 3; i++)
    TRY(hec_sparse_test(comm, first, &done));
  TRY(hec_sparse_wait(comm, first));
  TRY(hec_sparse_wait(comm, 1 - first));
  TRY(hec_sparse_test(comm, first, &done));
  return done ? HECATE_OK : hec_comm_fail(comm, "done is not done");
}

static int rounds(hec_comm *comm, void *context) {
  const job *j = context;
  int32_t me = hec_comm_rank(comm);
  uint64_t seed = j->seed, own_seed = j->seed + 1000 + (uint64_t)me;
  buffers b = {0};
  round_case *c = calloc(1, sizeof *c);
  size_t bytes = (FLOATS_MAX + 1) * sizeof(float);
  for (int32_t i = 0; i < 2 * ITEMS_MAX; i++) {
    b.inside[i] = hec_comm_alloc(comm, bytes);
    b.outside[i] = malloc(bytes);
    if (!b.inside[i] || !b.outside[i])
      return HECATE_FAILED;
  }
  int code = HECATE_OK;
  for (int32_t i = 0; i < ROUNDS && code == HECATE_OK; i++) {
    random_items(&seed, hec_comm_size(comm), c);
    fill(j, c, me, &own_seed, &b);
    code = move(comm, c, &b, i % 3);
    code = code == HECATE_OK ? verify(j, c, comm, &b) : code;
    code = code == HECATE_OK ? hec_comm_barrier(comm) : code; /* one_process: nobody reads my buffers any more */
  }
  for (int32_t i = 0; i < 2 * ITEMS_MAX; i++)
    free(b.outside[i]);
  free(c);
  return code;
}

static void run_rounds(uint64_t seed, bool threads) {
  hec_run_options o = hec_run_defaults(1 + (int32_t)hec_test_below(&seed, RANKS_MAX));
  o.threads = threads;
  o.cluster = machines[hec_test_below(&seed, sizeof machines / sizeof *machines)];
  o.collective = ways[hec_test_below(&seed, 4)];
  o.limit_s = LIMIT_S;
  o.memory_bytes = 1 << 20;
  job j = {seed, !o.collective || strcmp(o.collective, "direct") != 0};
  if (hec_run(&o, rounds, &j) != HECATE_OK)
    ck_abort_msg("%s (%d ranks on %s, %s)", hec_error(), o.n_ranks, o.cluster ? o.cluster : "one machine",
                 o.collective ? o.collective : "the cheapest");
}

HEC_TEST_LOOP(processes, hec_test_cases(60)) {
  run_rounds(500 + (uint64_t)_i, false);
}

HEC_TEST_LOOP(threads, hec_test_cases(60)) {
  run_rounds(900 + (uint64_t)_i, true);
}

/* ---- Mistakes ---- */

static int no_body(hec_comm *comm, void *context) {
  (void)context;
  return hec_comm_barrier(comm);
}

HEC_TEST(run_refuses) {
  hec_run_options good = hec_run_defaults(2), o;
#define WITH(field, value, words)                                                                                      \
  o = good;                                                                                                            \
  o.field = (value);                                                                                                   \
  ck_assert_int_eq(hec_run(&o, no_body, NULL), HECATE_BAD_INPUT);                                                      \
  ck_assert_msg(strstr(hec_error(), words) != NULL, "said: %s", hec_error());
  WITH(n_ranks, 0, "ranks: expected 1 to 256")
  WITH(n_ranks, -3, "ranks: expected 1 to 256")
  WITH(n_ranks, 257, "ranks: expected 1 to 256, found 257")
  WITH(backend, "abacus", "backend: expected one of cpu, mpi")
  WITH(backend, NULL, "found \"NULL\"")
  WITH(collective, "pigeon", "collective: expected")
  WITH(cluster, "1x1 nvlink=1G flops=1T mem=1G", "2 ranks do not fit")
  WITH(cluster, "no/such/file", "no/such/file")
  WITH(memory_bytes, SIZE_MAX, "memory_bytes")
  WITH(limit_s, -1, "limit_s")
#undef WITH
  ck_assert_int_eq(hec_run(&good, no_body, NULL), HECATE_OK);
}

/* What a wrong argument says, on every rank alike. */
typedef struct {
  int32_t n_items, expert[2], owner[2], receiver_at[3], receiver[4];
  bool no_buffers;
  const char *words;
} mistake;

static const mistake mistakes[] = {
    {1, {0}, {3}, {0, 1}, {1}, false, "owner from 0 to 2"},
    {1, {0}, {-1}, {0, 1}, {1}, false, "owner from 0 to 2"},
    {1, {0}, {0}, {0, 0}, {0}, false, "receivers"},
    {1, {0}, {0}, {1, 2}, {0, 1}, false, "receivers"},
    {1, {0}, {0}, {0, 3}, {0, 1, 2}, false, "receivers"},
    {1, {0}, {0}, {0, 1}, {0}, false, "other than the owner"},
    {1, {0}, {0}, {0, 1}, {3}, false, "ascending ranks below 3"},
    {1, {0}, {0}, {0, 2}, {2, 1}, false, "ascending ranks"},
    {2, {4, 4}, {0, 0}, {0, 1, 2}, {1, 1}, false, "expert above 4"},
    {-1, {0}, {0}, {0}, {0}, false, "items: expected 0"},
    {1, {0}, {0}, {0, 2}, {1, 2}, true, "has no buffer"},
};

static int make_mistakes(hec_comm *comm, void *context) {
  (void)context;
  float data[2] = {0};
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
    const mistake *m = &mistakes[i];
    void *at = m->no_buffers ? NULL : data, *params[] = {at, at};
    hec_sparse_items items = {m->n_items, m->expert, m->owner, m->receiver_at, m->receiver};
    int code = hec_sparse_all_gather(comm, &items, sizeof data, params);
    if (code != HECATE_BAD_INPUT || !strstr(hec_error(), m->words))
      return hec_comm_fail(comm, m->words);
  }
  int32_t done;
  if (hec_sparse_wait(comm, 2) != HECATE_BAD_INPUT || hec_sparse_test(comm, -1, &done) != HECATE_BAD_INPUT)
    return hec_comm_fail(comm, "a third kind of collective");
  if (hec_comm_alloc(comm, (size_t)1 << 40) != NULL || !strstr(hec_error(), "hec_comm_alloc"))
    return hec_comm_fail(comm, "more memory than there is");
  return hec_comm_barrier(comm); /* all is well after them */
}

HEC_TEST_LOOP(collectives_refuse, 2) {
  hec_run_options o = hec_run_defaults(3);
  o.threads = _i;
  ck_assert_msg(hec_run(&o, make_mistakes, NULL) == HECATE_OK, "%s", hec_error());
}

static int one_fails(hec_comm *comm, void *context) {
  (void)context;
  if (hec_comm_rank(comm) == 1)
    return hec_comm_fail(comm, "loss is not a number");
  return hec_comm_barrier(comm);
}

static int one_returns(hec_comm *comm, void *context) {
  (void)context;
  return hec_comm_rank(comm) == 1 ? 77 : hec_comm_barrier(comm);
}

/* Rank 1 never comes: the others say for whom they waited. For them a quarter of the limit passes at each look. */
static _Thread_local bool waits_in_vain;
static int64_t pass_in_vain(int64_t now_ns) {
  static _Thread_local int64_t ahead_ns;
  ahead_ns += waits_in_vain ? (int64_t)LIMIT_S * 1000000000 / 4 : 0;
  return now_ns + ahead_ns;
}

static int one_is_late(hec_comm *comm, void *context) {
  (void)context;
  int32_t expert = 0, owner = 0, receiver_at[] = {0, 1}, receiver = 1;
  hec_sparse_items items = {1, &expert, &owner, receiver_at, &receiver};
  float data[4] = {0};
  void *params[] = {data};
  if (hec_comm_rank(comm) == 1)
    return HECATE_OK;
  waits_in_vain = true;
  return hec_sparse_all_gather(comm, &items, sizeof data, params);
}

static int never_waits(hec_comm *comm, void *context) {
  (void)context;
  int32_t expert = 0, owner = 0, receiver_at[] = {0, 1}, receiver = 1;
  hec_sparse_items items = {1, &expert, &owner, receiver_at, &receiver};
  static float data[4];
  void *params[] = {data};
  return hec_sparse_all_gather_start(comm, &items, sizeof data, params);
}

HEC_TEST_LOOP(a_rank_fails, 2) {
  static const struct {
    hec_body *body;
    const char *words;
  } cases[] = {{one_fails, "loss is not a number"},
               {one_returns, "the body returned 77"},
               {one_is_late, "for rank 1 in a SparseAllGather"},
               {never_waits, "hec_sparse_wait"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hec_run_options o = hec_run_defaults(2);
    o.threads = _i;
    o.limit_s = LIMIT_S;
    hec_rank_clock_hook = pass_in_vain;
    ck_assert_int_ne(hec_run(&o, cases[i].body, NULL), HECATE_OK);
    ck_assert_msg(strstr(hec_error(), cases[i].words) != NULL, "said: %s", hec_error());
  }
}
