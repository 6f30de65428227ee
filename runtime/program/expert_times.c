/* A table of SLOTS answers, each in the one place that its hash has; the newest stays. */
#include "runtime/program/durations.h"

#include "runtime/base/arena.h"
#include "runtime/program/duration.h"

enum { SLOT_BITS = 12, ROWS_MAX = 64 /* experts of a rank; with more nothing is kept */ };

typedef struct {
  int32_t n, shape, rank; /* n 0: empty */
  int32_t rows[ROWS_MAX];
  int64_t ps;
} slot;

struct hec_expert_times {
  bool uniform;
  slot slots[1 << SLOT_BITS];
};

hec_expert_times *hec_expert_times_new(bool uniform, hec_arena *arena) {
  hec_expert_times *times = HEC_NEW(arena, hec_expert_times, 1);
  times->uniform = uniform;
  return times;
}

static bool same(const slot *s, const slot *key, const hec_work *work) {
  if (s->n != key->n || s->shape != key->shape || s->rank != key->rank)
    return false;
  for (int32_t i = 0; i < key->n; i++)
    if (s->rows[i] != work[i].rows)
      return false;
  return true;
}

int64_t hec_expert_times_ps(hec_expert_times *times, const hec_problem *problem, const hec_program *program,
                            const hec_op *op, int32_t rank) {
  const int32_t *at = program->work_index + op->compute.work_at + rank;
  const hec_work *work = program->work + at[0];
  const slot key = {.n = at[1] - at[0], .shape = op->compute.shape, .rank = times->uniform ? 0 : rank};
  if (key.n == 0 || key.n > ROWS_MAX || hec_duration_shares(problem))
    return hec_seconds_to_ps(hec_duration_s(problem, program, op, rank));
  uint64_t hash = (uint64_t)key.shape << 32 | (uint64_t)key.rank;
  for (int32_t i = 0; i < key.n; i++)
    hash = (hash ^ (uint64_t)work[i].rows) * UINT64_C(0x9e3779b97f4a7c15);
  slot *s = &times->slots[hash >> (64 - SLOT_BITS)];
  if (same(s, &key, work))
    return s->ps;
  s->n = key.n;
  s->shape = key.shape;
  s->rank = key.rank;
  for (int32_t i = 0; i < key.n; i++)
    s->rows[i] = work[i].rows;
  s->ps = hec_seconds_to_ps(hec_duration_s(problem, program, op, rank));
  return s->ps;
}
