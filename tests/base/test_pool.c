/* The pool: every item once, a worker on one at a time, all workers at once; job after job. */
#include "runtime/base/pool.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { ITEMS = 2000, WORKERS_MAX = 16 };

typedef struct {
  pthread_mutex_t mutex;
  int64_t begun; /* items */
  int32_t times[ITEMS];
  _Atomic int32_t busy[WORKERS_MAX];
  int64_t own[WORKERS_MAX]; /* sums of items; unguarded, the caller reads them when all have ended */
} job;

static void count(void *context, int32_t worker, int64_t item) {
  job *j = context;
  ck_assert(worker >= 0 && worker < WORKERS_MAX);
  ck_assert_int_eq(atomic_fetch_add(&j->busy[worker], 1), 0);
  (void)pthread_mutex_lock(&j->mutex);
  j->times[item]++;
  j->begun++;
  (void)pthread_mutex_unlock(&j->mutex);
  j->own[worker] += item;
  ck_assert_int_eq(atomic_fetch_sub(&j->busy[worker], 1), 1);
}

HEC_TEST_LOOP(every_item_once, WORKERS_MAX) {
  static job j;
  HEC_OPENED(hec_pool) *pool = hec_pool_new(1 + _i);
  int32_t n = hec_pool_workers(pool);
  ck_assert_int_eq(n, 1 + _i);
  for (int64_t items = ITEMS; items > 0; items = items == 1 ? 0 : items / 7 + 1) { /* one after another, down to 1 */
    j = (job){.mutex = PTHREAD_MUTEX_INITIALIZER};
    hec_pool_run(pool, &(hec_pool_job){.n = items, .work = count, .context = &j});
    int64_t sum = 0;
    for (int32_t w = 0; w < WORKERS_MAX; w++) {
      ck_assert(w < n || j.own[w] == 0);
      sum += j.own[w];
    }
    ck_assert_int_eq(sum, items * (items - 1) / 2);
    for (int64_t i = 0; i < ITEMS; i++)
      ck_assert_int_eq(j.times[i], i < items);
    if (items == 2) {
      hec_pool_run(pool, &(hec_pool_job){.n = 0, .work = count, .context = &j});
      ck_assert_int_eq(j.begun, 2);
      items = 1;
    }
  }
}

static void nap(void) {
  (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

/* All of a pool's workers are on an item at once: each waits for the others. */
static void meet(void *context, int32_t worker, int64_t item) {
  _Atomic int32_t *there = context;
  (void)worker;
  (void)item;
  (void)atomic_fetch_add(there, 1);
  while (atomic_load(there) < 4) /* a pool with fewer never gets there */
    nap();
}

HEC_TEST(workers_work_at_once) {
  _Atomic int32_t there = 0;
  HEC_OPENED(hec_pool) *pool = hec_pool_new(4);
  hec_pool_run(pool, &(hec_pool_job){.n = 4, .work = meet, .context = (void *)&there});
}

typedef struct {
  pthread_t caller;
  int32_t here;
  _Atomic int32_t watched;
} onlooker;

static void slow(void *context, int32_t worker, int64_t item) {
  onlooker *o = context;
  (void)item;
  bool here = pthread_equal(pthread_self(), o->caller) != 0;
  if (worker == 0)
    o->here += here;
  for (int i = 0; here && i < 4; i++) /* longer than between two looks, however fast the machine */
    nap();
  while (!here && atomic_load(&o->watched) == 0) /* a caller that does not watch never lets it end */
    nap();
}

static void watch(void *context) {
  onlooker *o = context;
  ck_assert(pthread_equal(pthread_self(), o->caller));
  (void)atomic_fetch_add(&o->watched, 1);
}

/* The caller watches; where there is no thread, it works, and watches between items. */
HEC_TEST_LOOP(caller_watches, 2) {
  onlooker o = {.caller = pthread_self()};
  HEC_OPENED(hec_pool) *pool = hec_pool_new(_i ? 3 : 1);
  hec_pool_run(pool, &(hec_pool_job){.n = 3, .work = slow, .watch = watch, .context = &o});
  ck_assert_int_ge(atomic_load(&o.watched), 1);
  ck_assert_int_eq(o.here, _i ? 0 : 3);
}
