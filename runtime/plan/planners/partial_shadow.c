/* The greedy search of Pro-Prophet (arXiv 2411.10003; reference policies.md 3.9) for a given n:
 *
 *   repeat: i = rank that computes most; ends if i was taken before
 *           e = hottest expert that i keeps; copies to all ranks but the n with the fewest assignments for e
 *           recompute H, R and the predicted seconds; remember the best number of experts
 *   until max H - min H < a * all / E
 *
 * The paper's n and a are not in the text at hand. Unless n is given, the search runs for n = 0, 1/4, 1/2 and 3/4 of the
 * ranks and keeps the best. With a = 1/10: a smaller one looks further and cannot choose worse. The rank that keeps e needs no copy
 * and is not among the n. Ties go to the lower rank, expert and n. */
#include "runtime/plan/planners/partial_shadow.h"

#include "runtime/base/status.h"
#include "runtime/plan/planners/order.h"

#include <string.h>

enum { QUARTERS = 4 };

hec_partial_shadow hec_partial_shadow_new(hec_arena *arena, int32_t n_ranks, int32_t n_experts) {
  size_t ranks = (size_t)n_ranks, experts = (size_t)n_experts;
  return (hec_partial_shadow){
      .n_ranks = n_ranks,
      .n_experts = n_experts,
      .excluded = -1,
      .balanced = 10,
      .chosen = HEC_NEW(arena, int32_t, experts),
      .receiver = HEC_NEW(arena, int32_t, experts * ranks),
      .predicted = HEC_NEW(arena, double, experts + 1),
      .load = HEC_NEW(arena, uint64_t, experts),
      .computed = HEC_NEW(arena, uint64_t, ranks),
      .received = HEC_NEW(arena, uint64_t, ranks),
      .used = HEC_NEW(arena, uint8_t, ranks),
      .is_chosen = HEC_NEW(arena, uint8_t, experts),
      .key = HEC_NEW(arena, double, ranks),
      .order = HEC_NEW(arena, int32_t, ranks),
  };
}

static double positive(double seconds) {
  return seconds > 0 ? seconds : 0;
}

static double predict(const hec_partial_shadow *shadow, const hec_partial_cost *cost, int32_t n_copies) {
  double experts_s = cost->compute_s * (double)hec_largest(shadow->computed, shadow->n_ranks);
  double seconds = (cost->train ? 4 : 2) * cost->exchange_s * (double)hec_largest(shadow->received, shadow->n_ranks) +
                   (cost->train ? 3 : 1) * experts_s +
                   positive(cost->transfer_s * n_copies - experts_s - cost->window_s);
  return cost->train ? seconds + positive(cost->gradient_s * n_copies - 2 * experts_s - 2 * cost->window_s) : seconds;
}

static uint64_t sent_by(const hec_partial_shadow *shadow, const uint64_t *sent, int32_t rank, int32_t expert) {
  return sent[(size_t)rank * (size_t)shadow->n_experts + (size_t)expert];
}

/* No copies: H and R of plain expert parallelism. */
static void start(hec_partial_shadow *shadow, const uint64_t *sent, const int32_t *home) {
  int32_t n_experts = shadow->n_experts;
  memset(shadow->computed, 0, (size_t)shadow->n_ranks * sizeof *shadow->computed);
  memset(shadow->received, 0, (size_t)shadow->n_ranks * sizeof *shadow->received);
  memset(shadow->used, 0, (size_t)shadow->n_ranks * sizeof *shadow->used);
  memset(shadow->is_chosen, 0, (size_t)n_experts * sizeof *shadow->is_chosen);
  for (int32_t e = 0; e < n_experts; e++) {
    shadow->computed[home[e]] += shadow->load[e];
    shadow->received[home[e]] += shadow->load[e] - sent_by(shadow, sent, home[e], e);
  }
  shadow->n_chosen = 0;
}

static int32_t busiest_rank(const hec_partial_shadow *shadow) {
  int32_t max = 0;
  for (int32_t r = 1; r < shadow->n_ranks; r++)
    if (shadow->computed[r] > shadow->computed[max])
      max = r;
  return max;
}

/* The expert without copies that `rank` keeps and that gives it most; -1: none gives it any. */
static int32_t hottest_of(const hec_partial_shadow *shadow, const int32_t *home, int32_t rank) {
  const uint64_t *load = shadow->load;
  int32_t hot = -1;
  for (int32_t e = 0; e < shadow->n_experts; e++)
    if (home[e] == rank && !shadow->is_chosen[e] && load[e] > 0 && (hot < 0 || load[e] > load[hot]))
      hot = e;
  return hot;
}

/* Copies of e on the ranks with most of its assignments; these stay there. */
static void replicate(hec_partial_shadow *shadow, const uint64_t *sent, const int32_t *home, int32_t e) {
  int32_t *receiver = shadow->receiver + (ptrdiff_t)shadow->n_chosen * shadow->n_ranks, n = 0;
  for (int32_t r = 0; r < shadow->n_ranks; r++)
    shadow->key[r] = (double)sent_by(shadow, sent, r, e);
  hec_order_descending(shadow->key, shadow->n_ranks, shadow->order);
  for (int32_t i = 0; n < shadow->n_receivers; i++) {
    int32_t r = shadow->order[i], keeper = home[e];
    uint64_t stays = sent_by(shadow, sent, r, e);
    if (r == keeper)
      continue;
    receiver[n++] = r;
    shadow->computed[keeper] -= stays;
    shadow->received[keeper] -= stays;
    shadow->computed[r] += stays;
  }
  shadow->is_chosen[e] = 1;
  shadow->chosen[shadow->n_chosen++] = e;
}

static bool balanced(const hec_partial_shadow *shadow) {
  uint64_t all = 0, min = shadow->computed[0];
  for (int32_t r = 0; r < shadow->n_ranks; r++) {
    all += shadow->computed[r];
    min = shadow->computed[r] < min ? shadow->computed[r] : min;
  }
  uint64_t gap = hec_largest(shadow->computed, shadow->n_ranks) - min;
  return gap * (uint64_t)shadow->balanced * (uint64_t)shadow->n_experts < all;
}

/* Copies go to n_receivers ranks; returns the number of experts, at most `max`, that is predicted best. */
static int32_t search(hec_partial_shadow *shadow, const hec_partial_cost *cost, const uint64_t *sent,
                      const int32_t *home, int32_t max) {
  int32_t best = 0;
  start(shadow, sent, home);
  shadow->predicted[0] = predict(shadow, cost, 0);
  while (shadow->n_chosen < max && !balanced(shadow)) {
    int32_t rank = busiest_rank(shadow), e = hottest_of(shadow, home, rank);
    if (shadow->used[rank] || e < 0)
      break;
    shadow->used[rank] = 1;
    replicate(shadow, sent, home, e);
    int32_t n = shadow->n_chosen;
    shadow->predicted[n] = predict(shadow, cost, n * shadow->n_receivers);
    best = shadow->predicted[n] < shadow->predicted[best] ? n : best;
  }
  shadow->units += (uint64_t)(shadow->n_chosen + 1) * (uint64_t)(shadow->n_ranks + shadow->n_experts);
  return best;
}

void hec_partial_shadow_choose(hec_partial_shadow *shadow, const hec_partial_cost *cost, const uint64_t *sent,
                               const int32_t *home, int32_t max) {
  int32_t n_ranks = shadow->n_ranks, n_experts = shadow->n_experts, others = n_ranks - 1;
  memset(shadow->load, 0, (size_t)n_experts * sizeof *shadow->load);
  for (int32_t r = 0; r < n_ranks; r++)
    for (int32_t e = 0; e < n_experts; e++)
      shadow->load[e] += sent_by(shadow, sent, r, e);
  shadow->units = (uint64_t)n_ranks * (uint64_t)n_experts;
  int32_t best_receivers = 0, best_n = 0, tries = shadow->excluded < 0 ? QUARTERS : 1;
  double best_s = 0;
  for (int32_t quarter = 0; quarter < tries; quarter++) {
    int32_t excluded = shadow->excluded < 0 ? n_ranks * quarter / QUARTERS : shadow->excluded;
    shadow->n_receivers = others > excluded ? others - excluded : 0;
    if (shadow->n_receivers < 1 && quarter > 0)
      break;
    int32_t n = search(shadow, cost, sent, home, shadow->n_receivers > 0 ? max : 0);
    if (quarter == 0 || shadow->predicted[n] < best_s) {
      best_s = shadow->predicted[n];
      best_n = n;
      best_receivers = shadow->n_receivers;
    }
  }
  shadow->n_receivers = best_receivers;
  (void)search(shadow, cost, sent, home, best_n); /* once more, to its best */
}
