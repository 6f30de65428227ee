/* Migration: the difference of two plans, in bytes between ranks. No policy counts its own.
 *
 *   has(plan, slice)  = { home of the slice } + { resident copies of the expert }   (guests are freed: never a source)
 *   moves             = has(to) \ has(from), each from the nearest rank of has(from): same node first, then lower rank
 *
 * once for the parameters (homes) and once for the optimizer state (optimizer homes; training only). Slices:
 * hec_part_begin. Two slots of one expert on one rank move once. Gradients never do: homes change before the first
 * micro-batch only. O(copies^2) per changed row, O(copies) per unchanged one. */
#include "runtime/plan/plan.h"
#include "runtime/plan/problem.h"

#include <stdlib.h>

/* The ranks that have one slice in one plan. */
typedef struct {
  int32_t home;
  hec_copies copies;
} holding;

static holding holding_of(const hec_plan *plan, const int32_t *home, int32_t layer, int32_t expert, int32_t slice) {
  size_t row = (size_t)layer * (size_t)plan->n_experts + (size_t)expert;
  return (holding){home[row * (size_t)plan->n_slices + (size_t)slice], hec_plan_copies(plan, layer, expert)};
}

static bool has(const holding *h, int32_t rank) {
  if (h->home == rank)
    return true;
  for (int32_t i = 0; i < h->copies.n && h->copies.rank[i] <= rank; i++)
    if (h->copies.rank[i] == rank && h->copies.kind[i] == HEC_COPY_RESIDENT)
      return true;
  return false;
}

static bool nearer(const hec_problem *problem, int32_t to, int32_t a, int32_t b) {
  bool near_a = hec_problem_node(problem, a) == hec_problem_node(problem, to);
  bool near_b = hec_problem_node(problem, b) == hec_problem_node(problem, to);
  return near_a != near_b ? near_a : a < b;
}

static int32_t nearest(const holding *from, const hec_problem *problem, int32_t to) {
  int32_t best = from->home;
  for (int32_t i = 0; i < from->copies.n; i++)
    if (from->copies.kind[i] == HEC_COPY_RESIDENT && nearer(problem, to, from->copies.rank[i], best))
      best = from->copies.rank[i];
  return best;
}

/* The i-th entry of a holding (-1: the home) is a rank not seen before it. */
static bool is_new(const holding *h, int32_t i) {
  if (i < 0)
    return true;
  if (h->copies.kind[i] != HEC_COPY_RESIDENT || h->copies.rank[i] == h->home)
    return false;
  for (int32_t k = i - 1; k >= 0 && h->copies.rank[k] == h->copies.rank[i]; k--)
    if (h->copies.kind[k] == HEC_COPY_RESIDENT)
      return false;
  return true;
}

/* What is done with what moves: bytes summed per pair, or parcels listed. */
typedef struct {
  const hec_plan *from, *to;
  const hec_problem *problem;
  int32_t layer;
  int64_t *bytes;       /* [n_ranks * n_ranks], or NULL */
  hec_move_list *moves; /* or NULL */
  bool moved;
} migration;

/* What `to` has of a parcel and `from` has not. */
static void add_moves(migration *m, const holding *from, const holding *to, hec_parcel parcel, int64_t size) {
  for (int32_t i = -1; i < to->copies.n; i++) {
    int32_t rank = i < 0 ? to->home : to->copies.rank[i];
    if (!is_new(to, i) || has(from, rank))
      continue;
    int32_t source = nearest(from, m->problem, rank);
    if (m->bytes)
      m->bytes[(size_t)source * (size_t)m->problem->n_ranks + (size_t)rank] += size;
    if (m->moves)
      hec_move_list_add(m->moves, (hec_move){source, rank, parcel});
    m->moved = true;
  }
}

static void add_row(migration *m, int32_t expert) {
  const hec_memory_cost *bytes = &m->problem->bytes;
  int32_t n = m->to->n_slices;
  double params = hec_moe_expert_params(m->problem->moe);
  for (int32_t slice = 0; slice < n; slice++) {
    hec_parcel parcel = {m->layer, expert, slice, n, HEC_STATE_PARAM};
    holding a = holding_of(m->from, m->from->home, m->layer, expert, slice);
    holding b = holding_of(m->to, m->to->home, m->layer, expert, slice);
    int64_t whole = (int64_t)(bytes->expert_param + 0.5);
    add_moves(m, &a, &b, parcel, hec_part_bytes(whole, bytes->expert_param / params, slice, n));
    if (!m->problem->train)
      continue;
    parcel.state = HEC_STATE_OPTIMIZER;
    a = holding_of(m->from, m->from->opt_home, m->layer, expert, slice);
    b = holding_of(m->to, m->to->opt_home, m->layer, expert, slice);
    whole = (int64_t)(bytes->expert_optimizer + 0.5);
    add_moves(m, &a, &b, parcel, hec_part_bytes(whole, bytes->expert_optimizer / params, slice, n));
  }
}

static bool add_layer(migration m) {
  HEC_ASSERT(m.from->n_slices == m.to->n_slices && m.from->n_experts == m.to->n_experts &&
             m.from->n_ranks == m.to->n_ranks);
  for (int32_t e = 0; e < m.to->n_experts; e++)
    add_row(&m, e);
  return m.moved;
}

static int by_pair(const void *a, const void *b) {
  const hec_move *x = a, *y = b;
  if (x->source != y->source)
    return x->source < y->source ? -1 : 1;
  if (x->destination != y->destination)
    return x->destination < y->destination ? -1 : 1;
  const hec_parcel *p = &x->parcel, *q = &y->parcel;
  if (p->layer != q->layer)
    return p->layer < q->layer ? -1 : 1;
  if (p->expert != q->expert)
    return p->expert < q->expert ? -1 : 1;
  if (p->part != q->part)
    return p->part < q->part ? -1 : 1;
  return (p->state > q->state) - (p->state < q->state);
}

void hec_move_list_sort(hec_move_list *list) {
  if (list->n > 1)
    qsort(list->data, list->n, sizeof *list->data, by_pair);
}

void hec_plan_moves(const hec_plan *from, const hec_plan *to, const hec_problem *problem, int32_t layer,
                    hec_move_list *out) {
  (void)add_layer((migration){.from = from, .to = to, .problem = problem, .layer = layer, .moves = out});
}

void hec_plan_migration(const hec_plan *from, const hec_plan *to, const hec_problem *problem, int32_t layer,
                        int64_t *bytes, hec_transfer_list *out) {
  if (!add_layer((migration){.from = from, .to = to, .problem = problem, .layer = layer, .bytes = bytes}))
    return;
  for (int32_t s = 0; s < to->n_ranks; s++)
    for (int32_t d = 0; d < to->n_ranks; d++) {
      int64_t *pair = &bytes[(size_t)s * (size_t)to->n_ranks + (size_t)d];
      if (*pair > 0)
        hec_transfer_list_add(out,
                              (hec_transfer){.bytes = *pair, .source = s, .destination = d, .item = -1, .after = -1});
      *pair = 0;
    }
}
