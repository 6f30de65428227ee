/* Pipeline `zb-h1`: 1f1b whose weight gradients wait. So the stage before gets its gradient earlier, and they fill the
 * end of the step. On stage s the weight gradient of a micro-batch follows the input gradient of the s-th one after
 * it. So stage s of p holds p - s activations as in 1f1b, and what s weight gradients need. */
#include "runtime/program/pipelines/pipeline_schedule.h"

static void order(hec_pipeline_order *o, int32_t device) {
  int32_t n = o->shape.n_micro_batches, ahead = o->shape.n_stages - 1 - device, late = ahead + device;
  for (int32_t i = 0; i < n + late; i++) {
    if (i < n)
      hec_pipeline_add(o, HEC_PIECE_FORWARD, 0, i);
    if (i >= ahead && i < n + ahead)
      hec_pipeline_add(o, HEC_PIECE_INPUT_GRADIENT, 0, i - ahead);
    if (i >= late)
      hec_pipeline_add(o, HEC_PIECE_WEIGHT_GRADIENT, 0, i - late);
  }
}

const hec_pipeline_schedule hec_pipeline_zb_h1 = {
    .name = "zb-h1",
    .summary = "1f1b with weight gradients put off into the bubble",
    .source = "Zero Bubble, arXiv:2401.10241",
    .bubble = "(p-1) (F+B-W)",
    .min_chunks = 1,
    .max_chunks = 1,
    .copies = 1,
    .splits = true,
    .order = order,
};
