/* Training jobs of tests: a layout of a preset's model, and a model so small that its bytes can be counted by hand. */
#pragma once
#include "models/training/step.h"
#include "tests/support/checks.h"

/* 2 layers, the last with MoE. Width 8, 2 heads of 4, 4 experts of 6, top 2, a shared one of 10, dense 20, 100 words. */
extern const hec_moe hec_test_tiny_moe;

/* A job of `moe`, of one sequence of 4,096 tokens (tiny: 16) in a micro-batch, on h100 with the fitted constants. `batch` 0: any,
 * unchecked. What does not fit fails the test. */
hec_training hec_test_training(const hec_moe *moe, const char *layout, int32_t gpus, int32_t batch, const char *recipe,
                               hec_arena *arena);

static inline hec_layer_pass hec_test_pass(const hec_training *t, hec_layer_kind kind, const hec_layer_load *load,
                                           bool backward) {
  hec_layer_pass pass[2];
  hec_layer_passes_of(t, kind, load, pass);
  return pass[backward];
}
