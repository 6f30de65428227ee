/* The device with streams that other tests stand on (tests/support/queued_cpu.h). What is ordered by streams and events
 * gives the numbers of one call after the other, whatever the seed. What is not, goes wrong for some; and every call may
 * forget its lists when it returns. */
#include "runtime/exec/launch/rank.h"
#include "runtime/exec/model/model.h"
#include "tests/support/queued_cpu.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <string.h>

static uint64_t seed;

static void setup(void) {
  hec_math_open();
  seed = 2026;
}
HEC_TEST_FIXTURE(setup, NULL)
/* ---- Order ---- */

enum { CELLS = 12, WIDTH = 3, STEPS = 60, DEVICES = 2 };

/* Cell `to` = (to + from) / 2 on a stream of a device; reading and writing order whatever touches the same cells. */
typedef struct {
  int32_t device, stream, to, from;
} task;

typedef struct {
  float cell[CELLS][WIDTH];
} cells;

static void run_task(hec_processor *on, cells *at, const task *t) {
  on->math->add(on, &(hec_piece){at->cell[t->to], at->cell[t->from], WIDTH}, 1);
  on->math->scale(on, at->cell[t->to], 0.5F, WIDTH);
}

static bool conflict(const task *a, const task *b) {
  return a->to == b->to || a->to == b->from || a->from == b->to;
}

static void draw(task *list, cells *at) {
  for (int32_t i = 0; i < STEPS; i++) {
    list[i] = (task){(int32_t)hec_test_below(&seed, DEVICES), (int32_t)hec_test_below(&seed, HEC_STREAMS),
                     (int32_t)hec_test_below(&seed, CELLS), 0};
    list[i].from = (list[i].to + 1 + (int32_t)hec_test_below(&seed, CELLS - 1)) % CELLS;
  }
  for (int32_t i = 0; i < CELLS * WIDTH; i++)
    at->cell[i / WIDTH][i % WIDTH] = (float)hec_test_below(&seed, 1000);
}

/* Every task waits for all before that it conflicts with, but on its own stream; `without`: task `without` forgets. */
static void run_tasks(hec_processor **device, const task *list, cells *at, int32_t without) {
  const hec_event *done[STEPS];
  for (int32_t i = 0; i < STEPS; i++) {
    hec_processor *on = device[list[i].device];
    on->streams->select(on, list[i].stream);
    for (int32_t j = 0; j < i && i != without; j++)
      if (conflict(&list[i], &list[j]) && (list[i].device != list[j].device || list[i].stream != list[j].stream))
        on->streams->after(on, done[j]);
    run_task(on, at, &list[i]);
    done[i] = on->streams->mark(on);
  }
  for (int32_t d = 0; d < DEVICES; d++)
    device[d]->streams->restart(device[d]);
}

/* True: the numbers of one task after the other. */
static bool right(uint64_t of, int32_t without) {
  task list[STEPS];
  cells at, expected;
  hec_processor *device[DEVICES];
  seed = of;
  draw(list, &at);
  expected = at;
  for (int32_t i = 0; i < STEPS; i++)
    run_task(&hec_processor_cpu, &expected, &list[i]);
  for (int32_t d = 0; d < DEVICES; d++)
    device[d] = hec_queued_cpu_new(of + (uint64_t)d);
  run_tasks(device, list, &at, without);
  int64_t n = 0;
  for (int32_t d = 0; d < DEVICES; d++) {
    n += hec_queued_cpu_done(device[d]);
    ck_assert_int_eq(hec_queued_cpu_left(device[d]), 0);
    hec_queued_cpu_free(device[d]);
  }
  ck_assert_int_eq(n, (int64_t)2 * STEPS);
  return memcmp(at.cell[0], expected.cell[0], sizeof at) == 0;
}

HEC_TEST(events_order) {
  for (uint64_t of = 1; of <= 100; of++)
    ck_assert_msg(right(of, -1), "seed %d", (int)of);
}

HEC_TEST(missing_events_are_noticed) {
  int n = 0;
  for (uint64_t of = 1; of <= 100; of++)
    n += !right(of, STEPS / 2);
  ck_assert_msg(n >= 30, "wrong with %d of 100 seeds only", n);
}

/* ---- Streams ---- */

static void count(void *context, const hec_processor *on, int32_t stream, const char *call) {
  int32_t *n = context;
  (void)on;
  n[stream] += strcmp(call, "zero") == 0;
}

HEC_TEST(nothing_happens_by_itself) {
  float x[2] = {1, 1};
  int32_t n[HEC_STREAMS] = {0};
  hec_processor *on = hec_queued_cpu_new(1);
  const hec_streams *streams = on->streams;
  hec_queued_cpu_watch(on, count, n);
  streams->select(on, 2);
  const hec_event *before = streams->mark(on);
  on->math->zero(on, x, 2);
  const hec_event *behind = streams->mark(on);
  ck_assert(x[0] == 1 && hec_queued_cpu_done(on) == 0 && hec_queued_cpu_left(on) == 3);
  int64_t begin_ns = hec_clock_ns();
  while (!streams->reached(on, behind))
    ;
  ck_assert(x[0] == 0 && x[1] == 0 && hec_queued_cpu_done(on) == 1 && n[2] == 1);
  ck_assert(streams->reached(on, before));
  ck_assert(begin_ns <= streams->when(on, before) && streams->when(on, before) <= streams->when(on, behind) &&
            streams->when(on, behind) <= hec_clock_ns());
  streams->restart(on);
  on->math->zero(on, x, 2); /* on stream 0 again */
  streams->restart(on);
  ck_assert_int_eq(n[0], 1);
  hec_queued_cpu_free(on);
}

HEC_TEST(memory_of_the_host) {
  hec_processor *on = hec_queued_cpu_new(5);
  int32_t *here = on->streams->host_memory(on, 8 * sizeof *here), there[8];
  ck_assert_ptr_nonnull(here);
  for (int32_t i = 0; i < 8; i++) {
    ck_assert_int_eq(here[i], 0);
    here[i] = i;
  }
  on->streams->put(on, there, here, sizeof there);
  on->streams->fetch(on, here + 4, there, 4 * sizeof *here);
  here[0] = 100; /* before the copy is made: that is what it reads */
  const hec_event *done = on->streams->mark(on);
  while (!on->streams->reached(on, done))
    ;
  ck_assert(there[0] == 100 && there[7] == 7 && here[4] == 100 && here[7] == 3);
  hec_queued_cpu_free(on);
}

HEC_TEST(a_broken_device) {
  float x = 1, seen = 7;
  hec_processor *on = hec_queued_cpu_new(1), *other = hec_queued_cpu_new(2);
  ck_assert_ptr_null(on->streams->error(on));
  on->math->zero(on, &x, 1);
  const hec_event *lost = on->streams->mark(on);
  other->streams->after(other, lost);
  hec_queued_cpu_break(on, "out of order");
  ck_assert_str_eq(on->streams->error(on), "out of order");
  ck_assert(on->streams->reached(on, lost) && on->streams->reached(on, on->streams->mark(on)));
  on->math->zero(on, &x, 1);
  on->math->to_host(on, &seen, &x, 1);
  on->streams->restart(on);
  other->streams->restart(other); /* does not wait for what never comes */
  ck_assert(x == 1 && seen == 7 && hec_queued_cpu_done(on) == 0);
  hec_queued_cpu_free(on), hec_queued_cpu_free(other);
}

/* Two threads, a device each, hand a number to and fro; TSan looks on. */
enum { ROUNDS = 200 };
static struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  const hec_event *ready[2][ROUNDS];
  hec_processor *device[2];
  float value[2];
} pair = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const hec_event *event_of(int me, int round) {
  (void)pthread_mutex_lock(&pair.mutex);
  while (!pair.ready[me][round])
    (void)pthread_cond_wait(&pair.changed, &pair.mutex);
  const hec_event *event = pair.ready[me][round];
  (void)pthread_mutex_unlock(&pair.mutex);
  return event;
}

/* value[me] = 2 value[other], in turn: even rounds device 0, odd rounds device 1. */
static void *play(void *argument) {
  int me = *(const int *)argument;
  hec_processor *on = pair.device[me];
  for (int round = me; round < ROUNDS; round += 2) {
    if (round > 0)
      on->streams->after(on, event_of(1 - me, round - 1));
    on->math->copy(on, &(hec_piece){&pair.value[me], &pair.value[1 - me], 1}, 1);
    on->math->scale(on, &pair.value[me], round % 4 < 2 ? 2 : 0.5F, 1);
    const hec_event *event = on->streams->mark(on);
    (void)pthread_mutex_lock(&pair.mutex);
    pair.ready[me][round] = event;
    (void)pthread_cond_broadcast(&pair.changed);
    (void)pthread_mutex_unlock(&pair.mutex);
    (void)on->streams->reached(on, event);
  }
  return NULL;
}

HEC_TEST(devices_of_threads) {
  pthread_t threads[2];
  int number[2] = {0, 1};
  pair.value[1] = 3;
  for (int i = 0; i < 2; i++)
    pair.device[i] = hec_queued_cpu_new((uint64_t)i);
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, play, &number[i]), 0);
  for (int i = 0; i < 2; i++)
    (void)pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; i++)
    pair.device[i]->streams->restart(pair.device[i]);
  ck_assert(pair.value[0] == 6 && pair.value[1] == 3); /* rounds 198, 199 halve what doubled twice before */
  for (int i = 0; i < 2; i++)
    hec_queued_cpu_free(pair.device[i]);
}

/* ---- Every call forgets its lists ---- */

enum { TOKENS = 7, EXPERTS = 3, D = 4, N = 12 };

/* All numbers that calls work on; the lists, which are overwritten as soon as a call has returned. */
typedef struct {
  float a[64], b[64], c[64], d[64], weight[N], weight_grad[N];
} numbers;

static numbers random_numbers(void) {
  numbers x;
  float *all = (float *)&x;
  for (size_t i = 0; i < sizeof x / sizeof *all; i++)
    all[i] = (float)(0.1 + hec_test_uniform(&seed));
  return x;
}

/* Everything on the heap, so that a look at it after the call is one at freed memory (ASan), and poisoned before. */
static void forget(void *list, size_t bytes) {
  memset(list, 0x5A, bytes);
  free(list);
}
#define CALL(type, n, list, call, ...)                                                                                 \
  do {                                                                                                                 \
    type *list = hec_malloc(n, sizeof *list);                                                                          \
    memcpy(list, (const type[])__VA_ARGS__, (n) * sizeof *list);                                                       \
    call;                                                                                                              \
    forget(list, (n) * sizeof *list);                                                                                  \
  } while (0)

static void call_vectors(hec_processor *on, numbers *x) {
  const hec_arithmetic *math = on->math;
  float *host = hec_malloc(8, sizeof *host);
  for (int i = 0; i < 8; i++)
    host[i] = (float)i;
  math->to_device(on, x->a, host, 8);
  forget(host, 8 * sizeof *host);
  math->zero(on, x->b, 3);
  math->scale(on, x->a, 3, 5);
  CALL(hec_piece, 2, l, math->copy(on, l, 2), {{x->b + 4, x->a, 4}, {x->b + 10, x->a + 1, 4}});
  CALL(hec_piece, 2, l, math->add(on, l, 2), {{x->c, x->b, 9}, {x->c + 2, x->a, 9}});
  CALL(hec_gemm, 2, l, math->gemm(on, l, 2),
       {{.m = 2, .n = 3, .k = 2, .a = x->a, .b = x->b, .c = x->d, .alpha = 1},
        {.m = 3, .n = 3, .k = 1, .a = x->b, .b = x->c, .c = x->d + 20, .alpha = 1, .beta = 1}});
  CALL(hec_moments, 1, l, math->adam(on, &(hec_adam){0.1F, 0.9F, 0.99F, 1e-3F}, 3, l, 1),
       {{x->a, x->b, x->c, x->d, 30, true}});
}

static void call_rows(hec_processor *on, numbers *x) {
  const hec_arithmetic *math = on->math;
  CALL(hec_norm, 1, l, math->norm(on, l, x->b), {{x->a, x->c, x->weight, 3, D}});
  CALL(hec_norm, 1, l, math->norm_backward(on, l, x->b, x->d, x->c + D), {{x->a, x->c, x->weight, 3, D}});
  CALL(hec_scores, 1, l, math->softmax(on, l), {{x->a, 4, 5, 2, 1, 4, false}});
  CALL(hec_scores, 1, l, math->softmax_backward(on, l, x->b), {{x->a, 4, 5, 2, 1, 4, false}});
  CALL(hec_inner_rows, 2, l, math->activate(on, l, 2), {{x->c, 2, 3, 3, HEC_SILU}, {x->d, 2, 3, 2, HEC_GELU}});
  CALL(hec_inner_rows, 2, l, math->activate_backward(on, l, 2), {{x->c, 2, 3, 3, HEC_SILU}, {x->d, 2, 3, 2, HEC_GELU}});
}

static hec_assignments *new_choice(numbers *x) {
  static const int32_t expert_at[EXPERTS + 1] = {0, 5, 9, N};
  hec_assignments *a = hec_malloc(1, sizeof *a);
  *a = (hec_assignments){.n = N,
                         .n_tokens = TOKENS,
                         .capacity = N,
                         .expert_at = hec_malloc(EXPERTS + 1, sizeof(int32_t)),
                         .token = hec_malloc(N, sizeof(int32_t)),
                         .weight = x->weight,
                         .weight_grad = x->weight_grad,
                         .balance = hec_malloc(EXPERTS, sizeof(float))};
  memcpy(a->expert_at, expert_at, sizeof expert_at);
  for (int32_t j = 0; j < N; j++)
    a->token[j] = (j * 5 + j / TOKENS) % TOKENS;
  for (int32_t e = 0; e < EXPERTS; e++)
    a->balance[e] = (float)e + 0.5F;
  return a;
}

static void forget_choice(hec_assignments *a) {
  forget(a->expert_at, (EXPERTS + 1) * sizeof *a->expert_at);
  forget(a->token, N * sizeof *a->token);
  forget(a->balance, EXPERTS * sizeof *a->balance);
  forget(a, sizeof *a);
}

static float **new_rows(float *from) {
  float **row = hec_malloc(N, sizeof *row);
  for (int32_t j = 0; j < N; j++)
    row[j] = from + (int64_t)((j * 5) % N) * D;
  return row;
}

/* 0 weigh, 1 choice_gradient, 2 permute, 3 combine, 4 uncombine, 5 unpermute. */
static void call_choice(hec_processor *on, numbers *x, int which) {
  const hec_arithmetic *math = on->math;
  hec_assignments *a = new_choice(x);
  float **row = new_rows(x->a), **output = new_rows(x->b);
  switch (which) {
  case 0:
    math->weigh(on, a, x->c, EXPERTS, false);
    break;
  case 1:
    math->choice_gradient(on, a, EXPERTS, x->d);
    break;
  case 2:
    math->permute(on, a, x->c, D, row);
    break;
  case 3:
    math->combine(on, a, row, D, x->d);
    break;
  case 4:
    math->uncombine(on, a, x->d, output, D, row);
    break;
  default:
    math->unpermute(on, a, row, D, x->c);
  }
  forget_choice(a);
  forget(row, N * sizeof *row);
  forget(output, N * sizeof *output);
}

static void call_all(hec_processor *on, numbers *x) {
  call_vectors(on, x);
  call_rows(on, x);
  for (int which = 0; which < 6; which++)
    call_choice(on, x, which);
}

HEC_TEST(lists_may_go) {
  numbers x = random_numbers(), expected = x, before = x;
  hec_processor *on = hec_queued_cpu_new(3);
  call_all(&hec_processor_cpu, &expected);
  call_all(on, &x);
  on->streams->restart(on);
  ck_assert(memcmp(x.a, expected.a, sizeof x) == 0 && memcmp(x.a, before.a, sizeof x) != 0);
  ck_assert_int_eq(hec_queued_cpu_done(on), 7 + 6 + 6);
  on->math->copy(on, NULL, 0);
  on->math->gemm(on, NULL, 0);
  on->math->to_device(on, NULL, NULL, 0);
  on->math->to_host(on, NULL, NULL, 0);
  hec_queued_cpu_free(on);
}
