/* MoETuner's first integer programme for a solver. The paper's form, here with deviations times the number of parts R and
 * total T, so in whole numbers:
 *
 *   minimise sum_c d_c   d_c >= R sum_i w_i x_ci - T,  d_c >= T - R sum_i w_i x_ci,  sum_c x_ci = 1,  x binary,
 *            1 <= sum_i x_ci <= ceil(n / R)
 *
 * Its relaxation is worth nothing (halves of items make every part equal), so a search proves by enumeration. At most
 * 20,000 sets of items may fit a part: up to 16 items on 4 parts, and few items a part always. Then the same problem
 * is written by sets. A solver ends at its root almost always:
 *
 *   minimise sum_S | R w(S) - T | z_S   over sets with sum_(S with i) z_S = 1 for all i, sum_S z_S = R, z binary
 *
 * Only those sets matter that deviate by at most half of what the heuristic's partition does in all. For what lies
 * above the mean lies below it elsewhere. That is a few hundred of 18,000. Of more than 20,000 at most 4,000 may
 * matter, else none is solved. For more sets it is the paper's form, part c only for items c and later (parts are
 * alike), within a limit of nodes. Above n R = 256 none, since it then costs seconds a layer and finds nothing.
 *
 * The bound without a solver is the larger of two. Sums are whole numbers, so with r = T mod R nothing is below 2 r
 * (R - r). And the part of the heaviest item, filled up with the lightest, is above the mean by what it is. */
#include "runtime/plan/planners/partition.h"

#include "runtime/base/status.h"

#include <string.h>

enum {
  SETS_MAX = 1000000,
  ALL_MAX = 20000,
  SOME_MAX = 4000,
  CELLS_MAX = 256,
  NODES_MAX = 100,
  LISTED_NODES_MAX = 100000
};
#define COST_MAX 1e6 /* costs are scaled down to it: solvers tell 1e-5 apart */

/* Sets of least to most of n items; at most SETS_MAX + 1. */
static int32_t count_sets(int32_t n, int32_t min, int32_t max) {
  double sets = 1, all = 0;
  for (int32_t k = 0; k <= max && all <= SETS_MAX; k++) {
    if (k > 0)
      sets = sets * (n - k + 1) / k;
    all += k >= min ? sets : 0;
    if (sets > 1e15) /* and the rest is larger, or k is above n / 2 and all too */
      return SETS_MAX + 1;
  }
  return all <= SETS_MAX ? (int32_t)all : SETS_MAX + 1;
}

static int32_t capacity_of(int32_t n_items, int32_t n_parts) {
  return (n_items + n_parts - 1) / n_parts;
}

hec_partition_exact hec_partition_exact_new(hec_arena *arena, int32_t n_items, int32_t n_parts,
                                            const hec_solver *solver) {
  int32_t max = capacity_of(n_items, n_parts), min = n_items - (n_parts - 1) * max;
  hec_partition_exact x = {.min = min > 1              ? min
                                  : n_items >= n_parts ? 1
                                                       : 0,
                           .chosen = HEC_NEW(arena, int32_t, n_items),
                           .ascending = HEC_NEW(arena, uint64_t, n_items)};
  int32_t n_sets = count_sets(n_items, x.min, max);
  x.listed = n_sets <= SETS_MAX && x.min > 0;
  if (!solver || n_parts < 2)
    return x;
  int32_t columns = n_sets <= ALL_MAX ? n_sets : SOME_MAX;
  if (x.listed)
    x.milp = hec_milp_new(arena, columns, n_items + 1, (int64_t)columns * (max + 1));
  else if ((int64_t)n_items * n_parts <= CELLS_MAX)
    x.milp = hec_milp_new(arena, n_items * n_parts + n_parts, n_items + 3 * n_parts,
                          4 * (int64_t)n_items * n_parts + 2 * n_parts);
  return x;
}

static uint64_t apart(uint64_t a, uint64_t b) {
  return a > b ? a - b : b - a;
}

static uint64_t bound_of(hec_partition_exact *x, const hec_partition *p, const uint64_t *weight, uint64_t total) {
  uint64_t parts = (uint64_t)p->n_parts, rest = total % parts, whole = 2 * rest * (parts - rest), sum = 0;
  for (int32_t i = 0; i < p->n_items; i++) { /* insertion: at most a few hundred */
    int32_t at = i;
    for (; at > 0 && x->ascending[at - 1] > weight[i]; at--)
      x->ascending[at] = x->ascending[at - 1];
    x->ascending[at] = weight[i];
  }
  for (int32_t i = 0; i + 1 < x->min; i++)
    sum += x->ascending[i];
  sum += x->ascending[p->n_items - 1];
  uint64_t heavy = sum * parts > total ? 2 * (sum * parts - total) : 0;
  return heavy > whole ? heavy : whole;
}

typedef struct {
  hec_partition_exact *x;
  const hec_partition *p;
  const uint64_t *weight;
  uint64_t total, deviation; /* of the heuristic's */
  double scale;
  bool full; /* more sets matter than there is room for */
} problem;

/* All sets in lexical order: chosen[0..k) ascending, its sum. */
static void add_sets(problem *q, int32_t k, int32_t from, uint64_t sum, int32_t max) {
  hec_milp *m = &q->x->milp;
  uint64_t off = apart(sum * (uint64_t)q->p->n_parts, q->total);
  if (k >= q->x->min && 2 * off <= q->deviation && m->n_columns == m->columns_max) {
    q->full = true;
  } else if (k >= q->x->min && 2 * off <= q->deviation) {
    (void)hec_milp_column(m, (double)off * q->scale, 1, true);
    for (int32_t i = 0; i < k; i++)
      hec_milp_entry(m, q->x->chosen[i], 1);
    hec_milp_entry(m, q->p->n_items, 1);
  }
  for (int32_t i = from; k < max && i < q->p->n_items && !q->full; i++) {
    q->x->chosen[k] = i;
    add_sets(q, k + 1, i + 1, sum + q->weight[i], max);
  }
}

static void write_listed(problem *q) {
  hec_milp *m = &q->x->milp;
  for (int32_t i = 0; i < q->p->n_items; i++)
    (void)hec_milp_row(m, 1, 1);
  (void)hec_milp_row(m, q->p->n_parts, q->p->n_parts);
  add_sets(q, 0, 0, 0, capacity_of(q->p->n_items, q->p->n_parts));
}

/* Rows: items; then of each part its items, above, below. Columns: item by item its parts; then the deviations. */
static void write_compact(problem *q) {
  hec_milp *m = &q->x->milp;
  int32_t n = q->p->n_items, parts = q->p->n_parts;
  double total = (double)q->total * q->scale;
  for (int32_t i = 0; i < n; i++)
    (void)hec_milp_row(m, 1, 1);
  for (int32_t c = 0; c < parts; c++) {
    (void)hec_milp_row(m, q->x->min, capacity_of(n, parts));
    (void)hec_milp_row(m, -total, HEC_MILP_FREE);
    (void)hec_milp_row(m, total, HEC_MILP_FREE);
  }
  for (int32_t i = 0; i < n; i++)
    for (int32_t c = 0; c < parts; c++) {
      double w = (double)q->weight[i] * (double)parts * q->scale;
      (void)hec_milp_column(m, 0, c <= i ? 1 : 0, true);
      hec_milp_entry(m, i, 1);
      hec_milp_entry(m, n + 3 * c, 1);
      hec_milp_entry(m, n + 3 * c + 1, -w);
      hec_milp_entry(m, n + 3 * c + 2, w);
    }
  for (int32_t c = 0; c < parts; c++) {
    (void)hec_milp_column(m, 1, HEC_MILP_FREE, false);
    hec_milp_entry(m, n + 3 * c + 1, 1);
    hec_milp_entry(m, n + 3 * c + 2, 1);
  }
}

/* The part of each item as the solver has it, in x->chosen; false when it is no partition after all. Sets stand in the
 * order of their first items, and so do the parts of the other form. */
static bool read_parts(problem *q) {
  const hec_milp *m = &q->x->milp;
  int32_t n = q->p->n_items, parts = q->p->n_parts, next = 0;
  for (int32_t i = 0; i < n; i++)
    q->x->chosen[i] = -1;
  for (int32_t j = 0; j < (q->x->listed ? m->n_columns : n * parts); j++) {
    if (m->x[j] < 0.5)
      continue;
    for (int64_t k = m->at[j]; k < m->at[j + 1]; k++) {
      int32_t i = m->row[k];
      if (i >= n)
        continue;
      if (q->x->chosen[i] >= 0)
        return false;
      q->x->chosen[i] = q->x->listed ? next : j % parts;
    }
    next++;
  }
  for (int32_t i = 0; i < n; i++)
    if (q->x->chosen[i] < 0 || q->x->chosen[i] >= parts)
      return false;
  return !q->x->listed || next == parts;
}

/* Sums and counts of `part`. */
static void add_up(hec_partition *p, const uint64_t *weight, const int32_t *part) {
  memset(p->sum, 0, (size_t)p->n_parts * sizeof *p->sum);
  memset(p->count, 0, (size_t)p->n_parts * sizeof *p->count);
  for (int32_t i = 0; i < p->n_items; i++) {
    p->sum[part[i]] += weight[i];
    p->count[part[i]]++;
  }
}

/* What was read becomes the partition if it is allowed and better than what is there. */
static bool take(const problem *q, hec_partition *p) {
  add_up(p, q->weight, q->x->chosen);
  bool better = hec_partition_deviation(p) < q->deviation;
  for (int32_t c = 0; c < p->n_parts; c++)
    better = better && p->count[c] <= capacity_of(p->n_items, p->n_parts) && p->count[c] >= q->x->min;
  if (better)
    memcpy(p->part, q->x->chosen, (size_t)p->n_items * sizeof *p->part);
  else
    add_up(p, q->weight, p->part);
  return better;
}

hec_partition_verdict hec_partition_improve(hec_partition_exact *x, hec_partition *p, const uint64_t *weight,
                                            const hec_solver *solver) {
  problem q = {.x = x, .p = p, .weight = weight, .deviation = hec_partition_deviation(p)};
  for (int32_t i = 0; i < p->n_items; i++)
    q.total += weight[i];
  hec_partition_verdict verdict = {.bound = bound_of(x, p, weight, q.total)};
  verdict.proven = q.deviation == verdict.bound;
  if (verdict.proven || !solver || x->milp.columns_max == 0)
    return verdict;
  double max = x->listed ? (double)q.deviation : (double)q.total * p->n_parts;
  q.scale = max > COST_MAX ? COST_MAX / max : 1;
  hec_milp_clear(&x->milp);
  (x->listed ? write_listed : write_compact)(&q);
  if (q.full)
    return verdict;
  hec_milp_answer answer = solver->solve(&x->milp, x->listed ? LISTED_NODES_MAX : NODES_MAX);
  verdict.tried = true;
  verdict.improved = answer.found && read_parts(&q) && take(&q, p);
  uint64_t deviation = hec_partition_deviation(p);
  verdict.proven = answer.proven || deviation == verdict.bound;
  double bound = answer.bound / q.scale * (1 - 1e-9) - 1; /* below it by what rounding may have added */
  if (verdict.proven)
    verdict.bound = deviation;
  else if (bound > (double)verdict.bound)
    verdict.bound = (uint64_t)bound < deviation ? (uint64_t)bound : deviation;
  return verdict;
}
