/* A layer's guests and its split, set aside and taken back (layer_end.h): tokens change hands, the rest is copied. */
#include "runtime/plan/planners/layer_end.h"
#include "runtime/plan/problem.h"

#include <string.h>

hec_layer_kept hec_layer_kept_new(hec_arena *arena, const hec_problem *p) {
  size_t ranks = (size_t)p->n_ranks, experts = (size_t)p->n_experts;
  return (hec_layer_kept){.held = HEC_NEW(arena, uint8_t, experts * ranks),
                          .n_held = HEC_NEW(arena, int32_t, experts),
                          .n_guests = HEC_NEW(arena, int32_t, ranks),
                          .tokens = HEC_NEW(arena, uint32_t, experts * ranks),
                          .load = HEC_NEW(arena, uint64_t, ranks),
                          .early = hec_part_lanes_new(arena, p),
                          .all = hec_part_lanes_new(arena, p)};
}

/* All but the tokens. */
static void copy_arrays(const hec_layer_kept *from, hec_layer_kept *to, const hec_layer_end *shape) {
  size_t ranks = (size_t)shape->n_ranks, experts = (size_t)shape->n_experts;
  memcpy(to->held, from->held, experts * ranks * sizeof *to->held);
  memcpy(to->n_held, from->n_held, experts * sizeof *to->n_held);
  memcpy(to->n_guests, from->n_guests, ranks * sizeof *to->n_guests);
  memcpy(to->load, from->load, ranks * sizeof *to->load);
  hec_part_lanes_copy(&from->early, &to->early);
  hec_part_lanes_copy(&from->all, &to->all);
}

/* Its arrays, where they are. */
static hec_layer_kept now(const hec_layer_end *end) {
  return (hec_layer_kept){end->held, end->n_held, end->n_guests, end->tokens, end->load, end->early, end->all};
}

static void swap_tokens(hec_layer_end *end, hec_layer_kept *kept) {
  uint32_t *tokens = end->tokens;
  end->tokens = kept->tokens;
  kept->tokens = tokens;
}

void hec_layer_end_keep(hec_layer_end *end, hec_layer_kept *kept) {
  hec_layer_kept own = now(end);
  copy_arrays(&own, kept, end);
  swap_tokens(end, kept);
}

void hec_layer_end_keep_split(hec_layer_end *end, hec_layer_kept *kept) {
  memcpy(kept->load, end->load, (size_t)end->n_ranks * sizeof *end->load);
  swap_tokens(end, kept);
}

void hec_layer_end_take_back_split(hec_layer_end *end, hec_layer_kept *kept) {
  memcpy(end->load, kept->load, (size_t)end->n_ranks * sizeof *end->load);
  swap_tokens(end, kept);
}

void hec_layer_end_take_back(hec_layer_end *end, hec_layer_kept *kept) {
  hec_layer_kept own = now(end);
  copy_arrays(kept, &own, end);
  swap_tokens(end, kept);
}
