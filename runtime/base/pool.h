/* A pool: threads that stay and take the items of one job after another. One job at a time; items are taken in ascending
 * order, by whichever thread is free, and end in any order. What threads share is theirs to guard. */
#pragma once
#include "runtime/base/scoped.h"

#include <stdint.h>

typedef struct hec_pool hec_pool;

typedef struct {
  int64_t n;                                                 /* items */
  void (*work)(void *context, int32_t worker, int64_t item); /* worker: 0 .. workers - 1, one item at a time each */
  void (*watch)(void *context); /* on the caller's thread, a few times a second while items last; NULL: not */
  void *context;
} hec_pool_job;

/* As many threads as can be started, up to `n`. With one worker there is no thread: the caller works. */
hec_pool *hec_pool_new(int32_t n);
int32_t hec_pool_workers(const hec_pool *pool);
void hec_pool_run(hec_pool *pool, const hec_pool_job *job); /* until every item has ended */
void hec_pool_free(hec_pool *pool);
HEC_OPENED_BY(hec_pool, hec_pool_free)
