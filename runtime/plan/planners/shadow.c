/* Algorithm 1 of FasterMoE (PPoPP 2022, doi 10.1145/3503221.3508418; reference policies.md 3.2, the paper's variant).
 * Experts come by descending load. Each is shadowed tentatively, which leaves its tokens on their sources and takes
 * them off its receivers. It is accepted while the predicted time falls, and the first that does not help ends it. */
#include "runtime/plan/planners/shadow.h"

#include "runtime/plan/planners/order.h"

#include <string.h>

hec_shadow hec_shadow_new(hec_arena *arena, int32_t n_ranks, int32_t n_experts) {
  return (hec_shadow){
      .n_ranks = n_ranks,
      .n_experts = n_experts,
      .key = HEC_NEW(arena, double, n_experts),
      .order = HEC_NEW(arena, int32_t, n_experts),
      .received = HEC_NEW(arena, uint64_t, n_ranks),
      .local = HEC_NEW(arena, uint64_t, n_ranks),
      .chosen = HEC_NEW(arena, int32_t, n_experts),
      .predicted = HEC_NEW(arena, double, (size_t)n_experts + 1),
  };
}

static double predict(const hec_shadow *shadow, const hec_shadow_cost *cost, int32_t n_shadows) {
  uint64_t computed = 0, received = 0;
  for (int32_t r = 0; r < shadow->n_ranks; r++) {
    uint64_t all = shadow->received[r] + shadow->local[r];
    computed = all > computed ? all : computed;
    received = shadow->received[r] > received ? shadow->received[r] : received;
  }
  return cost->compute_s * (double)computed + cost->exchange_s * (double)received + cost->shadow_s * n_shadows;
}

/* Takes expert e off its receivers: its assignments stay where they come from. */
static void keep_local(hec_shadow *shadow, const uint32_t *load, const int32_t *home, int32_t e) {
  for (int32_t s = 0; s < shadow->n_ranks; s++) {
    uint32_t n = load[(size_t)s * (size_t)shadow->n_experts + (size_t)e];
    shadow->received[home[e]] -= n;
    shadow->local[s] += n;
  }
}

static void start(hec_shadow *shadow, const uint32_t *load, const int32_t *home) {
  memset(shadow->received, 0, (size_t)shadow->n_ranks * sizeof *shadow->received);
  memset(shadow->local, 0, (size_t)shadow->n_ranks * sizeof *shadow->local);
  for (int32_t e = 0; e < shadow->n_experts; e++)
    shadow->key[e] = 0;
  for (int32_t s = 0; s < shadow->n_ranks; s++) {
    const uint32_t *count = load + (size_t)s * (size_t)shadow->n_experts;
    for (int32_t e = 0; e < shadow->n_experts; e++) {
      shadow->received[home[e]] += count[e];
      shadow->key[e] += count[e];
    }
  }
  hec_order_descending(shadow->key, shadow->n_experts, shadow->order);
}

void hec_shadow_choose(hec_shadow *shadow, const hec_shadow_cost *cost, const uint32_t *load, const int32_t *home) {
  start(shadow, load, home);
  double best = predict(shadow, cost, 0);
  shadow->predicted[0] = best;
  shadow->n_chosen = 0;
  shadow->n_predicted = 1;
  while (shadow->n_chosen < shadow->n_experts) {
    int32_t e = shadow->order[shadow->n_chosen];
    keep_local(shadow, load, home, e);
    double with = predict(shadow, cost, shadow->n_chosen + 1);
    shadow->predicted[shadow->n_predicted++] = with;
    if (!(with < best))
      return;
    best = with;
    shadow->chosen[shadow->n_chosen++] = e;
  }
}
