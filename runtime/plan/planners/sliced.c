/* A layer's copies are written in one go, by counting. Rows are by expert. Ranks ascend within a row, because slots
 * are read in the order of their ranks. */
#include "runtime/plan/planners/sliced.h"

void hec_sliced_homes(hec_plan *plan) {
  size_t rows = (size_t)plan->n_layers * (size_t)plan->n_experts;
  for (size_t row = 0; row < rows; row++)
    for (int32_t slice = 0; slice < plan->n_slices; slice++) {
      size_t at = row * (size_t)plan->n_slices + (size_t)slice;
      plan->home[at] = plan->opt_home[at] = slice;
    }
}

void hec_sliced_fill(hec_plan *plan, int32_t layer, const int32_t *slot, int32_t per_rank) {
  hec_plan_clear_copies(plan, layer);
  if (plan->n_slices == 1)
    return;
  int32_t n_slots = plan->n_ranks * per_rank, *at = plan->copy_at + (size_t)layer * (size_t)(plan->n_experts + 1);
  size_t block = (size_t)layer * (size_t)plan->copy_capacity;
  HEC_ASSERT(n_slots <= plan->copy_capacity);
  for (int32_t i = 0; i < n_slots; i++)
    if (slot[i] >= 0)
      at[slot[i] + 1]++;
  for (int32_t e = 0; e < plan->n_experts; e++)
    at[e + 1] += at[e];
  for (int32_t i = n_slots - 1; i >= 0; i--) /* from the back, so that each row's end becomes its beginning */
    if (slot[i] >= 0) {
      int32_t place = --at[slot[i] + 1];
      plan->copy_rank[block + (size_t)place] = i / per_rank;
      plan->copy_kind[block + (size_t)place] = HEC_COPY_GUEST;
    }
  int32_t used = 0;
  for (int32_t i = 0; i < n_slots; i++)
    used += slot[i] >= 0;
  for (int32_t e = 0; e < plan->n_experts; e++) /* at[e + 1] is the beginning of row e */
    at[e] = at[e + 1];
  at[plan->n_experts] = used;
}
