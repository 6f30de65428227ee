/* Breakdown: per rank, the operations of a lane are disjoint and ordered. The first lane books its operations and hands
 * each gap between them to the next lane, which does the same. So every moment is booked once and each lane is read
 * once from front to back: O((operation, rank) pairs). */
#include "runtime/program/timeline.h"

#include "runtime/base/arena.h"

#include <stdlib.h>
#include <string.h>

void hec_timeline_resize(hec_timeline *timeline, int32_t n_ops, int32_t n_ranks) {
  size_t n = (size_t)n_ops * (size_t)n_ranks;
  HEC_RESERVE(timeline->begin_ps, timeline->begin_capacity, n);
  HEC_RESERVE(timeline->end_ps, timeline->end_capacity, n);
  memset(timeline->begin_ps, 0xff, n * sizeof *timeline->begin_ps);
  memset(timeline->end_ps, 0xff, n * sizeof *timeline->end_ps);
  HEC_RESERVE(timeline->late_ps, timeline->late_capacity, n_ranks);
  memset(timeline->late_ps, 0, (size_t)n_ranks * sizeof *timeline->late_ps);
  timeline->n_ops = n_ops;
  timeline->n_ranks = n_ranks;
}

void hec_timeline_free(hec_timeline *timeline) {
  free(timeline->begin_ps);
  free(timeline->end_ps);
  free(timeline->late_ps);
  *timeline = (hec_timeline){0};
}

static void check_row(const hec_timeline *timeline, const hec_program *program, int32_t id, int32_t rank,
                      int64_t *lane_end) {
  const hec_op *op = &program->ops[id];
  size_t at = (size_t)id * (size_t)timeline->n_ranks + (size_t)rank;
  int64_t begin = timeline->begin_ps[at], end = timeline->end_ps[at];
  if (!hec_program_takes_part(program, op, rank)) {
    HEC_ASSERT(begin == -1 && end == -1);
    return;
  }
  HEC_ASSERT(begin >= timeline->late_ps[rank] && end >= begin && begin >= lane_end[op->lane]);
  lane_end[op->lane] = end;
  for (int32_t d = 0; d < op->n_deps; d++) {
    size_t before = (size_t)program->deps[op->dep_at + d] * (size_t)timeline->n_ranks + (size_t)rank;
    HEC_ASSERT(timeline->end_ps[before] <= begin); /* -1 when the rank takes no part in it */
  }
}

void hec_timeline_check(const hec_timeline *timeline, const hec_program *program) {
  HEC_ASSERT(timeline->n_ops == (int32_t)program->n_ops && timeline->n_ranks == program->n_ranks);
  for (int32_t r = 0; r < timeline->n_ranks; r++) {
    int64_t lane_end[HEC_N_LANES] = {0};
    for (int32_t i = 0; i < timeline->n_ops; i++)
      check_row(timeline, program, i, r, lane_end);
  }
}

int64_t hec_timeline_end_ps(const hec_timeline *timeline) {
  int64_t end = 0;
  for (size_t i = 0; i < (size_t)timeline->n_ops * (size_t)timeline->n_ranks; i++)
    end = timeline->end_ps[i] > end ? timeline->end_ps[i] : end;
  return end;
}

/* Ids of each lane's operations, ascending: a CSR. */
typedef struct {
  int32_t at[HEC_N_LANES + 1];
  int32_t *id; /* [n_ops] */
} lane_index;

static lane_index lane_index_new(const hec_program *program) {
  lane_index index = {.id = hec_malloc(program->n_ops, sizeof *index.id)};
  for (size_t i = 0; i < program->n_ops; i++)
    index.at[program->ops[i].lane + 1]++;
  for (int32_t lane = 0; lane < HEC_N_LANES; lane++)
    index.at[lane + 1] += index.at[lane];
  int32_t next[HEC_N_LANES];
  memcpy(next, index.at, sizeof next);
  for (size_t i = 0; i < program->n_ops; i++)
    index.id[next[program->ops[i].lane]++] = (int32_t)i;
  return index;
}

/* The operations of one (rank, lane) in order, as intervals that are not empty. */
typedef struct {
  const int64_t *begin_ps, *end_ps; /* of the rank: element op * n_ranks */
  const hec_op *ops;
  const int32_t *next, *last; /* ids */
  size_t n_ranks;
  int64_t begin, end; /* the interval at the cursor; INT64_MAX when there is none left */
  hec_role role;
} lane_cursor;

static void cursor_step(lane_cursor *c) {
  while (c->next != c->last) {
    int32_t id = *c->next++;
    size_t at = (size_t)id * c->n_ranks;
    if (c->end_ps[at] <= c->begin_ps[at])
      continue;
    c->begin = c->begin_ps[at];
    c->end = c->end_ps[at];
    c->role = c->ops[id].role;
    return;
  }
  c->begin = c->end = INT64_MAX;
}

/* Which lane a moment is booked under when the device does not compute. */
static const int32_t lane_order[HEC_N_LANES] = {HEC_LANE_COMPUTE, HEC_LANE_TOKEN, HEC_LANE_INTRA, HEC_LANE_PARAM,
                                                HEC_LANE_GRAD};

/* Books from .. to-1 to lane cursor[0], its gaps to the n-1 lanes behind it; what nobody takes is waiting. */
static void book_span(lane_cursor *cursor, int32_t n, int64_t from, int64_t to, int64_t role[HEC_N_ROLES + 1]) {
  if (n == 0) {
    role[HEC_N_ROLES] += to - from;
    return;
  }
  while (from < to) {
    while (cursor->end <= from)
      cursor_step(cursor);
    int64_t begin = cursor->begin < to ? cursor->begin : to, end = cursor->end < to ? cursor->end : to;
    if (begin > from)
      book_span(cursor + 1, n - 1, from, begin, role);
    from = begin > from ? begin : from;
    if (end > from)
      role[cursor->role] += end - from;
    from = end;
  }
}

static void book_rank(const hec_timeline *timeline, const hec_program *program, const lane_index *index, int32_t rank,
                      int64_t total, int64_t role[HEC_N_ROLES + 1]) {
  lane_cursor cursor[HEC_N_LANES];
  int32_t n = 0;
  for (int32_t i = 0; i < HEC_N_LANES; i++) {
    int32_t lane = lane_order[i];
    if (index->at[lane] == index->at[lane + 1])
      continue;
    cursor[n++] = (lane_cursor){.begin_ps = timeline->begin_ps + rank,
                                .end_ps = timeline->end_ps + rank,
                                .ops = program->ops,
                                .next = index->id + index->at[lane],
                                .last = index->id + index->at[lane + 1],
                                .n_ranks = (size_t)timeline->n_ranks};
  }
  book_span(cursor, n, timeline->late_ps[rank], total, role);
}

/* Sum over the ranks, in double as every sum over ranks here: in int64 it would overflow long before one rank's time
 * does. An operation without a rank is -1 .. -1 there. */
static double busy_ps(const hec_timeline *timeline, size_t id) {
  size_t at = id * (size_t)timeline->n_ranks;
  double sum = 0;
  for (int32_t r = 0; r < timeline->n_ranks; r++)
    sum += (double)(timeline->end_ps[at + (size_t)r] - timeline->begin_ps[at + (size_t)r]);
  return sum;
}

hec_breakdown hec_timeline_breakdown(const hec_timeline *timeline, const hec_program *program) {
  int64_t total = hec_timeline_end_ps(timeline);
  hec_breakdown breakdown = {.total_s = (double)total * 1e-12};
  double scale = 1e-12 / (double)timeline->n_ranks;
  lane_index index = lane_index_new(program);
  for (int32_t r = 0; r < timeline->n_ranks; r++) {
    int64_t role[HEC_N_ROLES + 1] = {0};
    book_rank(timeline, program, &index, r, total, role);
    for (int32_t i = 0; i < HEC_N_ROLES; i++)
      breakdown.role_s[i] += (double)role[i];
    breakdown.wait_s += (double)role[HEC_N_ROLES];
    breakdown.skew_s += (double)(timeline->late_ps[r] < total ? timeline->late_ps[r] : total);
  }
  free(index.id);
  for (int32_t i = 0; i < HEC_N_ROLES; i++) {
    breakdown.role_s[i] *= scale;
    breakdown.book_s[hec_role_book[i]] += breakdown.role_s[i];
  }
  breakdown.wait_s *= scale;
  breakdown.skew_s *= scale;
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    double busy_s = busy_ps(timeline, i) * scale;
    breakdown.busy_s[op->lane] += busy_s;
    if (hec_role_is_sparse(op->role))
      breakdown.sparse_s += busy_s;
  }
  return breakdown;
}
