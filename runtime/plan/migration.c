/* Migration: the difference of two plans, in bytes between ranks. No policy counts its own.
 *
 *   has(plan, slice)  = { home of the slice } + { resident copies of the expert }   (guests are freed: never a source)
 *   moves             = has(to) \ has(from), each from the nearest rank of has(from): same node first, then lower rank
 *
 * once for the parameters (homes) and once for the optimizer state (optimizer homes; training only). Slice j of n of B
 * bytes has floor(B (j+1)/n) - floor(B j/n), so that slices add up exactly. Two slots of one expert on one rank move
 * once. O(copies^2) per changed row, O(copies) per unchanged one. */
#include "runtime/plan/plan.h"

/* The ranks that have one slice in one plan. */
typedef struct {
  int32_t home, n_copies;
  const int32_t *rank; /* [n_copies] ascending */
  const uint8_t *kind;
} holding;

static holding holding_of(const hec_plan *plan, const int32_t *home, int32_t layer, int32_t expert, int32_t slice) {
  size_t row = (size_t)layer * (size_t)plan->n_experts + (size_t)expert;
  holding h = {.home = home[row * (size_t)plan->n_slices + (size_t)slice]};
  h.n_copies = hec_plan_copies(plan, layer, expert, &h.rank, &h.kind);
  return h;
}

static bool has(const holding *h, int32_t rank) {
  if (h->home == rank)
    return true;
  for (int32_t i = 0; i < h->n_copies && h->rank[i] <= rank; i++)
    if (h->rank[i] == rank && h->kind[i] == HEC_COPY_RESIDENT)
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
  for (int32_t i = 0; i < from->n_copies; i++)
    if (from->kind[i] == HEC_COPY_RESIDENT && nearer(problem, to, from->rank[i], best))
      best = from->rank[i];
  return best;
}

/* The i-th entry of a holding (-1: the home) is a rank not seen before it. */
static bool is_new(const holding *h, int32_t i) {
  if (i < 0)
    return true;
  if (h->kind[i] != HEC_COPY_RESIDENT || h->rank[i] == h->home)
    return false;
  for (int32_t k = i - 1; k >= 0 && h->rank[k] == h->rank[i]; k--)
    if (h->kind[k] == HEC_COPY_RESIDENT)
      return false;
  return true;
}

/* Adds what `to` has and `from` has not to bytes[source][destination]; true if anything moves. */
static bool add_moves(const holding *from, const holding *to, const hec_problem *problem, int64_t size,
                      int64_t *bytes) {
  bool moved = false;
  for (int32_t i = -1; i < to->n_copies; i++) {
    int32_t rank = i < 0 ? to->home : to->rank[i];
    if (!is_new(to, i) || has(from, rank))
      continue;
    bytes[(size_t)nearest(from, problem, rank) * (size_t)problem->n_ranks + (size_t)rank] += size;
    moved = true;
  }
  return moved;
}

static int64_t slice_bytes(double total, int32_t slice, int32_t n) {
  int64_t whole = (int64_t)(total + 0.5);
  return whole * (slice + 1) / n - whole * slice / n;
}

static bool add_row(const hec_plan *from, const hec_plan *to, const hec_problem *problem, int32_t layer, int32_t expert,
                    int64_t *bytes) {
  bool moved = false;
  for (int32_t slice = 0; slice < to->n_slices; slice++) {
    holding a = holding_of(from, from->home, layer, expert, slice), b = holding_of(to, to->home, layer, expert, slice);
    moved |= add_moves(&a, &b, problem, slice_bytes(problem->bytes.expert_param, slice, to->n_slices), bytes);
    if (!problem->train)
      continue;
    a = holding_of(from, from->opt_home, layer, expert, slice);
    b = holding_of(to, to->opt_home, layer, expert, slice);
    moved |= add_moves(&a, &b, problem, slice_bytes(problem->bytes.expert_optimizer, slice, to->n_slices), bytes);
  }
  return moved;
}

void hec_plan_migration(const hec_plan *from, const hec_plan *to, const hec_problem *problem, int32_t layer,
                        int64_t *bytes, hec_transfer_list *out) {
  HEC_ASSERT(from->n_slices == to->n_slices && from->n_experts == to->n_experts && from->n_ranks == to->n_ranks);
  bool moved = false;
  for (int32_t e = 0; e < to->n_experts; e++)
    moved |= add_row(from, to, problem, layer, e, bytes);
  if (!moved)
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
