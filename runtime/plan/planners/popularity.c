/* goal[e] = load[e] * slots / all; count[e] = max(floor(goal[e]), 1)
 *
 *   while too many   the expert with the largest count - goal that has more than one gives one up
 *   while too few    the expert with the smallest count - goal gets one
 *
 * Differences are compared in whole numbers, count * all - load * slots, ties to the lower expert. */
#include "runtime/plan/planners/popularity.h"

#include "runtime/base/status.h"

#include <stddef.h>

__extension__ typedef __int128 wide;

typedef struct {
  const uint64_t *load; /* NULL: every expert 1 */
  uint64_t all;
  int32_t n_experts, n_slots;
} popularity;

/* count - goal, times all. */
static wide surplus(const popularity *p, int32_t expert, int32_t count) {
  return (wide)count * (wide)p->all - (wide)(p->load ? p->load[expert] : 1) * p->n_slots;
}

static int32_t round_down(const popularity *p, int32_t *count) {
  int32_t sum = 0;
  for (int32_t e = 0; e < p->n_experts; e++) {
    uint64_t load = p->load ? p->load[e] : 1;
    count[e] = (int32_t)((wide)load * p->n_slots / (wide)p->all);
    count[e] = count[e] > 1 ? count[e] : 1;
    sum += count[e];
  }
  return sum;
}

static int32_t giver(const popularity *p, const int32_t *count) {
  int32_t best = -1;
  for (int32_t e = 0; e < p->n_experts; e++)
    if (count[e] > 1 && (best < 0 || surplus(p, e, count[e]) > surplus(p, best, count[best])))
      best = e;
  return best;
}

static int32_t taker(const popularity *p, const int32_t *count) {
  int32_t best = 0;
  for (int32_t e = 1; e < p->n_experts; e++)
    if (surplus(p, e, count[e]) < surplus(p, best, count[best]))
      best = e;
  return best;
}

uint64_t hec_popularity_place(const uint64_t *load, int32_t n_experts, int32_t n_slots, int32_t *count, int32_t *slot) {
  HEC_ASSERT(n_experts >= 1 && n_slots >= n_experts);
  popularity p = {.load = load, .n_experts = n_experts, .n_slots = n_slots};
  for (int32_t e = 0; e < n_experts; e++)
    p.all += load[e];
  if (p.all == 0) {
    p.load = NULL;
    p.all = (uint64_t)n_experts;
  }
  int32_t sum = round_down(&p, count);
  uint64_t units = (uint64_t)n_experts + (uint64_t)n_slots;
  for (; sum > n_slots; sum--, units += (uint64_t)n_experts)
    count[giver(&p, count)]--;
  for (; sum < n_slots; sum++, units += (uint64_t)n_experts)
    count[taker(&p, count)]++;
  for (int32_t e = 0, i = 0; e < n_experts; e++)
    for (int32_t k = 0; k < count[e]; k++)
      slot[i++] = e;
  return units;
}
