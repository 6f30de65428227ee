/* Timelines by content: a list under a mutex, since there are as many entries as policies. Two threads may run one program at
 * once; both find the same, and the second to end adds nothing. Above BYTES_MAX nothing is added: all that changes is how
 * long a comparison takes.
 *
 * A key is 64 bits of FNV-1a with the numbers of operations and transfers. Two different programs of one key among 100: one
 * chance in 4e15 by the birthday bound, were it random. That nobody forges programs is taken for granted. */
#include "sim/memo.h"

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const size_t BYTES_MAX = (size_t)512 << 20;

typedef struct {
  hec_sim_memo_key key;
  hec_timeline timeline;
} entry;

struct hec_sim_memo {
  pthread_mutex_t mutex;
  entry *entries;
  size_t n, capacity, bytes;
};

hec_sim_memo *hec_sim_memo_new(void) {
  hec_sim_memo *memo = hec_malloc(1, sizeof *memo);
  *memo = (hec_sim_memo){.n = 0};
  HEC_ASSERT(pthread_mutex_init(&memo->mutex, NULL) == 0);
  return memo;
}

void hec_sim_memo_clear(hec_sim_memo *memo) {
  for (size_t i = 0; i < memo->n; i++)
    hec_timeline_free(&memo->entries[i].timeline);
  memo->n = memo->bytes = 0;
}

void hec_sim_memo_free(hec_sim_memo *memo) {
  if (!memo)
    return;
  hec_sim_memo_clear(memo);
  free(memo->entries);
  (void)pthread_mutex_destroy(&memo->mutex);
  free(memo);
}

hec_sim_memo_key hec_sim_memo_key_of(const hec_program *program, hec_sim_options options) {
  return (hec_sim_memo_key){.digest = hec_program_times_digest(program),
                            .n_ops = program->n_ops,
                            .n_transfers = program->n_transfers,
                            .without_one_off = options.without_one_off,
                            .on_time = options.on_time};
}

static bool same(const hec_sim_memo_key *a, const hec_sim_memo_key *b) {
  return a->digest == b->digest && a->n_ops == b->n_ops && a->n_transfers == b->n_transfers &&
         a->without_one_off == b->without_one_off && a->on_time == b->on_time;
}

static const entry *find(const hec_sim_memo *memo, const hec_sim_memo_key *key) {
  for (size_t i = 0; i < memo->n; i++)
    if (same(&memo->entries[i].key, key))
      return &memo->entries[i];
  return NULL;
}

static size_t cells_of(const hec_timeline *timeline) {
  return (size_t)timeline->n_ops * (size_t)timeline->n_ranks;
}

static void copy(const hec_timeline *from, hec_timeline *to) {
  size_t n = cells_of(from);
  hec_timeline_resize(to, from->n_ops, from->n_ranks);
  if (n > 0) {
    memcpy(to->begin_ps, from->begin_ps, n * sizeof *to->begin_ps);
    memcpy(to->end_ps, from->end_ps, n * sizeof *to->end_ps);
  }
  memcpy(to->late_ps, from->late_ps, (size_t)from->n_ranks * sizeof *to->late_ps);
}

bool hec_sim_memo_take(hec_sim_memo *memo, const hec_sim_memo_key *key, hec_timeline *timeline) {
  (void)pthread_mutex_lock(&memo->mutex);
  const entry *found = find(memo, key);
  if (found)
    copy(&found->timeline, timeline);
  (void)pthread_mutex_unlock(&memo->mutex);
  return found != NULL;
}

void hec_sim_memo_put(hec_sim_memo *memo, const hec_sim_memo_key *key, const hec_timeline *timeline) {
  size_t bytes = 2 * cells_of(timeline) * sizeof(int64_t);
  (void)pthread_mutex_lock(&memo->mutex);
  if (memo->bytes + bytes <= BYTES_MAX && !find(memo, key)) {
    HEC_RESERVE(memo->entries, memo->capacity, memo->n + 1);
    memo->entries[memo->n] = (entry){.key = *key};
    copy(timeline, &memo->entries[memo->n++].timeline);
    memo->bytes += bytes;
  }
  (void)pthread_mutex_unlock(&memo->mutex);
}
