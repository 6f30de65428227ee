/* Pipeline `1f1b-overlap`: Megatron's combined forward and backward (--overlap-moe-expert-parallel-comm). The order of
 * `interleaved` with one more forward at the begin. Then each forward runs beside the backward that follows it, the
 * expert-parallel communication of one beside the compute of the other (combined_1f1b.py). With one stage it needs no chunks.
 *
 * If all cost the same, the last stage idles for (p-1)(F+B+W)/v as without pairs. Stage s has 2(p-1-s) pairs fewer than it, so
 * more work and less idle time. */
#include "runtime/program/pipelines/interleave.h"

static void order(hec_pipeline_order *o, int32_t device) {
  hec_pipeline_interleave(o, device, true);
}

static hec_status fits(const hec_pipeline_shape *shape) {
  if (shape->n_stages > 1 && shape->n_chunks < 2)
    return hec_pipeline_refuse("1f1b-overlap", "several virtual stages per stage", shape->n_chunks, "2 or more");
  return hec_pipeline_interleave_fits("1f1b-overlap", shape);
}

const hec_pipeline_schedule hec_pipeline_1f1b_overlap = {
    .name = "1f1b-overlap",
    .summary = "interleaved, each forward beside a backward: dispatch and combine hide behind the other's compute",
    .source = "Megatron-Core, combined_1f1b.py",
    .bubble = "(p-1) (F+B+W) / v",
    .min_chunks = 1,
    .max_chunks = 1024,
    .copies = 1,
    .pairs = true,
    .fits = fits,
    .order = order,
};
