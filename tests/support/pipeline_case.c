/* Random shapes that fit, and an order as text. See the header. */
#include "tests/support/pipeline_case.h"

#include "runtime/base/text.h"
#include "tests/support/checks.h"

static int32_t below(uint64_t *seed, int32_t n) {
  return (int32_t)(hec_test_random(seed) % (uint64_t)n);
}

hec_pipeline_shape hec_test_pipeline_shape(const hec_pipeline_schedule *schedule, uint64_t *seed) {
  hec_pipeline_shape shape = {.n_stages = 1 + below(seed, 6), .n_micro_batches = 1 + below(seed, 30)};
  bool fixed = schedule->min_chunks == schedule->max_chunks;
  shape.n_chunks = fixed ? schedule->min_chunks : 2 + below(seed, 3);
  if (schedule->copies == 2)
    shape.n_stages = 2 * (1 + below(seed, 4));
  if (schedule->pairs && fixed)
    shape.n_micro_batches = 2 * shape.n_stages + 2 * below(seed, 6);
  if (!fixed) {
    shape.n_micro_batches = shape.n_stages * (1 + below(seed, 4));
    if (below(seed, 3) == 0) { /* a last group that is smaller */
      shape.group = shape.n_stages + 1 + below(seed, 3);
      shape.n_micro_batches = shape.group * (1 + below(seed, 2)) + shape.n_stages;
    }
  }
  return shape;
}

hec_pipeline_order hec_test_pipeline_order(const char *name, hec_pipeline_shape shape, hec_arena *arena) {
  hec_pipeline_order order;
  ck_assert_ptr_nonnull(hec_pipeline_find(name));
  ck_ok(hec_pipeline_order_make(hec_pipeline_find(name), &shape, arena, &order));
  ck_ok(hec_pipeline_order_check(&order));
  return order;
}

static void add(hec_text *text, char letter, int32_t micro_batch, int32_t chunk) {
  hec_text_printf(text, "%c%d%.*s", letter, (int)micro_batch, (int)chunk, "''''");
}

const char *hec_test_pipeline_text(const hec_pipeline_order *order, int32_t device, hec_arena *arena) {
  HEC_SCOPED(hec_text) text = {0};
  for (int32_t i = order->piece_at[device]; i < order->piece_at[device + 1]; i++) {
    const hec_pipeline_piece *p = &order->piece[i];
    hec_text_add(&text, i > order->piece_at[device] ? " " : "");
    add(&text, "FIWBF"[p->kind], p -> micro_batch, p -> chunk);
    if (p->kind == HEC_PIECE_PAIR) {
      hec_text_add(&text, "&");
      add(&text, 'B', p->beside_micro_batch, p->beside_chunk);
    }
  }
  char *copy = hec_arena_text(arena, text.data);
  return copy;
}
