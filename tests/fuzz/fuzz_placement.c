/* Any bytes as a placement of any format. What is accepted is whole. It becomes a plan that holds, and a file of every
 * format that can say it, which reads back as the same slots. */
#include "runtime/plan/placement/placement.h"
#include "runtime/plan/problem.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LAYERS = 2, EXPERTS = 4, RANKS = 2, FIRST_MAX = 64 }; /* dense layers that EPLB's form writes rows for */

static void check_plan(const hec_placement *placement, hec_arena *arena) {
  const hec_problem problem = {.n_layers = LAYERS, .n_experts = EXPERTS, .n_ranks = RANKS};
  hec_plan plan = hec_plan_new(arena, &problem, 1);
  hec_placement_set(placement, &plan);
  hec_plan_check(&plan);
}

static void check_format(const hec_placement_format *format, const hec_placement *placement, hec_arena *arena) {
  HEC_SCOPED(hec_text) text = {0}, mind = {0};
  hec_placement again;
  hec_placement_shape shape = placement->shape;
  if (hec_placement_write(format, placement, &text, &mind) == HEC_OK) {
    if (hec_placement_parse(text.data, text.length, "again", shape, arena, &again) != HEC_OK)
      abort();
    size_t n = (size_t)LAYERS * RANKS;
    if (memcmp(again.slot_at, placement->slot_at, (n + 1) * sizeof *again.slot_at) != 0 ||
        memcmp(again.slot, placement->slot, (size_t)again.slot_at[n] * sizeof *again.slot) != 0)
      abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const int32_t first[4] = {-1, 0, 1, 3};
  if (size == 0 || size > 1 << 16)
    return 0;
  HEC_SCOPED(hec_text) text = {0};
  HEC_SCOPED(hec_arena) arena = {0};
  hec_placement placement;
  hec_text_add_bytes(&text, (const char *)data + 1, size - 1);
  hec_text_add(&text, "");
  hec_placement_shape shape = {LAYERS, EXPERTS, RANKS, first[data[0] & 3]};
  if (hec_placement_parse(text.data ? text.data : "", size - 1, "fuzz", shape, &arena, &placement) == HEC_OK) {
    check_plan(&placement, &arena);
    for (int32_t i = 0; placement.shape.first_layer <= FIRST_MAX && hec_placement_formats[i]; i++)
      check_format(hec_placement_formats[i], &placement, &arena);
  }
  return 0;
}
