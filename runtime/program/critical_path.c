/* Backwards from the (operation, rank) that ends last. An operation on a rank waited for what ended last of everything
 * it needs. That is the operation before it on its lane and its dependencies on that rank. An exchange also waits for
 * those on every partner of the rank. An all-reduce or counts wait for those on every rank. For these begin when all
 * have posted. So
 *
 *   ready(op, q) = max over predecessors p of op on q of end(p, q)
 *   before(op, r) = the p of the q with the largest ready(op, q), q a partner of r or r itself
 *
 * and the step of (op, r) is ready .. end. Ties: the rank itself, then the lower rank; the newer operation. Ids fall
 * along the way, so it ends. What delays a transfer inside a law (shared links, rounds, forwarded chunks) is time of
 * its exchange. O(steps * (partners + transfers of the exchange)), with few operations of a lane that a rank takes no
 * part in. */
#include "runtime/program/critical_path.h"

#include "runtime/base/arena.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const hec_timeline *timeline;
  const hec_program *program;
  int32_t *before;   /* [n_ops] the newest earlier operation of the same lane; -1: none */
  uint8_t *partners; /* [n_ranks] of the rank at hand in the operation at hand */
} search;

static int64_t end_of(const search *s, int32_t op, int32_t rank) {
  return s->timeline->end_ps[(size_t)op * (size_t)s->timeline->n_ranks + (size_t)rank];
}

/* When the rank has all that the operation needs of it, and which operation was the last of it (-1: the start). */
static int64_t ready_at(const search *s, int32_t op, int32_t rank, int32_t *last) {
  const hec_op *o = &s->program->ops[op];
  int64_t ready = s->timeline->late_ps[rank];
  *last = -1;
  int32_t lane = s->before[op];
  while (lane >= 0 && end_of(s, lane, rank) < 0)
    lane = s->before[lane];
  for (int32_t d = -1; d < o->n_deps; d++) {
    int32_t id = d < 0 ? lane : s->program->deps[o->dep_at + d];
    int64_t end = id >= 0 ? end_of(s, id, rank) : -1;
    if (end > ready || (end == ready && id > *last)) {
      ready = end;
      *last = id;
    }
  }
  return ready;
}

static void mark_partners(const search *s, const hec_op *op, int32_t rank) {
  int32_t n = s->timeline->n_ranks;
  memset(s->partners, 0, (size_t)n);
  s->partners[rank] = 1;
  if (op->kind == HEC_OP_ALLREDUCE || op->kind == HEC_OP_COUNTS) {
    int32_t stride = op->kind == HEC_OP_ALLREDUCE && op->allreduce.stride > 1 ? op->allreduce.stride : 1;
    for (int32_t q = rank % stride; q < n; q += stride)
      s->partners[q] = 1;
  }
  for (int32_t i = 0; op->kind == HEC_OP_EXCHANGE && i < op->exchange.n_transfers; i++) {
    const hec_transfer *t = &s->program->transfers[op->exchange.transfer_at + i];
    if (t->source == rank)
      s->partners[t->destination] = 1;
    if (t->destination == rank)
      s->partners[t->source] = 1;
  }
}

/* What (op, rank) waited for: *op becomes -1 at the start of the program. */
static int64_t step_back(const search *s, int32_t *op, int32_t *rank) {
  mark_partners(s, &s->program->ops[*op], *rank);
  int32_t last, at = *rank;
  int64_t max = ready_at(s, *op, at, &last);
  for (int32_t q = 0; q < s->timeline->n_ranks; q++) {
    int32_t id;
    int64_t ready = s->partners[q] && q != *rank ? ready_at(s, *op, q, &id) : -1;
    if (ready <= max)
      continue;
    max = ready;
    last = id;
    at = q;
  }
  *op = last;
  *rank = at;
  return max;
}

static void add_step(hec_critical_path *path, hec_critical_step step) {
  HEC_RESERVE(path->steps, path->capacity, path->n + 1);
  path->steps[path->n++] = step;
}

static void last_of(const hec_timeline *timeline, int32_t *op, int32_t *rank) {
  int64_t end = 0;
  *op = -1;
  *rank = 0;
  for (int32_t i = 0; i < timeline->n_ops; i++)
    for (int32_t r = 0; r < timeline->n_ranks; r++) {
      int64_t one = timeline->end_ps[(size_t)i * (size_t)timeline->n_ranks + (size_t)r];
      if (one <= end)
        continue;
      end = one;
      *op = i;
      *rank = r;
    }
}

void hec_critical_path_find(hec_critical_path *path, const hec_timeline *timeline, const hec_program *program) {
  search s = {timeline, program, hec_malloc((size_t)timeline->n_ops + 1, sizeof *s.before),
              hec_malloc((size_t)timeline->n_ranks + 1, 1)};
  int32_t newest[HEC_N_LANES], op, rank;
  memset(newest, 0xff, sizeof newest);
  for (int32_t i = 0; i < timeline->n_ops; i++) {
    s.before[i] = newest[program->ops[i].lane];
    newest[program->ops[i].lane] = i;
  }
  path->n = 0;
  last_of(timeline, &op, &rank);
  while (op >= 0) {
    hec_critical_step step = {.op = op, .rank = rank, .end_ps = end_of(&s, op, rank)};
    step.begin_ps = step_back(&s, &op, &rank);
    if (step.begin_ps < step.end_ps)
      add_step(path, step);
  }
  for (int32_t i = 0, k = path->n - 1; i < k; i++, k--) {
    hec_critical_step swap = path->steps[i];
    path->steps[i] = path->steps[k];
    path->steps[k] = swap;
  }
  free(s.before);
  free(s.partners);
}

void hec_critical_path_free(hec_critical_path *path) {
  free(path->steps);
  *path = (hec_critical_path){0};
}
