/* One mutex guards the job and what is left of it. O(1) per item, under the mutex twice. */
#include "runtime/base/pool.h"

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

enum { WATCH_NS = 250000000, SECOND_NS = 1000000000 };

typedef struct {
  hec_pool *pool;
  int32_t number;
  pthread_t thread;
} member;

struct hec_pool {
  pthread_mutex_t mutex;
  pthread_cond_t there, ended; /* work is there, or none ever will be; the job's last item has ended */
  /* under the mutex: */
  hec_pool_job job;
  int64_t next;
  int32_t busy; /* threads on an item */
  bool closing;
  int32_t n;      /* threads */
  member *member; /* [n] */
};

static void *live(void *context) {
  member *m = context;
  hec_pool *pool = m->pool;
  (void)pthread_mutex_lock(&pool->mutex);
  while (!pool->closing) {
    if (pool->next == pool->job.n) {
      (void)pthread_cond_wait(&pool->there, &pool->mutex);
      continue;
    }
    int64_t item = pool->next++;
    pool->busy++;
    (void)pthread_mutex_unlock(&pool->mutex);
    pool->job.work(pool->job.context, m->number, item); /* the job stays while anybody is busy */
    (void)pthread_mutex_lock(&pool->mutex);
    pool->busy--;
    if (pool->busy == 0 && pool->next == pool->job.n)
      (void)pthread_cond_signal(&pool->ended);
  }
  (void)pthread_mutex_unlock(&pool->mutex);
  return NULL;
}

hec_pool *hec_pool_new(int32_t n) {
  HEC_ASSERT(n > 0);
  hec_pool *pool = hec_malloc(1, sizeof *pool);
  *pool = (hec_pool){.mutex = PTHREAD_MUTEX_INITIALIZER, .there = PTHREAD_COND_INITIALIZER};
  pool->member = hec_malloc((size_t)n, sizeof *pool->member);
  pthread_condattr_t monotonic; /* the time of day may be set while somebody waits */
  (void)pthread_condattr_init(&monotonic);
  (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&pool->ended, &monotonic);
  (void)pthread_condattr_destroy(&monotonic);
  while (n > 1 && pool->n < n) {
    member *m = &pool->member[pool->n];
    *m = (member){.pool = pool, .number = pool->n};
    if (pthread_create(&m->thread, NULL, live, m) != 0)
      break;
    pool->n++;
  }
  return pool;
}

int32_t hec_pool_workers(const hec_pool *pool) {
  return pool->n > 0 ? pool->n : 1;
}

static struct timespec now_and(int64_t ns) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  ns += t.tv_nsec;
  t.tv_sec += (time_t)(ns / SECOND_NS);
  t.tv_nsec = (long)(ns % SECOND_NS);
  return t;
}

static bool passed(const struct timespec *t) {
  struct timespec now = now_and(0);
  return now.tv_sec > t->tv_sec || (now.tv_sec == t->tv_sec && now.tv_nsec >= t->tv_nsec);
}

static void run_here(const hec_pool_job *job) {
  struct timespec until = now_and(WATCH_NS);
  for (int64_t item = 0; item < job->n; item++) {
    job->work(job->context, 0, item);
    if (job->watch && passed(&until)) {
      job->watch(job->context);
      until = now_and(WATCH_NS);
    }
  }
}

void hec_pool_run(hec_pool *pool, const hec_pool_job *job) {
  if (pool->n == 0) {
    run_here(job);
    return;
  }
  (void)pthread_mutex_lock(&pool->mutex);
  pool->next = 0;
  pool->job = *job;
  (void)pthread_cond_broadcast(&pool->there);
  while (pool->busy > 0 || pool->next < job->n) {
    if (!job->watch) {
      (void)pthread_cond_wait(&pool->ended, &pool->mutex);
      continue;
    }
    struct timespec until = now_and(WATCH_NS);
    (void)pthread_cond_timedwait(&pool->ended, &pool->mutex, &until);
    (void)pthread_mutex_unlock(&pool->mutex);
    job->watch(job->context);
    (void)pthread_mutex_lock(&pool->mutex);
  }
  pool->job.n = pool->next = 0;
  (void)pthread_mutex_unlock(&pool->mutex);
}

void hec_pool_free(hec_pool *pool) {
  if (!pool)
    return;
  (void)pthread_mutex_lock(&pool->mutex);
  pool->closing = true;
  (void)pthread_cond_broadcast(&pool->there);
  (void)pthread_mutex_unlock(&pool->mutex);
  for (int32_t i = 0; i < pool->n; i++)
    (void)pthread_join(pool->member[i].thread, NULL);
  (void)pthread_cond_destroy(&pool->there);
  (void)pthread_cond_destroy(&pool->ended);
  (void)pthread_mutex_destroy(&pool->mutex);
  free(pool->member);
  free(pool);
}
