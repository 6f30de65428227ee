/* Pipeline `interleaved`. Chunk c of device d is part c p + d, so a micro-batch goes around the devices v times and the bubble
 * is a v-th. The order: interleave.c. */
#include "runtime/program/pipelines/interleave.h"

static void order(hec_pipeline_order *o, int32_t device) {
  hec_pipeline_interleave(o, device, false);
}

static hec_status fits(const hec_pipeline_shape *shape) {
  return hec_pipeline_interleave_fits("interleaved", shape);
}

const hec_pipeline_schedule hec_pipeline_interleaved = {
    .name = "interleaved",
    .summary = "1f1b with several virtual stages per stage, so that the bubble is smaller",
    .source = "Megatron-LM, arXiv:2104.04473",
    .bubble = "(p-1) (F+B+W) / v",
    .min_chunks = 2,
    .max_chunks = 1024,
    .copies = 1,
    .fits = fits,
    .order = order,
};
